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
    }
}
