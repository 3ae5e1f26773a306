//! Staging: looks at what [`lazuli_staging::stage`] asks for, and does what it says.

use lazuli_host::{
    Deadline,
    btrfs::{self, fsid},
    device::{self, Device},
    format::{self, FormatError, Outcome, WhenBlank},
    fs_type::FsType,
    fsck,
    mount::{self, TargetKind, as_mounted},
    nvme,
    options::Options,
    probe::{self, Filesystem, Verdict},
    resize::{self, ResizeError},
    volume_records::Record,
};
use lazuli_staging::{
    Lineage, Refusal,
    stage::{
        Acceptance, Act, Admission, How, Look, Mode, Next, OnDevice, Prepared, Request, Seen, Staged, not_elsewhere,
    },
};
use tokio::sync::SemaphorePermit;

use crate::calls::CallError as _;

use super::{
    Node,
    attachment::identify,
    error::NodeError,
    refusal::{self, Context},
    request::{Access, Stage},
    tuning,
};

/// Makes the volume ready to be published; repeating it is success.
pub(super) async fn stage(node: &Node, request: &Stage) -> Result<(), NodeError> {
    let desired = desired(node, request);
    let mut call = Call { node, request, seen: Seen::default(), why: String::new(), verdict: None, turn: None };
    loop {
        match call.seen.next(&desired) {
            Next::Look(look) => call.look(look).await?,
            Next::Do(act) => call.act(act).await?,
            Next::Stage(staged) => return call.finish(&staged).await,
            Next::Refuse(refusal) => {
                node.identity_checks.refused(call.volume(), &refusal);
                return Err(call.refused(*refusal));
            }
        }
    }
}

fn desired(node: &Node, request: &Stage) -> Request {
    let parameters = &request.parameters;
    Request {
        lun: parameters.lun,
        size: parameters.requested_size,
        partition: parameters.partition,
        mode: match &request.access {
            Access::Block => Mode::Raw,
            Access::Filesystem { fs, options } => Mode::Filesystem { fs: *fs, read_only: options.is_read_only() },
        },
        has_content: request.has_content,
        lineage: Lineage { disk: request.volume.disk().clone(), line: request.line.clone() },
        own_fsid: fsid::own(request.volume.as_str()),
        is_shared: request.is_shared,
        staging: as_mounted(&request.staging),
        lag: node.config.timeouts.identity_check,
        on_silence: node.config.on_silence,
    }
}

/// A call that is being carried out.
struct Call<'a> {
    node: &'a Node,
    request: &'a Stage,
    seen: Seen,
    /// Why the metadata does not confirm the disk.
    why: String,
    /// What is on the device, with what ends an unfinished format.
    verdict: Option<Verdict>,
    /// No other call looks at btrfs devices and mounts one.
    turn: Option<SemaphorePermit<'a>>,
}

impl Call<'_> {
    fn volume(&self) -> &str {
        self.request.volume.as_str()
    }

    fn refused(&self, refusal: Refusal) -> NodeError {
        let key = self.seen.acceptance.as_ref().map(|acceptance| acceptance.key.as_str()).unwrap_or_default();
        let context = Context {
            volume: self.volume(),
            lun: self.request.parameters.lun,
            staging: &self.request.staging,
            why: &self.why,
            found: refusal::content(self.seen.content.as_ref()),
            acceptance: self.node.acceptances.path(&self.request.volume, key),
        };
        context.failure(refusal)
    }

    async fn look(&mut self, look: Look) -> Result<(), NodeError> {
        let (node, request) = (self.node, self.request);
        let host = &node.host;
        let times = &node.config.timeouts;
        let seen = &mut self.seen;
        match look {
            Look::DiskAndIdentity => self.disk_and_identity().await?,
            Look::Disk => {
                let found = device::find_by_lun(host, request.parameters.lun.get().into()).await;
                seen.disk = Some(found.map_err(NodeError::Find)?);
            }
            Look::Nvme => seen.nvme = Some(nvme::machine(host).await.map_err(NodeError::Find)?),
            Look::Size(disk, least) => seen.grown = Some(grown(node, disk, least).await?),
            Look::Partition(disk, partition) => {
                seen.part = Some(device::part(host, &disk, partition).map_err(NodeError::Find)?);
            }
            Look::StagingPath => {
                let at = mount::seen_at(host, &request.staging, Deadline::after(times.mount)).await;
                seen.at_path = Some(at.map_err(NodeError::Mount)?);
            }
            Look::Mounts => seen.mounts = Some(mount::seen(host).await.map_err(NodeError::Mount)?),
            Look::MountsNow => seen.mounts_now = Some(mount::seen(host).await.map_err(NodeError::Mount)?),
            Look::BtrfsTurn => {
                self.turn = node.btrfs.acquire().await.ok();
                *seen = Seen::with_btrfs_turn();
            }
            Look::Content(device) => self.content(&device).await?,
            Look::Records(uuid) => {
                seen.records = Some(node.records(request.volume.as_str(), uuid.as_deref()).await?);
            }
            Look::Stood(device, metadata) => {
                let found = refusal::content(seen.content.as_ref());
                seen.stood = Some(node.identity_checks.look(request.volume.as_str(), &device, &found, metadata));
            }
            Look::Acceptance(key) => {
                let is_given = node.acceptances.is_given(&node.acceptances.path(&request.volume, &key)).await;
                seen.acceptance = Some(Acceptance { key, is_given });
            }
            Look::BtrfsMembers(device, fsid) => seen.btrfs = Some(btrfs::members(host, &device, &fsid).await),
        }
        Ok(())
    }

    /// Waits for the disk, and asks the metadata meanwhile: where that names another disk, no wait helps.
    async fn disk_and_identity(&mut self) -> Result<(), NodeError> {
        let (node, request, lun) = (self.node, self.request, self.request.parameters.lun);
        let times = &node.config.timeouts;
        let (found, asked) = tokio::try_join!(
            async {
                let deadline = Deadline::after(times.find);
                device::wait_for_lun(&node.host, lun.get().into(), deadline).await.map_err(NodeError::Find)
            },
            async {
                let asked = identify(node, &request.volume, lun, Deadline::after(times.identity)).await;
                node.identity_checks.heard(request.volume.as_str(), &asked.identity);
                not_elsewhere(&asked.identity).map_err(|refusal| self.refused(refusal))?;
                Ok(asked)
            },
        )?;
        self.seen.found = Some(found);
        self.seen.identity = Some(asked.identity);
        self.seen.listed = asked.listed;
        self.why = asked.why;
        Ok(())
    }

    async fn content(&mut self, device: &Device) -> Result<(), NodeError> {
        let deadline = Deadline::after(self.node.config.timeouts.format);
        // What could not be looked at is neither mounted nor formatted.
        let verdict = probe::probe(&self.node.host, device, self.volume(), deadline).await.map_err(|source| {
            NodeError::Format(Box::new(FormatError::Probe { device: device.path.display().to_string(), source }))
        })?;
        self.seen.content = Some(on_device(&verdict));
        self.verdict = Some(verdict);
        Ok(())
    }

    async fn act(&mut self, act: Act) -> Result<(), NodeError> {
        let (node, request) = (self.node, self.request);
        let times = &node.config.timeouts;
        match act {
            Act::UnmountDead { error } => {
                tracing::warn!(staging = %request.staging.display(), error, "a dead mount is taken away");
                let deadline = Deadline::after(times.mount);
                mount::unmount(&node.host, &request.staging, deadline).await.map_err(NodeError::Mount)?;
                self.seen.is_dead_mount_gone = true;
            }
            Act::Admit(admission) => {
                self.admit(&admission);
                self.seen.is_admitted = true;
            }
            Act::Format(device, fs) => self.prepare(&device, fs, WhenBlank::Format).await?,
            Act::FinishFormat(device, fs) => self.prepare(&device, fs, WhenBlank::Refuse).await?,
            Act::GiveFsid(device, own) => {
                let given = fsid::give(&node.host, &device, &own).await;
                let given = given.map_err(|error| NodeError::Format(Box::new(FormatError::Raw(error))))?;
                tracing::info!(volume = self.volume(), fsid = own, ?given, "a copied btrfs gets an id of its own");
                self.seen.own_fsid = Some(given);
            }
            Act::Repair(device) => {
                let deadline = Deadline::after(times.check);
                fsck::repair(&node.host, &device, deadline).await.map_err(NodeError::Check)?;
                self.seen.is_repaired = true;
            }
        }
        Ok(())
    }

    /// Reports a device that is used although not everything speaks for it.
    fn admit(&self, admission: &Admission) {
        let (volume, found) = (self.volume(), refusal::content(self.seen.content.as_ref()));
        match admission {
            Admission::Proved => {}
            Admission::AsConfirmed(past) => {
                let had = refusal::remembered(past);
                tracing::warn!(
                    volume,
                    found,
                    had,
                    "the disk is not as expected, and the metadata has confirmed it for longer than it lags"
                );
            }
            Admission::ByLun => {
                let (device, why) = (self.seen.disk.as_ref().map(|disk| disk.name.as_str()), &self.why);
                tracing::warn!(volume, device, found, why, "no metadata confirms the disk; LUN and size decide");
            }
            Admission::AsAccepted(past, key) => {
                let file = self.node.acceptances.path(&self.request.volume, key).display().to_string();
                let had = refusal::remembered(past);
                tracing::warn!(volume, found, had, file, "the disk is used because an operator accepted it");
            }
        }
        self.node.identity_checks.forget(volume);
    }

    async fn prepare(&mut self, device: &Device, fs: FsType, when_blank: WhenBlank) -> Result<(), NodeError> {
        let deadline = Deadline::after(self.node.config.timeouts.format);
        let (host, verdict) = (&self.node.host, self.verdict.take());
        let wanted = format::Request { volume: self.volume(), fs, when_blank };
        let outcome = format::ensure_filesystem(host, device, wanted, verdict, deadline).await;
        let outcome = outcome.map_err(|error| NodeError::Format(Box::new(error)))?;
        let is_new = matches!(outcome, Outcome::Created(_));
        self.seen.prepared = Some(Prepared { found: outcome.filesystem().clone(), is_new });
        Ok(())
    }

    /// Settings, record and mount, in this order.
    async fn finish(mut self, staged: &Staged) -> Result<(), NodeError> {
        let (node, request) = (self.node, self.request);
        let fs = match &staged.how {
            How::Raw => {
                // The device itself is bound when it is published; the record is what unstaging goes by.
                return self.record(staged, None).await;
            }
            How::Mounted(fs) => *fs,
            How::Mount(found, fs) => {
                // Before the mount: an unstage after a crash must know which device to release.
                self.record(staged, Some(found)).await?;
                self.mount(staged, *fs).await?;
                *fs
            }
        };
        self.turn = None;
        match staged.is_writable {
            true => grow(node, request, &staged.device, fs).await,
            false => Ok(()),
        }
    }

    async fn record(&self, staged: &Staged, filesystem: Option<&Filesystem>) -> Result<(), NodeError> {
        let (node, request) = (self.node, self.request);
        tuning::apply(node, &staged.disk, &request.parameters).await?;
        node.remember(record(request, &staged.device, filesystem)).await?;
        if let Some(accepted) = &staged.accepted {
            // What an operator has accepted is the volume's own from now on, whatever the metadata said before.
            node.acceptances.use_up(&request.volume, accepted).await;
            node.contradictions.note(&request.volume, request.parameters.lun, None).await;
        }
        Ok(())
    }

    async fn mount(&self, staged: &Staged, fs: FsType) -> Result<(), NodeError> {
        let (node, staging) = (self.node, &self.request.staging);
        let deadline = Deadline::after(node.config.timeouts.mount);
        let options = match &self.request.access {
            Access::Filesystem { options, .. } => options.clone(),
            Access::Block => Options::default(),
        };
        let mounted = async {
            mount::ensure_target(&node.host, staging, TargetKind::Directory, deadline).await?;
            mount::mount_block(&node.host, &staged.device, staging, fs.as_str(), &options, deadline).await
        };
        let Err(error) = mounted.await else { return Ok(()) };
        let error = NodeError::Mount(error);
        // kubelet will not unstage after a final code, so nothing must be left to unstage.
        if !error.code().keeps_the_claim() {
            node.forget(self.volume()).await?;
        }
        Err(error)
    }
}

/// The disk with the size that the kernel reads anew, when that is so many bytes or time is over.
async fn grown(node: &Node, disk: Device, least: u64) -> Result<Device, NodeError> {
    let deadline = Deadline::after(node.config.timeouts.size);
    resize::ask(&node.host, &disk, deadline).await.map_err(NodeError::Grow)?;
    match resize::rescan(&node.host, &disk, least, deadline).await {
        Err(ResizeError::TooSmall { now, .. }) => Ok(Device { size_bytes: now, ..disk }),
        other => other.map_err(NodeError::Grow),
    }
}

async fn grow(node: &Node, request: &Stage, device: &Device, fs: FsType) -> Result<(), NodeError> {
    let deadline = Deadline::after(node.config.timeouts.grow);
    let grown = async {
        if resize::needs_resize(&node.host, device, fs, &request.staging, deadline).await? {
            resize::grow(&node.host, device, fs, &request.staging, deadline).await?;
        }
        Ok(())
    };
    grown.await.map_err(|error| NodeError::AfterMount(Box::new(NodeError::Grow(error))))
}

fn on_device(verdict: &Verdict) -> OnDevice {
    match verdict {
        Verdict::Blank => OnDevice::Nothing,
        Verdict::Ours(_) => OnDevice::OwnFormat,
        Verdict::Filesystem { found, unfinished } => {
            OnDevice::Filesystem { found: found.clone(), is_unfinished: unfinished.is_some() }
        }
        Verdict::PartitionTable { .. } | Verdict::Foreign { .. } | Verdict::Ambiguous { .. } => {
            OnDevice::Other(verdict.unusable().unwrap_or_default())
        }
    }
}

fn record(request: &Stage, device: &Device, filesystem: Option<&Filesystem>) -> Record {
    Record {
        volume_id: request.volume.as_str().to_owned(),
        lun: Some(request.parameters.lun.get().into()),
        fs_uuid: filesystem.and_then(|found| found.uuid.clone()),
        fs_type: filesystem.map(|found| found.kind.clone()),
        staging_path: Some(request.staging.clone()),
        device_name: Some(device.name.clone()),
        device: Some(device.number),
        sequence: device.sequence.clone(),
        descends_from: Some(request.line.to_context()).filter(|line| !line.is_empty()),
    }
}
