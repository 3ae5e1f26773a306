//! What no recording and no document tells of Azure must not matter: a volume's life ends well in every position.

use lazuli_emulator::options::{Already, Concurrent, LeftOut, Switches};

use super::disk_rig::{
    GIB, Method, Rig, create_all, delete, expand, numbered, pass, publish, publish_all, seconds, typical, unpublish,
    unpublish_all,
};

/// The defaults, and each switch in its other position. Where omission is all that Azure Stack Hub has, what is left
/// out must be detached.
fn positions(method: Method) -> Vec<Switches> {
    let usual = Switches::default();
    let mut positions = vec![
        usual,
        Switches { concurrent_vm_write: Concurrent::Preempt, ..usual },
        Switches { left_out_of_patch: LeftOut::Keep, ..usual },
        Switches { attach_attached: Already::Ignore, ..usual },
        Switches { detach_unattached: Already::Ignore, ..usual },
        Switches { failed_attach_stays_in_model: true, ..usual },
        Switches { lenient_scalars: true, ..usual },
        Switches { put_needs_location: false, ..usual },
        Switches { disk_retry_after: 0, ..usual },
        Switches { list_lag: true, ..usual },
    ];
    if method != Method::AzureStack {
        positions.push(Switches { left_out_of_put: LeftOut::Keep, ..usual });
    }
    positions
}

async fn life(method: Method, unverified: Switches) {
    let azure = lazuli_emulator::Options { unverified, ..typical() };
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let client = rig.controller().await;
    // Disks of others, on the machine before ours come: they stay where they are.
    let other = rig.other_tool();
    other.make_disk("theirs").await;
    pass(seconds(3)).await;
    other.attach("node-0", &[("theirs", 1)]).await;
    pass(seconds(11)).await;

    let volumes = create_all(&client, &numbered(4)).await;
    for round in 0..2 {
        let luns: Vec<u8> =
            publish_all(&client, &volumes[..3], "node-0").await.into_iter().map(Result::unwrap).collect();
        assert_eq!(luns, [0, 2, 3], "{method:?} {round} {unverified:?}");
    }
    // One comes while another leaves.
    let (left, came) =
        futures::join!(unpublish(&client, &volumes[0].volume_id, "node-0"), publish(&client, &volumes[3], "node-0"));
    left.unwrap();
    came.unwrap();
    // Another replica knows nothing of it.
    let replica = rig.lab.controller("replica").await.unwrap();
    unpublish(&replica, &volumes[0].volume_id, "node-0").await.unwrap();
    publish(&replica, &volumes[0], "node-1").await.unwrap();
    assert_eq!(expand(&replica, &volumes[0].volume_id, 2 * GIB, 0).await.unwrap(), 2 * GIB);
    unpublish(&client, &volumes[0].volume_id, "node-1").await.unwrap();
    for _ in 0..2 {
        for answer in unpublish_all(&replica, &volumes, "node-0").await {
            answer.unwrap();
        }
    }
    rig.check();
    assert_eq!(
        rig.luns("node-0").into_iter().collect::<Vec<_>>(),
        [(1, "theirs".to_owned())],
        "{method:?} {unverified:?}"
    );
    for volume in &volumes {
        delete(&client, &volume.volume_id).await.unwrap();
    }
    rig.check_empty();
    rig.stop().await;
}

async fn every_position(method: Method) {
    for switches in positions(method) {
        life(method, switches).await;
    }
}

#[tokio::test(start_paused = true)]
async fn audit_a_volumes_life_by_the_action_ends_well_whatever_azure_does_where_nobody_knows() {
    every_position(Method::Action).await;
}

#[tokio::test(start_paused = true)]
async fn audit_a_volumes_life_by_the_whole_list_ends_well_whatever_azure_does_where_nobody_knows() {
    every_position(Method::WholeList).await;
}

#[tokio::test(start_paused = true)]
async fn audit_azure_stack_a_volumes_life_ends_well_whatever_it_does_where_nobody_knows() {
    every_position(Method::AzureStack).await;
}
