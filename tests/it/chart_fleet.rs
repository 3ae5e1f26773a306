//! The chart for a fleet whose machines, names, labels and accounts are its operator's. That the file is what the chart renders is
//! the tier `chart`'s.

use std::{collections::BTreeSet, fs, path::Path};

use clap::Parser as _;
use lazuli::cli::Cli;
use serde_json::{Value, json};

const FLEET: &str = "tests/chart/fleet.yaml";
/// With the default names, everywhere a part of the chart is on.
const OTHERS: [&str; 4] = [
    "deploy/manifests/lazuli-with-files.yaml",
    "tests/chart/everything.yaml",
    "tests/chart/azure-file.yaml",
    "tests/chart/cloud-controllers.yaml",
];

fn objects(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
    let documents =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.starts_with('#') && line != "---"));
    documents.map(|part| serde_saphyr::from_str(part.trim_start_matches("---\n")).unwrap()).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn named(kind: &str, name: &str) -> Value {
    let found = objects(FLEET).into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

/// The pods of controller, cloud controllers and node plugin.
fn pods() -> [Value; 3] {
    [("Deployment", "storage-controller"), ("Deployment", "storage-cloud-controllers"), ("DaemonSet", "storage-node")]
        .map(|(kind, name)| named(kind, name)["spec"]["template"]["spec"].clone())
}

fn container(pod: &Value, name: &str) -> Value {
    list(&pod["containers"]).iter().find(|container| container["name"] == name).unwrap().clone()
}

fn arguments(container: &Value) -> Vec<&str> {
    list(&container["args"]).iter().map(|argument| argument.as_str().unwrap()).collect()
}

/// Source: the recommended labels of Kubernetes, and the labels of Helm's own example.
#[test]
fn every_object_and_pod_has_the_standard_labels_and_those_of_the_operator() {
    for (file, prefix) in OTHERS.into_iter().map(|file| (file, "lazuli")).chain([(FLEET, "storage")]) {
        for object in objects(file) {
            let what = format!("{file}: {} {}", object["kind"], object["metadata"]["name"]);
            let pod = &object["spec"]["template"]["metadata"]["labels"];
            for labels in [&object["metadata"]["labels"]].into_iter().chain(pod.is_object().then_some(pod)) {
                for (label, value) in [("name", prefix), ("instance", "lazuli"), ("part-of", "lazuli")] {
                    assert_eq!(labels[format!("app.kubernetes.io/{label}")], value, "{what}: {label}");
                }
                assert_eq!(labels["app.kubernetes.io/version"], env!("CARGO_PKG_VERSION"), "{what}");
                // Nobody's Helm manages what is applied from the plain manifests.
                let by_helm = !file.starts_with("deploy/manifests");
                let chart = format!("lazuli-{}", env!("CARGO_PKG_VERSION"));
                assert_eq!(labels["app.kubernetes.io/managed-by"] == "Helm", by_helm, "{what}");
                assert_eq!(labels["helm.sh/chart"] == chart.as_str(), by_helm, "{what}");
                assert_eq!(labels["example.com/team"] == "storage", file == FLEET, "{what}");
            }
            let annotations = &object["metadata"]["annotations"];
            assert_eq!(annotations["example.com/owner"] == "storage@example.com", file == FLEET, "{what}");
        }
    }
    let [controller, ..] = ["storage-controller"].map(|name| named("Deployment", name));
    let pod = &controller["spec"]["template"]["metadata"];
    assert_eq!(pod["labels"]["example.com/tier"], "control");
    assert_eq!(pod["annotations"]["example.com/note"], "controller");
}

/// Two drivers of one name in a cluster have the leases of both in common, and the ConfigMap of VM sizes is the program's.
#[test]
fn every_name_begins_with_the_one_that_the_operator_gave() {
    let of_azure = ["disk.csi.azure.com", "file.csi.azure.com"];
    for object in objects(FLEET) {
        let (kind, name) = (object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap());
        let is_free = ["StorageClass", "CSIDriver"].contains(&kind) || name == "azure-node";
        assert!(is_free || name == "storage" || name.starts_with("storage-"), "{kind} {name}");
        assert!(kind != "CSIDriver" || of_azure.contains(&name), "{name}");
    }
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(FLEET)).unwrap();
    let word = |from: &str| -> String {
        from.chars().take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '-').collect()
    };
    let names: BTreeSet<String> = text.match_indices("lazuli-").map(|(at, _)| word(&text[at..])).collect();
    // Its chart, its images, the tag and the ConfigMap that the program knows, and the audience of tokens.
    let known =
        ["lazuli-0", "lazuli-controller", "lazuli-node", "lazuli-request", "lazuli-vm-sizes", "lazuli-key-broker"];
    assert!(names.iter().all(|name| known.contains(&name.as_str())), "{names:?}");
    let images = ["registry.example/lazuli-controller:", "registry.example/lazuli-node:"];
    for name in ["lazuli-controller", "lazuli-node"] {
        let all = text.matches(name).count();
        assert_eq!(
            all,
            images.iter().map(|image| text.matches(image).count() * usize::from(image.contains(name))).sum::<usize>()
        );
    }
}

/// What selects finds: the labels of a selector are those of the pods.
#[test]
fn every_selector_finds_the_pods_of_its_component() {
    let all = objects(FLEET);
    let pods: Vec<Value> = all.iter().map(|object| object["spec"]["template"]["metadata"]["labels"].clone()).collect();
    let (mut services, mut selectors) = (Vec::new(), 0);
    for object in &all {
        let selectors_here = match object["kind"].as_str().unwrap() {
            "Service" => {
                services.push(object["metadata"]["labels"].clone());
                object["spec"]["selector"].clone()
            }
            "Deployment" | "DaemonSet" | "PodDisruptionBudget" => object["spec"]["selector"]["matchLabels"].clone(),
            "NetworkPolicy" => object["spec"]["podSelector"]["matchLabels"].clone(),
            _ => continue,
        };
        let wanted = selectors_here.as_object().unwrap();
        let keys: BTreeSet<&str> = wanted.keys().map(String::as_str).collect();
        assert_eq!(keys, ["app.kubernetes.io/component", "app.kubernetes.io/name"].into());
        let found = pods.iter().filter(|labels| wanted.iter().all(|(key, value)| labels[key] == *value)).count();
        assert_eq!(found, 1, "{}", object["metadata"]);
        selectors += 1;
    }
    assert!(selectors >= 7, "{selectors}");
    for monitor in all.iter().filter(|object| object["kind"] == "ServiceMonitor") {
        let wanted = monitor["spec"]["selector"]["matchLabels"].as_object().unwrap();
        let found = services.iter().filter(|labels| wanted.iter().all(|(key, value)| labels[key] == *value)).count();
        assert_eq!(found, 1, "{}", monitor["metadata"]["name"]);
        assert_eq!(monitor["metadata"]["labels"]["release"], "prometheus");
    }
}

/// The file may hold a password, and its folder the keys of kubelet.
#[test]
fn the_configuration_of_the_node_is_a_single_file_that_only_those_read_who_speak_to_azure() {
    let [controller, cloud, node] = pods();
    for (pod, name) in [(&controller, "lazuli"), (&cloud, "cloud-controllers")] {
        let volume = list(&pod["volumes"]).iter().find(|volume| volume["name"] == "azure-config").unwrap();
        assert_eq!(volume["hostPath"], json!({"path": "/etc/kubernetes/azure.json", "type": "File"}));
        let has_it =
            |container: &&Value| list(&container["volumeMounts"]).iter().any(|one| one["name"] == "azure-config");
        let readers: Vec<&Value> = list(&pod["containers"]).iter().filter(has_it).map(|one| &one["name"]).collect();
        assert_eq!(readers, [name]);
        let container = container(pod, name);
        let mount = list(&container["volumeMounts"]).iter().find(|mount| mount["name"] == "azure-config").unwrap();
        assert_eq!(mount["readOnly"], true);
        let argument = format!("--cloud-config={}", mount["mountPath"].as_str().unwrap());
        assert!(arguments(&container).contains(&argument.as_str()), "{argument}");
        assert!(arguments(&container).contains(&"--cloud-config-secret-name="));
        // Root, for the file is often root's alone, and with no more rights than that.
        assert_eq!(pod["securityContext"]["runAsUser"], 0);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], false);
        assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    }
    assert!(!node.to_string().contains("azure.json"));
    // No Secret is read, so nobody may.
    let secrets = |rule: &&Value| list(&rule["resources"]).contains(&json!("secrets"));
    let roles: Vec<String> = objects(FLEET)
        .iter()
        .filter(|object| list(&object["rules"]).iter().any(|rule| secrets(&rule)))
        .map(|role| role["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    // Those with the keys of storage accounts.
    assert_eq!(roles, ["storage-account-keys"]);
}

#[test]
fn an_account_of_the_operator_has_the_rights_and_is_the_one_that_policies_name() {
    let made: Vec<Value> = objects(FLEET)
        .into_iter()
        .filter(|object| object["kind"] == "ServiceAccount")
        .map(|account| account["metadata"]["name"].clone())
        .collect();
    assert_eq!(made, ["azure-node", "storage-cloud-controllers"], "the controller's is there already");
    let annotations = &named("ServiceAccount", "storage-cloud-controllers")["metadata"]["annotations"];
    assert_eq!(annotations["example.com/note"], "account");
    let accounts = pods().map(|pod| pod["serviceAccountName"].clone());
    assert_eq!(accounts, ["azure-disks", "storage-cloud-controllers", "azure-node"]);
    let subjects: BTreeSet<String> = objects(FLEET)
        .iter()
        .flat_map(|object| list(&object["subjects"]).to_vec())
        .map(|subject| subject["name"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(subjects, accounts.map(|account| account.as_str().unwrap().to_owned()).into());
    let policy = named("ValidatingAdmissionPolicy", "storage-own-node");
    let condition = &policy["spec"]["matchConditions"][0]["expression"];
    assert_eq!(condition, "request.userInfo.username == 'system:serviceaccount:kube-system:azure-node'");
    let [controller, _, node] = pods();
    let controller = container(&controller, "lazuli");
    assert!(arguments(&controller).contains(&"--key-broker-node-account=kube-system/azure-node"));
    // The node plugins ask the Service that there is.
    let node = container(&node, "lazuli");
    assert!(arguments(&node).contains(&"--key-broker-service=kube-system/storage-key-broker"));
    named("Service", "storage-key-broker");
}

#[test]
fn pods_have_what_the_operator_adds_and_their_own_as_well() {
    let [controller, cloud, node] = pods();
    let volume = |pod: &Value, name: &str| list(&pod["volumes"]).iter().any(|volume| volume["name"] == name);
    let mount = |container: &Value, name: &str| list(&container["volumeMounts"]).iter().any(|one| one["name"] == name);
    let variable = |container: &Value, name: &str| list(&container["env"]).iter().any(|one| one["name"] == name);
    for (pod, name, own, added, env) in [
        (&controller, "lazuli", "socket", "certificates", "GODEBUG_LIKE"),
        (&cloud, "cloud-controllers", "run", "certificates", "ZONE"),
        (&node, "lazuli", "plugin", "certs", "TZ"),
    ] {
        let container = container(pod, name);
        for volume_name in [own, added] {
            assert!(volume(pod, volume_name) && mount(&container, volume_name), "{name}: {volume_name}");
        }
        assert!(variable(&container, env), "{name}: {env}");
        let words = ["lazuli"].into_iter().chain(arguments(&container));
        let words = words.map(|word| word.replace("$(NODE_NAME)", "node-0"));
        if let Err(error) = Cli::try_parse_from(words) {
            panic!("{name}: {error}");
        }
    }
    assert!(variable(&container(&node, "lazuli"), "NODE_NAME"));
    let dns = [&controller, &cloud, &node].map(|pod| pod["dnsPolicy"].clone());
    assert_eq!(dns, ["ClusterFirstWithHostNet", "ClusterFirstWithHostNet", "Default"]);
    assert_eq!(controller["dnsConfig"]["options"][0]["name"], "ndots");
    assert_eq!(node["dnsConfig"]["nameservers"], json!(["10.0.0.10"]));
    assert_eq!(named("Deployment", "storage-controller")["spec"]["strategy"], json!({"type": "Recreate"}));
    assert_eq!(named("DaemonSet", "storage-node")["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
}

/// Both drivers have the sidecar, with the same settings.
#[test]
fn sidecars_take_rates_gates_and_arguments_and_keep_what_the_driver_needs() {
    let [controller, ..] = pods();
    // Whether there are attributes classes, the sidecars of disks find out by themselves.
    let gates = "--feature-gates=CrossNamespaceVolumeDataSource=false,Topology=true";
    for (name, gates) in [
        ("csi-provisioner", gates.to_owned()),
        ("csi-file-provisioner", format!("{gates},VolumeAttributesClass=false")),
    ] {
        let sidecar = container(&controller, name);
        let all = arguments(&sidecar);
        for argument in [
            "--kube-api-qps=20",
            "--kube-api-burst=40",
            "--v=4",
            "--retry-interval-max=30s",
            "--extra-create-metadata",
            gates.as_str(),
        ] {
            assert_eq!(all.iter().filter(|one| **one == argument).count(), 1, "{name}: {argument} of {all:?}");
        }
        // Two of one option would leave it to the sidecar which counts.
        let options: Vec<&str> = all.iter().map(|argument| argument.split('=').next().unwrap()).collect();
        assert_eq!(options.iter().collect::<BTreeSet<_>>().len(), options.len(), "{name}: {options:?}");
        let variables: Vec<&Value> = list(&sidecar["env"]).iter().map(|one| &one["name"]).collect();
        assert_eq!(variables, ["NAMESPACE", "GOGC"], "{name}");
    }
    // Its own verbosity, also where that is nothing; and what all have.
    assert!(arguments(&container(&controller, "csi-attacher")).contains(&"--v=0"));
    assert!(arguments(&container(&controller, "csi-resizer")).contains(&"--v=2"));
}

/// Source: the API of CSIDriver. An absent period means that kubelet never asks again.
#[test]
fn the_objects_of_the_drivers_say_what_the_operator_chose() {
    let disks = named("CSIDriver", "disk.csi.azure.com")["spec"].clone();
    assert_eq!(disks["fsGroupPolicy"], "ReadWriteOnceWithFSType");
    assert_eq!(disks["seLinuxMount"], true);
    assert_eq!(disks["nodeAllocatableUpdatePeriodSeconds"], Value::Null);
    assert_eq!(named("CSIDriver", "file.csi.azure.com")["spec"]["fsGroupPolicy"], "None");
}
