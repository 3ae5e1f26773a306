//! What a load balancer needs for all Services at once.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{ArmId, ServiceKey};

use super::{
    Env, Part, PoolMembers, Wants,
    edit::Edit,
    index::{Index, fold},
    judge::{is_gone_from, judge},
    model::{LoadBalancer, Pool, Rule},
    placed::{Placed, Placing},
    pool, released,
};
use crate::{
    ask::names,
    network::{Plan, Served, Waiting, settings::PoolKind},
};

/// Plans one write of the load balancer.
pub fn plan(wants: &Wants, actual: Option<&LoadBalancer>, env: &Env) -> Plan<Edit> {
    let index = Index::of(actual);
    let mut served: BTreeMap<ServiceKey, Served> = BTreeMap::new();
    // Services that the load balancer already serves go first: a newcomer never takes a port from one of them.
    let mut order: Vec<_> = wants.iter().collect();
    order.sort_by_key(|(service, want)| (!is_served(&want.present, &index), *service));
    let mut placing = Placing::new(wants, &index, env);
    for (service, want) in order {
        if let Err(refusal) = placing.add(service, want) {
            served.insert(service.clone(), Served::Refused(refusal));
        }
    }
    let mut placed = placing.placed;
    placed.sort_by_key(|part| part.service);

    let mut edits = Vec::new();
    if placed.iter().any(|part| !part.part.frontends.is_empty()) && actual.is_none() {
        edits.push(Edit::Create);
    }
    let mut waits = None;
    if actual.is_some() || !edits.is_empty() {
        let kept = add(&placed, &index, env, &mut edits);
        remove(wants, &placed, &index, &kept, env, &mut edits);
        match ending(&placed, actual, &edits, env) {
            Ending::Stays => released::adjust(wants, &placed, &index, &mut edits),
            Ending::Deletes => edits = vec![Edit::Delete],
            Ending::Waits(pools) => {
                edits.clear();
                waits = Some(pools);
            }
        }
    }
    let mut is_partial = add_members(actual, env, &mut edits);
    // The members of a pool whose kind changes are Azure's to move: nothing else goes out with that.
    let migrating = migrating(actual, env);
    if !migrating.is_empty() && waits.is_none() && edits != [Edit::Delete] {
        is_partial = true;
        edits = vec![Edit::MigratePools(migrating)];
    }

    for part in &placed {
        let state = match &waits {
            // A frontend that it gives up goes with the load balancer.
            Some(pools)
                if part.part.frontends.is_empty()
                    && (!is_gone_from(part, &index) || gives_up_one_of(part, &[Edit::Delete], actual)) =>
            {
                Served::Waiting(Waiting::MembersLeave(pools.clone()))
            }
            // It must not be told that it is gone from a load balancer that goes with it.
            _ if edits == [Edit::Delete] && part.gone.gives_up_public_ips() => Served::Pending,
            // Nor that a frontend is gone that only it gives up: without its want the frontend would stay.
            _ if gives_up_one_of(part, &edits, actual) => Served::Pending,
            _ => judge(part, &index, env),
        };
        served.insert(part.service.clone(), state);
    }
    Plan { edits, served, is_partial }
}

/// Whether a part gives up the address of a frontend that these edits remove.
fn gives_up_one_of(part: &Placed<'_>, edits: &[Edit], actual: Option<&LoadBalancer>) -> bool {
    let goes = |name: &String| {
        edits.iter().any(|edit| match edit {
            Edit::Delete => true,
            Edit::RemoveFrontend(gone) => gone == name,
            _ => false,
        })
    };
    let frontends = actual.into_iter().flat_map(|actual| &actual.frontends);
    frontends.filter(|frontend| goes(&frontend.name)).any(|frontend| part.gone.gives_up(frontend))
}

/// Whether the load balancer has a rule or a frontend of this part.
fn is_served(part: &Part, index: &Index) -> bool {
    part.rules.iter().any(|rule| index.rule(&rule.ask.name).is_some())
        || part.frontends.iter().any(|frontend| index.frontend(&frontend.name).is_some())
}

/// What is asked for, by name in lower case.
#[derive(Default)]
struct Kept<'a> {
    rules: BTreeMap<String, &'a Rule>,
    probes: BTreeSet<String>,
    pools: BTreeSet<String>,
    frontends: BTreeSet<String>,
}

/// Adds and changes what the Services ask for: first what others refer to.
fn add<'a>(placed: &'a [Placed<'a>], index: &Index, env: &Env, edits: &mut Vec<Edit>) -> Kept<'a> {
    let tags = index.model.map(|model| model.tags.clone()).unwrap_or_default();
    let mut change = env.tags.change(&tags);
    change.remove.retain(|name| !name.eq_ignore_ascii_case(released::TAG));
    if !change.is_empty() && placed.iter().any(|part| !part.part.frontends.is_empty()) {
        edits.push(Edit::Tags { set: change.set, remove: change.remove });
    }
    let mut kept = Kept::default();
    for pool in placed.iter().flat_map(|part| &part.part.pools) {
        let is_there = index.model.is_some_and(|model| model.pool(pool).is_some());
        if kept.pools.insert(fold(pool)) && !is_there {
            edits.push(Edit::AddPool(pool.clone()));
        }
    }
    for frontend in placed.iter().flat_map(|part| part.frontends.values()) {
        if kept.frontends.insert(fold(&frontend.name)) && index.frontend(&frontend.name) != Some(frontend) {
            edits.push(Edit::PutFrontend(frontend.clone()));
        }
    }
    for probe in placed.iter().flat_map(|part| &part.probes) {
        let is_there = index.probe(&probe.name).is_some_and(|there| there.serves(probe));
        if kept.probes.insert(fold(&probe.name)) && !is_there {
            edits.push(Edit::PutProbe(probe.clone()));
        }
    }
    for rule in placed.iter().flat_map(|part| &part.rules) {
        let is_there = index.rule(&rule.name).is_some_and(|there| there.serves(rule));
        if kept.rules.insert(fold(&rule.name), rule).is_none() && !is_there {
            edits.push(Edit::PutRule(rule.clone()));
        }
    }
    kept
}

/// Removes what is gone by a positive record and nothing else uses: first what refers to others.
fn remove(wants: &Wants, placed: &[Placed], index: &Index, kept: &Kept, env: &Env, edits: &mut Vec<Edit>) {
    let Some(actual) = index.model else { return };
    // Rules that leave or are changed lose what they referred to; those that stay refer to what they will.
    let mut leaving: BTreeSet<String> = BTreeSet::new();
    for part in placed {
        let owned = part.gone.rules().and_then(|base| index.owned(base));
        let own = owned.into_iter().flat_map(|owned| &owned.rules).map(|rule| fold(&rule.name));
        leaving.extend(own.filter(|name| !kept.rules.contains_key(name)));
    }
    let mut used: BTreeSet<&ArmId> = BTreeSet::new();
    let mut lost: BTreeMap<&ArmId, Vec<&Rule>> = BTreeMap::new();
    fn ids(rule: &Rule) -> impl Iterator<Item = &ArmId> {
        [&rule.frontend, &rule.pool, &rule.probe].into_iter().flatten()
    }
    for rule in &actual.rules {
        let name = fold(&rule.name);
        let planned = kept.rules.get(&name);
        let is_changed = planned.is_some_and(|planned| !rule.serves(planned));
        if leaving.contains(&name) || is_changed {
            ids(rule).for_each(|id| lost.entry(id).or_default().push(rule));
        }
        match planned {
            Some(planned) => used.extend(ids(planned)),
            None if !leaving.contains(&name) => used.extend(ids(rule)),
            None => {}
        }
    }
    used.extend(kept.rules.values().flat_map(|rule| ids(rule)));
    used.extend(actual.outbound_rules.iter().filter_map(|rule| rule.pool.as_ref()));
    let bases = |of: fn(&super::Gone) -> Option<&names::BaseName>| {
        placed.iter().filter_map(move |part| of(part.gone)).filter_map(|base| index.owned(base))
    };

    edits.extend(
        actual
            .rules
            .iter()
            .filter(|rule| leaving.contains(&fold(&rule.name)))
            .map(|rule| Edit::RemoveRule(rule.name.clone())),
    );

    let gone: BTreeSet<String> =
        bases(super::Gone::rules).flat_map(|owned| &owned.probes).map(|probe| fold(&probe.name)).collect();
    for probe in &actual.probes {
        let (name, id) = (fold(&probe.name), LoadBalancer::probe_id(&actual.id, &probe.name));
        let is_shared_and_lost = name == names::SHARED_PROBE && lost.contains_key(&id);
        if (gone.contains(&name) || is_shared_and_lost) && !kept.probes.contains(&name) && !used.contains(&id) {
            edits.push(Edit::RemoveProbe(probe.name.clone()));
        }
    }

    let gone: BTreeSet<String> =
        bases(super::Gone::frontends).flat_map(|owned| &owned.frontends).map(|item| fold(&item.name)).collect();
    for frontend in &actual.frontends {
        let (name, id) = (fold(&frontend.name), LoadBalancer::frontend_id(&actual.id, &frontend.name));
        if kept.frontends.contains(&name) || used.contains(&id) || index.is_held(&id) {
            continue;
        }
        // The frontend of a Service that went earlier stays for those that share it, and goes with the last of them.
        let is_given_up = || {
            let is_named_after_known = wants.iter().any(|(service, want)| {
                !want.present.frontends.is_empty() && names::BaseName::of(service).owns(&frontend.name)
            });
            let lost = lost.get(&id).map_or(&[][..], Vec::as_slice);
            let loses_rules_of = |base: &names::BaseName| lost.iter().any(|rule| base.owns(&rule.name));
            names::base_in(&frontend.name).is_some()
                && !is_named_after_known
                && placed
                    .iter()
                    .any(|part| part.gone.gives_up(frontend) || part.gone.frontends().is_some_and(loses_rules_of))
        };
        if gone.contains(&name) || is_given_up() {
            edits.push(Edit::RemoveFrontend(frontend.name.clone()));
        }
    }

    let gone: BTreeSet<String> = placed.iter().flat_map(|part| part.gone.pools()).map(|name| fold(name)).collect();
    for pool in actual.pools.iter().filter(|_| !env.is_preconfigured) {
        let (name, id) = (fold(&pool.name), LoadBalancer::pool_id(&actual.id, &pool.name));
        if gone.contains(&name) && !kept.pools.contains(&name) && !used.contains(&id) {
            edits.push(Edit::RemovePool(pool.name.clone()));
        }
    }
}

/// What becomes of a load balancer.
enum Ending {
    Stays,
    Deletes,
    Waits(Vec<ArmId>),
}

/// A load balancer goes with its last frontend, once no NIC and no model of a scale set names its pools. One whose pools the
/// operator fills stays, and so does one that has something of others.
fn ending(placed: &[Placed], actual: Option<&LoadBalancer>, edits: &[Edit], env: &Env) -> Ending {
    let Some(actual) = actual else { return Ending::Stays };
    let count = |is_it: fn(&Edit) -> bool| edits.iter().filter(|edit| is_it(edit)).count();
    // The Go manager leaves a load balancer without frontends when it makes a public IP anew for other IP tags.
    let is_left_empty = actual.frontends.is_empty()
        && !actual.pools.is_empty()
        && placed.iter().any(|part| part.gone.gives_up_public_ips());
    let is_last = (!actual.frontends.is_empty() || is_left_empty)
        && count(|edit| matches!(edit, Edit::RemoveFrontend(_))) == actual.frontends.len()
        && !placed.iter().any(|part| !part.part.frontends.is_empty());
    let is_pool_ours = |pool: &Pool| {
        env.pools.keys().any(|name| name.eq_ignore_ascii_case(&pool.name))
            || placed.iter().flat_map(|part| part.gone.pools()).any(|name| name.eq_ignore_ascii_case(&pool.name))
    };
    let has_others = !actual.outbound_rules.is_empty()
        || !actual.nat.is_empty()
        || actual.pools.iter().any(|pool| !is_pool_ours(pool))
        || count(|edit| matches!(edit, Edit::RemoveRule(_))) < actual.rules.len();
    if !is_last || has_others || env.is_preconfigured {
        return Ending::Stays;
    }
    let named: Vec<ArmId> = actual
        .pools
        .iter()
        .map(|pool| (LoadBalancer::pool_id(&actual.id, &pool.name), pool.has_nics()))
        .filter(|(id, has_nics)| *has_nics || env.in_models.contains(id))
        .map(|(id, _)| id)
        .collect();
    if named.is_empty() { Ending::Deletes } else { Ending::Waits(named) }
}

/// The pools whose members are NICs and are to be addresses. Those that the operator fills stay as they are.
fn migrating(actual: Option<&LoadBalancer>, env: &Env) -> Vec<String> {
    let migrates = env.migrates_pools && !env.is_preconfigured;
    let is_to_be = |(_, members): &(&String, &PoolMembers)| migrates && members.kind == PoolKind::NodeIp;
    let there = env.pools.iter().filter(is_to_be).filter_map(|(name, _)| actual?.pool(name));
    there.filter(|pool| pool.has_nics()).map(|pool| pool.name.clone()).collect()
}

/// Adds the changes of members: to a write that goes out anyway all of them, otherwise those of one pool.
fn add_members(actual: Option<&LoadBalancer>, env: &Env, edits: &mut Vec<Edit>) -> bool {
    if edits.contains(&Edit::Delete) {
        return false;
    }
    let is_added =
        |name: &String| edits.iter().any(|edit| matches!(edit, Edit::AddPool(new) if new.eq_ignore_ascii_case(name)));
    let mut changes: Vec<(Edit, bool)> = Vec::new();
    for (name, members) in &env.pools {
        let there = actual.and_then(|actual| actual.pool(name));
        if there.is_some() || is_added(name) {
            changes.extend(pool::change(name, there, members));
        }
    }
    let is_limited = changes.iter().any(|(_, is_limited)| *is_limited);
    if edits.is_empty() {
        let is_partial = is_limited || changes.len() > 1;
        edits.extend(changes.into_iter().map(|(edit, _)| edit).take(1));
        is_partial
    } else {
        edits.extend(changes.into_iter().map(|(edit, _)| edit));
        is_limited
    }
}
