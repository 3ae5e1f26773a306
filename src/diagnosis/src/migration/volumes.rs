//! PersistentVolumes, read whole as the calls about them would read them: the handle, the attributes, the access modes, the
//! file system and the mount options, by ControllerPublishVolume and NodeStageVolume.

use std::collections::BTreeMap;

use lazuli_model::VolumeId;
use lazuli_shares::{
    mount,
    share::{self, Access},
    volume_id::ShareVolumeId,
};
use lazuli_volume::{
    AccessMode, AccessType, Capability, publish_parameters, stage_parameters, validate_attachment,
    validate_capabilities,
};

use super::{Judged, Page, Subject, Verdict};

/// What is needed to judge how a node would mount a volume.
#[derive(Debug, Clone, Copy)]
pub struct Mounting<'a> {
    /// Why a node refuses mount options of a disk; `None` where it takes them. The reader of the node's program, whose crate
    /// this one does not import.
    pub refused_options: fn(&[String]) -> Option<String>,
    /// The domain of Azure's storage services: `core.windows.net`.
    pub storage_endpoint_suffix: &'a str,
}

/// The source `csi` of a PersistentVolume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Csi {
    /// `volumeHandle`.
    pub handle: String,
    /// `volumeAttributes`.
    pub attributes: BTreeMap<String, String>,
    /// `fsType`; empty where it names none.
    pub fs_type: String,
    /// Whether `nodeStageSecretRef` names a Secret, which kubelet hands to the node with the request.
    pub has_stage_secret: bool,
}

/// Where a PersistentVolume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A volume of the disk driver.
    Disk(Csi),
    /// A volume of the file driver.
    Share(Csi),
    /// A volume of the in-tree disk plugin.
    InTreeDisk {
        /// `Managed`, `Dedicated` or `Shared`.
        kind: String,
        /// The id of a managed disk, or the URL of a page blob.
        uri: String,
        /// `fsType`; empty where it names none.
        fs_type: String,
        /// `cachingMode`, where it names one.
        caching: Option<String>,
    },
    /// A volume of the in-tree file plugin.
    InTreeShare {
        /// `shareName`.
        share: String,
        /// `secretName`.
        secret: String,
    },
}

/// A PersistentVolume of Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub source: Source,
    /// Its mount options: the annotation `volume.beta.kubernetes.io/mount-options`, else `mountOptions`.
    pub mount_options: Vec<String>,
    /// `accessModes`, as Kubernetes names them.
    pub access_modes: Vec<String>,
    /// Whether `volumeMode` is `Block`.
    pub is_block: bool,
}

/// What becomes of a volume.
pub fn volume(volume: &Volume, mounting: &Mounting<'_>) -> Judged {
    let (verdict, page) = match &volume.source {
        Source::Disk(csi) => (of_disk(volume, csi, mounting), Page::Disks),
        Source::InTreeDisk { uri, fs_type, caching, .. } => {
            // Source: what Kubernetes' CSI translation makes of such a volume.
            let caching = caching.iter().map(|caching| ("cachingMode".to_owned(), caching.clone()));
            let (handle, fs_type) = (uri.clone(), fs_type.clone());
            let csi = Csi { handle, fs_type, attributes: caching.collect(), has_stage_secret: false };
            (of_disk(volume, &csi, mounting), Page::Disks)
        }
        Source::Share(csi) => (of_share(volume, csi, mounting), Page::Shares),
        Source::InTreeShare { share, secret } => {
            let named = [("shareName", share), ("secretName", secret)];
            let attributes = named.map(|(key, value)| (key.to_owned(), value.clone())).into();
            let csi = Csi { handle: volume.name.clone(), attributes, ..Csi::default() };
            (mounted_share(volume, &csi, mounting).map_or_else(Verdict::Refused, Verdict::with), Page::Shares)
        }
    };
    Judged { subject: Subject::Volume, name: volume.name.clone(), verdict, page }
}

/// The access mode that Kubernetes asks a driver for. Source: the order in which external-attacher looks for them.
fn access_mode(modes: &[String]) -> AccessMode {
    let has = |wanted: &str| modes.iter().any(|mode| mode == wanted);
    match () {
        () if has("ReadWriteMany") => AccessMode::MultiNodeMultiWriter,
        () if has("ReadOnlyMany") => AccessMode::MultiNodeReaderOnly,
        () if has("ReadWriteOncePod") => AccessMode::SingleNodeSingleWriter,
        () => AccessMode::SingleNodeWriter,
    }
}

fn of_disk(volume: &Volume, csi: &Csi, mounting: &Mounting<'_>) -> Verdict {
    let id: VolumeId = match csi.handle.parse() {
        Ok(id) => id,
        Err(error) => return Verdict::Refused(format!("{:?} is the id of no disk: {error}", csi.handle)),
    };
    let access_type = if volume.is_block {
        AccessType::Block
    } else {
        AccessType::Mount { fs_type: csi.fs_type.clone(), flags: volume.mount_options.clone() }
    };
    let capability = Capability { access_mode: access_mode(&volume.access_modes), access_type: Some(access_type) };
    let of_blobs = id.disk().blob().map(|uri| {
        format!(
            "{uri} is a VHD blob disk, which the Go driver does not serve: a machine takes it only where its own system disk is \
             a VHD blob, and deploy/vhd.md makes a managed disk of it"
        )
    });
    let warnings = attached_and_staged(&csi.attributes, &capability, mounting);
    let warnings = warnings.map(|more| of_blobs.into_iter().chain(more).collect());
    warnings.map_or_else(Verdict::Refused, Verdict::with)
}

/// The warnings of attaching and staging a disk with this context; else why one of both refuses it.
pub(super) fn attached_and_staged(
    context: &BTreeMap<String, String>,
    capability: &Capability,
    mounting: &Mounting<'_>,
) -> Result<Vec<String>, String> {
    let attached = publish_parameters(context).map_err(|error| error.to_string())?;
    validate_attachment(capability, attached.max_shares).map_err(|error| error.to_string())?;
    // How many machines share the disk counts where it is attached.
    validate_capabilities(std::slice::from_ref(capability), u32::MAX).map_err(|error| error.to_string())?;
    // What ControllerPublishVolume tells the node; any slot stands for the one that is found.
    let publish = BTreeMap::from([("LUN".to_owned(), "0".to_owned())]);
    let staged = stage_parameters(context, capability, &publish).map_err(|error| error.to_string())?;
    match (mounting.refused_options)(&staged.mount_flags) {
        Some(why) => Err(why),
        None => Ok(staged.warnings),
    }
}

fn of_share(volume: &Volume, csi: &Csi, mounting: &Mounting<'_>) -> Verdict {
    let mut warnings = match mounted_share(volume, csi, mounting) {
        Ok(warnings) => warnings,
        Err(why) => return Verdict::Refused(why),
    };
    // A person's own volume names its share by attributes; the handle is any text.
    if ShareVolumeId::parse(&csi.handle).is_err() {
        warnings.push(
            "its handle names no share, so that it can be mounted by its attributes and neither grown nor deleted"
                .to_owned(),
        );
    }
    Verdict::with(warnings)
}

fn mounted_share(volume: &Volume, csi: &Csi, mounting: &Mounting<'_>) -> Result<Vec<String>, String> {
    let mode = access_mode(&volume.access_modes);
    let access = if volume.is_block { Access::Block } else { Access::Mount };
    share::validate_capabilities(&[share::Capability { mode, access }]).map_err(|error| error.to_string())?;
    let request = mount::Request {
        volume_id: csi.handle.clone(),
        context: csi.attributes.clone(),
        mount_flags: volume.mount_options.clone(),
        is_read_only: mode.is_read_only(),
        // No Secret is read here: any account stands for the one in it.
        account: csi.has_stage_secret.then(|| "account".to_owned()),
        ..mount::Request::default()
    };
    planned_mount(&request, mounting)
}

/// The warnings of mounting a share; else why a node refuses it.
pub(super) fn planned_mount(request: &mount::Request, mounting: &Mounting<'_>) -> Result<Vec<String>, String> {
    // What a node's own arguments say of every mount refuses none.
    let defaults = mount::Defaults {
        storage_endpoint_suffix: mounting.storage_endpoint_suffix,
        own_connections: true,
        closes_at_once: true,
    };
    let planned = mount::plan(request, &defaults).and_then(|plan| plan.to_mount(&request.volume_id));
    planned.map(|plan| plan.warnings).map_err(|error| error.to_string())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A node that refuses the option `suid` alone.
    pub(in super::super) const MOUNTING: Mounting<'static> = Mounting {
        refused_options: |options| options.iter().any(|one| one == "suid").then(|| "suid is refused".to_owned()),
        storage_endpoint_suffix: "core.windows.net",
    };
    const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";
    const SHARE: &str = "g#account#share###default";

    fn csi(handle: &str, attributes: &[(&str, &str)]) -> Csi {
        let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Csi { handle: handle.into(), attributes, ..Csi::default() }
    }

    fn of(source: Source) -> Volume {
        let access_modes = vec!["ReadWriteOnce".to_owned()];
        Volume { name: "pv".into(), source, mount_options: vec![], access_modes, is_block: false }
    }

    fn judged(one: &Volume) -> Verdict {
        volume(one, &MOUNTING).verdict
    }

    #[track_caller]
    fn assert_refused(one: &Volume, word: &str) {
        let verdict = judged(one);
        assert!(matches!(&verdict, Verdict::Refused(why) if why.contains(word)), "{word}: {verdict:?}");
    }

    #[test]
    fn volumes_are_judged_by_their_handles() {
        let in_tree = |kind: &str, uri: &str| {
            let (kind, uri) = (kind.into(), uri.into());
            of(Source::InTreeDisk { kind, uri, fs_type: "ext4".into(), caching: Some("ReadOnly".into()) })
        };
        for equal in [
            of(Source::Disk(csi(DISK, &[("requestedsizegib", "4")]))),
            in_tree("Managed", DISK),
            of(Source::Share(csi(SHARE, &[("skuName", "Standard_LRS")]))),
            of(Source::InTreeShare { share: "s".into(), secret: "azure-storage-account-a-secret".into() }),
        ] {
            assert_eq!(judged(&equal), Verdict::Equal, "{equal:?}");
        }
        assert_refused(&of(Source::Disk(csi("d", &[]))), "\"d\"");
        let blob = "https://acct.blob.core.windows.net/vhds/d.vhd";
        for blob in [in_tree("Dedicated", blob), of(Source::Disk(csi(blob, &[])))] {
            assert!(matches!(judged(&blob), Verdict::Differs(why) if why.contains("is a VHD blob disk")), "{blob:?}");
        }
        assert_refused(&in_tree("Shared", "https://acct.example/vhds/d.vhd"), "acct.example");
        let by_hand = of(Source::Share(csi("mine", &[("shareName", "s"), ("storageAccount", "a")])));
        assert!(matches!(judged(&by_hand), Verdict::Differs(why) if why.contains("names no share")));
        assert_refused(&of(Source::Share(csi("mine", &[("shareName", "s")]))), "storage account");
        let secret = Csi { has_stage_secret: true, ..csi("mine", &[("shareName", "s")]) };
        assert!(matches!(judged(&of(Source::Share(secret))), Verdict::Differs(_)));
    }

    #[test]
    fn what_a_node_would_refuse_to_stage_or_to_mount_is_refused() {
        for (key, value) in [("protocol", "nfs"), ("mountWithManagedIdentity", "true"), ("diskName", "d.vhd")] {
            assert_refused(&of(Source::Share(csi(SHARE, &[(key, value)]))), key);
        }
        let kerberos = Volume { mount_options: vec!["sec=krb5".into()], ..of(Source::Share(csi(SHARE, &[]))) };
        assert_refused(&kerberos, "Kerberos");
        let in_tree = of(Source::InTreeShare { share: "s".into(), secret: "a".into() });
        assert_refused(&Volume { mount_options: vec!["sec=krb5".into()], ..in_tree }, "Kerberos");
        assert_refused(&Volume { is_block: true, ..of(Source::Share(csi(SHARE, &[]))) }, "no block device");
        let disk = |fs_type: &str| of(Source::Disk(Csi { fs_type: fs_type.into(), ..csi(DISK, &[]) }));
        assert_refused(&disk("ntfs"), "ntfs");
        assert_refused(&Volume { mount_options: vec!["suid".into()], ..disk("xfs") }, "suid");
        assert_refused(&Volume { access_modes: vec!["ReadWriteMany".into()], ..disk("") }, "MULTI_NODE_MULTI_WRITER");
        assert_refused(&of(Source::Disk(csi(DISK, &[("cachingMode", "Fast")]))), "Fast");
        // A raw device has neither a file system nor mount options.
        assert_eq!(
            judged(&Volume { mount_options: vec!["suid".into()], is_block: true, ..disk("ntfs") }),
            Verdict::Equal
        );
    }
}
