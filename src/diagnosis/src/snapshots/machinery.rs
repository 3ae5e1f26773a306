//! Whether the cluster has what snapshots need besides the driver: the types of their API, the snapshot-controller, and
//! csi-snapshotter beside the driver.
//!
//! A snapshot-controller that runs outside of the pods that were listed, as the control plane of a managed cluster does, is
//! seen by its Lease alone. So one that is not seen is never said to be absent.

use super::{
    super::{
        Finding, Grade,
        managers::{Container, Program, managers},
        migration::is_go_release,
        some,
    },
    TYPES,
};

/// The check.
pub const SNAPSHOTS: &str = "VolumeSnapshots";

/// The Lease of the snapshot-controller, in its own namespace (source: external-snapshotter).
pub const CONTROLLER_LEASE: &str = "snapshot-controller-leader";

/// What is seen of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// The collections of `snapshot.storage.k8s.io/v1` that the API server has.
    pub types: &'a [String],
    /// The containers of the pods in the namespaces that were asked for.
    pub containers: &'a [Container],
    /// Whether the pods of each of these namespaces could be listed.
    pub is_whole: bool,
    /// Who holds the Lease of the snapshot-controller.
    pub controller: Option<&'a str>,
    /// How many VolumeSnapshotContents of the disk driver there are.
    pub contents: usize,
}

/// Whether a container's image has this name, in whatever registry.
fn is_image(container: &Container, name: &str) -> bool {
    let image = container.image.rsplit('/').next().unwrap_or_default();
    image.split([':', '@']).next() == Some(name)
}

/// What is missing.
pub fn machinery(seen: &Seen<'_>) -> Vec<Finding> {
    let (there, missing): (Vec<&str>, Vec<&str>) =
        TYPES.iter().partition(|one| seen.types.iter().any(|served| served == *one));
    if there.is_empty() {
        let text = "the API server has no snapshot.storage.k8s.io/v1, so that no VolumeSnapshot can be made; where they are \
                    wanted, deploy/snapshots.md says what they need";
        return vec![Finding::new(SNAPSHOTS, Grade::Note, text)];
    }
    if !missing.is_empty() {
        let text = format!(
            "the API server has {} of snapshot.storage.k8s.io/v1, and not {}: csi-snapshotter and the snapshot-controller do \
             not run without them; install all types of one version (deploy/snapshots.md)",
            some(&there),
            some(&missing)
        );
        return vec![Finding::new(SNAPSHOTS, Grade::Wrong, text)];
    }
    let mut findings = vec![controller(seen)];
    findings.extend(sidecar(seen));
    findings
}

fn controller(seen: &Seen<'_>) -> Finding {
    let pod = seen.containers.iter().find(|container| is_image(container, "snapshot-controller"));
    let go =
        pod.and_then(|pod| pod.release.as_deref().filter(|name| is_go_release(name, &pod.namespace, seen.containers)));
    match (pod, seen.controller) {
        (Some(container), _) if let Some(release) = go => {
            let text = format!(
                "the API server has their types, and the snapshot-controller runs in {}/{}, which is of the Helm release \
                 {release} of the Go driver and goes with it: install one of the cluster's own (deploy/moving.md, Keep the \
                 snapshots)",
                container.namespace, container.pod
            );
            Finding::new(SNAPSHOTS, Grade::Note, text)
        }
        (Some(container), _) => {
            let text = format!(
                "the API server has their types, and the snapshot-controller runs in {}/{}",
                container.namespace, container.pod
            );
            Finding::new(SNAPSHOTS, Grade::Fine, text)
        }
        (None, Some(holder)) => {
            let text = format!(
                "the API server has their types, and {holder} holds the Lease {CONTROLLER_LEASE} of the snapshot-controller"
            );
            Finding::new(SNAPSHOTS, Grade::Fine, text)
        }
        (None, None) if seen.is_whole => {
            let text = format!(
                "the API server has their types, and no snapshot-controller is seen, by a pod or by the Lease \
                 {CONTROLLER_LEASE}: without one a VolumeSnapshot stays as it is (deploy/snapshots.md); where it runs in another \
                 namespace, name that in --manager-namespaces"
            );
            Finding::new(SNAPSHOTS, Grade::Note, text)
        }
        (None, None) => {
            Finding::new(SNAPSHOTS, Grade::Unseen, "whether the snapshot-controller runs: not all pods could be listed")
        }
    }
}

/// Of a controller whose pods have no csi-snapshotter.
fn sidecar(seen: &Seen<'_>) -> Vec<Finding> {
    let managers = managers(seen.containers);
    let controllers = managers.iter().filter(|manager| manager.program == Program::DiskController);
    let without = controllers.filter(|manager| {
        let mut beside = seen
            .containers
            .iter()
            .filter(|container| container.namespace == manager.namespace && manager.pods.contains(&container.pod));
        !beside.any(|container| is_image(container, "csi-snapshotter"))
    });
    without
        .map(|manager| {
            let (grade, waiting) = match seen.contents {
                0 => (Grade::Note, String::new()),
                count => (Grade::Wrong, format!(", though the cluster has {count} VolumeSnapshotContents of it")),
            };
            let text = format!(
                "{}/{} has no container csi-snapshotter, so that no snapshot of a disk is taken or deleted{waiting}: run helm \
                 upgrade, now that the API server has the types, or set snapshots.enabled=true",
                manager.namespace, manager.owner
            );
            Finding::new(SNAPSHOTS, grade, text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(pod: &str, image: &str, command: &[&str]) -> Container {
        Container {
            namespace: "kube-system".into(),
            pod: pod.into(),
            owner: format!("Deployment/{pod}"),
            image: image.into(),
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            release: None,
        }
    }

    fn found(types: &[&str], containers: &[Container], is_whole: bool, lease: Option<&str>) -> Vec<(Grade, String)> {
        let types: Vec<String> = types.iter().map(|one| (*one).to_owned()).collect();
        let seen = Seen { types: &types, containers, is_whole, controller: lease, contents: 0 };
        machinery(&seen).into_iter().map(|finding| (finding.grade, finding.text)).collect()
    }

    #[test]
    fn no_type_is_a_note_and_some_of_them_are_wrong() {
        let none = found(&[], &[], true, None);
        assert!(none[0].0 == Grade::Note && none[0].1.contains("deploy/snapshots.md"), "{none:?}");
        assert_eq!(found(&["volumegroupsnapshots"], &[], true, None), none);
        let some = found(&["volumesnapshots", "volumesnapshotcontents"], &[], true, Some("a"));
        assert!(some[0].0 == Grade::Wrong && some[0].1.contains("not volumesnapshotclasses:"), "{some:?}");
        assert_eq!((none.len(), some.len()), (1, 1));
    }

    #[test]
    fn the_snapshot_controller_is_seen_by_its_image_or_by_its_lease_and_never_said_to_be_absent() {
        let pod = container("snap-1", "registry.example:5000/mirror/snapshot-controller:v8.7.0", &[]);
        let seen = found(&TYPES, &[pod], true, None);
        assert!(seen[0].0 == Grade::Fine && seen[0].1.ends_with("kube-system/snap-1"), "{seen:?}");
        let leased = found(&TYPES, &[], false, Some("control-plane-7"));
        assert!(leased[0].0 == Grade::Fine && leased[0].1.contains("control-plane-7"), "{leased:?}");
        let unseen = found(&TYPES, &[], true, None);
        assert!(unseen[0].0 == Grade::Note && unseen[0].1.contains("--manager-namespaces"), "{unseen:?}");
        assert_eq!(found(&TYPES, &[], false, None)[0].0, Grade::Unseen);
    }

    #[test]
    fn a_snapshot_controller_that_goes_with_the_go_driver_is_not_called_well() {
        let of = |release: &str| Container {
            release: Some(release.to_owned()),
            ..container("snap-1", "r/snapshot-controller:v8.7.0", &[])
        };
        let found = |release: &str| found(&TYPES, &[of(release)], true, Some("snap-1"));
        let go = found("azuredisk-csi-driver");
        assert!(go[0].0 == Grade::Note && go[0].1.contains("release azuredisk-csi-driver of the Go driver"), "{go:?}");
        assert_eq!(found("snapshot-controller")[0].0, Grade::Fine);
    }

    #[test]
    fn a_controller_without_csi_snapshotter_is_told_where_the_types_are() {
        let driver = |pod: &str| container(pod, "r/lazuli-controller:1", &["lazuli", "csi-controller"]);
        let snapshotter = |pod: &str| container(pod, "r/csi-snapshotter@sha256:0", &[]);
        let with = found(&TYPES, &[driver("a"), snapshotter("a")], true, Some("x"));
        assert_eq!(with.len(), 1, "{with:?}");
        // That of another driver's pod does not count.
        let without = found(&TYPES, &[driver("a"), snapshotter("b")], true, Some("x"));
        assert!(
            without[1].0 == Grade::Note && without[1].1.starts_with("kube-system/Deployment/a has no"),
            "{without:?}"
        );
        assert_eq!(found(&[], &[driver("a")], true, None).len(), 1, "the missing types are the reason");
        // Where there are snapshots it is wrong.
        let (types, containers) = (TYPES.map(str::to_owned), [driver("a")]);
        let seen = Seen { types: &types, containers: &containers, is_whole: true, controller: Some("x"), contents: 2 };
        let told = machinery(&seen);
        assert!(told[1].grade == Grade::Wrong && told[1].text.contains("has 2 VolumeSnapshotContents"), "{told:?}");
    }
}
