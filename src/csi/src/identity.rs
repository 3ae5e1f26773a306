//! `csi.v1.Identity`: who the plugin is, what it can do, whether it is ready.

use csi_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion},
};
use tonic::{Request, Response, Status};

use lazuli_telemetry::Readiness;

/// The name of the managed disk driver, as CSIDriver objects, StorageClasses and PVs spell it.
pub const DISK_DRIVER: &str = "disk.csi.azure.com";

/// The longest name of a driver (source: the CSI specification, GetPluginInfoResponse).
const NAME_LENGTH: usize = 63;

/// A driver's name as the CSI specification wants it; it is also the name of a file in kubelet's folder.
///
/// # Errors
/// What is allowed.
pub fn driver_name(text: &str) -> Result<String, String> {
    let ends_well = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_name = ends_well(text.bytes().next())
        && ends_well(text.bytes().last())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    match is_name && text.len() <= NAME_LENGTH {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "a driver's name has 1 to {NAME_LENGTH} letters, digits, dots and dashes, a letter or digit first and last"
        )),
    }
}

/// The identity service of one driver.
#[derive(Debug, Clone)]
pub struct IdentityService {
    name: String,
    version: String,
    capabilities: Vec<PluginCapability>,
    readiness: Readiness,
}

impl IdentityService {
    /// The identity of the managed disk driver.
    ///
    /// `name` is [`DISK_DRIVER`] unless the operator chose another. Probe answers what `readiness` says at that
    /// moment.
    pub fn disk(name: impl Into<String>, readiness: Readiness) -> Self {
        let service = |r#type: service::Type| plugin_capability::Type::Service(Service { r#type: r#type.into() });
        let expansion = |r#type: volume_expansion::Type| {
            plugin_capability::Type::VolumeExpansion(VolumeExpansion { r#type: r#type.into() })
        };
        let capabilities = [
            service(service::Type::ControllerService),
            service(service::Type::VolumeAccessibilityConstraints),
            expansion(volume_expansion::Type::Offline),
            expansion(volume_expansion::Type::Online),
        ];
        Self {
            name: name.into(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: capabilities.into_iter().map(|r#type| PluginCapability { r#type: Some(r#type) }).collect(),
            readiness,
        }
    }
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: self.version.clone(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: self.capabilities.clone() }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        // Not ready is an answer, not an error: an error tells the caller to restart the plugin, which cures nothing
        // that waiting does not.
        let ready = self.readiness.is_ready();
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_s_name_is_what_csi_allows() {
        for good in [DISK_DRIVER, "disk2.csi.azure.com", "a", &"a".repeat(63)] {
            assert_eq!(driver_name(good).as_deref(), Ok(good));
        }
        for bad in ["", ".", "a.", "-a", "a/b", "../x", "a b", "ä", &"a".repeat(64)] {
            assert!(driver_name(bad).is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn probe_says_what_readiness_says_at_that_moment() {
        let readiness = Readiness::new();
        let devices = readiness.condition("devices");
        let identity = IdentityService::disk(DISK_DRIVER, readiness);
        let ready = async || identity.probe(Request::new(ProbeRequest {})).await.unwrap().into_inner().ready;
        assert_eq!(ready().await, Some(false));
        devices.ready("found");
        assert_eq!(ready().await, Some(true));
    }

    #[tokio::test]
    async fn the_disk_driver_has_the_name_and_capabilities_of_the_go_driver() {
        let identity = IdentityService::disk(DISK_DRIVER, Readiness::new());
        let info = identity.get_plugin_info(Request::new(GetPluginInfoRequest {})).await.unwrap().into_inner();
        assert_eq!(info.name, "disk.csi.azure.com");
        assert!(!info.vendor_version.is_empty());
        let answer = identity.get_plugin_capabilities(Request::new(GetPluginCapabilitiesRequest {})).await;
        let mut services = Vec::new();
        let mut expansions = Vec::new();
        for capability in answer.unwrap().into_inner().capabilities {
            match capability.r#type.unwrap() {
                plugin_capability::Type::Service(service) => services.push(service.r#type()),
                plugin_capability::Type::VolumeExpansion(expansion) => expansions.push(expansion.r#type()),
            }
        }
        assert_eq!(services, [service::Type::ControllerService, service::Type::VolumeAccessibilityConstraints]);
        assert_eq!(expansions, [volume_expansion::Type::Offline, volume_expansion::Type::Online]);
    }
}
