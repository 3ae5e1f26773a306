//! A volume's life ends well whatever Azure does where no recording and no document says what it does, with lists of
//! several pages, and beside another client that uses the same request limits.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use csi_proto::csi::Volume;
use futures::future::join_all;
use lazuli_emulator::{
    options::{Already, Concurrent, LIST_LAG, LeftOut, Switches},
    scenario::VirtualMachine,
};
use tokio::time::Instant;
use tonic::Status;

use super::disk_rig::{
    Client, GIB, Method, Rig, create_all, delete, expand, insist, list, name_of, numbered, pass, publish, publish_all,
    seconds, typical, unpublish, unpublish_all,
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
        Switches { put_needs_location: false, ..usual },
        Switches { disk_retry_after: 0, ..usual },
        Switches { list_lag: true, ..usual },
        Switches { copy_start_in_region: true, ..usual },
        Switches { copy_source_deletable: false, ..usual },
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
async fn audit_a_volumes_life_by_the_action_ends_well_in_every_position_of_the_switches() {
    every_position(Method::Action).await;
}

#[tokio::test(start_paused = true)]
async fn audit_a_volumes_life_by_the_whole_list_ends_well_in_every_position_of_the_switches() {
    every_position(Method::WholeList).await;
}

#[tokio::test(start_paused = true)]
async fn audit_azure_stack_a_volumes_life_ends_well_in_every_position_of_the_switches() {
    every_position(Method::AzureStack).await;
}

const NODES: usize = 13;
/// The volumes of five pages.
const MANY: usize = 16 * NODES;
const PAGE: usize = 50;

fn node(n: usize) -> String {
    format!("node-{n}")
}

/// The lives of many volumes on a part of the machines, which are two pages.
async fn lives_by_pages(method: Method, unverified: Switches) {
    let mut azure = lazuli_emulator::Options { page_size: PAGE, unverified, ..typical() };
    azure.scenario.virtual_machines =
        vec![VirtualMachine::pattern("node-{}", 13), VirtualMachine::pattern("other-{}", 60)];
    let mut rig = Rig::with(azure, |options| method.set(options)).await;
    let client = &rig.controller().await;
    let volumes = create_all(client, &numbered(MANY)).await;
    let on_nodes = || volumes.chunks(MANY / NODES).enumerate().map(|(n, volumes)| (node(n), volumes));

    let published = on_nodes().map(|(node, volumes)| async move { publish_all(client, volumes, &node).await });
    for answer in join_all(published).await.into_iter().flatten() {
        answer.unwrap();
    }
    rig.check();
    // What a list shows may be as old as this.
    pass(LIST_LAG).await;
    let expected: BTreeMap<String, Vec<String>> = on_nodes()
        .flat_map(|(node, volumes)| volumes.iter().map(move |volume| (volume.volume_id.clone(), vec![node.clone()])))
        .collect();
    assert_eq!(list(client).await.unwrap(), expected, "{method:?} {unverified:?}");
    let unpublished = on_nodes().map(|(node, volumes)| async move { unpublish_all(client, volumes, &node).await });
    for answer in join_all(unpublished).await.into_iter().flatten() {
        answer.unwrap();
    }
    for answer in join_all(volumes.iter().map(|volume| delete(client, &volume.volume_id))).await {
        answer.unwrap();
    }
    rig.check_empty();

    let counters = rig.control.counters();
    let count = |operation: &str| counters.by_operation.get(operation).copied().unwrap_or_default() as usize;
    assert!(count("disks.list") > 2 * MANY / PAGE, "{counters:?}");
    // Each creation looks for its disk once. Everything else that reads so many disks is a list, unless lists lag.
    let single_reads = if unverified.list_lag { 2 * MANY } else { MANY + PAGE };
    assert!(count("disks.get") <= single_reads, "{counters:?}");
    assert_eq!(counters.throttled, 0, "{method:?} {unverified:?}");
    rig.stop().await;
}

#[tokio::test(start_paused = true)]
async fn audit_many_volumes_lives_end_well_when_their_lists_have_several_pages() {
    for (method, list_lag) in [(Method::Action, false), (Method::Action, true), (Method::WholeList, true)] {
        lives_by_pages(method, Switches { list_lag, ..Switches::default() }).await;
    }
}

/// Two controllers with a list of volumes each.
struct Two {
    clients: [Client; 2],
    volumes: [Vec<Volume>; 2],
}

impl Two {
    /// Makes a call for each volume of both controllers, with its node, as sidecars do. The nodes of both are the same.
    async fn all<F: Future<Output = Result<(), Status>>>(&self, call: impl Fn(Client, Volume, String) -> F) {
        let call = &call;
        let calls = |which: usize| async move {
            let calls = self.volumes[which].iter().enumerate().map(|(n, volume)| async move {
                insist(|| call(self.clients[which].clone(), volume.clone(), node(n % NODES))).await;
            });
            join_all(calls).await;
        };
        both(calls(0), calls(1)).await;
    }
}

/// The work of two controllers, and how long each took. The second begins a second after the first: in the same moment
/// both would find the same tokens in a full bucket and send a request for each of them.
async fn both<T>(one: impl Future<Output = T>, two: impl Future<Output = T>) -> ([T; 2], [Duration; 2]) {
    let began = Instant::now();
    let one = async { (one.await, began.elapsed()) };
    let two = async {
        pass(seconds(1)).await;
        (two.await, began.elapsed() - seconds(1))
    };
    let ((one, first), (two, second)) = futures::join!(one, two);
    ([one, two], [first, second])
}

#[tokio::test(start_paused = true)]
async fn audit_two_controllers_on_one_bucket_share_it_and_lose_no_update() {
    const EACH: usize = 15 * NODES;
    let mut azure = typical();
    azure.scenario.virtual_machines =
        vec![VirtualMachine { size: "Standard_M128s".into(), ..VirtualMachine::pattern("node-{}", 13) }];
    let mut rig = Rig::on(azure).await;
    let clients = [rig.lab.controller("one").await.unwrap(), rig.lab.controller("two").await.unwrap()];
    // The first controller uses up the writes, so that from here on both live on the refill.
    let names = numbered(195 + 2 * EACH);
    let (first, names) = names.split_at(195);
    let first = create_all(&clients[0], first).await;
    let (one, two) = names.split_at(EACH);
    let (volumes, created) = both(create_all(&clients[0], one), create_all(&clients[1], two)).await;
    let [faster, slower] = if created[0] < created[1] { created } else { [created[1], created[0]] };
    // Twice as long would mean that one has waited for the other's last creation.
    assert!(slower < faster.mul_f64(1.7), "{created:?}");

    let two = Two { clients, volumes };
    two.all(|client, volume, node| async move { publish(&client, &volume, &node).await.map(drop) }).await;
    rig.at_rest().await;
    rig.check();
    for n in 0..NODES {
        let of_node = two.volumes.iter().flat_map(|volumes| volumes.iter().skip(n).step_by(NODES));
        let expected: BTreeSet<String> = of_node.map(|volume| name_of(&volume.volume_id).to_owned()).collect();
        assert_eq!(rig.luns(&node(n)).into_values().collect::<BTreeSet<_>>(), expected, "{}", node(n));
    }
    two.all(|client, volume, node| async move { unpublish(&client, &volume.volume_id, &node).await.map(drop) }).await;
    for answer in join_all(first.iter().map(|volume| delete(&two.clients[0], &volume.volume_id))).await {
        answer.unwrap();
    }
    two.all(|client, volume, _| async move { delete(&client, &volume.volume_id).await }).await;
    rig.check_empty();
    let counters = rig.control.counters();
    assert!(counters.throttled * 100 <= counters.reads + counters.writes, "{counters:?}");
    rig.stop().await;
}
