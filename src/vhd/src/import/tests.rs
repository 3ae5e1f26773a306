//! What holds for every import, by whichever failures its calls meet, wherever it is given up, and whoever writes to the
//! blob meanwhile.
//!
//! A disk is answered only with the content of one version of the blob. A disk that was answered is never deleted, nor is the
//! last copy of a blob that is gone. A final code leaves no disk. What is left by a call that was given up, another one
//! takes on, and it ends once the blob rests.

use lazuli_model::{
    CachingMode, Completion, DataDisk, DataDiskSource, Gib, Lun, PowerState, SkuName, disk_tags::IMPORTED,
    seeded::Numbers,
};
use lazuli_volume::{Capability, import::mark};

use super::*;
use crate::{lease::Lease, life::ETag};

const SEEDS: u64 = 20_000;
const BYTES: u64 = 3 << 30;
const URI: &str = "https://acct.blob.core.windows.net/vhds/d.vhd";

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault, Effect);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        self.1
    }

    fn code(&self) -> &str {
        ""
    }
}

type Happened = Event<Error, (), Error>;
type Ended = Result<Made, Failure<Error, (), Error>>;

fn defaults() -> Defaults {
    Defaults {
        subscription: "sub".into(),
        resource_group: "rg".into(),
        location: "local".into(),
        ..Defaults::default()
    }
}

fn claim() -> Request {
    Request {
        name: "pvc-1".into(),
        required_bytes: 3 << 30,
        capabilities: vec![Capability::mounted()],
        ..Request::default()
    }
}

fn import() -> Import {
    Import::new(claim(), URI.parse().unwrap(), defaults()).unwrap()
}

fn machine() -> ArmId {
    ArmId::virtual_machine("sub", "rg", "vm").unwrap()
}

/// A managed disk of the simulated Azure.
#[derive(Debug, Clone)]
struct There {
    disk: Disk,
    /// The versions of the blob that Azure has read.
    content: [u32; 2],
    was_answered: bool,
}

/// A simulated Azure.
#[derive(Debug, Clone)]
struct Azure {
    /// The version of the blob; `None` where it is gone.
    blob: Option<u32>,
    lease: Lease,
    metadata: life::Metadata,
    power: PowerState,
    has_account: bool,
    account_group: &'static str,
    /// Whether this identity may not list the accounts of the subscription.
    hides_subscription: bool,
    there: Option<There>,
    versions: u32,
    made: u32,
    /// One call of so many fails, and between two calls the blob changes as often.
    fails: u64,
    writes: u64,
    refuses_leased: bool,
    fills: bool,
}

impl Azure {
    fn new() -> Self {
        Self {
            blob: Some(1),
            lease: Lease::Free,
            metadata: life::Metadata::new(),
            power: PowerState::Deallocated,
            has_account: true,
            account_group: "elsewhere",
            hides_subscription: false,
            there: None,
            versions: 1,
            made: 0,
            fails: 0,
            writes: 0,
            refuses_leased: false,
            fills: false,
        }
    }

    fn attached(power: PowerState) -> Self {
        let metadata = [("microsoftazurecompute_resourcegroupname", "rg"), ("microsoftazurecompute_vmname", "vm")];
        let metadata = metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Self { lease: Lease::Held, metadata, power, ..Self::new() }
    }

    fn change(&mut self) {
        self.versions += 1;
        self.blob = self.blob.map(|_| self.versions);
    }

    /// Another writer may come.
    fn maybe_change(&mut self, numbers: &mut Numbers) {
        if self.writes > 0 && numbers.one_in(self.writes) {
            self.change();
        }
    }

    /// A failure of a call, before its effect or after it.
    fn failure(&self, numbers: &mut Numbers) -> Option<(Error, bool)> {
        if self.fails == 0 || !numbers.one_in(self.fails) {
            return None;
        }
        Some(match numbers.below(4) {
            0 => (Error(Fault::Throttled { retry_after: None }, Effect::None), false),
            1 => (Error(Fault::OutcomeUnknown, Effect::Possible), true),
            2 => (Error(Fault::OutcomeUnknown, Effect::Possible), false),
            _ => (Error(Fault::Forbidden, Effect::None), false),
        })
    }

    fn length() -> u64 {
        BYTES + LENGTH
    }

    fn carry(&mut self, call: Call, numbers: &mut Numbers) -> Happened {
        self.maybe_change(numbers);
        let failure = self.failure(numbers);
        let read_error = failure.clone().map(|(Error(fault, _), _)| match fault {
            Fault::OutcomeUnknown => Error(Fault::Unavailable, Effect::None),
            fault => Error(fault, Effect::None),
        });
        match call {
            Call::ReadDisk(_) => Event::Disk(match (read_error, &self.there) {
                (Some(error), _) => Err(error),
                (None, Some(there)) => Ok(Box::new(there.disk.clone())),
                (None, None) => Err(Error(Fault::NotFound, Effect::None)),
            }),
            Call::FindAccount { subscription, group, name } => {
                assert_eq!((subscription.as_str(), name.as_str()), ("sub", "acct"));
                if group.is_none() && self.hides_subscription {
                    return Event::Account(Err(Error(Fault::Forbidden, Effect::None)));
                }
                let id = ArmId::storage_account("sub", self.account_group, "acct").unwrap();
                let is_shown = self.has_account && group.is_none_or(|group| group == self.account_group);
                let account = StorageAccount { id, ..StorageAccount::general_purpose("acct") };
                let found = is_shown.then(|| Box::new(account));
                Event::Account(read_error.map_or(Ok(found), Err))
            }
            Call::Blob { call, .. } => Event::Blob(match read_error {
                Some(Error(fault, _)) => life::Answer::Refused(Problem::Other(fault), ()),
                None => self.answer(&call),
            }),
            Call::ReadMachine(id) => {
                assert_eq!(id, machine());
                let view = InstanceView { provisioning_state: ProvisioningState::Succeeded, power: Some(self.power) };
                Event::Machine(read_error.map_or_else(|| Ok(Box::new((vm(), view))), Err))
            }
            Call::MakeDisk { disk, spec } => Event::DiskMade(self.make(&disk, &spec, failure, numbers)),
            Call::MarkDisk { version, .. } => Event::Done(self.written(failure, |azure| {
                let Some(there) = &mut azure.there else { return Err(Error(Fault::NotFound, Effect::None)) };
                let Some(change) = mark(&there.disk, &version) else {
                    return Err(Error(Fault::Conflict, Effect::None));
                };
                if let Some(tags) = change.tags {
                    there.disk.tags = tags;
                }
                Ok(())
            })),
            Call::DeleteDisk(_) => {
                let is_sacred = self.there.as_ref().is_some_and(|there| there.was_answered);
                assert!(!is_sacred, "a disk that was answered is deleted");
                assert!(self.blob.is_some() && self.has_account, "the last copy is deleted");
                Event::Done(self.written(failure, |azure| {
                    azure.there = None;
                    Ok(())
                }))
            }
        }
    }

    fn written(
        &mut self,
        failure: Option<(Error, bool)>,
        write: impl FnOnce(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match failure {
            Some((error, true)) => {
                write(self)?;
                Err(error)
            }
            Some((error, false)) => Err(error),
            None => write(self),
        }
    }

    fn answer(&self, call: &life::Call) -> life::Answer<()> {
        let Some(version) = self.blob else { return life::Answer::Refused(Problem::NoBlob, ()) };
        let etag = ETag(format!("\"{version}\""));
        match call {
            life::Call::ReadBlob => life::Answer::Blob(Box::new(Blob {
                etag,
                length: Self::length(),
                is_page_blob: true,
                lease: self.lease,
                metadata: self.metadata.clone(),
            })),
            life::Call::ReadPage { offset, if_match } => {
                assert_eq!(*offset, BYTES);
                if *if_match != etag {
                    return life::Answer::Refused(Problem::OtherVersion, ());
                }
                life::Answer::Page(Box::new(Footer::new(BYTES, [0; 16], 0).to_page()))
            }
            other => panic!("an import sends {other:?}"),
        }
    }

    fn make(
        &mut self,
        id: &ArmId,
        spec: &DiskSpec,
        failure: Option<(Error, bool)>,
        numbers: &mut Numbers,
    ) -> Result<Arc<Disk>, Error> {
        if let Some((error, false)) = &failure {
            return Err(error.clone());
        }
        if self.there.is_none() {
            if self.refuses_leased && self.lease == Lease::Held {
                return Err(Error(Fault::Unclear, Effect::None));
            }
            let Some(first) = self.blob else { return Err(Error(Fault::Invalid, Effect::None)) };
            self.maybe_change(numbers);
            let content = [first, self.blob.unwrap_or(first)];
            self.made += 1;
            let disk = Disk {
                sku: Some(spec.sku),
                size: spec.size,
                tags: spec.tags.clone(),
                source: Some(URI.into()),
                unique_id: Some(format!("u-{}", self.made)),
                completion: self.fills.then(|| Completion::from_percent(50.0)),
                ..Disk::plain(id.clone(), spec.location.clone())
            };
            self.there = Some(There { disk, content, was_answered: false });
        }
        self.maybe_change(numbers);
        match failure {
            Some((error, _)) => Err(error),
            None => Ok(Arc::new(self.there.as_ref().expect("it was made").disk.clone())),
        }
    }

    /// A call of external-provisioner: to its end, or until its process is killed.
    fn call(&mut self, numbers: &mut Numbers, kills: u64) -> Option<Ended> {
        let mut import = import();
        let mut event = Event::Begun;
        for _ in 0..60 {
            match import.step(event) {
                Next::Done(ended) => {
                    self.check(&ended);
                    return Some(ended);
                }
                Next::Call(_) if kills > 0 && numbers.one_in(kills) => return None,
                Next::Call(call) => event = self.carry(call, numbers),
            }
        }
        panic!("a call does not end");
    }

    fn check(&mut self, ended: &Ended) {
        match ended {
            Ok(made) => {
                let there = self.there.as_mut().expect("what is answered is there");
                assert_eq!(there.disk.unique_id, made.disk.unique_id);
                let [first, last] = there.content;
                assert_eq!(first, last, "a disk of two versions is answered");
                let tag = &there.disk.tags[IMPORTED];
                assert_eq!(*tag, format!("{first} {} checked", Self::length()));
                there.was_answered = true;
            }
            Err(failure) if !failure.code().keeps_the_claim() => {
                let left = self.there.as_ref().filter(|there| !there.was_answered);
                assert!(left.is_none(), "{failure:?} leaves a disk");
            }
            Err(_) => {}
        }
    }
}

fn vm() -> Vm {
    Vm {
        id: machine(),
        location: "local".into(),
        size: "Standard_D2s_v5".into(),
        zone: None,
        computer_name: None,
        provisioning_state: ProvisioningState::Succeeded,
        etag: None,
        system_disk: lazuli_model::SystemDisk::Blob,
        data_disks: vec![DataDisk {
            lun: Lun::try_from(0).unwrap(),
            source: DataDiskSource::Disk(URI.parse().unwrap()),
            caching: CachingMode::None,
            to_be_detached: false,
        }],
    }
}

fn numbers() -> Numbers {
    Numbers::new(1)
}

fn refusal(ended: Option<Ended>) -> (Code, Refusal) {
    match ended.unwrap() {
        Err(failure) => match (failure.code(), failure.why) {
            (code, Why::Refused(refusal)) => (code, refusal),
            (code, why) => panic!("{code:?} {why:?}"),
        },
        Ok(made) => panic!("{made:?}"),
    }
}

#[test]
fn whatever_fails_and_whoever_writes_an_import_ends_with_the_content_of_one_version() {
    for seed in 0..SEEDS {
        let numbers = &mut Numbers::new(seed);
        let mut azure = match numbers.below(4) {
            0 => Azure::attached(PowerState::Other),
            1 => Azure::attached(PowerState::Deallocated),
            _ => Azure::new(),
        };
        (azure.fails, azure.writes) = (3 + numbers.below(6), 3 + numbers.below(12));
        azure.refuses_leased = numbers.one_in(2);
        let kills = 3 + numbers.below(8);
        for _ in 0..numbers.below(8) {
            azure.call(numbers, kills);
            if numbers.one_in(6) {
                // The machine is started or deallocated, or lets the disk go.
                azure.power = if numbers.one_in(2) { PowerState::Other } else { PowerState::Deallocated };
                azure.lease = if numbers.one_in(2) { Lease::Free } else { azure.lease };
            }
        }
        // All rests, and the machine is switched off.
        (azure.fails, azure.writes, azure.power, azure.refuses_leased) = (0, 0, PowerState::Deallocated, false);
        let ends = (0..3).find_map(|_| azure.call(numbers, 0).and_then(Result::ok));
        assert!(ends.is_some(), "seed {seed}: {azure:?}");
        assert!(azure.there.as_ref().is_some_and(|there| there.was_answered));
        // What was answered stays, whatever becomes of the blob.
        (azure.blob, azure.has_account) = (None, false);
        azure.call(numbers, 0).unwrap().unwrap();
    }
}

#[test]
fn a_free_blob_is_looked_at_before_and_after_and_the_disk_is_marked() {
    let (mut azure, mut import, mut event) = (Azure::new(), import(), Event::Begun);
    let mut calls = Vec::new();
    let made = loop {
        match import.step(event) {
            Next::Done(made) => break made.unwrap(),
            Next::Call(call) => {
                let text = format!("{call:?}");
                calls.push(text.split([' ', '(']).next().unwrap().to_owned());
                event = azure.carry(call, &mut numbers());
            }
        }
    };
    let expected = ["ReadDisk", "FindAccount", "FindAccount", "Blob", "Blob", "MakeDisk", "Blob", "Blob", "MarkDisk"];
    assert_eq!(calls, expected);
    assert_eq!((made.adopted.size, made.disk.sku), (Gib::new(3), Some(SkuName::StandardSsdLrs)));
}

#[test]
fn an_account_of_the_cluster_s_group_is_found_without_rights_on_the_subscription_and_no_other_is() {
    let hidden = || Azure { hides_subscription: true, ..Azure::new() };
    Azure { account_group: "rg", ..hidden() }.call(&mut numbers(), 0).unwrap().unwrap();
    for mut azure in [hidden(), Azure { has_account: false, account_group: "rg", ..hidden() }] {
        let failed = azure.call(&mut numbers(), 0).unwrap().unwrap_err();
        assert!(matches!(failed.why, Why::Unreadable(_, Error(Fault::Forbidden, _))), "{failed:?}");
    }
}

#[test]
fn a_lease_forbids_nothing_where_its_machine_is_deallocated_and_all_where_it_is_not() {
    Azure::attached(PowerState::Deallocated).call(&mut numbers(), 0).unwrap().unwrap();
    for power in [PowerState::Stopped, PowerState::Other] {
        let mut azure = Azure::attached(power);
        let (code, refused) = refusal(azure.call(&mut numbers(), 0));
        assert_eq!(
            (code, refused),
            (Code::FailedPrecondition, Refusal::Unfit(Unfit::Held(machine(), NotAtRest::Runs)))
        );
        assert_eq!(azure.made, 0);
    }
    let mut nameless = Azure { lease: Lease::Held, ..Azure::new() };
    assert_eq!(refusal(nameless.call(&mut numbers(), 0)).0, Code::FailedPrecondition);
    let mut strict = Azure { refuses_leased: true, ..Azure::attached(PowerState::Deallocated) };
    let (code, refused) = refusal(strict.call(&mut numbers(), 0));
    assert_eq!(code, Code::FailedPrecondition);
    assert!(refused.to_string().contains("delete the machine, which keeps its blobs"), "{refused}");
}

#[test]
fn a_blob_of_an_account_in_a_group_that_is_not_allowed_is_not_read() {
    let allowed = lazuli_volume::AllowedResourceGroups::of(vec!["third".parse().unwrap()]);
    let defaults = Defaults { allowed_resource_groups: allowed, ..defaults() };
    let mut import = Import::new(claim(), URI.parse().unwrap(), defaults).unwrap();
    let (mut azure, mut event) = (Azure::new(), Event::Begun);
    let ended = loop {
        match import.step(event) {
            Next::Done(ended) => break ended,
            Next::Call(call) => {
                assert!(!matches!(call, Call::Blob { .. }));
                event = azure.carry(call, &mut numbers());
            }
        }
    };
    assert_eq!(ended.unwrap_err().code(), Code::InvalidArgument);
}

/// The state that a process leaves that is killed when Azure has made the disk.
fn killed_after_creation() -> Azure {
    let (mut azure, mut import, mut event) = (Azure::new(), import(), Event::Begun);
    while azure.there.is_none() {
        let Next::Call(call) = import.step(event) else { panic!("it ends before the disk is made") };
        event = azure.carry(call, &mut numbers());
    }
    azure
}

#[test]
fn what_a_killed_process_has_made_is_taken_on_by_its_version() {
    let mut azure = killed_after_creation();
    azure.call(&mut numbers(), 0).unwrap().unwrap();
    assert_eq!(azure.made, 1);

    let mut azure = killed_after_creation();
    azure.change();
    assert_eq!(refusal(azure.call(&mut numbers(), 0)), (Code::Aborted, Refusal::Changed));
    assert!(azure.there.is_none());
    azure.call(&mut numbers(), 0).unwrap().unwrap();
    assert_eq!(azure.made, 2);

    // A machine has it now: what it was made of may be half of what the machine has written.
    let mut azure = Azure { there: killed_after_creation().there, ..Azure::attached(PowerState::Other) };
    assert_eq!(refusal(azure.call(&mut numbers(), 0)).0, Code::FailedPrecondition);
    assert!(azure.there.is_none());
}

#[test]
fn the_last_copy_of_a_blob_that_is_gone_stays() {
    for has_account in [true, false] {
        let mut azure = Azure { blob: None, has_account, ..killed_after_creation() };
        let (code, refused) = refusal(azure.call(&mut numbers(), 0));
        assert_eq!(code, Code::Unavailable);
        assert!(matches!(refused, Refusal::LastCopy(_)));
        assert!(azure.there.is_some());
        let mut azure = Azure { there: None, ..azure };
        assert_eq!(refusal(azure.call(&mut numbers(), 0)).0, Code::NotFound);
    }
}

#[test]
fn a_disk_that_is_being_filled_is_not_compared_yet() {
    let mut azure = Azure { fills: true, ..Azure::new() };
    assert_eq!(refusal(azure.call(&mut numbers(), 0)).0, Code::Unavailable);
    azure.there.as_mut().unwrap().disk.completion = Some(Completion::COMPLETE);
    azure.call(&mut numbers(), 0).unwrap().unwrap();
}

#[test]
fn a_disk_of_the_name_that_is_another_one_is_never_touched() {
    for change in [
        (|disk: &mut Disk| disk.source = None) as fn(&mut Disk),
        |disk| disk.source = Some("https://acct.blob.core.windows.net/vhds/other.vhd".into()),
        |disk| drop(disk.tags.remove(IMPORTED)),
        |disk| drop(disk.tags.insert("lazuli-request".into(), "pvc-2".into())),
    ] {
        let mut azure = killed_after_creation();
        let there = azure.there.as_mut().unwrap();
        change(&mut there.disk);
        there.was_answered = true;
        assert_eq!(refusal(azure.call(&mut numbers(), 0)).0, Code::AlreadyExists);
    }
}

#[test]
fn a_disk_that_another_process_has_marked_or_made_meanwhile_is_not_deleted() {
    let changes: [fn(&mut Disk); 2] = [
        |disk| {
            let version = Imported::of(disk).unwrap().version;
            disk.tags = mark(disk, &version).unwrap().tags.unwrap();
        },
        |disk| disk.unique_id = Some("another".into()),
    ];
    for change in changes {
        let mut azure = killed_after_creation();
        azure.change();
        let (mut import, mut event, mut reads) = (import(), Event::Begun, 0);
        let ended = loop {
            match import.step(event) {
                Next::Done(ended) => break ended,
                Next::Call(call) => {
                    if matches!(call, Call::ReadDisk(_)) {
                        reads += 1;
                        if reads == 2 {
                            let there = azure.there.as_mut().unwrap();
                            change(&mut there.disk);
                            there.was_answered = true;
                        }
                    }
                    event = azure.carry(call, &mut numbers());
                }
            }
        };
        assert_eq!(ended.unwrap_err().code(), Code::Aborted);
        assert!(azure.there.is_some());
    }
}
