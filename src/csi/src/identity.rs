//! `csi.v1.Identity`: who the plugin is, what it can do, that it serves.

use csi_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
    identity_server::Identity,
    plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion},
};
use tonic::{Request, Response, Status};

/// The name of the managed disk driver, as CSIDriver objects, StorageClasses and PVs spell it.
pub const DISK_DRIVER: &str = "disk.csi.azure.com";

/// The name of the file driver, as CSIDriver objects, StorageClasses and PVs spell it.
pub const FILE_DRIVER: &str = "file.csi.azure.com";

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
}

impl IdentityService {
    /// The identity of the managed disk driver.
    ///
    /// `name` is [`DISK_DRIVER`] unless the operator chose another.
    pub fn disk(name: impl Into<String>) -> Self {
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
        Self::with(name.into(), &capabilities)
    }

    /// The identity of the file driver, whose volumes every node reaches.
    ///
    /// `name` is [`FILE_DRIVER`] unless the operator chose another.
    pub fn file(name: impl Into<String>) -> Self {
        let expansion = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let service = Service { r#type: service::Type::ControllerService.into() };
        let capabilities =
            [plugin_capability::Type::Service(service), plugin_capability::Type::VolumeExpansion(expansion)];
        Self::with(name.into(), &capabilities)
    }

    fn with(name: String, capabilities: &[plugin_capability::Type]) -> Self {
        let capabilities = capabilities.iter().cloned().map(|r#type| PluginCapability { r#type: Some(r#type) });
        Self { name, version: env!("CARGO_PKG_VERSION").to_owned(), capabilities: capabilities.collect() }
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
        // What is served can be called. The sidecars wait for this before they do anything, and livenessprobe restarts
        // the container without it: neither cures an Azure, an API server or a kubelet that does not answer. Those
        // are the business of /readyz.
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
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
    async fn probe_is_true_once_the_plugin_serves() {
        let identity = IdentityService::disk(DISK_DRIVER);
        let answer = identity.probe(Request::new(ProbeRequest {})).await.unwrap().into_inner();
        assert_eq!(answer.ready, Some(true));
    }

    #[tokio::test]
    async fn the_disk_driver_has_the_name_and_capabilities_of_the_go_driver() {
        let identity = IdentityService::disk(DISK_DRIVER);
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
