//! What a cluster of the Go projects has, for who wants to move: StorageClasses, and PersistentVolumes of every kind that
//! Azure's drivers and in-tree plugins serve.

use std::collections::BTreeMap;

use kube::Client;
use lazuli_diagnosis::migration::{Class, Source, Volume};
use serde::Deserialize;

use super::{
    inventory::{ListError, list},
    reservations::VOLUMES,
};

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// Where VolumeAttributesClasses are, by the version of Kubernetes: from 1.34, and from 1.31.
const ATTRIBUTES_CLASSES: [&str; 2] =
    ["/apis/storage.k8s.io/v1/volumeattributesclasses", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses"];

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct SlimClass {
    metadata: Name,
    provisioner: String,
    parameters: Option<BTreeMap<String, String>>,
}

/// Lists the StorageClasses.
///
/// # Errors
/// [`ListError`].
pub async fn list_classes(client: &Client) -> Result<Vec<Class>, ListError> {
    let class = |SlimClass { metadata, provisioner, parameters }: SlimClass| Class {
        name: metadata.name,
        provisioner,
        parameters: parameters.unwrap_or_default(),
    };
    Ok(list::<SlimClass>(client, CLASSES, "storageclasses").await?.into_iter().map(class).collect())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimAttributes {
    metadata: Name,
    driver_name: String,
    parameters: Option<BTreeMap<String, String>>,
}

/// Lists the VolumeAttributesClasses; none where the API server does not know such objects. Of each the driver stands as its
/// provisioner.
///
/// # Errors
/// [`ListError`].
pub async fn list_attributes_classes(client: &Client) -> Result<Vec<Class>, ListError> {
    let class = |SlimAttributes { metadata, driver_name, parameters }: SlimAttributes| Class {
        name: metadata.name,
        provisioner: driver_name,
        parameters: parameters.unwrap_or_default(),
    };
    for collection in ATTRIBUTES_CLASSES {
        match list::<SlimAttributes>(client, collection, "volumeattributesclasses").await {
            Ok(listed) => return Ok(listed.into_iter().map(class).collect()),
            Err(error) if error.is_unknown_resource() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(vec![])
}

#[derive(Deserialize)]
struct SlimVolume {
    metadata: Name,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    csi: Option<SlimCsi>,
    azure_disk: Option<SlimDisk>,
    azure_file: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCsi {
    driver: String,
    volume_handle: String,
}

#[derive(Deserialize)]
struct SlimDisk {
    kind: Option<String>,
    #[serde(rename = "diskURI")]
    uri: String,
}

/// Lists the PersistentVolumes of the drivers of these names, and of the in-tree plugins.
///
/// # Errors
/// [`ListError`].
pub async fn list_azure_volumes(client: &Client, disks: &str, shares: &str) -> Result<Vec<Volume>, ListError> {
    let source = |spec: SlimSpec| match spec {
        SlimSpec { csi: Some(csi), .. } if csi.driver == disks => Some(Source::Disk(csi.volume_handle)),
        SlimSpec { csi: Some(csi), .. } if csi.driver == shares => Some(Source::Share(csi.volume_handle)),
        // Source: the API's default of kind.
        SlimSpec { azure_disk: Some(SlimDisk { kind, uri }), .. } => {
            Some(Source::InTreeDisk { kind: kind.unwrap_or_else(|| "Shared".to_owned()), uri })
        }
        SlimSpec { azure_file: Some(_), .. } => Some(Source::InTreeShare),
        _ => None,
    };
    let volume =
        |SlimVolume { metadata, spec }: SlimVolume| Some(Volume { name: metadata.name, source: source(spec)? });
    Ok(list::<SlimVolume>(client, VOLUMES, "persistentvolumes").await?.into_iter().filter_map(volume).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_and_classes_are_read_as_the_api_writes_them() {
        let volume: SlimVolume = serde_json::from_value(json!({"metadata": {"name": "pv"},
            "spec": {"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s", "kind": "Managed"}}}))
        .unwrap();
        assert_eq!(volume.spec.azure_disk.unwrap().uri, "/subscriptions/s");
        let class: SlimClass = serde_json::from_value(json!({"metadata": {"name": "c"}, "provisioner": "p"})).unwrap();
        assert_eq!((class.metadata.name.as_str(), class.parameters), ("c", None));
        let attributes: SlimAttributes = serde_json::from_value(json!({"metadata": {"name": "fast"},
            "driverName": "disk.csi.azure.com", "parameters": {"DiskIOPSReadWrite": "5000"}}))
        .unwrap();
        assert_eq!(attributes.driver_name, "disk.csi.azure.com");
    }
}
