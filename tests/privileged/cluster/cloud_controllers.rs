//! The cloud controllers in a cluster whose kubelets run with `--cloud-provider=external`, with the rights that the chart
//! gives and the webhooks that it registers. One cluster serves all cases, one after another; the last of them lose a
//! machine.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::kubectl;

use super::{
    super::{
        azure::{machine_id, network_id},
        cloud::{NODES, text},
        process::{Folder, PATIENCE},
    },
    ATTACHMENTS, CLAIMS, Cluster, PODS, VOLUMES,
    kubernetes::CloudProvider,
    rights::CLOUD_CONTROLLERS,
    schedulable,
};

const NODES_PATH: &str = "/api/v1/nodes";
pub(super) const SERVICES: &str = "/api/v1/namespaces/default/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
/// What provisions, attaches, resizes and takes snapshots.
const SIDECARS: usize = 4;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const NETWORK_UNAVAILABLE: &str = "node.kubernetes.io/network-unavailable";
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// The component of their pods, and their container.
const CONTAINER: &str = "cloud-controllers";
/// A machine that the controllers' identity may not read.
const UNREADABLE: &str = "unreadable";
/// Source: `lazuli_nodes::cloud_node::breaker`.
const PACE: Duration = Duration::from_secs(10);
/// How long the pods of a stopped machine may take to run elsewhere, from when its Node is not Ready.
const MOVED_WITHIN: Duration = Duration::from_secs(60);

/// Two machines in one zone, which the nodes are, and one that may not be read.
fn scenario() -> Value {
    json!({
        "virtualNetworks": [
            {"name": "net", "prefixes": ["10.213.0.0/16"], "subnets": [{"name": "nodes", "prefix": "10.213.1.0/24"}]},
        ],
        "virtualMachines": [
            {"name": "node-{}", "count": 2, "zone": "1", "tags": {"Platform_Interconnect_Group": "group-1"}},
            {"name": UNREADABLE, "zone": "1"},
        ],
    })
}

fn has_taint(node: &Value, key: &str) -> bool {
    node["spec"]["taints"].as_array().is_some_and(|taints| taints.iter().any(|taint| taint["key"] == key))
}

fn condition<'n>(object: &'n Value, kind: &str) -> Option<&'n Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn address_of(service: &Value) -> Option<String> {
    Some(service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str()?.to_owned())
}

impl Cluster {
    /// Machines, a security group, and a route table with the route of a Node that was deleted while no controller ran.
    /// No route can be written yet.
    async fn start_with_cloud_controllers(latency: &str) -> Option<Self> {
        let scenario_folder = Folder::make();
        let file = scenario_folder.path().join("scenario.json");
        fs::write(&file, scenario().to_string()).unwrap();
        let options = ["--scenario", &text(&file), "--latency", latency];
        let mut cluster = Self::start_with(&options, "", CloudProvider::External).await?;
        let other = cluster.azure.other_tool().await;
        other.put_network("networkSecurityGroups", "nodes-nsg", json!({})).await;
        let route = json!({"addressPrefix": "10.244.99.0/24", "nextHopType": "VirtualAppliance",
            "nextHopIpAddress": "10.213.1.99"});
        let routes = json!({"routes": [{"name": "deleted____1024499024", "properties": route}]});
        other.put_network("routeTables", "routes", routes).await;
        let then = json!({"status": 503, "code": "ServiceUnavailable"});
        let incident = json!({"match": {"method": "PUT", "path": "*/routeTables/*"}, "then": then, "times": 0});
        cluster.azure.incident(&incident).await;
        let keys = json!({"subnetName": "nodes", "securityGroupName": "nodes-nsg", "routeTableName": "routes",
            "loadBalancerSku": "standard", "loadBalancerBackendPoolConfigurationType": "nodeIP"});
        cluster.apply_chart(keys).await;
        Some(cluster)
    }

    async fn node(&self, name: &str) -> Option<Value> {
        self.kubernetes.get(&format!("{NODES_PATH}/{name}")).await
    }

    pub(super) async fn service(&self, name: &str, annotations: Value) -> Value {
        let spec =
            json!({"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}]});
        let metadata = json!({"name": name, "annotations": annotations});
        self.kubernetes.create(SERVICES, json!({"metadata": metadata, "spec": spec})).await
    }

    pub(super) async fn address(&mut self, name: &str) -> String {
        let has = |service: Option<&Value>| service.is_some_and(|service| address_of(service).is_some());
        let service = self.kubernetes.until("the Service's address", &format!("{SERVICES}/{name}"), has).await;
        address_of(&service).unwrap()
    }

    /// Waits for an event, as `kubectl describe` asks for those of an object.
    async fn event(&mut self, kind: &str, name: &str, uid: &str, reason: &str) -> Value {
        let fields = format!("involvedObject.kind={kind},involvedObject.name={name},involvedObject.uid={uid}");
        let path = format!("/api/v1/events?fieldSelector={}", fields.replace('=', "%3D"));
        let find = |list: Option<&Value>| {
            let events = list.and_then(|list| list["items"].as_array()).cloned().unwrap_or_default();
            events.into_iter().find(|event| event["reason"] == reason && event["source"]["component"] != "kubelet")
        };
        let list = self.kubernetes.until(reason, &path, |list| find(list).is_some()).await;
        find(Some(&list)).unwrap()
    }

    /// Waits until the properties of a resource are as they should be; null while there is none.
    async fn azure_until(&self, what: &str, id: &str, is: impl Fn(&Value) -> bool) {
        let began = Instant::now();
        loop {
            let found = self.azure.resource(id).await.unwrap_or_default();
            if is(&found["properties"]) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{what}: {found:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the load balancer of the cluster is as it should be.
    async fn balancer(&self, what: &str, is: impl Fn(&Value) -> bool) {
        self.azure_until(what, &network_id("loadBalancers", "kubernetes"), is).await;
    }

    /// The sidecars' Leases name a node. On the node's network, where the controller's pods are here, a sidecar's identity
    /// is the host name of the machine; two sidecars of one identity would both lead.
    async fn each_sidecar_leads_on_one_node(&mut self) {
        let sidecars = |lease: &&Value| lease["metadata"]["name"].as_str().unwrap().ends_with("disk-csi-azure-com");
        let leases = self.kubernetes.list(LEASES).await;
        let holders: BTreeMap<&str, &str> = leases
            .iter()
            .filter(sidecars)
            .map(|lease| {
                let name = lease["metadata"]["name"].as_str().unwrap();
                (name, lease["spec"]["holderIdentity"].as_str().unwrap_or_default())
            })
            .collect();
        assert_eq!(holders.len(), SIDECARS, "{holders:?}");
        assert!(holders.values().all(|holder| NODES.contains(holder)), "{holders:?}");
    }

    /// The pod and the node of the replica that leads.
    async fn leader(&self) -> (String, &'static str) {
        let lease = self.kubernetes.get(LEASE).await.expect("a Lease");
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap().to_owned();
        let pods = self.pods_of(CONTAINER).await;
        let is_it = |(pod, node): &&(String, &'static str)| self.logs(pod, node, CONTAINER).contains(&holder);
        pods.iter().find(is_it).unwrap_or_else(|| panic!("no replica is {holder}")).clone()
    }

    /// Nodes are initialised at once, and take pods when they have routes.
    async fn initialise_nodes(&mut self) {
        for (index, name) in NODES.into_iter().enumerate() {
            let waits = |node: Option<&Value>| node.is_some_and(|node| has_taint(node, NETWORK_UNAVAILABLE));
            let path = format!("{NODES_PATH}/{name}");
            let is_new = |node: Option<&Value>| node.is_some_and(|node| !has_taint(node, UNINITIALIZED));
            self.kubernetes.until("an initialised node", &path, is_new).await;
            let node = self.kubernetes.until("a node without a route", &path, waits).await;
            assert_eq!(node["spec"]["providerID"], format!("azure://{}", machine_id(name)));
            let label = |key: &str| node["metadata"]["labels"][key].clone();
            assert_eq!(label("topology.kubernetes.io/zone"), "westeurope-1");
            assert_eq!(label("topology.kubernetes.io/region"), "westeurope");
            assert_eq!(label("node.kubernetes.io/instance-type"), "Standard_D8s_v3");
            let address = format!("10.213.1.{}", index + 4);
            let addresses = json!([{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]);
            assert_eq!(node["status"]["addresses"], addresses);
            assert_eq!(condition(&node, "NetworkUnavailable").unwrap()["reason"], "NodeInitialization");
        }
        self.pod("early", NODES[0], &[]).await;
        let path = format!("{PODS}/early");
        let waits = |pod: Option<&Value>| {
            pod.is_some_and(|pod| condition(pod, "PodScheduled").is_some_and(|one| one["reason"] == "Unschedulable"))
        };
        self.kubernetes.until("a pod without a node", &path, waits).await;
        self.azure.clear_incidents().await;
        for name in NODES {
            let path = format!("{NODES_PATH}/{name}");
            let ready = |node: Option<&Value>| node.is_some_and(schedulable);
            let node = self.kubernetes.until("a node with a route", &path, ready).await;
            assert_eq!(condition(&node, "NetworkUnavailable").unwrap()["reason"], "RouteCreated");
            self.event("Node", name, name, "Synced").await;
            // Its own plugin has published what only the instance metadata tells.
            let label = "topology.kubernetes.azure.com/interconnect-group";
            let has = |node: Option<&Value>| node.is_some_and(|node| node["metadata"]["labels"][label] == "group-1");
            self.kubernetes.until("a label of the instance metadata", &path, has).await;
        }
        self.running("early", NODES[0]).await;
        self.delete_pod("early").await;
        // That of the deleted Node goes.
        self.azure_until("a route for each node", &network_id("routeTables", "routes"), |table| {
            let routes = table["routes"].as_array().cloned().unwrap_or_default();
            let of = |node: &str| routes.iter().any(|route| route["name"].as_str().unwrap().starts_with(node));
            routes.len() == NODES.len() && NODES.into_iter().all(of)
        })
        .await;
        let vnet = self.azure.resource(&network_id("virtualNetworks", "net")).await.unwrap();
        let table = &vnet["properties"]["subnets"][0]["properties"]["routeTable"]["id"];
        assert!(table.as_str().is_some_and(|id| id.ends_with("/routes")), "{vnet:#}");
    }

    /// A Service from its address to its end.
    async fn serve_services(&mut self) {
        let uid = self.service("web", json!({})).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let address = self.address("web").await;
        let ports = |balancer: &Value| -> Vec<Value> {
            let rules = balancer["loadBalancingRules"].as_array().cloned().unwrap_or_default();
            rules.iter().map(|rule| rule["properties"]["frontendPort"].clone()).collect()
        };
        self.balancer("the rule", |balancer| ports(balancer) == [80]).await;
        self.event("Service", "web", &uid, "EnsuredLoadBalancer").await;
        let path = format!("{SERVICES}/web");
        let finalizers = self.kubernetes.get(&path).await.unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers, json!(["service.kubernetes.io/load-balancer-cleanup"]));
        self.azure_until("the security rule", &network_id("networkSecurityGroups", "nodes-nsg"), |group| {
            group["securityRules"].as_array().is_some_and(|rules| rules.len() == 1)
        })
        .await;
        self.kubernetes.patch(&path, json!({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}})).await;
        self.balancer("the changed rule", |balancer| ports(balancer) == [81]).await;
        assert_eq!(self.address("web").await, address);

        // The next leader says it again.
        let annotations = json!({"service.beta.kubernetes.io/azure-load-balancer-internal": "perhaps"});
        let uid = self.service("wrong", annotations).await["metadata"]["uid"].as_str().unwrap().to_owned();
        let event = self.event("Service", "wrong", &uid, "InvalidService").await;
        assert!(event["message"].as_str().unwrap().contains("perhaps"), "{event:#}");

        self.kubernetes.delete(&path).await;
        self.kubernetes.until("the Service's end", &path, |service| service.is_none()).await;
        self.balancer("no rule", |balancer| ports(balancer).is_empty()).await;
    }

    /// The real API server answers a person's kubectl as the small one of `lazuli up` does, of which `it::up` has the same
    /// test.
    async fn kubectl_prints_what_it_prints_on_any_cluster(&self) {
        let folder = Folder::make();
        kubectl::services(Path::new(&self.kubernetes.admin_kubeconfig()), folder.path()).await;
    }

    /// What the webhooks answer through their Service.
    async fn review_volumes(&mut self) {
        self.claim("data", "ext4", 1).await;
        self.pod("data", NODES[0], &["data"]).await;
        self.running("data", NODES[0]).await;
        let volume = self.kubernetes.list(VOLUMES).await.remove(0);
        let labels =
            json!({"topology.kubernetes.io/region": "westeurope", "topology.kubernetes.io/zone": "westeurope-1"});
        assert_eq!(volume["metadata"]["labels"], labels);
        let grown = json!({"spec": {"resources": {"requests": {"storage": "40000Gi"}}}});
        let refusal = self.kubernetes.refusal_of_change(&format!("{CLAIMS}/data"), grown).await;
        let (code, why) = refusal.expect("is refused");
        assert!(code == 422 && why.contains("the largest Premium_LRS has 32767 GiB"), "{code} {why}");
        self.delete_pod("data").await;
        self.delete_claim("data").await;
        self.no_attachments().await;
    }

    /// A Pod may name a disk of Azure itself only where the chart's values let it.
    async fn refuse_inline_disks(&self) {
        let uri = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/of-another-claim";
        let disk =
            json!({"name": "data", "azureDisk": {"kind": "Managed", "diskName": "of-another-claim", "diskURI": uri}});
        let of_policy = |volumes: &Value, restart: &str| json!({"containers": [{"name": "c", "image": super::IDLE}], "restartPolicy": restart, "volumes": volumes});
        let labels = || json!({"app": "inline"});
        let template =
            |volumes: &Value| json!({"metadata": {"labels": labels()}, "spec": of_policy(volumes, "Always")});
        let selected = |volumes: &Value| json!({"replicas": 0, "selector": {"matchLabels": labels()}, "template": template(volumes)});
        let daemons = |volumes: &Value| json!({"selector": {"matchLabels": labels()}, "template": template(volumes)});
        let job = |volumes: &Value| json!({"template": {"spec": of_policy(volumes, "Never")}});
        let object = |kind: &str, volumes: Value| {
            let (member, content) = match kind {
                "pods" => ("spec", of_policy(&volumes, "Always")),
                "podtemplates" => ("template", template(&volumes)),
                "replicationcontrollers" => {
                    ("spec", json!({"replicas": 0, "selector": labels(), "template": template(&volumes)}))
                }
                "daemonsets" => ("spec", daemons(&volumes)),
                "jobs" => ("spec", job(&volumes)),
                "cronjobs" => ("spec", json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job(&volumes)}})),
                _ => ("spec", selected(&volumes)),
            };
            json!({"metadata": {"name": "inline"}, member: content})
        };
        for (api, kinds) in [
            ("/api/v1", ["pods", "podtemplates", "replicationcontrollers"].as_slice()),
            ("/apis/apps/v1", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
            ("/apis/batch/v1", &["cronjobs", "jobs"]),
        ] {
            for kind in kinds {
                let path = format!("{api}/namespaces/default/{kind}?dryRun=All");
                let refusal = self.kubernetes.refusal_of_object(&path, object(kind, json!([disk]))).await;
                let (code, why) = refusal.unwrap_or_else(|| panic!("{path} takes an inline disk"));
                assert!(code == 403 && why.contains(uri) && why.contains("namespace default"), "{code} {why}");
                assert_eq!(self.kubernetes.refusal_of_object(&path, object(kind, json!([]))).await, None, "{path}");
            }
        }
        // Nor does one get a disk later.
        self.kubernetes.create(DEPLOYMENTS, object("deployments", json!([]))).await;
        let path = format!("{DEPLOYMENTS}/inline");
        let change = |volumes: Value| json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
        let refusal = self.kubernetes.refusal_of_change(&path, change(json!([disk]))).await;
        assert!(refusal.is_some_and(|(code, why)| code == 403 && why.contains(uri)));
        let scratch = json!([{"name": "scratch", "emptyDir": {}}]);
        assert_eq!(self.kubernetes.refusal_of_change(&path, change(scratch)).await, None);
        self.kubernetes.delete(&path).await;
        self.kubernetes.create("/api/v1/namespaces", json!({"metadata": {"name": "legacy"}})).await;
        let path = format!("{}?dryRun=All", DEPLOYMENTS.replace("default", "legacy"));
        assert_eq!(self.kubernetes.refusal_of_object(&path, object("deployments", json!([disk]))).await, None);
    }

    /// The leader is killed while it serves many Services.
    async fn kill_the_leader(&mut self) {
        const COUNT: usize = 20;
        let before = self.kubernetes.get(LEASE).await.unwrap()["spec"]["holderIdentity"].clone();
        let (pod, node) = self.leader().await;
        let names: Vec<String> = (0..COUNT).map(|n| format!("burst-{n}")).collect();
        for name in &names {
            self.service(name, json!({})).await;
        }
        // Some are served, others are not.
        self.balancer("the first frontends", |balancer| {
            balancer["frontendIPConfigurations"].as_array().is_some_and(|all| !all.is_empty())
        })
        .await;
        self.container(&pod, node, CONTAINER).expect("a container").kill();
        for name in &names {
            self.address(name).await;
        }
        assert_ne!(
            self.kubernetes.get(LEASE).await.unwrap()["spec"]["holderIdentity"],
            before,
            "another process leads"
        );
        self.balancer("a frontend for each Service", |balancer| {
            balancer["frontendIPConfigurations"].as_array().is_some_and(|all| all.len() == COUNT)
        })
        .await;
        let uid = self.kubernetes.get(&format!("{SERVICES}/wrong")).await.unwrap()["metadata"]["uid"].clone();
        let event = self.event("Service", "wrong", uid.as_str().unwrap(), "InvalidService").await;
        assert!(event["series"]["count"].as_u64() >= Some(2), "{event:#}");
        for name in names.iter().map(String::as_str).chain(["wrong"]) {
            self.kubernetes.delete(&format!("{SERVICES}/{name}")).await;
        }
        self.count("the end of all Services but Kubernetes' own", SERVICES, 1).await;
        let dump = self.azure.at_rest().await;
        let resources = dump["resources"].as_object().unwrap();
        let left: Vec<&String> = resources.keys().filter(|id| id.contains("publicipaddresses")).collect();
        assert_eq!(left, Vec::<&String>::new(), "public IPs are left");
    }

    /// The machine of a pod with a volume is stopped: the pod runs on the other node, in time where Azure is instant.
    async fn stop_a_machine(&mut self, is_instant: bool) {
        self.claim("moves", "ext4", 1).await;
        let container = json!({"name": "c", "image": super::IDLE, "imagePullPolicy": "IfNotPresent",
            "volumeMounts": [{"name": "data", "mountPath": "/data"}]});
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "moves"}}]);
        let pod = json!({"containers": [container], "volumes": volumes});
        let labels = json!({"app": "moves"});
        let spec = json!({"replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod}});
        // There is one node to begin with.
        self.kubernetes.patch(&format!("{NODES_PATH}/{}", NODES[0]), json!({"spec": {"unschedulable": true}})).await;
        self.kubernetes.create(DEPLOYMENTS, json!({"metadata": {"name": "moves"}, "spec": spec})).await;
        let path = format!("{PODS}?labelSelector=app%3Dmoves");
        let runs_on = |list: Option<&Value>, node: &str| {
            let pods = list.and_then(|list| list["items"].as_array()).cloned().unwrap_or_default();
            pods.iter().any(|pod| pod["spec"]["nodeName"] == node && pod["status"]["phase"] == "Running")
        };
        self.kubernetes.until("a running pod", &path, |list| runs_on(list, NODES[1])).await;
        self.kubernetes.patch(&format!("{NODES_PATH}/{}", NODES[0]), json!({"spec": {"unschedulable": null}})).await;

        let machine = format!("{NODES_PATH}/{}", NODES[1]);
        self.kubernetes.kill_node(NODES[1]);
        self.azure.other_tool().await.deallocate(NODES[1]).await;
        let not_ready =
            |node: Option<&Value>| node.is_some_and(|node| condition(node, "Ready").unwrap()["status"] != "True");
        self.kubernetes.until("a node that is not Ready", &machine, not_ready).await;
        let began = Instant::now();
        self.kubernetes.until("a running pod elsewhere", &path, |list| runs_on(list, NODES[0])).await;
        let took = began.elapsed();
        println!("pod with a volume of a stopped machine: runs elsewhere {:.1} s after NotReady", took.as_secs_f64());
        assert!(!is_instant || took <= MOVED_WITHIN, "{took:?}");
        let node = self.node(NODES[1]).await.unwrap();
        assert!(has_taint(&node, OUT_OF_SERVICE), "{node:#}");
        self.event("Node", NODES[1], NODES[1], "NodeOutOfService").await;
        self.kubernetes.delete(&format!("{DEPLOYMENTS}/moves")).await;
        self.count("the end of the pod", &path, 0).await;
        self.delete_claim("moves").await;
        self.count("the end of all attachments", ATTACHMENTS, 0).await;
    }

    /// Nodes without kubelets: their machines never were.
    async fn nodes_without_machines(&self, count: usize) {
        let mut names: Vec<String> = (0..count).map(|n| format!("gone-{n:02}")).collect();
        names.push(UNREADABLE.to_owned());
        for name in names {
            let spec = json!({"providerID": format!("azure://{}", machine_id(&name))});
            self.kubernetes.create(NODES_PATH, json!({"metadata": {"name": name}, "spec": spec})).await;
        }
    }

    /// How many of these Nodes there are.
    async fn count_gone(&self) -> usize {
        let nodes = self.kubernetes.list(NODES_PATH).await;
        nodes.iter().filter(|node| node["metadata"]["name"].as_str().unwrap().starts_with("gone-")).count()
    }

    /// More machines than the limit are gone at once: up to the limit Nodes go at once, and then one every ten seconds.
    async fn slow_down(&self, count: usize) {
        let began = Instant::now();
        let (mut left, mut last) = (count, began);
        while left > 0 {
            let now = self.count_gone().await;
            if now < left {
                let at = Instant::now();
                if left == 1 {
                    let pause = at - last;
                    assert!(pause > PACE - Duration::from_secs(1), "the last one went after {pause:?}");
                }
                (left, last) = (now, at);
            }
            assert!(began.elapsed() < PATIENCE + PACE * 3, "{left} Nodes without machines are left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

#[tokio::test]
async fn the_cloud_controllers_look_after_a_cluster_with_the_rights_that_the_chart_gives() {
    /// Two more than go at once, with the machine that was deleted before.
    const GONE: usize = 11;
    let latency = std::env::var("LAZULI_CLUSTER_LATENCY").unwrap_or_else(|_| "none".to_owned());
    let Some(mut cluster) = Cluster::start_with_cloud_controllers(&latency).await else { return };
    let began = Instant::now();
    let say = |what: &str| println!("{:.1} s: {what}", began.elapsed().as_secs_f64());
    cluster.initialise_nodes().await;
    say("nodes are initialised and have routes");
    cluster.serving().await;
    cluster.registered().await;
    cluster.each_sidecar_leads_on_one_node().await;
    say("the driver is registered");
    cluster.serve_services().await;
    say("a Service was served, changed and deleted");
    cluster.kubectl_prints_what_it_prints_on_any_cluster().await;
    say("kubectl printed what it prints on any cluster");
    cluster.review_volumes().await;
    say("a volume was labelled and a resize refused");
    cluster.refuse_inline_disks().await;
    say("Pods with disks of Azure were refused");
    cluster.kill_the_leader().await;
    say("the leader was killed");
    cluster.nothing_follows_from_wrong_lists().await;
    say("wrong lists changed nothing");
    cluster.a_person_adds_an_ssh_key().await;
    say("an SSH key was added");

    let then = json!({"status": 403, "code": "AuthorizationFailed"});
    let path = format!("*/virtualMachines/{UNREADABLE}");
    let incident = json!({"match": {"method": "GET", "path": path}, "then": then, "times": 0});
    cluster.azure.incident(&incident).await;
    cluster.nodes_without_machines(GONE).await;
    cluster.stop_a_machine(latency == "none").await;
    say("a machine was stopped");
    cluster.azure.other_tool().await.delete_machine(NODES[1]).await;
    let path = format!("{NODES_PATH}/{}", NODES[1]);
    cluster.kubernetes.until("the end of the Node of a deleted machine", &path, |node| node.is_none()).await;
    cluster.event("Node", NODES[1], NODES[1], "DeletingNode").await;
    say("a machine was deleted");
    cluster.slow_down(GONE).await;
    say("machines disappeared");

    let slowed = cluster.kubernetes.list("/api/v1/events?fieldSelector=reason%3DNodeDeletionSlowed").await;
    assert_eq!(slowed.len(), 2, "{slowed:#?}");
    cluster.event("Node", UNREADABLE, UNREADABLE, "AuthorizationFailed").await;
    let unreadable = cluster.node(UNREADABLE).await.expect("a Node whose machine may not be read stays");
    assert!(!has_taint(&unreadable, OUT_OF_SERVICE), "{unreadable:#}");
    cluster.rights_are_used(|role| role == CLOUD_CONTROLLERS);
    cluster.finish().await;
}
