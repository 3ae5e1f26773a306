//! The parameters of a StorageClass row by row, and each known defect of the Go driver as a sentence.

mod create;
mod expanding;
mod parameters;
mod places;
mod publishing;
mod repeated;
mod sizes;
mod staging;

use std::collections::BTreeMap;

use lazuli_model::disk_spec::{
    CreateOption, DiskSpec, EncryptionType, Mismatch, NamedBy, NetworkAccessPolicy, Origin, PublicNetworkAccess,
};
use lazuli_model::{ArmId, CachingMode, Disk, DiskState, Gib, Lun, ProvisioningState, SkuName};
use proptest::prelude::*;

use super::*;

const GIB: i64 = 1 << 30;
const DES: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskEncryptionSets/keys";
const ACCESS: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/diskAccesses/door";

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn map(pairs: Pairs<'_>) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn defaults() -> Defaults {
    Defaults {
        subscription: "sub".to_owned(),
        resource_group: "rg".to_owned(),
        location: "eastus".to_owned(),
        extended_location: None,
        cloud: Cloud::Public,
        allowed_resource_groups: AllowedResourceGroups::Any,
    }
}

fn stack() -> Defaults {
    Defaults { cloud: Cloud::AzureStack, ..defaults() }
}

fn request(pairs: Pairs<'_>) -> Request {
    Request {
        name: "pvc-1".to_owned(),
        parameters: map(pairs),
        required_bytes: 10 * GIB,
        capabilities: vec![Capability::mounted()],
        ..Request::default()
    }
}

fn sized(gib: i64, pairs: Pairs<'_>) -> Request {
    Request { required_bytes: gib * GIB, ..request(pairs) }
}

fn plan_of(request: &Request) -> CreatePlan {
    plan_create(request, &defaults()).unwrap()
}

fn plan(pairs: Pairs<'_>) -> CreatePlan {
    plan_of(&request(pairs))
}

fn spec(pairs: Pairs<'_>) -> DiskSpec {
    plan(pairs).spec
}

/// The error of a request, which must name this parameter, its value and something that is allowed.
fn refused_of(request: &Request, defaults: &Defaults, parameter: &str) -> ParameterError {
    let error = plan_create(request, defaults).unwrap_err();
    let value = request.parameters.get(parameter).map_or("", String::as_str);
    assert_eq!((error.parameter.as_str(), error.value.as_str()), (parameter, value), "{error}");
    assert_eq!(error.kind(), ParameterErrorKind::InvalidArgument, "{error}");
    let text = error.to_string();
    assert!(text.contains(parameter) && text.contains(&format!("{value:?}")), "{text}");
    assert!(!error.allowed.is_empty() && !text.contains('\n'), "{text}");
    error
}

fn refused(pairs: Pairs<'_>, parameter: &str) -> ParameterError {
    refused_of(&request(pairs), &defaults(), parameter)
}

fn segments(pairs: Pairs<'_>) -> Vec<BTreeMap<String, String>> {
    pairs.iter().map(|pair| map(&[*pair])).collect()
}

/// The disk that Azure would have made of a plan.
fn made(plan: &CreatePlan) -> Disk {
    let spec = &plan.spec;
    Disk {
        id: plan.disk.clone(),
        location: spec.location.clone(),
        zones: spec.zones.clone(),
        sku: Some(spec.sku),
        size: spec.size,
        state: Some(DiskState::Unattached),
        provisioning_state: ProvisioningState::Succeeded,
        managed_by: None,
        managed_by_extended: Vec::new(),
        ownership_changed: None,
        max_shares: spec.max_shares,
        disk_encryption_set: spec.disk_encryption_set.clone(),
        tags: spec.tags.clone(),
        iops: spec.iops,
        mbps: spec.mbps,
        logical_sector_size: spec.logical_sector_size,
        network_access_policy: spec.network_access_policy.map(|policy| policy.to_string()),
        source: None,
        source_unique_id: None,
        unique_id: None,
        bytes: None,
        completion: None,
    }
}

/// Parameters that a class may well have, each with values of which some are good.
fn likely() -> impl Strategy<Value = BTreeMap<String, String>> {
    const VALUES: [(&str, &[&str]); 16] = [
        ("skuName", &["Premium_LRS", "UltraSSD_LRS", "PremiumV2_LRS", "Premium_ZRS", "premium"]),
        ("cachingMode", &["None", "ReadOnly", "ReadWrite", "off"]),
        ("kind", &["Managed", "Shared"]),
        ("location", &["eastus", "WestUS"]),
        ("resourceGroup", &["rg", "g/h"]),
        ("subscriptionID", &["sub", "other"]),
        ("maxShares", &["1", "2", "99", "x"]),
        ("DiskIOPSReadWrite", &["500", "3000", "1000000"]),
        ("DiskMBpsReadWrite", &["100", "0"]),
        ("LogicalSectorSize", &["512", "513"]),
        ("tags", &["a=b", "a=b,c=d", "x"]),
        ("networkAccessPolicy", &["AllowAll", "AllowPrivate"]),
        ("perfProfile", &["none", "basic", "advanced"]),
        ("enableBursting", &["true", "false"]),
        ("writeAcceleratorEnabled", &["true", "false"]),
        ("diskName", &["d", "${pvc.metadata.name}", "d!"]),
    ];
    proptest::sample::subsequence(VALUES.to_vec(), 0..=4).prop_flat_map(|rows| {
        rows.into_iter()
            .map(|(key, values)| proptest::sample::select(values).prop_map(move |v| (key.to_owned(), v.to_owned())))
            .collect::<Vec<_>>()
            .prop_map(|pairs| pairs.into_iter().collect())
    })
}

fn respelled(map: &BTreeMap<String, String>, upper: &[bool]) -> BTreeMap<String, String> {
    let mut upper = upper.iter().cycle();
    map.iter()
        .map(|(key, value)| {
            let key = key
                .chars()
                .map(|c| if *upper.next().unwrap() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() })
                .collect();
            (key, value.clone())
        })
        .collect()
}

/// A result without the spelling of keys, which is the user's and is kept.
fn folded(result: Result<CreatePlan, ParameterError>) -> Result<CreatePlan, (String, String)> {
    let fold = |map: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        map.iter().map(|(key, value)| (key.to_ascii_lowercase(), value.clone())).collect()
    };
    match result {
        Ok(plan) => Ok(CreatePlan {
            volume_context: fold(&plan.volume_context),
            warnings: plan.warnings.iter().map(|warning| warning.to_ascii_lowercase()).collect(),
            ..plan
        }),
        Err(error) => Err((error.parameter.to_ascii_lowercase(), error.value)),
    }
}

#[test]
fn the_order_of_capabilities_and_requisite_zones_changes_no_plan() {
    let mut capabilities = vec![Capability::mounted(), Capability::block(AccessMode::SingleNodeWriter)];
    let mut requisite = segments(&[(DISK_TOPOLOGY_KEY, "eastus-1"), (DISK_TOPOLOGY_KEY, "eastus-2")]);
    let preferred = segments(&[(DISK_TOPOLOGY_KEY, "eastus-2")]);
    let first = Request { capabilities: capabilities.clone(), requisite: requisite.clone(), preferred, ..request(&[]) };
    capabilities.reverse();
    requisite.reverse();
    let second = Request { capabilities, requisite, ..first.clone() };
    assert_eq!(plan_of(&first), plan_of(&second));
}

proptest! {
    #[test]
    fn the_case_of_keys_changes_no_plan(parameters in likely(), upper in proptest::collection::vec(any::<bool>(), 1..64)) {
        let request = Request { parameters: parameters.clone(), ..request(&[]) };
        let other = Request { parameters: respelled(&parameters, &upper), ..request.clone() };
        prop_assert_eq!(folded(plan_create(&request, &defaults())), folded(plan_create(&other, &defaults())));
    }

    #[test]
    fn the_same_request_gives_the_same_plan(parameters in likely()) {
        let request = Request { parameters, ..request(&[]) };
        prop_assert_eq!(plan_create(&request, &defaults()), plan_create(&request.clone(), &defaults()));
    }

    #[test]
    fn it_does_not_matter_which_class_says_it(parameters in likely(), to_mutable in proptest::collection::vec(any::<bool>(), 16)) {
        let together = Request { parameters: parameters.clone(), ..request(&[]) };
        let (mutable, fixed): (Vec<_>, Vec<_>) = parameters.into_iter().zip(to_mutable).partition(|(_, mutable)| *mutable);
        let apart = Request {
            parameters: fixed.into_iter().map(|(pair, _)| pair).collect(),
            mutable_parameters: mutable.into_iter().map(|(pair, _)| pair).collect(),
            ..together.clone()
        };
        prop_assert_eq!(plan_create(&together, &defaults()), plan_create(&apart, &defaults()));
    }

    #[test]
    fn whatever_is_refused_is_named_with_its_value(
        key in proptest::sample::select(vec![
            "skuName", "storageAccountType", "cachingMode", "maxShares", "DiskIOPSReadWrite", "DiskMBpsReadWrite",
            "LogicalSectorSize", "tags", "diskName", "diskEncryptionSetID", "diskEncryptionType", "fsType",
            "networkAccessPolicy", "publicNetworkAccess", "diskAccessID", "perfProfile", "resourceGroup",
            "subscriptionID", "attachDiskInitialDelay", "enablePerformancePlus", "enableBursting", "nonsense",
            "device-setting/..", "storageAccount",
        ]),
        value in "\\PC{0,40}",
    ) {
        if let Err(error) = plan_create(&request(&[(key, &value)]), &defaults()) {
            prop_assert_eq!(&error.parameter, key);
            prop_assert_eq!(&error.value, &value);
            let text = error.to_string();
            let quoted = format!("{value:?}");
            prop_assert!(text.contains(key) && text.contains(&quoted), "{}", text);
        }
    }

    #[test]
    fn a_plan_is_one_that_its_own_disk_matches(parameters in likely(), gib in 1_i64..5000) {
        let request = Request { parameters, required_bytes: gib * GIB, ..request(&[]) };
        if let Ok(plan) = plan_create(&request, &defaults()) {
            prop_assert!(plan.adopt(&made(&plan)).is_ok());
            prop_assert!(plan.size.bytes() >= request.required_bytes.unsigned_abs());
            prop_assert!(size_range(plan.spec.sku).contains(&plan.size));
        }
    }
}
