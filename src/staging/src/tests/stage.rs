//! Every course that staging may take: at each look every answer of a small set, as a tree. The laws at the end of each
//! course read what was seen, and know nothing of the step.

use std::{collections::BTreeMap, time::Duration};

use lazuli_model::{ArmId, Gib, Lun};

use super::{super::stage::*, *};
use crate::device_identity::{Contradiction, Identity, Metadata, OnSilence, Stood};
use lazuli_volume::{FsType, copy::Line};

pub(super) const LAG: Duration = Duration::from_secs(120);

pub(super) fn request(mode: Mode) -> Request {
    Request {
        lun: Lun::try_from(3).unwrap(),
        size: None,
        partition: None,
        mode,
        has_content: false,
        lineage: Lineage { disk: ArmId::disk("s", "g", "a").unwrap().into(), line: Line::default() },
        own_fsid: "own".into(),
        is_shared: false,
        staging: staging(),
        lag: LAG,
        on_silence: OnSilence::Refuse,
    }
}

pub(super) const SOURCE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/source";

/// Of a volume that was made from another one.
pub(super) fn copy(mode: Mode) -> Request {
    let lineage = Lineage { line: Line::parse(SOURCE), ..request(mode).lineage };
    Request { has_content: true, lineage, ..request(mode) }
}

pub(super) fn writable(fs: FsType) -> Mode {
    Mode::Filesystem { fs, read_only: false }
}

pub(super) fn filesystem(kind: &str, uuid: &str) -> Filesystem {
    Filesystem { kind: kind.to_owned(), uuid: Some(uuid.to_owned()), label: None }
}

fn part() -> Device {
    Device {
        name: "sd1p1".into(),
        path: "/dev/sd1p1".into(),
        number: DeviceNumber { major: 8, minor: 101 },
        ..device(1)
    }
}

fn identities() -> Vec<Identity> {
    let disk = || Some(Contradiction::OtherDisk("/disks/b".into()));
    let lun = || Some(Contradiction::OtherLun(Lun::try_from(5).unwrap()));
    let of = |metadata, contradiction| Identity { metadata, contradiction };
    vec![
        of(Metadata::Confirms(None), None),
        of(Metadata::Confirms(Some(Gib::new(4))), None),
        of(Metadata::Confirms(Some(Gib::new(1))), None),
        of(Metadata::Contradicts, disk()),
        of(Metadata::Contradicts, lun()),
        of(Metadata::Silent, None),
        of(Metadata::Silent, disk()),
        of(Metadata::Unlisted, None),
        of(Metadata::Unlisted, lun()),
        of(Metadata::Unused, None),
    ]
}

/// All that a look may show.
fn answers(request: &Request, seen: &Seen, look: &Look) -> Vec<Seen> {
    let with = |change: &dyn Fn(&mut Seen)| {
        let mut seen = seen.clone();
        change(&mut seen);
        seen
    };
    let small = |device: Device| Device { size_bytes: GIB, ..device };
    match look {
        Look::DiskAndIdentity => identities()
            .into_iter()
            .map(|identity| Seen { found: Some(device(1)), identity: Some(identity), ..seen.clone() })
            .collect(),
        Look::Disk => {
            let reused = Device { sequence: device(2).sequence, ..device(1) };
            [device(1), small(device(1)), device(2), reused].map(|disk| with(&|s| s.disk = Some(disk.clone()))).into()
        }
        // No SCSI disk asks for it.
        Look::Nvme => Vec::new(),
        Look::Size(..) => {
            [device(1), small(device(1)), device(2)].map(|disk| with(&|s| s.grown = Some(disk.clone()))).into()
        }
        Look::Partition(..) => [None, Some(part())].map(|part| with(&|s| s.part = Some(part.clone()))).into(),
        Look::StagingPath => at_paths(request, seen).iter().map(|at| with(&|s| s.at_path = Some(at.clone()))).collect(),
        Look::Mounts => mount_tables(request).iter().map(|table| with(&|s| s.mounts = Some(table.clone()))).collect(),
        Look::BtrfsTurn => vec![Seen::with_btrfs_turn()],
        Look::Content(_) => contents().iter().map(|content| with(&|s| s.content = Some(content.clone()))).collect(),
        Look::Records(uuid) => {
            records(uuid.as_deref(), request).iter().map(|all| with(&|s| s.records = Some(all.clone()))).collect()
        }
        Look::Stood(..) => [(Duration::ZERO, Duration::ZERO), (LAG, Duration::ZERO), (LAG, LAG)]
            .map(|(seen_for, confirmed_for)| with(&|s| s.stood = Some(Stood { seen_for, confirmed_for })))
            .into(),
        Look::Acceptance(key) => [(key.clone(), false), (key.clone(), true), ("another".to_owned(), true)]
            .map(|(key, is_given)| with(&|s| s.acceptance = Some(Acceptance { key: key.clone(), is_given })))
            .into(),
        Look::MountsNow => [
            vec![],
            vec![mounted(&device(2), "/plugins/b/globalmount", "btrfs", false)],
            vec![mounted(&device(1), "/elsewhere", "ext4", false), mounted(&part(), "/elsewhere", "ext4", false)],
            vec![handed_out(&device(1))],
        ]
        .map(|table| with(&|s| s.mounts_now = Some(table.clone())))
        .into(),
        Look::BtrfsMembers(..) => [vec![], vec!["sd2"], vec!["sd1", "sd2"]]
            .map(|names| {
                let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
                with(&|s| s.btrfs = Some(BtrfsMembers { names: names.clone(), own: Some("sd1".into()) }))
            })
            .into(),
    }
}

fn at_paths(request: &Request, seen: &Seen) -> Vec<AtPath> {
    let at = |device: &Device, fs_type: &str, read_only| {
        AtPath::Mounted(Box::new(mounted(device, staging(), fs_type, read_only)))
    };
    let mut all = vec![
        AtPath::Nothing,
        at(&device(1), "ext4", false),
        at(&device(1), "ext3", true),
        at(&device(1), "btrfs", false),
        at(&device(1), "xfs", false),
        at(&device(2), "ext4", false),
        at(&device(2), "btrfs", false),
        at(&part(), "ext4", false),
    ];
    // What follows on it is what follows on nothing: once is enough.
    if request.mode == writable(FsType::Ext4) && seen.identity == identities().first().cloned() {
        all.push(AtPath::Dead { top: None, error: "EIO".into() });
    }
    all
}

fn mount_tables(request: &Request) -> Vec<Vec<Mounted>> {
    let mut tables = vec![vec![], vec![handed_out(&device(2)), handed_out(&device(1))], vec![handed_out(&part())]];
    if request.mode == Mode::Raw {
        for target in [staging(), "/other/globalmount".into(), "/recorded".into(), "/pods/1/own".into()] {
            tables.push(vec![mounted(&device(1), target, "ext4", false)]);
        }
        tables.push(vec![mounted(&device(2), staging(), "ext4", false)]);
    }
    tables
}

fn contents() -> Vec<OnDevice> {
    let filesystem = |kind: &str, is_unfinished| OnDevice::Filesystem { found: filesystem(kind, "A"), is_unfinished };
    vec![
        OnDevice::Nothing,
        OnDevice::OwnFormat,
        filesystem("ext4", false),
        filesystem("ext4", true),
        filesystem("btrfs", false),
        filesystem("xfs", true),
        OnDevice::Other("a gpt partition table".into()),
    ]
}

/// What may be remembered of the volume, and of others with the UUID that was found.
fn records(uuid: Option<&str>, request: &Request) -> Vec<Records> {
    if request.mode == Mode::Raw {
        let reused = Record { sequence: device(2).sequence, ..record("a", &device(1), None) };
        let by_number = Record { sequence: None, ..record("a", &device(1), None) };
        let own = [None, Some(record("a", &device(1), None)), Some(reused), Some(by_number)];
        let place = |own: &Option<Record>| own.as_ref().map(|_| "/recorded".into());
        return own.map(|own| Records { own_place: place(&own), own, ..Records::default() }).into();
    }
    let mut all = Vec::new();
    for last in [None, Some("a"), Some("b")] {
        let past = last.map(|last| record("a", &device(9), Some(last)));
        let kept = Records { past, ..Records::default() };
        all.push(kept.clone());
        if uuid.is_some() {
            all.push(Records { here: vec![record("b", &device(1), uuid)], ..kept.clone() });
            all.push(Records { here: vec![record("b", &device(2), uuid)], ..kept.clone() });
            all.push(Records { before: vec![record("b", &device(2), uuid)], ..kept.clone() });
            if !request.lineage.line.is_empty() {
                all.push(Records { before: vec![record(SOURCE, &device(2), uuid)], ..kept });
            }
        }
    }
    all
}

/// All that an act may leave.
fn effects(seen: &Seen, act: &Act) -> Vec<Seen> {
    let prepared = |kind: &str, uuid: &str, is_new| {
        let prepared = Some(Prepared { found: filesystem(kind, uuid), is_new });
        Seen { prepared, ..seen.clone() }
    };
    match act {
        Act::UnmountDead { .. } => vec![Seen { is_dead_mount_gone: true, ..seen.clone() }],
        Act::Admit(_) => vec![Seen { is_admitted: true, ..seen.clone() }],
        Act::Format(_, fs) => vec![prepared(fs.as_str(), "new", true), prepared(fs.as_str(), "A", false)],
        Act::FinishFormat(_, fs) => vec![prepared(fs.as_str(), "A", false), prepared(fs.as_str(), "other", false)],
        Act::GiveFsid(..) => [OwnFsid::Given, OwnFsid::Kept("it has two devices".into())]
            .map(|own| Seen { own_fsid: Some(own), ..seen.clone() })
            .into(),
        Act::Repair(_) => vec![Seen { is_repaired: true, ..seen.clone() }],
    }
}

/// One course from the first look to its end.
struct Course<'a> {
    request: &'a Request,
    seen: &'a Seen,
    acts: &'a [Act],
    end: &'a Next,
}

fn walk(request: &Request, seen: &Seen, past: (&mut Vec<Next>, &mut Vec<Act>), visit: &mut dyn FnMut(&Course<'_>)) {
    let (steps, acts) = past;
    let next = seen.next(request);
    if next == Next::Look(Look::BtrfsTurn) {
        // What comes after it is the course that begins with it.
        assert!(acts.is_empty() && !seen.has_btrfs_turn, "{seen:?}");
        return;
    }
    assert!(!steps.contains(&next), "{next:?} comes twice: {steps:?}");
    let after = match &next {
        Next::Look(look) => answers(request, seen, look),
        Next::Do(act) => {
            acts.push(act.clone());
            effects(seen, act)
        }
        Next::Stage(_) | Next::Refuse(_) => {
            visit(&Course { request, seen, acts, end: &next });
            return;
        }
    };
    let is_act = matches!(next, Next::Do(_));
    steps.push(next);
    for seen in after {
        walk(request, &seen, (steps, acts), visit);
    }
    steps.pop();
    if is_act {
        acts.pop();
    }
}

fn every_course(visit: &mut dyn FnMut(&Course<'_>)) {
    let ext4 = request(writable(FsType::Ext4));
    let read_only = Mode::Filesystem { fs: FsType::Ext4, read_only: true };
    let all = [
        request(Mode::Raw),
        Request { size: Some(Gib::new(4)), ..request(Mode::Raw) },
        Request { has_content: true, ..ext4.clone() },
        Request { partition: Some(1), ..ext4.clone() },
        Request { on_silence: OnSilence::Tolerate, ..ext4.clone() },
        ext4,
        request(read_only),
        request(writable(FsType::Btrfs)),
        copy(writable(FsType::Btrfs)),
        Request { is_shared: true, ..copy(writable(FsType::Btrfs)) },
        copy(Mode::Filesystem { fs: FsType::Btrfs, read_only: true }),
        Request { size: Some(Gib::new(4)), ..copy(writable(FsType::Xfs)) },
    ];
    for request in all {
        walk(&request, &Seen::default(), (&mut Vec::new(), &mut Vec::new()), visit);
        if matches!(request.mode, Mode::Filesystem { fs: FsType::Btrfs, .. }) {
            walk(&request, &Seen::with_btrfs_turn(), (&mut Vec::new(), &mut Vec::new()), visit);
        }
    }
}

impl Course<'_> {
    fn identity(&self) -> &Identity {
        self.seen.identity.as_ref().unwrap()
    }

    fn is_confirmed(&self) -> bool {
        matches!(self.identity().metadata, Metadata::Confirms(_))
    }

    /// Only what was made from something may be smaller than Azure says, by less than 1 GiB.
    fn fewest_bytes(&self, size: Option<Gib>) -> u64 {
        let bytes = size.map_or(0, Gib::bytes);
        if self.request.has_content { (bytes + 1).saturating_sub(GIB) } else { bytes }
    }

    fn how(&self) -> Option<&How> {
        match self.end {
            Next::Stage(staged) => Some(&staged.how),
            _ => None,
        }
    }

    fn is_mounted_already(&self) -> bool {
        matches!(self.how(), Some(How::Mounted(_)))
    }

    /// Whether the device was written to, or is staged by this call.
    fn is_used(&self) -> bool {
        let writes =
            |act: &Act| matches!(act, Act::Format(..) | Act::FinishFormat(..) | Act::GiveFsid(..) | Act::Repair(_));
        self.acts.iter().any(writes) || matches!(self.how(), Some(How::Raw | How::Mount(..)))
    }

    fn is_accepted(&self) -> bool {
        // The tree gives a word for another content under this name alone.
        self.seen.acceptance.as_ref().is_some_and(|word| word.is_given && word.key != "another")
    }

    fn uuid(&self) -> Option<&str> {
        match self.seen.content.as_ref()? {
            OnDevice::Filesystem { found, .. } => found.uuid.as_deref(),
            _ => None,
        }
    }

    fn last(&self) -> Option<String> {
        let records = self.seen.records.as_ref()?;
        records.past.as_ref()?.fs_uuid.as_ref().map(|last| last.to_uppercase())
    }

    /// Whether what is on the device speaks for the volume by itself.
    fn is_own_content(&self) -> bool {
        let Some(records) = &self.seen.records else { return false };
        match &self.seen.content {
            // Raw: staged from this very device.
            None => records.own.as_ref().is_some_and(|own| own.sequence == device(1).sequence),
            Some(OnDevice::OwnFormat) => true,
            Some(OnDevice::Filesystem { is_unfinished, .. }) => {
                let is_unique = records.here.is_empty();
                let is_last = self.last().is_some() && self.last().as_deref() == self.uuid();
                is_unique && (is_last || *is_unfinished && self.last().is_none() && records.before.is_empty())
            }
            Some(OnDevice::Nothing | OnDevice::Other(_)) => false,
        }
    }

    /// Whether the metadata names the disk, and has named it for longer than it lags.
    fn is_confirmed_for_long(&self) -> bool {
        self.is_confirmed() && self.seen.stood.is_some_and(|stood| stood.confirmed_for >= LAG)
    }
}

/// Panics where a course breaks a law.
fn judge(course: &Course<'_>) {
    let Course { request, seen, acts, end } = *course;
    let told = || format!("{request:#?}\n{seen:#?}\n{acts:#?}\n{end:#?}");
    let law = |holds: bool, law: &str| assert!(holds, "{law}: {}", told());
    let used = course.is_used();
    let staged = matches!(end, Next::Stage(_));
    let filesystem = request.mode != Mode::Raw;

    let formats = acts.iter().any(|act| matches!(act, Act::Format(..)));
    let is_blank = matches!(seen.content, Some(OnDevice::Nothing | OnDevice::OwnFormat));
    law(!formats || is_blank, "only what is provably blank, or an own unfinished format, is formatted");
    law(!formats || !request.has_content, "a disk that was made from something is never formatted");
    let is_read_only = matches!(request.mode, Mode::Filesystem { read_only: true, .. });
    let writes = acts.iter().any(|act| matches!(act, Act::Format(..) | Act::GiveFsid(..) | Act::Repair(_)));
    law(!writes || !is_read_only, "a volume that is only read is not written to");
    law(!formats || filesystem, "a raw volume is never formatted");

    if used || staged {
        let disks = [&seen.found, &seen.disk, &seen.grown];
        let one = |disk: &Device| (disk.number, disk.sequence.clone()) == (device(1).number, device(1).sequence);
        law(disks.into_iter().flatten().all(one), "a device that changed is not used");
        let Metadata::Confirms(size) = course.identity().metadata else { return judge_unconfirmed(course, &law) };
        let least = course.fewest_bytes(size.max(request.size));
        let found = seen.grown.as_ref().or(seen.disk.as_ref()).unwrap().size_bytes;
        law(found >= least, "a device that is too small is not used");
        let is_larger = size.is_some_and(|listed| found > listed.bytes());
        law(!is_larger || seen.grown.is_some(), "a size that is not the metadata's is read anew");
    }
    judge_unconfirmed(course, &law);
}

fn judge_unconfirmed(course: &Course<'_>, law: &dyn Fn(bool, &str)) {
    let Course { request, seen, end, .. } = *course;
    let (used, staged) = (course.is_used(), matches!(end, Next::Stage(_)));
    let identity = course.identity();
    let accepted = course.is_accepted();
    let (metadata, contradicted) = (identity.metadata, identity.contradiction.is_some());
    if used || staged {
        let size = seen.grown.as_ref().or(seen.disk.as_ref()).unwrap().size_bytes;
        law(size >= course.fewest_bytes(request.size), "a device smaller than its volume is not used");
        law(
            metadata != Metadata::Contradicts,
            "what the metadata names as another disk is not used, whoever accepts it",
        );
        let spoke = contradicted && metadata == Metadata::Silent;
        law(!spoke || accepted && !course.is_mounted_already(), "silence ends no contradiction");
    }
    if used {
        let is_begun = match &seen.content {
            Some(OnDevice::OwnFormat) => true,
            Some(OnDevice::Filesystem { is_unfinished, .. }) => *is_unfinished && course.last().is_none(),
            Some(OnDevice::Nothing | OnDevice::Other(_)) | None => false,
        };
        let by_own = metadata == Metadata::Unlisted && course.is_own_content() && is_begun;
        law(
            !contradicted || accepted || by_own,
            "an answer without the LUN ends a contradiction for a format alone that names the volume",
        );
        let is_known = course.is_confirmed() || metadata == Metadata::Unused || accepted;
        let is_let = request.on_silence == OnSilence::Tolerate && !contradicted;
        law(is_known || course.is_own_content() || is_let, "a volume that was never here needs a witness");
        let last = course.last();
        let is_other = last.is_some() && last.as_deref() != course.uuid();
        let is_begun = matches!(seen.content, Some(OnDevice::OwnFormat));
        let long = course.is_confirmed_for_long();
        let is_swapped = request.mode == Mode::Raw && {
            let own = seen.records.as_ref().and_then(|records| records.own.clone());
            own.and_then(|own| own.sequence).is_some_and(|sequence| Some(sequence) != device(1).sequence)
        };
        law(!is_swapped || accepted || long, "a raw volume that was staged from another disk waits for the lag");
        law(!is_other || is_begun || accepted || long, "what differs from the record waits for the lag");
        let records = seen.records.clone().unwrap_or_default();
        let is_last = last.is_some() && !is_other;
        let on_this = records.here.iter().any(|record| record.device == Some(device(1).number));
        // A partition is another device than the disk.
        let on_this = on_this && request.partition.is_none();
        let is_of_source = records.before.iter().any(|record| record.volume_id == SOURCE);
        let anothers = !is_last && (on_this || records.here.is_empty() && !records.before.is_empty() && !is_of_source);
        law(
            !is_of_source || is_last || accepted || course.is_confirmed(),
            "of two copies the metadata tells which it is",
        );
        law(!anothers || accepted || long, "a file system of another volume waits for the lag");
        let copied = !records.here.is_empty();
        law(!copied || accepted || course.is_confirmed(), "of two copies the metadata tells the one that is meant");
    }
    judge_mounts(course, law);
}

fn judge_mounts(course: &Course<'_>, law: &dyn Fn(bool, &str)) {
    let Course { request, seen, acts, end } = *course;
    let used = course.is_used();
    let own = if request.partition.is_some() { part().number } else { device(1).number };
    let of = |mounted: &&Mounted| mounted.mount.device == own || mounted.source == Some(own);
    let tables = || seen.mounts.iter().chain(&seen.mounts_now).flatten();
    if used && request.mode == Mode::Raw {
        let kubelets = |mounted: &&Mounted| {
            let target = mounted.mount.target.to_str().unwrap();
            let is_recorded = target == "/recorded" && seen.records.as_ref().is_some_and(|all| all.own.is_some());
            target.ends_with("/globalmount") || is_recorded
        };
        law(!tables().filter(of).any(|mounted| kubelets(&mounted)), "a staged file system is not handed out raw");
    }
    if used && request.mode != Mode::Raw {
        let shows = |mounted: &Mounted| mounted.node == Some(own) || mounted.node == Some(device(1).number);
        law(!seen.mounts.iter().flatten().any(shows), "what a pod has raw is not written to");
        let is_mounted = matches!(end, Next::Stage(_)) || acts.iter().any(|act| matches!(act, Act::Repair(_)));
        law(!is_mounted || !tables().any(shows), "what a pod has raw by now is neither repaired nor mounted");
        law(
            matches!(seen.content, Some(ref content) if *content != OnDevice::Other("a gpt partition table".into())),
            "what holds something else is left alone",
        );
    }
    if acts.iter().any(|act| matches!(act, Act::Repair(_) | Act::GiveFsid(..))) {
        law(
            !seen.mounts_now.iter().flatten().any(|mounted| of(&mounted)),
            "what is mounted is neither repaired nor renamed",
        );
    }
    if let Some(How::Mounted(fs)) = course.how() {
        let Some(AtPath::Mounted(top)) = &seen.at_path else { return law(false, "it is not mounted") };
        law(of(&&**top) && top.mount.fs_type == fs.as_str(), "what is mounted already is the volume's device");
        let read_only = matches!(request.mode, Mode::Filesystem { read_only: true, .. });
        law((top.mount.options == ["ro"]) == read_only, "it is as writable as asked for");
    }
    if let Some(How::Mount(found, fs)) = course.how() {
        let Mode::Filesystem { fs: asked, .. } = request.mode else { return law(false, "a raw volume is not mounted") };
        let takes = *fs == asked || asked == FsType::Ext4 && matches!(fs, FsType::Ext2 | FsType::Ext3);
        law(takes && found.kind == fs.as_str(), "another type than the one asked for is not mounted");
        let is_new = seen.prepared.as_ref().is_some_and(|prepared| prepared.is_new);
        let is_renamed =
            acts.iter().any(|act| matches!(act, Act::GiveFsid(..))) && seen.own_fsid == Some(OwnFsid::Given);
        let looked_at = if is_renamed { Some("own") } else { course.uuid() };
        law(is_new || found.uuid.as_deref() == looked_at, "what is mounted is what was looked at");
        let is_checked = acts.iter().any(|act| matches!(act, Act::Repair(_)));
        let in_use = seen.mounts_now.iter().flatten().any(|mounted| of(&mounted));
        let is_read_only = matches!(request.mode, Mode::Filesystem { read_only: true, .. });
        law(is_new || is_checked || in_use || is_read_only, "a file system is checked before it is mounted");
        if *fs == FsType::Btrfs && !is_new {
            let records = seen.records.clone().unwrap_or_default();
            let other = |mounted: &Mounted| records.here.iter().any(|other| other.device == mounted.source);
            let elsewhere = seen.mounts_now.iter().flatten().filter(|mounted| !of(mounted));
            law(is_renamed || !elsewhere.into_iter().any(other), "no two copies of one btrfs are mounted");
            let is_copy = !request.lineage.line.is_empty();
            law(!is_renamed || is_copy, "only a copy gets another id");
            let is_tried_on_shared = request.is_shared && acts.iter().any(|act| matches!(act, Act::GiveFsid(..)));
            law(!is_tried_on_shared, "what another node may have mounted keeps its id");
            let is_tried = is_renamed || seen.own_fsid.is_some();
            let keeps = in_use || is_read_only || request.is_shared;
            law(!is_copy || is_tried || keeps, "a copied btrfs has an id of its own before its mount");
            let names = seen.btrfs.as_ref().map(|members| members.names.clone()).unwrap_or_default();
            law(names.is_empty() || names.contains(&"sd1".to_owned()), "no other device of one btrfs is in use");
        }
        law(*fs != FsType::Btrfs || seen.has_btrfs_turn, "btrfs devices are looked at one at a time");
    }
    if let Next::Stage(staged) = end {
        law(staged.device.number == own && staged.disk.number == device(1).number, "the device of the looks is staged");
        law(staged.accepted.is_none() || course.is_accepted(), "only a word that was given is used up");
    }
}

#[test]
fn every_course_of_staging_keeps_the_laws_and_every_end_is_reached() {
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    every_course(&mut |course| {
        judge(course);
        let end = match course.end {
            Next::Stage(staged) => format!("{:?}", staged.how),
            Next::Refuse(refusal) => match &**refusal {
                Refusal::Unproved { why, .. } => format!("{why:?}"),
                other => format!("{other:?}"),
            },
            other => panic!("{other:?} is no end"),
        };
        let name: String = end.chars().take_while(|letter| letter.is_alphanumeric()).collect();
        *ends.entry(name).or_default() += 1;
    });
    let expected = [
        "Blank",
        "Changed",
        "Contradicted",
        "Elsewhere",
        "HandedOutRaw",
        "Mismatch",
        "Mount",
        "Mounted",
        "NoFilesystem",
        "NoPartition",
        "Occupied",
        "Raw",
        "StagedAsFilesystem",
        "TooSmall",
        "TwinBtrfs",
        "Unconfirmed",
        "UnconfirmedForLong",
        "WaitForLag",
        "WrongType",
    ];
    assert_eq!(ends.keys().map(String::as_str).collect::<Vec<_>>(), expected, "{ends:?}");
    let courses: u32 = ends.values().sum();
    assert!(courses > 50_000, "{ends:?}");
    println!("{courses} courses: {ends:?}");
}

/// The course of a volume for which nothing is out of the ordinary.
fn ordinary(request: &Request, content: OnDevice) -> (Vec<String>, Next) {
    let mut seen = Seen::default();
    let mut names = Vec::new();
    loop {
        let next = seen.next(request);
        names.push(match &next {
            Next::Look(look) => format!("{look:?}"),
            Next::Do(act) => format!("{act:?}"),
            Next::Stage(_) | Next::Refuse(_) => return (names, next),
        });
        let short = names.last_mut().unwrap();
        short.truncate(short.find([' ', '(', '{']).unwrap_or(short.len()));
        seen = match next {
            Next::Look(Look::Content(_)) => Seen { content: Some(content.clone()), ..seen },
            Next::Look(look) => answers(request, &seen, &look).swap_remove(0),
            Next::Do(act) => effects(&seen, &act).swap_remove(0),
            Next::Stage(_) | Next::Refuse(_) => unreachable!("it has returned"),
        };
    }
}

#[test]
fn a_new_disk_is_formatted_and_mounted_and_an_old_one_is_checked_and_mounted() {
    let first = ["DiskAndIdentity", "Disk", "StagingPath", "Mounts"];
    let proof = ["Content", "Records", "Stood", "Acceptance", "Admit"];
    let course = |rest: &[&[&str]]| rest.concat().iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let ext4 = request(writable(FsType::Ext4));
    let (steps, end) = ordinary(&ext4, OnDevice::Nothing);
    assert_eq!(steps, course(&[&first, &proof, &["Format"]]));
    let Next::Stage(staged) = end else { panic!("{end:?}") };
    assert_eq!(staged.how, How::Mount(filesystem("ext4", "new"), FsType::Ext4));
    assert!(staged.is_writable);

    let old = |kind: &str| OnDevice::Filesystem { found: filesystem(kind, "A"), is_unfinished: false };
    let (steps, end) = ordinary(&ext4, old("ext3"));
    assert_eq!(steps, course(&[&first, &proof, &["MountsNow", "Repair"]]));
    let Next::Stage(staged) = end else { panic!("{end:?}") };
    assert_eq!(staged.how, How::Mount(filesystem("ext3", "A"), FsType::Ext3));

    let (steps, _) = ordinary(&request(writable(FsType::Btrfs)), old("btrfs"));
    assert_eq!(steps, course(&[&first, &["BtrfsTurn"], &first, &proof, &["MountsNow", "BtrfsMembers", "Repair"]]));
    let read_only = request(Mode::Filesystem { fs: FsType::Ext4, read_only: true });
    let (steps, end) = ordinary(&read_only, old("ext4"));
    assert_eq!(steps, course(&[&first, &proof, &["MountsNow"]]));
    assert!(matches!(end, Next::Stage(staged) if !staged.is_writable));

    let (steps, end) = ordinary(&request(Mode::Raw), OnDevice::Nothing);
    assert_eq!(steps, course(&[&["DiskAndIdentity", "Disk", "Records", "Mounts", "Stood", "Acceptance", "Admit"]]));
    assert!(matches!(end, Next::Stage(staged) if staged.how == How::Raw));
}

/// A device that allows only reading is used like one that is asked for read-only.
#[test]
fn a_device_that_the_kernel_has_read_only_is_neither_formatted_nor_repaired() {
    let read_only = Device { read_only: true, ..device(1) };
    let mut seen = Seen {
        found: Some(read_only.clone()),
        identity: identities().into_iter().next(),
        disk: Some(read_only),
        at_path: Some(AtPath::Nothing),
        mounts: Some(vec![]),
        content: Some(OnDevice::Nothing),
        records: Some(Records::default()),
        stood: Some(Stood { seen_for: LAG, confirmed_for: LAG }),
        acceptance: Some(Acceptance { key: "blank".into(), is_given: false }),
        is_admitted: true,
        ..Seen::default()
    };
    let ext4 = request(writable(FsType::Ext4));
    let blank = Refusal::Blank { device: device(1).path };
    assert_eq!(seen.next(&ext4), Next::Refuse(Box::new(blank)));
    seen.content = Some(OnDevice::Filesystem { found: filesystem("ext4", "A"), is_unfinished: false });
    seen.mounts_now = Some(vec![]);
    assert!(matches!(seen.next(&ext4), Next::Stage(staged) if !staged.is_writable));
}
