//! What the events of a Node tell of its machine. Names that the Go managers have are theirs.

use lazuli_model::{
    event::{Event, Reason, Regarding},
    fault::Fault,
};

use super::step::Reason as Found;

/// The event of what the step of a Node reports; `None` for what heals by itself.
pub fn of_reason(node: &str, found: &Found) -> Option<Event> {
    let (reason, what) = match found {
        Found::Initialised => {
            (Reason::Synced, "the Node has its provider id, its addresses and its labels from Azure".to_owned())
        }
        Found::NoMachine => (
            Reason::NodeNotInitialized,
            "Azure has no VM of the Node's provider id or name, so the Node keeps its taint".to_owned(),
        ),
        Found::NoAddress(why) => (Reason::NodeNotInitialized, format!("the Node keeps its taint: {why}")),
        Found::Unreadable(fault) => (
            of_fault(fault, Reason::NodeNotInitialized)?,
            format!("the VM of the Node cannot be read{}", because(fault)),
        ),
        Found::Unproved(fault) => (
            of_fault(fault, Reason::NodeStateUnknown)?,
            format!(
                "the Node is not Ready, and it cannot be told whether its VM is stopped or deleted{}",
                because(fault)
            ),
        ),
        Found::Readdressed(all) => (Reason::Synced, format!("the Node gets the addresses of its VM in Azure: {all}")),
        // The log has it. The Node works on with the addresses that it has.
        Found::AddressesUnread(_) | Found::AddressesKept(_) => return None,
        Found::Stopped => (
            Reason::NodeOutOfService,
            "the VM of the Node is stopped: pods are evicted and volumes detached".to_owned(),
        ),
        Found::Gone => (Reason::DeletingNode, "the VM of the Node does not exist in Azure".to_owned()),
        Found::RouteKept(why) => (
            Reason::RouteKept,
            format!("the route to the pods of the Node stays, though its range {why}: a new one would be refused"),
        ),
        Found::NoPodRange => (
            Reason::CidrNotAvailable,
            "--allocate-node-cidrs is true, and the Node has no spec.podCIDR; lazuli cloud-controllers gives Nodes none"
                .to_owned(),
        ),
        Found::RouteRefused(why) => (Reason::FailedToCreateRoute, format!("the Node has no route: {why}")),
    };
    Some(event(node, reason, what))
}

/// The event of a Node that waited because more VMs than `limit` are gone or stopped at once.
pub fn slowed(node: &str, limit: usize) -> Event {
    let what = format!(
        "more than {limit} VMs are gone or stopped at once, so Nodes are deleted or tainted one after another, each \
         after another read"
    );
    event(node, Reason::NodeDeletionSlowed, what)
}

fn event(node: &str, reason: Reason, what: String) -> Event {
    let advice = match reason {
        // The role of the cloud controllers is meant, not that of the disk driver.
        Reason::AuthorizationFailed => reason.advice_for_services(),
        _ => reason.advice(),
    };
    Event { is_change: true, ..Event::with_advice(Regarding::Node(node.to_owned()), reason, what, advice) }
}

/// The reason of a fault in a read of a machine; `None` for what the next read may not meet.
fn of_fault(fault: &Fault, otherwise: Reason) -> Option<Reason> {
    match fault {
        Fault::Forbidden | Fault::LinkedForbidden => Some(Reason::AuthorizationFailed),
        Fault::Unauthenticated => Some(Reason::CredentialRefused),
        Fault::NotFound
        | Fault::ScopeNotFound
        | Fault::Invalid
        | Fault::Denied
        | Fault::Unsupported
        | Fault::Malformed => Some(otherwise),
        _ => None,
    }
}

fn because(fault: &Fault) -> &'static str {
    match fault {
        Fault::Forbidden | Fault::LinkedForbidden => {
            ": the controllers' identity lacks the action Microsoft.Compute/virtualMachines/read or that of scale sets"
        }
        Fault::Unauthenticated => ": Azure takes no token of this credential",
        Fault::NotFound => {
            ": Azure does not find it, and no other machine answers that would show that Azure's answers count"
        }
        Fault::ScopeNotFound => {
            ": Azure does not find its resource group or its subscription, which proves nothing of the VM"
        }
        Fault::Invalid => ": Azure calls the request invalid",
        Fault::Denied => ": a policy of Azure denies the request",
        Fault::Unsupported => ": this Azure does not know the request",
        Fault::Malformed => ": the answer cannot be understood",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lazuli_model::event::Severity;

    #[test]
    fn an_event_of_a_node_says_what_becomes_of_it_and_why() {
        for (found, name, severity, words) in [
            (Found::Initialised, "Synced", Severity::Normal, "its addresses and its labels"),
            (Found::NoMachine, "NodeNotInitialized", Severity::Warning, "no VM of the Node's provider id or name"),
            (Found::NoAddress("no NIC".to_owned()), "NodeNotInitialized", Severity::Warning, "its taint: no NIC. "),
            (Found::Unreadable(Fault::Forbidden), "AuthorizationFailed", Severity::Warning, "role-cloud-controllers"),
            (
                Found::Unproved(Fault::ScopeNotFound),
                "NodeStateUnknown",
                Severity::Warning,
                "deleted: Azure does not find its resource group",
            ),
            (Found::Stopped, "NodeOutOfService", Severity::Warning, "is stopped"),
            (Found::Gone, "DeletingNode", Severity::Normal, "does not exist in Azure"),
            (Found::NoPodRange, "CIDRNotAvailable", Severity::Warning, "kube-controller-manager"),
            (
                Found::RouteKept("lies outside of --cluster-cidr"),
                "RouteKept",
                Severity::Warning,
                "stays, though its range lies outside of --cluster-cidr: a new one would be refused. ",
            ),
            (Found::RouteRefused("why".to_owned()), "FailedToCreateRoute", Severity::Warning, "no route: why. "),
        ] {
            let event = of_reason("node-1", &found).unwrap();
            assert_eq!((event.reason.as_str(), event.reason.severity()), (name, severity));
            assert!(event.note.contains(words), "{}", event.note);
            assert!(event.is_change && event.regarding == Regarding::Node("node-1".to_owned()));
        }
        let slowed = slowed("node-1", 10);
        assert_eq!(slowed.reason.as_str(), "NodeDeletionSlowed");
        assert!(slowed.note.starts_with("more than 10 VMs"), "{}", slowed.note);
    }

    #[test]
    fn what_heals_by_itself_is_no_event() {
        for fault in [Fault::Unavailable, Fault::Deadline, Fault::Throttled { retry_after: None }, Fault::Conflict] {
            assert_eq!(of_reason("n", &Found::Unreadable(fault.clone())), None);
            assert_eq!(of_reason("n", &Found::Unproved(fault)), None);
        }
    }
}
