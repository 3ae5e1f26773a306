//! The SKUs of storage accounts, and which kinds of account have them. Documented (storage-account-overview, the types of
//! the published specification).

use serde_json::{Value, json};

/// How an account pays for files, which decides the sizes of its shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    /// What is used is paid.
    PayAsYouGo,
    /// `Premium_*`: the size is paid, and decides the speed.
    ProvisionedV1,
    /// `StandardV2_*`: size, operations and throughput are paid apart.
    StandardV2,
    /// `PremiumV2_*`: the same on SSD.
    PremiumV2,
}

/// A SKU.
pub(super) struct Sku {
    pub(super) name: &'static str,
    kinds: &'static [&'static str],
    pub(super) media: Media,
    /// Whether there is a copy in another region, and whether it can be read.
    pub(super) secondary: Secondary,
}

/// A copy in another region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Secondary {
    None,
    Hidden,
    Readable,
}

const fn sku(name: &'static str, kinds: &'static [&'static str], media: Media, secondary: Secondary) -> Sku {
    Sku { name, kinds, media, secondary }
}

const GENERAL: &[&str] = &["Storage", "StorageV2", "BlobStorage"];
const WITHOUT_BLOB: &[&str] = &["Storage", "StorageV2"];
const V2: &[&str] = &["StorageV2"];
const PREMIUM: &[&str] = &["FileStorage", "BlockBlobStorage", "StorageV2", "Storage"];
const FILES: &[&str] = &["FileStorage"];

const SKUS: [Sku; 14] = [
    sku("Standard_LRS", GENERAL, Media::PayAsYouGo, Secondary::None),
    sku("Standard_GRS", GENERAL, Media::PayAsYouGo, Secondary::Hidden),
    sku("Standard_RAGRS", GENERAL, Media::PayAsYouGo, Secondary::Readable),
    sku("Standard_ZRS", WITHOUT_BLOB, Media::PayAsYouGo, Secondary::None),
    sku("Standard_GZRS", V2, Media::PayAsYouGo, Secondary::Hidden),
    sku("Standard_RAGZRS", V2, Media::PayAsYouGo, Secondary::Readable),
    sku("Premium_LRS", PREMIUM, Media::ProvisionedV1, Secondary::None),
    // Documented for premium page blobs since; a refusal of 2020 with StorageV2 is terraform-provider-azurerm#8089.
    sku("Premium_ZRS", &["FileStorage", "BlockBlobStorage", "StorageV2"], Media::ProvisionedV1, Secondary::None),
    sku("StandardV2_LRS", FILES, Media::StandardV2, Secondary::None),
    sku("StandardV2_GRS", FILES, Media::StandardV2, Secondary::Hidden),
    sku("StandardV2_ZRS", FILES, Media::StandardV2, Secondary::None),
    sku("StandardV2_GZRS", FILES, Media::StandardV2, Secondary::Hidden),
    sku("PremiumV2_LRS", FILES, Media::PremiumV2, Secondary::None),
    sku("PremiumV2_ZRS", FILES, Media::PremiumV2, Secondary::None),
];

const KINDS: [&str; 5] = ["Storage", "StorageV2", "BlobStorage", "FileStorage", "BlockBlobStorage"];

/// A SKU by name, in any letter case.
pub(super) fn find(name: &str) -> Option<&'static Sku> {
    SKUS.iter().find(|sku| sku.name.eq_ignore_ascii_case(name))
}

/// A kind as Azure spells it.
pub(super) fn kind(name: &str) -> Option<&'static str> {
    KINDS.into_iter().find(|kind| kind.eq_ignore_ascii_case(name))
}

/// The SKU of an account.
pub(super) fn of(account: &Value) -> &'static Sku {
    let name = account["sku"]["name"].as_str().unwrap_or("");
    find(name).unwrap_or(&SKUS[0])
}

impl Sku {
    pub(super) fn takes(&self, kind: &str) -> bool {
        self.kinds.contains(&kind)
    }

    fn tier(&self) -> &'static str {
        if self.name.starts_with("Premium") { "Premium" } else { "Standard" }
    }

    /// As an account shows it.
    pub(super) fn shown(&self) -> Value {
        json!({"name": self.name, "tier": self.tier()})
    }
}

/// The services that an account of a kind has endpoints of. Recorded for `Storage`, documented for the others.
pub(super) fn services(kind: &str, sku: &Sku) -> &'static [&'static str] {
    match (kind, sku.media) {
        ("FileStorage", _) => &["file"],
        ("BlockBlobStorage", _) => &["dfs", "web", "blob"],
        ("BlobStorage", _) => &["dfs", "blob", "table"],
        // Premium page blobs; that there is nothing else is documented.
        (_, Media::ProvisionedV1) => &["web", "blob"],
        ("Storage", _) => &["blob", "queue", "table", "file"],
        _ => &["dfs", "web", "blob", "queue", "table", "file"],
    }
}

/// Whether an account has a file service.
pub(super) fn has_files(account: &Value) -> bool {
    services(account["kind"].as_str().unwrap_or(""), of(account)).contains(&"file")
}

/// Whether an account has a blob service.
pub(crate) fn has_blobs(account: &Value) -> bool {
    services(account["kind"].as_str().unwrap_or(""), of(account)).contains(&"blob")
}

/// Whether an account takes page blobs. Documented.
pub(crate) fn has_page_blobs(account: &Value) -> bool {
    !matches!(account["kind"].as_str(), Some("BlobStorage" | "BlockBlobStorage"))
}

/// Whether an account takes block blobs. Documented: a Premium one of general purpose does not.
pub(crate) fn has_block_blobs(account: &Value) -> bool {
    !has_page_blobs(account) || of(account).media != Media::ProvisionedV1
}

/// The other region of a pair. Documented (regions-paired), as far as it is emulated.
pub(super) fn paired(location: &str) -> Option<&'static str> {
    const PAIRS: [(&str, &str); 19] = [
        ("eastus", "westus"),
        ("eastus2", "centralus"),
        ("westus2", "westcentralus"),
        ("northcentralus", "southcentralus"),
        ("westeurope", "northeurope"),
        ("uksouth", "ukwest"),
        ("francecentral", "francesouth"),
        ("germanywestcentral", "germanynorth"),
        ("switzerlandnorth", "switzerlandwest"),
        ("norwayeast", "norwaywest"),
        ("swedencentral", "swedensouth"),
        ("southeastasia", "eastasia"),
        ("australiaeast", "australiasoutheast"),
        ("japaneast", "japanwest"),
        ("koreacentral", "koreasouth"),
        ("canadacentral", "canadaeast"),
        ("centralindia", "southindia"),
        ("southafricanorth", "southafricawest"),
        ("uaenorth", "uaecentral"),
    ];
    if location == "westus3" {
        return Some("eastus");
    }
    PAIRS.iter().find_map(|(one, other)| match location {
        location if location == *one => Some(*other),
        location if location == *other => Some(*one),
        _ => None,
    })
}
