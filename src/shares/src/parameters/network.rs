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
    /// From these subnets alone; there is at least one.
    Subnets(Vec<ArmId>),
    /// By a private endpoint: `{account}.privatelink.file.{suffix}`.
    Private(Box<PrivateNetwork>),
}

/// Where private endpoints of a class are, and where their names are found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PrivateNetwork {
    /// The virtual network.
    pub network: ArmId,
    /// Its subnet in which the endpoints are.
    pub subnet: ArmId,
    /// The private DNS zone `privatelink.file.{suffix}`.
    pub zone: ArmId,
    /// The link of the zone to the network. One that exists may have another name.
    pub link: ArmId,
}

/// What a class says of the network. `suffix` is the domain of Azure's storage services for it.
pub(super) fn endpoint(
    parameters: &Parameters<'_>,
    defaults: &Defaults,
    suffix: &str,
    warnings: &mut Vec<String>,
) -> Result<Endpoint, ParameterError> {
    let kind = parameters.get("networkendpointtype");
    let is = |name: &str| kind.is_some_and(|kind| kind.value.eq_ignore_ascii_case(name));
    if let Some(zone) = parameters.get("privatednszoneresourcegroup")
        && !is("privateEndpoint")
    {
        return Err(zone.refuse("it belongs to networkEndpointType: privateEndpoint, which the class does not say"));
    }
    if let Some(link) = parameters.get("vnetlinkname")
        && !is("privateEndpoint")
    {
        let why = "it has no effect without networkEndpointType: privateEndpoint";
        warnings.push(format!("parameter {} is {:?}: {why}", link.key, link.value));
    }
    let reader = Reader { parameters, defaults };
    match kind {
        None => Ok(Endpoint::Any),
        Some(kind) if is("privateEndpoint") => {
            reader.private(kind, suffix).map(|network| Endpoint::Private(Box::new(network)))
        }
        Some(kind) if is("serviceEndpoint") => reader.subnets(kind).map(Endpoint::Subnets),
        Some(kind) => Err(kind.refuse("allowed are privateEndpoint, serviceEndpoint, and to leave it out")),
    }
}

struct Reader<'a, 'b> {
    parameters: &'b Parameters<'a>,
    defaults: &'b Defaults,
}

impl Reader<'_, '_> {
    /// A parameter, or what the cloud configuration says.
    fn or(&self, folded: &str, default: &str) -> String {
        self.parameters.get(folded).map_or_else(|| default.to_owned(), |parameter| parameter.value.trim().to_owned())
    }

    fn network_group(&self) -> String {
        let cluster = match self.defaults.vnet_resource_group.as_str() {
            "" => self.defaults.resource_group.as_str(),
            group => group,
        };
        self.or("vnetresourcegroup", cluster)
    }

    /// Refuses a resource group that the class names and that the operator has not allowed. Those of the cloud configuration
    /// are allowed.
    fn check_group(&self, folded: &str) -> Result<(), ParameterError> {
        let Some(parameter) = self.parameters.get(folded) else { return Ok(()) };
        let (group, defaults) = (parameter.value.trim(), self.defaults);
        if group.eq_ignore_ascii_case(&defaults.vnet_resource_group) {
            return Ok(());
        }
        let (named, cluster) = ((&*defaults.subscription, group), (&*defaults.subscription, &*defaults.resource_group));
        defaults.allowed_resource_groups.check(named, cluster).map_err(|allowed| parameter.refuse(allowed))
    }

    /// The subnets that class and cloud configuration name, each once.
    fn subnets(&self, kind: Parameter<'_>) -> Result<Vec<ArmId>, ParameterError> {
        self.check_group("vnetresourcegroup")?;
        let (group, vnet) = (self.network_group(), self.or("vnetname", &self.defaults.vnet_name));
        let named = self.or("subnetname", &self.defaults.subnet_name);
        let mut found = Vec::new();
        for name in named.split(',').map(str::trim) {
            let id = ArmId::resource(&self.defaults.subscription, &group, "Microsoft.Network/virtualNetworks", &vnet)
                .and_then(|vnet| format!("{vnet}/subnets/{name}").parse::<ArmId>())
                .ok()
                .filter(|id| !name.contains('/') && id.is_type("Microsoft.Network/virtualNetworks/subnets"));
            match id {
                Some(id) if !found.contains(&id) => found.push(id),
                Some(_) => {}
                None => {
                    return Err(kind.refuse(format!(
                        "it needs a subnet, and vnetResourceGroup {group:?}, vnetName {vnet:?} and subnetName {name:?} \
                         of class and cloud configuration name none"
                    )));
                }
            }
        }
        Ok(found)
    }

    fn private(&self, kind: Parameter<'_>, suffix: &str) -> Result<PrivateNetwork, ParameterError> {
        if let Some(subnets) = self.parameters.get("subnetname").filter(|subnets| subnets.value.contains(',')) {
            return Err(subnets.refuse("a private endpoint is in one subnet; allowed is one name"));
        }
        let subnets = self.subnets(kind)?;
        let (Some(subnet), Some(network)) = (subnets.first(), subnets.first().and_then(ArmId::parent)) else {
            return Err(kind.refuse("it needs a subnet"));
        };
        self.check_group("privatednszoneresourcegroup")?;
        let group = self.or("privatednszoneresourcegroup", network.resource_group());
        let zone_name = format!("privatelink.file.{suffix}");
        let zone =
            ArmId::resource(&self.defaults.subscription, &group, "Microsoft.Network/privateDnsZones", &zone_name)
                .map_err(|error| self.named("privatednszoneresourcegroup", kind).refuse(error.to_string()))?;
        let link_name = self.or("vnetlinkname", &format!("{}-vnetlink", network.name()));
        let link = format!("{zone}/virtualNetworkLinks/{link_name}").parse::<ArmId>().ok();
        let link = link
            .filter(|link| {
                !link_name.contains('/') && link.is_type("Microsoft.Network/privateDnsZones/virtualNetworkLinks")
            })
            .ok_or_else(|| self.named("vnetlinkname", kind).refuse("allowed is the name of a virtual network link"))?;
        Ok(PrivateNetwork { network, subnet: subnet.clone(), zone, link })
    }

    /// The parameter to name in a refusal: the one that was given, else the one that made it needed.
    fn named<'a>(&'a self, folded: &str, kind: Parameter<'a>) -> Parameter<'a> {
        self.parameters.get(folded).unwrap_or(kind)
    }
}
