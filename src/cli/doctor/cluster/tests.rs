//! `lazuli doctor` against an Azure and an API server.

use std::time::Duration;

use clap::Parser;
use lazuli_emulator::scenario;
use lazuli_rig::cluster::Cluster;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::super::{Options, examined};
use crate::cli::{cloud_controllers, terminal::Screen};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    options: Options,
}

async fn doctor(cluster: &Cluster) -> (String, bool) {
    let words = ["doctor".to_owned()].into_iter().chain(cluster.arguments());
    Box::pin(examined(&Command::parse_from(words).options, Screen::default())).await
}

fn pod(name: &str, command: &[&str]) -> Value {
    json!({"metadata": {"name": name, "namespace": "kube-system",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "cp-1", "uid": "u"}]},
        "spec": {"containers": [{"name": "c", "image": "i", "command": command}]}, "status": {"phase": "Running"}})
}

#[tokio::test(start_paused = true)]
async fn what_the_configuration_names_and_azure_does_not_have_is_wrong() {
    for (key, named) in [
        ("vnetName", "virtual network nope in resource group lazuli"),
        ("subnetName", "subnet nope of virtual network lazuli-vnet"),
        ("securityGroupName", "security group nope in resource group lazuli"),
    ] {
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &[(key, "nope".into())]).await.unwrap();
        let (text, is_well) = doctor(&cluster).await;
        let line = format!("FAIL network of the configuration: {key} names {named}, which does not exist");
        assert!(!is_well && text.contains(&line), "{line}: {text}");
        cluster.azure.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_examined_and_each_fault_is_a_sentence() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    for at in 0..2 {
        let mut node = cluster.server.get("nodes", "", &format!("node-{at}")).unwrap();
        node["metadata"]["labels"] = json!({"topology.kubernetes.io/region": "westeurope"});
        node["spec"]["podCIDRs"] = json!([format!("10.244.{at}.0/24")]);
        cluster.server.put("nodes", node).unwrap();
    }
    let allocator = ["kube-controller-manager", "--allocate-node-cidrs=true"];
    cluster.server.put("pods", pod("kube-controller-manager-cp-1", &allocator)).unwrap();
    let (text, is_well) = doctor(&cluster).await;
    assert!(is_well, "{text}");
    for line in [
        "ok   pod ranges: each of 2 Nodes has a pod range, and none overlap\n",
        "ok   network of the configuration: these exist: subnet nodes of virtual network lazuli-vnet, virtual network ",
        "ok   region of Nodes: 2 Nodes are labelled with the region westeurope\n",
        "ok   allocators of pod ranges: kube-controller-manager (kube-system/static pods) gives Nodes pod ranges",
        "ok   what Services keep: no Service has what a new one would not get\n",
        "ok   objects of unknown Services: there are none\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }

    let mut node = cluster.server.get("nodes", "", "node-1").unwrap();
    node["metadata"]["labels"] = json!({});
    node["spec"]["podCIDRs"] = json!(["10.244.0.0/25"]);
    cluster.server.put("nodes", node).unwrap();
    let second = ["cloud-controller-manager", "--allocate-node-cidrs=true"];
    cluster.server.put("pods", pod("cloud-controller-manager-cp-1", &second)).unwrap();
    let ours = pod("lazuli", &["lazuli", "cloud-controllers", "--lease-name=mine"]);
    cluster.server.put("pods", ours).unwrap();
    let (text, is_well) = doctor(&cluster).await;
    assert!(!is_well);
    let wrong: Vec<&str> = text.lines().filter(|line| line.starts_with("FAIL")).collect();
    assert_eq!(wrong.len(), 4, "{text}");
    for (line, part) in wrong.iter().zip(["overlap", "topology.kubernetes.io/region", "each give", "both run"]) {
        assert!(line.contains(part), "{part}: {line}");
    }
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn routes_that_stay_are_named() {
    let cluster =
        Cluster::start(lazuli_emulator::Options::default(), &[("routeTableName", "rt".into())]).await.unwrap();
    for name in ["node-0", "node-1"] {
        let mut node = cluster.server.get("nodes", "", name).unwrap();
        node["metadata"]["labels"] = json!({"topology.kubernetes.io/region": "westeurope"});
        cluster.server.put("nodes", node).unwrap();
    }
    let (text, is_well) = doctor(&cluster).await;
    assert!(text.contains("?    routes: not checked: ") && text.contains("routeTables/rt"), "{text}");
    assert!(is_well, "the route controller makes the table: {text}");

    for (at, range) in ["10.244.0.0/24", "10.9.0.0/24"].into_iter().enumerate() {
        let mut node = cluster.server.get("nodes", "", &format!("node-{at}")).unwrap();
        node["spec"]["podCIDRs"] = json!([range]);
        cluster.server.put("nodes", node).unwrap();
    }
    let manager = ["lazuli", "cloud-controllers", "--cluster-cidr=10.244.0.0/16"];
    cluster.server.put("pods", pod("lazuli", &manager)).unwrap();
    let route = |name: &str, range: &str, hop: &str| {
        json!({"name": name, "properties":
            {"addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop}})
    };
    let routes = json!([
        route("node-0____10244000024", "10.244.0.0/24", "10.240.0.4"),
        route("node-1____109000024", "10.9.0.0/24", "10.240.0.5"),
        route("to-firewall", "0.0.0.0/0", "10.1.0.4"),
    ]);
    cluster.make_route_table("rt", &routes).await.unwrap();
    let (text, _) = doctor(&cluster).await;
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("note routes: ")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(lines[0].contains("Node node-1 has a route in route table rt that would not be added today"), "{text}");
    assert!(lines[1].contains("1 of 3 routes") && lines[1].contains("(to-firewall)"), "{text}");
    cluster.azure.shutdown().await;
}

fn ingress(cluster: &Cluster, namespace: &str, name: &str) -> Vec<String> {
    let service = cluster.server.get("services", namespace, name).unwrap();
    let all = service["status"]["loadBalancer"]["ingress"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| one["ip"].as_str().unwrap().to_owned()).collect()
}

/// Waits until a Service has so many addresses, and a while longer.
async fn served(cluster: &Cluster, namespace: &str, name: &str, addresses: usize) {
    let began = tokio::time::Instant::now();
    while ingress(cluster, namespace, name).len() != addresses {
        assert!(began.elapsed() < Duration::from_secs(300), "{name}: {:#?}", cluster.server.list("events"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
}

fn annotate(cluster: &Cluster, name: &str, annotations: &[(&str, &str)]) -> Value {
    let key = |key: &str| format!("service.beta.kubernetes.io/{key}");
    let all: serde_json::Map<String, Value> =
        annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
    let mut service = cluster.server.get("services", "default", name).unwrap();
    service["metadata"]["annotations"] = all.into();
    cluster.server.put("services", service).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_services_keep_and_a_new_one_would_not_get_is_named_kind_by_kind() {
    let mut options = lazuli_emulator::Options::default();
    let first = options.scenario.resource_groups[0].clone();
    options.scenario.resource_groups.push(scenario::ResourceGroup { name: "shared".to_owned(), ..first });
    let keys = [("loadBalancerSku", "standard".into()), ("loadBalancerBackendPoolConfigurationType", "nodeIP".into())];
    let cluster = Cluster::start(options, &keys).await.unwrap();
    cluster.make_public_ip("shared", "theirs").await.unwrap();
    for name in ["inside", "nodes", "owner", "elsewhere"] {
        cluster.service(name, Value::Null, Value::Null).unwrap();
    }
    // X1: what the Go manager has let in.
    let dns = json!({"type": "ClusterIP", "clusterIP": "20.96.0.10", "ports": [{"port": 53}]});
    cluster.server.put("services", json!({"metadata": {"name": "dns"}, "spec": dns})).unwrap();
    let mut inside = annotate(&cluster, "inside", &[("azure-additional-public-ips", "20.96.0.10")]);
    inside["status"] = json!({"loadBalancer": {"ingress": [{"ip": "20.96.0.10"}]}});
    cluster.server.put("services", inside).unwrap();
    // X7: a public IP of a group that no flag restricts yet.
    annotate(&cluster, "elsewhere", &[("azure-load-balancer-resource-group", "shared"), ("azure-pip-name", "theirs")]);
    // X2: floating IP is off before all else is denied.
    let off = ("azure-disable-load-balancer-floating-ip", "true");
    let range = ("azure-allowed-ip-ranges", "203.0.113.0/24");
    annotate(&cluster, "nodes", &[off, range]);
    let stop = CancellationToken::new();
    let arguments = ["--controllers=service-lb".to_owned()].into_iter().chain(cluster.arguments()).collect();
    let running = tokio::spawn(Box::pin(cloud_controllers::run_with(arguments, stop.clone())));
    for (name, addresses) in [("inside", 2), ("nodes", 1), ("owner", 1), ("elsewhere", 1)] {
        served(&cluster, "default", name, addresses).await;
    }
    annotate(&cluster, "nodes", &[off, range, ("azure-deny-all-except-load-balancer-source-ranges", "true")]);
    // X4: a Service of another namespace at the address.
    let own = ingress(&cluster, "default", "owner").remove(0);
    let key = "service.beta.kubernetes.io/azure-load-balancer-ipv4";
    let guest = json!({"metadata": {"name": "guest", "namespace": "friend", "annotations": {key: own}},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}});
    cluster.server.put("services", guest).unwrap();
    served(&cluster, "friend", "guest", 1).await;
    stop.cancel();
    running.await.unwrap().unwrap();

    let flags = ["lazuli", "cloud-controllers", "--share-addresses=namespace", "--allowed-service-resource-groups=x"];
    cluster.server.put("pods", pod("lazuli", &flags)).unwrap();
    let (writes, objects) = (cluster.writes(), cluster.server.version());
    let (text, _) = doctor(&cluster).await;
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(" what Services keep: ")).collect();
    for (service, why) in [
        ("default/inside", "20.96.0.10, which is the cluster IP of a Service; it stays"),
        ("default/nodes", "azure-deny-all-except-load-balancer-source-ranges denies nothing at the nodes"),
        ("default/elsewhere", "keeps public IP theirs of resource group shared"),
        ("friend/guest", "its address is that of Service default/owner, which does not name namespace friend"),
    ] {
        let is_it = |line: &&&str| line.starts_with(&format!("note what Services keep: Service {service}: "));
        let found: Vec<_> = lines.iter().filter(is_it).collect();
        assert!(found.len() == 1 && found[0].contains(why), "{service}: {text}");
    }
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!((cluster.writes(), cluster.server.version()), (writes, objects), "nothing is written");
    cluster.azure.shutdown().await;
}

/// Writes to Azure, as another tool does, and waits until it is done.
async fn arm(cluster: &Cluster, method: &str, path: &str, body: &Value) {
    use tower::ServiceExt as _;
    let version = if path.contains("/disks/") { "2025-01-02" } else { "2025-04-01" };
    let request = http::Request::builder()
        .method(method)
        .uri(format!("{path}?api-version={version}"))
        .header("authorization", format!("Bearer {}", cluster.azure.control().token()))
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    let response = cluster.azure.service().oneshot(request).await.unwrap();
    assert!(response.status().is_success(), "{method} {path}: {}", response.status());
    while cluster.azure.control().running_operations() > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn disks_that_are_attached_and_would_not_be_attached_now_are_named() {
    use lazuli_emulator::scenario::{LOCATION, RESOURCE_GROUP, SUBSCRIPTION};
    let mut options = lazuli_emulator::Options::default();
    let first = options.scenario.resource_groups[0].clone();
    options.scenario.resource_groups.push(scenario::ResourceGroup { name: "vault".to_owned(), ..first });
    let cluster = Cluster::start(options, &[]).await.unwrap();
    let compute =
        |group: &str| format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/{group}/providers/Microsoft.Compute");
    let id = |group: &str, name: &str| format!("{}/disks/{name}", compute(group));
    let claim = json!({"kubernetes.io-created-for-pvc-name": "data", "kubernetes.io-created-for-pvc-namespace": "db"});
    // X3: a Pod names the disk of a claim, and a disk of a group that is not allowed; one of each is not attached.
    let all = [
        (RESOURCE_GROUP, "claimed", claim.clone()),
        ("vault", "foreign", json!({})),
        (RESOURCE_GROUP, "plain", json!({})),
    ];
    for (group, name, tags) in &all {
        let body = json!({"location": LOCATION, "sku": {"name": "Premium_LRS"}, "tags": tags,
            "properties": {"creationData": {"createOption": "Empty"}, "diskSizeGB": 4}});
        arm(&cluster, "PUT", &id(group, name), &body).await;
    }
    let held: Vec<Value> = (0..).zip(&all).map(|(lun, (group, name, _))| {
        json!({"lun": lun, "createOption": "Attach", "managedDisk": {"id": id(group, name)}})
    }).collect();
    let body = json!({"properties": {"storageProfile": {"dataDisks": held}}});
    arm(&cluster, "PATCH", &format!("{}/virtualMachines/node-0", compute(RESOURCE_GROUP)), &body).await;
    for (group, name, _) in &all {
        let csi = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": id(group, name)}});
        let spec = json!({"attacher": "disk.csi.azure.com", "nodeName": "node-0", "source": {"inlineVolumeSpec": csi}});
        let attachment = json!({"metadata": {"name": name}, "spec": spec, "status": {"attached": true}});
        cluster.server.put("volumeattachments", attachment).unwrap();
    }
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(" attached disks: ")).map(str::to_owned).collect()
    };
    let driver = |more: &[&str]| pod("csi", &[&["lazuli", "csi-controller"], more].concat());
    cluster.server.put("pods", driver(&["--allow-inline-claimed-disks=true"])).unwrap();
    assert_eq!(lines(&doctor(&cluster).await.0), ["ok   attached disks: each would be attached now too"]);
    cluster.server.put("pods", driver(&["--allowed-resource-groups=team"])).unwrap();
    let (text, _) = doctor(&cluster).await;
    let found = lines(&text);
    assert_eq!(found.len(), 2, "{text}");
    for (disk, why) in [("claimed", "was made for claim db/data"), ("foreign", "its resource group would be")] {
        let head = format!("note attached disks: disk {disk} is attached to Node node-0 and stays, though its attach");
        assert!(found.iter().any(|line| line.starts_with(&head) && line.contains(why)), "{disk}: {text}");
    }
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn all_attached_disks_are_told_in_the_time_of_one_and_those_that_are_not_are_named() {
    use lazuli_emulator::scenario::SUBSCRIPTION;
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let slow = json!({"match": {"method": "GET", "path": "*/disks/slow-*"}, "then": {"delayMs": 50_000}, "times": 0});
    cluster.azure.control().add_incident(serde_json::from_value(slow).unwrap()).unwrap();
    for at in 0..9 {
        let id =
            format!("/subscriptions/{SUBSCRIPTION}/resourceGroups/of-{at}/providers/Microsoft.Compute/disks/slow-{at}");
        let csi = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": id}});
        let spec = json!({"attacher": "disk.csi.azure.com", "nodeName": "node-0", "source": {"inlineVolumeSpec": csi}});
        let attachment = json!({"metadata": {"name": format!("a-{at}")}, "spec": spec, "status": {"attached": true}});
        cluster.server.put("volumeattachments", attachment).unwrap();
    }
    let driver = ["lazuli", "csi-controller", "--allow-inline-claimed-disks=false"];
    cluster.server.put("pods", pod("csi", &driver)).unwrap();
    let began = tokio::time::Instant::now();
    let (text, _) = doctor(&cluster).await;
    assert!(began.elapsed() < Duration::from_secs(70), "{:?}: {text}", began.elapsed());
    assert!(
        text.contains("?    attached disks: 9 attached disks are not checked, for Azure did not show them"),
        "{text}"
    );
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn without_a_cluster_it_says_that_the_cluster_is_not_checked() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let words = ["doctor".to_owned(), "--output=json".to_owned()].into_iter().chain(cluster.arguments());
    let words = words.filter(|word| !word.starts_with("--kubeconfig"));
    let (text, is_well) = Box::pin(examined(&Command::parse_from(words).options, Screen::default())).await;
    let printed: Value = serde_json::from_str(&text).unwrap();
    let last = printed["findings"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["check"], &last["grade"]), (&json!("cluster"), &json!("?")));
    assert!(is_well);
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_action_that_the_identity_lacks_is_named_with_its_role_and_scope() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let control = cluster.azure.control();
    let principal = scenario::Scenario::default().clients[0].id.clone();
    let (text, _) = doctor(&cluster).await;
    let has = "ok   rights in Azure: the identity has every action for disks in lazuli, snapshots and copies in lazuli, \
         file shares in lazuli, Services";
    assert!(text.contains(has), "{text}");
    let role = scenario::Role {
        not_actions: vec!["Microsoft.Compute/disks/delete".to_owned(), "Microsoft.Storage/*".to_owned()],
        ..scenario::Role::everything()
    };
    control.set_roles(&principal, Some(vec![role])).unwrap();
    let (text, is_well) = doctor(&cluster).await;
    let lacks = "FAIL rights in Azure: the identity lacks 1 of 12 actions of deploy/azure/role.json \
                 (Microsoft.Compute/disks/delete) in resource group lazuli: ";
    assert!(!is_well && text.contains(lacks), "{text}");
    assert!(
        text.contains("note rights in Azure: the identity has no action of deploy/azure/role-files.json"),
        "{text}"
    );
    // Also where it may not even list the machines.
    control.set_roles(&principal, Some(vec![scenario::Role::of(&["Microsoft.Network/*"])])).unwrap();
    let (text, _) = doctor(&cluster).await;
    assert!(text.contains("FAIL Azure: ") && text.contains("has no action of deploy/azure/role.json"), "{text}");
    cluster.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_of_the_go_projects_is_gone_through_before_a_move() {
    let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
    let go = |name: &str, image: &str, arguments: &[&str]| {
        let mut pod = pod(name, arguments);
        pod["spec"]["containers"][0]["image"] = image.into();
        pod
    };
    let controller = ["--endpoint=unix:///csi/csi.sock", "--v=5"];
    cluster.server.put("pods", go("disk", "mcr/azuredisk-csi:v1.30.4", &controller)).unwrap();
    let shares = ["--v=5", "--append-closetimeo-option=true"];
    cluster.server.put("pods", go("file", "mcr/azurefile-csi:v1.34.0", &shares)).unwrap();
    let odd = ["cloud-controller-manager", "--nonsense=1"];
    cluster.server.put("pods", go("ccm", "mcr/azure-cloud-controller-manager:v1.31.0", &odd)).unwrap();
    let volume = |name: &str, source: Value| json!({"metadata": {"name": name}, "spec": source});
    let uri = "https://acct.blob.core.windows.net/vhds/d.vhd";
    let blob = json!({"azureDisk": {"kind": "Dedicated", "diskName": "d", "diskURI": uri}});
    cluster.server.put("persistentvolumes", volume("pv-blob", blob)).unwrap();
    let nfs =
        json!({"driver": "file.csi.azure.com", "volumeHandle": "g#a#s###n", "volumeAttributes": {"protocol": "nfs"}});
    cluster.server.put("persistentvolumes", volume("pv-nfs", json!({"csi": nfs}))).unwrap();
    let class = json!({"metadata": {"name": "krb"}, "provisioner": "file.csi.azure.com", "mountOptions": ["sec=krb5"]});
    cluster.server.put("storageclasses", class).unwrap();
    for (name, size) in [("node-0", "Standard_D2s_v3"), ("node-1", "Standard_D2ds_v6")] {
        let mut node = cluster.server.get("nodes", "", name).unwrap();
        node["metadata"]["labels"] = json!({"node.kubernetes.io/instance-type": size, "kubernetes.io/os": "linux"});
        if name == "node-0" {
            let seen = json!({"resourceId": "/i", "vmSize": size, "nvme": {"luns": "proved", "ioTimeoutSeconds": 30}});
            node["metadata"]["annotations"] = json!({"lazuli.azure/instance-metadata": seen.to_string()});
        }
        cluster.server.put("nodes", node).unwrap();
    }
    cluster
        .service("web", json!({"service.beta.kubernetes.io/azure-load-balancer-tcp-idle-timeout": "soon"}), Value::Null)
        .unwrap();
    let words = ["doctor".to_owned(), "--migrate".to_owned()].into_iter().chain(cluster.arguments());
    let (text, is_well) = Box::pin(examined(&Command::parse_from(words).options, Screen::default())).await;
    assert!(!is_well, "{text}");
    for line in [
        "ok   move: programs: 1 is served equally: azuredisk-csi-driver (controller) v1.30.4 (kube-system/Node/cp-1)",
        "FAIL move: programs: refused: azure-cloud-controller-manager v1.31.0",
        "note move: programs: differs: azurefile-csi-driver (controller) v1.34.0 (kube-system/Node/cp-1): \
         --append-closetimeo-option=true of azurefile-csi-driver: ",
        "ok   move: VolumeAttributesClasses: there is none of the Go projects",
        "note move: PersistentVolumes: differs: pv-blob: https://acct.blob.core.windows.net/vhds/d.vhd is a VHD blob disk",
        "FAIL move: PersistentVolumes: refused: pv-nfs: ",
        "FAIL move: StorageClasses: refused: krb: ",
        "ok   move: VolumeSnapshots: there is none of the Go projects",
        "ok   move: Nodes: 1 is served equally: node-0",
        "note move: Nodes: differs: node-1: disks come to machines of size Standard_D2ds_v6 by NVMe",
        "ok   NVMe disks of Nodes: node-0: disks come by NVMe, and the operating system's is namespace 1",
        "?    NVMe disks of Nodes: node-1: disks come by NVMe to machines of this size",
        "note NVMe disks of Nodes: node-0: the kernel takes a request to an NVMe disk for lost sooner",
        "?    move: the rest: not looked at: ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(text.contains("FAIL move: Services: refused: default/web: "), "{text}");
    cluster.azure.shutdown().await;
}
