//! The network's planners as objects of the engine.

use std::{collections::BTreeMap, fmt};

use lazuli_engine::{
    Explanation,
    object::{Object, Plan, Served, Write},
};
use lazuli_model::{ArmId, ServiceKey, json::Provisioning};
use lazuli_quota::permit::Priority;
use lazuli_services::network::{self, load_balancer, private_link, public_ip, security_group, subnet};

use super::{Key, Report, report::Shown};

/// What the kinds differ in.
struct Kind<R> {
    priority: Priority,
    /// Whether an edit removes or replaces something that a Service or a client may rest on, or opens what was closed.
    replaces: bool,
    taints: Vec<Key>,
    report: R,
}

/// The engine's plan from the network's. An object whose last operation failed is written again, also without a change.
fn planned<O, E>(
    plan: network::Plan<E>,
    provisioning: Option<Provisioning>,
    kind: Kind<impl Fn(&ServiceKey) -> Report>,
) -> Plan<O>
where
    O: Object<Requester = ServiceKey, Op = Vec<E>, Report = Report, Related = Key>,
    E: fmt::Debug + Clone + PartialEq,
{
    let has_failed = provisioning == Some(Provisioning::Failed);
    let is_asked = !plan.served.is_empty();
    let write = (!plan.edits.is_empty() || (has_failed && is_asked)).then(|| Write {
        priority: kind.priority,
        replaces: kind.replaces,
        is_partial: plan.is_partial,
        taints: kind.taints,
        op: plan.edits,
    });
    let served = plan.served.into_iter().map(|(service, served)| {
        let served = match served {
            network::Served::Done(_) if has_failed => Served::Pending,
            network::Served::Done(found) => Served::Met(Report { found, ..(kind.report)(&service) }),
            network::Served::Pending => Served::Pending,
            network::Served::Waiting(what) => Served::Waiting(what.to_string()),
            network::Served::Refused(refusal) => {
                Served::Refused(Explanation { reason: refusal.reason.as_str(), message: refusal.message })
            }
        };
        (service, served)
    });
    Plan { write, served: served.collect() }
}

/// The wants of the Services that this kind of object takes.
type Wants<P, G> = BTreeMap<ServiceKey, network::Want<P, G>>;

/// Load balancers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadBalancers;

impl Object for LoadBalancers {
    type Requester = ServiceKey;
    type Want = network::Want<load_balancer::Part, load_balancer::Gone>;
    type Model = load_balancer::LoadBalancer;
    type Inputs = load_balancer::Env;
    type Op = Vec<load_balancer::Edit>;
    type Report = Report;
    type Related = Key;

    const CONDITIONAL: bool = true;

    fn plan(
        wants: &Wants<load_balancer::Part, load_balancer::Gone>,
        actual: Option<&Self::Model>,
        inputs: &Self::Inputs,
    ) -> Plan<Self> {
        use load_balancer::Edit;
        let plan = load_balancer::plan(wants, actual, inputs);
        // A write of frontends changes the public IPs that they have, had or get: their ETags at least.
        let mut taints: Vec<Key> = Vec::new();
        let mut touch = |frontend: &load_balancer::Frontend| {
            taints.extend(frontend.public_ip.clone().map(Key::PublicIp));
        };
        for edit in &plan.edits {
            match edit {
                Edit::PutFrontend(frontend) => {
                    touch(frontend);
                    actual.and_then(|model| model.frontend(&frontend.name)).map(&mut touch);
                }
                Edit::RemoveFrontend(name) => {
                    actual.and_then(|model| model.frontend(name)).map(&mut touch);
                }
                Edit::Delete => actual.iter().flat_map(|model| &model.frontends).for_each(&mut touch),
                _ => {}
            }
        }
        taints.sort();
        taints.dedup();
        let shown = Shown::of(actual);
        let kind = Kind {
            // Many Services wait for one write of the load balancer.
            priority: Priority::Gather,
            replaces: load_balancer::replaces(&plan.edits, actual),
            taints,
            report: |service: &ServiceKey| shown.report(service),
        };
        planned(plan, actual.map(|actual| actual.provisioning), kind)
    }

    fn is_updating(model: &Self::Model) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(want: &Self::Want) -> bool {
        want.gone != load_balancer::Gone::Nothing
    }

    /// What bears the Service's base name stays gone, for a want is done while others still use a frontend or probe of that
    /// name, and it goes after them. An address that it has given up may be another Service's later.
    fn spent(want: &Self::Want) -> Self::Want {
        let mut spent = want.clone();
        if let load_balancer::Gone::Everything { public_ips, addresses, .. } = &mut spent.gone {
            public_ips.clear();
            addresses.clear();
        }
        spent
    }

    /// The security group admits to the addresses of its frontends.
    fn is_threatened(want: &Self::Want, _: Option<&Self::Model>) -> bool {
        !want.present.frontends.is_empty()
    }

    /// The members of its pools follow the Nodes.
    fn follows(want: &Self::Want, op: &Self::Op) -> bool {
        op.iter().any(|edit| match edit {
            load_balancer::Edit::Members { pool, .. } => want.present.pools.contains(pool),
            _ => false,
        })
    }

    fn references(want: &Self::Want) -> Vec<Key> {
        let public = |frontend: &load_balancer::FrontendPart| match &frontend.address {
            load_balancer::FrontendAddress::Public(id) => Some(Key::PublicIp(id.clone())),
            load_balancer::FrontendAddress::Private { .. } => None,
        };
        want.present.frontends.iter().filter_map(public).collect()
    }
}

/// Security groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecurityGroups;

impl Object for SecurityGroups {
    type Requester = ServiceKey;
    type Want = network::Want<security_group::Part, security_group::Gone>;
    type Model = security_group::SecurityGroup;
    type Inputs = security_group::Env;
    type Op = Vec<security_group::Edit>;
    type Report = Report;
    type Related = Key;

    const CONDITIONAL: bool = true;

    fn plan(
        wants: &Wants<security_group::Part, security_group::Gone>,
        actual: Option<&Self::Model>,
        inputs: &Self::Inputs,
    ) -> Plan<Self> {
        let plan = security_group::plan(wants, actual, inputs);
        let kind = Kind {
            priority: Priority::Gather,
            replaces: actual.is_some_and(|actual| {
                security_group::replaces(&plan.edits, actual)
                    || security_group::admits_more(&plan.edits, actual, inputs)
            }),
            taints: vec![],
            report: |_: &ServiceKey| Report::default(),
        };
        planned(plan, actual.map(|actual| actual.provisioning), kind)
    }

    fn is_updating(model: &Self::Model) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(want: &Self::Want) -> bool {
        !want.gone.is_nothing()
    }

    /// Rules go by their destinations, and a destination that the Service has given up may be another Service's later.
    fn spent(want: &Self::Want) -> Self::Want {
        network::Want { present: want.present.clone(), gone: security_group::Gone::default() }
    }

    /// Rules of load balancers rest on what denies.
    fn is_threatened(want: &Self::Want, _: Option<&Self::Model>) -> bool {
        want.present != security_group::Part::default()
    }
}

/// Public IPs. One is released by the tag that lists the Service, so it stays released once that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicIps;

impl Object for PublicIps {
    type Requester = ServiceKey;
    type Want = network::Want<public_ip::Part, public_ip::Gone>;
    type Model = public_ip::PublicIp;
    type Inputs = public_ip::Env;
    type Op = Vec<public_ip::Edit>;
    type Report = Report;
    type Related = Key;

    const CONDITIONAL: bool = true;

    fn plan(
        wants: &Wants<public_ip::Part, public_ip::Gone>,
        actual: Option<&Self::Model>,
        inputs: &Self::Inputs,
    ) -> Plan<Self> {
        let plan = public_ip::plan(wants, actual, inputs);
        let user = actual.and_then(|model| model.used_by.as_ref()).and_then(load_balancer_of);
        let kind = Kind {
            priority: Priority::Create,
            replaces: public_ip::replaces(&plan.edits, actual),
            taints: user.map(Key::LoadBalancer).into_iter().collect(),
            report: |service: &ServiceKey| Report::of_public_ip(service, actual),
        };
        planned(plan, actual.map(|actual| actual.provisioning), kind)
    }

    fn is_updating(model: &Self::Model) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(want: &Self::Want) -> bool {
        want.gone != public_ip::Gone::Nothing
    }

    /// The security group admits to it. Azure does not delete one that is in use, and only those that a Service had made are
    /// deleted.
    fn is_threatened(want: &Self::Want, actual: Option<&Self::Model>) -> bool {
        want.present.usage.is_some() && actual.is_some_and(|actual| actual.used_by.is_none() && !actual.is_users())
    }
}

/// Private link services. One is released by the tag of its owner, so it stays released once that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateLinks;

impl Object for PrivateLinks {
    type Requester = ServiceKey;
    type Want = network::Want<private_link::Part, private_link::Gone>;
    type Model = private_link::PrivateLink;
    type Inputs = private_link::Env;
    type Op = Vec<private_link::Edit>;
    type Report = Report;
    type Related = Key;

    /// Azure takes no `If-Match` for private link services (source: the Go manager sends none).
    const CONDITIONAL: bool = false;

    fn plan(
        wants: &Wants<private_link::Part, private_link::Gone>,
        actual: Option<&Self::Model>,
        inputs: &Self::Inputs,
    ) -> Plan<Self> {
        let plan = private_link::plan(wants, actual, inputs);
        let frontends = wants.values().filter_map(|want| want.present.link.as_ref()).map(|link| &link.frontend);
        let had = actual.iter().flat_map(|model| &model.frontends);
        let mut taints: Vec<Key> = frontends.chain(had).filter_map(load_balancer_of).map(Key::LoadBalancer).collect();
        taints.sort();
        taints.dedup();
        let kind = Kind {
            priority: Priority::Create,
            replaces: private_link::replaces(&plan.edits, actual),
            taints,
            report: |_: &ServiceKey| Report { exists: actual.is_some(), ..Report::default() },
        };
        planned(plan, actual.map(|actual| actual.provisioning), kind)
    }

    fn is_updating(model: &Self::Model) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(want: &Self::Want) -> bool {
        want.gone != private_link::Gone::Nothing
    }

    /// The status says that it is there.
    fn is_threatened(want: &Self::Want, _: Option<&Self::Model>) -> bool {
        want.present.link.is_some()
    }

    fn references(want: &Self::Want) -> Vec<Key> {
        let frontend = want.present.link.as_ref().map(|link| &link.frontend);
        frontend.and_then(load_balancer_of).map(Key::LoadBalancer).into_iter().collect()
    }
}

/// Subnets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subnets;

impl Object for Subnets {
    type Requester = ServiceKey;
    type Want = subnet::Want;
    type Model = subnet::Subnet;
    type Inputs = ();
    type Op = Vec<subnet::Edit>;
    type Report = Report;
    type Related = Key;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<ServiceKey, subnet::Want>, actual: Option<&Self::Model>, (): &()) -> Plan<Self> {
        let is_asked = wants.values().any(|want| want.lets_private_links_in);
        let edits = actual.map(|actual| subnet::plan(actual, is_asked)).unwrap_or_default();
        let is_quiet = edits.is_empty();
        let write = (!is_quiet).then(|| Write {
            priority: Priority::Create,
            replaces: false,
            is_partial: false,
            taints: vec![],
            op: edits,
        });
        let served = wants.iter().map(|(service, want)| {
            let served = match (want.lets_private_links_in, actual) {
                (false, _) => Served::Met(Report::default()),
                (true, Some(_)) if is_quiet => Served::Met(Report::default()),
                (true, Some(_)) => Served::Pending,
                (true, None) => Served::Refused(Explanation {
                    reason: network::RefusalReason::NotFound.as_str(),
                    message: "the subnet of the private link service does not exist".to_owned(),
                }),
            };
            (service.clone(), served)
        });
        Plan { served: served.collect(), write }
    }

    fn is_updating(model: &Self::Model) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(_: &subnet::Want) -> bool {
        false
    }
}

/// The load balancer that a child id, such as that of a frontend, lies in.
pub(super) fn load_balancer_of(child: &ArmId) -> Option<ArmId> {
    let lower = child.as_str().to_ascii_lowercase();
    let start = lower.find("/loadbalancers/")? + "/loadbalancers/".len();
    let end = lower[start..].find('/').map_or(lower.len(), |length| start + length);
    child.as_str()[..end].parse().ok()
}
