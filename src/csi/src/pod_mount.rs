//! Which mounts are those of pods.

use std::path::Path;

/// Whether a mount is one that a pod was given. kubelet makes more of them: a second staging path of an older
/// version, the folders of `subPath`, and the map of block volumes by pod.
pub(crate) fn is_a_pod_s(target: &Path) -> bool {
    let has = |wanted: &str| target.components().any(|part| part.as_os_str() == wanted);
    let is_map = target.parent().and_then(Path::file_name).is_some_and(|name| name == "dev");
    let is_kubelet_s = target.ends_with("globalmount") || has("volume-subpaths") || (has("volumeDevices") && is_map);
    !is_kubelet_s
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubelet_mounts_for_itself_is_not_a_pod_s() {
        let kubelet = "/var/lib/kubelet";
        for (path, is) in [
            ("pods/1/volumes/kubernetes.io~csi/pvc/mount", true),
            ("plugins/kubernetes.io/csi/volumeDevices/publish/pvc/1", true),
            ("plugins/kubernetes.io/csi/disk.csi.azure.com/abc/globalmount", false),
            ("plugins/kubernetes.io/csi/volumeDevices/pvc/dev/1", false),
            ("pods/1/volume-subpaths/pvc/c/0", false),
        ] {
            assert_eq!(is_a_pod_s(&Path::new(kubelet).join(path)), is, "{path}");
        }
    }
}
