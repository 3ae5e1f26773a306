//! Every combination of what an unstage may see.

use lazuli_model::Lun;

use super::{super::unstage::*, *};

const VOLUME: &str = "Volume-A";

/// All that a look may show.
fn answers(seen: &Seen, look: Look) -> Vec<Seen> {
    let (one, two) = (device(1), device(2));
    let reused = Device { sequence: two.sequence.clone(), ..one.clone() };
    let part = Device { name: "sd3p1".into(), number: DeviceNumber { major: 8, minor: 131 }, ..device(3) };
    let own = record("volume-a", &one, None);
    let is_of_part = Record {
        device: Some(part.number),
        device_name: Some(part.name.clone()),
        sequence: part.sequence.clone(),
        ..own.clone()
    };
    let path = |device: &Device| Box::new(mounted(device, staging(), "ext4", false));
    match look {
        Look::StagingPath => [
            AtPath::Nothing,
            AtPath::Dead { top: None, error: "EIO".into() },
            AtPath::Dead { top: Some(path(&one)), error: "EIO".into() },
            AtPath::Mounted(path(&one)),
            AtPath::Mounted(path(&two)),
        ]
        .map(|at| Seen { at_path: Some(at), ..seen.clone() })
        .into(),
        Look::Records => {
            let other = record("volume-b", &one, None);
            let elsewhere = Record { staging_path: Some("/elsewhere".into()), ..other.clone() };
            [vec![], vec![other.clone()], vec![other, own.clone()], vec![elsewhere, own]]
                .map(|records| Seen { records: Some(records), ..seen.clone() })
                .into()
        }
        Look::Own => [
            None,
            Some(Record { device: None, ..own.clone() }),
            Some(Record { lun: None, ..own.clone() }),
            Some(Record { sequence: None, ..own.clone() }),
            Some(is_of_part),
            Some(own),
        ]
        .map(|own| Seen { own: Some(own), ..seen.clone() })
        .into(),
        Look::AtLun(_) => {
            let disks = [one, two, reused, device(3)].map(AtLun::Disk);
            let all = disks.into_iter().chain([AtLun::Nothing, AtLun::Unclear]);
            all.map(|at| Seen { at_lun: Some(at), ..seen.clone() }).collect()
        }
        Look::Numbered(number) => [None, Some(one), Some(reused), Some(part)]
            .into_iter()
            .filter(|found| found.as_ref().is_none_or(|found| found.number == number))
            .map(|numbered| Seen { numbered: Some(numbered), ..seen.clone() })
            .collect(),
        Look::Listed => {
            let lun = ListedAt::Lun(Lun::try_from(3).unwrap());
            [lun, ListedAt::Nowhere, ListedAt::Unused, ListedAt::Silent("timeout".into())]
                .map(|listed| Seen { listed: Some(listed), ..seen.clone() })
                .into()
        }
        Look::AtListed(_) => [AtListed::Nothing, AtListed::Unplaced, AtListed::Disk(two)]
            .map(|at| Seen { at_listed: Some(at), ..seen.clone() })
            .into(),
        Look::DataDisks => [None, Some(vec![]), Some(vec![one, two, device(3)])]
            .map(|disks| Seen { data_disks: Some(disks), ..seen.clone() })
            .into(),
    }
}

fn every_course(seen: &Seen, depth: u32, visit: &mut dyn FnMut(&Seen, &Next)) {
    assert!(depth < 8, "{seen:?}");
    match seen.next(Request { volume: VOLUME, staging: &staging() }) {
        Next::Look(look) => {
            for seen in answers(seen, look) {
                every_course(&seen, depth + 1, visit);
            }
        }
        end => visit(seen, &end),
    }
}

#[test]
fn an_unstage_proves_the_released_device_to_be_the_one_that_the_mount_the_record_or_the_metadata_names() {
    let (mut released, mut nothing, mut refused, mut silent, mut any, mut hidden) = (0, 0, 0, 0, 0, 0);
    every_course(&Seen::default(), 0, &mut |seen, end| {
        let mount = match seen.at_path.as_ref().unwrap() {
            AtPath::Mounted(top) | AtPath::Dead { top: Some(top), .. } => Some(top.mount.device),
            _ => None,
        };
        let record = seen.own.clone().flatten();
        // The boot has one number after the slash: the device that the record is about, and no other with its number.
        let is_about = |device: &Device| {
            let record = record.as_ref().unwrap();
            record.device == Some(device.number) && (record.sequence.is_none() || record.sequence == device.sequence)
        };
        match end {
            Next::Release(device) => {
                released += 1;
                // A retry knows the device by the record that is there, or that is written before the unmount.
                let request = Request { volume: VOLUME, staging: &staging() };
                if let Some(record) = seen.missing_record(request, device) {
                    assert!(seen.own.clone().flatten().is_none());
                    let again = Seen { at_path: Some(AtPath::Nothing), own: Some(Some(record)), ..Seen::default() };
                    let again = match again.next(request) {
                        Next::Look(Look::AtLun(_)) => Seen { at_lun: Some(AtLun::Disk(device.clone())), ..again },
                        _ => Seen { numbered: Some(Some(device.clone())), ..again },
                    };
                    assert_eq!(again.next(request), *end);
                }
                match (mount, &record) {
                    (Some(number), _) => assert_eq!(device.number, number, "{seen:?}"),
                    (None, Some(_)) => assert!(is_about(device), "{seen:?} {device:?}"),
                    (None, None) => assert_eq!(seen.at_listed, Some(AtListed::Disk(device.clone()))),
                }
            }
            Next::Nothing => {
                nothing += 1;
                let devices = [
                    seen.numbered.clone().flatten(),
                    match &seen.at_lun {
                        Some(AtLun::Disk(disk)) => Some(disk.clone()),
                        _ => None,
                    },
                ];
                let is_left = match (mount, &record) {
                    (Some(_), _) => seen.numbered != Some(None),
                    // Where its LUN says that it has left, its number alone is another's by now.
                    (None, Some(record)) => devices.iter().flatten().any(|device| match &seen.at_lun {
                        Some(AtLun::Nothing) => record.names(device) == RecordedDevice::Same,
                        Some(AtLun::Disk(disk)) if disk != device => record.names(device) == RecordedDevice::Same,
                        _ => is_about(device),
                    }),
                    (None, None) => match (&seen.at_listed, &seen.data_disks) {
                        (Some(AtListed::Unplaced), Some(Some(disks))) => {
                            let records = seen.records.as_ref().unwrap();
                            disks.iter().any(|disk| !records.iter().any(|record| record.is_on(disk)))
                        }
                        (Some(AtListed::Disk(_) | AtListed::Unplaced), _) => true,
                        (Some(AtListed::Nothing) | None, _) => false,
                    },
                };
                // The device that the record names may be there although its LUN shows another, or none.
                let has_record = mount.is_none() && record.as_ref().is_some_and(|record| record.device.is_some());
                assert!(!has_record || seen.numbered.is_some(), "{seen:?}");
                // Silence proves no absence.
                assert!(!matches!(seen.listed, Some(ListedAt::Silent(_))), "{seen:?}");
                assert!(!is_left, "the volume's device is there and nothing is proved of it: {seen:?}");
                // What cannot be read proves no absence.
                assert!(seen.at_lun != Some(AtLun::Unclear) || seen.numbered.is_some(), "{seen:?}");
                // The disk at the LUN is not the partition that the record names, and may still have it.
                let is_of_part = record.as_ref().is_some_and(|record| record.device_name.as_deref() == Some("sd3p1"));
                let is_its_disk = seen.at_lun == Some(AtLun::Disk(device(3)));
                assert!(!is_of_part || !is_its_disk || seen.numbered.is_some(), "{seen:?}");
            }
            Next::PathOfAnother(other) => {
                refused += 1;
                assert_eq!(other, "volume-b");
                let records = seen.records.as_ref().unwrap();
                assert!(records.iter().all(|record| record.volume_id == "volume-b"), "{seen:?}");
                assert_eq!(mount, Some(device(1).number));
            }
            Next::Silent(why) => {
                silent += 1;
                assert_eq!((mount, &record, why.as_str()), (None, &None, "timeout"), "{seen:?}");
            }
            Next::ReleaseAll(_, disks) => {
                any += 1;
                assert_eq!((mount, &record, &seen.at_listed), (None, &None, &Some(AtListed::Unplaced)));
                let records = seen.records.as_ref().unwrap();
                for disk in seen.data_disks.iter().flatten().flatten() {
                    let is_another_s = records.iter().any(|record| record.is_on(disk));
                    assert_ne!(disks.contains(disk), is_another_s, "{seen:?}");
                }
            }
            Next::DisksHidden(_) => {
                hidden += 1;
                assert_eq!((&seen.at_listed, &seen.data_disks), (&Some(AtListed::Unplaced), &Some(None)));
            }
            Next::Look(look) => panic!("{look:?} is no end"),
        }
    });
    assert!(released > 8 && nothing > 8 && refused > 1 && silent > 0, "{released} {nothing} {refused} {silent}");
    assert!(any > 1 && hidden > 0, "{any} {hidden}");
}

#[test]
fn the_path_of_another_volume_is_refused_whatever_else_is_recorded() {
    let top = Box::new(mounted(&device(1), staging(), "ext4", false));
    let elsewhere = Record { staging_path: Some("/b".into()), ..record(VOLUME, &device(1), None) };
    let seen = Seen {
        at_path: Some(AtPath::Mounted(top)),
        records: Some(vec![record("volume-b", &device(1), None), elsewhere]),
        ..Seen::default()
    };
    let refused = seen.next(Request { volume: VOLUME, staging: &staging() });
    assert_eq!(refused, Next::PathOfAnother("volume-b".into()));
}

#[test]
fn the_path_of_a_page_blob_is_not_that_of_one_whose_name_differs_in_letter_case() {
    let (device, path) = (device(1), staging());
    let request = Request { volume: "https://acct.blob.core.windows.net/vhds/d.vhd", staging: &path };
    let at_path = Some(AtPath::Mounted(Box::new(mounted(&device, staging(), "ext4", false))));
    let of = |volume: &str| {
        let (numbered, records) = (Some(Some(device.clone())), Some(vec![record(volume, &device, None)]));
        let seen = Seen { at_path: at_path.clone(), numbered, records, ..Seen::default() };
        (seen.next(request), seen.missing_record(request, &device).is_some())
    };
    assert_eq!(of("https://ACCT.blob.core.windows.net/vhds/d.vhd"), (Next::Release(device.clone()), false));
    let other = "https://acct.blob.core.windows.net/vhds/D.vhd";
    assert_eq!(of(other), (Next::PathOfAnother(other.to_owned()), true));
}
