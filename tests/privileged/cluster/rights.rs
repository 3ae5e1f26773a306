//! The rights that the chart gives, and those that its programs use by the API server's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use serde_json::{Value, json};

use super::{super::cloud::NODES, ATTACHMENTS, CLAIMS, Cluster, DRIVER, PODS, VOLUMES, chart, snapshots::ATTRIBUTES};

/// The program of the cloud controllers, and their role.
pub(super) const CLOUD_CONTROLLERS: &str = "lazuli-cloud-controllers";

/// A right: account, verb and resource, such as `lazuli-node patch nodes`.
type Right = (String, String, String);

/// Where a right holds and for what: a namespace or, empty, all; names or, empty, all.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Scope {
    role: String,
    namespace: String,
    names: Vec<String>,
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn resource(group: &Value, resource: &str) -> String {
    match group.as_str().unwrap_or_default() {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    }
}

/// What the roles among these objects give to accounts, by right.
fn granted(objects: &[Value]) -> BTreeMap<Right, Vec<Scope>> {
    let mut rights: BTreeMap<Right, Vec<Scope>> = BTreeMap::new();
    for binding in objects.iter().filter(|object| !object["roleRef"].is_null()) {
        let (kind, name) = (&binding["roleRef"]["kind"], &binding["roleRef"]["name"]);
        let namespace = string(&binding["metadata"]["namespace"]);
        let is_it = |object: &&Value| {
            object["kind"] == *kind
                && object["metadata"]["name"] == *name
                && (kind == "ClusterRole" || object["metadata"]["namespace"] == *namespace)
        };
        let role = objects.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}"));
        for subject in list(&binding["subjects"]) {
            assert_eq!(subject["kind"], "ServiceAccount");
            for rule in list(&role["rules"]) {
                let names: Vec<String> = list(&rule["resourceNames"]).map(string).collect();
                for group in list(&rule["apiGroups"]) {
                    for of in list(&rule["resources"]) {
                        for verb in list(&rule["verbs"]) {
                            let right = (string(&subject["name"]), string(verb), resource(group, of.as_str().unwrap()));
                            let scope =
                                Scope { role: string(name), namespace: namespace.clone(), names: names.clone() };
                            rights.entry(right).or_default().push(scope);
                        }
                    }
                }
            }
        }
    }
    rights
}

/// A request of an account of the chart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Request {
    right: Right,
    /// The program, by its User-Agent.
    program: String,
    namespace: String,
    name: String,
}

/// What the API server has noted: requests for resources that the chart's roles allowed, and refused ones.
struct Audit {
    allowed: BTreeSet<Request>,
    refused: BTreeSet<Request>,
}

fn audit(folder: &Path) -> Audit {
    let text = fs::read_to_string(folder.join("audit.log")).unwrap();
    let mut found = Audit { allowed: BTreeSet::new(), refused: BTreeSet::new() };
    // The last line may be under way.
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let Some(account) = string(&event["user"]["username"])
            .strip_prefix("system:serviceaccount:kube-system:")
            .filter(|account| account.starts_with("lazuli-"))
            .map(str::to_owned)
        else {
            continue;
        };
        let of = &event["objectRef"];
        let mut path = string(&of["resource"]);
        if path.is_empty() {
            // No resource but a path, such as /version, which everybody may read.
            continue;
        }
        if let Some(part) = of["subresource"].as_str() {
            path = format!("{path}/{part}");
        }
        let request = |verb: &str| Request {
            right: (account.clone(), verb.to_owned(), resource(&of["apiGroup"], &path)),
            program: string(&event["userAgent"]).split('/').next().unwrap_or_default().to_owned(),
            namespace: string(&of["namespace"]),
            name: string(&of["name"]),
        };
        let verb = string(&event["verb"]);
        let notes = &event["annotations"];
        if notes["authorization.k8s.io/decision"] != "allow" || event["responseStatus"]["code"] == 403 {
            found.refused.insert(request(&verb));
            continue;
        }
        // What everybody may do is no right of the chart.
        if string(&notes["authorization.k8s.io/reason"]).contains("\"system:") {
            continue;
        }
        if verb == "patch" && event["responseStatus"]["code"] == 201 {
            // Server-side apply of what was not there needs both (source: Kubernetes, server-side apply).
            found.allowed.insert(request("create"));
        }
        found.allowed.insert(request(&verb));
    }
    found
}

impl Scope {
    /// Whether a request is within it.
    fn holds(&self, request: &Request) -> bool {
        (self.namespace.is_empty() || self.namespace == request.namespace)
            && (self.names.is_empty() || self.names.contains(&request.name))
    }
}

/// The program that a role is for, where it is for one alone.
fn program_of(role: &str, right: &Right) -> Option<&'static str> {
    match role {
        "lazuli-provisioner" => Some("csi-provisioner"),
        "lazuli-attacher" => Some("csi-attacher"),
        "lazuli-resizer" => Some("csi-resizer"),
        "lazuli-snapshotter" => Some("csi-snapshotter"),
        CLOUD_CONTROLLERS => Some(CLOUD_CONTROLLERS),
        // Every sidecar has a lease.
        "lazuli-controller" if right.2.starts_with("leases") => None,
        _ => Some("lazuli"),
    }
}

impl Cluster {
    /// Fails unless what the accounts of the chart have asked was allowed by its roles, and every rule of these roles was
    /// used.
    pub(super) fn rights_are_used(&self, of_roles: impl Fn(&str) -> bool) {
        let (granted, Audit { allowed, refused }) = (granted(&self.objects()), audit(self.folder.path()));
        assert_eq!(refused, BTreeSet::new(), "requests that the chart's roles do not allow");
        for request in &allowed {
            let scopes = granted.get(&request.right).map_or(&[][..], Vec::as_slice);
            assert!(scopes.iter().any(|scope| scope.holds(request)), "no role of the chart allows {request:?}");
        }
        let mut unused = Vec::new();
        for (right, scopes) in &granted {
            for scope in scopes.iter().filter(|scope| of_roles(&scope.role)) {
                let program = program_of(&scope.role, right);
                let is_it = |request: &&Request| {
                    request.right == *right && scope.holds(request) && program.is_none_or(|one| one == request.program)
                };
                if !allowed.iter().any(|request| is_it(&request)) {
                    unused.push(format!("{}: {} {}, by {program:?}", scope.role, right.1, right.2));
                }
            }
        }
        assert_eq!(unused, Vec::<String>::new(), "rules that nothing uses");
    }

    /// Makes a volume whose claim names a class of attributes, and deletes it.
    async fn make_with_attributes(&mut self, name: &str) {
        let class = json!({"metadata": {"name": name}, "driverName": DRIVER, "parameters": {"tags": "team=blue"}});
        self.kubernetes.create(ATTRIBUTES, class).await;
        let spec = json!({
            "storageClassName": "xfs", "volumeAttributesClassName": name, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        });
        self.kubernetes.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec})).await;
        self.pod(name, NODES[0], &[name]).await;
        self.running(name, NODES[0]).await;
        self.delete_pod(name).await;
        self.delete_claim(name).await;
    }

    /// Reads the metrics of the controllers as Prometheus does: with a token whose user may get them.
    async fn scrape(&self) {
        let deployment = chart::objects().into_iter().find(|object| object["kind"] == "Deployment").unwrap();
        let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
        let port = list(ports).find(|port| port["name"] == "metrics").expect("a port for metrics");
        let account = "/api/v1/namespaces/default/serviceaccounts";
        self.kubernetes.create(account, json!({"metadata": {"name": "scraper"}})).await;
        let binding = json!({
            "metadata": {"name": "scraper"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lazuli-metrics-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "scraper", "namespace": "default"}],
        });
        self.kubernetes.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding).await;
        let token = self.kubernetes.create(&format!("{account}/scraper/token"), json!({"spec": {}})).await;
        let mut pods = self.kubernetes.list(super::PODS_OF_THE_CHART).await;
        pods.retain(|pod| pod["metadata"]["labels"]["app.kubernetes.io/component"] == "controller");
        assert_eq!(pods.len(), 2, "replicas of the controller");
        for pod in pods {
            let server = format!("https://{}:{}", pod["status"]["podIP"].as_str().unwrap(), port["containerPort"]);
            let mut config = kube::Config::new(server.parse().unwrap());
            // Each process makes its certificate at its start.
            config.accept_invalid_certs = true;
            let get = || http::Request::get("/metrics").body(Vec::new()).unwrap();
            let anonymous = kube::Client::try_from(config.clone()).unwrap().request_text(get()).await;
            assert!(anonymous.is_err(), "metrics without a token");
            config.auth_info.token = Some(token["status"]["token"].as_str().unwrap().to_owned().into());
            let metrics = kube::Client::try_from(config).unwrap().request_text(get()).await.unwrap();
            assert!(metrics.contains("lazuli_rpc_duration_seconds"), "{metrics}");
        }
    }
}

/// A role with a rule too many is a risk, one with a rule too few is a failure: both fail here.
#[tokio::test]
async fn the_rights_that_are_used_are_the_rights_that_the_chart_gives() {
    // Where the API server streams lists, the sidecars only watch. Others do not: there they list, and then watch.
    let gates = "WatchList=false";
    let Some(mut cluster) =
        Cluster::start_empty(&["--future-fields", "--quota", "StandardSSDDiskCount=0"], gates).await
    else {
        return;
    };
    for node in NODES {
        // Newer than the program's table of sizes: the controller asks Azure, and publishes the answer.
        let labels = json!({"metadata": {"labels": {"node.kubernetes.io/instance-type": "Standard_D8s_v99"}}});
        cluster.kubernetes.patch(&format!("/api/v1/nodes/{node}"), labels).await;
    }
    cluster.install_chart().await;

    // A disk that Kubernetes has forgotten on a node where it uses another one.
    for (name, node) in [("lost", NODES[0]), ("used", NODES[1])] {
        cluster.claim(name, "xfs", 1).await;
        cluster.pod(name, node, &[name]).await;
        cluster.running(name, node).await;
    }
    cluster.make_with_attributes("described").await;
    cluster.count("the end of that volume", VOLUMES, 2).await;
    let disk = cluster.recorded().await.into_iter().find(|(_, at)| at[0].0 == NODES[0]).unwrap().0;
    cluster.delete_pod("lost").await;
    cluster.count("the end of an attachment", ATTACHMENTS, 1).await;
    cluster.azure.other_tool().await.attach(NODES[1], &disk, 7).await;
    cluster.pod("lost", NODES[0], &["lost"]).await;
    cluster.running("lost", NODES[0]).await;

    // Events that are repeated are patched.
    cluster.grow("used", 2).await;
    cluster.grow("used", 3).await;

    // No quota: the scheduler has to choose another node, and the provisioner repeats its events.
    cluster.claim("refused", "azuredisk-standard-ssd", 1).await;
    cluster.pod("refused", NODES[0], &["refused"]).await;
    let has = |audit: &Audit, verb: &str, resource: &str| {
        audit.allowed.iter().any(|one| {
            one.right.1 == verb
                && one.right.2 == resource
                && one.name.starts_with("refused")
                && one.program == "csi-provisioner"
        })
    };
    super::until("the provisioner's answer to a missing quota", || {
        let audit = audit(cluster.folder.path());
        has(&audit, "update", "persistentvolumeclaims") && has(&audit, "patch", "events")
    })
    .await;
    cluster.kubernetes.delete(&format!("{PODS}/refused")).await;
    cluster.kubernetes.delete(&format!("{CLAIMS}/refused")).await;

    cluster.scrape().await;
    super::show_events(&mut cluster).await;

    for name in ["lost", "used"] {
        cluster.delete_pod(name).await;
    }
    cluster.no_attachments().await;
    // A person attaches the disk of a volume that is to be deleted: it stays until that person detaches it.
    cluster.azure.other_tool().await.attach(NODES[1], &disk, 7).await;
    for name in ["lost", "used"] {
        cluster.delete_claim(name).await;
    }
    cluster.count("the end of the other volume", VOLUMES, 1).await;
    cluster.azure.other_tool().await.yank(NODES[1], &disk).await;
    cluster.count("the end of all volumes", VOLUMES, 0).await;

    cluster.rights_are_used(|_| true);
    cluster.finish().await;
}
