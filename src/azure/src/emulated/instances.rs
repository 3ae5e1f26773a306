//! Instances of uniform scale sets, which share the list of their set.

use lazuli_emulator::scenario::ScaleSet;

use super::*;

fn set_path(set: &str) -> String {
    let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/virtualMachineScaleSets/{set}"
    )
}

fn instance(set: &str, number: u32) -> ArmId {
    format!("{}/virtualMachines/{number}", set_path(set)).parse().unwrap()
}

/// An Azure with two scale sets of forty instances each, and a disk `d-000` and so on for each of the first set.
fn with_sets() -> Options {
    let mut options = with_disks(40);
    options.scenario.scale_sets = vec![ScaleSet::uniform("blue", 40), ScaleSet::uniform("green", 40)];
    options
}

fn all(set: &str) -> Vec<ArmId> {
    (0..40).map(|number| instance(set, number)).collect()
}

async fn read(rig: &Rig, instances: &[ArmId]) -> Vec<Result<Snapshot<Vm>, ArmError>> {
    let hour = &an_hour();
    let read = instances.iter().map(|id| rig.compute.read_vm(id, Freshness::listed(), hour));
    futures::future::join_all(read).await
}

/// Attaches a disk to each instance, or detaches it, all at once, by what a read shows that may be a list.
async fn write(rig: &Rig, attached: bool) {
    let (instances, hour) = (all("blue"), &an_hour());
    let machines = read(rig, &instances).await;
    let written = machines.into_iter().enumerate().map(|(n, machine)| async move {
        let (machine, name) = (machine.unwrap(), format!("d-{n:03}"));
        let vm = machine.model.id.clone();
        let permit = rig.compute.permit_vm_write(&vm, Priority::Attach, hour).await.unwrap();
        let (attach, detach) = match attached {
            true => (vec![attachment(&name, 3)], vec![]),
            false => (vec![], vec![disk_id(&name).into()]),
        };
        let write = VmWrite { vm, attach, detach, force: BTreeSet::new(), reapply: vec![] };
        let method = VmWriteMethod::Action;
        let written = rig.compute.write_vm(&machine, &write, method, Priority::Attach, Some(permit), hour).await;
        written.unwrap().wait(hour).await.unwrap();
    });
    futures::future::join_all(written).await;
}

#[tokio::test(start_paused = true)]
async fn many_reads_of_instances_are_one_list_of_their_set_and_one_read_is_single() {
    let rig = rig(Way::InProcess, with_sets()).await;
    let alone = read(&rig, &[instance("blue", 7)]).await;
    assert!(alone[0].as_ref().is_ok_and(|read| read.seen.by == By::Single));
    rig.emulator.control().reset_log();
    // Both sets have instances of the same numbers, and Azure spells ids in any letter case.
    let mut instances: Vec<ArmId> = all("blue").into_iter().chain(all("green")).collect();
    instances.push(instance("BLUE", 7));
    for (id, read) in instances.iter().zip(read(&rig, &instances).await) {
        let read = read.unwrap();
        assert_eq!((&read.model.id, read.seen.by), (id, By::List));
    }
    let lists: Vec<String> = gets(&rig);
    let list = |set: &str| format!("{}/virtualMachines", set_path(set)).to_ascii_lowercase();
    assert_eq!(lists, [list("blue"), list("green")]);
    rig.emulator.shutdown().await;
}

/// The paths of all GETs but polls, in lower case.
fn gets(rig: &Rig) -> Vec<String> {
    let calls = rig.emulator.control().call_log();
    let gets = calls.iter().filter(|call| call.method == "GET").map(|call| call.path.to_ascii_lowercase());
    gets.filter(|path| path.contains("/virtualmachinescalesets/")).collect()
}

#[tokio::test(start_paused = true)]
async fn what_many_writes_of_instances_did_is_read_by_few_requests_however_lists_lag() {
    for lag in [false, true] {
        let mut options = with_sets();
        options.unverified.list_lag = lag;
        let rig = rig(Way::InProcess, options).await;
        for attached in [true, false] {
            rig.emulator.control().reset_log();
            write(&rig, attached).await;
            let lists = gets(&rig).len();
            let counters = rig.emulator.control().counters();
            assert!(lists <= 20 && counters.throttled == 0, "{lag}: {lists} {counters:?}");
            for (n, id) in all("blue").iter().enumerate() {
                let machine = rig.compute.get_vm(id, &an_hour()).await.unwrap().model;
                assert_eq!(machine.data_disk(&disk_id(&format!("d-{n:03}")).into()).is_some(), attached, "{lag} {id}");
            }
        }
        rig.emulator.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_a_deleted_sets_instances_get_what_azure_says_of_each() {
    let rig = rig(Way::InProcess, with_sets()).await;
    let instances: Vec<ArmId> = (0..20).map(|number| instance("never", number)).collect();
    let alone = rig.compute.get_vm(&instances[0], &an_hour()).await.unwrap_err();
    rig.emulator.control().reset_log();
    for read in read(&rig, &instances).await {
        let error = read.unwrap_err();
        assert_eq!((&error.fault, &error.code), (&alone.fault, &alone.code), "{error}");
    }
    // The list once, and then each instance.
    assert_eq!(gets(&rig).len(), 21);
    // The other sets have lists of their own.
    let others = read(&rig, &all("green")).await;
    assert!(others.iter().all(|read| read.as_ref().is_ok_and(|read| read.seen.by == By::List)));
    rig.emulator.shutdown().await;
}

/// Azure documents the etag of an instance for the answer to its read alone.
#[tokio::test(start_paused = true)]
async fn a_write_of_the_whole_list_of_disks_takes_no_instance_of_a_list() {
    let rig = rig(Way::InProcess, with_sets()).await;
    let machine = read(&rig, &all("blue")).await.swap_remove(0).unwrap();
    let vm = machine.model.id.clone();
    let write =
        VmWrite { vm, attach: vec![attachment("d-000", 0)], detach: vec![], force: BTreeSet::new(), reapply: vec![] };
    let method = VmWriteMethod::WholeList;
    let error = rig.compute.write_vm(&machine, &write, method, Priority::Attach, None, &an_hour()).await.unwrap_err();
    assert_eq!(error.fault, Fault::Malformed);
    rig.emulator.shutdown().await;
}

/// The list of a scale set's instances has a limit of its own: thirty, and ten more a minute.
#[tokio::test(start_paused = true)]
async fn when_the_limit_of_a_sets_list_is_reached_its_instances_are_read_alone_and_nothing_waits() {
    let rig = rig(Way::InProcess, with_sets()).await;
    let (instances, mut by_list) = (all("blue"), Vec::new());
    for _ in 0..40 {
        let began = Instant::now();
        let read = read(&rig, &instances).await;
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
        by_list.push(read.into_iter().all(|read| read.unwrap().seen.by == By::List));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let (lists, singles) = (by_list.iter().filter(|listed| **listed).count(), by_list.len());
    assert!((30..38).contains(&lists) && lists < singles, "{by_list:?}");
    assert_eq!(rig.emulator.control().counters().throttled, 0);
    rig.emulator.shutdown().await;
}
