//! The resource providers: which request goes to which handler.

pub(crate) mod availability_sets;
pub(crate) mod catalogue;
pub(crate) mod data_disks;
pub(crate) mod disk_access;
pub(crate) mod disk_plan;
pub(crate) mod disk_rules;
pub(crate) mod disk_work;
pub(crate) mod disks;
pub(crate) mod filter;
pub(crate) mod groups;
pub(crate) mod held;
pub(crate) mod instance_view;
pub(crate) mod kinds;
pub(crate) mod lists;
pub(crate) mod network;
pub(crate) mod polling;
pub(crate) mod providers;
pub(crate) mod quotas;
pub(crate) mod regions;
pub(crate) mod resources;
pub(crate) mod tags;
pub(crate) mod vm_create;
pub(crate) mod vm_power;
pub(crate) mod vm_work;
pub(crate) mod vms;
pub(crate) mod writes;

use crate::answer::{Context, Reply};
use crate::fault::{self, Fault};
use crate::path::ArmPath;
use crate::throttle::{self, Policy};

/// Where a request goes.
pub(crate) struct Route {
    /// The emulator's name of the operation.
    pub(crate) name: &'static str,
    pub(crate) handler: fn(&mut Context<'_>) -> Reply,
    /// The provider's bucket.
    pub(crate) policy: Option<Policy>,
    /// The type's name in gateway errors.
    pub(crate) kind: &'static str,
}

fn route(name: &'static str, handler: fn(&mut Context<'_>) -> Reply) -> Route {
    Route { name, handler, policy: None, kind: "" }
}

impl Route {
    fn limited(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    fn of(mut self, kind: &'static str) -> Self {
        self.kind = kind;
        self
    }
}

/// Finds the handler.
///
/// # Errors
///
/// The gateway's 404 for an unknown path or type, 405 for a method that the path does not take.
pub(crate) fn find(method: &str, path: &ArmPath, raw: &str, version: &str) -> Result<Route, Fault> {
    let lower = path.lower();
    let rest: Vec<&str> = lower.iter().map(String::as_str).collect();
    let provider = path.provider.as_ref().map(|p| p.to_ascii_lowercase());
    let found = match (provider.as_deref(), path.group.is_some()) {
        (Some(_), false) if matches!(rest[..], [] | ["register"]) => provider_routes(method, &rest),
        (None, _) => plain(method, path, &rest),
        (Some("microsoft.compute"), grouped) => compute(method, grouped, &rest),
        (Some("microsoft.network"), grouped) => network_routes(method, grouped, &rest),
        (Some("microsoft.resources"), _) => None,
        (Some(_), _) => {
            return Err(fault::invalid_namespace(path.provider.as_deref().unwrap_or("")));
        }
    };
    match found {
        Some(Ok(route)) => Ok(route),
        Some(Err(())) => Err(fault::method_not_allowed(method)),
        None => match (&path.provider, rest.first()) {
            (Some(namespace), Some(_)) => {
                let kind: Vec<&str> = path.rest.iter().step_by(2).map(String::as_str).collect();
                Err(fault::invalid_resource_type(&kind.join("/"), namespace, version))
            }
            _ => Err(fault::path_not_found(raw)),
        },
    }
}

type Found = Option<Result<Route, ()>>;

fn plain(method: &str, path: &ArmPath, rest: &[&str]) -> Found {
    Some(match (path.group.is_some(), rest, method) {
        (false, [], "GET") => Ok(route("subscriptions.get", groups::get_subscription)),
        (false, ["locations"], "GET") => Ok(route("subscriptions.listLocations", groups::locations)),
        (false, ["resourcegroups"], "GET") => Ok(route("resourceGroups.list", groups::list)),
        (false, ["operationresults", _], "GET") => Ok(route("operations.get", polling::group_result)),
        (false, ["providers"], "GET") => Ok(route("providers.list", providers::list)),
        (_, ["resources"], "GET") => Ok(route("resources.list", resources::list)),
        (true, [], "PUT") => Ok(route("resourceGroups.createOrUpdate", groups::put)),
        (true, [], "PATCH") => Ok(route("resourceGroups.update", groups::patch)),
        (true, [], "GET") => Ok(route("resourceGroups.get", groups::get)),
        (true, [], "HEAD") => Ok(route("resourceGroups.checkExistence", groups::head)),
        (true, [], "DELETE") => Ok(route("resourceGroups.delete", groups::delete)),
        (_, [], _) | (false, ["resourcegroups" | "locations" | "providers"], _) | (_, ["resources"], _) => Err(()),
        _ => return None,
    })
}

fn provider_routes(method: &str, rest: &[&str]) -> Found {
    Some(match (rest, method) {
        ([], "GET") => Ok(route("providers.get", providers::get)),
        (["register"], "POST") => Ok(route("providers.register", providers::get)),
        _ => Err(()),
    })
}

fn compute(method: &str, grouped: bool, rest: &[&str]) -> Found {
    use throttle::{DELETE_VM, GET_OPERATION, GET_VM, LIST_VM, UPDATE_VM};
    Some(match (grouped, rest, method) {
        (false, ["locations", _, "diskoperations", _], "GET") => Ok(route("operations.get", polling::compute)),
        (false, ["locations", _, "operations", _], "GET") => {
            Ok(route("operations.get", polling::compute).limited(GET_OPERATION))
        }
        (false, ["locations", _, "vmsizes"], "GET") => Ok(route("virtualMachineSizes.list", catalogue::vm_sizes)),
        (false, ["locations", _, "usages"], "GET") => Ok(route("usage.list", quotas::usages)),
        (false, ["skus"], "GET") => Ok(route("resourceSkus.list", catalogue::skus)),
        (_, ["disks"], "GET") => Ok(route("disks.list", disks::list)),
        (true, ["disks", _], "PUT") => Ok(route("disks.createOrUpdate", disks::put)),
        (true, ["disks", _], "PATCH") => Ok(route("disks.update", disks::patch)),
        (true, ["disks", _], "GET") => Ok(route("disks.get", disks::get)),
        (true, ["disks", _], "DELETE") => Ok(route("disks.delete", disks::delete)),
        (true, ["disks", _, "begingetaccess"], "POST") => Ok(route("disks.grantAccess", disk_access::begin)),
        (true, ["disks", _, "endgetaccess"], "POST") => Ok(route("disks.revokeAccess", disk_access::end)),
        (_, ["virtualmachines"], "GET") => Ok(route("virtualMachines.list", vms::list).limited(LIST_VM)),
        (false, ["locations", _, "virtualmachines"], "GET") => {
            Ok(route("virtualMachines.listByLocation", vms::list).limited(LIST_VM))
        }
        (true, ["virtualmachines", _], "PUT") => {
            Ok(route("virtualMachines.createOrUpdate", vms::put).limited(UPDATE_VM))
        }
        (true, ["virtualmachines", _], "PATCH") => Ok(route("virtualMachines.update", vms::patch).limited(UPDATE_VM)),
        (true, ["virtualmachines", _], "GET") => Ok(route("virtualMachines.get", vms::get).limited(GET_VM)),
        (true, ["virtualmachines", _], "DELETE") => Ok(route("virtualMachines.delete", vms::delete).limited(DELETE_VM)),
        (true, ["virtualmachines", _, "instanceview"], "GET") => {
            Ok(route("virtualMachines.instanceView", vm_power::get_instance_view).limited(GET_VM))
        }
        (true, ["virtualmachines", _, "attachdetachdatadisks"], "POST") => {
            Ok(route("virtualMachines.attachDetachDataDisks", vms::attach_detach)
                .limited(UPDATE_VM)
                .of("virtualMachines/attachDetachDataDisks"))
        }
        (true, ["virtualmachines", _, "vmsizes"], "GET") => {
            Ok(route("virtualMachines.listAvailableSizes", catalogue::vm_sizes))
        }
        (
            true,
            [
                "virtualmachines",
                _,
                action
                @ ("start" | "poweroff" | "deallocate" | "restart" | "redeploy" | "reapply" | "simulateeviction"),
            ],
            "POST",
        ) => Ok(route(
            match *action {
                "start" => "virtualMachines.start",
                "poweroff" => "virtualMachines.powerOff",
                "deallocate" => "virtualMachines.deallocate",
                "restart" => "virtualMachines.restart",
                "redeploy" => "virtualMachines.redeploy",
                "reapply" => "virtualMachines.reapply",
                _ => "virtualMachines.simulateEviction",
            },
            vm_power::act,
        )
        .limited(UPDATE_VM)),
        (_, ["availabilitysets"], "GET") => Ok(route("availabilitySets.list", availability_sets::list)),
        (true, ["availabilitysets", _], "PUT") => Ok(route("availabilitySets.createOrUpdate", availability_sets::put)),
        (true, ["availabilitysets", _], "PATCH") => Ok(route("availabilitySets.update", availability_sets::patch)),
        (true, ["availabilitysets", _], "GET") => Ok(route("availabilitySets.get", availability_sets::get)),
        (true, ["availabilitysets", _], "DELETE") => Ok(route("availabilitySets.delete", availability_sets::delete)),
        _ if is_known(rest) => Err(()),
        _ => return None,
    })
}

/// Whether there is such a path of the compute provider, with another method. What is below a machine or a
/// disk and not in the table is not emulated.
fn is_known(rest: &[&str]) -> bool {
    matches!(
        rest,
        ["disks" | "virtualmachines" | "availabilitysets"]
            | ["disks" | "virtualmachines" | "availabilitysets", _]
            | ["disks", _, "begingetaccess" | "endgetaccess"]
            | [
                "virtualmachines",
                _,
                "instanceview"
                    | "vmsizes"
                    | "attachdetachdatadisks"
                    | "start"
                    | "poweroff"
                    | "deallocate"
                    | "restart"
                    | "redeploy"
                    | "reapply"
                    | "simulateeviction"
            ]
            | ["skus"]
            | ["locations", _, "vmsizes" | "usages" | "virtualmachines"]
            | ["locations", _, "operations" | "diskoperations", _]
    )
}

fn network_routes(method: &str, grouped: bool, rest: &[&str]) -> Found {
    use throttle::{READ_NETWORK, WRITE_NETWORK};
    let found = match (grouped, rest, method) {
        (false, ["locations", _, "operations", _], "GET") => route("operations.get", polling::network),
        (false, ["locations", _, "operationresults", _], "GET") => route("operations.get", polling::network_result),
        (_, ["virtualnetworks"], "GET") => route("virtualNetworks.list", network::list_networks),
        (true, ["virtualnetworks", _], "PUT") => route("virtualNetworks.createOrUpdate", network::put_network),
        (true, ["virtualnetworks", _], "PATCH") => route("virtualNetworks.updateTags", network::patch_tags),
        (true, ["virtualnetworks", _], "GET") => route("virtualNetworks.get", network::get_network),
        (true, ["virtualnetworks", _], "DELETE") => route("virtualNetworks.delete", network::delete_network),
        (true, ["virtualnetworks", _, "subnets"], "GET") => route("subnets.list", network::list_subnets),
        (true, ["virtualnetworks", _, "subnets", _], "PUT") => route("subnets.createOrUpdate", network::put_subnet),
        (true, ["virtualnetworks", _, "subnets", _], "GET") => route("subnets.get", network::get_subnet),
        (true, ["virtualnetworks", _, "subnets", _], "DELETE") => route("subnets.delete", network::delete_subnet),
        (_, ["networkinterfaces"], "GET") => route("networkInterfaces.list", network::interfaces::list_nics),
        (true, ["networkinterfaces", _], "PUT") => {
            route("networkInterfaces.createOrUpdate", network::interfaces::put_nic)
        }
        (true, ["networkinterfaces", _], "PATCH") => route("networkInterfaces.updateTags", network::patch_tags),
        (true, ["networkinterfaces", _], "GET") => route("networkInterfaces.get", network::interfaces::get_nic),
        (true, ["networkinterfaces", _], "DELETE") => {
            route("networkInterfaces.delete", network::interfaces::delete_nic)
        }
        (_, ["virtualnetworks" | "networkinterfaces", ..], _) => return Some(Err(())),
        _ => return None,
    };
    let policy = if method == "GET" { READ_NETWORK } else { WRITE_NETWORK };
    Some(Ok(found.limited(policy)))
}
