//! What a cluster of the Go projects has, for who wants to move: StorageClasses, PersistentVolumes of every kind that Azure's
//! drivers and in-tree plugins serve.

use std::collections::BTreeMap;

use kube::Client;
use lazuli_diagnosis::migration::{Class, Csi, Source, Volume};
use serde::Deserialize;

use super::{
    inventory::{ListError, list},
    reservations::VOLUMES,
};

const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
/// Where VolumeAttributesClasses are, by the version of Kubernetes: from 1.34, and from 1.31.
const ATTRIBUTES_CLASSES: [&str; 2] =
    ["/apis/storage.k8s.io/v1/volumeattributesclasses", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses"];
/// The annotation of a PersistentVolume whose options count in place of `mountOptions`, between commas. Source: kubelet.
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimClass {
    metadata: Name,
    provisioner: String,
    parameters: Option<BTreeMap<String, String>>,
    mount_options: Option<Vec<String>>,
}

/// Lists the StorageClasses.
///
/// # Errors
/// [`ListError`].
pub async fn list_classes(client: &Client) -> Result<Vec<Class>, ListError> {
    let class = |SlimClass { metadata, provisioner, parameters, mount_options }: SlimClass| Class {
        name: metadata.name,
        provisioner,
        parameters: parameters.unwrap_or_default(),
        mount_options: mount_options.unwrap_or_default(),
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
        mount_options: vec![],
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
struct VolumeMetadata {
    name: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct SlimVolume {
    metadata: VolumeMetadata,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    csi: Option<SlimCsi>,
    azure_disk: Option<SlimDisk>,
    azure_file: Option<SlimShare>,
    mount_options: Option<Vec<String>>,
    access_modes: Option<Vec<String>>,
    volume_mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimCsi {
    driver: String,
    volume_handle: String,
    volume_attributes: Option<BTreeMap<String, String>>,
    fs_type: Option<String>,
    node_stage_secret_ref: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimDisk {
    kind: Option<String>,
    #[serde(rename = "diskURI")]
    uri: String,
    fs_type: Option<String>,
    caching_mode: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimShare {
    share_name: String,
    secret_name: String,
}

impl SlimCsi {
    fn into_csi(self) -> Csi {
        Csi {
            handle: self.volume_handle,
            attributes: self.volume_attributes.unwrap_or_default(),
            fs_type: self.fs_type.unwrap_or_default(),
            has_stage_secret: self.node_stage_secret_ref.is_some(),
        }
    }
}

impl SlimVolume {
    /// The volume, where it is one of the drivers of these names, or of an in-tree plugin.
    fn into_volume(self, disks: &str, shares: &str) -> Option<Volume> {
        let Self { metadata, spec } = self;
        let annotated = metadata.annotations.unwrap_or_default().remove(MOUNT_OPTIONS);
        let annotated = annotated.map(|options| options.split(',').map(str::to_owned).collect());
        let source = match (spec.csi, spec.azure_disk, spec.azure_file) {
            (Some(csi), _, _) if csi.driver == disks => Source::Disk(csi.into_csi()),
            (Some(csi), _, _) if csi.driver == shares => Source::Share(csi.into_csi()),
            (None, Some(disk), _) => Source::InTreeDisk {
                // Source: the API's default of kind.
                kind: disk.kind.unwrap_or_else(|| "Shared".to_owned()),
                uri: disk.uri,
                fs_type: disk.fs_type.unwrap_or_default(),
                caching: disk.caching_mode,
            },
            (None, None, Some(share)) => Source::InTreeShare { share: share.share_name, secret: share.secret_name },
            _ => return None,
        };
        Some(Volume {
            name: metadata.name,
            source,
            mount_options: annotated.or(spec.mount_options).unwrap_or_default(),
            access_modes: spec.access_modes.unwrap_or_default(),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
        })
    }
}

/// Lists the PersistentVolumes of the drivers of these names, and of the in-tree plugins.
///
/// # Errors
/// [`ListError`].
pub async fn list_azure_volumes(client: &Client, disks: &str, shares: &str) -> Result<Vec<Volume>, ListError> {
    let all = list::<SlimVolume>(client, VOLUMES, "persistentvolumes").await?;
    Ok(all.into_iter().filter_map(|volume| volume.into_volume(disks, shares)).collect())
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
        let read = volume.into_volume("disk.csi.azure.com", "file.csi.azure.com").unwrap();
        assert!(matches!(read.source, Source::InTreeDisk { uri, .. } if uri == "/subscriptions/s"));
        let volume: SlimVolume = serde_json::from_value(json!({"metadata": {"name": "pv",
            "annotations": {"volume.beta.kubernetes.io/mount-options": "vers=3.0,sec=krb5"}},
            "spec": {"csi": {"driver": "file.csi.azure.com", "volumeHandle": "h", "fsType": "ext4",
                "volumeAttributes": {"protocol": "nfs"}, "nodeStageSecretRef": {"name": "s", "namespace": "n"}},
                "mountOptions": ["ro"], "accessModes": ["ReadWriteMany"], "volumeMode": "Block"}}))
        .unwrap();
        let csi = Csi {
            handle: "h".into(),
            attributes: [("protocol".to_owned(), "nfs".to_owned())].into(),
            fs_type: "ext4".into(),
            has_stage_secret: true,
        };
        let expected = Volume {
            name: "pv".into(),
            source: Source::Share(csi),
            mount_options: vec!["vers=3.0".into(), "sec=krb5".into()],
            access_modes: vec!["ReadWriteMany".into()],
            is_block: true,
        };
        assert_eq!(volume.into_volume("disk.csi.azure.com", "file.csi.azure.com"), Some(expected));
        let class: SlimClass = serde_json::from_value(json!({"metadata": {"name": "c"}, "provisioner": "p",
            "mountOptions": ["sec=krb5"]}))
        .unwrap();
        assert_eq!((class.metadata.name.as_str(), class.parameters), ("c", None));
        assert_eq!(class.mount_options, Some(vec!["sec=krb5".to_owned()]));
        let attributes: SlimAttributes = serde_json::from_value(json!({"metadata": {"name": "fast"},
            "driverName": "disk.csi.azure.com", "parameters": {"DiskIOPSReadWrite": "5000"}}))
        .unwrap();
        assert_eq!(attributes.driver_name, "disk.csi.azure.com");
    }
}
