//! The controller killed between any two requests for a VHD blob disk, to the resource manager or to the blob service: the
//! next process ends what it has begun.
//!
//! A real process and a real kill -9, on real time, over TLS. Each call of a sidecar has a life that nothing disturbs, and one
//! for each of its requests: that request arrives, Azure does not act on it any more, and the process is killed. What Azure
//! has done of the requests before it is done, or goes on. After any of them the repeated call answers the same and Azure
//! holds the same: one blob with one footer, one account, the bytes that the machine has written.

use std::collections::BTreeMap;

use csi_proto::csi::{
    CapacityRange, CreateVolumeRequest, Volume, VolumeContentSource,
    volume_content_source::{Type, VolumeSource},
};
use futures::{StreamExt as _, stream};
use lazuli_emulator::{
    Control, Emulator,
    latency::Profile,
    scenario::{Scenario, VirtualMachine},
};
use lazuli_rig::Folder;
use serde_json::{Value, json};
use tokio::time::timeout;
use tonic::{Code, Status};

use super::{
    disk_kill::{PATIENCE, Process, azure_json},
    disk_rig::{
        Client, GIB, create_request, create_with, delete, disk_id, expand, millis, pass, publish, unpublish, vm_id,
    },
};

/// How many lives go on at once: each is a process of its own, and mostly waits.
const AT_ONCE: usize = 10;
/// How often a condition that announces itself by no event is looked at.
const LOOK: u64 = 2;
/// More requests than any call takes.
const MOST_REQUESTS: u64 = 60;
const MACHINE: &str = "old-0";
/// The bytes that the machine writes: at the beginning of its disk, and at its end.
const CONTENT: [u8; 512] = [0xa5; 512];

/// A call of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rpc {
    CreateShared,
    CreateDedicated,
    Attach,
    Detach,
    /// From 1 GiB to 3.
    Grow,
    Delete,
    /// Makes a managed disk of the VHD.
    Import,
    DeleteImported,
}

/// A call whose process is killed at each of its requests.
#[derive(Debug, Clone, Copy)]
struct Case {
    /// What is there before.
    before: &'static [Rpc],
    call: Rpc,
    /// What deletes all of it.
    after: &'static [Rpc],
}

const CASES: [Case; 8] = [
    Case { before: &[], call: Rpc::CreateShared, after: &[Rpc::Delete] },
    Case { before: &[], call: Rpc::CreateDedicated, after: &[Rpc::Delete] },
    Case { before: &[Rpc::CreateShared], call: Rpc::Delete, after: &[] },
    Case { before: &[Rpc::CreateDedicated], call: Rpc::Delete, after: &[] },
    Case { before: &[Rpc::CreateShared], call: Rpc::Attach, after: &[Rpc::Detach, Rpc::Delete] },
    Case { before: &[Rpc::CreateShared, Rpc::Attach], call: Rpc::Detach, after: &[Rpc::Delete] },
    Case { before: &[Rpc::CreateDedicated, Rpc::Attach, Rpc::Detach], call: Rpc::Grow, after: &[Rpc::Delete] },
    Case {
        before: &[Rpc::CreateShared, Rpc::Attach, Rpc::Detach],
        call: Rpc::Import,
        after: &[Rpc::DeleteImported, Rpc::Delete],
    },
];

impl Rpc {
    async fn send(self, client: &Client, vhd: &Volume) -> Result<Answer, Status> {
        let id = &vhd.volume_id;
        let nothing = |()| Answer::Text(String::new());
        match self {
            Self::CreateShared => create_with(client, "pvc-1", &[("kind", "Shared")]).await.map(Answer::Vhd),
            Self::CreateDedicated => create_with(client, "pvc-1", &[("kind", "Dedicated")]).await.map(Answer::Vhd),
            Self::Attach => publish(client, vhd, MACHINE).await.map(|lun| Answer::Text(lun.to_string())),
            Self::Detach => unpublish(client, id, MACHINE).await.map(nothing),
            Self::Grow => expand(client, id, 3 * GIB, 0).await.map(|bytes| Answer::Text(bytes.to_string())),
            Self::Delete => delete(client, id).await.map(nothing),
            Self::Import => {
                let mut made = client.clone().create_volume(import_request(id)).await?.into_inner().volume.unwrap();
                let context: BTreeMap<String, String> = std::mem::take(&mut made.volume_context).into_iter().collect();
                Ok(Answer::Text(format!("{made:?} {context:?}")))
            }
            Self::DeleteImported => delete(client, &disk_id("pvc-2")).await.map(nothing),
        }
    }

    /// As a sidecar does: again while the code says that it may help.
    async fn insist(self, client: &Client, vhd: &Volume) -> Answer {
        loop {
            match self.send(client, vhd).await {
                Ok(answer) => return answer,
                Err(status) if matches!(status.code(), Code::Aborted | Code::Unavailable) => {}
                Err(status) => panic!("{self:?}: {status:?}"),
            }
            pass(millis(200)).await;
        }
    }
}

fn import_request(vhd: &str) -> CreateVolumeRequest {
    let source = Type::Volume(VolumeSource { volume_id: vhd.to_owned() });
    CreateVolumeRequest {
        capacity_range: Some(CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_content_source: Some(VolumeContentSource { r#type: Some(source) }),
        ..create_request("pvc-2", &[])
    }
}

/// What a call has answered.
#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Vhd(Volume),
    Text(String),
}

/// An Azure with a machine that takes VHDs, and the controller's process.
struct World {
    emulator: Emulator,
    control: Control,
    folder: Folder,
    process: Option<Process>,
    vhd: Volume,
}

impl World {
    async fn start() -> Self {
        let folder = Folder::make("blob-kill").unwrap();
        let mut old = VirtualMachine::pattern("old-{}", 1);
        old.os_disk.storage_account = Some("systems".to_owned());
        let options = lazuli_emulator::Options {
            latency: short(&folder),
            scenario: Scenario { virtual_machines: vec![old], ..Scenario::default() },
            retry_after: Some(1),
            listen_tls: Some("127.0.0.1:0".parse().unwrap()),
            ..Default::default()
        };
        let emulator = Emulator::start(options).await.unwrap();
        std::fs::write(folder.path().join("azure.json"), azure_json(&emulator.url())).unwrap();
        std::fs::write(folder.path().join("ca.pem"), emulator.ca_pem().unwrap()).unwrap();
        let process = Some(Self::process(&folder).await);
        Self { control: emulator.control(), emulator, folder, process, vhd: Volume::default() }
    }

    async fn process(folder: &Folder) -> Process {
        let authority = folder.path().join("ca.pem");
        Process::start_with(folder.path(), &["--azure-ca-file", authority.to_str().unwrap()]).await
    }

    fn client(&self) -> Client {
        self.process.as_ref().unwrap().client.clone()
    }

    async fn insist(&mut self, call: Rpc) -> Answer {
        let answer = call.insist(&self.client(), &self.vhd).await;
        if let Answer::Vhd(vhd) = &answer {
            self.vhd = vhd.clone();
        }
        if call == Rpc::Attach {
            for at in [0, GIB.unsigned_abs() - 512] {
                self.control.write_as_machine(&self.vhd.volume_id, at, &CONTENT).unwrap();
            }
        }
        answer
    }

    /// Calls, and kills the process when its request of this number has arrived. `false` where the call has fewer.
    async fn kill_at(&mut self, call: Rpc, request: u64) -> bool {
        let hold = json!({"match": {"nth": request}, "then": {"delayMs": 3_600_000}, "times": 0});
        self.control.add_incident(serde_json::from_value(hold).unwrap()).unwrap();
        let (client, vhd) = (self.client(), self.vhd.clone());
        let asking = tokio::spawn(async move { call.insist(&client, &vhd).await });
        let has_struck = || self.control.incidents().iter().any(|listed| listed.struck > 0);
        until(|| has_struck() || asking.is_finished()).await;
        let struck = !asking.is_finished();
        self.process.take().unwrap().kill();
        asking.abort();
        self.control.clear_incidents();
        self.process = Some(Self::process(&self.folder).await);
        struck
    }

    /// What Azure holds, without what differs from life to life.
    fn held(&self) -> Held {
        let mut held = Held::default();
        let dump = self.control.dump();
        for (id, document) in &dump.resources {
            let name = || document["name"].as_str().unwrap().to_owned();
            let properties = &document["properties"];
            match document["type"].as_str() {
                Some("Microsoft.Storage/storageAccounts") => {
                    drop(held.accounts.insert(name(), document["tags"].clone()))
                }
                Some("lazuli/blobs") => {
                    let account = id.split("/storageaccounts/").nth(1).unwrap().split('/').next().unwrap();
                    let uri = format!("https://{account}.blob.core.windows.net/vhds/{}", name());
                    held.blobs.insert(uri.clone(), self.blob(&uri, properties));
                }
                Some("Microsoft.Compute/disks") => {
                    let facts = [&properties["creationData"], &properties["diskSizeGB"], &properties["diskState"]];
                    let checked =
                        document["tags"]["lazuli-imported"].as_str().is_some_and(|tag| tag.ends_with("checked"));
                    held.disks.insert(name(), (format!("{facts:?}"), checked));
                }
                _ => {}
            }
        }
        let machine = &dump.resources[&vm_id(MACHINE).to_lowercase()];
        held.listed = machine["properties"]["storageProfile"]["dataDisks"].clone();
        held.luns = self.control.lun_maps().into_values().collect();
        held
    }

    fn blob(&self, uri: &str, properties: &Value) -> Blob {
        let bytes = |at: u64| self.control.blob_bytes(uri, at, 512).unwrap();
        let length = properties["length"].as_u64().unwrap();
        let mut metadata = properties["metadata"].clone();
        metadata.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        // The place of every footer that there may be, with the size that it tells of.
        let places = (1..=length >> 30).map(|gib| gib << 30).filter(|at| at + 512 <= length);
        let footers = places.filter_map(|at| footer(&bytes(at)).map(|told| (at, told)));
        Blob {
            length,
            metadata,
            is_leased: properties["lease"].is_object(),
            footers: footers.collect(),
            content: [0, GIB.unsigned_abs() - 512].map(|at| bytes(at) == CONTENT),
        }
    }
}

/// The size that the footer of a fixed disk tells of, and the disk's identity.
fn footer(page: &[u8]) -> Option<(u64, Vec<u8>)> {
    let number =
        |at: usize, bytes: usize| page[at..at + bytes].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let counted = page.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
    let sum = u64::from(!counted.map(|(_, byte)| u32::from(*byte)).sum::<u32>());
    let is_one = page.starts_with(b"conectix") && number(60, 4) == 2 && number(64, 4) == sum;
    is_one.then(|| (number(48, 8), page[68..84].to_vec()))
}

#[derive(Debug, Clone, PartialEq)]
struct Blob {
    length: u64,
    metadata: Value,
    is_leased: bool,
    /// Place, size and identity.
    footers: BTreeMap<u64, (u64, Vec<u8>)>,
    content: [bool; 2],
}

impl Blob {
    /// Whether it ends with the one footer that it has.
    fn is_whole(&self) -> bool {
        let size = self.length - 512;
        let mut footers = self.footers.iter();
        footers.next().is_some_and(|(at, (told, _))| *at == size && *told == size) && footers.next().is_none()
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
struct Held {
    accounts: BTreeMap<String, Value>,
    blobs: BTreeMap<String, Blob>,
    disks: BTreeMap<String, (String, bool)>,
    listed: Value,
    luns: Vec<BTreeMap<u8, String>>,
}

async fn until(is: impl Fn() -> bool) {
    while !is() {
        pass(millis(LOOK)).await;
    }
}

/// Operations that take long enough to be killed in the middle of, and end before the first poll.
fn short(folder: &Folder) -> Profile {
    let path = folder.path().join("latency.yaml");
    let kinds = ["diskCreate", "diskDelete", "vmAttach", "vmDetach", "storageAccount"];
    let kinds = kinds.map(|kind| format!("  {kind}: {{constant_ms: 400}}\n")).concat();
    std::fs::write(&path, format!("base: none\noperations:\n{kinds}")).unwrap();
    Profile::parse(path.to_str().unwrap()).unwrap()
}

/// One life, with the process killed at one request. The end, and whether there was such a request.
async fn life(case: Case, killed: Option<u64>) -> ((Answer, Held), bool) {
    let mut world = World::start().await;
    for call in case.before {
        world.insist(*call).await;
    }
    let struck = match killed {
        Some(request) => world.kill_at(case.call, request).await,
        None => false,
    };
    let answer = world.insist(case.call).await;
    // The next one asks the same, and finds it done.
    assert_eq!(world.insist(case.call).await, answer, "{case:?} {killed:?}");
    until(|| world.control.running_operations() == 0).await;
    let held = world.held();
    for (uri, blob) in &held.blobs {
        assert!(blob.is_whole(), "{case:?} {killed:?} leaves {uri}: {blob:?}");
    }
    for call in case.after {
        world.insist(*call).await;
    }
    until(|| world.control.running_operations() == 0).await;
    let left = world.held();
    let own: Vec<&String> = left.accounts.keys().filter(|name| !name.starts_with("ds")).collect();
    assert!(left.blobs.is_empty() && left.disks.is_empty() && own.is_empty(), "{case:?} {killed:?} leaves {left:?}");
    assert_eq!(world.control.violations(), Vec::<String>::new());
    drop(world.process);
    world.emulator.shutdown().await;
    ((answer, held), struck)
}

/// The life of a case without a kill, and then all those with one.
async fn lives(case: Case) {
    let ended = timeout(PATIENCE, life(case, None)).await;
    let (undisturbed, _) = ended.unwrap_or_else(|_| panic!("{case:?} does not end"));
    let kills = |first: u64| {
        let lives = (first..first + AT_ONCE as u64)
            .map(|request| async move { (request, timeout(PATIENCE, life(case, Some(request))).await) });
        stream::iter(lives).buffer_unordered(AT_ONCE)
    };
    let (mut wrong, mut struck, mut first) = (Vec::new(), 0, 1);
    loop {
        let mut ended = kills(first);
        let mut is_over = false;
        while let Some((request, ended)) = ended.next().await {
            match ended {
                Ok((ended, is_struck)) => {
                    struck += u64::from(is_struck);
                    is_over |= !is_struck;
                    if ended != undisturbed {
                        wrong.push(format!("killed at request {request}: {ended:#?}"));
                    }
                }
                Err(_) => wrong.push(format!("killed at request {request}: it does not end")),
            }
        }
        first += AT_ONCE as u64;
        if is_over {
            break;
        }
        assert!(first < MOST_REQUESTS, "{case:?} has more than {MOST_REQUESTS} requests");
    }
    println!("{:?}: killed at each of {struck} requests", case.call);
    assert!(struck >= 3, "{case:?} was killed {struck} times");
    assert!(wrong.is_empty(), "{case:?} is {undisturbed:#?}\nand {}", wrong.join("\n"));
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_request_for_a_new_blob_disk_is_succeeded_by_one_that_ends_it() {
    for case in &CASES[..2] {
        lives(*case).await;
    }
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_request_of_a_blob_disks_deletion_is_succeeded_by_one_that_ends_it() {
    for case in &CASES[2..4] {
        lives(*case).await;
    }
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_request_of_a_blob_disks_attach_or_detach_is_succeeded_by_one_that_ends_it() {
    for case in &CASES[4..6] {
        lives(*case).await;
    }
}

#[tokio::test]
async fn disk_a_controller_killed_at_any_request_of_a_growth_or_import_is_succeeded_by_one_that_ends_it() {
    for case in &CASES[6..] {
        lives(*case).await;
    }
}
