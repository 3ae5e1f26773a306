//! What the journal notes of Services and Nodes: their events and actions as words.

use lazuli_balancing::{Balanced, Key, Report};
use lazuli_engine::{
    Outcome, Refusal, Waiting,
    service::{Action, Event, Patch, PatchFault, Reason},
};
use lazuli_journal::{Key as JournalKey, Note, Subject, Word};
use lazuli_model::fault::Fault;
use lazuli_nodes::cloud_node::step;

/// An object of a Service in the journal.
fn object(key: &Key) -> JournalKey<'_> {
    let subject = match key {
        Key::PublicIp(_) => Subject::PublicIp,
        Key::LoadBalancer(_) => Subject::LoadBalancer,
        Key::SecurityGroup(_) => Subject::SecurityGroup,
        Key::PrivateLink(_) => Subject::PrivateLink,
        Key::Subnet(_) => Subject::Subnet,
    };
    JournalKey::new(subject, key.id().as_str())
}

pub(crate) fn of_service_event(event: &Event<Balanced>) -> Option<Note<'_>> {
    Some(match event {
        Event::Changed(_) => Word::Shown.into(),
        Event::Removed => Word::Removed.into(),
        Event::Told { key, generation, outcome } => of_outcome(outcome, *generation).about(object(key)),
        Event::Lost(key) => Word::ObjectLost.about(object(key)),
        Event::Patched { result, .. } => match result {
            Ok(_) => Word::Patched,
            Err(PatchFault::Again) => Word::PatchConflict,
            Err(PatchFault::Gone) => Word::PatchGone,
        }
        .into(),
        Event::EnvChanged => Word::InputsChanged.into(),
        Event::Drain => Word::Draining.into(),
        Event::Woke => return None,
    })
}

fn of_outcome(outcome: &Outcome<Report>, generation: u64) -> Note<'static> {
    let word = match outcome {
        Outcome::Done(_) => Word::ObjectDone,
        Outcome::Waiting(waiting) => return of_waiting(waiting, generation),
        Outcome::Refused(Refusal::Azure(fault)) => {
            return Word::ObjectRefusedByAzure.number(generation).fault(fault);
        }
        Outcome::Refused(Refusal::Plan(why)) => {
            return Word::ObjectRefusedByPlan.number(generation).because(why.reason);
        }
    };
    word.number(generation)
}

fn of_waiting(waiting: &Waiting, generation: u64) -> Note<'static> {
    match waiting {
        Waiting::OtherOperation => Word::ObjectOtherOperation.number(generation),
        Waiting::Write => Word::ObjectWrites.number(generation),
        Waiting::FreshReads => Word::ObjectFreshReads.number(generation),
        Waiting::Acceptance => Word::ObjectAcceptance.into(),
        Waiting::Retry(fault) => match fault {
            Fault::Throttled { retry_after: Some(after) } => Word::ObjectRetries.number(after.as_secs()).fault(fault),
            _ => Word::ObjectRetries.fault(fault),
        },
        Waiting::Plan(_) => Word::ObjectFirst.number(generation),
    }
}

pub(crate) fn of_service_action(action: &Action<Balanced>) -> Option<Note<'_>> {
    Some(match action {
        Action::Tell { key, generation, .. } => Word::Tells.about(object(key)).number(*generation),
        Action::Withdraw(key) => Word::Withdraws.about(object(key)),
        Action::Patch { patch, .. } => match patch {
            Patch::AddFinalizer => Word::AddsFinalizer,
            Patch::SetStatus(_) => Word::SetsStatus,
            Patch::ClearStatus => Word::ClearsStatus,
            Patch::RemoveFinalizer => Word::RemovesFinalizer,
        }
        .into(),
        Action::Report(reason) => of_reason(reason),
        Action::Drained => return None,
    })
}

fn of_reason(reason: &Reason<Key>) -> Note<'_> {
    match reason {
        Reason::Ensuring => Word::ReportsBeginning.into(),
        Reason::Ensured | Reason::Unchanged => Word::ReportsDone.into(),
        Reason::Deleting => Word::ReportsRemoval.into(),
        Reason::Deleted => Word::ReportsDeleted.into(),
        Reason::Invalid(_) => Word::ReportsMistake.into(),
        Reason::Refused(key, Refusal::Azure(fault)) => Word::ReportsRefused.about(object(key)).fault(fault),
        Reason::Refused(key, Refusal::Plan(why)) => Word::ReportsRefused.about(object(key)).because(why.reason),
        Reason::Retry(key, fault) => Word::ReportsRetry.about(object(key)).fault(fault),
        Reason::Held(key) => Word::ReportsHeld.about(object(key)),
        Reason::Waits(key, _) => Word::ReportsWait.about(object(key)),
        Reason::Unread(_) => Word::ReportsPlaces.into(),
    }
}

pub(crate) fn of_node_event(event: &step::Event) -> Option<Note<'_>> {
    Some(match event {
        step::Event::Changed(_) => Word::Shown.into(),
        step::Event::Removed => Word::Removed.into(),
        step::Event::Read { result, .. } => match result {
            Ok(_) => Word::MachineRead.into(),
            Err(Fault::NotFound) => Word::MachineAbsent.into(),
            Err(fault) => Word::MachineNotRead.fault(fault),
        },
        step::Event::Listed(Some(_)) => Word::AddressesListed.into(),
        step::Event::Listed(None) => Word::AddressesNotListed.into(),
        step::Event::AddressesRead { result, .. } => match result {
            Ok(_) => Word::AddressesRead.into(),
            Err(fault) => Word::AddressesNotRead.fault(fault),
        },
        step::Event::Checked { result, .. } => match result {
            step::Checked::Here(_) => Word::MachineHere.into(),
            step::Checked::Gone => Word::MachineGone.into(),
            step::Checked::Unproved(fault) => Word::MachineUnproved.fault(fault),
        },
        step::Event::Patched { result, .. } => match result {
            Ok(_) => Word::Patched.into(),
            Err(fault) => of_patch_fault(*fault),
        },
        step::Event::Deleted { result, .. } => match result {
            Ok(()) => Word::NodeDeleted.into(),
            Err(fault) => of_patch_fault(*fault),
        },
        step::Event::Routed { generation, outcome } => match outcome {
            Outcome::Done(_) => Word::RoutesDone.number(*generation),
            Outcome::Waiting(Waiting::Retry(fault)) => Word::RoutesWait.number(*generation).fault(fault),
            Outcome::Waiting(_) => Word::RoutesWait.number(*generation),
            Outcome::Refused(Refusal::Azure(fault)) => Word::RoutesRefused.number(*generation).fault(fault),
            Outcome::Refused(Refusal::Plan(why)) => Word::RoutesRefused.number(*generation).because(why.reason),
        },
        step::Event::RoutesLost => Word::RoutesLost.into(),
        step::Event::Granted { .. } => Word::BreakerGrants.into(),
        step::Event::Drain => Word::Draining.into(),
        step::Event::Woke => return None,
    })
}

fn of_patch_fault(fault: step::PatchFault) -> Note<'static> {
    match fault {
        step::PatchFault::Gone => Word::PatchGone,
        step::PatchFault::Changed | step::PatchFault::Failed => Word::PatchConflict,
    }
    .into()
}

pub(crate) fn of_node_action(action: &step::Action) -> Option<Note<'_>> {
    Some(match action {
        step::Action::Read { .. } => Word::ReadsMachine.into(),
        step::Action::ReadAddresses { .. } => Word::ReadsAddresses.into(),
        step::Action::Check { .. } => Word::ChecksMachine.into(),
        step::Action::Patch { .. } => Word::PatchesNode.into(),
        step::Action::Delete { .. } => Word::DeletesNode.into(),
        step::Action::Ask => Word::AsksBreaker.into(),
        step::Action::Withdraw => Word::LeavesBreaker.into(),
        step::Action::Route { generation, .. } => Word::WantsRoutes.number(*generation),
        step::Action::WithdrawRoutes => Word::WithdrawsRoutes.into(),
        step::Action::Report(reason) => match reason {
            step::Reason::Initialised => Word::ReportsInitialised.into(),
            step::Reason::NoMachine => Word::ReportsNoMachine.into(),
            step::Reason::Unreadable(fault) => Word::ReportsUnreadable.fault(fault),
            step::Reason::NoAddress(_) => Word::ReportsNoAddress.into(),
            step::Reason::Readdressed(_) => Word::ReportsReaddressed.into(),
            step::Reason::AddressesUnread(fault) => Word::ReportsAddressesKept.fault(fault),
            step::Reason::AddressesKept(_) => Word::ReportsAddressesKept.into(),
            step::Reason::Stopped => Word::ReportsStopped.into(),
            step::Reason::Gone => Word::ReportsGone.into(),
            step::Reason::Unproved(fault) => Word::ReportsUnproved.fault(fault),
            step::Reason::NoPodRange => Word::ReportsNoPodRange.into(),
            step::Reason::RouteRefused(_) => Word::ReportsRouteRefused.into(),
            step::Reason::RouteKept(why) => Note::from(Word::ReportsRouteKept).because(why),
        },
        step::Action::Drained => return None,
    })
}
