//! The controller killed between any two writes of a snapshot, a copy or a changed disk: the next process ends it.
//!
//! A real process and a real kill -9, on real time. Each request has a life that nothing disturbs, and one for each of its
//! writes and each [`Moment`] of the write. After any of them the repeated call answers the same, Azure holds the same, and
//! has accepted each write once.

use std::{collections::BTreeMap, path::Path};

use csi_proto::csi::{
    ControllerModifyVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest, DeleteSnapshotRequest, Topology,
    TopologyRequirement, VolumeContentSource,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use futures::{StreamExt as _, stream};
use lazuli_emulator::{
    Control, Emulator,
    call_log::Call,
    latency::Profile,
    scenario::{self, Scenario},
};
use lazuli_rig::Folder;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{
    disk_kill::{PATIENCE, Process, azure_json},
    disk_rig::{Client, GIB, create_request, delete, disk_id, millis, pass},
};

/// How many lives go on at once: each is a process of its own, and mostly waits.
const AT_ONCE: usize = 12;
/// How often a condition that announces itself by no event is looked at.
const LOOK: u64 = 2;

/// A call of a sidecar. The source of all is `source`, a disk of 4 GiB in zone 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    Snapshot,
    /// A snapshot in another region.
    SnapshotElsewhere,
    DeleteSnapshot,
    /// A volume in another zone, of another volume.
    CloneIntoZone2,
    /// The same, of a kind that Azure fills long after its creation.
    SlowCloneIntoZone2,
    /// A volume of 8 GiB from the snapshot.
    RestoreLarger,
    DeleteVolume,
    /// Another kind, and tags.
    Modify,
    /// A kind into which Azure converts the disk after its answer.
    Convert,
}

/// A request whose process is killed at each of its writes.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// What is there before: each call, and how many of its writes Azure has done when its process was killed for good.
    before: &'static [(Rpc, Option<usize>)],
    call: Rpc,
    /// Its writes, each as method and name.
    writes: &'static [&'static str],
    /// What deletes all of it.
    after: &'static [Rpc],
}

const CASES: [Case; 10] = [
    Case { before: &[], call: Rpc::Snapshot, writes: &["PUT snap"], after: &[Rpc::DeleteSnapshot] },
    Case {
        before: &[],
        call: Rpc::SnapshotElsewhere,
        writes: &["PUT local_snap", "PUT snap", "DELETE local_snap"],
        after: &[Rpc::DeleteSnapshot],
    },
    Case { before: &[(Rpc::Snapshot, None)], call: Rpc::DeleteSnapshot, writes: &["DELETE snap"], after: &[] },
    Case {
        before: &[(Rpc::SnapshotElsewhere, Some(2))],
        call: Rpc::DeleteSnapshot,
        writes: &["DELETE snap", "DELETE local_snap"],
        after: &[],
    },
    Case {
        before: &[],
        call: Rpc::CloneIntoZone2,
        writes: &["PUT carry_pvc-1", "PUT pvc-1", "DELETE carry_pvc-1"],
        after: &[Rpc::DeleteVolume],
    },
    Case {
        before: &[(Rpc::CloneIntoZone2, Some(2))],
        call: Rpc::DeleteVolume,
        writes: &["DELETE pvc-1", "DELETE carry_pvc-1"],
        after: &[],
    },
    Case {
        before: &[],
        call: Rpc::SlowCloneIntoZone2,
        writes: &["PUT carry_pvc-1", "PUT pvc-1"],
        after: &[Rpc::DeleteVolume],
    },
    Case {
        before: &[(Rpc::Snapshot, None)],
        call: Rpc::RestoreLarger,
        writes: &["PUT pvc-1"],
        after: &[Rpc::DeleteSnapshot, Rpc::DeleteVolume],
    },
    Case {
        before: &[(Rpc::CloneIntoZone2, None)],
        call: Rpc::Modify,
        writes: &["PATCH pvc-1"],
        after: &[Rpc::DeleteVolume],
    },
    Case {
        before: &[(Rpc::CloneIntoZone2, None)],
        call: Rpc::Convert,
        writes: &["PATCH pvc-1"],
        after: &[Rpc::DeleteVolume],
    },
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The write has arrived and Azure has not acted.
    Arrived,
    /// Azure has accepted the write and works on it.
    Accepted,
    /// Azure has done the write, and the process does not know it.
    Done,
}

const MOMENTS: [Moment; 3] = [Moment::Arrived, Moment::Accepted, Moment::Done];

fn pairs<T: FromIterator<(String, String)>>(pairs: &[(&str, &str)]) -> T {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn snapshot_id() -> String {
    disk_id("snap").replace("/disks/", "/snapshots/")
}

/// A request for a volume with this source, in this zone.
fn copy_request(gib: i64, source: Type, zone: &str, parameters: &[(&str, &str)]) -> CreateVolumeRequest {
    let segments = pairs(&[("topology.disk.csi.azure.com/zone", &format!("{}-{zone}", scenario::LOCATION))]);
    let topology = Topology { segments };
    let mut request = CreateVolumeRequest {
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        accessibility_requirements: Some(TopologyRequirement {
            requisite: vec![topology.clone()],
            preferred: vec![topology],
        }),
        ..create_request("pvc-1", parameters)
    };
    request.capacity_range.as_mut().unwrap().required_bytes = gib * GIB;
    request
}

/// What a call has answered, without times. `None`: the sidecar is to ask again.
type Answer = Option<String>;

impl Rpc {
    async fn send(self, client: &Client) -> Result<Answer, Status> {
        let mut client = client.clone();
        let of_disk = || Type::Volume(VolumeSource { volume_id: disk_id("source") });
        match self {
            Self::Snapshot => take_snapshot(client, &[]).await,
            Self::SnapshotElsewhere => take_snapshot(client, &[("location", "northeurope")]).await,
            Self::DeleteSnapshot => {
                let request = DeleteSnapshotRequest { snapshot_id: snapshot_id(), ..Default::default() };
                client.delete_snapshot(request).await.map(|_| Some(String::new()))
            }
            Self::CloneIntoZone2 => {
                create(client, copy_request(4, of_disk(), "2", &[("skuName", "Premium_LRS")])).await
            }
            Self::SlowCloneIntoZone2 => {
                create(client, copy_request(4, of_disk(), "2", &[("skuName", "PremiumV2_LRS")])).await
            }
            Self::RestoreLarger => {
                let source = Type::Snapshot(SnapshotSource { snapshot_id: snapshot_id() });
                create(client, copy_request(8, source, "1", &[("skuName", "StandardSSD_LRS")])).await
            }
            Self::DeleteVolume => delete(&client, &disk_id("pvc-1")).await.map(|()| Some(String::new())),
            Self::Modify => modify(client, &[("skuName", "StandardSSD_LRS"), ("tags", "team=red")]).await,
            Self::Convert => modify(client, &[("skuName", "PremiumV2_LRS")]).await,
        }
    }

    /// As a sidecar does: again while the answer or its code says that it may help.
    async fn insist(self, client: &Client) -> String {
        loop {
            match self.send(client).await {
                Ok(Some(answer)) => return answer,
                Ok(None) => {}
                Err(status) if matches!(status.code(), Code::Aborted | Code::Unavailable) => {}
                Err(status) => panic!("{self:?}: {status:?}"),
            }
            pass(millis(200)).await;
        }
    }
}

async fn take_snapshot(mut client: Client, parameters: &[(&str, &str)]) -> Result<Answer, Status> {
    let request = CreateSnapshotRequest {
        source_volume_id: disk_id("source"),
        name: "snap".into(),
        parameters: pairs(parameters),
        ..Default::default()
    };
    let mut taken = client.create_snapshot(request).await?.into_inner().snapshot.unwrap();
    taken.creation_time = None;
    Ok(taken.ready_to_use.then(|| format!("{taken:?}")))
}

async fn create(mut client: Client, request: CreateVolumeRequest) -> Result<Answer, Status> {
    let mut made = client.create_volume(request).await?.into_inner().volume.unwrap();
    let context: BTreeMap<String, String> = std::mem::take(&mut made.volume_context).into_iter().collect();
    Ok(Some(format!("{made:?} {context:?}")))
}

async fn modify(mut client: Client, class: &[(&str, &str)]) -> Result<Answer, Status> {
    let request = ControllerModifyVolumeRequest {
        volume_id: disk_id("pvc-1"),
        mutable_parameters: pairs(class),
        ..Default::default()
    };
    client.controller_modify_volume(request).await.map(|_| Some(String::new()))
}

/// An Azure with one disk, and the controller's process.
struct World {
    emulator: Emulator,
    control: Control,
    folder: Folder,
    process: Option<Process>,
}

impl World {
    async fn start(call: Rpc) -> Self {
        let folder = Folder::make("snapshot-kill").unwrap();
        let source = scenario::Disk {
            name: "source".into(),
            size_gib: 4,
            sku: "Premium_LRS".into(),
            zone: Some("1".into()),
            resource_group: None,
            attach_to: None,
            tags: BTreeMap::new(),
        };
        let scenario = Scenario { virtual_machines: Vec::new(), disks: vec![source], ..Scenario::default() };
        // A disk that is filled meanwhile no longer needs its temporary snapshot.
        let copy_ms = if call == Rpc::SlowCloneIntoZone2 { 3_600_000 } else { 400 };
        let latency = short(folder.path(), copy_ms);
        let options = lazuli_emulator::Options { latency, scenario, retry_after: Some(1), ..Default::default() };
        let emulator = Emulator::start(options).await.unwrap();
        std::fs::write(folder.path().join("azure.json"), azure_json(&emulator.url())).unwrap();
        let process = Some(Process::start(folder.path()).await);
        Self { control: emulator.control(), emulator, folder, process }
    }

    fn client(&self) -> Client {
        self.process.as_ref().unwrap().client.clone()
    }

    /// Holds requests with this method until their sender is gone, after so many of them.
    fn hold(&self, method: &str, after: usize) {
        let matching = json!({"method": method, "nth": after + 1});
        let hold = json!({"match": matching, "then": {"delayMs": 3_600_000}, "times": 0});
        self.control.add_incident(serde_json::from_value(hold).unwrap()).unwrap();
    }

    /// Calls, and kills the process at a write of the call: the first is number 1.
    async fn kill_at(&mut self, call: Rpc, write: usize, moment: Moment) {
        let before = self.accepted().len();
        let has_struck = || self.control.incidents().iter().any(|listed| listed.struck > 0);
        let is_accepted = || self.accepted().len() >= before + write;
        // A write behind the one that counts must not be sent.
        self.hold("PUT|PATCH|DELETE", write - usize::from(moment == Moment::Arrived));
        let client = self.client();
        let asking = tokio::spawn(async move { call.insist(&client).await });
        match moment {
            Moment::Arrived => until(has_struck).await,
            Moment::Accepted => until(is_accepted).await,
            Moment::Done => {
                until(is_accepted).await;
                self.hold("GET", 0);
                until(|| self.control.running_operations() == 0).await;
            }
        }
        assert!(!asking.is_finished(), "the kill strikes the call in flight");
        self.process.take().unwrap().kill();
        asking.abort();
        self.control.clear_incidents();
        self.process = Some(Process::start(self.folder.path()).await);
    }

    /// The writes that Azure has accepted, each as method and name. The deletion of what is gone is none.
    fn accepted(&self) -> Vec<String> {
        let calls = self.control.call_log().into_iter();
        let is_write = |call: &Call| call.plane == "arm" && ["PUT", "PATCH", "DELETE"].contains(&call.method.as_str());
        let name = |call: &Call| call.path.rsplit('/').next().unwrap().to_owned();
        calls
            .filter(|call| is_write(call) && [200, 201, 202].contains(&call.status))
            .map(|call| format!("{} {}", call.method, name(&call)))
            .collect()
    }

    /// The disks and snapshots that Azure holds, without what differs from life to life.
    fn held(&self) -> BTreeMap<String, Value> {
        let resources = self.control.dump().resources.into_iter();
        resources
            .filter(|(id, _)| id.contains("/disks/") || id.contains("/snapshots/"))
            .map(|(id, mut document)| {
                plain(&mut document);
                (id.rsplit('/').next().unwrap().to_owned(), document)
            })
            .collect()
    }
}

async fn until(is: impl Fn() -> bool) {
    while !is() {
        pass(millis(LOOK)).await;
    }
}

/// Takes out times, the identities that Azure gives, and how far it is with what it fills after its answer.
fn plain(value: &mut Value) {
    if let Value::Object(members) = value {
        let is_own = |key: &str| {
            let key = key.to_lowercase();
            ["time", "timecreated", "uniqueid", "familyid", "etag", "completionpercent"]
                .iter()
                .any(|own| key.ends_with(own))
        };
        members.retain(|key, member| !is_own(key) && !member.is_null());
        members.values_mut().for_each(plain);
    }
}

/// Operations that take long enough to be killed in the middle of, and end before the first poll.
fn short(folder: &Path, copy_ms: u32) -> Profile {
    let path = folder.join("latency.yaml");
    let kinds = ["diskCreate", "diskUpdate", "diskDelete", "snapshot", "snapshotDelete"];
    let kinds = kinds.map(|kind| format!("  {kind}: {{constant_ms: 400}}\n")).concat();
    let text = format!("base: none\noperations:\n{kinds}  snapshotCopy: {{constant_ms: {copy_ms}}}\n");
    std::fs::write(&path, text).unwrap();
    Profile::parse(path.to_str().unwrap()).unwrap()
}

/// What a life ends in.
#[derive(Debug, PartialEq)]
struct End {
    answer: String,
    /// In the order of their names and methods.
    accepted: Vec<String>,
    held: BTreeMap<String, Value>,
}

/// One life, with the process killed at one write.
async fn life(case: Case, killed: Option<(usize, Moment)>) -> End {
    let mut world = World::start(case.call).await;
    for (call, writes) in case.before {
        match writes {
            Some(writes) => world.kill_at(*call, *writes, Moment::Done).await,
            None => drop(call.insist(&world.client()).await),
        }
    }
    let before = world.accepted().len();
    if let Some((write, moment)) = killed {
        world.kill_at(case.call, write, moment).await;
    }
    let answer = case.call.insist(&world.client()).await;
    // The next one asks the same, and finds it done.
    let again = case.call.insist(&world.client()).await;
    assert_eq!(again, answer);
    until(|| world.control.running_operations() == 0).await;
    let mut accepted = world.accepted().split_off(before);
    accepted.sort();
    let held = world.held();
    for call in case.after {
        call.insist(&world.client()).await;
    }
    until(|| world.control.running_operations() == 0).await;
    assert!(world.held().keys().eq(["source"]), "{case:?} {killed:?} leaves {:?}", world.held().keys());
    assert_eq!(world.control.violations(), Vec::<String>::new());
    drop(world.process);
    world.emulator.shutdown().await;
    End { answer, accepted, held }
}

/// The life of a case without a kill, and then all those with one.
async fn lives(case: Case) {
    let undisturbed = timeout(PATIENCE, life(case, None)).await.unwrap_or_else(|_| panic!("{case:?} does not end"));
    let mut writes = case.writes.to_vec();
    writes.sort_unstable();
    assert_eq!(undisturbed.accepted, writes, "{case:?}");
    let kills = (1..=writes.len()).flat_map(|write| MOMENTS.map(|moment| (write, moment)));
    let lives = kills.map(|killed| async move { (killed, timeout(PATIENCE, life(case, Some(killed))).await) });
    let mut ended = stream::iter(lives).buffer_unordered(AT_ONCE);
    let mut wrong = Vec::new();
    while let Some((killed, ended)) = ended.next().await {
        match ended {
            Ok(ended) if ended == undisturbed => {}
            Ok(ended) => wrong.push(format!("killed at {killed:?}: {ended:#?}")),
            Err(_) => wrong.push(format!("killed at {killed:?}: it does not end")),
        }
    }
    assert!(wrong.is_empty(), "{case:?} is {undisturbed:#?}\nand {}", wrong.join("\n"));
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_write_of_a_snapshot_is_succeeded_by_one_that_ends_it() {
    futures::future::join_all(CASES[..4].iter().map(|case| lives(*case))).await;
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_write_of_a_copy_is_succeeded_by_one_that_ends_it() {
    futures::future::join_all(CASES[4..8].iter().map(|case| lives(*case))).await;
}

#[tokio::test]
async fn disk_a_controller_killed_at_the_write_of_a_change_is_succeeded_by_one_that_ends_it() {
    futures::future::join_all(CASES[8..].iter().map(|case| lives(*case))).await;
}
