//! What the chart says with Azure Files: a second driver in the same pods, and the keys of its shares for nobody who does
//! not need them. That the files are what the chart renders is the tier `chart`'s.

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

const PLAIN: &str = "deploy/manifests/lazuli.yaml";
/// The plain manifests with Azure Files.
const FILES: &str = "deploy/manifests/lazuli-with-files.yaml";
/// Keys by the broker, everywhere and with every option.
const BROKER: &str = "tests/chart/azure-file.yaml";
/// Keys from the Secrets of two namespaces.
const NAMESPACES: &str = "tests/chart/azure-file-namespaces.yaml";
const ALL: [&str; 3] = [FILES, BROKER, NAMESPACES];

fn read(file: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
}

fn objects(file: &str) -> Vec<Value> {
    let text = read(file);
    let documents =
        text.split("\n---\n").filter(|part| part.lines().any(|line| !line.starts_with('#') && line != "---"));
    documents.map(|part| serde_saphyr::from_str(part.trim_start_matches("---\n")).unwrap()).collect()
}

fn of_kind(file: &str, kind: &str) -> Vec<Value> {
    objects(file).into_iter().filter(|object| object["kind"] == kind).collect()
}

fn named(file: &str, kind: &str, name: &str) -> Value {
    let object = of_kind(file, kind).into_iter().find(|object| object["metadata"]["name"] == name);
    object.unwrap_or_else(|| panic!("{file} has no {kind} {name}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn strings(value: &Value) -> Vec<&str> {
    list(value).iter().map(|text| text.as_str().unwrap()).collect()
}

fn pod(file: &str, kind: &str) -> Value {
    let name = if kind == "Deployment" { "lazuli-controller" } else { "lazuli-node" };
    named(file, kind, name)["spec"]["template"]["spec"].clone()
}

fn container(pod: &Value, name: &str) -> Value {
    list(&pod["containers"]).iter().find(|container| container["name"] == name).unwrap().clone()
}

fn argument(container: &Value, name: &str) -> Option<String> {
    let arguments = strings(&container["args"]);
    arguments.iter().find_map(|argument| argument.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
}

/// Where a container has a volume.
fn mounted_at(container: &Value, volume: &str) -> Option<String> {
    let mount = list(&container["volumeMounts"]).iter().find(|mount| mount["name"] == volume)?;
    Some(mount["mountPath"].as_str()?.to_owned())
}

fn volume(pod: &Value, name: &str) -> Value {
    list(&pod["volumes"]).iter().find(|volume| volume["name"] == name).unwrap().clone()
}

/// A right: the group, the resource and the verb, and where it holds; nothing is everywhere.
type Right = (String, String, String, Option<String>);

/// The rights of an account.
fn rights(file: &str, account: &str) -> BTreeSet<Right> {
    let bindings = [of_kind(file, "ClusterRoleBinding"), of_kind(file, "RoleBinding")].concat();
    let mut rights = BTreeSet::new();
    for binding in bindings {
        if !list(&binding["subjects"]).iter().any(|subject| subject["name"] == account) {
            continue;
        }
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        let kind = binding["roleRef"]["kind"].as_str().unwrap();
        let roles = of_kind(file, kind).into_iter().filter(|role| {
            role["metadata"]["name"] == binding["roleRef"]["name"]
                && (kind == "ClusterRole" || role["metadata"]["namespace"] == binding["metadata"]["namespace"])
        });
        for rule in roles.flat_map(|role| list(&role["rules"]).to_vec()) {
            // Those that name their objects are compared elsewhere.
            if !rule["resourceNames"].is_null() {
                continue;
            }
            for group in strings(&rule["apiGroups"]) {
                for resource in strings(&rule["resources"]) {
                    for verb in strings(&rule["verbs"]) {
                        rights.insert((group.into(), resource.into(), verb.into(), namespace.clone()));
                    }
                }
            }
        }
    }
    rights
}

/// The rights that an account has with Azure Files and has not without.
fn added(file: &str, account: &str) -> Vec<(String, String, Option<String>)> {
    let (with, without) = (rights(file, account), rights(PLAIN, account));
    assert!(without.is_subset(&with), "{file}: {account} loses rights");
    with.difference(&without)
        .map(|(_, resource, verb, place)| (resource.clone(), verb.clone(), place.clone()))
        .collect()
}

fn everywhere(resource: &str, verb: &str) -> (String, String, Option<String>) {
    (resource.to_owned(), verb.to_owned(), None)
}

fn in_namespace(resource: &str, verb: &str, namespace: &str) -> (String, String, Option<String>) {
    (resource.to_owned(), verb.to_owned(), Some(namespace.to_owned()))
}

#[test]
fn azure_files_are_off_unless_they_are_asked_for() {
    let text = ["deploy/manifests/lazuli.yaml", "tests/chart/everything.yaml", "tests/chart/cloud-controllers.yaml"];
    for file in text {
        for word in ["file.csi", "file-csi", "csi-file", "key-broker", "account-keys"] {
            assert!(!read(file).contains(word), "{file} has {word}");
        }
    }
}

/// kubelet of a cluster that moves over goes on as it did. Source: the Go driver's object; its tokens of
/// ServiceAccounts are left out, because nothing uses them. The API server lets nobody change the lifecycle modes.
#[test]
fn the_object_of_the_file_driver_is_as_that_of_the_go_driver() {
    for file in ALL {
        let driver = named(file, "CSIDriver", "file.csi.azure.com");
        let expected = json!({
            "attachRequired": false, "podInfoOnMount": true, "requiresRepublish": true,
            "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent", "Ephemeral"],
        });
        assert_eq!(driver["spec"], expected, "{file}");
        assert_eq!(of_kind(file, "CSIDriver").len(), 2, "{file}");
    }
}

#[test]
fn the_file_driver_has_sidecars_of_its_own_that_reach_its_socket_alone() {
    for file in ALL {
        let pod = pod(file, "Deployment");
        let driver = container(&pod, "lazuli");
        let folder = mounted_at(&driver, "file-socket").unwrap();
        assert_eq!(argument(&driver, "--file-endpoint").unwrap(), format!("unix://{folder}/csi.sock"), "{file}");
        for (of_files, of_disks) in [("csi-file-provisioner", "csi-provisioner"), ("csi-file-resizer", "csi-resizer")] {
            let (sidecar, other) = (container(&pod, of_files), container(&pod, of_disks));
            let folder = mounted_at(&sidecar, "file-socket").unwrap();
            assert_eq!(argument(&sidecar, "--csi-address").unwrap(), format!("unix://{folder}/csi.sock"), "{file}");
            assert_eq!(list(&sidecar["volumeMounts"]).len(), 1, "{file}: {of_files}");
            assert_eq!((&sidecar["image"], &sidecar["resources"]), (&other["image"], &other["resources"]), "{file}");
            assert!(strings(&sidecar["args"]).contains(&"--leader-election"), "{file}: {of_files}");
        }
        assert!(strings(&container(&pod, "csi-file-provisioner")["args"]).contains(&"--extra-create-metadata"));
        assert!(list(&pod["containers"]).iter().all(|container| container["name"] != "csi-file-attacher"), "{file}");
        // Source: the sidecars make the names of their leases from the driver's, so the Go driver's have these too.
        let leases = named(file, "Role", "lazuli-controller")["rules"][1]["resourceNames"].clone();
        assert_eq!(strings(&leases)[3..], ["file-csi-azure-com", "external-resizer-file-csi-azure-com"], "{file}");
    }
}

/// What the level `restricted` asks (source: Pod Security Standards), with a read-only root; a port's name has at most 15
/// characters, and the API server refuses the pod otherwise.
#[test]
fn the_containers_of_the_file_driver_are_as_restricted_as_the_others_and_no_two_share_a_port() {
    for file in ALL {
        let pod = pod(file, "Deployment");
        let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
        for container in list(&pod["containers"]) {
            let expected = json!({
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
            });
            assert_eq!(container["securityContext"], expected, "{file}: {}", container["name"]);
            for port in list(&container["ports"]) {
                let name = port["name"].as_str().unwrap();
                assert!(name.len() <= 15, "{file}: {name}");
                assert!(names.insert(name.to_owned()), "{file}: {name} twice");
                assert!(numbers.insert(port["containerPort"].as_u64().unwrap()), "{file}: {port}");
            }
        }
        let kinds = ["emptyDir", "configMap", "projected", "secret"];
        let is_of_the_cluster = |volume: &Value| kinds.iter().any(|kind| !volume[*kind].is_null());
        assert!(list(&pod["volumes"]).iter().all(is_of_the_cluster), "{file}");
    }
}

#[test]
fn a_node_serves_the_file_driver_below_kubelets_folder_and_sees_one_folder_more_of_the_host() {
    for (file, kubelet) in ALL.into_iter().zip(["/var/lib/kubelet", "/opt/kubelet", "/var/lib/kubelet"]) {
        let with = pod(file, "DaemonSet");
        let driver = container(&with, "lazuli");
        let folder = mounted_at(&driver, "file-plugin").unwrap();
        let on_the_host = format!("{kubelet}/plugins/file.csi.azure.com");
        assert_eq!(volume(&with, "file-plugin")["hostPath"]["path"], on_the_host.as_str(), "{file}");
        assert_eq!(argument(&driver, "--file-endpoint").unwrap(), format!("unix://{folder}/lazuli.sock"), "{file}");
        let seen = argument(&driver, "--file-kubelet-socket").unwrap();
        assert_eq!(seen, format!("{on_the_host}/lazuli.sock"), "{file}");
        // A mounted share keeps the network of who mounted it.
        assert_eq!(with["hostNetwork"], true, "{file}");
        let of_the_host = |pod: &Value| list(&pod["volumes"]).iter().filter(|one| !one["hostPath"].is_null()).count();
        assert_eq!(of_the_host(&with), of_the_host(&pod(PLAIN, "DaemonSet")) + 1, "{file}");
        assert_eq!(list(&with["containers"]).len(), 1, "{file}: one container");
    }
}

/// The resource of the classes that change the performance of shares.
const ATTRIBUTES: &str = "volumeattributesclasses";

#[test]
fn classes_of_attributes_count_only_where_both_sidecars_of_shares_are_told_to() {
    for (file, is_on) in [(FILES, false), (BROKER, true), (NAMESPACES, false)] {
        let pod = pod(file, "Deployment");
        for sidecar in ["csi-file-provisioner", "csi-file-resizer"] {
            let gate = argument(&container(&pod, sidecar), "--feature-gates");
            assert_eq!(gate, Some(format!("VolumeAttributesClass={is_on}")), "{file}: {sidecar}");
        }
        // The rights are those of the sidecars of disks, which share the account.
        let mut added = added(file, "lazuli-controller");
        added.retain(|(resource, ..)| resource == ATTRIBUTES);
        assert_eq!(added, [], "{file}");
    }
}

#[test]
fn with_the_broker_no_node_may_read_a_secret() {
    for file in [FILES, BROKER] {
        assert_eq!(added(file, "lazuli-node"), [in_namespace("endpointslices", "list", "kube-system")], "{file}");
        let controller = [
            everywhere("persistentvolumeclaims", "get"),
            everywhere("pods", "list"),
            everywhere("secrets", "create"),
            everywhere("secrets", "get"),
            everywhere("secrets", "update"),
        ];
        let mut added = added(file, "lazuli-controller");
        added.retain(|(resource, ..)| resource != ATTRIBUTES);
        assert_eq!(added, controller, "{file}");
        // Who shows a token is asked of the API server.
        let reviews = ("authentication.k8s.io".into(), "tokenreviews".into(), "create".into(), None);
        assert!(rights(file, "lazuli-controller").contains(&reviews), "{file}");
    }
}

#[test]
fn without_the_broker_a_node_reads_secrets_of_the_named_namespaces_and_has_no_broker_to_ask() {
    let of_each = |verb| ["default", "team-a"].map(|namespace| in_namespace("secrets", verb, namespace));
    assert_eq!(added(NAMESPACES, "lazuli-node"), of_each("get"));
    let controller: Vec<_> = of_each("create").into_iter().chain(of_each("get")).collect();
    assert_eq!(added(NAMESPACES, "lazuli-controller"), controller);
    for word in ["key-broker", "serviceAccountToken"] {
        assert!(!read(NAMESPACES).contains(word), "{word}");
    }
}

/// The program refuses names beside a mode that knows none, and a mode that needs names without.
#[test]
fn a_node_is_told_from_which_namespaces_it_reads_secrets_where_it_reads_them_itself() {
    for (file, mode, namespaces) in
        [(FILES, "broker", None), (BROKER, "broker", None), (NAMESPACES, "namespaces", Some("default,team-a"))]
    {
        let node = container(&pod(file, "DaemonSet"), "lazuli");
        assert_eq!(argument(&node, "--secret-access").as_deref(), Some(mode), "{file}");
        assert_eq!(argument(&node, "--secret-namespaces").as_deref(), namespaces, "{file}");
    }
}

#[test]
fn no_account_may_list_secrets_and_only_a_controller_with_the_broker_may_change_one() {
    for file in ALL {
        for account in ["lazuli-controller", "lazuli-node"] {
            let may_update = account == "lazuli-controller" && [FILES, BROKER].contains(&file);
            for (_, resource, verb, _) in rights(file, account) {
                let is_allowed = ["get", "create"].contains(&&*verb) || verb == "update" && may_update;
                assert!(resource != "secrets" || is_allowed, "{file}: {account} may {verb}");
                assert!(resource != "*" && verb != "*", "{file}: {account}");
            }
        }
    }
}

/// The audience keeps a token that was meant for Azure or the API server from being shown to the broker, and the broker's
/// from being shown to those.
#[test]
fn a_node_finds_the_broker_by_its_service_and_shows_it_a_token_for_nothing_else() {
    for (file, secret, authority) in
        [(FILES, "lazuli-key-broker", "lazuli-key-broker"), (BROKER, "keys-tls", "keys-authority")]
    {
        let (controllers, nodes) = (pod(file, "Deployment"), pod(file, "DaemonSet"));
        let (driver, node) = (container(&controllers, "lazuli"), container(&nodes, "lazuli"));
        let service = named(file, "Service", "lazuli-key-broker");
        let port = &service["spec"]["ports"][0];
        let served = argument(&driver, "--key-broker-endpoint").unwrap();
        assert_eq!(served, format!(":{}", port["port"]), "{file}");
        let declared = json!({"name": port["targetPort"], "containerPort": port["port"], "protocol": "TCP"});
        assert!(list(&driver["ports"]).contains(&declared), "{file}");
        // Every replica, whether it is ready or not.
        assert_eq!(
            (&service["spec"]["clusterIP"], &service["spec"]["publishNotReadyAddresses"]),
            (&json!("None"), &json!(true))
        );
        let labels = &named(file, "Deployment", "lazuli-controller")["spec"]["template"]["metadata"]["labels"];
        assert!(service["spec"]["selector"].as_object().unwrap().iter().all(|(key, value)| labels[key] == *value));
        let asked = argument(&node, "--key-broker-service").unwrap();
        assert_eq!(asked, "kube-system/lazuli-key-broker", "{file}");

        let certificate = volume(&controllers, "key-broker-certificate");
        assert_eq!(certificate["secret"]["secretName"], secret, "{file}");
        let shown = volume(&nodes, "key-broker-authority");
        assert_eq!(shown["configMap"]["name"], authority, "{file}");
        let token = &volume(&nodes, "key-broker-token")["projected"]["sources"][0]["serviceAccountToken"];
        assert_eq!(token["audience"], "lazuli-key-broker", "{file}");
        let clients = argument(&driver, "--key-broker-node-account").unwrap();
        assert_eq!(clients, format!("kube-system/{}", nodes["serviceAccountName"].as_str().unwrap()), "{file}");
        // The node has nothing that could be shown to Azure, and no private key.
        assert!(list(&nodes["volumes"]).iter().all(|volume| volume["name"] != "azure-token"), "{file}");
        assert!(list(&nodes["volumes"]).iter().all(|one| one["secret"]["secretName"] != secret), "{file}");
        for (container, volume, arguments) in [
            (&driver, "key-broker-certificate", ["--key-broker-certificate", "--key-broker-key"].as_slice()),
            (&node, "key-broker-authority", &["--key-broker-authority"]),
            (&node, "key-broker-token", &["--key-broker-token"]),
        ] {
            let folder = mounted_at(container, volume).unwrap();
            for name in arguments {
                assert!(argument(container, name).unwrap().starts_with(&format!("{folder}/")), "{file}: {name}");
            }
        }
        // A file for people to apply holds no private key.
        assert!(!read(file).contains("PRIVATE KEY") && of_kind(file, "Secret").is_empty(), "{file}");
    }
}

#[test]
fn a_peer_reaches_metrics_a_node_the_broker_and_nobody_a_socket() {
    let ingress = |file: &str| named(file, "NetworkPolicy", "lazuli-controller")["spec"]["ingress"].clone();
    for (file, first) in [(FILES, 29660), (BROKER, 31010), (NAMESPACES, 29660)] {
        let mut expected = ingress(PLAIN);
        let metrics = json!({"protocol": "TCP", "port": first, "endPort": first + 1});
        expected[0]["ports"].as_array_mut().unwrap().push(metrics);
        if file != NAMESPACES {
            let broker = json!({"ports": [{"protocol": "TCP", "port": first + 2}]});
            expected.as_array_mut().unwrap().push(broker);
        }
        assert_eq!(ingress(file), expected, "{file}");
    }
}

#[test]
fn classes_of_shares_are_made_only_where_they_are_asked_for() {
    let of_files = |file: &str| -> Vec<Value> {
        let classes = of_kind(file, "StorageClass").into_iter();
        classes.filter(|class| class["provisioner"] == "file.csi.azure.com").collect()
    };
    assert!(of_files(FILES).is_empty() && of_files(NAMESPACES).is_empty());
    let classes = of_files(BROKER);
    let [class] = &classes[..] else { panic!("{classes:?}") };
    assert_eq!((&class["volumeBindingMode"], &class["allowVolumeExpansion"]), (&json!("Immediate"), &json!(true)));
    assert_eq!(class["parameters"], json!({"shareNamePrefix": "team", "skuName": "Premium_LRS"}));
}

#[test]
fn the_examples_have_the_classes_and_the_secret_by_which_other_drivers_are_used() {
    let classes = of_kind("deploy/examples/file-storage-classes.yaml", "StorageClass");
    let names: Vec<&str> = classes.iter().map(|class| class["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["azurefile-csi", "azurefile-csi-premium"]);
    assert!(classes.iter().all(|class| class["provisioner"] == "file.csi.azure.com"));

    let of_network = of_kind("deploy/examples/file-network-classes.yaml", "StorageClass");
    let kinds: Vec<&Value> = of_network.iter().map(|class| &class["parameters"]["networkEndpointType"]).collect();
    assert_eq!(kinds, ["serviceEndpoint", "privateEndpoint"]);

    let claim = named("deploy/examples/file-claim.yaml", "PersistentVolumeClaim", "shared");
    assert!(names.contains(&claim["spec"]["storageClassName"].as_str().unwrap()));

    let inline = "deploy/examples/file-in-tree.yaml";
    let secret = named(inline, "Secret", "azure-secret");
    let keys: Vec<&String> = secret["stringData"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["azurestorageaccountname", "azurestorageaccountkey"]);
    let volumes = &of_kind(inline, "Pod")[0]["spec"]["volumes"];
    let expected = json!({"secretName": "azure-secret", "shareName": "myshare", "readOnly": false});
    assert_eq!(volumes[0]["azureFile"], expected);

    let volume = &named("deploy/examples/existing-share.yaml", "PersistentVolume", "existing-share")["spec"]["csi"];
    assert_eq!(volume["driver"], "file.csi.azure.com");
    assert_eq!(volume["nodeStageSecretRef"]["name"], "azure-secret");
}

#[test]
fn an_alert_of_the_key_broker_is_documented_and_says_what_to_do() {
    let rules = named(BROKER, "PrometheusRule", "lazuli")["spec"]["groups"][0]["rules"].clone();
    let of_keys: Vec<&Value> =
        list(&rules).iter().filter(|rule| rule["expr"].as_str().unwrap().contains("lazuli_key_")).collect();
    assert_eq!(of_keys.len(), 3);
    let documented = read("deploy/events-and-alerts.md");
    for alert in of_keys {
        let name = alert["alert"].as_str().unwrap();
        assert!(documented.contains(&format!("| {name} |")), "deploy/events-and-alerts.md does not list {name}");
        for annotation in ["summary", "description", "action"] {
            assert!(alert["annotations"][annotation].as_str().unwrap().ends_with('.'), "{name}: {annotation}");
        }
    }
}
