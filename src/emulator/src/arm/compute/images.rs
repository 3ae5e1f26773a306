//! The catalogue of images, by which people's tools turn `latest` into a version before they make a machine.
//!
//! Documented: the paths and the shape of the answers; recorded in public trackers: the refusal of what is not there. The
//! images are a few that tools name by default; that a machine is made of one of them is not asked for.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::arm::regions;
use crate::{fault, path};

/// Where the parts of a path are, after the namespace.
const LOCATION: usize = 1;
const PUBLISHER: usize = 3;
const OFFER: usize = 7;
const SKU: usize = 9;
const VERSION: usize = 11;

/// A publisher's image: offer, SKU, system, and versions, oldest first.
struct Image {
    publisher: &'static str,
    offer: &'static str,
    sku: &'static str,
    system: &'static str,
    versions: [&'static str; 2],
}

impl Image {
    fn names(&self, version: &'static str) -> [&'static str; 4] {
        [self.publisher, self.offer, self.sku, version]
    }
}

const fn linux(publisher: &'static str, offer: &'static str, sku: &'static str, versions: [&'static str; 2]) -> Image {
    Image { publisher, offer, sku, system: "Linux", versions }
}

const fn windows(sku: &'static str, versions: [&'static str; 2]) -> Image {
    Image { publisher: "MicrosoftWindowsServer", offer: "WindowsServer", sku, system: "Windows", versions }
}

/// The images behind the aliases of the Azure CLI (documented), and those that examples of Ansible and Terraform name.
const IMAGES: [Image; 15] = [
    linux("Canonical", "ubuntu-24_04-lts", "server", ["24.04.202407010", "24.04.202411030"]),
    linux("Canonical", "ubuntu-24_04-lts", "server-gen1", ["24.04.202407010", "24.04.202411030"]),
    linux("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts", ["22.04.202407010", "22.04.202411010"]),
    linux("Canonical", "0001-com-ubuntu-server-jammy", "22_04-lts-gen2", ["22.04.202407010", "22.04.202411010"]),
    linux("Canonical", "0001-com-ubuntu-server-focal", "20_04-lts", ["20.04.202405010", "20.04.202410280"]),
    linux("Debian", "debian-11", "11-backports-gen2", ["0.20240717.1811", "0.20241004.1890"]),
    linux("Debian", "debian-12", "12-gen2", ["0.20240717.1811", "0.20241004.1890"]),
    linux("RedHat", "RHEL", "8-lvm-gen2", ["8.9.2024052112", "8.10.2024101812"]),
    linux("OpenLogic", "CentOS", "8_5-gen2", ["8.5.2022012101", "8.5.2022101401"]),
    linux("almalinux", "almalinux-x86_64", "9-gen2", ["9.3.2024022901", "9.4.2024080501"]),
    linux("SUSE", "sles-15-sp5", "gen2", ["2024.06.21", "2024.10.15"]),
    linux("kinvolk", "flatcar-container-linux-free", "stable-gen2", ["3975.2.0", "4081.2.0"]),
    windows("2022-datacenter-g2", ["20348.2582.240703", "20348.2849.241101"]),
    windows("2019-datacenter-gensecond", ["17763.6054.240703", "17763.6532.241101"]),
    windows("2016-datacenter-gensecond", ["14393.7155.240703", "14393.7515.241101"]),
];

/// `virtualMachineImages.listPublishers`.
pub(crate) fn publishers(context: &mut Context<'_>) -> Reply {
    listed(context, 0, |image| vec![image.publisher])
}

/// `virtualMachineImages.listOffers`.
pub(crate) fn offers(context: &mut Context<'_>) -> Reply {
    listed(context, 1, |image| vec![image.publisher, image.offer])
}

/// `virtualMachineImages.listSkus`.
pub(crate) fn skus(context: &mut Context<'_>) -> Reply {
    listed(context, 2, |image| vec![image.publisher, image.offer, image.sku])
}

/// The images that the first so many parts of the request name. Names count in any case.
fn named(context: &Context<'_>, parts: usize) -> Result<Vec<&'static Image>, fault::Fault> {
    regions::check(&path::location(context.request.segment(LOCATION)), "locations/publishers")?;
    let is_named = |image: &&Image| {
        let of_image = [(PUBLISHER, image.publisher), (OFFER, image.offer), (SKU, image.sku)];
        of_image.iter().take(parts).all(|(at, name)| context.request.segment(*at).eq_ignore_ascii_case(name))
    };
    let found: Vec<_> = IMAGES.iter().filter(is_named).collect();
    if found.is_empty() { Err(fault::artifact_not_found()) } else { Ok(found) }
}

/// What the images are called down to the next part, each name once.
fn listed(context: &Context<'_>, parts: usize, names: fn(&Image) -> Vec<&'static str>) -> Reply {
    let names: BTreeSet<Vec<&str>> = named(context, parts)?.into_iter().map(names).collect();
    Ok(answer(context, names.iter()))
}

/// `virtualMachineImages.list`. `$top` and `$orderby=name desc` count, as documented.
pub(crate) fn versions(context: &mut Context<'_>) -> Reply {
    let of_image = |image: &'static Image| image.versions.map(|version| image.names(version));
    let mut names: Vec<[&str; 4]> = named(context, 3)?.into_iter().flat_map(of_image).collect();
    let query = |name: &str| context.request.query.get(name).map(String::as_str);
    if query("$orderby").is_some_and(|order| order.to_ascii_lowercase().ends_with(" desc")) {
        names.reverse();
    }
    if let Some(top) = query("$top") {
        let most = top.parse().map_err(|_| fault::bad_request(format!("The value '{top}' of $top is no number.")))?;
        names.truncate(most);
    }
    Ok(answer(context, names.iter()))
}

/// `virtualMachineImages.get`.
pub(crate) fn version(context: &mut Context<'_>) -> Reply {
    let wanted = context.request.segment(VERSION);
    let is_wanted = |image: &'static Image| {
        let version = image.versions.into_iter().find(|version| version.eq_ignore_ascii_case(wanted))?;
        Some((image, version))
    };
    let found = named(context, 3)?.into_iter().find_map(is_wanted);
    let Some((image, version)) = found else { return Err(fault::artifact_not_found()) };
    let mut shown = entry(context, &image.names(version));
    let is_second = image.sku.ends_with("gen2") || image.sku.ends_with("g2") || image.sku == "server";
    shown["properties"] = json!({
        "osDiskImage": {"operatingSystem": image.system},
        "dataDiskImages": [],
        "hyperVGeneration": if is_second { "V2" } else { "V1" },
        "architecture": "x64",
        "automaticOSUpgradeProperties": {"automaticOSUpgradeSupported": false},
    });
    Ok(Answer::json(200, shown))
}

/// Documented: an array without an envelope.
fn answer<'a>(context: &Context<'_>, names: impl Iterator<Item = impl AsRef<[&'a str]>>) -> Answer {
    Answer::json(200, names.map(|names| entry(context, names.as_ref())).collect::<Value>())
}

/// What a list shows of what these names lead to. The words of its id are documented, capitals and all.
fn entry(context: &Context<'_>, names: &[&str]) -> Value {
    const WORDS: [&str; 4] = ["Publishers", "ArtifactTypes/VMImage/Offers", "Skus", "Versions"];
    let location = path::location(context.request.segment(LOCATION));
    let subscription = &context.request.path.subscription;
    let mut id = format!("/Subscriptions/{subscription}/Providers/Microsoft.Compute/Locations/{location}");
    for (word, name) in WORDS.iter().zip(names) {
        id.push_str(&format!("/{word}/{name}"));
    }
    json!({"location": location, "name": names.last(), "id": id})
}
