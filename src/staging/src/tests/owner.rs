//! Whose a device is.

use super::{
    super::owner::{Look, Next, Seen},
    *,
};

#[test]
fn the_record_settles_it_then_the_metadata_then_a_record_that_speaks_against_it() {
    let (one, two) = (device(1), device(2));
    let part = Device { name: "sd1p1".into(), number: DeviceNumber { major: 8, minor: 101 }, ..device(1) };
    let own = |device: &Device| Some(Some(record("A", device, None)));
    let reused = Record { sequence: two.sequence.clone(), ..record("A", &one, None) };
    let of = |own, listed, records| Seen { own, listed, records }.next("a", &one);
    assert_eq!(of(None, None, None), Next::Look(Look::Own));
    assert_eq!(of(own(&one), None, None), Next::Own);
    // A stale record settles nothing, nor does one of a disk that had the number before.
    for own in [Some(None), own(&two), Some(Some(reused))] {
        assert_eq!(of(own.clone(), None, None), Next::Look(Look::Listed));
        assert_eq!(of(own.clone(), Some(Some(one.clone())), None), Next::Own);
        assert_eq!(of(own.clone(), Some(Some(two.clone())), None), Next::Other);
        assert_eq!(of(own.clone(), Some(None), None), Next::Look(Look::Records));
        let silent = |records: Vec<Record>| of(own.clone(), Some(None), Some(records));
        assert_eq!(silent(vec![]), Next::Own);
        assert_eq!(silent(vec![record("b", &two, None)]), Next::Own);
        assert_eq!(silent(vec![record("b", &one, None)]), Next::Other, "another volume's device");
        assert_eq!(silent(vec![record("a", &two, None)]), Next::Other, "the volume's device is another");
    }
    let seen = Seen { own: Some(None), listed: Some(Some(one)), records: None };
    assert_eq!(seen.next("a", &part), Next::Own, "a partition of the volume's disk");
}

#[test]
fn a_page_blob_speaks_not_against_one_whose_path_differs_in_letter_case() {
    let uri = "https://acct.blob.core.windows.net/vhds/d.vhd";
    let of = |records| Seen { own: Some(None), listed: Some(None), records: Some(records) }.next(uri, &device(1));
    for (volume, expected) in [
        ("https://ACCT.blob.core.windows.net/vhds/d.vhd", Next::Other),
        ("https://acct.blob.core.windows.net/vhds/D.vhd", Next::Own),
    ] {
        assert_eq!(of(vec![record(volume, &device(2), None)]), expected, "{volume}");
    }
}
