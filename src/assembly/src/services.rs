//! From clients to the gRPC services of a process.

use csi_proto::csi::{controller_server::ControllerServer, identity_server::IdentityServer, node_server::NodeServer};
use lazuli_csi::{controller::ControllerService, identity::IdentityService, node::NodeService};
use lazuli_disk::{Settings, Volumes};
use lazuli_plan::{lun::LunReservations, op::VmWriteMethod, size::SizeLimits};
use lazuli_telemetry::Readiness;
use tokio::sync::watch;
use tonic::service::Routes;

use crate::clients::Azure;

/// How a VM's data disks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AttachMethod {
    /// The action; the whole list where it is missing; by omission on Azure Stack Hub.
    Auto,
    /// `attachDetachDataDisks`.
    Action,
    /// The whole list, under If-Match where the VM has an etag.
    WholeList,
}

impl AttachMethod {
    fn resolve(self, stack: bool) -> VmWriteMethod {
        match (self, stack) {
            (_, true) => VmWriteMethod::WholeListByOmission,
            (Self::Auto | Self::Action, false) => VmWriteMethod::Action,
            (Self::WholeList, false) => VmWriteMethod::WholeList,
        }
    }
}

/// The services of the controller over an Azure.
pub fn controller(
    azure: &Azure,
    driver_name: &str,
    reservations: watch::Receiver<LunReservations>,
    sizes: watch::Receiver<SizeLimits>,
    method: AttachMethod,
    readiness: &Readiness,
) -> Routes {
    let volumes = Volumes::new(Settings {
        compute: azure.compute.clone(),
        subscription: azure.defaults.subscription.clone(),
        resource_group: azure.defaults.resource_group.clone(),
        reservations,
        sizes,
        method: method.resolve(azure.stack),
    });
    Routes::new(IdentityServer::new(IdentityService::disk(driver_name, readiness.clone())))
        .add_service(ControllerServer::new(ControllerService::new(volumes, azure.defaults.clone())))
}

/// The services of a node.
pub fn node(node: NodeService, driver_name: &str, readiness: &Readiness) -> Routes {
    Routes::new(IdentityServer::new(IdentityService::disk(driver_name, readiness.clone())))
        .add_service(NodeServer::new(node))
}
