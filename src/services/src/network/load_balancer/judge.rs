//! How far a load balancer serves a Service, as it was observed.

use lazuli_model::ArmId;

use super::{
    Env, FrontendAddress,
    index::Index,
    model::{LoadBalancer, Rule},
    placed::{Placed, has_address},
    pool, released,
};
use crate::{
    ask::names::BaseName,
    network::{Found, Refusal, RefusalReason, Served, Waiting},
};

/// Whether nothing of a Service is left that is gone.
pub(super) fn is_gone_from(part: &Placed, index: &Index) -> bool {
    let Some(actual) = index.model else { return true };
    let Some(owned) = index.owned(&part.base) else { return true };
    let has_no_rules = part.gone.rules().is_none_or(|base| {
        let used_by_others = |name: &str| {
            let id = LoadBalancer::probe_id(&actual.id, name);
            actual.rules.iter().any(|rule| rule.probe.as_ref() == Some(&id) && !base.owns(&rule.name))
        };
        owned.rules.iter().all(|rule| part.names_rule(&rule.name))
            && owned.probes.iter().all(|probe| part.names_probe(&probe.name) || used_by_others(&probe.name))
    });
    let has_no_frontends = part.gone.frontends().is_none_or(|base| {
        owned.frontends.iter().all(|frontend| {
            let id = LoadBalancer::frontend_id(&actual.id, &frontend.name);
            part.uses_frontend(&frontend.name)
                || is_used_by_others(&id, base, index)
                || index.is_held(&id)
                || index.released.is_some_and(|released| released.name == frontend.name)
        })
    });
    has_no_rules && has_no_frontends
}

fn is_used_by_others(frontend: &ArmId, base: &BaseName, index: &Index) -> bool {
    index.rules_at(frontend).iter().any(|rule: &&Rule| !base.owns(&rule.name))
}

/// How far the load balancer serves a Service.
pub(super) fn judge(part: &Placed, index: &Index, env: &Env) -> Served {
    if !is_gone_from(part, index) {
        return Served::Pending;
    }
    let mut found = Found::default();
    if let Some((released, actual)) = index.released.zip(index.model) {
        if part.uses_frontend(&released.name) {
            // The tag still says that it may go.
            return Served::Pending;
        }
        found.released.extend(released.public_ip.clone());
        let was_its =
            part.gone.frontends().is_some_and(|base| base.owns(&released.name)) || part.gone.gives_up(released);
        found.notices.extend(was_its.then(|| released::notice(actual, released)));
    }
    if part.part.frontends.is_empty() {
        return Served::Done(found);
    }
    found.notices.extend(part.unagreed.map(|owner| {
        let message =
            format!("its address is that of Service {owner}, which does not name namespace {}", part.service.namespace);
        Refusal::new(RefusalReason::SharedAddress, message)
    }));
    let Some(actual) = index.model else { return Served::Pending };
    let mut is_waiting = false;
    for asked in &part.part.frontends {
        let Some(frontend) = part.frontends.get(&asked.family) else { return Served::Pending };
        let Some(there) = index.frontend(&frontend.name).filter(|there| has_address(there, asked)) else {
            return Served::Pending;
        };
        found.frontends.insert(asked.family, LoadBalancer::frontend_id(&actual.id, &there.name));
        if matches!(asked.address, FrontendAddress::Private { .. }) {
            match there.private_address {
                Some(address) => {
                    found.addresses.insert(asked.family, address);
                }
                None => is_waiting = true,
            }
        }
    }
    let rules = part.rules.iter().all(|rule| index.rule(&rule.name).is_some_and(|there| there.serves(rule)));
    let probes = part.probes.iter().all(|probe| index.probe(&probe.name).is_some_and(|there| there.serves(probe)));
    let pools = part.part.pools.iter().all(|name| {
        actual.pool(name).is_some_and(|pool| env.pools.get(name).is_none_or(|members| pool::has_some(pool, members)))
    });
    match (rules && probes && pools, is_waiting) {
        (false, _) => Served::Pending,
        (true, true) => Served::Waiting(Waiting::Address),
        (true, false) => Served::Done(found),
    }
}
