//! The kinds that the server knows.

/// A kind of object.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The group's version.
    pub version: &'static str,
    /// The collection's name in paths.
    pub plural: &'static str,
    /// The kind's name in objects.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is a subresource.
    pub has_status: bool,
    /// The names that people write for short.
    pub short_names: &'static [&'static str],
    /// The group whose objects these are in another form, where they are not kept themselves: the events of the core group
    /// are those of `events.k8s.io`.
    pub kept_as: Option<&'static str>,
}

impl Resource {
    /// The kind under which its objects are kept: nearly always itself.
    pub(crate) fn kept(&'static self) -> &'static Self {
        self.kept_as.and_then(|group| find(group, self.version, self.plural)).unwrap_or(self)
    }

    /// As people write one.
    pub(crate) fn singular(&self) -> String {
        self.kind.to_lowercase()
    }

    /// As `apiVersion` spells it.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// As messages name it: `services`, `leases.coordination.k8s.io`.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }
}

const fn core(plural: &'static str, kind: &'static str, namespaced: bool, has_status: bool) -> Resource {
    Resource { group: "", version: "v1", plural, kind, namespaced, has_status, short_names: &[], kept_as: None }
}

const fn grouped(group: &'static str, plural: &'static str, kind: &'static str, namespaced: bool) -> Resource {
    Resource { group, ..core(plural, kind, namespaced, false) }
}

/// A kind of the snapshot API, which a cluster has by definitions of its own (source: kubernetes-csi/external-snapshotter).
const fn snapshot(
    short_names: &'static [&'static str],
    plural: &'static str,
    kind: &'static str,
    namespaced: bool,
    has_status: bool,
) -> Resource {
    Resource { has_status, short_names, ..grouped("snapshot.storage.k8s.io", plural, kind, namespaced) }
}

/// All of them.
pub static ALL: &[Resource] = &[
    Resource { short_names: &["ns"], ..core("namespaces", "Namespace", false, true) },
    Resource { short_names: &["no"], ..core("nodes", "Node", false, true) },
    Resource { short_names: &["svc"], ..core("services", "Service", true, true) },
    Resource { short_names: &["po"], ..core("pods", "Pod", true, true) },
    Resource { short_names: &["cm"], ..core("configmaps", "ConfigMap", true, false) },
    core("secrets", "Secret", true, false),
    Resource { short_names: &["sa"], ..core("serviceaccounts", "ServiceAccount", true, false) },
    Resource { short_names: &["pv"], ..core("persistentvolumes", "PersistentVolume", false, true) },
    Resource { short_names: &["pvc"], ..core("persistentvolumeclaims", "PersistentVolumeClaim", true, true) },
    Resource { short_names: &["ep"], ..core("endpoints", "Endpoints", true, false) },
    Resource { short_names: &["ev"], ..grouped("events.k8s.io", "events", "Event", true) },
    // Behind the form in which they are kept, so that the collection's name finds that one.
    Resource { short_names: &["ev"], kept_as: Some("events.k8s.io"), ..core("events", "Event", true, false) },
    grouped("discovery.k8s.io", "endpointslices", "EndpointSlice", true),
    grouped("coordination.k8s.io", "leases", "Lease", true),
    Resource { has_status: true, ..grouped("storage.k8s.io", "volumeattachments", "VolumeAttachment", false) },
    grouped("storage.k8s.io", "csinodes", "CSINode", false),
    grouped("storage.k8s.io", "csidrivers", "CSIDriver", false),
    Resource { short_names: &["sc"], ..grouped("storage.k8s.io", "storageclasses", "StorageClass", false) },
    Resource {
        short_names: &["vac"],
        ..grouped("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", false)
    },
    snapshot(&["vs"], "volumesnapshots", "VolumeSnapshot", true, true),
    snapshot(&["vsc", "vscs"], "volumesnapshotcontents", "VolumeSnapshotContent", false, true),
    snapshot(&["vsclass", "vsclasses"], "volumesnapshotclasses", "VolumeSnapshotClass", false, false),
];

/// The kind of a collection's name.
#[must_use]
pub fn by_plural(plural: &str) -> Option<&'static Resource> {
    ALL.iter().find(|resource| resource.plural == plural)
}

/// The kind of a path's group, version and collection.
#[must_use]
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    ALL.iter().find(|known| known.group == group && known.version == version && known.plural == plural)
}
