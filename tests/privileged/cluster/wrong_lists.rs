//! A server between the cloud controllers and the API server that answers the lists of Nodes and Services wrongly, as a
//! broken proxy does or rights that are missing: with no object, late, or not at all.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{
    super::{
        cloud::{text, words},
        process::{PATIENCE, Process},
    },
    Cluster, chart,
    cloud_controllers::SERVICES,
    kubernetes::until,
};

/// The collections whose lists are wrong.
const COLLECTIONS: [&str; 2] = ["/api/v1/nodes", "/api/v1/services"];
/// How many followers of each the process has: one for Nodes as backends, and one for Nodes as such.
const FOLLOWERS: [(&str, usize); 2] = [(COLLECTIONS[0], 2), (COLLECTIONS[1], 1)];
/// The version of an empty list.
const EMPTY: &str = "7";

/// How the lists are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lists {
    /// As the API server answers them.
    True,
    /// As in a cluster without an object: watches bring none, and an object that is asked for is not found.
    Empty,
    /// Not before the answer changes.
    Late,
    /// With this code.
    Refused(u16),
}

/// What the answers depend on.
struct Mood {
    lists: Lists,
    /// Ends watches and late answers when the answer changes.
    changed: CancellationToken,
    /// How often each collection was listed since the answer changed.
    listed: BTreeMap<String, usize>,
}

/// The server. It ends with its runtime.
#[derive(Clone)]
pub(super) struct WrongLists {
    client: Client,
    mood: Arc<Mutex<Mood>>,
}

impl WrongLists {
    /// Serves on loopback in the network of this thread, and gives its URL.
    pub(super) async fn start(client: Client, lists: Lists) -> (Self, String) {
        let mood = Mood { lists, changed: CancellationToken::new(), listed: BTreeMap::new() };
        let server = Self { client, mood: Arc::new(Mutex::new(mood)) };
        let router = Router::new().fallback(answer).with_state(server.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, url)
    }

    /// Answers otherwise from now on. Watches that are open end.
    pub(super) fn answer(&self, lists: Lists) {
        let mut mood = self.mood.lock().unwrap();
        let now = Mood { lists, changed: CancellationToken::new(), listed: BTreeMap::new() };
        let before = std::mem::replace(&mut *mood, now);
        before.changed.cancel();
    }

    /// Whether all who follow a collection have listed it so often since the answer changed, if all did as often.
    pub(super) fn listed(&self, times: usize) -> bool {
        let mood = self.mood.lock().unwrap();
        FOLLOWERS.iter().all(|(path, count)| mood.listed.get(*path).is_some_and(|listed| *listed >= count * times))
    }

    /// Fails lists until the controllers have paused for half a second and for one: time enough to act on what they were
    /// told before.
    async fn is_refused_for_a_while(&self) {
        self.answer(Lists::Refused(500));
        until("refused lists", || self.listed(3)).await;
    }

    /// Sends a request on to the API server.
    async fn forward(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap().to_vec();
        let mut on = http::Request::builder().method(parts.method).uri(parts.uri);
        for name in [header::CONTENT_TYPE, header::ACCEPT] {
            on = parts.headers.get(&name).into_iter().fold(on, |on, value| on.header(&name, value));
        }
        match self.client.send(on.body(kube::client::Body::from(body)).unwrap()).await {
            Ok(answer) => answer.map(Body::new),
            Err(error) => status(502, &error.to_string()),
        }
    }
}

async fn answer(State(server): State<WrongLists>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    if request.method() != Method::GET || !COLLECTIONS.contains(&path.as_str()) {
        let is_hidden = server.mood.lock().unwrap().lists == Lists::Empty
            && request.method() == Method::GET
            && (path.starts_with("/api/v1/nodes/") || path.contains("/services/"));
        return if is_hidden { status(404, "not found") } else { server.forward(request).await };
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_watch = query.contains("watch=");
    // Only a watch from a list of the present kind goes on: the others must list again.
    let is_from_empty = query.split('&').any(|part| part == format!("resourceVersion={EMPTY}"));
    let (lists, changed) = {
        let mut mood = server.mood.lock().unwrap();
        if !is_watch {
            *mood.listed.entry(path).or_default() += 1;
        }
        (mood.lists, mood.changed.clone())
    };
    match lists {
        _ if is_watch && (lists == Lists::True && is_from_empty || lists == Lists::Empty && !is_from_empty) => {
            status(410, "too old resource version")
        }
        Lists::Refused(_) | Lists::Late if is_watch => status(410, "too old resource version"),
        Lists::Refused(code) => status(code, "this list is refused"),
        Lists::Late => {
            changed.cancelled().await;
            status(504, "too late")
        }
        Lists::Empty if is_watch => {
            let silence = stream::pending::<Result<Vec<u8>, std::io::Error>>().take_until(changed.cancelled_owned());
            Body::from_stream(silence).into_response()
        }
        Lists::Empty => {
            let listed = server.forward(request).await;
            let mut list: Value =
                serde_json::from_slice(&to_bytes(listed.into_body(), usize::MAX).await.unwrap()).unwrap();
            list["items"] = json!([]);
            list["metadata"] = json!({"resourceVersion": EMPTY});
            ([(header::CONTENT_TYPE, "application/json")], list.to_string()).into_response()
        }
        Lists::True if is_watch => {
            let watch = server.forward(request).await;
            watch.map(|body| Body::from_stream(body.into_data_stream().take_until(changed.cancelled_owned())))
        }
        Lists::True => server.forward(request).await,
    }
}

/// An answer that is no success, as the API server writes it.
fn status(code: u16, message: &str) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message,
        "reason": if code == 410 { "Expired" } else { "" }});
    (StatusCode::from_u16(code).unwrap(), [(header::CONTENT_TYPE, "application/json")], body.to_string())
        .into_response()
}

impl Cluster {
    /// Wrong lists of Nodes and Services, from the start of the controllers and later, change nothing: no write to Azure,
    /// and every Node and Service stays.
    ///
    /// The controllers here are one more process, with a Lease of its own. Those in the cluster have nothing to do.
    pub(super) async fn nothing_follows_from_wrong_lists(&mut self) {
        self.service("kept", json!({})).await;
        let address = self.address("kept").await;
        self.azure.at_rest().await;
        let before = self.objects_of_lists().await;
        let at = |name: &str| text(&self.folder.path().join(name));

        let (server, url) = WrongLists::start(self.kubernetes.client().clone(), Lists::Refused(403)).await;
        fs::write(at("wrong-lists.json"), chart::cloud_config(self.folder.path(), json!({}))).unwrap();
        let program = env!("CARGO_BIN_EXE_lazuli");
        let authority = format!("SSL_CERT_FILE={}", at("tls/ca.pem"));
        let (config, kubeconfig) = (at("wrong-lists.json"), self.kubernetes.kubeconfig_of_server("wrong-lists", &url));
        // The first plan is made of empty lists and holds nothing, so that removals do not wait for the operator.
        let arguments = words(&[
            &authority,
            program,
            "cloud-controllers",
            "--cluster-cidr",
            "10.244.0.0/16",
            "--lease-name",
            "wrong-lists",
            "--cloud-config",
            &config,
            "--kubeconfig",
            &kubeconfig,
        ]);
        let log = self.folder.path().join("wrong-lists.log");
        self.azure.forget_calls().await;
        let mut process = Process::of_program(Path::new("env"), "wrong-lists", &log, &arguments);
        let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/wrong-lists";
        let is_held = |lease: Option<&Value>| lease.is_some_and(|lease| lease["spec"]["holderIdentity"].is_string());
        self.kubernetes.until("the Lease", lease, is_held).await;
        until("refused lists", || server.listed(1)).await;
        server.answer(Lists::Late);
        until("lists that are late", || server.listed(1)).await;
        server.answer(Lists::Empty);
        until("empty lists", || server.listed(1)).await;
        server.is_refused_for_a_while().await;
        assert!(process.log().contains("the API server lists no Nodes"), "{}", process.log());
        assert_eq!(self.writes_of_controllers().await, Vec::<String>::new());
        assert_eq!(self.objects_of_lists().await, before);

        // With the true lists the controllers compare what there is, and find nothing to do.
        server.answer(Lists::True);
        let began = Instant::now();
        let compared = ["/loadbalancers/kubernetes", "/routetables/routes", "/networksecuritygroups/nodes-nsg"];
        loop {
            let reads = self.azure.arm_reads().await;
            if compared.iter().all(|part| reads.iter().any(|path| path.to_lowercase().ends_with(part))) {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "the controllers do not compare: {reads:#?}\n{}", process.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // Controllers that know Nodes and Services get empty lists.
        server.answer(Lists::Empty);
        until("empty lists again", || server.listed(1)).await;
        server.is_refused_for_a_while().await;
        assert_eq!(self.writes_of_controllers().await, Vec::<String>::new());
        assert_eq!(self.objects_of_lists().await, before);
        process.must_run();
        process.stop().await;
        assert_eq!(self.writes_of_controllers().await, Vec::<String>::new());
        assert_eq!(self.address("kept").await, address);
        let path = format!("{SERVICES}/kept");
        self.kubernetes.delete(&path).await;
        self.kubernetes.until("the Service's end", &path, |service| service.is_none()).await;
    }

    /// The writes since the requests were last forgotten, but for those of the disk driver, which may still delete a disk.
    async fn writes_of_controllers(&self) -> Vec<String> {
        let writes = self.azure.arm_writes().await;
        writes.into_iter().filter(|write| !write.to_lowercase().contains("/disks/")).collect()
    }

    /// The uids of Nodes and Services, and what a Service has from the controllers.
    async fn objects_of_lists(&self) -> BTreeMap<String, Value> {
        let mut found = BTreeMap::new();
        for path in COLLECTIONS {
            for object in self.kubernetes.list(path).await {
                let (metadata, status) = (&object["metadata"], &object["status"]["loadBalancer"]);
                let name = format!("{path}/{}", metadata["name"].as_str().unwrap());
                found.insert(name, json!([metadata["uid"], metadata["finalizers"], status, object["spec"]["taints"]]));
            }
        }
        found
    }
}
