//! The last frontend of a load balancer that stays.
//!
//! Azure takes no frontend from a load balancer that is its last: `DeletingAllIpConfigsInLoadbalancerNotSupported`. Where
//! the load balancer stays, because the operator fills its pools or because it has parts of others, the last frontend of a
//! Service that is gone stays too, with its address. A tag of the load balancer names it. The tag is the positive record by
//! which the frontend goes when another one comes, also in a process that starts later.

use std::collections::BTreeMap;

use lazuli_model::tags::find;

use super::{
    Wants,
    edit::Edit,
    index::{Index, fold},
    model::{Frontend, LoadBalancer},
    placed::Placed,
};
use crate::{
    ask::names::BaseName,
    network::{Refusal, RefusalReason},
};

/// The tag that names the frontend.
pub const TAG: &str = "lazuli-released-frontend";

impl LoadBalancer {
    /// The frontend that no Service has any more and that stays because it was the last. One that a rule uses again is in
    /// service.
    pub fn released_frontend(&self) -> Option<&Frontend> {
        let frontend = self.frontend(find(&self.tags, TAG)?.1)?;
        let id = Self::frontend_id(&self.id, &frontend.name);
        let is_used = self.rules.iter().any(|rule| rule.frontend.as_ref() == Some(&id))
            || self.outbound_rules.iter().any(|rule| rule.frontends.contains(&id))
            || self.nat.iter().any(|range| range.frontend.as_ref() == Some(&id));
        (!is_used).then_some(frontend)
    }
}

/// Whether the edits leave no frontend of those that there are, and add none.
pub(super) fn takes_the_last(actual: &LoadBalancer, edits: &[Edit]) -> bool {
    let goes = |frontend: &Frontend| {
        edits.iter().any(|edit| matches!(edit, Edit::RemoveFrontend(name) if *name == frontend.name))
    };
    !actual.frontends.is_empty()
        && actual.frontends.iter().all(goes)
        && !edits.iter().any(|edit| matches!(edit, Edit::PutFrontend(_)))
}

/// Keeps the last frontend where the edits would remove it, and removes the one that was kept where another one comes.
pub(super) fn adjust(wants: &Wants, placed: &[Placed<'_>], index: &Index, edits: &mut Vec<Edit>) {
    let Some(actual) = index.model else { return };
    let recorded = actual.released_frontend();
    let is_asked = |frontend: &Frontend| {
        placed.iter().any(|part| part.uses_frontend(&frontend.name))
            || wants
                .iter()
                .any(|(service, want)| !want.present.frontends.is_empty() && BaseName::of(service).owns(&frontend.name))
    };
    let another_comes = placed.iter().any(|part| !part.part.frontends.is_empty());
    let stays = if takes_the_last(actual, edits) {
        let last = recorded.or_else(|| actual.frontends.iter().min_by_key(|frontend| fold(&frontend.name)));
        edits.retain(|edit| !matches!(edit, Edit::RemoveFrontend(name) if last.is_some_and(|last| last.name == *name)));
        last
    } else {
        let goes = |edits: &[Edit], frontend: &Frontend| edits.contains(&Edit::RemoveFrontend(frontend.name.clone()));
        match recorded.filter(|recorded| !is_asked(recorded)) {
            Some(recorded) if goes(edits, recorded) => None,
            Some(recorded) if another_comes => {
                edits.push(Edit::RemoveFrontend(recorded.name.clone()));
                None
            }
            recorded => recorded,
        }
    };
    let there = find(&actual.tags, TAG);
    let is_noted = match (there, stays) {
        (None, None) => true,
        (Some((_, name)), Some(stays)) => stays.name.eq_ignore_ascii_case(name),
        // What the tag of a frontend that is in service says goes before the Service's status is set.
        (Some(_), None) => edits.is_empty() && !another_comes,
        (None, Some(_)) => false,
    };
    if !is_noted {
        note(there.map_or(TAG, |(spelled, _)| spelled), stays, edits);
    }
}

/// Brings the tag, in this spelling, to the frontend that stays.
fn note(tag: &str, stays: Option<&Frontend>, edits: &mut Vec<Edit>) {
    let at = edits.iter().position(|edit| matches!(edit, Edit::Tags { .. })).unwrap_or_else(|| {
        edits.insert(0, Edit::Tags { set: BTreeMap::new(), remove: vec![] });
        0
    });
    let Some(Edit::Tags { set, remove }) = edits.get_mut(at) else { return };
    match stays {
        Some(stays) => _ = set.insert(tag.to_owned(), stays.name.clone()),
        None => remove.push(tag.to_owned()),
    }
}

/// The event of a Service whose frontend stays.
pub(super) fn notice(actual: &LoadBalancer, frontend: &Frontend) -> Refusal {
    let address = frontend.public_ip.as_ref().map(|id| format!("public IP {}", id.name()));
    let address = address.or_else(|| frontend.private_address.map(|address| format!("address {address}")));
    Refusal::new(
        RefusalReason::LastFrontend,
        format!(
            "frontend {} of load balancer {} stays with its {}, without rules, though the Service has left it: Azure removes \
             no load balancer's last frontend",
            frontend.name,
            actual.id.name(),
            address.as_deref().unwrap_or("address")
        ),
    )
}
