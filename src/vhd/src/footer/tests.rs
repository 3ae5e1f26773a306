use std::{path::Path, process::Command};

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What `qemu-img create -f vpc -o subformat=fixed,force_size=on` of QEMU 7.2 wrote behind disks of 1 MiB, 64 MiB and
/// 1 GiB: all bytes that are not zero.
const RECORDED: [(u64, &str); 3] = [
    (
        MIB,
        "636f6e65637469780000000200010000ffffffffffffffff329bc6b171656d32000500035769326b0000000000100000\
         0000000000100000ffff10ff00000002ffffe4d26c2cf050485840bc85f824443ffbca2b",
    ),
    (
        64 * MIB,
        "636f6e65637469780000000200010000ffffffffffffffff329bc6b171656d32000500035769326b0000000004000000\
         0000000004000000ffff10ff00000002ffffe5529af7338f0c9a41789164bf6a3aa01264",
    ),
    (
        GIB,
        "636f6e65637469780000000200010000ffffffffffffffff329bc6b171656d32000500035769326b0000000040000000\
         0000000040000000ffff10ff00000002ffffe35b8b2bf7a2b3fa4fefaf796e62807b4d25",
    ),
];

fn page(hex: &str) -> Page {
    let mut page = ZEROS;
    for (byte, digits) in page.iter_mut().zip(hex.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
    }
    page
}

/// A page with other bytes and the checksum that goes with them.
fn changed(page: &Page, at: usize, bytes: &[u8]) -> Page {
    let mut page = *page;
    page[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = checksum(&page);
    page[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    page
}

#[test]
fn the_footers_that_qemu_wrote_are_read_and_written_to_the_byte() {
    for (size, hex) in RECORDED {
        let page = page(hex);
        let footer = Footer::of_blob(&page, size + LENGTH).unwrap();
        assert_eq!((footer.current_size, footer.original_size, &footer.creator), (size, size, b"qem2"));
        assert_eq!(footer.to_page(), page);
        // With `force_size` QEMU gives the largest geometry instead of that of the size.
        assert_eq!(footer.geometry, Geometry { cylinders: 65_535, heads: 16, sectors: 255 });
        // Beside creator, time, id and geometry it is the footer that is made here.
        let mut ours = Footer::new(size, footer.unique_id, footer.time_stamp);
        ours.creator = footer.creator;
        ours.creator_version = footer.creator_version;
        ours.geometry = footer.geometry;
        assert_eq!(ours.to_page(), page);
    }
}

#[test]
fn a_new_footer_has_these_bytes() {
    let footer =
        Footer::new(GIB, unique_id("https://acct.blob.core.windows.net/vhds/pvc-1.vhd"), time_stamp(EPOCH + 1));
    let expected = "636f6e65637469780000000200010000ffffffffffffffff0000000177696e20000a00005769326b0000000040000000\
                    00000000400000000820103f00000002";
    let page = footer.to_page();
    assert_eq!(digest::digits(&page[..64]), expected);
    assert_eq!(page[68..84], footer.unique_id);
    assert!(page[84..].iter().all(|byte| *byte == 0));
    let sum: u32 = page.iter().map(|byte| u32::from(*byte)).sum();
    let of_checksum: u32 = page[CHECKSUM].iter().map(|byte| u32::from(*byte)).sum();
    assert_eq!(u32::from_be_bytes(field(&page, 64)), !(sum - of_checksum));
}

#[test]
fn the_geometry_is_that_of_the_specification_at_each_of_its_limits() {
    let sectors = |sectors: u64, cylinders: u16, heads: u8, per_track: u8| {
        let expected = Geometry { cylinders, heads, sectors: per_track };
        assert_eq!(Geometry::of(sectors * 512), expected, "{sectors} sectors");
    };
    sectors(0, 0, 4, 17);
    sectors(1, 0, 4, 17);
    sectors(17 * 4, 1, 4, 17);
    // 17 sectors a track: up to 1023 tracks for each of at least 4 and at most 16 heads.
    sectors(17 * 4_095, 1_023, 4, 17);
    sectors(17 * 4_096 - 1, 1_023, 4, 17);
    sectors(17 * 4_096, 140, 16, 31);
    sectors(17 * 4_097, 819, 5, 17);
    sectors(17 * 16_383, 1_023, 16, 17);
    sectors(17 * 16_384 - 1, 1_023, 16, 17);
    sectors(17 * 16_384, 561, 16, 31);
    sectors(17 * 16_385, 561, 16, 31);
    // 31 sectors a track: below 16384 tracks.
    sectors(31 * 16_384 - 1, 1_023, 16, 31);
    sectors(31 * 16_384, 503, 16, 63);
    // 63 sectors a track: below 65535 cylinders.
    sectors(65_535 * 16 * 63 - 1, 65_534, 16, 63);
    sectors(65_535 * 16 * 63, 16_191, 16, 255);
    sectors(65_535 * 16 * 255 - 1, 65_534, 16, 255);
    sectors(65_535 * 16 * 255, 65_535, 16, 255);
    sectors(65_535 * 16 * 255 + 1, 65_535, 16, 255);
    sectors(u64::MAX / 512, 65_535, 16, 255);
    for (gib, cylinders, per_track) in [(1, 2_080, 63), (32, 16_448, 255), (127, 65_278, 255), (4_095, 65_535, 255)] {
        assert_eq!(Geometry::of(gib * GIB), Geometry { cylinders, heads: 16, sectors: per_track }, "{gib} GiB");
    }
}

#[test]
fn every_defect_has_its_name() {
    let good = Footer::new(GIB, [7; 16], 1).to_page();
    let length = GIB + LENGTH;
    let is = |page: &Page, length, defect| assert_eq!(Footer::of_blob(page, length), Err(defect));
    assert!(Footer::of_blob(&good, length).is_ok());
    is(&ZEROS, length, Defect::Absent);
    is(&[0xAA; 512], length, Defect::Cookie);
    is(&changed(&good, 0, b"Conectix"), length, Defect::Cookie);
    let mut torn = good;
    torn[500] = 1;
    is(&torn, length, Defect::Checksum { written: u32::from_be_bytes(field(&good, 64)), computed: checksum(&torn) });
    is(&changed(&good, 12, &[0, 2, 0, 0]), length, Defect::Version(0x0002_0000));
    is(&changed(&good, 60, &[0, 0, 0, 3]), length, Defect::DiskType(3));
    is(&changed(&good, 60, &[0, 0, 0, 4]), length, Defect::DiskType(4));
    is(&changed(&good, 60, &[0, 0, 0, 9]), length, Defect::DiskType(9));
    is(&changed(&good, 16, &512_u64.to_be_bytes()), length, Defect::DataOffset(512));
    is(&good, 2 * GIB + LENGTH, Defect::Size { footer: GIB, blob: 2 * GIB });
    is(&good, GIB, Defect::Unaligned(GIB - LENGTH));
    is(&good, GIB + 513, Defect::BlobLength(GIB + 513));
    is(&good, LENGTH, Defect::BlobLength(LENGTH));
    is(&good, 0, Defect::BlobLength(0));
    assert_eq!(Defect::DiskType(3).to_string(), "the VHD is a dynamic one, expected a fixed one");
    assert_eq!(Defect::DiskType(4).to_string(), "the VHD is a differencing one, expected a fixed one");
    let odd_offset = changed(&good, 16, &u64::from(u32::MAX).to_be_bytes());
    assert!(Footer::of_blob(&odd_offset, length).is_ok());
}

#[test]
fn only_an_empty_place_or_an_old_footer_is_written_over() {
    let good = Footer::new(GIB, [7; 16], 1).to_page();
    let repairable = |page: &Page, length| Footer::of_blob(page, length).unwrap_err().is_repairable();
    assert!(repairable(&ZEROS, GIB + LENGTH));
    assert!(repairable(&good, 2 * GIB + LENGTH));
    for (page, length) in [
        ([1; 512], GIB + LENGTH),
        (changed(&good, 60, &[0, 0, 0, 3]), GIB + LENGTH),
        (changed(&good, 60, &[0, 0, 0, 4]), GIB + LENGTH),
        (good, GIB + 1),
        (ZEROS, GIB),
    ] {
        assert!(!repairable(&page, length));
    }
}

#[test]
fn a_grown_disk_keeps_what_it_was_made_with() {
    let old = Footer::new(GIB, [7; 16], 9);
    let new = old.resized(4 * GIB);
    assert_eq!((new.original_size, new.current_size, new.unique_id, new.time_stamp), (GIB, 4 * GIB, [7; 16], 9));
    assert_eq!(new.geometry, Geometry::of(4 * GIB));
}

#[test]
fn times_that_a_footer_cannot_say_become_the_nearest() {
    assert_eq!([0, EPOCH, EPOCH + 5, u64::MAX].map(time_stamp), [0, 0, 5, u32::MAX]);
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        mib in 1_u64..=4_193_280, original in any::<u64>(), id in any::<[u8; 16]>(), time in any::<u32>(),
        creator in any::<[u8; 4]>(), version in any::<u32>(), flags in any::<[bool; 2]>(), odd in any::<(u16, u8, u8)>(),
    ) {
        let size = mib * MIB;
        let mut footer = Footer::new(size, id, time);
        footer.original_size = original;
        footer.creator = creator;
        footer.creator_version = version;
        [footer.is_temporary, footer.is_saved_state] = flags;
        footer.geometry = Geometry { cylinders: odd.0, heads: odd.1, sectors: odd.2 };
        let page = footer.to_page();
        prop_assert_eq!(Footer::of_blob(&page, size + LENGTH).unwrap(), footer);
    }

    #[test]
    fn a_footer_that_is_read_is_written_to_the_byte(at in 0_usize..85, byte in any::<u8>()) {
        let page = changed(&Footer::new(GIB, [7; 16], 1).to_page(), at, &[byte]);
        if let Ok(footer) = Footer::read(&page) {
            let again = footer.to_page();
            prop_assert!(again == page || matches!(at, 8..=11 | 16..=23 | 84), "{}", at);
            prop_assert_eq!(Footer::read(&again).unwrap(), footer);
        }
    }

    #[test]
    fn one_changed_byte_is_noticed(at in 0_usize..512, byte in any::<u8>()) {
        let good = Footer::new(GIB, [7; 16], 1).to_page();
        let mut page = good;
        page[at] = byte;
        prop_assume!(page != good);
        prop_assert!(Footer::read(&page).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 512), length in any::<u64>()) {
        let page: Page = bytes.try_into().unwrap();
        let _ = Footer::of_blob(&page, length);
    }

    #[test]
    fn a_geometry_never_reaches_beyond_the_disk(sectors in 0_u64..=8_589_934_592) {
        let geometry = Geometry::of(sectors * 512);
        prop_assert!(geometry.bytes() <= sectors * 512);
        prop_assert!((4..=16).contains(&geometry.heads) && [17, 31, 63, 255].contains(&geometry.sectors));
    }
}

/// Runs `qemu-img`. `None` where this machine has none.
fn qemu_img(arguments: &[&str]) -> Option<String> {
    let output = match Command::new("qemu-img").args(arguments).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("skipped: this machine has no qemu-img (package qemu-utils)");
            return None;
        }
        Err(error) => panic!("qemu-img does not start: {error}"),
    };
    assert!(output.status.success(), "qemu-img {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The last 512 bytes of a file, and its length.
fn end_of(path: &Path) -> (Page, u64) {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path).unwrap();
    let length = file.seek(SeekFrom::End(0)).unwrap();
    let mut page = ZEROS;
    file.seek(SeekFrom::Start(length - LENGTH)).unwrap();
    file.read_exact(&mut page).unwrap();
    (page, length)
}

#[test]
fn qemu_reads_our_footers_and_we_read_its() {
    use std::io::{Seek as _, SeekFrom, Write as _};
    let folder = std::env::temp_dir().join(format!("lazuli-vhd-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // One for each kind of geometry; QEMU goes up to 2040 GiB.
    for mib in [1, 64, 200, 511, 1_024, 32 * 1_024, 127 * 1_024 + 3, 2_040 * 1_024] {
        let size = mib * MIB;
        let theirs = folder.join(format!("theirs-{mib}.vhd"));
        let options = "subformat=fixed,force_size=on";
        let path = theirs.to_str().unwrap();
        if qemu_img(&["create", "-q", "-f", "vpc", "-o", options, path, &format!("{mib}M")]).is_none() {
            break;
        }
        let (page, length) = end_of(&theirs);
        let footer = Footer::of_blob(&page, length).unwrap();
        assert_eq!((footer.current_size, length), (size, size + LENGTH));
        assert_eq!(footer.to_page(), page);

        let ours = folder.join(format!("ours-{mib}.vhd"));
        let mut file = std::fs::File::create(&ours).unwrap();
        file.seek(SeekFrom::Start(size)).unwrap();
        file.write_all(&Footer::new(size, footer.unique_id, footer.time_stamp).to_page()).unwrap();
        drop(file);
        let info = qemu_img(&["info", "-f", "vpc", "--output=json", ours.to_str().unwrap()]).unwrap();
        assert!(info.contains("\"format\": \"vpc\""), "{info}");
        // The whole disk, not only what the geometry reaches.
        assert!(info.contains(&format!("\"virtual-size\": {size},")), "{mib} MiB: {info}");
        std::fs::remove_file(&theirs).unwrap();
        std::fs::remove_file(&ours).unwrap();
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
