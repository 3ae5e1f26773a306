use lazuli_model::CachingMode;

use super::*;

fn disk() -> DiskId {
    ArmId::disk("s", "g", "d1").unwrap().into()
}

#[test]
fn a_request_that_contradicts_another_names_disk_node_both_operations_and_when_to_retry() {
    let message = |asked, goal, sent| {
        let why = Why::Opposed { asked, earlier: Opposed { goal, sent } };
        volume_error(Failure::new(Fault::Busy, why), &disk(), "node-0", |vm| vm.name().to_owned()).to_string()
    };
    let (attached, detached) = (Goal::Attached(None), Goal::Detached);
    for (goal, earlier, sent, expected) in [
        (
            attached,
            detached,
            true,
            "attached to node node-0 while it is being detached from it; retry when the detach has finished",
        ),
        (
            attached,
            detached,
            false,
            "attached to node node-0 while its detach from it is requested; retry when the detach has finished",
        ),
        (
            detached,
            attached,
            true,
            "detached from node node-0 while it is being attached to it; retry when the attach has finished",
        ),
        (
            Goal::Attached(Some(CachingMode::ReadOnly)),
            attached,
            false,
            "attached to node node-0 with ReadOnly caching while an attach with default caching is under way; \
             retry when that attach has finished",
        ),
    ] {
        assert_eq!(message(goal, earlier, sent), format!("{} cannot be {expected}", disk()));
    }
}
