//! The whole client against the emulator, a server that shares no code with it: over real HTTP and in process, in one
//! runtime, on paused time.

use std::{collections::BTreeSet, time::Duration};

use lazuli_emulator::{Emulator, Options, incident::Incident, latency::Profile, scenario};
use lazuli_model::{
    ArmId, CachingMode, Disk, DiskId, Gib, Lun, ProvisioningState, Vm,
    fault::Fault,
    op::{Attachment, VmWrite, VmWriteMethod},
};
use lazuli_quota::{permit::Priority, poll::Kind, read::By};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    Until, arm,
    auth::{Credential, ManagedIdentity},
    compute::{ApiVersions, Compute, Freshness, ListedDisk, Snapshot, UnreadableDisk},
    error::ArmError,
    imds::{Imds, InstanceDiskSource},
    on_emulator,
    testing::{an_hour, url},
    transport::{Routes, Tls, Transport},
};

mod instances;
mod network;
mod storage;

struct Rig {
    emulator: Emulator,
    transport: Transport,
    compute: Compute,
}

#[derive(Clone, Copy)]
enum Way {
    Tcp,
    InProcess,
}

async fn rig(way: Way, options: Options) -> Rig {
    let emulator = Emulator::start(options).await.unwrap();
    let base = url(&emulator.url());
    let routes = on_emulator::routes(&base).with_imds(&base.join("_imds/node-0").unwrap()).unwrap();
    let transport = match way {
        Way::Tcp => Transport::new(routes, &Tls::default()).unwrap(),
        Way::InProcess => Transport::in_process(routes, emulator.service()),
    };
    let compute = client(&transport, principal());
    Rig { emulator, transport, compute }
}

fn principal() -> Credential {
    on_emulator::principal(scenario::TENANT, scenario::CLIENT_ID, scenario::CLIENT_SECRET)
}

fn client(transport: &Transport, credential: Credential) -> Compute {
    Compute::new(on_emulator::client(transport.clone(), credential, 7), ApiVersions::public())
}

fn disk_id(name: &str) -> ArmId {
    ArmId::disk(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, name).unwrap()
}

fn vm_id() -> ArmId {
    ArmId::virtual_machine(scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, "node-0").unwrap()
}

fn attachment(name: &str, lun: u8) -> Attachment {
    Attachment {
        disk: disk_id(name).into(),
        lun: Lun::try_from(i64::from(lun)).unwrap(),
        caching: CachingMode::ReadOnly,
        disk_encryption_set: None,
        write_accelerator: false,
    }
}

impl Rig {
    async fn create(&self, name: &str) {
        let body = json!({
            "location": scenario::LOCATION, "sku": {"name": "StandardSSD_LRS"},
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 10}
        });
        let mut operation = self.compute.create_disk(&disk_id(name), body, None, &an_hour()).await.unwrap();
        operation.wait(&an_hour()).await.unwrap();
    }

    async fn write(&self, method: VmWriteMethod, attach: Vec<Attachment>, detach: Vec<DiskId>) {
        let vm = self.compute.get_vm(&vm_id(), &an_hour()).await.unwrap();
        let write = VmWrite { vm: vm_id(), attach, detach, force: BTreeSet::new(), reapply: vec![] };
        let mut operation =
            self.compute.write_vm(&vm, &write, method, Priority::Attach, None, &an_hour()).await.unwrap();
        operation.wait(&an_hour()).await.unwrap();
    }

    async fn luns(&self) -> Vec<u8> {
        let vm = self.compute.get_vm(&vm_id(), &an_hour()).await.unwrap();
        vm.model.data_disks.iter().map(|disk| disk.lun.get()).collect()
    }

    /// Reads a resource past the broker, so that the read is shared with no other.
    async fn get_alone(&self, resource: &ArmId, until: &Until) -> Result<arm::Read, ArmError> {
        self.compute.arm().get(resource.as_str(), "2025-01-02", &[], Priority::Read, until).await
    }

    fn calls(&self) -> Vec<String> {
        let calls = self.emulator.control().call_log();
        calls.iter().map(|call| serde_json::to_string(call).unwrap()).collect()
    }
}

fn typical() -> Options {
    Options { latency: Profile::typical(), ..Options::default() }
}

/// A disk's whole life, by one method of writing the VM.
async fn life(rig: &Rig, method: VmWriteMethod) {
    for name in ["a", "b"] {
        rig.create(name).await;
    }
    let disk = rig.compute.get_disk(&disk_id("a"), &an_hour()).await.unwrap().model;
    assert_eq!((disk.size, disk.provisioning_state), (Gib::new(10), ProvisioningState::Succeeded));
    rig.write(method, vec![attachment("a", 0)], vec![]).await;
    let disk = rig.compute.get_disk(&disk_id("a"), &an_hour()).await.unwrap().model;
    assert_eq!(disk.managed_by, Some(vm_id()));
    rig.write(method, vec![attachment("b", 1)], vec![disk_id("a").into()]).await;
    assert_eq!(rig.luns().await, [1]);
    rig.write(method, vec![], vec![disk_id("b").into()]).await;
    assert!(rig.luns().await.is_empty());
    let mut grown = rig.compute.resize_disk(&disk_id("a"), Gib::new(20), None, &an_hour()).await.unwrap();
    grown.wait(&an_hour()).await.unwrap();
    let (group, mut ours) = (scenario::RESOURCE_GROUP, 0);
    let take = |disk: Result<ListedDisk, UnreadableDisk>| {
        ours += usize::from([disk_id("a"), disk_id("b")].contains(&disk.unwrap().id));
    };
    rig.compute.list_disks_with(scenario::SUBSCRIPTION, group, &an_hour(), take).await.unwrap();
    assert_eq!(ours, 2);
    for name in ["a", "b", "a"] {
        let mut deleted = rig.compute.delete_disk(&disk_id(name), None, &an_hour()).await.unwrap();
        deleted.settle(&an_hour()).await.unwrap();
    }
    let gone = rig.compute.get_disk(&disk_id("a"), &an_hour()).await.unwrap_err();
    assert_eq!(gone.fault, Fault::NotFound);
}

#[tokio::test(start_paused = true)]
async fn a_disks_life_over_tcp_and_in_process_is_the_same_call_by_call() {
    let mut logs = Vec::new();
    for way in [Way::Tcp, Way::InProcess, Way::InProcess] {
        let rig = rig(way, typical()).await;
        life(&rig, VmWriteMethod::Action).await;
        assert!(rig.compute.arm().median(Kind::VmAttach).is_some());
        logs.push(rig.calls());
        assert!(rig.emulator.control().violations().is_empty());
        rig.emulator.shutdown().await;
    }
    assert_eq!(logs[1], logs[2]);
    assert_eq!(logs[0], logs[1]);
}

#[tokio::test(start_paused = true)]
async fn every_way_of_writing_a_vm_keeps_what_this_client_does_not_know() {
    for method in [VmWriteMethod::Action, VmWriteMethod::WholeList, VmWriteMethod::WholeListByOmission] {
        let options = Options { future_fields: true, nasty_casing: true, ..typical() };
        let rig = rig(Way::InProcess, options).await;
        life(&rig, method).await;
        assert_eq!(rig.emulator.control().violations(), Vec::<String>::new(), "{method:?}");
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_changed_since_it_was_read_is_not_overwritten() {
    let rig = rig(Way::InProcess, typical()).await;
    rig.create("a").await;
    rig.create("b").await;
    let stale = rig.compute.get_vm(&vm_id(), &an_hour()).await.unwrap();
    rig.write(VmWriteMethod::Action, vec![attachment("a", 0)], vec![]).await;
    let write = VmWrite {
        vm: vm_id(),
        attach: vec![attachment("b", 1)],
        detach: vec![],
        force: BTreeSet::new(),
        reapply: vec![],
    };
    let method = VmWriteMethod::WholeList;
    let error = rig.compute.write_vm(&stale, &write, method, Priority::Attach, None, &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::PreconditionFailed);
    assert_eq!(rig.luns().await, [0]);
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_made_up_for_where_that_is_safe_and_told_where_it_is_not() {
    for way in [Way::Tcp, Way::InProcess] {
        let rig = rig(way, typical()).await;
        let lose = |method: &str| -> Incident {
            serde_json::from_value(json!({"match": {"method": method}, "then": {"loseAnswer": "after"}})).unwrap()
        };
        rig.emulator.control().add_incident(lose("PUT")).unwrap();
        rig.create("a").await;
        rig.emulator.control().add_incident(lose("POST")).unwrap();
        let write = VmWrite {
            vm: vm_id(),
            attach: vec![attachment("a", 0)],
            detach: vec![],
            force: BTreeSet::new(),
            reapply: vec![],
        };
        let (vm, method) = (rig.compute.get_vm(&vm_id(), &an_hour()).await.unwrap(), VmWriteMethod::Action);
        let written = rig.compute.write_vm(&vm, &write, method, Priority::Attach, None, &an_hour()).await;
        let error = written.unwrap_err();
        assert_eq!(error.fault, Fault::OutcomeUnknown, "{error}");
        let posts = rig.calls().iter().filter(|call| call.contains("attachDetachDataDisks")).count();
        assert_eq!(posts, 1);
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_machines_own_identity_and_metadata_work_through_the_routes() {
    for way in [Way::Tcp, Way::InProcess] {
        let rig = rig(way, typical()).await;
        rig.create("a").await;
        rig.write(VmWriteMethod::Action, vec![attachment("a", 5)], vec![]).await;
        let identity = ManagedIdentity::ClientId(scenario::IDENTITY_CLIENT_ID.into());
        let compute = client(&rig.transport, Credential::ManagedIdentity(identity));
        let until = Until::within(Duration::from_secs(60));
        assert_eq!(compute.get_vm(&vm_id(), &until).await.unwrap().model.data_disks.len(), 1);
        let instance = Imds::new(rig.transport.clone()).instance().await.unwrap();
        assert_eq!((&instance.resource_id, instance.name.as_str()), (&vm_id(), "node-0"));
        assert_eq!(instance.data_disks[0].source, InstanceDiskSource::Managed(disk_id("a")));
        assert_eq!((instance.data_disks[0].lun.get(), instance.data_disks[0].size), (5, Some(Gib::new(10))));
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_costs_one_repetition_and_a_wrong_secret_is_the_readers_to_mend() {
    let rig = rig(Way::InProcess, typical()).await;
    rig.create("a").await;
    rig.emulator.control().revoke_tokens();
    rig.compute.get_disk(&disk_id("a"), &an_hour()).await.unwrap();
    let wrong = on_emulator::principal(scenario::TENANT, scenario::CLIENT_ID, "no such secret");
    let error = client(&rig.transport, wrong).get_disk(&disk_id("a"), &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Unauthenticated);
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("AADSTS"), "{error:?}");
    rig.emulator.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn the_sizes_of_a_region_are_read_with_what_they_take() {
    let rig = rig(Way::InProcess, typical()).await;
    let sizes = rig.compute.vm_sizes(scenario::SUBSCRIPTION, scenario::LOCATION, &an_hour()).await.unwrap();
    assert!(sizes.len() > 500, "{}", sizes.len());
    for (size, disks) in [("Standard_D8s_v3", 16), ("Standard_B1s", 2)] {
        assert!(sizes.contains(&(size.to_owned(), disks)), "{size}");
    }
}

/// Azure's own time for so many reads that come at once: 250 tokens are there, and 25 come in a second.
#[tokio::test(start_paused = true)]
async fn more_reads_than_azure_has_tokens_take_the_time_of_their_refill_and_none_is_refused() {
    // The front door itself answers for a disk that does not exist, and then reports nothing of its bucket.
    for name in ["a", "not-there"] {
        let mut logs = Vec::new();
        for _ in 0..2 {
            let rig = rig(Way::InProcess, typical()).await;
            if name == "a" {
                rig.create(name).await;
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            let (disk, hour, began) = (disk_id(name), an_hour(), Instant::now());
            let all = futures::future::join_all((0..600).map(|_| rig.get_alone(&disk, &hour))).await;
            assert!(all.iter().all(|disk| disk.is_ok() == (name == "a")));
            assert_eq!(rig.emulator.control().counters().throttled, 0, "{name}");
            let took = began.elapsed().as_secs_f64();
            assert!((13.9..14.3).contains(&took), "{name}: {took}");
            logs.push(rig.calls());
            rig.emulator.shutdown().await;
        }
        assert_eq!(logs[0], logs[1]);
    }
}

/// A machine's own bucket holds 36 reads and gets 12 a minute; the front door has plenty for others meanwhile.
#[tokio::test(start_paused = true)]
async fn reads_of_one_machine_wait_for_its_own_bucket_and_hold_up_no_other_request() {
    let rig = rig(Way::InProcess, typical()).await;
    rig.create("a").await;
    let (hour, began) = (an_hour(), Instant::now());
    let (vm, disk) = (vm_id(), disk_id("a"));
    let machine = futures::future::join_all((0..40).map(|_| rig.get_alone(&vm, &hour)));
    let disks = async {
        let all = futures::future::join_all((0..40).map(|_| rig.get_alone(&disk, &hour))).await;
        (all, began.elapsed())
    };
    let (machine, (disks, took)) = tokio::join!(machine, disks);
    assert!(machine.iter().all(Result::is_ok) && disks.iter().all(Result::is_ok));
    assert!(took < Duration::from_secs(1), "{took:?}");
    let took = began.elapsed().as_secs_f64();
    assert!((19.9..20.5).contains(&took), "{took}");
    assert_eq!(rig.emulator.control().counters().throttled, 0);
    rig.emulator.shutdown().await;
}

/// The reads that reached Azure: single ones and pages of lists, of one resource type.
fn reads(rig: &Rig, resource_type: &str) -> (usize, usize) {
    let calls = rig.emulator.control().call_log();
    let gets = calls.iter().filter(|call| call.method == "GET").map(|call| call.path.to_ascii_lowercase());
    let single = format!("/{resource_type}/").to_ascii_lowercase();
    let list = format!("/{resource_type}").to_ascii_lowercase();
    gets.fold((0, 0), |(singles, lists), path| {
        (singles + usize::from(path.contains(&single)), lists + usize::from(path.ends_with(&list)))
    })
}

/// An Azure with so many disks, `d-000` and so on.
fn with_disks(disks: usize) -> Options {
    let mut options = typical();
    options.scenario.disks = (0..disks)
        .map(|n| {
            serde_json::from_value(json!({ "name": format!("d-{n:03}"), "sizeGib": 32, "sku": "Premium_LRS" })).unwrap()
        })
        .collect();
    options
}

async fn read_all(rig: &Rig, disks: usize) -> Vec<Result<Snapshot<Disk>, ArmError>> {
    let hour = an_hour();
    let hour = &hour;
    let read = (0..disks).map(|n| async move {
        let id = disk_id(&format!("d-{n:03}"));
        rig.compute.read_disk(&id, Freshness::listed(), hour).await
    });
    futures::future::join_all(read).await
}

#[tokio::test(start_paused = true)]
async fn many_reads_at_once_are_one_list_and_readers_of_one_resource_share_one_read() {
    let rig = rig(Way::InProcess, with_disks(160)).await;
    let read = read_all(&rig, 160).await;
    assert!(read.iter().all(|read| read.as_ref().is_ok_and(|read| read.seen.by == By::List)));
    assert_eq!(reads(&rig, "disks"), (0, 1));
    rig.emulator.control().reset_log();
    let hour = an_hour();
    let disk = disk_id("d-001");
    for read in futures::future::join_all((0..50).map(|_| rig.compute.get_disk(&disk, &hour))).await {
        assert_eq!(read.unwrap().seen.by, By::Single);
    }
    assert_eq!(reads(&rig, "disks"), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn what_a_list_lacks_is_read_alone_and_a_refused_list_gives_way_to_single_reads() {
    let rig = rig(Way::InProcess, with_disks(20)).await;
    // Two of these do not exist.
    let read = read_all(&rig, 22).await;
    assert_eq!(read.iter().filter(|read| read.is_ok()).count(), 20);
    assert!(read[20].as_ref().is_err_and(|error| error.fault == Fault::NotFound));
    assert_eq!(reads(&rig, "disks"), (2, 1));

    let refusal = json!({"match": {"path": "*/providers/Microsoft.Compute/disks"}, "then": {"status": 403, "code": "AuthorizationFailed"}, "times": 0});
    rig.emulator.control().add_incident(serde_json::from_value(refusal).unwrap()).unwrap();
    for (expected, rest) in [((20, 1), 60), ((20, 0), 600), ((20, 1), 0)] {
        rig.emulator.control().reset_log();
        let read = read_all(&rig, 20).await;
        assert!(read.iter().all(|read| read.as_ref().is_ok_and(|read| read.seen.by == By::Single)));
        assert_eq!(reads(&rig, "disks"), expected);
        tokio::time::sleep(Duration::from_secs(rest)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_ends_of_many_creations_are_shown_by_lists_however_these_lag() {
    for lag in [false, true] {
        let mut options = typical();
        options.unverified.list_lag = lag;
        let rig = rig(Way::InProcess, options).await;
        let names: Vec<String> = (0..100).map(|n| format!("made-{n:03}")).collect();
        futures::future::join_all(names.iter().map(|name| rig.create(name))).await;
        let counters = rig.emulator.control().counters();
        // Some are polled for their duration, and those of which an old list shows no end.
        let most = if lag { 110 } else { 20 };
        assert!(counters.polls <= most && counters.throttled == 0, "{lag}: {counters:?}");
        for name in &names {
            let read = rig.compute.get_disk(&disk_id(name), &an_hour()).await.unwrap();
            assert_eq!(read.model.provisioning_state, ProvisioningState::Succeeded);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_whose_readers_have_left_leaves_the_queue_and_the_next_reader_gets_its_own() {
    let rig = rig(Way::InProcess, with_disks(2)).await;
    let (disk, hour) = (disk_id("d-000"), an_hour());
    rig.get_alone(&disk, &hour).await.unwrap();
    // The bucket is empty for ten seconds.
    futures::future::join_all((0..500).map(|_| rig.get_alone(&disk, &hour))).await;
    let queued: Vec<_> = (0..300).map(|_| Box::pin(rig.get_alone(&disk, &hour))).collect();
    let mut queued = futures::future::join_all(queued);
    assert!(futures::poll!(&mut queued).is_pending());
    rig.emulator.control().reset_log();
    let other = disk_id("d-001");
    let left = tokio::time::timeout(Duration::from_millis(50), rig.compute.get_disk(&other, &hour)).await;
    assert!(left.is_err());
    let (read, _) = tokio::join!(rig.compute.get_disk(&other, &hour), &mut queued);
    assert_eq!(read.unwrap().model.id, other);
    let of_other = rig.emulator.control().call_log().into_iter().filter(|call| call.path.ends_with("/d-001")).count();
    assert_eq!(of_other, 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_panics_answers_all_who_wait_for_it() {
    let transport = Transport::in_process(
        Routes::none(),
        tower::service_fn(|request: http::Request<http_body_util::Full<bytes::Bytes>>| async move {
            assert!(request.uri().path().contains("token"), "a service that breaks");
            let token = r#"{"token_type":"Bearer","expires_in":3599,"access_token":"t"}"#;
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::<bytes::Bytes>::from(token)))
        }),
    );
    let compute = client(&transport, principal());
    let (disk, hour) = (disk_id("a"), an_hour());
    for read in futures::future::join_all((0..3).map(|_| compute.get_disk(&disk, &hour))).await {
        assert_eq!(read.unwrap_err().fault, Fault::Unavailable);
    }
}
