//! The line of descent of a disk: what it was made from, what that was made from, and so on.
//!
//! It goes into the context of the volume and of its publication, for two decisions of a node. A volume that was made from
//! another is never formatted. And it has the filesystem UUID of what it was made from: that UUID on a device is no sign of
//! the wrong disk where the other volume is of the same line.

use std::collections::BTreeMap;

use lazuli_model::{
    ArmId, BlobUri, Disk, DiskId, Snapshot,
    disk_tags::{COPY_OF, value},
};

use super::carrier::carrier_of;

/// The context's key of the line. The Go driver ignores it.
pub const LINE_KEY: &str = "lazuli-descends-from";

/// How many disks and snapshots a line has at most (source: the Go driver's search for the source of a clone).
pub const LONGEST_LINE: usize = 10;

/// What separates the ids of a line in a context: no id has it, since Azure's names do not.
const SEPARATOR: char = ',';

/// How it is written in an address: no address has a percent sign.
const ENCODED_SEPARATOR: &str = "%2C";

/// What a disk was made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A disk, a snapshot, or another resource.
    Resource(ArmId),
    /// A page blob, which Azure has imported.
    Blob(BlobUri),
}

impl Origin {
    fn parse(text: &str) -> Option<Self> {
        let resource = text.parse().ok().map(Self::Resource);
        resource.or_else(|| text.parse().ok().map(Self::Blob))
    }

    fn is(&self, disk: &DiskId) -> bool {
        match (self, disk) {
            (Self::Resource(id), DiskId::Managed(disk)) => id == disk,
            (Self::Blob(uri), DiskId::Blob(disk)) => uri == disk,
            (Self::Resource(_), DiskId::Blob(_)) | (Self::Blob(_), DiskId::Managed(_)) => false,
        }
    }
}

/// The disks, snapshots and page blobs that a disk descends from, the nearest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line(Vec<Origin>);

impl Line {
    /// Reads the value of [`LINE_KEY`]. What is no id is passed over: a node rather knows a part of a line than nothing.
    pub fn parse(text: &str) -> Self {
        let origin = |text: &str| Origin::parse(&text.trim().replace(ENCODED_SEPARATOR, &SEPARATOR.to_string()));
        Self(text.split(SEPARATOR).filter_map(origin).take(LONGEST_LINE).collect())
    }

    /// What was made from this alone, as far as is known: the id of a disk or of a snapshot, or the address of a page blob.
    pub fn of_source(text: &str) -> Self {
        Self(Origin::parse(text.trim()).into_iter().collect())
    }

    /// The line of a volume by all that its contexts say: a later part names what an earlier one does not.
    #[must_use]
    pub fn joined(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut line = Self::default();
        for origin in parts.into_iter().flat_map(|part| part.0) {
            if !line.0.contains(&origin) {
                line.0.push(origin);
            }
        }
        line
    }

    /// The value of [`LINE_KEY`].
    pub fn to_context(&self) -> String {
        let text = |origin: &Origin| match origin {
            Origin::Resource(id) => id.as_str().to_owned(),
            Origin::Blob(uri) => uri.as_str().replace(SEPARATOR, ENCODED_SEPARATOR),
        };
        self.0.iter().map(text).collect::<Vec<_>>().join(&SEPARATOR.to_string())
    }

    /// What it descends from, the nearest first.
    pub fn origins(&self) -> &[Origin] {
        &self.0
    }

    /// Whether the disk was made empty, or nothing is known of what it was made from.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, id: &ArmId) -> bool {
        self.0.iter().any(|origin| matches!(origin, Origin::Resource(known) if known == id))
    }

    fn has_disk(&self, disk: &DiskId) -> bool {
        self.0.iter().any(|origin| origin.is(disk))
    }
}

/// Whether two volumes may have the same filesystem: one was made from the other, or both from the same disk or snapshot.
pub fn are_related(one: (&DiskId, &Line), other: (&DiskId, &Line)) -> bool {
    let (disk, line) = one;
    let (other_disk, other_line) = other;
    disk == other_disk
        || line.has_disk(other_disk)
        || other_line.has_disk(disk)
        || line.0.iter().any(|ancestor| other_line.0.contains(ancestor))
}

/// What a single read of a disk or a snapshot says of where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// It was made from this disk or snapshot, and has so many bytes.
    MadeFrom {
        /// What it was made from.
        source: ArmId,
        /// Its size in bytes.
        bytes: u64,
    },
    /// It was imported from this page blob, and has so many bytes.
    Imported {
        /// The page blob.
        blob: BlobUri,
        /// Its size in bytes.
        bytes: u64,
    },
    /// It was made empty, or from something that is no disk, no snapshot and no page blob, and has so many bytes.
    First {
        /// Its size in bytes.
        bytes: u64,
    },
    /// It is gone, or may not be read: where it comes from is not known any more.
    Unknown,
}

impl Link {
    /// Of a snapshot that was read.
    pub fn of_snapshot(snapshot: &Snapshot) -> Self {
        Self::of(snapshot.source.as_deref(), snapshot.size_in_bytes())
    }

    /// Of a disk that was read. The snapshot that carried its content into its zone is gone, and a tag names the disk that it
    /// was taken of.
    pub fn of_disk(disk: &Disk) -> Self {
        let over_carrier = carrier_of(disk).and_then(|_| value(&disk.tags, COPY_OF));
        let source = over_carrier.filter(|id| id.parse::<ArmId>().is_ok()).or(disk.source.as_deref());
        Self::of(source, disk.size_in_bytes())
    }

    /// Of what Azure says was made from `source`.
    fn of(source: Option<&str>, bytes: u64) -> Self {
        let is_part = |id: &ArmId| id.is_type("Microsoft.Compute/disks") || id.is_type("Microsoft.Compute/snapshots");
        match source.and_then(|source| source.parse().ok()).filter(is_part) {
            Some(source) => Self::MadeFrom { source, bytes },
            None => match source.and_then(|source| source.parse().ok()) {
                Some(blob) => Self::Imported { blob, bytes },
                None => Self::First { bytes },
            },
        }
    }
}

/// Where a copy comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descent {
    /// The line.
    pub line: Line,
    /// The smallest size of the line, in bytes: the filesystem of the copy may be as small as that, where a copy in between
    /// was made larger and never mounted. `None` where no size is known.
    pub least_bytes: Option<u64>,
}

/// What is to be read to know where a copy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walk {
    /// This disk or snapshot; then ask again.
    Read(ArmId),
    /// Nothing: this is it.
    Done(Descent),
}

/// Follows what a copy of `source` comes from, by the reads that are known. It ends at what was made empty, at what is gone,
/// after [`LONGEST_LINE`] ids, and where ids come round again.
pub fn walk(source: &ArmId, known: &BTreeMap<ArmId, Link>) -> Walk {
    let mut descent = Descent::default();
    let mut next = Some(source);
    while let Some(id) = next.filter(|id| !descent.line.has(id)) {
        if descent.line.0.len() == LONGEST_LINE {
            break;
        }
        let Some(link) = known.get(id) else { return Walk::Read(id.clone()) };
        descent.line.0.push(Origin::Resource(id.clone()));
        let (bytes, from) = match link {
            Link::MadeFrom { source, bytes } => (Some(*bytes), Some(source)),
            Link::Imported { blob, bytes } => {
                if descent.line.0.len() < LONGEST_LINE {
                    descent.line.0.push(Origin::Blob(blob.clone()));
                }
                (Some(*bytes), None)
            }
            Link::First { bytes } => (Some(*bytes), None),
            Link::Unknown => (None, None),
        };
        descent.least_bytes = [descent.least_bytes, bytes].into_iter().flatten().min();
        next = from;
    }
    Walk::Done(descent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn disk(n: usize) -> ArmId {
        ArmId::disk("s", "g", &format!("d{n}")).unwrap()
    }

    fn line(ids: &[usize]) -> Line {
        Line(ids.iter().map(|n| Origin::Resource(disk(*n))).collect())
    }

    /// Reads one after the other until the line is known.
    fn walked(source: usize, azure: &BTreeMap<ArmId, Link>) -> (Descent, usize) {
        let mut known = BTreeMap::new();
        loop {
            match walk(&disk(source), &known) {
                Walk::Read(id) => {
                    let link = azure.get(&id).cloned().unwrap_or(Link::Unknown);
                    assert!(known.insert(id, link).is_none(), "nothing is read twice");
                }
                Walk::Done(descent) => return (descent, known.len()),
            }
        }
    }

    fn from(n: usize, bytes: u64) -> Link {
        Link::MadeFrom { source: disk(n), bytes }
    }

    #[test]
    fn a_line_ends_at_what_was_made_empty_or_is_gone() {
        let azure =
            BTreeMap::from([(disk(0), from(1, 30)), (disk(1), from(2, 10)), (disk(2), Link::First { bytes: 20 })]);
        assert_eq!(walked(0, &azure), (Descent { line: line(&[0, 1, 2]), least_bytes: Some(10) }, 3));
        let gone = BTreeMap::from([(disk(0), from(1, 30))]);
        assert_eq!(walked(0, &gone), (Descent { line: line(&[0, 1]), least_bytes: Some(30) }, 2));
        assert_eq!(walked(0, &BTreeMap::new()).0, Descent { line: line(&[0]), least_bytes: None });
    }

    #[test]
    fn a_line_has_ten_ids_at_most_and_does_not_run_in_circles() {
        let long = (0..20).map(|n| (disk(n), from(n + 1, 1))).collect();
        let (descent, reads) = walked(0, &long);
        assert_eq!((descent.line.origins().len(), reads), (LONGEST_LINE, LONGEST_LINE));
        let circle = BTreeMap::from([(disk(0), from(1, 1)), (disk(1), from(0, 1))]);
        assert_eq!(walked(0, &circle).0.line, line(&[0, 1]));
    }

    #[test]
    fn only_disks_and_snapshots_are_ancestors() {
        let snapshot = ArmId::snapshot("s", "g", "x").unwrap();
        let source = snapshot.to_string().to_uppercase();
        assert_eq!(Link::of(Some(&source), 5), Link::MadeFrom { source: snapshot, bytes: 5 });
        let image = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/images/i";
        for source in [Some(image), Some("FromImage"), None] {
            assert_eq!(Link::of(source, 5), Link::First { bytes: 5 });
        }
    }

    #[test]
    fn a_disk_that_was_imported_and_its_copies_descend_from_the_page_blob() {
        let text = "https://acct.blob.core.windows.net/vhds/a,b.vhd";
        let blob: BlobUri = text.parse().unwrap();
        let link = Link::of(Some(text), 5);
        assert_eq!(link, Link::Imported { blob: blob.clone(), bytes: 5 });
        let (descent, reads) = walked(0, &BTreeMap::from([(disk(0), from(1, 9)), (disk(1), link)]));
        let expected = [Origin::Resource(disk(0)), Origin::Resource(disk(1)), Origin::Blob(blob.clone())];
        assert_eq!((descent.line.origins(), descent.least_bytes, reads), (&expected[..], Some(5), 2));
        assert_eq!(Line::parse(&descent.line.to_context()), descent.line);
        assert_eq!(Line::of_source(text).origins(), &expected[2..]);
        let empty = Line::default();
        let spelled: DiskId = text.replace("acct", "ACCT").parse().unwrap();
        let other: DiskId = text.replace("a,b", "A,B").parse().unwrap();
        let copy: DiskId = disk(7).into();
        for (blob, related) in [(&spelled, true), (&other, false)] {
            assert_eq!(are_related((&copy, &descent.line), (blob, &empty)), related);
            assert_eq!(are_related((blob, &empty), (&copy, &descent.line)), related);
        }
        // Two disks that were imported from one blob have one file system.
        assert!(are_related((&copy, &descent.line), (&disk(8).into(), &Line::of_source(text))));
        let long = (0..20).map(|n| (disk(n), if n == 9 { Link::of(Some(text), 1) } else { from(n + 1, 1) })).collect();
        assert_eq!(walked(0, &long).0.line.origins().len(), LONGEST_LINE);
    }

    #[test]
    fn a_line_is_read_back_from_a_context_in_any_spelling_and_in_part() {
        let text = line(&[0, 1]).to_context();
        assert_eq!(Line::parse(&text), line(&[0, 1]));
        assert_eq!(Line::parse(&text.to_uppercase()), line(&[0, 1]));
        assert_eq!(Line::parse(&format!("nonsense,,{text}")), line(&[0, 1]));
        assert!(Line::parse("").is_empty() && line(&[]).to_context().is_empty());
        let many = (0..30).map(|n| disk(n).to_string()).collect::<Vec<_>>().join(",");
        assert_eq!(Line::parse(&many).origins().len(), LONGEST_LINE);
    }

    #[test]
    fn source_sibling_and_ancestor_are_related_and_nothing_else_is() {
        // 3 was made from 2, that from 1, and 5 from 1 too; 7 was made from 6.
        let (third, fifth, seventh) = (line(&[2, 1]), line(&[1]), line(&[6]));
        for (one, other, related) in [
            ((3, &third), (2, &fifth), true),
            ((3, &third), (1, &line(&[])), true),
            ((3, &third), (5, &fifth), true),
            ((3, &third), (3, &line(&[])), true),
            ((3, &third), (7, &seventh), false),
            ((3, &line(&[])), (5, &fifth), false),
        ] {
            let (one, other) = ((disk(one.0).into(), one.1), (disk(other.0).into(), other.1));
            let found =
                [are_related((&one.0, one.1), (&other.0, other.1)), are_related((&other.0, other.1), (&one.0, one.1))];
            assert_eq!(found, [related; 2], "{one:?} {other:?}");
        }
    }

    proptest! {
        /// Whatever forest of copies there is: a walk ends, reads each link once, and finds exactly the ancestors.
        #[test]
        fn a_walk_finds_the_ancestors(parents in proptest::collection::vec(proptest::option::of(0usize..12), 12), sizes in proptest::collection::vec(1u64..9, 12)) {
            let azure: BTreeMap<ArmId, Link> = parents
                .iter()
                .zip(&sizes)
                .enumerate()
                .map(|(n, (parent, bytes))| (disk(n), parent.map_or(Link::First { bytes: *bytes }, |parent| from(parent, *bytes))))
                .collect();
            let (descent, _) = walked(0, &azure);
            let mut expected = vec![0];
            while let Some(parent) = parents[*expected.last().unwrap()] {
                if expected.contains(&parent) || expected.len() == LONGEST_LINE {
                    break;
                }
                expected.push(parent);
            }
            prop_assert_eq!(&descent.line, &line(&expected));
            prop_assert_eq!(descent.least_bytes, expected.iter().map(|n| sizes[*n]).min());
        }
    }
}
