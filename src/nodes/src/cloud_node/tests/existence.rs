//! What the answers of one round prove of a machine.

use proptest::prelude::*;

use super::*;
use crate::cloud_node::existence::{Answer, Next, Read, Round};

const SCOPE: Scope<'_> = Scope { subscription: "s", resource_group: "group" };
const SET: &str = "/subscriptions/s/resourceGroups/pool/providers/Microsoft.Compute/virtualMachineScaleSets/set";

fn vm(group: &str, name: &str) -> ArmId {
    ArmId::virtual_machine("s", group, name).unwrap()
}

fn instance_of_set(number: u8) -> ArmId {
    format!("{SET}/virtualMachines/{number}").parse().unwrap()
}

fn node_of(machine: &ArmId, is_ready: bool) -> CloudNode {
    CloudNode { name: machine.to_string(), provider_id: Some(provider_id(machine)), is_ready, ..CloudNode::default() }
}

fn view() -> InstanceView {
    InstanceView { provisioning_state: ProvisioningState::Succeeded, power: Some(PowerState::Other) }
}

/// Runs a round. Returns what it proves, and what was read.
fn run(machine: &ArmId, nodes: &[CloudNode], answer: impl Fn(&Read) -> Answer) -> (Checked, Vec<Read>) {
    let (mut round, mut reads) = (Round::new(machine, nodes, SCOPE), vec![]);
    loop {
        match round.next().clone() {
            Next::Ended(checked) => return (checked, reads),
            Next::Read(read) => {
                assert!(!reads.contains(&read) && reads.len() < 16, "{read:?} after {reads:?}");
                round.answered(answer(&read));
                reads.push(read);
            }
        }
    }
}

/// The answers of an Azure in which only these machines and sets are, as their owners may read them.
fn only(there: Vec<ArmId>) -> impl Fn(&Read) -> Answer {
    move |read| match read {
        Read::Machine(id) if there.contains(id) => Answer::Here(view()),
        Read::Control(id) if there.contains(id) => Answer::There,
        Read::Machine(_) | Read::Control(_) => Answer::Failed(Fault::NotFound),
        Read::Instances(_) => Answer::Listed(vec![]),
        Read::Machines { resource_group, .. } => Answer::Listed(
            there.iter().filter(|id| id.resource_group().eq_ignore_ascii_case(resource_group)).cloned().collect(),
        ),
    }
}

#[test]
fn the_nodes_of_a_group_that_was_deleted_whole_are_proved_gone_by_a_machine_of_another_group() {
    let (gone, other) = ([vm("pool", "a"), vm("pool", "b")], vm("other", "c"));
    // Their kubelets are silent already, or not yet.
    for is_ready in [false, true] {
        let nodes = [node_of(&gone[0], is_ready), node_of(&gone[1], is_ready), node_of(&other, true)];
        let (checked, reads) = run(&gone[0], &nodes, only(vec![other.clone()]));
        assert_eq!(checked, Checked::Gone);
        assert!(reads.len() <= 3 && reads.last() == Some(&Read::Control(other.clone())), "{reads:?}");
    }
}

#[test]
fn many_nodes_of_a_deleted_group_leave_room_for_a_control_of_another_one() {
    let gone: Vec<ArmId> = (0..50).map(|at| vm("pool", &format!("a-{at}"))).collect();
    let other = vm("zz", "c");
    let nodes: Vec<CloudNode> = gone.iter().chain([&other]).map(|machine| node_of(machine, true)).collect();
    assert_eq!(run(&gone[7], &nodes, only(vec![other])).0, Checked::Gone);
}

#[test]
fn an_instance_is_gone_with_its_scale_set_where_a_machine_of_another_group_answers() {
    let (gone, other) = ([instance_of_set(1), instance_of_set(2)], vm("group", "c"));
    let nodes = [node_of(&gone[0], false), node_of(&gone[1], false), node_of(&other, true)];
    assert_eq!(run(&gone[0], &nodes, only(vec![other.clone()])).0, Checked::Gone);
    // Also where Azure answers of the parent, or calls the request invalid.
    for fault in [Fault::ScopeNotFound, Fault::Invalid] {
        let azure = only(vec![other.clone()]);
        let answer = |read: &Read| match read {
            Read::Machine(_) => Answer::Failed(fault.clone()),
            read => azure(read),
        };
        assert_eq!(run(&gone[0], &nodes, answer).0, Checked::Gone, "{fault:?}");
        let set: ArmId = SET.parse().unwrap();
        let lists = |there: Vec<ArmId>| {
            let (fault, set) = (fault.clone(), set.clone());
            move |read: &Read| match read {
                Read::Control(id) if *id == set => Answer::There,
                Read::Instances(_) => Answer::Listed(there.clone()),
                _ => Answer::Failed(fault.clone()),
            }
        };
        assert_eq!(run(&gone[0], &nodes, lists(vec![gone[1].clone()])).0, Checked::Gone);
        assert_eq!(run(&gone[0], &nodes, lists(vec![gone[0].clone()])).0, Checked::Unproved(fault.clone()));
    }
}

#[test]
fn a_resource_group_that_is_not_found_proves_nothing() {
    for fault in [Fault::ScopeNotFound, Fault::Forbidden, Fault::Unauthenticated, Fault::Unavailable, Fault::Invalid] {
        let answer = |read: &Read| match read {
            Read::Machine(_) => Answer::Failed(fault.clone()),
            _ => Answer::There,
        };
        let nodes = [node_of(&vm("pool", "a"), false), node_of(&vm("other", "c"), true)];
        let (checked, reads) = run(&vm("pool", "a"), &nodes, answer);
        assert_eq!((checked, reads.len()), (Checked::Unproved(fault.clone()), 1));
    }
    // Of an instance its set is asked, which is in that group too.
    let answer = |_: &Read| Answer::Failed(Fault::ScopeNotFound);
    let nodes = [node_of(&vm("other", "c"), true)];
    assert_eq!(run(&instance_of_set(1), &nodes, answer).0, Checked::Unproved(Fault::ScopeNotFound));
}

#[test]
fn a_list_names_a_control_and_is_none() {
    let (gone, unlisted) = (vm("pool", "a"), vm("pool", "no-node"));
    let (checked, reads) = run(&gone, &[], only(vec![unlisted.clone()]));
    assert_eq!((checked, reads.last()), (Checked::Gone, Some(&Read::Control(unlisted))));
    // Lists that are answered, and are empty, prove nothing.
    let (checked, reads) = run(&gone, &[], only(vec![]));
    assert_eq!((checked, reads.len()), (Checked::Unproved(Fault::NotFound), 3));
}

#[test]
fn controls_that_may_not_be_read_are_passed_over_and_named_as_the_reason_at_the_end() {
    let (gone, nodes) = (vm("pool", "a"), [node_of(&vm("b", "b"), true), node_of(&vm("c", "c"), true)]);
    let answer = |there: bool| {
        move |read: &Read| match read {
            Read::Machine(_) => Answer::Failed(Fault::NotFound),
            Read::Control(id) if there && id.name() == "c" => Answer::There,
            _ => Answer::Failed(Fault::Forbidden),
        }
    };
    assert_eq!(run(&gone, &nodes, answer(true)).0, Checked::Gone);
    assert_eq!(run(&gone, &nodes, answer(false)).0, Checked::Unproved(Fault::Forbidden));
}

fn answers() -> impl Strategy<Value = Option<Fault>> {
    prop_oneof![
        3 => Just(None),
        5 => Just(Some(Fault::NotFound)),
        1 => Just(Some(Fault::ScopeNotFound)),
        1 => Just(Some(Fault::Invalid)),
        1 => Just(Some(Fault::Forbidden)),
        1 => Just(Some(Fault::Unavailable)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_024, ..ProptestConfig::default() })]

    /// Whatever Azure answers: "gone" rests on the answer to a read of the machine itself and on one machine or set that
    /// answered later, and "here" on the machine alone.
    #[test]
    fn gone_needs_the_machines_own_answer_and_a_control_that_answers_after_it(
        own in answers(),
        others in proptest::collection::vec((answers(), any::<bool>()), 0..8),
        set in answers(),
        is_instance in any::<bool>(),
        is_listed in any::<bool>(),
        lists in answers(),
    ) {
        let machine = if is_instance { instance_of_set(1) } else { vm("pool", "a") };
        let id_of = |at: usize| vm(["pool", "group", "x", "y"][at % 4], &format!("o{at}"));
        let nodes: Vec<CloudNode> =
            others.iter().enumerate().map(|(at, (_, is_ready))| node_of(&id_of(at), *is_ready)).collect();
        let answer = |read: &Read| {
            let of = |answer: &Option<Fault>, ok: Answer| answer.clone().map_or(ok, Answer::Failed);
            match read {
                Read::Machine(id) => { assert_eq!(id, &machine); of(&own, Answer::Here(view())) }
                Read::Control(id) if id.to_string() == SET => of(&set, Answer::There),
                Read::Control(id) => {
                    let at = (0..others.len()).find(|at| id_of(*at) == *id);
                    at.map_or(Answer::There, |at| of(&others[at].0, Answer::There))
                }
                Read::Instances(_) => Answer::Listed(if is_listed { vec![machine.clone()] } else { vec![] }),
                Read::Machines { .. } => of(&lists, Answer::Listed(vec![vm("pool", "stray"), machine.clone()])),
            }
        };
        let (checked, reads) = run(&machine, &nodes, answer);
        prop_assert!(matches!(reads[0], Read::Machine(_)));
        let answered = reads.iter().any(|read| matches!(read, Read::Control(_)) && answer(read) == Answer::There);
        match (&own, checked) {
            (None, checked) => prop_assert_eq!(checked, Checked::Here(view())),
            (Some(Fault::NotFound), Checked::Gone) => prop_assert!(answered),
            (Some(Fault::ScopeNotFound | Fault::Invalid), Checked::Gone) => {
                prop_assert!(is_instance && answered);
                prop_assert!(set == Some(Fault::NotFound) || (set.is_none() && !is_listed));
            }
            (Some(fault), Checked::Gone | Checked::Here(_)) => prop_assert!(false, "{:?} proves it", fault),
            (Some(fault), Checked::Unproved(why)) => {
                prop_assert!(!answered || is_instance, "{:?}, {:?}", why, reads);
                prop_assert!(fault == &Fault::NotFound || reads.len() == 1 || is_instance);
            }
        }
    }
}
