//! Every decision of a request that makes a managed disk from a page blob: a small state machine.
//!
//! ```text
//!  is the disk there? ─┬─ with the mark ──────────────────────────────────────────────────────────────────────▶ answer
//!                      └─▶ the account ─▶ ┌ look: the blob ─▶ [its machine] ─▶ its footer ─┐
//!                                         │                                                ├─ no disk ─▶ PUT ─▶ look
//!                                         │                                                ├─ the disk, same version ─▶ mark ─▶ answer
//!                                         └────────────────────────────────────────────────┴─ the disk, other version ─▶ DELETE ─▶ ABORTED
//! ```
//!
//! Azure does not say which content of the blob it has read. So the disk names the version of the look before its creation,
//! in a tag, and is answered only when a look after its creation has shown the same version. Then it is marked, before the
//! answer: a disk with the mark belongs to a volume that may be in use, and is answered whatever becomes of the blob. A disk
//! without it was never answered, so that it may be deleted. A process may be killed between any two calls; what the next one
//! needs is in the tag.
//!
//! The source is read and never written. When it is gone, the disk without the mark may be the last copy of its content: it
//! stays, and a person decides.

#[cfg(test)]
mod tests;

use std::{fmt, mem, sync::Arc};

use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmId, BlobUri, Disk, InstanceView, ProvisioningState, StorageAccount, Vm,
    disk_spec::{DiskSpec, ImportVersion, Imported, Mismatch},
    fault::{self, Code, Effect, Fault, Rpc},
    parameter::ParameterError,
};
use lazuli_volume::{
    Adopted, CreatePlan, Defaults, Request,
    import::{Found, ImportSource, check_account, found, plan_import, refused_for},
};

use crate::{
    footer::{Footer, LENGTH},
    life::{self, Blob, Problem},
    source::{self, Holder, NotAtRest, Source, Unfit},
};

/// How often a call looks at the blob. One look before the creation and one after it are enough, unless another hand changes
/// the blob in the middle of a look.
const MOST_LOOKS: u32 = 6;
/// How often a call has the disk made: once, and once more where it was being made by another one.
const MOST_CREATIONS: u32 = 2;

/// What is to be done next. Its answer is the next [`Event`].
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// Read the disk by a read of its own that is sent from now on: [`Event::Disk`].
    ReadDisk(ArmId),
    /// Find the storage account of this name: [`Event::Account`].
    FindAccount {
        /// The subscription.
        subscription: String,
        /// The resource group, where not in all of the subscription.
        group: Option<String>,
        /// The name.
        name: String,
    },
    /// Send this to the blob service: [`Event::Blob`].
    Blob {
        /// The account.
        account: Account,
        /// What.
        call: life::Call,
    },
    /// Read a machine and its instance view by a read of its own: [`Event::Machine`].
    ReadMachine(ArmId),
    /// Have the disk made, or get the one that is there: [`Event::DiskMade`].
    MakeDisk {
        /// The disk.
        disk: ArmId,
        /// What to make.
        spec: Arc<DiskSpec>,
    },
    /// Have the disk marked, if it has this version: [`Event::Done`].
    MarkDisk {
        /// The disk.
        disk: ArmId,
        /// The version.
        version: ImportVersion,
    },
    /// Have the disk deleted: [`Event::Done`].
    DeleteDisk(ArmId),
}

/// A storage account, as calls of the blob service need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Its id.
    pub id: ArmId,
    /// Its region.
    pub location: String,
}

/// What has happened. `E` is a failed call of Azure's resource manager, `B` one of the blob service, `W` a failed request to
/// the task of the disk.
#[derive(Debug, Clone)]
pub enum Event<E, B, W> {
    /// The request has come.
    Begun,
    /// The disk.
    Disk(Result<Box<Disk>, E>),
    /// The storage account; `None` where the subscription, or the resource group, has none of the name.
    Account(Result<Option<Box<StorageAccount>>, E>),
    /// The answer of the blob service.
    Blob(life::Answer<B>),
    /// The machine.
    Machine(Result<Box<(Vm, InstanceView)>, E>),
    /// The disk that was asked for.
    DiskMade(Result<Arc<Disk>, W>),
    /// What was asked for is done.
    Done(Result<(), W>),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next<T> {
    /// This call.
    Call(Call),
    /// Nothing.
    Done(T),
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// The disk.
    pub disk: Arc<Disk>,
    /// What CreateVolume answers.
    pub adopted: Adopted,
}

/// Why a disk is not made.
#[derive(Debug, Clone)]
pub struct Failure<E, B, W> {
    /// What failed.
    pub why: Why<E, B, W>,
    /// Whether a disk may be there that was made for the request and is not answered.
    pub leaves: Effect,
}

/// What failed.
#[derive(Debug, Clone)]
pub enum Why<E, B, W> {
    /// The request cannot be carried out as it is written.
    Parameter(ParameterError),
    /// What is there forbids it.
    Refused(Refusal),
    /// This cannot be read.
    Unreadable(String, E),
    /// The blob service has refused a read of the blob: what a caller may do about it, and its answer if there was one.
    Blob(Fault, Option<B>),
    /// The disk could not be made, marked or deleted: what it may be about, where that is known.
    Work(Option<String>, W),
}

/// What is there forbids the import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// A disk of the name is another one.
    Exists(Mismatch),
    /// The subscription has no such account.
    NoAccount {
        /// The account.
        account: String,
        /// The subscription.
        subscription: String,
    },
    /// There is no such blob.
    NoBlob,
    /// The blob cannot be imported now.
    Unfit(Unfit),
    /// Azure has refused to import a blob whose lease this machine has, in these words.
    Leased(ArmId, String),
    /// The blob has changed since the disk was made of it. The disk is deleted.
    Changed,
    /// The blob changes with every look.
    Unsettled,
    /// This disk is not complete yet.
    NotYet(ArmId),
    /// This disk was made of the blob, and the blob is gone before the two were compared.
    LastCopy(ArmId),
}

impl Refusal {
    /// The gRPC code.
    pub fn code(&self) -> Code {
        match self {
            Self::Exists(_) => Code::AlreadyExists,
            Self::NoAccount { .. } | Self::NoBlob => Code::NotFound,
            Self::Unfit(Unfit::Growing) | Self::NotYet(_) | Self::LastCopy(_) => Code::Unavailable,
            Self::Unfit(_) | Self::Leased(..) => Code::FailedPrecondition,
            Self::Changed | Self::Unsettled => Code::Aborted,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(mismatch) => mismatch.fmt(f),
            Self::NoAccount { account, subscription } => write!(
                f,
                "the subscription {subscription} has no storage account {account} that this driver may see; a blob is imported \
                 from an account of the cluster's subscription"
            ),
            Self::NoBlob => f.write_str("there is no such blob"),
            Self::Unfit(unfit) => unfit.fmt(f),
            Self::Leased(machine, azure) => write!(
                f,
                "Azure does not import the blob while the machine {} has its lease ({azure}); delete the machine, which keeps \
                 its blobs",
                machine.name()
            ),
            Self::Changed => {
                f.write_str("the blob has changed since Azure was asked to read it; the disk is made anew")
            }
            Self::Unsettled => f.write_str("the blob changes with every look; retry when its writer has ended"),
            Self::NotYet(disk) => write!(f, "the disk {disk} is not complete yet"),
            Self::LastCopy(disk) => write!(
                f,
                "the blob is gone before it was compared with the disk {disk}, which was made of it and stays; delete the disk \
                 if it is not needed, or bring the blob back"
            ),
        }
    }
}

impl<E: AzureFailure, B, W: AzureFailure> Failure<E, B, W> {
    /// The gRPC code of CreateVolume.
    pub fn code(&self) -> Code {
        let code = match &self.why {
            Why::Parameter(error) => error.code(),
            Why::Refused(refusal) => refusal.code(),
            Why::Unreadable(_, error) => fault::code(Rpc::CreateVolume, error.fault(), error.effect()),
            Why::Blob(fault, _) => fault::code(Rpc::CreateVolume, fault, Effect::None),
            Why::Work(_, error) => fault::code(Rpc::CreateVolume, error.fault(), error.effect()),
        };
        // The answer about a name is final in any case. After another final code external-provisioner would forget the disk.
        let is_about_the_name = matches!(self.why, Why::Refused(Refusal::Exists(_)));
        if self.leaves == Effect::Possible && !code.keeps_the_claim() && !is_about_the_name {
            Code::Unavailable
        } else {
            code
        }
    }
}

/// A read of a disk that may not exist.
fn there<E: AzureFailure>(read: Result<Box<Disk>, E>) -> Result<Option<Box<Disk>>, E> {
    match read {
        Ok(disk) => Ok(Some(disk)),
        Err(error) if *error.fault() == Fault::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A disk that is made from a page blob.
#[derive(Debug)]
pub struct Import {
    /// The disk, as far as the blob does not matter.
    planned: CreatePlan,
    request: Arc<Request>,
    defaults: Arc<Defaults>,
    blob: BlobUri,
    account: Option<Account>,
    /// The disk by the last read or write of it, if it was made for this request and has no mark.
    disk: Option<Arc<Disk>>,
    /// The machine that holds the lease, by the last look.
    machine: Option<ArmId>,
    looks: u32,
    creations: u32,
    at: At,
}

#[derive(Debug)]
enum At {
    Begin,
    LookingForDisk,
    FindingAccount {
        in_group: bool,
    },
    ReadingBlob,
    ReadingMachine(Look, ArmId),
    ReadingFooter(Look),
    MakingDisk(Box<CreatePlan>),
    MarkingDisk(Box<CreatePlan>),
    /// The disk is read once more before its deletion.
    Confirming(Ended),
    DeletingDisk(Ended),
    Over,
}

/// A blob that a look has found to be fit so far.
#[derive(Debug, Clone)]
struct Look {
    blob: Box<Blob>,
    source: Source,
}

/// Why a disk without the mark is deleted.
#[derive(Debug, Clone)]
enum Ended {
    Parameter(ParameterError),
    Refused(Refusal),
}

impl<E, B, W> From<Ended> for Why<E, B, W> {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Parameter(error) => Self::Parameter(error),
            Ended::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

type Turn<E, B, W> = Result<Next<Made>, Failure<E, B, W>>;

impl Import {
    /// A request that comes now. Its first event is [`Event::Begun`].
    ///
    /// # Errors
    /// The first value of the request that cannot be used, whatever the blob is.
    pub fn new(request: Request, blob: BlobUri, defaults: Defaults) -> Result<Self, ParameterError> {
        let planned = plan_import(&request, &blob, None, &defaults)?;
        Ok(Self {
            planned,
            request: Arc::new(request),
            defaults: Arc::new(defaults),
            blob,
            account: None,
            disk: None,
            machine: None,
            looks: 0,
            creations: 0,
            at: At::Begin,
        })
    }

    /// The disk that is asked for. Its size may be another one by its blob.
    pub fn planned(&self) -> &CreatePlan {
        &self.planned
    }

    /// The blob.
    pub fn blob(&self) -> &BlobUri {
        &self.blob
    }

    /// What follows from an event, which is the answer to the call before.
    pub fn step<E: AzureFailure, B: fmt::Debug, W: AzureFailure>(
        &mut self,
        event: Event<E, B, W>,
    ) -> Next<Result<Made, Failure<E, B, W>>> {
        match self.turn(event) {
            Ok(Next::Call(call)) => Next::Call(call),
            Ok(Next::Done(made)) => Next::Done(Ok(made)),
            Err(failure) => Next::Done(Err(failure)),
        }
    }

    fn turn<E: AzureFailure, B: fmt::Debug, W: AzureFailure>(&mut self, event: Event<E, B, W>) -> Turn<E, B, W> {
        match (mem::replace(&mut self.at, At::Over), event) {
            (At::Begin, Event::Begun) => {
                let call = Call::ReadDisk(self.planned.disk.clone());
                self.go(At::LookingForDisk, call)
            }
            (At::LookingForDisk, Event::Disk(read)) => {
                // An earlier call may have made it.
                let read = there(read).map_err(|error| Failure {
                    why: Why::Unreadable(self.planned.disk.to_string(), error),
                    leaves: Effect::Possible,
                })?;
                if let Some(disk) = read
                    && let Some(made) = self.learn(Arc::new(*disk))?
                {
                    return Ok(Next::Done(made));
                }
                self.find_account(Some(self.defaults.resource_group.clone()))
            }
            // Who has rights on the cluster's resource group alone may not list those of the subscription. What the group
            // does not show, they say.
            (At::FindingAccount { in_group: true }, Event::Account(Ok(None) | Err(_))) => self.find_account(None),
            (At::FindingAccount { .. }, Event::Account(found)) => {
                let name = self.blob.account();
                match found.map_err(|error| self.unreadable(format!("the storage account {name}"), error))? {
                    Some(account) => {
                        if let Err(error) = check_account(&account.id, &self.defaults) {
                            return self.end(Ended::Parameter(error));
                        }
                        self.account = Some(Account { id: account.id, location: account.location });
                        self.look()
                    }
                    None => {
                        let (account, subscription) = (name.to_owned(), self.defaults.subscription.clone());
                        self.gone(Refusal::NoAccount { account, subscription })
                    }
                }
            }
            (At::ReadingBlob, Event::Blob(answer)) => self.blob_read(answer),
            (At::ReadingMachine(look, machine), Event::Machine(read)) => self.machine_read(look, machine, read),
            (At::ReadingFooter(look), Event::Blob(answer)) => self.footer_read(&look, answer),
            (At::MakingDisk(plan), Event::DiskMade(made)) => match made {
                Ok(disk) => match self.learn(disk)? {
                    Some(made) => Ok(Next::Done(made)),
                    None => self.look(),
                },
                Err(error) => self.not_made(&plan, error),
            },
            (At::MarkingDisk(plan), Event::Done(marked)) => match marked {
                Ok(()) => self.done(&plan),
                Err(error) => Err(self.failure(Why::Work(None, error))),
            },
            (At::Confirming(ended), Event::Disk(read)) => self.confirmed(ended, read),
            (At::DeletingDisk(ended), Event::Done(deleted)) => match deleted {
                Ok(()) => {
                    self.disk = None;
                    Err(self.failure(ended.into()))
                }
                Err(error) => Err(self.failure(Why::Work(None, error))),
            },
            // The caller gives each call's answer, so it never comes.
            (at, event) => unreachable!("{at:?} waits for no {event:?}"),
        }
    }

    fn go<E, B, W>(&mut self, at: At, call: Call) -> Turn<E, B, W> {
        self.at = at;
        Ok(Next::Call(call))
    }

    fn find_account<E, B, W>(&mut self, group: Option<String>) -> Turn<E, B, W> {
        let (subscription, name) = (self.defaults.subscription.clone(), self.blob.account().to_owned());
        self.go(At::FindingAccount { in_group: group.is_some() }, Call::FindAccount { subscription, group, name })
    }

    fn failure<E, B, W>(&self, why: Why<E, B, W>) -> Failure<E, B, W> {
        let leaves = if self.disk.is_some() { Effect::Possible } else { Effect::None };
        Failure { why, leaves }
    }

    fn unreadable<E, B, W>(&self, what: String, error: E) -> Failure<E, B, W> {
        self.failure(Why::Unreadable(what, error))
    }

    /// A disk of the name: what is answered, where it has the mark.
    fn learn<E, B, W>(&mut self, disk: Arc<Disk>) -> Result<Option<Made>, Failure<E, B, W>> {
        let known = found(&self.planned.spec, &disk);
        match known.map_err(|mismatch| self.failure(Why::Refused(Refusal::Exists(mismatch))))? {
            Found::Checked => {
                let adopted = self.planned.adopt(&disk);
                let adopted = adopted.map_err(|mismatch| self.failure(Why::Refused(Refusal::Exists(mismatch))))?;
                Ok(Some(Made { disk, adopted }))
            }
            Found::Unchecked => {
                self.disk = Some(disk);
                Ok(None)
            }
        }
    }

    /// Begins a look.
    fn look<E, B, W>(&mut self) -> Turn<E, B, W> {
        self.looks += 1;
        if self.looks > MOST_LOOKS {
            return Err(self.failure(Why::Refused(Refusal::Unsettled)));
        }
        self.machine = None;
        self.ask(At::ReadingBlob, life::Call::ReadBlob)
    }

    fn ask<E, B, W>(&mut self, at: At, call: life::Call) -> Turn<E, B, W> {
        let account = self.account.clone().expect("the account is found before the blob is read");
        self.go(at, Call::Blob { account, call })
    }

    fn blob_read<E, B, W>(&mut self, answer: life::Answer<B>) -> Turn<E, B, W> {
        let blob = match answer {
            life::Answer::Blob(blob) => blob,
            life::Answer::Refused(problem, error) => return self.blob_refused(problem, error),
            _ => return Err(self.failure(Why::Blob(Fault::Malformed, None))),
        };
        let source = match source::check(&blob) {
            Ok(source) => source,
            Err(unfit) => return self.end(Ended::Refused(Refusal::Unfit(unfit))),
        };
        let look = Look { blob, source };
        match &look.source.holder {
            Holder::Nobody => self.read_footer(look),
            Holder::Machine(group, name) => {
                let subscription = self.defaults.subscription.as_str();
                match ArmId::virtual_machine(subscription, group, name) {
                    Ok(machine) => {
                        let call = Call::ReadMachine(machine.clone());
                        self.go(At::ReadingMachine(look, machine), call)
                    }
                    Err(_) => self.end(Ended::Refused(Refusal::Unfit(Unfit::HeldBySomebody))),
                }
            }
            Holder::Unknown => self.end(Ended::Refused(Refusal::Unfit(Unfit::HeldBySomebody))),
        }
    }

    fn machine_read<E: AzureFailure, B, W>(
        &mut self,
        look: Look,
        machine: ArmId,
        read: Result<Box<(Vm, InstanceView)>, E>,
    ) -> Turn<E, B, W> {
        let at_rest = match read {
            Ok(seen) => source::is_at_rest(&seen.0, seen.1, &self.blob),
            Err(error) if error.fault().says_that_it_is_missing() => Err(NotAtRest::Gone),
            Err(error) => return Err(self.unreadable(machine.to_string(), error)),
        };
        match at_rest {
            Ok(()) => {
                self.machine = Some(machine);
                self.read_footer(look)
            }
            Err(why) => self.end(Ended::Refused(Refusal::Unfit(Unfit::Held(machine, why)))),
        }
    }

    fn read_footer<E, B, W>(&mut self, look: Look) -> Turn<E, B, W> {
        let call = life::Call::ReadPage { offset: look.blob.length - LENGTH, if_match: look.blob.etag.clone() };
        self.ask(At::ReadingFooter(look), call)
    }

    fn footer_read<E, B, W>(&mut self, look: &Look, answer: life::Answer<B>) -> Turn<E, B, W> {
        let page = match answer {
            life::Answer::Page(page) => page,
            // It has changed in the middle of the look.
            life::Answer::Refused(Problem::OtherVersion, _) => return self.look(),
            life::Answer::Refused(problem, error) => return self.blob_refused(problem, error),
            _ => return Err(self.failure(Why::Blob(Fault::Malformed, None))),
        };
        match Footer::of_blob(&page, look.blob.length) {
            Ok(_) => self.looked(look),
            Err(defect) => self.end(Ended::Refused(Refusal::Unfit(Unfit::Footer(defect)))),
        }
    }

    fn blob_refused<E, B, W>(&mut self, problem: Problem, error: B) -> Turn<E, B, W> {
        let fault = match problem {
            Problem::NoBlob | Problem::NoContainer => return self.gone(Refusal::NoBlob),
            Problem::NoAccount => {
                let (account, subscription) = (self.blob.account().to_owned(), self.defaults.subscription.clone());
                return self.gone(Refusal::NoAccount { account, subscription });
            }
            Problem::Other(fault) => fault,
            // No write was sent.
            Problem::Lost => Fault::Unavailable,
            Problem::Exists | Problem::OtherVersion | Problem::Leased | Problem::HasSnapshots => Fault::Malformed,
        };
        Err(self.failure(Why::Blob(fault, Some(error))))
    }

    /// The source is gone.
    fn gone<E, B, W>(&self, refusal: Refusal) -> Turn<E, B, W> {
        let why = match &self.disk {
            None => refusal,
            Some(disk) => Refusal::LastCopy(disk.id.clone()),
        };
        Err(self.failure(Why::Refused(why)))
    }

    /// A look has ended, and the blob may be imported as it is.
    fn looked<E, B, W>(&mut self, look: &Look) -> Turn<E, B, W> {
        let account = self.account.clone().expect("the account is found before the blob is read");
        let version = ImportVersion::of(&look.blob.etag.0, look.blob.length);
        let source = ImportSource {
            account: account.id,
            location: account.location,
            bytes: look.source.size,
            version: version.clone(),
        };
        let plan = match plan_import(&self.request, &self.blob, Some(&source), &self.defaults) {
            Ok(plan) => Box::new(plan),
            Err(error) => return self.end(Ended::Parameter(error)),
        };
        let Some(disk) = self.disk.clone() else { return self.make(plan) };
        if Imported::of(&disk).is_none_or(|imported| imported.version != version) {
            return self.end(Ended::Refused(Refusal::Changed));
        }
        if disk.provisioning_state != ProvisioningState::Succeeded {
            return self.make(plan);
        }
        if disk.is_hydrating() {
            return Err(self.failure(Why::Refused(Refusal::NotYet(disk.id.clone()))));
        }
        let call = Call::MarkDisk { disk: disk.id.clone(), version };
        self.go(At::MarkingDisk(plan), call)
    }

    fn make<E, B, W>(&mut self, plan: Box<CreatePlan>) -> Turn<E, B, W> {
        self.creations += 1;
        if self.creations > MOST_CREATIONS {
            return Err(self.failure(Why::Refused(Refusal::NotYet(plan.disk.clone()))));
        }
        let call = Call::MakeDisk { disk: plan.disk.clone(), spec: Arc::new(plan.spec.clone()) };
        self.go(At::MakingDisk(plan), call)
    }

    fn not_made<E, B, W: AzureFailure>(&mut self, plan: &CreatePlan, error: W) -> Turn<E, B, W> {
        let is_refused = error.effect() == Effect::None
            && matches!(error.fault(), Fault::Invalid | Fault::InUse | Fault::Unclear | Fault::Unsupported);
        match &self.machine {
            Some(machine) if is_refused => {
                let azure = if error.code().is_empty() { "it has refused" } else { error.code() };
                let refusal = Refusal::Leased(machine.clone(), azure.to_owned());
                self.end(Ended::Refused(refusal))
            }
            _ => {
                let about = if is_refused { refused_for(&plan.spec) } else { None };
                Err(self.failure(Why::Work(about, error)))
            }
        }
    }

    /// The request has ended without a disk. One that is there without the mark goes first.
    fn end<E, B, W>(&mut self, ended: Ended) -> Turn<E, B, W> {
        match &self.disk {
            None => Err(self.failure(ended.into())),
            Some(disk) => {
                let call = Call::ReadDisk(disk.id.clone());
                self.go(At::Confirming(ended), call)
            }
        }
    }

    /// The disk that is to be deleted, by a read just before. Another process may have gone on meanwhile.
    fn confirmed<E: AzureFailure, B, W>(&mut self, ended: Ended, read: Result<Box<Disk>, E>) -> Turn<E, B, W> {
        let before = self.disk.clone();
        let read = there(read).map_err(|error| self.unreadable(self.planned.disk.to_string(), error))?;
        let Some(disk) = read else {
            self.disk = None;
            return Err(self.failure(ended.into()));
        };
        let is_same = before
            .as_ref()
            .is_some_and(|before| before.unique_id == disk.unique_id && Imported::of(before) == Imported::of(&disk));
        if !is_same || found(&self.planned.spec, &disk) != Ok(Found::Unchecked) {
            return Err(self.failure(Why::Refused(Refusal::Changed)));
        }
        let call = Call::DeleteDisk(disk.id.clone());
        self.go(At::DeletingDisk(ended), call)
    }

    fn done<E, B, W>(&self, plan: &CreatePlan) -> Turn<E, B, W> {
        let disk = self.disk.clone().expect("what is marked was read or made");
        let adopted = plan.adopt(&disk);
        let adopted = adopted.map_err(|mismatch| self.failure(Why::Refused(Refusal::Exists(mismatch))))?;
        Ok(Next::Done(Made { disk, adopted }))
    }
}
