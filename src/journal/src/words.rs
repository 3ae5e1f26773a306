//! The words of records. A record holds the number of a word, so that no text of other programs can get into it.
//!
//! Another word is another line of the table below.

/// What a record is about, as the column in front of it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Kubernetes, a sidecar or another object asks for something.
    Asked,
    /// Something was observed.
    Seen,
    /// This process has decided something, or does it.
    Decided,
    /// Something is waited for.
    Waits,
    /// What was asked has ended.
    Done,
}

impl Group {
    /// The column.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Seen => "seen",
            Self::Decided => "decided",
            Self::Waits => "waits",
            Self::Done => "done",
        }
    }
}

/// How an object stands after a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// Nothing is asked of it that is not done.
    Settled,
    /// Something is asked of it that is not done.
    Waits,
    /// What was asked of it has failed.
    Failed,
}

impl Standing {
    /// The verb behind the name of the object.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Settled => "waits for nothing",
            Self::Waits => "waits",
            Self::Failed => "has failed",
        }
    }
}

/// What a word leaves behind: the standing of its object, and whether something is open between the object and the one
/// that the record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) standing: Option<Standing>,
    pub(crate) is_open: bool,
}

const fn effect(standing: Option<Standing>, is_open: bool) -> Effect {
    Effect { standing, is_open }
}

/// The standing stays.
const SAME: Effect = effect(None, false);
/// The object waits.
const WAITS: Effect = effect(Some(Standing::Waits), false);
/// The object waits for what the record says.
const OPEN: Effect = effect(Some(Standing::Waits), true);
/// What was asked has failed, for the reason that the record says.
const FAILED: Effect = effect(Some(Standing::Failed), true);
/// Nothing is asked of the object any more.
const SETTLED: Effect = effect(Some(Standing::Settled), false);

macro_rules! words {
    ($($name:ident $group:ident $effect:ident $text:literal)*) => {
        /// A word of a record.
        ///
        /// The documentation of each is what is printed. `{key}` is the other object of the record, and `{n}` its number. What is in
        /// brackets is left out where the record lacks that.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Word {
            $(#[doc = $text] $name,)*
        }

        impl Word {
            /// All words.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Whether it is about a request, an observation, a decision, a wait or an end.
            pub const fn group(self) -> Group {
                match self { $(Self::$name => Group::$group,)* }
            }

            pub(crate) const fn effect(self) -> Effect {
                match self { $(Self::$name => $effect,)* }
            }

            /// What is printed, with its placeholders.
            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Whether records of this word in a row are one, whichever object and number each has: many requesters tell an object
            /// the same, and would leave no room for what it does about it.
            pub(crate) const fn folds(self) -> bool {
                matches!(
                    self,
                    Self::Wanted
                        | Self::Withdrawn
                        | Self::TellsDone
                        | Self::TellsWaits
                        | Self::TellsRefused
                        | Self::DiskAttachAsked
                        | Self::DiskDetachAsked
                )
            }

            /// The name of the word, for programs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

words! {
    // Any object.
    Named Seen SAME "another object's record names it"
    Draining Asked SAME "this process ends: nothing new is begun"
    Panicked Done FAILED "a bug of this program has broken the work on it off; what comes next begins with a read"

    // Reads of an object of Azure.
    SeenAlone Seen SAME "a read of it alone shows it"
    SeenInList Seen SAME "a list shows it"
    Absent Seen SAME "a read of it alone says that it does not exist"
    NotListed Seen SAME "a list lacks it"
    NotRead Seen SAME "it cannot be read"
    Stale Seen SAME "another write has changed it: what was read of it does not count any more"
    Suspected Seen SAME "Azure says that something is wrong with it: it is read again"
    InputsChanged Seen SAME "what its plan rests on has changed"

    // Writes of an object of Azure.
    PermitGranted Seen SAME "the permit to write it is granted"
    PermitReturned Decided SAME "needs no permit any more"
    Writes Decided SAME "sends a write[ (number {n})]"
    Accepted Seen SAME "Azure has accepted the write[ (number {n})]; its operation runs"
    StillRuns Seen SAME "the operation still runs"
    Wrote Seen SAME "the write has succeeded[ (number {n})]"
    WriteFailed Seen SAME "the write has failed[ (number {n})]"

    // Other objects want something of an object of Azure.
    Wanted Asked WAITS "{key} wants something of it[ (want {n})]"
    Withdrawn Asked SAME "{key} wants nothing of it any more"
    TellsDone Decided SAME "tells {key} that Azure shows what it wants[ (want {n})]"
    TellsWaits Decided SAME "tells {key} that it must wait[ (want {n})]"
    TellsRefused Decided SAME "tells {key} that it is refused[ (want {n})]"

    // What an object waits for.
    AwaitsNothing Done SETTLED "nothing is left to do"
    AwaitsInformers Waits OPEN "the first complete lists of the cluster's objects, and of what Azure holds"
    AwaitsLease Waits OPEN "the Lease: a process without it, or with little of it left, writes nothing"
    AwaitsRead Waits OPEN "a read[ of {key}]"
    AwaitsPermit Waits OPEN "a permit to write[ {key}]: Azure takes only so many requests"
    AwaitsAnswer Waits OPEN "Azure's answer to a write[ of {key}]"
    AwaitsOperation Waits OPEN "the end of an operation[ on {key}] that Azure has accepted"
    AwaitsOtherOperation Waits OPEN "the end of another writer's operation[ on {key}]"
    AwaitsPause Waits OPEN "the end of a pause[ of {n} s] after a failure"
    AwaitsMoment Waits OPEN "the end of a burst of requests, or the time of the next look"
    AwaitsFreshReads Waits OPEN "reads that show what a late write, or one of the leader before, may still change"
    AwaitsAcceptance Waits OPEN "the operator to accept a plan that removes or replaces something (--accept-plan)"
    AwaitsPlan Waits OPEN "what must come first by its plan"
    AwaitsChange Waits FAILED "a change of what was refused, or of what it rests on"
    AwaitsObjects Waits WAITS "objects of Azure"
    AwaitsPatch Waits OPEN "the API server's answer to a patch"
    AwaitsMembers Waits OPEN "the first backend of a load balancer"
    AwaitsPlaces Waits OPEN "reads of places where it may have parts"
    AwaitsSpec Waits FAILED "a specification without the mistakes that its event names"
    AwaitsEnd Waits OPEN "the end of this process"

    // A Service, or a Node, in Kubernetes.
    Shown Asked SAME "Kubernetes shows it, new or changed"
    Removed Asked SAME "Kubernetes has it no more"
    AddsFinalizer Decided SAME "patches it: adds the finalizer"
    SetsStatus Decided SAME "patches it: sets the addresses of its status"
    ClearsStatus Decided SAME "patches it: removes the addresses of its status"
    RemovesFinalizer Decided SAME "patches it: removes the finalizer"
    Patched Seen SAME "the API server has taken the patch"
    PatchConflict Seen SAME "the API server has not taken the patch: it changed meanwhile, or there was no answer"
    PatchGone Seen SAME "the API server has no such object to patch"

    // A Service and the objects of Azure that it needs.
    Tells Decided OPEN "{key}: is told what it is to have[ (want {n})]"
    Withdraws Decided SAME "{key}: nothing of it is wanted any more"
    ObjectDone Seen SAME "{key}: Azure shows what is wanted[ (want {n})]"
    ObjectWrites Seen OPEN "{key}: waits for the write that serves it[ (want {n})]"
    ObjectOtherOperation Seen OPEN "{key}: waits for another operation on it[ (want {n})]"
    ObjectFreshReads Seen OPEN "{key}: waits for reads that prove what is gone[ (want {n})]"
    ObjectAcceptance Seen OPEN "{key}: waits until the operator accepts a plan that removes or replaces something (--accept-plan)"
    ObjectRetries Seen OPEN "{key}: is tried again[ after {n} s]"
    ObjectFirst Seen OPEN "{key}: something else must come first[ (want {n})]"
    ObjectRefusedByAzure Seen FAILED "{key}: Azure refuses it[ (want {n})]"
    ObjectRefusedByPlan Seen FAILED "{key}: the plan refuses it[ (want {n})]"
    ObjectLost Seen OPEN "{key}: a bug broke the work on it off; it is told again"
    ReportsBeginning Decided SAME "work on what it asks for begins"
    ReportsRemoval Decided SAME "the removal of what it has begins"
    ReportsDone Done SETTLED "all that it asks for exists, and its status says so"
    ReportsDeleted Done SETTLED "everything of it is gone"
    ReportsMistake Decided FAILED "writes an event: its specification is wrong"
    ReportsRefused Decided SAME "writes an event: {key} is refused"
    ReportsRetry Decided SAME "writes an event: {key} cannot be written, and is tried again"
    ReportsHeld Decided SAME "writes an event: {key} waits for the operator"
    ReportsWait Decided SAME "writes an event: it has waited long for {key}"
    ReportsPlaces Decided SAME "writes an event: it may have parts in places that cannot be read"

    // A Node and its machine.
    ReadsMachine Decided SAME "reads its machine"
    ReadsAddresses Decided SAME "reads the addresses of its machine"
    ChecksMachine Decided SAME "reads whether its machine runs"
    MachineRead Seen SAME "its machine was read"
    MachineAbsent Seen SAME "Azure has no machine of its name or provider id"
    MachineNotRead Seen SAME "its machine cannot be read"
    AddressesListed Seen SAME "a list shows the addresses of its machine"
    AddressesNotListed Seen SAME "the lists do not show all addresses of its machine"
    AddressesRead Seen SAME "the addresses of its machine were read"
    AddressesNotRead Seen SAME "the addresses of its machine cannot be read"
    MachineHere Seen SAME "its machine exists"
    MachineGone Seen SAME "its machine does not exist, and another one does"
    MachineUnproved Seen SAME "it is not proved whether its machine exists"
    PatchesNode Decided SAME "patches the Node"
    DeletesNode Decided SAME "deletes the Node"
    NodeDeleted Seen SAME "the API server has deleted the Node"
    AsksBreaker Decided SAME "asks whether so many Nodes may be deleted or tainted now"
    BreakerGrants Seen SAME "it may be deleted or tainted now"
    LeavesBreaker Decided SAME "does not ask that any more"
    WantsRoutes Decided WAITS "tells the route table its routes[ (want {n})]"
    WithdrawsRoutes Decided SAME "tells the route table that it wants no route any more"
    RoutesDone Seen SAME "the route table shows its routes[ (want {n})]"
    RoutesWait Seen WAITS "the route table does not show its routes yet[ (want {n})]"
    RoutesRefused Seen FAILED "its routes are refused[ (want {n})]"
    RoutesLost Seen SAME "a bug broke the work on the route table off; it is told again"
    AwaitsMachine Waits OPEN "a read of its machine"
    AwaitsMetadata Waits OPEN "what its node plugin publishes of the instance metadata"
    AwaitsBreaker Waits OPEN "its turn: more machines than usual are gone or stopped at once"
    AwaitsRoutes Waits OPEN "its routes"
    AwaitsReadiness Waits OPEN "the Node to be Ready, or a proof that its machine is stopped or gone"
    AwaitsProof Waits OPEN "a second proof that its machine is stopped or gone"
    ReportsInitialised Done SAME "the Node is initialised"
    ReportsNoMachine Decided FAILED "reports: no machine of its name or provider id exists; the Node keeps its taint"
    ReportsUnreadable Decided FAILED "reports: its machine cannot be read"
    ReportsNoAddress Decided FAILED "reports: its machine has no address, or not the one that kubelet was given"
    ReportsReaddressed Decided SAME "gives the Node the addresses of its machine"
    ReportsAddressesKept Decided SAME "reports: the Node keeps its addresses"
    ReportsStopped Decided SAME "reports: its machine is stopped; the Node is out of service"
    ReportsGone Decided SAME "reports: its machine does not exist; the Node is deleted"
    ReportsUnproved Decided SAME "reports: the Node is not Ready, and Azure does not say what its machine does"
    ReportsNoPodRange Decided FAILED "reports: the Node has no spec.podCIDR, and one is expected"
    ReportsRouteRefused Decided FAILED "reports: the Node has no route, for its range cannot be routed"
    ReportsRouteKept Decided SAME "reports: its route stays, though it would not be added now"

    // A disk and the virtual machines that it is attached to. Of a VM {key} is the disk.
    CreateAsked Asked OPEN "the creation is requested[ with {n} GiB]"
    DeleteAsked Asked OPEN "the deletion is requested"
    AwaitsAccount Waits OPEN "a storage account that has room for it, or that is made for it"
    PlacedIn Decided SAME "gets its place in {key}"
    AwaitsBlob Waits OPEN "the work on its blob, {key}"
    ExpandAsked Asked OPEN "the expansion[ to {n} GiB] is requested"
    ModifyAsked Asked OPEN "a change of the disk's attributes is requested"
    SnapshotAsked Asked OPEN "a snapshot of {key} is requested"
    AwaitsSnapshot Waits OPEN "Azure, which has not made the snapshot ready yet: external-snapshotter asks again"
    AttachAsked Asked OPEN "the attach to {key} is requested"
    DetachAsked Asked OPEN "the detach[ from {key}] is requested"
    DiskAttachAsked Asked WAITS "the attach of {key} is requested"
    DiskDetachAsked Asked WAITS "the detach of {key} is requested"
    CallerLeft Done FAILED "the caller has gone before the answer, and asks again if it still needs it; a write that was sent goes on"
    VmAlone Seen SAME "a read of {key} alone was used"
    VmInList Seen SAME "a list that shows {key} was used"
    VmNotRead Seen SAME "{key} cannot be read"
    ShownAttached Seen SAME "it is attached to {key}[ at LUN {n}]"
    ShownDetached Seen SAME "{key} does not have it"
    ShownElsewhere Seen SAME "{key} has it"
    PlansAttach Decided SAME "plans the attach to {key}[ at LUN {n}]"
    PlansDetach Decided SAME "plans the detach from {key}"
    PlansForcedDetach Decided SAME "plans the detach from {key} by force: it is proved stopped"
    PlansNoWrite Decided SAME "needs no write: Azure shows what is requested"
    PlansRead Decided SAME "needs another read[ of {key}]"
    PlansAlone Decided SAME "tries it without the others of its batch, one of which makes the write fail"
    AwaitsAttachments Waits OPEN "the cluster's VolumeAttachments: no LUN is given before they are known"
    AwaitsBatch Waits OPEN "its turn, while the disk is searched that makes the write of the batch fail"
    AwaitsBurst Waits OPEN "the end of a burst of requests[ for {key}]"
    AwaitsLateAttach Waits OPEN "an attach of the leader before, which may be under way"
    WritesAction Decided SAME "sends a write[ of {key}] by attachDetachDataDisks[ (number {n})]"
    WritesWholeList Decided SAME "sends a write[ of {key}] with its whole list of data disks[ (number {n})]"
    WritesDisk Decided SAME "sends a write of the disk[ (number {n})]"
    WritesDeletion Decided SAME "sends the deletion of the disk"
    WriteRefused Seen SAME "Azure has refused the write[ of {key}][ with status {n}]"
    OperationFailed Seen SAME "the operation[ on {key}] has failed"
    OperationDone Seen SAME "the operation[ on {key}] has succeeded"
    OutcomeLost Seen SAME "the answer to the write[ of {key}] was lost: it may have happened"
    Answered Done SETTLED "the request is answered: done"
    AnsweredReady Done SETTLED "the request is answered: the snapshot is ready"
    AnsweredLun Done SETTLED "the request is answered: attached[ at LUN {n}]"
    AnsweredFailedSnapshot Done FAILED "the request is answered: Azure has failed to make the snapshot, and it is to be deleted"
    AnsweredFailure Done FAILED "the request is answered with a failure[ (gRPC code {n})]"
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_word_has_a_name_and_a_text_of_its_own_and_no_other_placeholder() {
        let texts: BTreeSet<&str> = Word::ALL.iter().map(|word| word.text()).collect();
        let names: BTreeSet<&str> = Word::ALL.iter().map(|word| word.name()).collect();
        assert_eq!((texts.len(), names.len()), (Word::ALL.len(), Word::ALL.len()));
        for word in Word::ALL {
            let rest = word.text().replace("{key}", "").replace("{n}", "");
            assert!(!rest.contains(['{', '}']) && rest.is_ascii(), "{}", word.name());
            assert_eq!(rest.matches('[').count(), rest.matches(']').count(), "{}", word.name());
        }
    }

    #[test]
    fn what_is_waited_for_leaves_its_object_waiting_or_failed() {
        for word in Word::ALL {
            let Effect { standing, is_open } = word.effect();
            if word.group() == Group::Waits || is_open {
                assert!(matches!(standing, Some(Standing::Waits | Standing::Failed)), "{}", word.name());
            }
        }
    }
}
