//! Random schedules: whatever happens in whatever order, no Node is deleted without its proofs.

use proptest::prelude::*;

use super::*;

/// What happens next.
#[derive(Debug, Clone)]
enum Happens {
    Passes(u64),
    Ready(bool),
    Answer(Option<Checked>),
    Granted(bool),
    Read(bool),
    Patched(bool),
    Lease(bool),
    Recreated,
}

fn happens() -> impl Strategy<Value = Happens> {
    let view =
        |power| Checked::Here(InstanceView { provisioning_state: ProvisioningState::Succeeded, power: Some(power) });
    prop_oneof![
        3 => (0_u64..90).prop_map(Happens::Passes),
        2 => any::<bool>().prop_map(Happens::Ready),
        4 => Just(Happens::Answer(Some(Checked::Gone))),
        1 => Just(Happens::Answer(Some(view(PowerState::Stopped)))),
        1 => Just(Happens::Answer(Some(view(PowerState::Other)))),
        1 => Just(Happens::Answer(Some(Checked::Unproved(Fault::Forbidden)))),
        2 => any::<bool>().prop_map(Happens::Granted),
        1 => any::<bool>().prop_map(Happens::Read),
        3 => any::<bool>().prop_map(Happens::Patched),
        1 => any::<bool>().prop_map(Happens::Lease),
        1 => Just(Happens::Recreated),
    ]
}

/// What the proofs are by a reckoning of its own.
#[derive(Default)]
struct Oracle {
    /// When reads were sent, since the last that found the machine, or the Node Ready, that answered "gone".
    gone_at: Vec<Duration>,
    known_since: Duration,
    asks: bool,
    granted: Option<(Duration, bool)>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    #[test]
    fn a_node_is_deleted_only_by_two_proofs_a_grant_and_a_lease(
        is_new in any::<bool>(),
        all in proptest::collection::vec(happens(), 1..60),
    ) {
        let mut rig = Rig::start(if is_new { new_node() } else { CloudNode { is_ready: false, ..old_node() } });
        let mut oracle = Oracle { known_since: rig.now, ..Oracle::default() };
        let mut sent: Option<(Id, Duration)> = None;
        let mut reading = None;
        let mut writes_of_new = 0;
        for one in all {
            // All that was decided is carried out before the next thing happens.
            loop {
                let mut patches = Vec::new();
                for action in rig.take() {
                    match action {
                        Action::Check { id, .. } => {
                            prop_assert!(sent.is_none(), "one read at a time");
                            sent = Some((id, rig.now));
                        }
                        Action::Read { id, .. } => reading = Some(id),
                        Action::Ask => oracle.asks = true,
                        Action::Withdraw => (oracle.asks, oracle.granted) = (false, None),
                        Action::Delete { uid, .. } => {
                            prop_assert_eq!(&uid, &rig.node.uid);
                            prop_assert!(!rig.node.is_ready);
                            prop_assert!(rig.env.shared.lease.until.is_some());
                            let (Some(first), Some(last)) = (oracle.gone_at.first(), oracle.gone_at.last()) else {
                                return Err(TestCaseError::fail("no proof"));
                            };
                            prop_assert!(*last >= *first + step::APART);
                            prop_assert!(rig.now <= *last + step::FRESH);
                            prop_assert!(rig.now >= oracle.known_since + s(60));
                            let (granted_at, reads_again) = oracle.granted.expect("it is granted");
                            prop_assert!(!reads_again || *last >= granted_at);
                            return Ok(());
                        }
                        Action::Patch { id, patch, .. } => {
                            if rig.node.has_taint(Taint::UNINITIALIZED) {
                                writes_of_new += 1;
                            }
                            let shows_out = |taints: &[Taint]| taints.iter().any(|one| one.key == Taint::OUT_OF_SERVICE);
                            if let Patch::Taints(taints) | Patch::Initialise { taints, .. } = &patch
                                && shows_out(taints) && !shows_out(&rig.node.taints)
                            {
                                prop_assert!(oracle.granted.is_some() && !rig.node.is_ready);
                            }
                            patches.push((id, patch));
                        }
                        _ => {}
                    }
                }
                prop_assert!(patches.len() <= 1, "one write at a time");
                let Some((id, patch)) = patches.pop() else { break };
                let succeeds = !matches!(one, Happens::Patched(false));
                    if succeeds {
                        rig.node = patched(&rig.node, &patch);
                        rig.tell(Event::Patched { id, result: Ok(rig.node.clone()) });
                    } else {
                        if rig.node.has_taint(Taint::UNINITIALIZED) {
                            writes_of_new -= 1;
                        }
                        rig.tell(Event::Patched { id, result: Err(PatchFault::Changed) });
                    }
            }
            match one {
                Happens::Passes(seconds) => {
                    rig.now += s(seconds);
                    rig.tell(Event::Woke);
                }
                Happens::Ready(is_ready) => {
                    if rig.node.is_ready != is_ready {
                        oracle.gone_at.clear();
                    }
                    rig.change(|node| node.is_ready = is_ready);
                }
                Happens::Answer(result) => {
                    if let (Some((id, at)), Some(result)) = (sent.take(), result) {
                        match &result {
                            Checked::Gone => oracle.gone_at.push(at),
                            Checked::Here(_) => oracle.gone_at.clear(),
                            Checked::Unproved(_) => {}
                        }
                        rig.tell(Event::Checked { id, result });
                    }
                }
                Happens::Granted(reads_again) => {
                    if std::mem::take(&mut oracle.asks) {
                        oracle.granted = Some((rig.now, reads_again));
                        rig.tell(Event::Granted { reads_again });
                    }
                }
                Happens::Read(succeeds) => {
                    if let Some(id) = reading.take() {
                        let result = if succeeds { Ok(instance()) } else { Err(Fault::Unavailable) };
                        rig.tell(Event::Read { id, result });
                    }
                }
                Happens::Patched(_) => rig.tell(Event::Woke),
                Happens::Lease(held) => {
                    rig.env.shared.lease.until = held.then_some(Duration::MAX);
                    rig.tell(Event::Woke);
                }
                Happens::Recreated => {
                    oracle = Oracle { known_since: rig.now, ..Oracle::default() };
                    sent = None;
                    writes_of_new = 0;
                    rig.change(|node| node.uid.push('x'));
                }
            }
            prop_assert!(writes_of_new <= 2, "{writes_of_new} writes");
        }
    }
}
