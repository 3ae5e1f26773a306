//! What the owner of a Service is told by Kubernetes events.
//!
//! The reasons of Kubernetes' service controller come at the occasions at which the Go manager writes them, because people
//! watch and alert on them. A failure has a reason of its own beside, which says what to do.
//!
//! | occasion | events |
//! |---|---|
//! | a Service is new, or asks for something else | `EnsuringLoadBalancer` |
//! | Azure shows what it asks for | `EnsuredLoadBalancer` |
//! | the load balancer has followed a change of the Nodes | `UpdatedLoadBalancer` |
//! | Azure refuses that | `UpdateLoadBalancerFailed` |
//! | the removal begins, and ends | `DeletingLoadBalancer`, `DeletedLoadBalancer` |
//! | a Service is wrong, or Azure or the plan refuses it | the reason of that, and `SyncLoadBalancerFailed` |
//! | no Node can be a backend | `UnAvailableLoadBalancer` |
//!
//! The Go manager begins again at each start and with each try. Here a beginning is told once for each change of the
//! Service, and a Service that is served as it was gets no event of a new process.

use lazuli_engine::{Refusal, Waiting, service::Reason as Found};
use lazuli_model::{
    ArmId, ServiceKey,
    event::{Event, Reason, Regarding},
    fault::{self, Fault, Rpc},
};
use lazuli_services::{ask::Warning, network};

use super::Key;

/// The events of what the Service's step reports: the one that says what to do, then that of the service controller's
/// reason where it is another. `answer` is the code and the message of Azure's last answer to a write of the object that the
/// reason names; empty where there is none.
pub fn of_reason(service: &ServiceKey, reason: &Found<Key>, answer: &str) -> Vec<Event> {
    let Some(event) = first_of(service, reason, answer) else { return Vec::new() };
    let is_failure = match reason {
        Found::Invalid(_) | Found::Refused(..) | Found::Retry(..) | Found::Waits(..) | Found::Unread(_) => true,
        // Nothing has failed: the operator decides.
        Found::Held(_) => false,
        Found::Ensuring | Found::Ensured | Found::Unchanged | Found::Deleting | Found::Deleted => false,
    };
    let also = (is_failure && event.reason != Reason::SyncLoadBalancerFailed).then(|| {
        let what = format!("the Service is not served as it asks: its event {} says why", event.reason.as_str());
        change(service, Reason::SyncLoadBalancerFailed, what)
    });
    [event].into_iter().chain(also).collect()
}

fn change(service: &ServiceKey, reason: Reason, what: String) -> Event {
    Event { is_change: true, ..Event::new(Regarding::Service(service.clone()), reason, what) }
}

fn first_of(service: &ServiceKey, reason: &Found<Key>, answer: &str) -> Option<Event> {
    let event = |reason, what: String| change(service, reason, what);
    Some(match reason {
        Found::Unchanged => return None,
        Found::Ensuring => event(Reason::EnsuringLoadBalancer, "work on what the Service asks for begins".to_owned()),
        Found::Deleting => {
            event(Reason::DeletingLoadBalancer, "the removal of what the Service has in Azure begins".to_owned())
        }
        Found::Ensured => event(Reason::EnsuredLoadBalancer, "Azure serves the Service as it asks".to_owned()),
        Found::Deleted => event(Reason::DeletedLoadBalancer, "nothing of the Service is left in Azure".to_owned()),
        Found::Invalid(mistakes) => event(Reason::InvalidService, mistakes.join("; ")),
        Found::Waits(key, waiting) => event(
            Reason::SyncLoadBalancerFailed,
            format!("for more than a minute the Service waits for {key}: {}", of_waiting(waiting)),
        ),
        Found::Unread(places) => {
            let what = "the Service keeps its finalizer, because it may own more than is known";
            event(
                Reason::SyncLoadBalancerFailed,
                format!(
                    "{what}: {}; let the controller read there, or remove the annotation if the group is gone for good",
                    places.join("; ")
                ),
            )
        }
        Found::Held(key) => event(
            Reason::PlanHeld,
            format!(
                "{key} has a change that would remove or replace something of the Service, or let more sources reach it"
            ),
        ),
        Found::Refused(key, Refusal::Plan(why)) => {
            let reason = Reason::named(why.reason).unwrap_or(Reason::SyncLoadBalancerFailed);
            let (key, what) = (key.to_string(), why.message.trim_end_matches('.'));
            // Some refusals begin with the object.
            event(reason, if what.starts_with(&key) { what.to_owned() } else { format!("{key}: {what}") })
        }
        Found::Refused(key, Refusal::Azure(fault)) => {
            event(of_fault(fault), format!("Azure refused what the Service asks of {key}{}", answered(fault, answer)))
        }
        Found::Retry(key, fault) => {
            event(of_fault(fault), format!("{key} cannot be changed{}", answered(fault, answer)))
        }
    })
}

/// The event of a load balancer that has followed a change of the Nodes, or cannot. It is refused again and again, which is
/// one event.
pub fn of_backends(service: &ServiceKey, balancer: &ArmId, result: &Result<(), Fault>, answer: &str) -> Event {
    let balancer = Key::LoadBalancer(balancer.clone());
    match result {
        Ok(()) => change(
            service,
            Reason::UpdatedLoadBalancer,
            format!("the backends of {balancer} are those that the Nodes of the cluster give"),
        ),
        Err(fault) => {
            let what = format!("the backends of {balancer} do not follow the Nodes{}", answered(fault, answer));
            Event::new(Regarding::Service(service.clone()), Reason::UpdateLoadBalancerFailed, what)
        }
    }
}

/// What an object waits for, and what a person can do.
fn of_waiting(waiting: &Waiting) -> String {
    match waiting {
        Waiting::Plan(what) => format!("it {what}; look at what holds it in Azure"),
        Waiting::OtherOperation => {
            "Azure reports an operation of another client on it; see its activity log, and end the operation".to_owned()
        }
        Waiting::Write => "its write has not ended; see its activity log".to_owned(),
        Waiting::FreshReads => "Azure does not show yet what was written; see its activity log".to_owned(),
        Waiting::Acceptance => "the operator has not accepted the plan".to_owned(),
        Waiting::Retry(_) => "it is tried again after a pause".to_owned(),
    }
}

/// The event of something odd about a Service that is served all the same.
pub fn of_warning(service: &ServiceKey, warning: &Warning) -> Event {
    let reason = Reason::named(warning.reason.as_str()).unwrap_or(Reason::IgnoredValue);
    Event::new(Regarding::Service(service.clone()), reason, warning.message.trim_end_matches('.'))
}

/// The event of what was asked and is left undone on purpose.
pub fn of_notice(service: &ServiceKey, notice: &network::Refusal) -> Event {
    let reason = Reason::named(notice.reason.as_str()).unwrap_or(Reason::NoEffect);
    Event::new(Regarding::Service(service.clone()), reason, notice.message.trim_end_matches('.'))
}

/// The event of a Service without backends.
pub fn no_backends(service: &ServiceKey) -> Event {
    let what = "no Node of the cluster can be a backend, so that the Service's address answers nothing";
    Event::new(Regarding::Service(service.clone()), Reason::UnAvailableLoadBalancer, what)
}

/// The event of a scale set whose model cannot join or leave pools, on one of its Nodes.
pub fn model_waits(node: &str, set: &ArmId, why: &str) -> Event {
    let what = format!("the model of scale set {} does not get the load balancers of its Nodes: {why}", set.name());
    Event::new(Regarding::Node(node.to_owned()), Reason::ScaleSetHeld, what)
}

/// The reason of a fault. What is not about disks or VMs has the same name as in the events of volumes.
fn of_fault(fault: &Fault) -> Reason {
    match fault::reason(Rpc::CreateVolume, fault) {
        Some(Reason::VMSizeFull | Reason::ZoneMismatch) | None => Reason::SyncLoadBalancerFailed,
        Some(reason) => reason,
    }
}

fn answered(fault: &Fault, answer: &str) -> String {
    match (fault, answer) {
        (Fault::Throttled { .. }, _) => ": for minutes Azure has refused requests as too many".to_owned(),
        (Fault::Unavailable | Fault::OutcomeUnknown | Fault::Deadline, "") => ": Azure does not answer".to_owned(),
        (_, "") => String::new(),
        (_, answer) => format!(": Azure answered {}", answer.trim_end_matches('.')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lazuli_engine::Explanation;
    use lazuli_services::{ask::WarningReason, network::RefusalReason};

    #[test]
    fn an_event_names_the_object_what_azure_answered_and_what_to_do() {
        let service = ServiceKey::new("shop", "web", "u");
        let key = Key::PublicIp(ArmId::resource("s", "g", "Microsoft.Network/publicIPAddresses", "ip").unwrap());
        let refused = |fault| Found::Refused(key.clone(), Refusal::Azure(fault));
        for (reason, code, name, words) in [
            (Found::Ensured, "", "EnsuredLoadBalancer", "Azure serves the Service"),
            (Found::Held(key.clone()), "", "PlanHeld", "public IP ip has a change that would remove"),
            (
                refused(Fault::Exhausted),
                "PublicIPCountLimitReached",
                "QuotaExceeded",
                "of public IP ip: Azure answered PublicIPCountLimitReached. Raise the quota",
            ),
            (refused(Fault::Forbidden), "", "AuthorizationFailed", "role-cloud-controllers.json"),
            (refused(Fault::Invalid), "InvalidRequestFormat", "SyncLoadBalancerFailed", "InvalidRequestFormat. The"),
            (
                refused(Fault::Invalid),
                "InvalidName: The name a/b is invalid.",
                "SyncLoadBalancerFailed",
                "Azure answered InvalidName: The name a/b is invalid. The",
            ),
            (
                Found::Retry(key.clone(), Fault::Throttled { retry_after: None }),
                "TooManyRequests",
                "Throttled",
                "public IP ip cannot be changed: for minutes",
            ),
            (Found::Invalid(vec!["one".into(), "two".into()]), "", "InvalidService", "one; two. Correct the Service"),
        ] {
            let event = &of_reason(&service, &reason, code)[0];
            assert_eq!(event.reason.as_str(), name);
            assert!(event.note.contains(words), "{}", event.note);
        }
    }

    #[test]
    fn each_occasion_has_the_reason_of_the_service_controller() {
        let service = ServiceKey::new("shop", "web", "u");
        let balancer = ArmId::resource("s", "g", "Microsoft.Network/loadBalancers", "lb").unwrap();
        let key = Key::LoadBalancer(balancer.clone());
        let refused = |reason| {
            let why = Explanation { reason, message: "it is so".to_owned() };
            Found::Refused(key.clone(), Refusal::Plan(why))
        };
        let sync_failed = "SyncLoadBalancerFailed";
        for (reason, names) in [
            (Found::Ensuring, &["EnsuringLoadBalancer"][..]),
            (Found::Ensured, &["EnsuredLoadBalancer"]),
            (Found::Unchanged, &[]),
            (Found::Deleting, &["DeletingLoadBalancer"]),
            (Found::Deleted, &["DeletedLoadBalancer"]),
            (Found::Held(key.clone()), &["PlanHeld"]),
            (Found::Invalid(vec!["one".into()]), &["InvalidService", sync_failed]),
            (refused("PortConflict"), &["PortConflict", sync_failed]),
            (Found::Refused(key.clone(), Refusal::Azure(Fault::Exhausted)), &["QuotaExceeded", sync_failed]),
            (Found::Refused(key.clone(), Refusal::Azure(Fault::Invalid)), &[sync_failed]),
            (Found::Retry(key.clone(), Fault::Forbidden), &["AuthorizationFailed", sync_failed]),
            (Found::Retry(key.clone(), Fault::Unavailable), &[sync_failed]),
            (Found::Waits(key.clone(), Waiting::Write), &[sync_failed]),
            (Found::Unread(vec!["group g".into()]), &[sync_failed]),
        ] {
            let events = of_reason(&service, &reason, "");
            assert_eq!(events.iter().map(|event| event.reason.as_str()).collect::<Vec<_>>(), names, "{reason:?}");
            assert!(events.iter().all(|event| event.is_change), "{reason:?}");
        }
        let updated = of_backends(&service, &balancer, &Ok(()), "");
        assert_eq!((updated.reason.as_str(), updated.is_change), ("UpdatedLoadBalancer", true));
        let failed = of_backends(&service, &balancer, &Err(Fault::Invalid), "InvalidAddress");
        assert_eq!((failed.reason.as_str(), failed.is_change), ("UpdateLoadBalancerFailed", false));
        assert!(failed.note.contains("load balancer lb do not follow the Nodes: Azure answered InvalidAddress. The"));
    }

    #[test]
    fn every_refusal_and_every_warning_has_a_reason_of_its_own() {
        use RefusalReason as R;
        use WarningReason as W;
        let service = ServiceKey::new("shop", "web", "u");
        let key = Key::PublicIp(ArmId::resource("s", "g", "Microsoft.Network/publicIPAddresses", "ip").unwrap());
        let refusals = [
            R::PortConflict,
            R::LimitExceeded,
            R::NotFound,
            R::ForeignOwner,
            R::WouldReplaceAddress,
            R::NoPlacement,
            R::Mismatch,
            R::LastFrontend,
            R::SharedAddress,
            R::KeptValue,
        ];
        for reason in refusals.map(R::as_str) {
            let why = Explanation { reason, message: "it is so.".to_owned() };
            let event = &of_reason(&service, &Found::Refused(key.clone(), Refusal::Plan(why)), "")[0];
            assert_eq!(event.reason.as_str(), reason);
            assert!(event.note.starts_with("public IP ip: it is so. "), "{}", event.note);
            let why = Explanation { reason, message: "public IP ip is absent".to_owned() };
            let event = &of_reason(&service, &Found::Refused(key.clone(), Refusal::Plan(why)), "")[0];
            assert!(event.note.starts_with("public IP ip is absent. "), "{}", event.note);
        }
        for reason in [W::UnknownAnnotation, W::IgnoredValue, W::KeptValue, W::NoEffect, W::ConflictConfiguration] {
            let event = of_warning(&service, &Warning { reason, message: "odd".to_owned() });
            assert_eq!(event.reason.as_str(), reason.as_str());
        }
    }
}
