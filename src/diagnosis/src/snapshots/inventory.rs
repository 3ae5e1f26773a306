//! Which VolumeSnapshot and which volume each snapshot in Azure belongs to, and which snapshots no VolumeSnapshotContent of
//! this cluster names.
//!
//! The tags of a snapshot carry no cluster's name. So a snapshot that nothing here names may be that of another cluster, and
//! is never said to be unused.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    ArmId, Completion, CopyMethod, ProvisioningState, Snapshot, SnapshotAccessState, SnapshotId,
    disk_tags::{CARRIES_TO, FOR_SNAPSHOT, FOR_SNAPSHOT_NAMESPACE, is_made_by_driver, value},
};
use lazuli_volume::snapshot::SnapshotView;

use super::{
    super::{Finding, Grade, some},
    SnapshotContent,
};

/// The check.
pub const SNAPSHOTS: &str = "snapshots in Azure";

/// A PersistentVolume of a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskVolume {
    /// Its disk.
    pub disk: ArmId,
    /// Its name.
    pub name: String,
    /// The claim that it is bound to, as `namespace/name`.
    pub claim: Option<String>,
}

/// A snapshot with what it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row<'s> {
    /// The snapshot.
    pub snapshot: &'s Snapshot,
    /// The VolumeSnapshotContent that names it.
    pub content: Option<&'s str>,
    /// The VolumeSnapshot, as `namespace/name`: that of the content, else what tags say.
    pub volume_snapshot: Option<String>,
    /// The disk that it was taken of, as Azure or a tag names it; empty where neither does.
    pub source: String,
    /// The PersistentVolume of that disk.
    pub volume: Option<&'s str>,
    /// The claim of that volume, as `namespace/name`.
    pub claim: Option<&'s str>,
    /// What can be done with it, or where it stands, in Azure's words.
    pub state: &'static str,
    /// Whether disks can be made from it.
    pub is_ready: bool,
}

/// The snapshots that contents name, by id. `cluster` is the cluster's subscription and resource group, where a handle that is
/// a bare name belongs.
fn named<'c>(contents: &'c [SnapshotContent], cluster: (&str, &str)) -> BTreeMap<ArmId, &'c SnapshotContent> {
    let ids = contents.iter().flat_map(|content| content.handles.iter().map(move |handle| (handle, content)));
    ids.filter_map(|(handle, content)| Some((SnapshotId::parse(handle, cluster).ok()?.snapshot().clone(), content)))
        .collect()
}

/// Azure's word for where a snapshot stands.
fn state(snapshot: &Snapshot) -> &'static str {
    match (snapshot.has_failed(), snapshot.access) {
        (true, _) => "Failed",
        (false, _) if snapshot.provisioning_state == ProvisioningState::InProgress => "Creating",
        (false, Some(access)) => access.as_str(),
        (false, None) if snapshot.is_complete() => "Available",
        (false, None) => "Pending",
    }
}

/// Where a snapshot stands in Azure, and what is waited for: a sentence.
pub fn standing(snapshot: &Snapshot) -> String {
    let (name, state) = (snapshot.id.name(), state(snapshot));
    let copied = match snapshot.completion.map(Completion::percent) {
        Some(percent) => format!("{percent} % of its content is copied"),
        None => "Azure copies nothing of it in the background".to_owned(),
    };
    let instant = match (snapshot.access, snapshot.instant_access_minutes) {
        (Some(SnapshotAccessState::InstantAccess | SnapshotAccessState::AvailableWithInstantAccess), Some(minutes)) => {
            format!(", with instant access for {minutes} minutes from its creation on")
        }
        _ => String::new(),
    };
    let waits = match (snapshot.copy_error.as_deref(), SnapshotView::of(snapshot).is_ready) {
        (Some(error), _) => {
            format!("; the copy has failed with {error}: delete the VolumeSnapshot and make another one")
        }
        (None, _) if snapshot.has_failed() => "; delete the VolumeSnapshot and make another one".to_owned(),
        (None, true) if !instant.is_empty() => {
            format!(
                "; until that ends, PremiumV2_LRS and UltraSSD_LRS disks of {} alone can be made from it",
                snapshot.size
            )
        }
        (None, true) => "; disks can be made from it".to_owned(),
        (None, false) => "; it is ready once Azure has copied all".to_owned(),
    };
    format!("Azure shows the snapshot {name} in {} as {state}: {copied}{instant}{waits}.", snapshot.location)
}

/// The snapshots in the order of their ids.
pub fn rows<'s>(
    snapshots: &'s [Snapshot],
    contents: &'s [SnapshotContent],
    volumes: &'s [DiskVolume],
    cluster: (&str, &str),
) -> Vec<Row<'s>> {
    let named = named(contents, cluster);
    let volumes: BTreeMap<&ArmId, &DiskVolume> = volumes.iter().map(|volume| (&volume.disk, volume)).collect();
    let mut sorted: Vec<&Snapshot> = snapshots.iter().collect();
    sorted.sort_by(|one, other| one.id.cmp(&other.id));
    let row = |snapshot: &'s Snapshot| {
        let content = named.get(&snapshot.id).copied();
        let tag = |name: &str| value(&snapshot.tags, name).filter(|value| !value.is_empty());
        let by_tags = || Some(format!("{}/{}", tag(FOR_SNAPSHOT_NAMESPACE)?, tag(FOR_SNAPSHOT)?));
        let view = SnapshotView::of(snapshot);
        let volume = view.source_volume_id.parse::<ArmId>().ok().and_then(|disk| volumes.get(&disk).copied());
        Row {
            snapshot,
            content: content.map(|content| content.name.as_str()),
            volume_snapshot: content.and_then(|content| content.snapshot.clone()).or_else(by_tags),
            source: view.source_volume_id,
            volume: volume.map(|volume| volume.name.as_str()),
            claim: volume.and_then(|volume| volume.claim.as_deref()),
            state: state(snapshot),
            is_ready: view.is_ready,
        }
    };
    sorted.into_iter().map(row).collect()
}

/// What a copy in another region is made from, by its source or by the name that either driver gives: it goes when the copy is
/// complete.
fn is_on_the_way(snapshot: &Snapshot, all: &[Snapshot], named: &BTreeMap<ArmId, &SnapshotContent>) -> bool {
    let is_source = |copy: &Snapshot| {
        copy.method == Some(CopyMethod::CopyStart)
            && copy.source.as_deref().and_then(|source| source.parse::<ArmId>().ok()).as_ref() == Some(&snapshot.id)
    };
    let name = snapshot.id.name().to_lowercase();
    let copy = name.strip_prefix("local_");
    all.iter().any(is_source) || copy.is_some_and(|copy| named.keys().any(|id| id.name().eq_ignore_ascii_case(copy)))
}

/// The snapshots that a driver made and that no VolumeSnapshotContent of this cluster names. Those that only carry content to
/// where it belongs are left out.
pub fn unnamed(snapshots: &[Snapshot], contents: &[SnapshotContent], cluster: (&str, &str)) -> Vec<Finding> {
    let named = named(contents, cluster);
    let of_driver = snapshots.iter().filter(|snapshot| is_made_by_driver(&snapshot.tags));
    let (known, others): (Vec<&Snapshot>, Vec<&Snapshot>) =
        of_driver.partition(|snapshot| named.contains_key(&snapshot.id));
    let is_carrier = |snapshot: &Snapshot| value(&snapshot.tags, CARRIES_TO).is_some();
    let names: BTreeSet<&str> = others
        .into_iter()
        .filter(|snapshot| !is_carrier(snapshot) && !is_on_the_way(snapshot, snapshots, &named))
        .map(|snapshot| snapshot.id.name())
        .collect();
    let names: Vec<&str> = names.into_iter().collect();
    let (grade, text) = match (names.len(), known.len()) {
        (0, 0) => (Grade::Fine, "none was made by a driver".to_owned()),
        (0, count) => (Grade::Fine, format!("a VolumeSnapshotContent names each of {count} that a driver made")),
        (count, _) => {
            let (were, them) = if count == 1 { ("was", "it") } else { ("were", "them") };
            let text = format!(
                "{count} {were} made by a driver, and no VolumeSnapshotContent of this cluster names {them}: {}; another cluster may have \
                 made {them} and need {them} (lazuli get snapshots shows of which volume)",
                some(&names)
            );
            (Grade::Note, text)
        }
    };
    vec![Finding::new(SNAPSHOTS, grade, text)]
}

#[cfg(test)]
mod tests {
    use lazuli_model::{Completion, SnapshotAccessState, disk_tags::CREATED_BY};
    use proptest::prelude::*;

    use super::*;

    const CLUSTER: (&str, &str) = ("s", "g");

    fn id(name: &str) -> ArmId {
        ArmId::snapshot("s", "g", name).unwrap()
    }

    fn disk(name: &str) -> ArmId {
        ArmId::disk("s", "g", name).unwrap()
    }

    fn made(name: &str, tags: &[(&str, &str)]) -> Snapshot {
        let mut snapshot = Snapshot::complete(id(name), &disk("pvc-1"));
        let own = [(CREATED_BY.0, CREATED_BY.1)];
        snapshot.tags = own.iter().chain(tags).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        snapshot
    }

    #[test]
    fn a_snapshot_with_instant_access_says_what_can_be_made_until_that_ends() {
        let mut snapshot = made("a", &[]);
        snapshot.access = Some(SnapshotAccessState::AvailableWithInstantAccess);
        snapshot.instant_access_minutes = Some(60);
        let said = standing(&snapshot);
        let words = format!("until that ends, PremiumV2_LRS and UltraSSD_LRS disks of {} alone", snapshot.size);
        assert!(said.contains(&words), "{said}");
        snapshot.access = Some(SnapshotAccessState::Available);
        assert!(standing(&snapshot).ends_with("; disks can be made from it."), "{}", standing(&snapshot));
    }

    fn content(name: &str, handles: &[&str]) -> SnapshotContent {
        SnapshotContent {
            name: name.into(),
            driver: "disk.csi.azure.com".into(),
            handles: handles.iter().map(|handle| (*handle).to_owned()).collect(),
            snapshot: Some(format!("shop/{name}")),
        }
    }

    #[test]
    fn a_snapshot_is_named_by_an_id_in_any_letter_case_or_by_a_bare_name() {
        let snapshots = [made("a", &[]), made("b", &[]), made("c", &[]), Snapshot::complete(id("mine"), &disk("d"))];
        let whole = id("a").as_str().to_uppercase().replace("/SUBSCRIPTIONS/", "/subscriptions/");
        let contents = [content("1", &[&whole]), content("2", &["b"]), content("3", &[])];
        let found = unnamed(&snapshots, &contents, CLUSTER);
        assert!(found[0].grade == Grade::Note && found[0].text.starts_with("1 was made by a driver"), "{found:?}");
        assert!(found[0].text.contains(": c; another cluster may have made it"), "{found:?}");
        // Never that nobody needs it, and no command that deletes it.
        assert!(!found[0].text.contains("unused") && !found[0].text.contains("delete"), "{found:?}");
        let found = unnamed(&snapshots[..2], &contents, CLUSTER);
        assert_eq!(found[0].text, "a VolumeSnapshotContent names each of 2 that a driver made");
        assert_eq!(unnamed(&snapshots[3..], &contents, CLUSTER)[0].text, "none was made by a driver");
    }

    #[test]
    fn what_only_carries_content_is_not_told() {
        let mut copy = made("copy", &[]);
        copy.method = Some(CopyMethod::CopyStart);
        copy.source = Some(id("odd_local").to_string());
        let carrier = made("carry_pvc-2", &[(CARRIES_TO, "/x")]);
        let all = [copy, made("odd_local", &[]), made("local_later", &[]), carrier];
        let contents = [content("1", &[id("copy").as_str()]), content("2", &[id("later").as_str()])];
        let found = unnamed(&all, &contents, CLUSTER);
        assert_eq!((found[0].grade, found.len()), (Grade::Fine, 1), "{found:?}");
        // Of a snapshot of another cluster the local one is told with it.
        let found = unnamed(&all[2..3], &[], CLUSTER);
        assert_eq!(found[0].grade, Grade::Note);
    }

    #[test]
    fn a_row_has_the_volume_snapshot_the_volume_and_where_it_stands() {
        let tags = [(FOR_SNAPSHOT, "nightly"), (FOR_SNAPSHOT_NAMESPACE, "shop")];
        let mut pending = made("b", &tags);
        pending.access = Some(SnapshotAccessState::Pending);
        pending.completion = Some(Completion::from_percent(45.0));
        let mut instant = made("c", &[]);
        instant.access = Some(SnapshotAccessState::InstantAccess);
        let mut failed = made("d", &[]);
        failed.copy_error = Some("x".into());
        let all = [failed, instant, pending, made("a", &[])];
        let contents = [content("1", &[id("a").as_str()])];
        let volumes = [DiskVolume { disk: disk("PVC-1"), name: "pv".into(), claim: Some("shop/data".into()) }];
        let rows = rows(&all, &contents, &volumes, CLUSTER);
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.snapshot.id.name(), row.content, row.volume_snapshot.as_deref(), row.state, row.is_ready))
            .collect();
        assert_eq!(
            shown,
            [
                ("a", Some("1"), Some("shop/1"), "Available", true),
                ("b", None, Some("shop/nightly"), "Pending", false),
                ("c", None, None, "InstantAccess", true),
                ("d", None, None, "Failed", false),
            ]
        );
        assert!(rows.iter().all(|row| row.volume == Some("pv") && row.claim == Some("shop/data")), "{rows:?}");
    }

    proptest! {
        #[test]
        fn a_snapshot_that_a_content_names_is_never_told(
            made_names in proptest::collection::btree_set("[a-c]{1,2}", 0..6),
            contents in proptest::collection::vec("[a-c]{1,2}", 0..6),
        ) {
            let snapshots: Vec<Snapshot> = made_names.iter().map(|name| made(name, &[])).collect();
            let contents: Vec<SnapshotContent> = contents.iter().map(|name| content(name, &[name])).collect();
            let handles: BTreeSet<&String> = contents.iter().flat_map(|one| &one.handles).collect();
            let found = unnamed(&snapshots, &contents, CLUSTER);
            let is_told = made_names.iter().any(|name| !handles.contains(name));
            prop_assert_eq!(found[0].grade == Grade::Note, is_told);
            prop_assert!(!found.iter().any(|one| one.grade == Grade::Wrong));
        }
    }
}
