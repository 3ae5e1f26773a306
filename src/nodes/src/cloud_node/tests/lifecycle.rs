//! Stopped machines, and machines that are gone.

use super::*;

fn view(power: PowerState) -> Checked {
    Checked::Here(InstanceView { provisioning_state: ProvisioningState::Succeeded, power: Some(power) })
}

impl Rig {
    /// A Node that has just stopped being Ready.
    fn not_ready() -> Self {
        let mut rig = Self::start(old_node());
        rig.now += s(600);
        rig.change(|node| node.is_ready = false);
        rig.actions.retain(|action| !matches!(action, Action::Route { .. }));
        rig
    }

    fn check(&mut self, result: Checked) {
        let id = self.id(|action| if let Action::Check { id, .. } = action { Some(*id) } else { None });
        let id = id.unwrap_or_else(|| panic!("the machine is checked: {:?}", self.actions));
        self.actions.retain(|action| !matches!(action, Action::Check { .. }));
        self.tell(Event::Checked { id, result });
    }

    fn deletes(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Delete { .. }))
    }
}

#[test]
fn a_machine_that_is_proved_gone_twice_takes_its_node_along() {
    let mut rig = Rig::not_ready();
    let first = rig.now;
    rig.check(Checked::Gone);
    assert_eq!(rig.take(), [], "one proof");
    rig.wake();
    assert!(rig.now >= first + step::APART);
    rig.check(Checked::Gone);
    assert_eq!(rig.take(), [Action::Ask]);
    rig.tell(Event::Granted { reads_again: false });
    let actions = rig.take();
    assert!(
        matches!(&actions[..], [Action::Report(Reason::Gone), Action::Delete { uid, .. }] if uid == "u1"),
        "{actions:?}"
    );
}

#[test]
fn what_is_not_proved_deletes_nothing() {
    for unproved in [
        Checked::Unproved(Fault::Forbidden),
        Checked::Unproved(Fault::ScopeNotFound),
        Checked::Unproved(Fault::NotFound),
        view(PowerState::Other),
    ] {
        let mut rig = Rig::not_ready();
        for _ in 0..20 {
            rig.check(unproved.clone());
            rig.wake();
        }
        rig.check(Checked::Gone);
        assert!(!rig.take().contains(&Action::Ask), "{unproved:?}");
    }
}

#[test]
fn a_node_that_is_new_to_this_process_has_a_grace_period() {
    let mut rig = Rig::start(CloudNode { is_ready: false, ..old_node() });
    let known_since = rig.now;
    while !rig.actions.contains(&Action::Ask) {
        assert!(rig.now < known_since + s(600));
        if rig.id(|action| if let Action::Check { id, .. } = action { Some(*id) } else { None }).is_some() {
            rig.check(Checked::Gone);
        } else {
            rig.wake();
        }
    }
    assert!(rig.now >= known_since + s(60));
}

#[test]
fn a_grant_of_the_slow_breaker_reads_the_machine_once_more() {
    let mut rig = Rig::not_ready();
    rig.check(Checked::Gone);
    rig.wake();
    rig.check(Checked::Gone);
    rig.take();
    rig.now += s(300);
    rig.tell(Event::Granted { reads_again: true });
    assert!(!rig.deletes());
    rig.check(view(PowerState::Other));
    assert_eq!(rig.take(), [Action::Withdraw]);
    assert!(!rig.deletes());

    let mut rig = Rig::not_ready();
    rig.check(Checked::Gone);
    rig.wake();
    rig.check(Checked::Gone);
    rig.take();
    rig.now += s(300);
    rig.tell(Event::Granted { reads_again: true });
    rig.check(Checked::Gone);
    assert!(rig.deletes());
}

#[test]
fn a_node_that_comes_back_is_not_deleted() {
    let mut rig = Rig::not_ready();
    rig.check(Checked::Gone);
    rig.wake();
    rig.check(Checked::Gone);
    rig.change(|node| node.is_ready = true);
    assert!(rig.take().ends_with(&[Action::Withdraw]));
    rig.tell(Event::Granted { reads_again: false });
    assert!(!rig.deletes());
}

#[test]
fn a_stopped_machine_is_tainted_and_the_taints_go_when_it_runs_and_the_node_is_ready() {
    let mut rig = Rig::not_ready();
    rig.check(view(PowerState::Deallocated));
    let first = rig.patch();
    let shutdown = taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule");
    let out_of_service = taint("node.kubernetes.io/out-of-service", "NoExecute");
    let dedicated = taint("dedicated", "NoSchedule");
    assert_eq!(first, Some(Patch::Taints(vec![dedicated.clone(), shutdown.clone()])));
    assert!(rig.take().contains(&Action::Ask));
    rig.tell(Event::Granted { reads_again: false });
    assert_eq!(rig.patch(), Some(Patch::Taints(vec![dedicated.clone(), shutdown, out_of_service.clone()])));
    assert_eq!(rig.take(), [Action::Report(Reason::Stopped)]);

    // Ready alone is not enough for the taint that detached the volumes.
    rig.change(|node| node.is_ready = true);
    assert_eq!(rig.patch(), Some(Patch::Taints(vec![dedicated.clone(), out_of_service])));
    rig.check(view(PowerState::Other));
    assert_eq!(rig.patch(), Some(Patch::Taints(vec![dedicated])));
}

#[test]
fn a_machine_that_is_on_its_way_is_not_out_of_service() {
    for provisioning_state in [ProvisioningState::InProgress, ProvisioningState::Failed] {
        let mut rig = Rig::not_ready();
        rig.check(Checked::Here(InstanceView { provisioning_state, power: Some(PowerState::Stopped) }));
        assert_eq!(rig.take(), []);
    }
    let mut rig = Rig::not_ready();
    rig.check(Checked::Here(InstanceView { provisioning_state: ProvisioningState::Succeeded, power: None }));
    assert_eq!(rig.take(), []);
}

#[test]
fn a_persons_out_of_service_taint_stays() {
    let theirs = Taint { value: "nodeshutdown".to_owned(), ..taint(Taint::OUT_OF_SERVICE, "NoExecute") };
    let mut rig = Rig::not_ready();
    rig.change(|node| node.taints.push(theirs.clone()));
    rig.check(view(PowerState::Stopped));
    rig.patch();
    assert!(!rig.take().contains(&Action::Ask));
    rig.change(|node| node.is_ready = true);
    rig.patch();
    assert!(rig.node.taints.contains(&theirs));
    assert_eq!(rig.take(), []);
}
