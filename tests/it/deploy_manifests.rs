//! What the manifests in `deploy` say: that the program understands its arguments, that no container has more rights
//! than its work needs, that versions agree. That the manifests are what the chart renders is the tier `chart`'s.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use csi_proto::csi::{CapacityRange, CreateVolumeRequest, Topology, TopologyRequirement};
use lazuli::cli::Cli;
use serde_json::{Value, json};

use super::disk_rig::{GIB, Rig, create_request};

/// The default manifests, and those with every option of the chart.
const RENDERED: [&str; 2] = ["deploy/manifests/lazuli.yaml", "tests/chart/everything.yaml"];

/// The default manifests with snapshots.
const WITH_SNAPSHOTS: &str = "deploy/manifests/lazuli-with-snapshots.yaml";

/// Where there are ServiceMonitors.
const RENDERED_MONITORS: [&str; 2] = ["deploy/manifests/monitoring.yaml", "tests/chart/everything.yaml"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The objects of a file.
fn objects(file: impl AsRef<Path>) -> Vec<Value> {
    let text = fs::read_to_string(root().join(file)).unwrap();
    let documents =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.starts_with('#') && line != "---"));
    documents.map(|part| serde_saphyr::from_str(part.trim_start_matches("---\n")).unwrap()).collect()
}

fn of_kind(file: impl AsRef<Path>, kind: &str) -> Vec<Value> {
    objects(file).into_iter().filter(|object| object["kind"] == kind).collect()
}

fn named(file: impl AsRef<Path>, kind: &str, name: &str) -> Value {
    of_kind(file, kind).into_iter().find(|object| object["metadata"]["name"] == name).unwrap()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().map(|text| text.as_str().unwrap()).collect()
}

fn controller(file: &str) -> Value {
    named(file, "Deployment", "lazuli-controller")["spec"]["template"]["spec"].clone()
}

fn node(file: &str) -> Value {
    named(file, "DaemonSet", "lazuli-node")["spec"]["template"]["spec"].clone()
}

/// A container's arguments as the kubelet gives them, with variables of this name and value.
fn arguments(container: &Value) -> Vec<String> {
    let expand = |text: &str| text.replace("$(NODE_NAME)", "node-0").replace("$(NAMESPACE)", "kube-system");
    strings(&container["args"]).into_iter().map(expand).collect()
}

#[test]
fn the_program_understands_the_arguments_of_its_containers() {
    for file in RENDERED.into_iter().chain(["tests/chart/azure-file.yaml", "tests/chart/azure-file-namespaces.yaml"]) {
        for pod in [controller(file), node(file)] {
            let container = &pod["containers"][0];
            assert_eq!(container["name"], "lazuli");
            let words = ["lazuli".to_owned()].into_iter().chain(arguments(container));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{file}: {error}");
            }
        }
        if let Some(container) = cloud_controllers(file) {
            let words = ["lazuli".to_owned()].into_iter().chain(arguments(&container));
            if let Err(error) = Cli::try_parse_from(words) {
                panic!("{file}: {error}");
            }
        }
    }
}

/// The container of the cloud controllers, where the values ask for it.
fn cloud_controllers(file: &str) -> Option<Value> {
    list(&controller(file)["containers"]).iter().find(|container| container["name"] == "cloud-controllers").cloned()
}

#[test]
fn the_cloud_controllers_and_their_rights_are_there_when_the_values_ask_for_them() {
    for (file, asked) in RENDERED.into_iter().zip([false, true]) {
        assert_eq!(cloud_controllers(file).is_some(), asked, "{file}");
        for kind in ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"] {
            let objects = of_kind(file, kind);
            let is_theirs = |object: &Value| object["metadata"]["name"] == "lazuli-cloud-controllers";
            assert_eq!(objects.iter().any(is_theirs), asked, "{file}: {kind}");
        }
        let Some(container) = cloud_controllers(file) else { continue };
        let arguments = arguments(&container);
        // The Lease that it takes is the one it may take.
        let role = named(file, "Role", "lazuli-cloud-controllers");
        assert_eq!(role["metadata"]["namespace"], argument(&arguments, "--lease-namespace"));
        assert_eq!(role["rules"][1]["resourceNames"], json!([argument(&arguments, "--lease-name")]));
        assert_eq!(argument(&arguments, "--metrics-authentication"), "kubernetes");
        for probe in ["startupProbe", "livenessProbe"] {
            assert_eq!(container[probe]["httpGet"]["port"], "cloud-health");
        }
        let port = |name: &str| argument(&arguments, name).rsplit(':').next().unwrap().parse::<u64>().unwrap();
        let (health, metrics) = (port("--health-endpoint"), port("--metrics-endpoint"));
        let ports = |name: &str, port: u64| json!({"name": name, "containerPort": port, "protocol": "TCP"});
        let webhook = ports("cloud-webhook", port("--webhook-address"));
        assert_eq!(
            container["ports"],
            json!([ports("cloud-health", health), ports("cloud-metrics", metrics), webhook])
        );
    }
}

/// The chart with the cloud controllers in pods of their own.
const DEPLOYED: &str = "tests/chart/cloud-controllers.yaml";

/// The plain manifests are for every version of Kubernetes; 1.34 is the first that knows the field.
#[test]
fn kubelet_asks_for_the_limit_of_disks_again_where_kubernetes_knows_how() {
    let period = |file: &str| of_kind(file, "CSIDriver")[0]["spec"]["nodeAllocatableUpdatePeriodSeconds"].clone();
    assert_eq!((period(RENDERED[0]), period(RENDERED[1]), period(DEPLOYED)), (Value::Null, json!(60), json!(60)));
}

/// The roles that an account has.
fn roles_of(file: &str, account: &str) -> BTreeSet<String> {
    let bindings = [of_kind(file, "ClusterRoleBinding"), of_kind(file, "RoleBinding")].concat();
    let of_account = bindings.iter().filter(|binding| subjects(binding).contains(&account.to_owned()));
    of_account.map(|binding| binding["roleRef"]["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn cloud_controllers_in_pods_of_their_own_share_no_account_secret_or_port_with_the_driver() {
    let deployment = named(DEPLOYED, "Deployment", "lazuli-cloud-controllers");
    let pod = &deployment["spec"]["template"]["spec"];
    let [container] = list(&pod["containers"]) else { panic!("{pod}") };
    let words = ["lazuli".to_owned()].into_iter().chain(arguments(container));
    if let Err(error) = Cli::try_parse_from(words) {
        panic!("{error}");
    }
    let driver = controller(DEPLOYED);
    assert!(list(&driver["containers"]).iter().all(|container| container["name"] != "cloud-controllers"));
    assert_eq!(pod["serviceAccountName"], "lazuli-cloud-controllers");
    assert_ne!(pod["serviceAccountName"], driver["serviceAccountName"]);

    // Each account has its own rights alone. Who scrapes is asked for by each process that is scraped.
    let theirs = roles_of(DEPLOYED, "lazuli-cloud-controllers");
    let roles = ["lazuli-cloud-controllers", "lazuli-cloud-controllers-config", "lazuli-metrics-reviews"];
    assert_eq!(theirs, roles.map(str::to_owned).into());
    let shared: Vec<_> = theirs.intersection(&roles_of(DEPLOYED, "lazuli-controller")).cloned().collect();
    assert_eq!(shared, ["lazuli-metrics-reviews"]);
    let secret = |container: &Value| argument(&arguments(container), "--cloud-config-secret-name").to_owned();
    let role = named(DEPLOYED, "Role", "lazuli-cloud-controllers-config");
    assert_eq!(role["rules"][0]["resourceNames"], json!([secret(container)]));
    assert_ne!(secret(container), secret(&driver["containers"][0]));

    // Both are on the node's network here.
    assert_eq!((&pod["hostNetwork"], &driver["hostNetwork"]), (&json!(true), &json!(true)));
    let ports = |pod: &Value| -> BTreeSet<u64> {
        let containers = list(&pod["containers"]).iter();
        containers.flat_map(|one| list(&one["ports"])).map(|port| port["containerPort"].as_u64().unwrap()).collect()
    };
    let node = node(DEPLOYED);
    assert!(ports(pod).is_disjoint(&ports(&driver)) && ports(pod).is_disjoint(&ports(&node)));
    // What initialises Nodes runs on Nodes that are not, and only that.
    let tolerates = |pod: &Value| {
        list(&pod["tolerations"]).iter().any(|one| one["key"] == "node.cloudprovider.kubernetes.io/uninitialized")
    };
    assert!(tolerates(pod) && !tolerates(&driver));
    let labels = &deployment["spec"]["template"]["metadata"]["labels"];
    for (kind, name) in [("Service", "lazuli-webhook"), ("PodDisruptionBudget", "lazuli-cloud-controllers")] {
        let object = named(DEPLOYED, kind, name);
        let selector = &object["spec"]["selector"];
        let selector = if selector["matchLabels"].is_object() { &selector["matchLabels"] } else { selector };
        assert!(selector.as_object().unwrap().iter().all(|(key, value)| labels[key] == *value), "{kind} {name}");
    }
}

/// They initialise the first Node, so they start where no Node is ready and no pod network is there.
#[test]
fn cloud_controllers_in_pods_of_their_own_are_placed_where_a_cluster_begins() {
    let deployment = named(DEPLOYED, "Deployment", "lazuli-cloud-controllers");
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 2, "another one takes the Lease over");
    // A second pod of a node finds the ports taken.
    assert_eq!(spec["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
    let pod = &spec["template"]["spec"];
    assert_eq!((&pod["hostNetwork"], &pod["dnsPolicy"]), (&json!(true), &json!("Default")));
    assert_eq!(pod["priorityClassName"], "system-cluster-critical");
    assert_eq!(pod["nodeSelector"]["kubernetes.io/os"], "linux");
    let tolerated: BTreeSet<&str> = list(&pod["tolerations"]).iter().map(|one| one["key"].as_str().unwrap()).collect();
    let needed = [
        "node-role.kubernetes.io/control-plane",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/not-ready",
    ];
    assert!(needed.iter().all(|key| tolerated.contains(key)), "{tolerated:?}");
    // The account is made, and named by nothing else.
    let account = named(DEPLOYED, "ServiceAccount", "lazuli-cloud-controllers");
    assert_eq!(account["metadata"]["namespace"], deployment["metadata"]["namespace"]);
    let others = [controller(DEPLOYED), node(DEPLOYED)];
    assert!(others.iter().all(|other| other["serviceAccountName"] != "lazuli-cloud-controllers"));
    let budget = &named(DEPLOYED, "PodDisruptionBudget", "lazuli-cloud-controllers")["spec"];
    assert_eq!(budget["maxUnavailable"], 1);
    assert_eq!(budget["selector"]["matchLabels"], spec["selector"]["matchLabels"]);
    assert_ne!(budget["selector"], named(DEPLOYED, "PodDisruptionBudget", "lazuli-controller")["spec"]["selector"]);
}

/// An API server that waits for a webhook, or a webhook that waits for a cluster, stops the cluster.
#[test]
fn the_webhooks_keep_nothing_from_working_and_look_at_nothing_but_volumes_and_claims_that_grow() {
    let kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];
    assert!(kinds.iter().all(|kind| of_kind(RENDERED[0], kind).is_empty()), "off by default");
    let file = RENDERED[1];
    let service = named(file, "Service", "lazuli-webhook");
    assert_eq!(service["spec"]["publishNotReadyAddresses"], true);
    let container = cloud_controllers(file).unwrap();
    let target = &service["spec"]["ports"][0];
    assert!(list(&container["ports"]).iter().any(|port| port["name"] == target["targetPort"]));
    let labels = &named(file, "Deployment", "lazuli-controller")["spec"]["template"]["metadata"]["labels"];
    let selector = service["spec"]["selector"].as_object().unwrap();
    assert!(selector.iter().all(|(key, value)| labels[key] == *value));

    let configurations = kinds.map(|kind| of_kind(file, kind));
    let webhooks: Vec<&Value> = configurations.iter().flatten().flat_map(|one| list(&one["webhooks"])).collect();
    assert_eq!(webhooks.len(), 2);
    let mut paths = Vec::new();
    for webhook in webhooks {
        assert_eq!((&webhook["failurePolicy"], &webhook["sideEffects"]), (&json!("Ignore"), &json!("None")));
        let timeout = webhook["timeoutSeconds"].as_u64().unwrap();
        assert!(timeout <= 2 && u128::from(timeout) * 1000 > lazuli_webhook::ANSWER_WITHIN.as_millis());
        assert!(!list(&webhook["matchConditions"]).is_empty());
        let client = &webhook["clientConfig"];
        assert_eq!(client["service"]["name"], "lazuli-webhook");
        assert_eq!(client["service"]["port"], target["port"]);
        assert!(client["caBundle"].as_str().is_some_and(|bundle| !bundle.is_empty()));
        let [rule] = list(&webhook["rules"]) else { panic!("{webhook}") };
        assert_eq!((&rule["apiGroups"], &rule["apiVersions"]), (&json!([""]), &json!(["v1"])));
        let path = client["service"]["path"].as_str().unwrap();
        assert_eq!(rule["resources"], json!([path.trim_start_matches('/')]));
        paths.push((path, rule["operations"][0].as_str().unwrap()));
        if rule["scope"] == "Namespaced" {
            let [namespaces] = list(&webhook["namespaceSelector"]["matchExpressions"]) else { panic!("{webhook}") };
            assert_eq!(namespaces["operator"], "NotIn");
            assert_eq!(strings(&namespaces["values"]), ["kube-system", "system"]);
        }
    }
    assert_eq!(paths, [(lazuli_webhook::VOLUMES, "CREATE"), (lazuli_webhook::CLAIMS, "UPDATE")]);

    // The one right that it takes.
    let role = named(file, "ClusterRole", "lazuli-cloud-controllers");
    let volumes = json!({"apiGroups": [""], "resources": ["persistentvolumes"], "verbs": ["get"]});
    assert!(list(&role["rules"]).contains(&volumes));
    let port: u64 = argument(&arguments(&container), "--webhook-address").trim_start_matches(':').parse().unwrap();
    let ingress = &named(file, "NetworkPolicy", "lazuli-controller")["spec"]["ingress"];
    assert!(list(ingress).contains(&json!({"ports": [{"protocol": "TCP", "port": port}]})));
}

#[test]
fn the_chart_is_of_the_programs_version_and_the_sidecars_are_those_that_are_tested() {
    let chart: Value =
        serde_saphyr::from_str(&fs::read_to_string(root().join("deploy/chart/Chart.yaml")).unwrap()).unwrap();
    for key in ["version", "appVersion"] {
        assert_eq!(chart[key], env!("CARGO_PKG_VERSION"), "{key}");
    }
    let pod = controller(WITH_SNAPSHOTS);
    for sidecar in ["provisioner", "attacher", "resizer", "snapshotter"] {
        let tool = fs::read_to_string(root().join(format!("tests/tools/external-{sidecar}/go.mod"))).unwrap();
        let module = format!("github.com/kubernetes-csi/external-{sidecar}/v");
        let pinned = tool.lines().find(|line| line.contains(&module) && !line.contains("// indirect")).unwrap();
        let version = pinned.split_whitespace().last().unwrap();
        let container = list(&pod["containers"]).iter().find(|c| c["name"] == format!("csi-{sidecar}")).unwrap();
        assert_eq!(container["image"], format!("registry.k8s.io/sig-storage/csi-{sidecar}:{version}"));
    }
}

#[test]
fn sidecars_have_many_workers_much_time_and_one_leader() {
    let pod = controller(WITH_SNAPSHOTS);
    assert_eq!(list(&pod["containers"]).len(), 5);
    for container in &list(&pod["containers"])[1..] {
        let arguments = arguments(container);
        let name = container["name"].as_str().unwrap();
        let value = |flag: &str| arguments.iter().find_map(|argument| argument.strip_prefix(flag)?.strip_prefix('='));
        assert_eq!(value("--timeout"), Some("2m"), "{name}");
        let workers: u32 = value("--worker-threads").or(value("--workers")).unwrap().parse().unwrap();
        assert!(workers >= 100, "{name} has {workers} workers");
        assert!(arguments.contains(&"--leader-election".to_owned()), "{name}");
        assert_eq!(value("--leader-election-namespace"), Some("kube-system"), "{name}");
        assert_eq!(value("--csi-address"), Some("unix:///csi/csi.sock"), "{name}");
    }
    // What names claims and VolumeSnapshots, for tags and templates.
    for (at, argument) in
        [(1, "--extra-create-metadata"), (3, "--extra-modify-metadata"), (4, "--extra-create-metadata")]
    {
        assert!(arguments(&pod["containers"][at]).contains(&argument.to_owned()), "{}", pod["containers"][at]["name"]);
    }
}

/// Source: csi-snapshotter ends without the types of its API, and csi-provisioner asks for them at a sweep alone.
#[test]
fn snapshots_are_taken_with_a_container_rights_and_a_lease_where_they_are_asked_for_and_with_nothing_else() {
    const LEASE: &str = "external-snapshotter-leader-disk-csi-azure-com";
    let expected: BTreeSet<(&str, &str)> = [
        ("volumesnapshotclasses", "list"),
        ("volumesnapshotclasses", "watch"),
        ("volumesnapshotcontents", "get"),
        ("volumesnapshotcontents", "list"),
        ("volumesnapshotcontents", "patch"),
        ("volumesnapshotcontents", "watch"),
        ("volumesnapshotcontents/status", "patch"),
        ("volumesnapshotcontents/status", "update"),
        ("volumesnapshots", "get"),
        ("volumesnapshots", "list"),
        ("volumesnapshots", "update"),
        ("volumesnapshots", "watch"),
    ]
    .into();
    for (file, asked) in [(RENDERED[0], false), (RENDERED[1], true), (WITH_SNAPSHOTS, true), (DEPLOYED, true)] {
        let pod = controller(file);
        let containers = list(&pod["containers"]);
        let snapshotter = containers.iter().find(|one| one["name"] == "csi-snapshotter");
        assert_eq!(snapshotter.is_some(), asked, "{file}");
        let of_provisioner = arguments(&containers[1]);
        let never_sweeps = of_provisioner.contains(&"--snapshot-orphan-sweep-interval=0".to_owned());
        assert_eq!(never_sweeps, !asked, "{file}");
        let roles = of_kind(file, "ClusterRole");
        let rules: Vec<&Value> = roles.iter().flat_map(|role| list(&role["rules"])).collect();
        let of_snapshots =
            rules.into_iter().filter(|rule| strings(&rule["apiGroups"]).contains(&"snapshot.storage.k8s.io"));
        let given: BTreeSet<(&str, &str)> = of_snapshots
            .flat_map(|rule| {
                let verbs = strings(&rule["verbs"]);
                strings(&rule["resources"])
                    .into_iter()
                    .flat_map(move |of| verbs.clone().into_iter().map(move |verb| (of, verb)))
            })
            .collect();
        assert_eq!(given, if asked { expected.clone() } else { BTreeSet::new() }, "{file}");
        let leases = &named(file, "Role", "lazuli-controller")["rules"][1]["resourceNames"];
        assert_eq!(strings(leases).contains(&LEASE), asked, "{file}");
        let Some(snapshotter) = snapshotter else { continue };
        // It takes snapshots of single volumes alone, and has no rights on those of groups.
        assert!(arguments(snapshotter).contains(&"--feature-gates=CSIVolumeGroupSnapshot=false".to_owned()), "{file}");
        let port = &snapshotter["ports"][0]["containerPort"];
        assert!(arguments(snapshotter).contains(&format!("--http-endpoint=:{port}")), "{file}");
        // There is none on the node's network.
        for policy in of_kind(file, "NetworkPolicy").iter().filter(|one| one["metadata"]["name"] == "lazuli-controller")
        {
            let ports = &policy["spec"]["ingress"][0]["ports"];
            assert!(list(ports).contains(&json!({"protocol": "TCP", "port": port})), "{file}");
        }
        assert_eq!(snapshotter["livenessProbe"]["httpGet"]["port"], snapshotter["ports"][0]["name"], "{file}");
    }
    let monitor = named(RENDERED[1], "ServiceMonitor", "lazuli-controller");
    assert!(list(&monitor["spec"]["endpoints"]).iter().any(|endpoint| endpoint["port"] == "snapshotter"));
}

/// Source: csi-provisioner and csi-resizer turn the gate off by themselves where the API server has no such classes.
#[test]
fn the_sidecars_of_disks_find_out_whether_there_are_attributes_classes() {
    for file in RENDERED {
        let pod = controller(file);
        for container in list(&pod["containers"]) {
            let arguments = arguments(container);
            assert!(!arguments.iter().any(|one| one.contains("VolumeAttributesClass")), "{file}: {arguments:?}");
        }
        for (role, verbs) in [("lazuli-provisioner", json!(["get"])), ("lazuli-resizer", json!(["list", "watch"]))] {
            let rule =
                json!({"apiGroups": ["storage.k8s.io"], "resources": ["volumeattributesclasses"], "verbs": verbs});
            assert!(list(&named(file, "ClusterRole", role)["rules"]).contains(&rule), "{file}: {role}");
        }
    }
}

/// What the level `restricted` asks (source: Pod Security Standards), and more: a read-only root and one user.
#[test]
fn the_controllers_pod_is_restricted_and_one_user_runs_all_its_containers() {
    for file in RENDERED {
        let pod = controller(file);
        for namespace in ["hostNetwork", "hostPID", "hostIPC"] {
            assert!(pod[namespace].is_null(), "{file}: {namespace}");
        }
        let security = &pod["securityContext"];
        assert_eq!(
            (&security["runAsNonRoot"], &security["seccompProfile"]["type"]),
            (&json!(true), &json!("RuntimeDefault"))
        );
        assert!(security["runAsUser"].as_u64().unwrap() > 0);
        for container in list(&pod["containers"]) {
            let expected = json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            });
            assert_eq!(container["securityContext"], expected, "{file}: {}", container["name"]);
            assert!(list(&container["ports"]).iter().all(|port| port["hostPort"].is_null()));
        }
        for volume in list(&pod["volumes"]) {
            let kinds = ["emptyDir", "configMap", "projected", "secret"];
            assert!(kinds.iter().any(|kind| !volume[*kind].is_null()), "{file}: {volume}");
        }
    }
}

#[test]
fn the_sockets_of_lazuli_why_are_in_a_volume_that_no_sidecar_mounts() {
    let files = RENDERED.map(|file| (file, vec!["lazuli-controller"]));
    let apart = ("tests/chart/cloud-controllers.yaml", vec!["lazuli-controller", "lazuli-cloud-controllers"]);
    let mut ours = 0;
    for (file, deployments) in files.into_iter().chain([apart]) {
        for deployment in deployments {
            let pod = &named(file, "Deployment", deployment)["spec"]["template"]["spec"];
            let volume = json!({"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}});
            assert!(list(&pod["volumes"]).contains(&volume), "{file}: {deployment}");
            for container in list(&pod["containers"]) {
                let mounts: Vec<&Value> =
                    list(&container["volumeMounts"]).iter().filter(|mount| mount["name"] == "run").collect();
                match ["lazuli", "cloud-controllers"].contains(&container["name"].as_str().unwrap()) {
                    true => assert_eq!(mounts, [&json!({"name": "run", "mountPath": "/run/lazuli"})], "{file}"),
                    false => assert!(mounts.is_empty(), "{file}: {}", container["name"]),
                }
                ours += mounts.len();
            }
        }
    }
    // The driver in three files, and the cloud controllers in two of them.
    assert_eq!(ours, 5);
}

#[test]
fn no_container_finds_a_secret_in_its_environment() {
    for file in RENDERED {
        for pod in [controller(file), node(file)] {
            for variable in list(&pod["containers"]).iter().flat_map(|container| list(&container["env"])) {
                let name = variable["name"].as_str().unwrap();
                assert!(!name.contains("SECRET") && !name.contains("PASSWORD"), "{file}: {name}");
                assert!(variable["valueFrom"]["secretKeyRef"].is_null(), "{file}: {name}");
            }
        }
    }
}

#[test]
fn the_node_plugin_sees_kubelets_volume_folders_the_devices_and_nothing_else_of_the_host() {
    for (file, kubelet) in RENDERED.into_iter().zip(["/var/lib/kubelet", "/opt/kubelet"]) {
        let pod = node(file);
        assert!(pod["hostPID"].is_null() && pod["hostIPC"].is_null(), "{file}");
        assert_eq!(list(&pod["containers"]).len(), 1, "{file}: one container");
        let (of_the_host, others): (Vec<&Value>, Vec<&Value>) =
            list(&pod["volumes"]).iter().partition(|volume| !volume["hostPath"].is_null());
        let paths: BTreeMap<&str, &str> = of_the_host
            .iter()
            .map(|volume| (volume["name"].as_str().unwrap(), volume["hostPath"]["path"].as_str().unwrap()))
            .collect();
        // In most clusters there is no such ConfigMap, and the pod starts all the same.
        let sizes = json!({"name": "vm-sizes", "configMap": {"name": "lazuli-vm-sizes", "optional": true}});
        assert!(others.contains(&&sizes), "{file}");
        for other in others {
            assert!(!other["configMap"].is_null() || !other["secret"].is_null(), "{file}: {other}");
        }
        let at = |below: &str| format!("{kubelet}/{below}");
        let expected = [
            ("plugin", at("plugins/disk.csi.azure.com")),
            ("registration", at("plugins_registry")),
            ("staging", at("plugins/kubernetes.io/csi")),
            ("pods", at("pods")),
            ("dev", "/dev".to_owned()),
            ("sys", "/sys".to_owned()),
        ];
        assert_eq!(paths, expected.iter().map(|(name, path)| (*name, path.as_str())).collect(), "{file}");
        // kubelet names paths of the host.
        for mount in list(&pod["containers"][0]["volumeMounts"]) {
            let shared = ["staging", "pods"].map(Value::from).contains(&mount["name"]);
            assert_eq!(mount["mountPropagation"] == "Bidirectional", shared, "{file}: {mount}");
            if shared {
                assert_eq!(mount["mountPath"], paths[mount["name"].as_str().unwrap()], "{file}");
            }
        }
    }
}

#[test]
fn a_role_has_no_wildcard_and_a_secret_is_read_by_name() {
    for (file, count) in RENDERED.into_iter().zip([10, 13]) {
        let roles = [of_kind(file, "ClusterRole"), of_kind(file, "Role")].concat();
        assert_eq!(roles.len(), count, "{file}");
        for role in &roles {
            for rule in list(&role["rules"]) {
                let name = &role["metadata"]["name"];
                let of = |key: &str| strings(&rule[key]);
                assert!(["apiGroups", "resources", "verbs"].iter().all(|key| !of(key).contains(&"*")), "{name}");
                if of("resources").contains(&"secrets") {
                    assert_eq!(
                        (of("verbs"), of("resourceNames").len(), &role["kind"]),
                        (vec!["get"], 1, &json!("Role"))
                    );
                }
            }
        }
        // Source: the sidecars make the names of their leases from the driver's, so the Go driver's have these too.
        let leases = &named(file, "Role", "lazuli-controller")["rules"][1]["resourceNames"];
        let expected = ["", "external-attacher-leader-", "external-resizer-", "external-snapshotter-leader-"]
            .map(|of| format!("{of}disk-csi-azure-com"));
        let snapshots = file == RENDERED[1];
        assert_eq!(*leases, json!(&expected[..if snapshots { 4 } else { 3 }]), "{file}");
        // The published VM sizes are a volume: the node plugin has rights in no namespace.
        let in_namespaces = of_kind(file, "RoleBinding");
        assert!(in_namespaces.iter().all(|binding| !subjects(binding).contains(&"lazuli-node".to_owned())), "{file}");
        // What RBAC cannot limit to the own node, a policy does.
        let everywhere = named(file, "ClusterRole", "lazuli-node");
        let writes = |rule: &&Value| strings(&rule["verbs"]).iter().any(|verb| *verb != "get");
        let writes: Vec<&Value> = list(&everywhere["rules"]).iter().filter(writes).collect();
        // Events tell people and change nothing.
        let nodes = json!({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]});
        let events = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"]});
        assert_eq!(writes, [&nodes, &events], "{file}");
        let binding = named(file, "ValidatingAdmissionPolicyBinding", "lazuli-own-node");
        assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]), "{file}");
    }
}

/// The names of those to whom a binding gives its role.
fn subjects(binding: &Value) -> Vec<String> {
    list(&binding["subjects"]).iter().map(|subject| subject["name"].as_str().unwrap().to_owned()).collect()
}

/// The value of an argument of the driver.
fn argument<'a>(arguments: &'a [String], name: &str) -> &'a str {
    let value = |argument: &'a String| argument.strip_prefix(name)?.strip_prefix('=');
    arguments.iter().find_map(value).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn metrics_that_other_machines_can_reach_are_for_those_whom_the_cluster_lets_get_them() {
    for (file, nodes_are_exposed) in RENDERED.into_iter().zip([false, true]) {
        let may_ask = subjects(&named(file, "ClusterRoleBinding", "lazuli-metrics-reviews"));
        for (account, pod, is_exposed) in
            [("lazuli-controller", controller(file), true), ("lazuli-node", node(file), nodes_are_exposed)]
        {
            let (container, what) = (&pod["containers"][0], format!("{file}: {account}"));
            let arguments = arguments(container);
            let value = |name: &str| argument(&arguments, name);
            let at = |name: &str| value(name).parse::<lazuli_telemetry::http::Listen>().unwrap();
            assert_eq!(!at("--metrics-endpoint").is_loopback(), is_exposed, "{what}");
            let authentication = if is_exposed { "kubernetes" } else { "none" };
            assert_eq!(value("--metrics-authentication"), authentication, "{what}");
            // No right that is not used.
            assert_eq!(may_ask.contains(&account.to_owned()), is_exposed, "{what}");
            // Clients that fill the port for metrics delay no probe.
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                assert_eq!(container[probe]["httpGet"]["port"], "health", "{what}");
            }
            let ports = list(&container["ports"]).iter();
            let ports: Vec<String> = ports.map(|port| format!("{}:{}", port["name"], port["containerPort"])).collect();
            let port = |name: &str| value(name).rsplit(':').next().unwrap().to_owned();
            let expected = [("health", port("--health-endpoint")), ("metrics", port("--metrics-endpoint"))];
            assert_eq!(ports, expected.map(|(name, port)| format!("\"{name}\":{port}")), "{what}");
        }
        let role = named(file, "ClusterRole", "lazuli-metrics-reader");
        assert_eq!(role["rules"], json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]), "{file}");
        // A peer reaches metrics and no more.
        let policy = &named(file, "NetworkPolicy", "lazuli-controller")["spec"]["ingress"][0]["ports"];
        let health: u64 = controller(file)["containers"][0]["ports"][0]["containerPort"].as_u64().expect("is a number");
        let mut expected = vec![json!({"protocol": "TCP", "port": health + 1, "endPort": health + 4})];
        let snapshotter = list(&controller(file)["containers"])
            .iter()
            .find(|container| container["name"] == "csi-snapshotter")
            .map(|container| container["ports"][0]["containerPort"].clone());
        expected.extend(snapshotter.map(|port| json!({"protocol": "TCP", "port": port})));
        if cloud_controllers(file).is_some() {
            expected.push(json!({"protocol": "TCP", "port": health + 6}));
        }
        assert_eq!(*policy, json!(expected), "{file}");
    }
    // Prometheus asks for them by TLS and with its own token.
    let monitors = RENDERED_MONITORS.iter().flat_map(|file| of_kind(file, "ServiceMonitor"));
    let endpoints: Vec<Value> = monitors.flat_map(|monitor| list(&monitor["spec"]["endpoints"]).to_vec()).collect();
    let of_the_driver: Vec<&Value> = endpoints
        .iter()
        .filter(|endpoint| ["metrics", "cloud-metrics"].contains(&endpoint["port"].as_str().unwrap()))
        .collect();
    assert_eq!(of_the_driver.len(), 4);
    for endpoint in of_the_driver {
        assert_eq!(endpoint["scheme"], "https");
        assert_eq!(endpoint["bearerTokenFile"], "/var/run/secrets/kubernetes.io/serviceaccount/token");
        // The token goes to no server whose certificate is not verified.
        let verified = &endpoint["tlsConfig"];
        assert!(verified["ca"]["secret"]["name"].is_string() && verified["serverName"].is_string(), "{verified}");
        assert_eq!(verified.get("insecureSkipVerify"), None);
    }
}

#[test]
fn the_nodes_image_has_every_program_that_the_node_plugin_runs() {
    let packages = fs::read_to_string(root().join("scripts/parts/debian.py")).unwrap();
    let words: BTreeSet<&str> =
        packages.split(|letter: char| letter.is_whitespace() || "\"[],".contains(letter)).collect();
    for tool in lazuli_host::tools::TOOLS {
        let folders = ["sbin", "bin", "usr/sbin"];
        assert!(folders.iter().any(|folder| words.contains(format!("{folder}/{tool}").as_str())), "{tool}");
    }
}

/// The metrics that the reference lists.
fn metrics() -> BTreeSet<String> {
    let page = fs::read_to_string(root().join("deploy/reference/metrics.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `lazuli_") || line.starts_with("| `process_"));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn an_alert_asks_for_metrics_that_there_are_and_says_what_to_do() {
    let known = metrics();
    let rules = named(RENDERED[1], "PrometheusRule", "lazuli");
    let alerts = list(&rules["spec"]["groups"][0]["rules"]);
    let documented = fs::read_to_string(root().join("deploy/events-and-alerts.md")).unwrap();
    assert!(alerts.len() >= 9);
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap();
        assert!(documented.contains(&format!("| {name} |")), "deploy/events-and-alerts.md does not list {name}");
        let expression = alert["expr"].as_str().unwrap();
        for word in expression.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if word.starts_with("lazuli_") || word.starts_with("process_") {
                let series = ["_bucket", "_count"].into_iter().find_map(|end| word.strip_suffix(end)).unwrap_or(word);
                assert!(known.contains(series), "{name}: {word}");
            }
        }
        for annotation in ["summary", "description", "action"] {
            assert!(
                alert["annotations"][annotation].as_str().is_some_and(|text| text.ends_with(['.', ';'])),
                "{name}: {annotation}"
            );
        }
    }
}

/// The classes of VHD blob disks, which a cluster of managed disks refuses in part.
const OF_BLOBS: &str = "deploy/examples/blob-storage-classes.yaml";

/// Every StorageClass of managed disks in `deploy`: its name and parameters.
fn classes() -> Vec<(String, Vec<(String, String)>)> {
    let examples = fs::read_dir(root().join("deploy/examples")).unwrap();
    let files: Vec<PathBuf> =
        examples.map(|file| file.unwrap().path()).chain([root().join("deploy/manifests/lazuli.yaml")]).collect();
    classes_of(&files.into_iter().filter(|file| *file != root().join(OF_BLOBS)).collect::<Vec<_>>())
}

/// The StorageClasses of disks in files.
fn classes_of(files: &[PathBuf]) -> Vec<(String, Vec<(String, String)>)> {
    let classes = files.iter().flat_map(|file| of_kind(file, "StorageClass"));
    let classes = classes.filter(|class| class["provisioner"] != "file.csi.azure.com");
    let parameters = |class: &Value| {
        let pairs = class["parameters"].as_object().unwrap();
        pairs.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
    };
    classes.map(|class| (class["metadata"]["name"].as_str().unwrap().to_owned(), parameters(&class))).collect()
}

#[test]
fn the_examples_of_blob_disks_ask_for_the_disks_of_the_in_tree_plugin() {
    use lazuli_vhd::class::{BlobDisks, Choice, Defaults, Found, Machines, Place, Request, choose};

    let defaults = Defaults {
        blob_disks: BlobDisks::Auto,
        is_stack_hub: false,
        subscription: "s".to_owned(),
        resource_group: "g".to_owned(),
        location: "westeurope".to_owned(),
    };
    let found = Found { machines: Some(Machines::Blobs), blob: Some(false), managed: Some(false) };
    let made = |(name, parameters): (String, Vec<(String, String)>)| {
        let parameters = parameters.into_iter().collect();
        let request = Request { name: "pvc-1".to_owned(), parameters, required_bytes: GIB, limit_bytes: 0 };
        match choose(&request, &defaults, &found) {
            Ok(Choice::Managed { warning: None }) => (name, None),
            Ok(Choice::Blob(class)) => (name, Some((class.place, class.sku.unwrap().to_string()))),
            other => panic!("{name}: {other:?}"),
        }
    };
    let classes: Vec<_> = classes_of(&[root().join(OF_BLOBS)]).into_iter().map(made).collect();
    let blob = |place, sku: &str| Some((place, sku.to_owned()));
    let expected = [
        ("managedssd", None),
        ("accounthdd", blob(Place::Account("azuretestx".to_owned()), "Standard_LRS")),
        ("sharedssd", blob(Place::Shared, "Premium_LRS")),
        ("dedicatedhdd", blob(Place::Dedicated, "Standard_LRS")),
    ];
    assert_eq!(classes, expected.map(|(name, made)| (name.to_owned(), made)));
    let all = fs::read_to_string(root().join(OF_BLOBS)).unwrap();
    assert_eq!(all.matches("provisioner: disk.csi.azure.com\n").count(), classes.len());
}

#[tokio::test(start_paused = true)]
async fn every_storage_class_of_the_chart_and_of_the_examples_makes_a_disk() {
    let (rig, client) = Rig::typical().await;
    let classes = classes();
    assert!(classes.len() >= 7);
    for (name, parameters) in &classes {
        let metadata = [("name", "data"), ("namespace", "default")];
        let metadata = metadata.map(|(key, value)| (format!("csi.storage.k8s.io/pvc/{key}"), value.to_owned()));
        let all: Vec<(&str, &str)> =
            parameters.iter().chain(&metadata).map(|(key, value)| (key.as_str(), value.as_str())).collect();
        // external-provisioner takes this one for itself.
        let all: Vec<(&str, &str)> = all.into_iter().filter(|(key, _)| *key != "csi.storage.k8s.io/fstype").collect();
        let size = CapacityRange { required_bytes: 64 * GIB, limit_bytes: 0 };
        let zone = Topology { segments: [("topology.disk.csi.azure.com/zone".into(), "westeurope-1".into())].into() };
        let zones = TopologyRequirement { requisite: vec![zone.clone()], preferred: vec![zone] };
        let request = CreateVolumeRequest {
            capacity_range: Some(size),
            accessibility_requirements: Some(zones),
            ..create_request(&format!("pvc-{name}"), &all)
        };
        if let Err(status) = client.clone().create_volume(request).await {
            panic!("{name}: {status}");
        }
    }
    rig.stop().await;
}
