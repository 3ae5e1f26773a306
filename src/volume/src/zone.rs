//! The zone of a disk, and where it can be used.

use std::collections::BTreeMap;

use lazuli_model::disk_spec::canonical_region;

/// The topology key of `disk.csi.azure.com`.
pub const DISK_TOPOLOGY_KEY: &str = "topology.disk.csi.azure.com/zone";

/// Kubernetes' own topology key.
pub const WELL_KNOWN_TOPOLOGY_KEY: &str = "topology.kubernetes.io/zone";

/// How many zones a zone-redundant disk names; regions have three, a few four (as the Go driver).
const ZONE_REDUNDANT_ZONES: u8 = 4;

/// Segments of a topology.
pub(super) type Segments = BTreeMap<String, String>;

/// A zone of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Zone {
    pub(super) region: String,
    pub(super) number: String,
}

/// The label value of a zone, `<region>-<number>`, in lower case in every component: kubelet refuses two values that
/// differ.
pub fn zone_label(region: &str, number: &str) -> String {
    format!("{}-{}", canonical_region(region), number)
}

/// The label value of a region, in the spelling of [`zone_label`].
pub fn region_label(region: &str) -> String {
    canonical_region(region)
}

/// Whether a text is the label value of a zone. A number alone is a fault domain, never a zone.
pub fn is_zone_label(label: &str) -> bool {
    Zone::parse(label).is_some()
}

impl Zone {
    /// Reads a label. A number alone is a fault domain, never a zone.
    fn parse(label: &str) -> Option<Self> {
        let (region, number) = label.split_once('-')?;
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (!region.is_empty() && is_number)
            .then(|| Self { region: region.to_ascii_lowercase(), number: number.to_owned() })
    }
}

/// The zones of the topologies, in their order; of the two keys Kubernetes' own comes first, as in the Go driver.
/// With a region, only its zones.
pub(super) fn zones_of(topologies: &[Segments], region: Option<&str>) -> Vec<Zone> {
    let region = region.map(canonical_region);
    topologies
        .iter()
        .flat_map(|segments| [WELL_KNOWN_TOPOLOGY_KEY, DISK_TOPOLOGY_KEY].map(|key| segments.get(key)))
        .flatten()
        .filter_map(|label| Zone::parse(label))
        .filter(|zone| region.as_ref().is_none_or(|region| zone.region == *region))
        .collect()
}

/// Where a disk in these zones can be used: in its zone, or on nodes without a zone.
pub(super) fn accessible(region: &str, zones: &[String]) -> Vec<Segments> {
    if zones.is_empty() {
        return vec![segment(String::new())];
    }
    zones.iter().map(|number| segment(zone_label(region, number))).collect()
}

/// Where a zone-redundant disk can be used: in every zone of its region, and on nodes without a zone.
pub(super) fn accessible_everywhere(region: &str) -> Vec<Segments> {
    (1..=ZONE_REDUNDANT_ZONES)
        .map(|number| segment(zone_label(region, &number.to_string())))
        .chain([segment(String::new())])
        .collect()
}

fn segment(value: String) -> Segments {
    BTreeMap::from([(DISK_TOPOLOGY_KEY.to_owned(), value)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(key: &str, value: &str) -> Segments {
        BTreeMap::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_zone_is_a_region_and_a_number() {
        for (label, zone) in [
            ("eastus2-1", Some(("eastus2", "1"))),
            ("EastUS2-3", Some(("eastus2", "3"))),
            ("", None),
            ("0", None),
            ("-1", None),
            ("eastus2-", None),
            ("eastus2-a", None),
            ("a-b-1", None),
        ] {
            let expected = zone.map(|(region, number)| Zone { region: region.into(), number: number.into() });
            assert_eq!(Zone::parse(label), expected, "{label:?}");
        }
        assert_eq!(zone_label("East US 2", "1"), "eastus2-1");
    }

    #[test]
    fn kubernetes_own_label_comes_before_the_drivers() {
        let both = [topology(DISK_TOPOLOGY_KEY, "eastus-1"), topology(WELL_KNOWN_TOPOLOGY_KEY, "eastus-2")];
        let both: Segments = both.into_iter().flatten().collect();
        assert_eq!(zones_of(&[both], None)[0].number, "2");
    }

    #[test]
    fn zones_of_other_regions_are_passed_over() {
        let topologies = [
            topology(DISK_TOPOLOGY_KEY, "westus-1"),
            topology(WELL_KNOWN_TOPOLOGY_KEY, "eastus-2"),
            topology("other", "eastus-3"),
        ];
        let numbers =
            |region| -> Vec<String> { zones_of(&topologies, region).into_iter().map(|zone| zone.number).collect() };
        assert_eq!(numbers(None), ["1", "2"]);
        assert_eq!(numbers(Some("EASTUS")), ["2"]);
    }
}
