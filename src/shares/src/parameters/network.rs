//! How an account is reached: from everywhere, from some subnets, or by a private endpoint.

use lazuli_model::{
    ArmId,
    parameter::{Parameter, ParameterError, Parameters},
};

use super::Defaults;

/// How an account is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// As Azure makes accounts; any account fits.
    Any,
    /// From these subnets alone; none of them is empty.
    Subnets(Vec<ArmId>),
    /// By a private endpoint: `{account}.privatelink.file.{suffix}`.
    Private,
}

/// What a class says of the network.
pub(super) fn endpoint(parameters: &Parameters<'_>, defaults: &Defaults) -> Result<Endpoint, ParameterError> {
    let kind = parameters.get("networkendpointtype");
    let subnets = parameters.get("subnetname");
    let is = |name: &str| kind.is_some_and(|kind| kind.value.eq_ignore_ascii_case(name));
    if let Some(zone) = parameters.get("privatednszoneresourcegroup")
        && !is("privateEndpoint")
    {
        return Err(zone.refuse("it belongs to networkEndpointType: privateEndpoint, which the class does not say"));
    }
    match kind {
        None => Ok(Endpoint::Any),
        Some(_) if is("privateEndpoint") => match subnets {
            Some(subnets) if subnets.value.contains(',') => {
                Err(subnets.refuse("a private endpoint is in one subnet; allowed is one name"))
            }
            _ => Ok(Endpoint::Private),
        },
        Some(kind) if is("serviceEndpoint") => service_subnets(parameters, kind, defaults).map(Endpoint::Subnets),
        Some(kind) => Err(kind.refuse("allowed are privateEndpoint, serviceEndpoint, and to leave it out")),
    }
}

fn service_subnets(
    parameters: &Parameters<'_>,
    kind: Parameter<'_>,
    defaults: &Defaults,
) -> Result<Vec<ArmId>, ParameterError> {
    let or = |folded: &str, default: &str| {
        parameters.get(folded).map_or_else(|| default.to_owned(), |parameter| parameter.value.trim().to_owned())
    };
    let cluster_group = match defaults.vnet_resource_group.as_str() {
        "" => defaults.resource_group.as_str(),
        group => group,
    };
    let group = or("vnetresourcegroup", cluster_group);
    let vnet = or("vnetname", &defaults.vnet_name);
    let named = or("subnetname", &defaults.subnet_name);
    let mut found = Vec::new();
    for name in named.split(',').map(str::trim) {
        let id = ArmId::resource(&defaults.subscription, &group, "Microsoft.Network/virtualNetworks", &vnet)
            .and_then(|vnet| format!("{vnet}/subnets/{name}").parse::<ArmId>())
            .ok()
            .filter(|id| !name.contains('/') && id.is_type("Microsoft.Network/virtualNetworks/subnets"));
        match id {
            Some(id) if !found.contains(&id) => found.push(id),
            Some(_) => {}
            None => {
                return Err(kind.refuse(format!(
                    "it needs a subnet, and vnetResourceGroup {group:?}, vnetName {vnet:?} and subnetName {name:?} of \
                     class and cloud configuration name none"
                )));
            }
        }
    }
    Ok(found)
}
