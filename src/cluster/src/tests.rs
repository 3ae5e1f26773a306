//! Tests of the crate against an API server inside the test; time is paused.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use lazuli_model::{node::ClusterNodes, size::SizeLimits};
use lazuli_storage::{list::VolumeHandles, lun::LunReservations};
use lazuli_telemetry::Readiness;
use serde_json::{Value, json};
use tokio::{sync::watch, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use super::{
    fake::{ATTACHMENTS, FakeApiServer, Mood, NODES, VOLUMES},
    *,
};

/// How long the watches may be lost before the process is not ready.
const TOLERANCE: Duration = Duration::from_secs(300);
const DRIVER: &str = "disk.csi.azure.com";

fn handle(disk: &str) -> String {
    format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{disk}")
}

/// An attachment of `volume` to `node`, at `lun` if it is attached.
fn attachment(name: &str, node: &str, volume: &str, lun: Option<&str>) -> Value {
    let mut object = json!({
        "kind": "VolumeAttachment", "apiVersion": "storage.k8s.io/v1",
        "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume}}
    });
    if let Some(lun) = lun {
        object["status"] = json!({"attached": true, "attachmentMetadata": {"LUN": lun}});
    }
    object
}

fn volume(name: &str, disk: &str) -> Value {
    json!({
        "kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"},
            "csi": {"driver": DRIVER, "volumeHandle": handle(disk), "volumeAttributes": {"skuName": "x"}}}
    })
}

struct Watched {
    snapshot: watch::Receiver<LunReservations>,
    readiness: Readiness,
    handles: watch::Receiver<VolumeHandles>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watched {
    fn start(server: &FakeApiServer) -> Self {
        let (sender, snapshot) = watch::channel(LunReservations::default());
        let (tell_handles, handles) = watch::channel(VolumeHandles::default());
        let stop = CancellationToken::new();
        let (client, token) = (server.client(), stop.clone());
        let readiness = Readiness::new();
        let live = readiness.tolerant_condition("cluster", TOLERANCE);
        let task =
            tokio::spawn(async move { watch_luns(Some(client), DRIVER, sender, tell_handles, live, token).await });
        Self { snapshot, readiness, handles, stop, task }
    }

    /// Waits until the snapshot is synced and shows exactly this.
    async fn shows(&mut self, expected: &[&str]) {
        let waiting = self.snapshot.wait_for(|now| lines(now).is_some_and(|lines| lines == expected));
        if tokio::time::timeout(Duration::from_secs(600), waiting).await.is_err() {
            panic!("{:?} is not {expected:?}", lines(&self.snapshot.borrow()));
        }
    }

    /// Waits until the handles are exactly those of these PersistentVolumes and disks.
    async fn knows(&mut self, expected: &[(&str, &str)]) {
        let pair = |(name, disk): &(&str, &str)| ((*name).to_owned(), handle(disk).into());
        let expected = VolumeHandles::Synced(expected.iter().map(pair).collect());
        let waiting = self.handles.wait_for(|now| *now == expected);
        if tokio::time::timeout(Duration::from_secs(600), waiting).await.is_err() {
            panic!("{:?} is not {expected:?}", *self.handles.borrow());
        }
    }

    fn is_cold(&self) -> bool {
        *self.snapshot.borrow() == LunReservations::Cold && *self.handles.borrow() == VolumeHandles::Cold
    }
}

/// `node lun attachment disk`, or `None` while cold.
fn lines(snapshot: &LunReservations) -> Option<Vec<String>> {
    let LunReservations::Synced(nodes) = snapshot else {
        return None;
    };
    let mut lines = Vec::new();
    for (node, reservations) in nodes {
        for one in reservations {
            let disk = one.volume_handle.as_deref().map_or("?", |handle| handle.rsplit('/').next().unwrap_or_default());
            lines.push(format!("{node} {} {} {disk}", one.lun, one.attachment));
        }
    }
    Some(lines)
}

#[tokio::test(start_paused = true)]
async fn without_a_cluster_the_snapshot_says_so_at_once() {
    let (sender, snapshot) = watch::channel(LunReservations::default());
    let (tell_handles, handles) = watch::channel(VolumeHandles::default());
    let readiness = Readiness::new();
    let live = readiness.condition("cluster");
    watch_luns(None, DRIVER, sender, tell_handles, live, CancellationToken::new()).await;
    assert_eq!(*snapshot.borrow(), LunReservations::NoCluster);
    assert_eq!(*handles.borrow(), VolumeHandles::NoCluster);
    assert!(readiness.is_ready());
}

#[tokio::test(start_paused = true)]
async fn every_attachment_that_names_a_lun_is_reserved_whatever_its_state() {
    let server = FakeApiServer::default();
    server.put(VOLUMES, volume("pv-a", "a"));
    server.put(
        VOLUMES,
        json!({"metadata": {"name": "pv-tree"},
        "spec": {"azureDisk": {"diskName": "t", "diskURI": handle("t")}}}),
    );
    server.put(VOLUMES, json!({"metadata": {"name": "pv-nfs"}, "spec": {"nfs": {"server": "x", "path": "/"}}}));
    server.put(ATTACHMENTS, attachment("va-attached", "n1", "pv-a", Some("3")));
    let mut detached = attachment("va-detached", "n1", "pv-tree", Some("0"));
    detached["status"]["attached"] = json!(false);
    server.put(ATTACHMENTS, detached);
    let mut deleting = attachment("va-deleting", "n2", "pv-unknown", Some("63"));
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    server.put(ATTACHMENTS, deleting);
    let mut inline = attachment("va-inline", "n2", "", Some("1"));
    inline["spec"]["source"] = json!({"inlineVolumeSpec": {"azureDisk": {"diskName": "i", "diskURI": handle("i")}}});
    server.put(ATTACHMENTS, inline);
    let mut foreign = attachment("va-foreign", "n1", "pv-a", Some("7"));
    foreign["spec"]["attacher"] = json!("ebs.csi.aws.com");
    server.put(ATTACHMENTS, foreign);
    server.put(ATTACHMENTS, attachment("va-pending", "n1", "pv-a", None));
    server.put(ATTACHMENTS, attachment("va-nonsense", "n1", "pv-a", Some("64")));
    // As early versions of the Go driver wrote it; kubelet still stages by it.
    server.put(ATTACHMENTS, attachment("va-path", "n2", "pv-a", Some("/dev/disk/azure/scsi1/lun5")));

    let mut watched = Watched::start(&server);
    let luns =
        ["n1 0 va-detached t", "n1 3 va-attached a", "n2 1 va-inline i", "n2 5 va-path a", "n2 63 va-deleting ?"];
    watched.shows(&luns).await;
    watched.stop.cancel();
    watched.task.await.expect("no panic");
    assert_eq!(*watched.snapshot.borrow(), LunReservations::Cold, "no task looks after it any more");
}

/// The disks of a volume that no node uses are listed too, in whatever resource group they are.
#[tokio::test(start_paused = true)]
async fn the_handles_of_the_drivers_volumes_are_known_also_of_those_that_nothing_attaches() {
    let server = FakeApiServer::default();
    server.put(VOLUMES, volume("pv-a", "a"));
    let tree = json!({"azureDisk": {"diskName": "t", "diskURI": handle("t")}});
    server.put(VOLUMES, json!({"metadata": {"name": "pv-tree"}, "spec": tree}));
    server.put(VOLUMES, json!({"metadata": {"name": "pv-nfs"}, "spec": {"nfs": {"server": "x", "path": "/"}}}));
    let other = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}});
    server.put(VOLUMES, json!({"metadata": {"name": "pv-other"}, "spec": other}));
    let mut watched = Watched::start(&server);
    watched.shows(&[]).await;
    watched.knows(&[("pv-a", "a"), ("pv-tree", "t")]).await;
    server.put(VOLUMES, volume("pv-b", "b"));
    server.delete(VOLUMES, "pv-tree");
    watched.knows(&[("pv-a", "a"), ("pv-b", "b")]).await;
    watched.stop.cancel();
    watched.task.await.expect("no panic");
    assert_eq!(*watched.handles.borrow(), VolumeHandles::Cold, "no task looks after them any more");
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_is_cold_until_both_resources_are_listed() {
    for late in [ATTACHMENTS, VOLUMES] {
        for mood in [Mood::Forbids, Mood::Hangs] {
            let server = FakeApiServer::default();
            server.put(ATTACHMENTS, attachment("va", "n", "pv", Some("5")));
            server.put(VOLUMES, volume("pv", "a"));
            server.mood(late, mood);
            let mut watched = Watched::start(&server);
            tokio::time::sleep(Duration::from_secs(3600)).await;
            assert!(watched.is_cold());
            server.mood(late, Mood::Answers);
            watched.shows(&["n 5 va a"]).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn created_changed_and_deleted_attachments_show_without_a_new_list() {
    let server = FakeApiServer::default();
    server.put(VOLUMES, volume("pv-a", "a"));
    let mut watched = Watched::start(&server);
    watched.shows(&[]).await;
    server.put(ATTACHMENTS, attachment("va", "n", "pv-a", None));
    server.put(ATTACHMENTS, attachment("va", "n", "pv-a", Some("2")));
    watched.shows(&["n 2 va a"]).await;
    // The volume of the next one is told after it.
    server.put(ATTACHMENTS, attachment("vb", "n", "pv-b", Some("1")));
    watched.shows(&["n 1 vb ?", "n 2 va a"]).await;
    server.put(VOLUMES, volume("pv-b", "b"));
    watched.shows(&["n 1 vb b", "n 2 va a"]).await;
    server.delete(VOLUMES, "pv-a");
    watched.shows(&["n 1 vb b", "n 2 va ?"]).await;
    server.delete(ATTACHMENTS, "vb");
    server.put(ATTACHMENTS, attachment("va", "n", "pv-a", None));
    watched.shows(&[]).await;
    assert_eq!(server.count(&["limit=25"]), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lost_watch_goes_on_where_it_was() {
    for broken in [false, true] {
        let server = FakeApiServer::default();
        server.put(ATTACHMENTS, attachment("va", "n", "pv", Some("2")));
        let mut watched = Watched::start(&server);
        watched.shows(&["n 2 va ?"]).await;
        server.put(ATTACHMENTS, attachment("vb", "n", "pv", Some("3")));
        watched.shows(&["n 2 va ?", "n 3 vb ?"]).await;
        server.drop_watches(broken);
        server.delete(ATTACHMENTS, "va");
        server.put(ATTACHMENTS, attachment("vc", "n", "pv", Some("4")));
        watched.shows(&["n 3 vb ?", "n 4 vc ?"]).await;
        assert_eq!(server.count(&[ATTACHMENTS, "limit=25"]), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_too_old_leads_to_a_new_list() {
    for gone_as_event in [false, true] {
        let server = FakeApiServer::default();
        server.put(ATTACHMENTS, attachment("va", "n", "pv", Some("2")));
        let mut watched = Watched::start(&server);
        watched.shows(&["n 2 va ?"]).await;
        server.drop_watches(false);
        server.delete(ATTACHMENTS, "va");
        server.put(ATTACHMENTS, attachment("vb", "n", "pv", Some("3")));
        // The events of this gap are lost for ever.
        server.compact(gone_as_event);
        let before = tokio::time::Instant::now();
        watched.shows(&["n 3 vb ?"]).await;
        assert!(before.elapsed() < Duration::from_secs(5), "not only after a silence");
        assert!(!watched.is_cold());
        assert_eq!(server.count(&[ATTACHMENTS, "limit=25"]), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_keep_a_quiet_snapshot_synced_without_new_lists() {
    let server = FakeApiServer::default();
    let mut watched = Watched::start(&server);
    watched.shows(&[]).await;
    for _ in 0..60 {
        tokio::time::sleep(Duration::from_secs(60)).await;
        server.bookmark();
        assert!(!watched.is_cold());
    }
    assert_eq!(server.count(&["limit=25"]), 2);
    // A watch that breaks later goes on from the last bookmark.
    server.compact(false);
    server.bookmark();
    tokio::time::sleep(Duration::from_millis(1)).await;
    server.drop_watches(false);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.count(&["limit=25"]), 2);
}

#[tokio::test(start_paused = true)]
async fn a_silent_server_without_bookmarks_is_listed_again_before_the_snapshot_is_stale() {
    let server = FakeApiServer::default();
    let mut watched = Watched::start(&server);
    watched.shows(&[]).await;
    let mut changes = watched.snapshot.clone();
    changes.mark_unchanged();
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert!(!changes.has_changed().expect("is alive"), "an equal picture is not news");
    assert!(server.count(&[ATTACHMENTS, "limit=25"]) > 15);
}

#[tokio::test(start_paused = true)]
async fn the_process_is_ready_after_the_first_lists_and_not_after_five_minutes_without_the_watches() {
    let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    for late in [ATTACHMENTS, VOLUMES] {
        for mood in [Mood::Forbids, Mood::Hangs] {
            let server = FakeApiServer::default();
            server.mood(late, mood);
            let mut watched = Watched::start(&server);
            pass(60).await;
            let (ready, words) = watched.readiness.describe();
            assert!(!ready && words.contains("cannot be watched"), "{words}");
            server.mood(late, Mood::Answers);
            watched.shows(&[]).await;
            pass(1).await;
            assert!(watched.readiness.is_ready(), "{}", watched.readiness.describe().1);
            // A quiet server, and one that ends its watches, are daily life.
            for _ in 0..10 {
                pass(300).await;
                server.drop_watches(true);
                assert!(watched.readiness.is_ready(), "{}", watched.readiness.describe().1);
            }
            pass(60).await;
            server.mood(late, mood);
            server.drop_watches(true);
            pass(290).await;
            assert!(watched.readiness.is_ready(), "{}", watched.readiness.describe().1);
            // A server that says nothing is not known to be gone for the first two minutes.
            pass(130).await;
            let (ready, words) = watched.readiness.describe();
            assert!(!ready && words.contains("failing for"), "{words}");
            server.mood(late, Mood::Answers);
            watched.shows(&[]).await;
            pass(91).await;
            assert!(watched.readiness.is_ready(), "{}", watched.readiness.describe().1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_of_a_dead_server_turns_cold_and_comes_back_by_a_list() {
    let server = FakeApiServer::default();
    server.put(ATTACHMENTS, attachment("va", "n", "pv", Some("2")));
    server.put(VOLUMES, volume("pv", "a"));
    let mut watched = Watched::start(&server);
    watched.shows(&["n 2 va a"]).await;
    // One of the two is enough: a handle that is not known would leave a LUN to the wrong disk.
    for dead in [ATTACHMENTS, VOLUMES] {
        server.mood(dead, Mood::Hangs);
        server.drop_watches(true);
        tokio::time::sleep(STALE_AFTER - Duration::from_secs(100)).await;
        assert!(!watched.is_cold(), "within the bound it is still good");
        tokio::time::sleep(Duration::from_secs(101)).await;
        assert!(watched.is_cold());
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(watched.is_cold());
        server.mood(dead, Mood::Answers);
        watched.shows(&["n 2 va a"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_attachments_are_listed_in_pages() {
    let server = FakeApiServer::default();
    for number in 0..1200 {
        let node = format!("n{:03}", number / 64);
        let lun = (number % 64).to_string();
        server.put(VOLUMES, volume(&format!("pv-{number}"), &format!("d{number}")));
        let name = format!("va-{number:04}");
        server.put(ATTACHMENTS, attachment(&name, &node, &format!("pv-{number}"), Some(&lun)));
    }
    let mut watched = Watched::start(&server);
    let synced = watched.snapshot.wait_for(|now| lines(now).is_some());
    let all = lines(&synced.await.expect("is alive")).expect("is synced");
    assert_eq!(all.len(), 1200);
    assert_eq!(all[1199], "n018 47 va-1199 d1199");
    // Of 25, 100, 400, 500 and the rest.
    assert_eq!(server.count(&[ATTACHMENTS, "limit="]), 5);
}

#[tokio::test(start_paused = true)]
async fn a_secret_is_read_by_get_and_its_values_do_not_show() {
    let server = FakeApiServer::default();
    server.put_secret(
        "default",
        "azure-secret",
        json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "azure-secret"},
            "data": {"azurestorageaccountname": "YWNjb3VudA==", "azurestorageaccountkey": "aHVudGVyMg=="}}),
    );
    let client = server.client();
    let secret = read_secret(&client, "default", "azure-secret").await.expect("is answered").expect("exists");
    assert_eq!(secret.get("azurestorageaccountkey"), Some(&b"hunter2"[..]));
    assert_eq!(secret.get("other"), None);
    assert_eq!(secret.keys().count(), 2);
    let shown = format!("{secret:?}");
    assert!(shown.contains("azurestorageaccountkey") && !shown.contains("hunter"), "{shown}");
    assert!(!shown.contains("104"), "nor as bytes: {shown}");
    assert_eq!(server.count(&["/secrets?"]) + server.count(&["/secrets\n"]), 0, "never listed");

    assert_eq!(read_secret(&client, "default", "absent").await.expect("is answered"), None);
    // A name that is no name asks for nothing.
    let before = server.count(&["/secrets"]);
    for name in ["", "..", "a/b", "a?b", "../pods/x"] {
        assert_eq!(read_secret(&client, "default", name).await.expect("is no error"), None);
        assert_eq!(read_secret(&client, name, "x").await.expect("is no error"), None);
    }
    assert_eq!(server.count(&["/secrets"]), before);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_cannot_be_read_says_why_without_showing_it() {
    let server = FakeApiServer::default();
    server.mood("/api/v1/namespaces/kube-system/secrets/x", Mood::Forbids);
    let client = server.client();
    let error = read_secret(&client, "kube-system", "x").await.expect_err("is forbidden");
    assert_eq!(error.to_string(), "not allowed to read secret kube-system/x: the role needs the verb get on it");
    server.put_secret("d", "odd", json!({"kind": "Secret", "apiVersion": "v1", "metadata": {}, "data": "hunter2"}));
    let error = read_secret(&client, "d", "odd").await.expect_err("is no secret");
    assert!(matches!(error, SecretError::Malformed { .. }));
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_secret_that_is_there_is_left_and_a_refused_creation_names_the_verb() {
    let answer = async |axum::extract::Path(namespace): axum::extract::Path<String>, body: axum::Json<Value>| {
        let (status, reason) = match namespace.as_str() {
            "taken" => (409, "AlreadyExists"),
            "closed" | "full" => (403, "Forbidden"),
            "absent" => (404, "NotFound"),
            _ => {
                assert_eq!(body["data"], json!({"azurestorageaccountname": "YQ=="}));
                return (http::StatusCode::CREATED, axum::Json(body.0));
            }
        };
        let refusal = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": reason, "reason": reason, "code": status});
        (http::StatusCode::from_u16(status).expect("is a status"), axum::Json(refusal))
    };
    let read = async |axum::extract::Path((namespace, name)): axum::extract::Path<(String, String)>| {
        let (status, reason) = match namespace.as_str() {
            // Its quota of Secrets is used up: a creation would be forbidden, whether there is one or not.
            "full" => (200, json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": name}})),
            "unread" => (403, json!({"kind": "Status", "apiVersion": "v1", "reason": "Forbidden", "code": 403})),
            _ => (404, json!({"kind": "Status", "apiVersion": "v1", "reason": "NotFound", "code": 404})),
        };
        (http::StatusCode::from_u16(status).expect("is a status"), axum::Json(reason))
    };
    let router = axum::Router::new()
        .route("/api/v1/namespaces/{namespace}/secrets", axum::routing::post(answer))
        .route("/api/v1/namespaces/{namespace}/secrets/{name}", axum::routing::get(read));
    let client = kube::Client::new(router, "default");
    let write = async |namespace: &str| {
        let written = write_share_secret(&client, namespace, "s", &[("azurestorageaccountname", "a")]).await;
        written.map_err(|error| error.to_string())
    };
    assert_eq!(write("team").await, Ok(()));
    assert_eq!(write("taken").await, Ok(()));
    assert_eq!(write("full").await, Ok(()));
    let unread = "not allowed to read secret unread/s: the role needs the verb get on it";
    assert_eq!(write("unread").await, Err(unread.to_owned()));
    let forbidden = "not allowed to create secret closed/s: the role needs the verb create on secrets of the namespace";
    assert_eq!(write("closed").await, Err(forbidden.to_owned()));
    assert_eq!(write("absent").await, Err("cannot create secret absent/s".to_owned()));
    assert_eq!(write("a/b").await, Err("no secret can have the name a/b/s".to_owned()));
}

#[tokio::test]
async fn a_secret_is_updated_only_where_it_is_as_it_was_read_and_keeps_all_else() {
    let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
    let client = kube::Client::new(server.router(), "default");
    let object =
        |data: Value| json!({"metadata": {"name": "s", "namespace": "team", "labels": {"a": "b"}}, "data": data});
    server.put("secrets", object(json!({"k": "b2xk", "other": "eA=="}))).expect("is made");
    let read = async || read_secret(&client, "team", "s").await.expect("is answered").expect("exists");
    let first = read().await;
    assert_eq!((first.get("k"), first.is_managed()), (Some(&b"old"[..]), false));
    let update = async |read: &SecretValues| update_secret(&client, read, &[("k", "new")]).await;
    assert_eq!(update(&first).await.expect("is answered"), SecretUpdate::Written);
    let second = read().await;
    assert_eq!((second.get("k"), second.get("other")), (Some(&b"new"[..]), Some(&b"x"[..])));
    assert_eq!(server.get("secrets", "team", "s").expect("exists")["metadata"]["labels"], json!({"a": "b"}));
    // Another writer came in between, or the Secret was deleted.
    server.put("secrets", object(json!({"k": "bWluZQ=="}))).expect("is changed");
    assert_eq!(update(&second).await.expect("is answered"), SecretUpdate::Changed);
    assert_eq!(read().await.get("k"), Some(&b"mine"[..]));
    server.delete("secrets", "team", "s").expect("is deleted");
    assert_eq!(update(&second).await.expect("is answered"), SecretUpdate::Changed);
    let refused = async || (http::StatusCode::FORBIDDEN, axum::Json(json!({"kind": "Status", "code": 403})));
    let router = axum::Router::new().route("/api/v1/namespaces/team/secrets/s", axum::routing::put(refused));
    let client = kube::Client::new(router, "default");
    let error = update_secret(&client, &second, &[("k", "hunter2")]).await.expect_err("is forbidden").to_string();
    assert_eq!(
        error,
        "not allowed to update secret team/s: the role needs the verb update on secrets of the namespace"
    );
}

#[tokio::test]
async fn a_secret_that_is_immutable_or_owned_is_managed() {
    let server = lazuli_apiserver::ApiServer::start(lazuli_apiserver::Options::default());
    let client = kube::Client::new(server.router(), "default");
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}]);
    for (name, more, owners) in
        [("free", json!(false), json!([])), ("fixed", json!(true), json!([])), ("owned", json!(null), owner)]
    {
        let metadata = json!({"name": name, "namespace": "team", "ownerReferences": owners});
        server.put("secrets", json!({"metadata": metadata, "immutable": more})).expect("is made");
        let read = read_secret(&client, "team", name).await.expect("is answered").expect("exists");
        assert_eq!(read.is_managed(), name != "free", "{name}");
    }
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A file of its own under the target's temporary folder, removed at the end.
struct File(PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("lazuli-{}-{name}", std::process::id()));
        std::fs::write(&path, text).expect("is written");
        Self(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
    contexts: [{name: c, context: {cluster: k, user: u, namespace: team}}]\n\
    clusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: u, user: {token: hunter2}}]\n";

#[tokio::test]
async fn nothing_named_means_no_cluster_and_something_named_must_work() {
    assert!(connect(None, &variables(&[])).await.expect("is no error").is_none());
    let empty = variables(&[("KUBECONFIG", ""), ("KUBERNETES_SERVICE_HOST", "")]);
    assert!(connect(None, &empty).await.expect("is no error").is_none());

    let good = File::new("kubeconfig", KUBECONFIG);
    let client = connect(Some(&good.0), &variables(&[])).await.expect("is usable");
    assert_eq!(client.expect("is named").default_namespace(), "team");
    let named = variables(&[("KUBECONFIG", &good.0.display().to_string())]);
    assert!(connect(None, &named).await.expect("is usable").is_some());

    let error =
        connect(Some(Path::new("/does/not/exist")), &named).await.err().expect("the flag wins and its file is absent");
    assert_eq!(error.to_string(), "cannot read the kubeconfig /does/not/exist");
    let cause = std::error::Error::source(&error).expect("says why").to_string();
    assert_eq!(cause, "No such file or directory (os error 2)");
    let broken = File::new("broken", "users: [{name: u, user: {token: hunter2");
    let error = connect(Some(&broken.0), &named).await.err().expect("is broken");
    assert!(matches!(error, ConnectError::Malformed { .. }), "{error:?}");
    assert!(!format!("{error} {error:?}").contains("hunter2"));
}

#[tokio::test]
async fn the_client_of_a_kubeconfig_presents_its_token_over_a_socket() {
    let answer = async |headers: http::HeaderMap| {
        assert_eq!(headers["authorization"], "Bearer hunter2");
        axum::Json(json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "s"}, "data": {"k": "dg=="}}))
    };
    let router = axum::Router::new().route("/api/v1/namespaces/team/secrets/s", axum::routing::get(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let text = KUBECONFIG.replace("127.0.0.1:1", &address.to_string());
    let file = File::new("socket", &text);
    let client = connect(Some(&file.0), &variables(&[])).await.expect("is usable").expect("is named");
    let secret = read_secret(&client, "team", "s").await.expect("is answered").expect("exists");
    assert_eq!(secret.get("k"), Some(&b"v"[..]));
    server.abort();
}

/// A proxy that takes any tunnel and answers in the server's stead; it tells to where the tunnels were to go.
async fn proxy() -> (std::net::SocketAddr, tokio::sync::mpsc::UnboundedReceiver<String>) {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("is bound");
    let (tell, tunnels) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            for answer in ["HTTP/1.1 200 OK\r\n\r\n".to_owned(), {
                let secret = r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s"},"data":{"k":"dg=="}}"#;
                let length = secret.len();
                format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{secret}")
            }] {
                let mut first = String::new();
                stream.read_line(&mut first).await.expect("is sent");
                tell.send(first.trim().to_owned()).expect("is awaited");
                let mut line = String::new();
                while !matches!(line.as_str(), "\r\n") {
                    line.clear();
                    stream.read_line(&mut line).await.expect("is sent");
                }
                stream.write_all(answer.as_bytes()).await.expect("is taken");
            }
        }
    });
    (address, tunnels)
}

#[tokio::test]
async fn a_proxy_that_the_kubeconfig_or_the_environment_names_is_used() {
    let (address, mut tunnels) = proxy().await;
    let url = format!("http://{address}");
    let server = "server: 'http://api.team.invalid:8080'";
    let (plain, named) = (
        KUBECONFIG.replace("server: 'http://127.0.0.1:1'", server),
        KUBECONFIG.replace("server: 'http://127.0.0.1:1'", &format!("{server}, proxy-url: '{url}'")),
    );
    assert_ne!(plain, KUBECONFIG);
    for (text, environment) in [(&plain, &[("HTTP_PROXY", url.as_str())][..]), (&named, &[])] {
        let file = File::new("proxy", text);
        let client = connect(Some(&file.0), &variables(environment)).await.expect("is usable").expect("is named");
        let secret = read_secret(&client, "team", "s").await.expect("is answered").expect("exists");
        assert_eq!(secret.get("k"), Some(&b"v"[..]));
        assert_eq!(tunnels.recv().await.expect("a tunnel"), "CONNECT api.team.invalid:8080 HTTP/1.1");
        assert_eq!(tunnels.recv().await.expect("a request"), "GET /api/v1/namespaces/team/secrets/s HTTP/1.1");
    }
    let wrong = KUBECONFIG.replace("server:", "proxy-url: 'ftp://u:hunter2@p', server:");
    let error = connect(Some(&File::new("wrong", &wrong).0), &variables(&[])).await.err().expect("is refused");
    let text = format!("{error}: {}", std::error::Error::source(&error).expect("has a cause"));
    assert!(text.contains("proxy-url of the kubeconfig") && !format!("{text}{error:?}").contains("hunter2"), "{text}");
}

#[tokio::test]
async fn what_the_controller_publishes_of_vm_sizes_is_what_its_next_process_reads() {
    let server = FakeApiServer::default();
    let client = server.client();
    assert!(published_sizes(&client).await.expect("none is no error").is_empty());
    let sizes = |pairs: &[(&str, u8)]| SizeLimits::new(pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)));
    let told = sizes(&[("Standard_D2s_v99", 6), ("Standard_E4s_v99", 12)]);
    publish_sizes(&client, &told).await.expect("is written");
    assert_eq!(published_sizes(&client).await.expect("is read"), told);
    // The next word replaces the last.
    let fewer = sizes(&[("Standard_D2s_v99", 8)]);
    publish_sizes(&client, &fewer).await.expect("is written");
    assert_eq!(published_sizes(&client).await.expect("is read"), fewer);
    let path = "/api/v1/namespaces/default/configmaps/lazuli-vm-sizes";
    server.mood(path, Mood::Forbids);
    let refusal = published_sizes(&client).await.expect_err("is forbidden");
    assert!(refusal.to_string().contains("needs get on the configmap lazuli-vm-sizes"), "{refusal}");
}

#[tokio::test]
async fn the_sizes_of_all_nodes_are_found_over_pages_and_those_without_a_label_are_left_out() {
    let server = FakeApiServer::default();
    for number in 0..1_203 {
        let labels = match number % 3 {
            0 => json!({"node.kubernetes.io/instance-type": "Standard_D8s_v3"}),
            1 => json!({"node.kubernetes.io/instance-type": "Standard_D2s_v99"}),
            _ => json!({}),
        };
        server.put(NODES, json!({"metadata": {"name": format!("node-{number:04}"), "labels": labels}}));
    }
    let (tell, mut nodes) = watch::channel(ClusterNodes::default());
    let (stop, readiness) = (CancellationToken::new(), Readiness::new());
    let live = readiness.tolerant_condition("nodes", TOLERANCE);
    let task = tokio::spawn(watch_nodes(Some(server.client()), tell, live, stop.clone()));
    let known = nodes.wait_for(|nodes| *nodes != ClusterNodes::Cold).await.expect("are listed");
    assert_eq!(known.vm_sizes().into_iter().collect::<Vec<_>>(), ["Standard_D2s_v99", "Standard_D8s_v3"]);
    drop(known);
    assert_eq!(server.count(&[NODES, "limit="]), 5);
    stop.cancel();
    task.await.expect("ends");
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_takes_a_call_and_never_answers_is_waited_for_half_a_minute() {
    let server = FakeApiServer::default();
    let client = server.client();
    for path in ["/api/v1/namespaces/d/secrets/s", "/api/v1/namespaces/default/configmaps/lazuli-vm-sizes"] {
        server.mood(path, Mood::Hangs);
    }
    let began = tokio::time::Instant::now();
    let error = read_secret(&client, "d", "s").await.expect_err("no answer");
    assert!(matches!(error, SecretError::Failed { .. }), "{error:?}");
    let error = published_sizes(&client).await.expect_err("no answer");
    let cause = std::error::Error::source(&error).expect("has a cause").to_string();
    assert!(cause.contains("no answer within 30 s"), "{cause}");
    publish_sizes(&client, &SizeLimits::default()).await.expect_err("no answer");
    assert_eq!(began.elapsed().as_secs(), 3 * 30);
}
