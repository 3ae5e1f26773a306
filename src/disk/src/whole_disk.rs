//! The writes of a disk as a whole: its creation, its deletion, its expansion.
//!
//! Each runs in a task of its own ([`crate::in_flight`]). None has a condition that Azure would check, so each send rests on a
//! read made right before it: see [`lazuli_storage::single_write`], which decides. A deletion's first send needs no read: it
//! rests on its caller alone. An expansion's first send rests on the read by which its size was chosen.

use std::{sync::Arc, time::Duration};

use lazuli_azure::{
    compute::Freshness,
    error::{ArmError, Verb},
    permits::Permit,
};
use lazuli_model::{
    ArmId, Disk, Gib, ProvisioningState,
    disk_spec::DiskSpec,
    fault::{Effect, Fault},
};
use lazuli_quota::{permit::Priority, poll};
use lazuli_storage::{
    disk::DetachReason,
    single_write::{AfterExpansion, Attempts, Deletion, Expansion, ExpansionSends, Next, Refusal, deletion, expansion},
};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Nodes, ResultingDisk, VolumeError, client::Client};

/// How long to wait for another writer's operation on a disk.
const PROVISIONING_WAIT: Duration = Duration::from_secs(600);
/// The pauses before the next tries to delete a disk that Azure calls busy in one answer and not found in the next.
const DELETION_PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4)];

/// One write of a disk as a whole: its permits, and its pauses after a send that Azure did not accept.
struct Writer<'a> {
    client: &'a Client,
    verb: Verb,
    disk: &'a ArmId,
    wanted: &'a CancellationToken,
    attempts: Attempts,
}

impl<'a> Writer<'a> {
    fn new(client: &'a Client, verb: Verb, disk: &'a ArmId, wanted: &'a CancellationToken) -> Self {
        Self { client, verb, disk, wanted, attempts: Attempts::default() }
    }

    /// Waits for the permit of the next send. It comes before the read: the read must not be old when the write is sent.
    async fn permit(&self) -> Result<Permit, ArmError> {
        self.client.permit_disk(self.verb, self.disk, self.wanted).await
    }

    /// After a send that Azure did not accept: waits for as long as is decided, while the write is wanted. Then the caller
    /// looks again.
    ///
    /// # Errors
    /// The failure, where the write is not sent again.
    async fn after(&mut self, error: ArmError) -> Result<(), ArmError> {
        let pause = match self.attempts.failed(&error.fault, error.effect, self.client.write_limits()) {
            Next::Pause(pause) => pause,
            Next::BackOff { failures } => self.client.pause_after(failures),
            Next::Stop => return Err(error),
        };
        debug!(disk = %self.disk, error = &error as &dyn std::error::Error, ?pause, "the disk is read again after a pause");
        // An unwanted write leaves at once: the permit that it asks for next tells it.
        let _ = self.wanted.run_until_cancelled(sleep(pause)).await;
        Ok(())
    }

    /// What Azure may have done after a failure.
    fn effect(&self, of_failure: Effect) -> Effect {
        if of_failure == Effect::Possible { Effect::Possible } else { self.attempts.effect() }
    }
}

/// Whether a disk is what an earlier creation left incomplete. A disk that holds data is in the state Failed too, after a
/// change of it that failed. So the PUT is repeated only for a disk that is exactly what is requested: it completes a
/// failed creation, and changes nothing where another write has failed.
fn is_unfinished(spec: &DiskSpec, disk: &Disk) -> bool {
    matches!(disk.provisioning_state, ProvisioningState::Failed | ProvisioningState::Canceled)
        && spec.matches(disk).is_ok()
        && disk.size == spec.size
        && disk.holders().is_empty()
}

pub(crate) async fn create(
    client: Client,
    id: ArmId,
    spec: DiskSpec,
    wanted: CancellationToken,
) -> Result<ResultingDisk, VolumeError> {
    let mut writer = Writer::new(&client, Verb::Put, &id, &wanted);
    let failed = |error: ArmError, effect: Effect| {
        VolumeError::azure(format!("{id} cannot be created"), error).with_effect(effect)
    };
    let mut was_there = false;
    let error = loop {
        let permit = match writer.permit().await {
            Ok(permit) => permit,
            Err(error) => {
                let effect = writer.effect(error.effect);
                return Err(failed(error, effect));
            }
        };
        match client.read_disk(&id, Freshness::single().priority(Priority::Create)).await {
            Ok(read) => {
                let disk = until_provisioned(&client, read.model).await?;
                if !is_unfinished(&spec, &disk) {
                    return Ok(Some(disk.into()));
                }
                warn!(disk = %disk.id, "an earlier creation failed; it is repeated");
                // After a lost answer it may be what this call has made.
                was_there |= writer.attempts.effect() == Effect::None;
            }
            Err(error) if error.fault == Fault::NotFound => {}
            // Without the resource group there is no disk. After any other failure an earlier attempt may have made one.
            Err(error) if error.fault == Fault::ScopeNotFound => {
                let effect = writer.effect(error.effect);
                return Err(failed(error, effect));
            }
            Err(error) => return Err(failed(error, Effect::Possible)),
        }
        match client.create_disk(&id, &spec, permit, &wanted).await {
            Ok(creation) => match client.created_disk(&id, creation).await {
                Ok(made) => {
                    info!(disk = %id, size = %made.size, "disk created");
                    return Ok(Some(made.into()));
                }
                Err(error) => break error,
            },
            Err(error) => {
                if let Err(error) = writer.after(error).await {
                    break error;
                }
            }
        }
    };
    let effect = writer.effect(error.effect);
    let error = failed(error, effect);
    if error.fault == Fault::Deadline && effect == Effect::None {
        // No caller waits for it any more, and nothing was sent.
        return Err(error);
    }
    // The disk's state shows whether the failed creation has left a disk. An incomplete disk must not stay, because the
    // retry may be for another zone.
    let lost = writer.attempts.effect() == Effect::Possible;
    let disk = match client.get_disk(&id).await {
        Ok(read) => until_provisioned(&client, read.model).await?,
        // Azure's code is ambiguous (`OperationNotAllowed`). Where it has left no disk, only the quota can have forbidden
        // a valid request.
        Err(read) if read.fault == Fault::NotFound && error.fault == Fault::Unclear && !lost => {
            return Err(error.resorted(Fault::Exhausted).with_effect(Effect::None));
        }
        Err(read) if read.fault == Fault::NotFound && error.fault != Fault::OutcomeUnknown && !lost => {
            return Err(error.with_effect(Effect::None));
        }
        Err(_) => return Err(error.with_effect(Effect::Possible)),
    };
    let is_it = spec.matches(&disk).is_ok();
    match disk.provisioning_state {
        ProvisioningState::Succeeded if is_it => Ok(Some(disk.into())),
        // A disk that existed before this call may hold data, and is never deleted here.
        ProvisioningState::Failed | ProvisioningState::Canceled if !was_there && is_it && disk.holders().is_empty() => {
            match delete_incomplete(&client, &id, &spec).await {
                Ok(()) => Err(error.with_effect(Effect::None)),
                Err(cleanup) => {
                    warn!(disk = %id, error = %cleanup, "an incomplete disk could not be deleted; the next attempt finds it");
                    Err(error.with_effect(Effect::Possible))
                }
            }
        }
        _ => Err(error.with_effect(Effect::Possible)),
    }
}

/// Deletes what a failed creation has left, if it is still that when the deletion is sent.
async fn delete_incomplete(client: &Client, id: &ArmId, spec: &DiskSpec) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::azure(format!("{id} cannot be deleted"), error);
    let wanted = CancellationToken::new();
    let mut writer = Writer::new(client, Verb::Delete, id, &wanted);
    loop {
        let permit = writer.permit().await.map_err(failed)?;
        match client.get_disk(id).await {
            Ok(read) if is_unfinished(spec, &read.model) => {}
            Ok(_) => {
                return Err(VolumeError::new(Fault::Conflict, format!("{id} is not the incomplete disk any more")));
            }
            Err(error) if error.fault == Fault::NotFound => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
        match client.delete_disk(id, permit, &wanted).await {
            Ok(deletion) => return client.deleted_disk(deletion).await.map_err(failed),
            Err(error) => writer.after(error).await.map_err(failed)?,
        }
    }
}

/// Reads a disk by a single read. `None` when it does not exist.
async fn read(client: &Client, id: &ArmId) -> Result<Option<Disk>, VolumeError> {
    match client.get_disk(id).await {
        Ok(read) => Ok(Some(read.model)),
        Err(error) if error.fault == Fault::NotFound => Ok(None),
        Err(error) => Err(VolumeError::azure(format!("{id} cannot be read"), error)),
    }
}

/// Reads a disk, and waits for the end of another writer's operation on it, or of an earlier try whose answer was lost.
/// `None` when the disk does not exist then.
async fn read_until_provisioned(client: &Client, id: &ArmId) -> Result<Option<Disk>, VolumeError> {
    let Some(disk) = read(client, id).await? else { return Ok(None) };
    match until_provisioned(client, disk).await {
        Err(error) if error.fault == Fault::NotFound => Ok(None),
        ended => ended.map(Some),
    }
}

/// Waits until no operation on the disk is in progress.
async fn until_provisioned(client: &Client, mut disk: Disk) -> Result<Disk, VolumeError> {
    let started = Instant::now();
    while disk.provisioning_state == ProvisioningState::InProgress {
        let elapsed = started.elapsed();
        if elapsed > PROVISIONING_WAIT {
            let message =
                format!("an operation on {} has been in progress for {} s; retry", disk.id, elapsed.as_secs());
            return Err(VolumeError::new(Fault::Conflict, message).with_effect(Effect::Possible));
        }
        sleep(poll::again(poll::Kind::DiskCreate, elapsed)).await;
        disk = client
            .get_disk(&disk.id)
            .await
            .map_err(|error| {
                VolumeError::azure(format!("{} cannot be read", disk.id), error).with_effect(Effect::Possible)
            })?
            .model;
    }
    Ok(disk)
}

pub(crate) async fn delete(
    client: Client,
    nodes: Nodes,
    id: ArmId,
    wanted: CancellationToken,
) -> Result<ResultingDisk, VolumeError> {
    let failed = |error: ArmError, writer: &Writer<'_>| {
        let effect = writer.effect(error.effect);
        VolumeError::azure(format!("{id} cannot be deleted"), error).with_effect(effect)
    };
    let attached = |disk: Option<&Disk>| {
        let holders = disk.into_iter().flat_map(Disk::holders);
        let holders: Vec<String> = holders.map(|vm| nodes.name_of(vm)).collect();
        format!("{id} cannot be deleted: it is attached to node {}", holders.join(", "))
    };
    let mut writer = Writer::new(&client, Verb::Delete, &id, &wanted);
    let mut pauses = DELETION_PAUSES.into_iter();
    // Why it is looked at before the next send, with the pause where Azure calls it busy and does not show it.
    let mut look: Option<(Refusal, Duration)> = None;
    let mut seen: Option<Disk> = None;
    let error = loop {
        let permit = writer.permit().await.map_err(|error| failed(error, &writer))?;
        if let Some((refusal, pause)) = look {
            let now = read(&client, &id).await?;
            let decided = deletion(refusal, seen.as_ref(), now.as_ref());
            match decided {
                Deletion::Send => seen = seen.or(now),
                Deletion::Pause => {
                    drop(permit);
                    sleep(pause).await;
                    look = Some((Refusal::BusyAndNotFound, pause));
                    continue;
                }
                Deletion::Wait => {
                    drop(permit);
                    seen = seen.or(now);
                    read_until_provisioned(&client, &id).await?;
                    continue;
                }
                Deletion::Held => return Err(VolumeError::new(Fault::InUse, attached(now.as_ref()))),
                Deletion::Gone => return Ok(None),
                Deletion::Replaced => {
                    warn!(disk = %id, "the disk is gone, and another one of its name that was made meanwhile stays");
                    return Ok(None);
                }
            }
        }
        let sent = client.delete_disk(&id, permit, &wanted).await;
        let (error, accepted) = match sent {
            Ok(deletion) => match client.deleted_disk(deletion).await {
                Ok(()) => {
                    info!(disk = %id, "disk deleted");
                    return Ok(None);
                }
                Err(error) => (error, true),
            },
            Err(error) => (error, false),
        };
        if error.fault == Fault::Conflict {
            match pauses.next() {
                Some(pause) => look = Some((Refusal::Busy, pause)),
                None => break error,
            }
        } else if accepted {
            break error;
        } else {
            match writer.after(error).await {
                Ok(()) => look = Some((Refusal::Delayed, Duration::ZERO)),
                Err(error) => break error,
            }
        }
    };
    match error.fault {
        Fault::NotFound => return Ok(None),
        // A group is deleted with everything in it.
        Fault::ScopeNotFound if error.code == "ResourceGroupNotFound" => return Ok(None),
        _ => {}
    }
    // Azure's code for "the disk is attached" has other meanings too. The disk's own state is unambiguous.
    if matches!(error.fault, Fault::Unclear | Fault::Conflict | Fault::InUse)
        && let Ok(read) = client.get_disk(&id).await
        && !read.model.holders().is_empty()
    {
        return Err(VolumeError::azure(attached(Some(&read.model)), error).resorted(Fault::InUse));
    }
    Err(failed(error, &writer))
}

/// The failure of an expansion of a disk that grows only while it is detached.
pub(crate) fn grows_only_detached(disk: &ArmId, to: Gib, why: DetachReason) -> VolumeError {
    VolumeError::new(Fault::InUse, format!("{disk} cannot be expanded to {to} while it is attached: {why}"))
}

/// Grows the disk that was read as `before` when its new size was chosen, by a read that was sent at `read_at`.
pub(crate) async fn expand(
    client: Client,
    before: Disk,
    read_at: Instant,
    to: Gib,
    wanted: CancellationToken,
) -> Result<ResultingDisk, VolumeError> {
    let id = before.id.clone();
    let failed = |error: ArmError, writer: &Writer<'_>| {
        let effect = writer.effect(error.effect);
        VolumeError::azure(format!("{id} cannot be expanded to {to}"), error).with_effect(effect)
    };
    let mut writer = Writer::new(&client, Verb::Patch, &id, &wanted);
    let mut sends = ExpansionSends::new(read_at);
    loop {
        let permit = writer.permit().await.map_err(|error| failed(error, &writer))?;
        if sends.needs_read(Instant::now()) {
            let now = read(&client, &id).await?;
            match expansion(&before, now.as_ref(), to) {
                Expansion::Send => {}
                Expansion::Wait => {
                    drop(permit);
                    read_until_provisioned(&client, &id).await?;
                    sends.waited();
                    continue;
                }
                Expansion::Done => return Ok(now.map(Arc::new)),
                Expansion::NeedsDetach(why) => return Err(grows_only_detached(&id, to, why)),
                Expansion::Gone => {
                    let message = format!("{id} cannot be expanded to {to}: it does not exist any more");
                    return Err(VolumeError::new(Fault::NotFound, message));
                }
                Expansion::Replaced => {
                    let message = format!(
                        "{id} cannot be expanded to {to}: another disk of its name was made meanwhile, and stays as it is"
                    );
                    return Err(VolumeError::new(Fault::Conflict, message));
                }
            }
        }
        let (error, accepted) = match client.resize_disk(&id, to, permit, &wanted).await {
            Ok(expansion) => match client.resized_disk(&id, expansion).await {
                Ok(grown) => {
                    info!(disk = %id, size = %grown.size, "disk expanded");
                    return Ok(Some(grown.into()));
                }
                Err(error) => (error, true),
            },
            Err(error) => (error, false),
        };
        match sends.failed(&error.fault, accepted) {
            AfterExpansion::ReadAgain => {}
            AfterExpansion::Attempts => writer.after(error).await.map_err(|error| failed(error, &writer))?,
            AfterExpansion::Stop => return Err(failed(error, &writer)),
        }
    }
}
