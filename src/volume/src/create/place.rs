//! Where a disk is made: subscription, resource group, region and zone.

use std::collections::BTreeSet;

use lazuli_model::{
    ArmId, ArmIdError, SkuName,
    disk_spec::{canonical_region, is_region_name},
    parameter::{Parameter, ParameterError, Parameters},
    template::Templates,
};

use super::{Defaults, Request};
use crate::{
    name, sku,
    zone::{self, Segments, Zone},
};

pub(crate) fn disk_id(
    request: &Request,
    parameters: &Parameters<'_>,
    templates: &Templates<'_>,
    defaults: &Defaults,
    warnings: &mut Vec<String>,
) -> Result<ArmId, ParameterError> {
    let subscription = parameters.get("subscriptionid");
    let group = parameters.get("resourcegroup");
    if let (Some(parameter), None) = (subscription, group)
        && !parameter.value.eq_ignore_ascii_case(&defaults.subscription)
    {
        return Err(parameter.refuse(format!(
            "another subscription than the cluster's ({}) is allowed only together with resourceGroup, which is not given",
            defaults.subscription
        )));
    }
    let disk_name = parameters.get("diskname");
    let name = name::disk_name(&request.name, disk_name, templates)?;
    if let Some(parameter) = disk_name
        && templates.fill(parameter.value) == parameter.value
    {
        warnings.push(format!(
            "parameter {} is {:?} for every volume of its class; ${{pvc.metadata.name}} would give each its own disk",
            parameter.key, parameter.value
        ));
    }
    let default = (defaults.subscription.as_str(), defaults.resource_group.as_str());
    resource_id(parameters, default, defaults, |subscription, group| ArmId::disk(subscription, group, &name))
}

/// The id of what a class makes: in the subscription and resource group that its parameters name, else in those of
/// `default`.
pub(crate) fn resource_id(
    parameters: &Parameters<'_>,
    default: (&str, &str),
    defaults: &Defaults,
    build: impl Fn(&str, &str) -> Result<ArmId, ArmIdError>,
) -> Result<ArmId, ParameterError> {
    let (subscription, group) = (parameters.get("subscriptionid"), parameters.get("resourcegroup"));
    let subscription_id = subscription.map_or(default.0, |parameter| parameter.value);
    let group_name = group.map_or(default.1, |parameter| parameter.value);
    // Which of the two is wrong is found by trying each beside a sound one.
    if build("s", group_name).is_err() {
        let rule = "allowed is the name of a resource group: letters, digits, '_', '.', '-', '(' and ')'";
        return Err(group.map_or_else(
            || ParameterError::invalid("resourceGroup", group_name, rule),
            |parameter| parameter.refuse(rule),
        ));
    }
    let id = build(subscription_id, group_name).map_err(|_| {
        let rule = "allowed is the id of a subscription";
        subscription.map_or_else(
            || ParameterError::invalid("subscriptionID", subscription_id, rule),
            |parameter| parameter.refuse(rule),
        )
    })?;
    // Without either parameter it is the default group, which a class does not choose.
    if let Some(parameter) = group.or(subscription)
        && let Err(allowed) = defaults
            .allowed_resource_groups
            .check((subscription_id, group_name), (&defaults.subscription, &defaults.resource_group))
    {
        return Err(parameter.refuse(allowed));
    }
    Ok(id)
}

/// Refuses what a snapshot or a copy is made of where the operator does not allow its resource group: its content would
/// come out of there.
pub(crate) fn check_source_group(parameter: &str, source: &ArmId, defaults: &Defaults) -> Result<(), ParameterError> {
    defaults
        .allowed_resource_groups
        .check((source.subscription(), source.resource_group()), (&defaults.subscription, &defaults.resource_group))
        .map_err(|allowed| ParameterError::invalid(parameter, source, allowed))
}

/// The region that a class names. A text that is no name of a region is refused before anything is sent.
pub(crate) fn location<'p>(parameters: &Parameters<'p>) -> Result<Option<Parameter<'p>>, ParameterError> {
    match parameters.get("location") {
        Some(parameter) if !is_region_name(parameter.value) => Err(parameter.refuse(
            "allowed is the name of a region, of letters and digits, such as westeurope or \"West Europe\"; az account \
             list-locations lists them",
        )),
        found => Ok(found),
    }
}

/// Where a disk is made, and where it can be used.
pub(crate) struct Place {
    pub(crate) location: String,
    pub(crate) zones: Vec<String>,
    pub(crate) zones_accepted: BTreeSet<String>,
    pub(crate) accessible_topology: Vec<Segments>,
}

/// Where the copy of a source must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Pin {
    /// In this region, in any zone; in any region where the source is gone.
    Region(Option<String>),
    /// In this zone of this region, or else it is no direct copy.
    Zone(Zone),
    /// In this region, which is that of the storage account that it is imported from (source: Azure's own sample of an
    /// import).
    OfAccount(String),
}

impl Pin {
    fn region(&self) -> Option<&str> {
        match self {
            Self::Region(region) => region.as_deref(),
            Self::Zone(zone) => Some(&zone.region),
            Self::OfAccount(region) => Some(region),
        }
    }
}

/// Region and zone: of the preferred topologies, then of the requisite ones, the first zone of the wanted region.
/// Without the parameter `location` any region's zone will do, and the disk is made in that region. A copy of a disk is
/// made in the zone of that disk, where the request takes it.
pub(crate) fn place(
    request: &Request,
    parameters: &Parameters<'_>,
    sku_name: SkuName,
    defaults: &Defaults,
    pin: Option<&Pin>,
) -> Result<Place, ParameterError> {
    let wanted = location(parameters)?.map(|parameter| parameter.value);
    let requisite = zone::zones_of(&request.requisite, wanted);
    let preferred = zone::zones_of(&request.preferred, wanted);
    let pinned = pin.and_then(|pin| pinned_zone(pin, request, &requisite, &preferred, wanted));
    let picked = pinned.or_else(|| preferred.into_iter().next()).or_else(|| requisite.first().cloned());
    let location = match (wanted, &picked) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, Some(zone)) if zone.region != canonical_region(&defaults.location) => zone.region.clone(),
        (None, _) => defaults.location.clone(),
    };
    if location.is_empty() {
        return Err(ParameterError::invalid("location", "", "allowed is the name of a region, and none is configured"));
    }
    if let Some(region) = pin.and_then(Pin::region)
        && canonical_region(region) != canonical_region(&location)
    {
        if let Some(Pin::OfAccount(_)) = pin {
            let why = format!(
                "the storage account of the blob is in {region}, and Azure imports within a region, while this volume is to be \
                 in {location}; allowed is {region}, or a copy of the blob in a storage account in {location}"
            );
            return Err(match parameters.get("location") {
                Some(parameter) => parameter.refuse(why),
                None => ParameterError::invalid("volume_content_source", region, why),
            });
        }
        let why = format!("the source of the copy is in {region}, and Azure copies within a region");
        return Err(match parameters.get("location") {
            Some(parameter) => parameter.refuse(format!(
                "{why}; allowed is {region}, or a snapshot that its VolumeSnapshotClass's location has put into this region"
            )),
            None => ParameterError::invalid(
                "volume_content_source",
                region,
                format!(
                    "{why}, while this volume is to be in {location}; allowed is a source in {location}, and a snapshot in \
                     {region} is restored by a cluster there"
                ),
            ),
        });
    }
    if sku::is_zone_redundant(sku_name) {
        let accessible_topology = zone::accessible_everywhere(&location);
        return Ok(Place { location, zones: Vec::new(), zones_accepted: BTreeSet::new(), accessible_topology });
    }
    let zones: Vec<String> = picked.iter().map(|zone| zone.number.clone()).collect();
    let region = picked.as_ref().map(|zone| zone.region.as_str());
    let zones_accepted =
        requisite.iter().filter(|zone| Some(zone.region.as_str()) == region).map(|zone| zone.number.clone()).collect();
    let accessible_topology = zone::accessible(&location, &zones);
    Ok(Place { location, zones, zones_accepted, accessible_topology })
}

/// The zone of the source, where the request takes a disk there. A request that names no topology takes any.
fn pinned_zone(
    pin: &Pin,
    request: &Request,
    requisite: &[Zone],
    preferred: &[Zone],
    wanted: Option<&str>,
) -> Option<Zone> {
    let Pin::Zone(zone) = pin else { return None };
    let takes_any = request.requisite.is_empty() && request.preferred.is_empty();
    let accepted = if request.requisite.is_empty() { preferred } else { requisite };
    let is_wanted = wanted.is_none_or(|wanted| canonical_region(wanted) == zone.region);
    (is_wanted && (takes_any || accepted.contains(zone))).then(|| zone.clone())
}
