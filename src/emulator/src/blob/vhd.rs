//! Page blobs as disks: what a machine takes, holds and releases, and what a managed disk is imported from.
//!
//! | what | evidence |
//! |---|---|
//! | a machine has an infinite lease on each blob that it has, and says in the blob's metadata which machine that is | D |
//! | a blob that is not there: `DiskBlobNotFound`; one that another machine has: `DiskBlobAlreadyInUseByAnotherDisk`; one that anyone else has leased: `AcquireDiskLeaseFailed` | D, that all three come at the end of the operation U |
//! | a blob without a VHD footer, of another type, of no whole MiB: `InvalidVhd` | D, of the type U |
//! | `createOption: Empty` makes the blob with its footer; one that exists is refused with `DiskBlobAlreadyExists` | D, the code U |
//! | a lease that has been broken since, when the machine releases the blob | stays broken, the metadata go | U |
//! | the system disk of such a machine | no blob is made or leased | deviation |
//! | the bytes of a blob that a machine has | are those of its device, with `--hypervisor loop`; the lease is there with the device, before the end of the operation | U |
//! | … which the machine has changed | etag and date are new ones from the next request to the account on; pages are told in units of the file system's | U, the latter a deviation |

use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use super::address::{self, Address};
use super::documents::{self, Blob, BlobType, Documents, Metadata};
use super::pages::{PAGE, PageMap};
use crate::arm::kinds;
use crate::fault::{self, Fault};
use crate::hypervisor::DiskFacts;
use crate::leases::{self, Lease};
use crate::path;
use crate::state::State;

/// The last bytes of a fixed VHD.
const FOOTER: u64 = 512;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The metadata by which the compute provider says whose disk a blob is (documented, in lower case here).
const MACHINE: &str = "microsoftazurecompute_vmname";
const GROUP: &str = "microsoftazurecompute_resourcegroupname";
const OWN: [&str; 5] = [
    "microsoftazurecompute_diskname",
    "microsoftazurecompute_disksizeingb",
    "microsoftazurecompute_disktype",
    GROUP,
    MACHINE,
];

/// Whether the name of a disk is the address of a blob, and no id.
pub(crate) fn is_address(disk: &str) -> bool {
    disk.contains("://")
}

/// What tells the disk or blob of a name from others. Letter case counts below the account of a blob, and nowhere else.
pub(crate) fn key(disk: &str) -> String {
    match address::of_vhd(disk) {
        Some(Address { account, container: Some(container), blob: Some(blob), .. }) => {
            format!("{}://{container}/{blob}", account.to_ascii_lowercase())
        }
        _ => path::key(disk),
    }
}

/// Whether an address can be that of a VHD. Documented: a page blob below a container.
pub(crate) fn check_address(uri: &str) -> Result<(), Fault> {
    let parsed = address::of_vhd(uri).filter(|address| address.container.is_some() && address.blob.is_some());
    parsed.map(|_| ()).ok_or_else(|| {
        fault::invalid_parameter(
            "dataDisk.vhd.uri",
            format!("The value '{uri}' of parameter 'dataDisk.vhd.uri' is not the address of a blob."),
        )
    })
}

/// A blob with where it is.
struct Found {
    account: String,
    container: String,
    blob: Blob,
}

/// The id of the account of an address.
fn account(state: &State, address: &Address) -> Option<String> {
    let mut all = state.store.of_kind(kinds::STORAGE_ACCOUNT);
    let found = all.find(|doc| path::name_of(path::of(doc)).eq_ignore_ascii_case(&address.account));
    found.map(|doc| path::of(doc).to_owned())
}

fn find(state: &State, uri: &str) -> Option<Found> {
    let address = address::of_vhd(uri)?;
    let account = account(state, &address)?;
    let container = address.container?;
    let blob = documents::find(&state.store, &account, &container, &address.blob?)?;
    Some(Found { account, container, blob })
}

fn documents<'a>(state: &'a mut State, account: &'a str, at: Duration) -> Documents<'a> {
    Documents { store: &mut state.store, blobs: &mut state.blobs, account, at }
}

/// Nanoseconds of Unix time.
fn moment(state: &State, at: Duration) -> i128 {
    state.moment(at).as_nanosecond()
}

/// At the end of an attach: the blob is there, is a VHD, and nobody has it but this machine.
pub(crate) fn still_free(state: &State, vm: &str, uri: &str) -> Result<(), Fault> {
    let late = |code: &str, message: String| Err(Fault::new(409, code, message));
    let Some(Found { blob, .. }) = find(state, uri) else {
        return late(
            "DiskBlobNotFound",
            format!("Unable to find VHD blob with URI {uri} for disk '{}'.", path::name_of(uri)),
        );
    };
    check_format(state, uri, &blob)?;
    let lease = leases::state(blob.lease.as_ref(), moment(state, state.settled));
    if !matches!(lease, leases::State::Leased | leases::State::Breaking) || is_of(&blob, vm) {
        return Ok(());
    }
    match blob.metadata.get(MACHINE) {
        Some(machine) => late(
            "DiskBlobAlreadyInUseByAnotherDisk",
            format!(
                "Blob {uri} is already in use by another disk belonging to VM '{machine}'. You can examine the blob metadata \
                 for the disk reference information."
            ),
        ),
        None => late(
            "AcquireDiskLeaseFailed",
            format!(
                "Failed to acquire lease while creating disk '{}' using blob with URI {uri}. Blob is already in use.",
                path::name_of(uri)
            ),
        ),
    }
}

/// Documented texts.
fn check_format(state: &State, uri: &str, blob: &Blob) -> Result<(), Fault> {
    let invalid = |message: String| Err(Fault::new(409, "InvalidVhd", message));
    let name = path::name_of(uri);
    if blob.blob_type != BlobType::Page || blob.length < FOOTER {
        return invalid(format!("Disk '{name}' with blob {uri} is not a page blob with a VHD footer."));
    }
    let mut footer = [0; FOOTER as usize];
    let read =
        state.blobs.files.open(&blob.file).and_then(|file| file.read_exact_at(&mut footer, blob.length - FOOTER));
    if read.is_err() || !footer.starts_with(b"conectix") {
        return invalid(format!(
            "The specified cookie value in VHD footer indicates that disk '{name}' with blob {uri} is not a supported VHD. \
             Disk is expected to have cookie value 'conectix'."
        ));
    }
    let size = blob.length - FOOTER;
    let number = |at: usize| footer.iter().skip(at).take(8).fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let is_fixed = footer.get(60..64) == Some(&[0, 0, 0, 2]);
    if !is_fixed || number(48) != size || checksum(&footer) != number(64) >> 32 {
        return invalid(format!(
            "The VHD footer of disk '{name}' with blob {uri} does not tell of a fixed disk of its size."
        ));
    }
    if size == 0 || !size.is_multiple_of(MIB) {
        return invalid(format!(
            "The VHD {uri} has an unsupported virtual size of {size} bytes. The size must be a whole number (in MBs)."
        ));
    }
    Ok(())
}

/// The complement of the sum of all bytes but those of the sum itself.
fn checksum(footer: &[u8]) -> u64 {
    let counted = footer.iter().enumerate().filter(|(at, _)| !(64..68).contains(at));
    u64::from(!counted.map(|(_, byte)| u32::from(*byte)).sum::<u32>())
}

/// The footer of a fixed disk of so many bytes.
fn footer(size: u64, seconds: i64, unique: &str) -> [u8; FOOTER as usize] {
    /// 2000-01-01, from which a footer counts.
    const ORIGIN: i64 = 946_684_800;
    let mut footer = [0; FOOTER as usize];
    let mut put = |at: usize, bytes: &[u8]| {
        for (to, from) in footer.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    };
    let (cylinders, heads, sectors) = geometry(size);
    put(0, b"conectix");
    put(8, &[0, 0, 0, 2, 0, 1, 0, 0]);
    put(16, &[0xff; 8]);
    put(24, &u32::try_from(seconds - ORIGIN).unwrap_or(0).to_be_bytes());
    put(28, b"lzem\0\x01\0\0Wi2k");
    put(40, &size.to_be_bytes());
    put(48, &size.to_be_bytes());
    put(56, &cylinders.to_be_bytes());
    put(58, &[heads, sectors]);
    put(60, &[0, 0, 0, 2]);
    put(68, uuid::Uuid::try_parse(unique).unwrap_or_default().as_bytes());
    let sum = u32::try_from(checksum(&footer)).unwrap_or(0);
    for (to, from) in footer.iter_mut().skip(64).zip(sum.to_be_bytes()) {
        *to = from;
    }
    footer
}

/// Cylinders, heads and sectors of a disk, as the published format computes them.
fn geometry(size: u64) -> (u16, u8, u8) {
    let sectors = (size / 512).min(65_535 * 16 * 255);
    let (mut per_track, mut heads, mut tracks);
    if sectors >= 65_535 * 16 * 63 {
        (per_track, heads, tracks) = (255, 16, sectors / 255);
    } else {
        (per_track, tracks) = (17, sectors / 17);
        heads = tracks.div_ceil(1024).max(4);
        if tracks >= heads * 1024 || heads > 16 {
            (per_track, heads, tracks) = (31, 16, sectors / 31);
        }
        if tracks >= heads * 1024 {
            (per_track, heads, tracks) = (63, 16, sectors / 63);
        }
    }
    let cylinders = u16::try_from(tracks / heads).unwrap_or(u16::MAX);
    (cylinders, u8::try_from(heads).unwrap_or(16), u8::try_from(per_track).unwrap_or(255))
}

/// Whether the metadata of a blob say that it is this machine's.
fn is_of(blob: &Blob, vm: &str) -> bool {
    let told = |name: &str| blob.metadata.get(name).map(String::as_str).unwrap_or_default();
    told(MACHINE).eq_ignore_ascii_case(&path::machine_name(vm)) && told(GROUP).eq_ignore_ascii_case(path::group_of(vm))
}

/// Whether the machine has the blob.
fn has(blob: &Blob, vm: &str) -> bool {
    is_of(blob, vm) && blob.lease.as_ref().is_some_and(|lease| lease.length.is_none() && !lease.is_breaking)
}

/// What the hypervisor must know of a blob that a machine has.
pub(crate) fn device_of(state: &State, vm: &str, uri: &str) -> Option<DiskFacts> {
    let Found { blob, .. } = find(state, uri).filter(|found| has(&found.blob, vm))?;
    Some(DiskFacts {
        id: uri.to_owned(),
        unique_id: String::new(),
        size_bytes: blob.length.checked_sub(FOOTER)?,
        file: Some(state.blobs.files.path(&blob.file)),
    })
}

/// The size of the disk in a blob.
pub(crate) fn size(state: &State, uri: &str) -> Option<u64> {
    find(state, uri)?.blob.length.checked_sub(FOOTER)
}

/// Before the end of an attach: the blob becomes the machine's, for its device. It is made first where it is to have so
/// many GiB.
pub(crate) fn hand_over(
    state: &mut State,
    vm: &str,
    uri: &str,
    gib: Option<u64>,
    at: Duration,
) -> Result<DiskFacts, Fault> {
    if let Some(gib) = gib {
        create(state, vm, uri, gib, at)?;
    }
    still_free(state, vm, uri)?;
    take(state, vm, uri, at);
    device_of(state, vm, uri).ok_or_else(|| Fault::new(500, "InternalExecutionError", "The blob was not leased."))
}

/// The machine has the blob.
pub(crate) fn take(state: &mut State, vm: &str, uri: &str, at: Duration) {
    let id = state.guid();
    let Some(mut found) = find(state, uri) else { return };
    if has(&found.blob, vm) {
        return;
    }
    found.blob.device = state.blobs.files.written(&found.blob.file);
    found.blob.lease = Some(Lease { id, length: None, ends: None, is_breaking: false });
    let values = [
        path::name_of(uri).to_owned(),
        (found.blob.length / GIB).to_string(),
        "DataDisk".to_owned(),
        path::group_of(vm).to_owned(),
        path::machine_name(vm),
    ];
    found.blob.metadata.extend(OWN.map(str::to_owned).into_iter().zip(values));
    keep(state, found, at);
}

/// The machine has the blob no more.
pub(crate) fn release(state: &mut State, vm: &str, uri: &str, at: Duration) {
    let Some(mut found) = find(state, uri) else { return };
    if !is_of(&found.blob, vm) {
        return;
    }
    documents::look_at_device(&state.blobs, &mut found.blob);
    found.blob.device = None;
    found.blob.metadata.retain(|name, _| !OWN.contains(&name.as_str()));
    found.blob.lease = found.blob.lease.filter(|lease| lease.is_breaking);
    keep(state, found, at);
}

/// Keeps a blob whose metadata have changed.
fn keep(state: &mut State, Found { account, container, mut blob }: Found, at: Duration) {
    let now = moment(state, at);
    let mut documents = documents(state, &account, at);
    blob.etag = documents.blobs.next_etag(now);
    blob.modified = now;
    documents.put_blob(&container, &blob);
}

/// Bytes of a blob.
pub(crate) fn bytes(state: &State, uri: &str, at: u64, length: usize) -> Option<Vec<u8>> {
    let found = find(state, uri)?;
    let mut bytes = vec![0; length];
    state.blobs.files.open(&found.blob.file).ok()?.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

/// The machine that has the blob writes to its disk, which does not reach to the footer. The etag is a new one, as after
/// what its device writes.
pub(crate) fn write(state: &mut State, uri: &str, at: u64, bytes: &[u8], now: Duration) -> Option<()> {
    let mut found = find(state, uri)?;
    let end = at.checked_add(u64::try_from(bytes.len()).ok()?)?;
    let has_machine = found.blob.metadata.contains_key(MACHINE) && found.blob.lease.is_some();
    if !has_machine || found.blob.length.checked_sub(FOOTER).is_none_or(|size| end > size) {
        return None;
    }
    state.blobs.files.write(&found.blob.file, at, bytes).ok()?;
    found.blob.pages.write((at / PAGE * PAGE, end.next_multiple_of(PAGE)));
    found.blob.device = found.blob.device.and(state.blobs.files.written(&found.blob.file));
    keep(state, found, now);
    Some(())
}

/// A blob that nobody has leased goes.
pub(crate) fn delete(state: &mut State, uri: &str, at: Duration) -> Option<()> {
    let Found { account, container, blob } = find(state, uri)?;
    blob.lease.is_none().then(|| documents(state, &account, at).remove_blob(&container, &blob))
}

/// Makes an empty disk of so many GiB for a machine, unless that has it already.
pub(crate) fn create(state: &mut State, vm: &str, uri: &str, gib: u64, at: Duration) -> Result<(), Fault> {
    if let Some(found) = find(state, uri) {
        if has(&found.blob, vm) {
            return Ok(());
        }
        return Err(Fault::new(409, "DiskBlobAlreadyExists", format!("A disk blob with URI {uri} already exists.")));
    }
    let missing =
        || Fault::new(409, "StorageAccountNotFound", format!("The container of the blob {uri} was not found."));
    let address = address::of_vhd(uri).ok_or_else(missing)?;
    let account = account(state, &address).ok_or_else(missing)?;
    let (container, name) = address.container.zip(address.blob).ok_or_else(missing)?;
    let (now, unique) = (moment(state, at), state.guid());
    let size = gib.saturating_mul(GIB);
    let footer = footer(size, i64::try_from(now / leases::SECOND).unwrap_or(0), &unique);
    let mut documents = documents(state, &account, at);
    if documents.container(&container).is_none_or(|found| found.deleted_until.is_some()) {
        return Err(missing());
    }
    let files = &mut documents.blobs.files;
    let made = files.create(size + FOOTER).and_then(|file| files.write(&file, size, &footer).map(|()| file));
    let file = made.map_err(|error| Fault::new(500, "InternalExecutionError", error.to_string()))?;
    let mut pages = PageMap::default();
    pages.write((size, size + FOOTER));
    let blob = Blob {
        name,
        snapshot: None,
        blob_type: BlobType::Page,
        length: size + FOOTER,
        file,
        pages,
        sequence_number: 0,
        etag: documents.blobs.next_etag(now),
        created: now,
        modified: now,
        metadata: Metadata::new(),
        content: std::collections::BTreeMap::new(),
        lease: None,
        copied: None,
        device: None,
    };
    documents.put_blob(&container, &blob);
    Ok(())
}

/// What a managed disk is imported from: how many bytes, and the file that has them.
pub(crate) struct Source {
    pub(crate) bytes: u64,
    pub(crate) file: PathBuf,
}

/// The blob that a disk is imported from. Documented: a VHD of an account that is named. The code of one that is not there is
/// unverified, and so is whether one that is leased can be imported.
pub(crate) fn source(state: &State, uri: &str, account: &str) -> Result<Source, Fault> {
    let invalid = |message: String| Err(fault::invalid_parameter("disk.creationData.sourceUri", message));
    let Some(found) = find(state, uri) else {
        return invalid(format!("The source blob {uri} was not found."));
    };
    if !path::same(&found.account, account) {
        return invalid(format!("The source blob {uri} does not belong to the storage account {account}."));
    }
    if check_format(state, uri, &found.blob).is_err() {
        return invalid(format!(
            "The source blob {uri} is not supported. Only blobs formatted as VHDs can be imported."
        ));
    }
    let lease = leases::state(found.blob.lease.as_ref(), moment(state, state.settled));
    let is_leased = matches!(lease, leases::State::Leased | leases::State::Breaking);
    if is_leased && !state.switches.leased_blob_importable {
        return Err(fault::not_allowed(format!("The source blob {uri} has a lease, and cannot be imported.")));
    }
    Ok(Source { bytes: found.blob.length - FOOTER, file: state.blobs.files.path(&found.blob.file) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_footer_tells_of_its_disk() {
        let footer = footer(3 << 40, 946_684_801, "00000000-0000-4000-8000-000000000001");
        assert_eq!(&footer[..12], b"conectix\0\0\0\x02");
        assert_eq!((footer[27], footer[42], footer[63]), (1, 3, 2));
        let told = footer[64..68].iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        assert_eq!(told, checksum(&footer));
    }

    #[test]
    fn letter_case_tells_blobs_apart_and_no_hosts() {
        let key = |path: &str| key(&format!("https://{path}"));
        let of_a = key("vhds1.blob.core.windows.net/vhds/a.vhd");
        assert_eq!(key("VHDS1.blob.core.windows.net/vhds/a.vhd"), of_a);
        assert_ne!(key("vhds1.blob.core.windows.net/vhds/A.vhd"), of_a);
        assert_ne!(key("vhds2.blob.core.windows.net/vhds/a.vhd"), of_a);
        assert_eq!(super::key("/Subscriptions/S"), super::key("/subscriptions/s"));
    }

    #[test]
    fn geometry_follows_from_the_size() {
        for (size, expected) in [
            (GIB, (2080, 16, 63)),
            (20 * MIB, (602, 4, 17)),
            (127 * GIB, (65_278, 16, 255)),
            (4095 * GIB, (65_535, 16, 255)),
        ] {
            assert_eq!(geometry(size), expected, "{size}");
        }
    }
}
