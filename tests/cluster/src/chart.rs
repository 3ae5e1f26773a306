//! The chart's objects, and the overlay with which they run on this machine.

use std::{fs, path::Path};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use crate::{
    certificates,
    node::{IDLE, SHELL},
};

/// Where the emulator serves without TLS: instance metadata and the page.
pub const EMULATOR: &str = "10.213.0.1:8181";
/// Where it serves with TLS: the resource manager.
pub const EMULATOR_TLS: &str = "10.213.0.1:8443";
/// The ConfigMap with the emulator's certificate authority.
pub const AUTHORITY: &str = "emulator-authority";

/// What a pod of the image [`SHELL`] runs: its arguments, or nothing until it is told to stop.
const RUN_OR_REST: &str = r#"[ $# -eq 0 ] || exec "$@"; exec /node idle"#;

/// The Secret and the ConfigMap with the certificate of the key broker and its authority.
const KEY_BROKER: &str = "lazuli-key-broker";

/// The Secret with the certificate of the webhooks.
const WEBHOOK_SECRET: &str = "lazuli-webhook";

/// The objects of the plain manifests, which are what the chart renders.
pub fn objects() -> Vec<Value> {
    read("deploy/manifests/lazuli.yaml")
}

/// The objects of the plain manifests with what takes snapshots.
pub fn objects_with_snapshots() -> Vec<Value> {
    read("deploy/manifests/lazuli-with-snapshots.yaml")
}

/// The objects of the plain manifests as `controller.blobDisks: always` makes them.
pub fn objects_with_blobs() -> Vec<Value> {
    let mut objects = objects();
    let arguments = objects.iter_mut().filter_map(|object| container(of_deployment(object)?, "lazuli"));
    for argument in arguments.filter_map(|lazuli| lazuli["args"].as_array_mut()).flatten() {
        if *argument == "--blob-disks=auto" {
            *argument = json!("--blob-disks=always");
        }
    }
    objects
}

fn of_deployment(object: &mut Value) -> Option<&mut Value> {
    (object["kind"] == "Deployment").then(|| &mut object["spec"]["template"]["spec"])
}

/// The objects of the plain manifests with both drivers, with the certificate of the key broker.
pub fn objects_with_files() -> Vec<Value> {
    let [authority, certificate, key] = certificates::for_name(&format!("{KEY_BROKER}.kube-system.svc"));
    let metadata = json!({"name": KEY_BROKER, "namespace": "kube-system"});
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key},
    });
    let authority =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": authority}});
    [secret, authority].into_iter().chain(read("deploy/manifests/lazuli-with-files.yaml")).collect()
}

/// The objects of the chart with the cloud controllers and the webhooks.
pub fn objects_with_cloud_controllers() -> Vec<Value> {
    read("tests/chart/cloud-controllers.yaml")
}

/// The objects of the classes of volumes that a cluster has, with the paths of their collections.
pub(crate) fn classes() -> Vec<Value> {
    serde_json::from_str(include_str!("objects.json")).unwrap()
}

fn read(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(file)).unwrap();
    text.split("\n---\n")
        .map(|document| document.trim_start_matches("---\n"))
        .filter(|document| document.lines().any(|line| !line.starts_with('#')))
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

/// All that differs from the chart: where Azure and the machines' devices are, how often the attacher compares, and the
/// certificate of the webhooks.
pub fn with_overlay(mut objects: Vec<Value>, folder: &Path) -> Vec<Value> {
    if objects.iter().any(|object| object["webhooks"].is_array()) {
        objects = with_certificate(objects);
    }
    for object in &mut objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let pod = &mut object["spec"]["template"]["spec"];
        match kind.as_str() {
            "Deployment" => {
                // As the value certificateAuthorities of the chart does it.
                let volume = json!({"name": "authorities", "configMap": {"name": AUTHORITY}});
                push(&mut pod["volumes"], volume);
                for of_azure in pod["containers"].as_array_mut().unwrap() {
                    if ["lazuli", "cloud-controllers"].contains(&of_azure["name"].as_str().unwrap()) {
                        push(&mut of_azure["env"], json!({"name": "SSL_CERT_FILE", "value": "/etc/lazuli/ca/ca.pem"}));
                        let mount = json!({"name": "authorities", "mountPath": "/etc/lazuli/ca"});
                        push(&mut of_azure["volumeMounts"], mount);
                    }
                }
                // The default is a minute.
                if let Some(attacher) = container(pod, "csi-attacher") {
                    push(&mut attacher["args"], json!("--reconcile-sync=5s"));
                }
            }
            "DaemonSet" => {
                let machines = json!({"path": folder.join("azure/vms"), "type": "Directory"});
                push(&mut pod["volumes"], json!({"name": "machines", "hostPath": machines}));
                let lazuli = container(pod, "lazuli").expect("the driver");
                push(&mut lazuli["volumeMounts"], json!({"name": "machines", "mountPath": "/machines"}));
                push(&mut lazuli["env"], json!({"name": "LAZULI_HOST_ROOT", "value": "/machines/$(NODE_NAME)"}));
                let metadata = format!("http://{EMULATOR}/_imds/$(NODE_NAME)");
                push(&mut lazuli["env"], json!({"name": "LAZULI_IMDS_URL", "value": metadata}));
            }
            _ => {}
        }
    }
    objects
}

/// The webhooks' certificate, for the name of their Service: the Secret that the chart names, and the authority in what
/// the chart registers.
fn with_certificate(mut objects: Vec<Value>) -> Vec<Value> {
    let [authority, certificate, key] = certificates::for_name("lazuli-webhook.kube-system.svc");
    for webhook in objects.iter_mut().filter_map(|object| object["webhooks"].as_array_mut()).flatten() {
        webhook["clientConfig"]["caBundle"] = json!(STANDARD.encode(&authority));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": WEBHOOK_SECRET, "namespace": "kube-system"},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": certificate, "tls.key": key},
    });
    objects.insert(0, secret);
    objects
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(item),
        None => *list = json!([item]),
    }
}

fn container<'a>(pod: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    pod["containers"].as_array_mut().unwrap().iter_mut().find(|container| container["name"] == name)
}

/// What is in the images that the chart names, `lazuli` and the sidecars beside Kubernetes, and in those of a person's own
/// pods. The libraries and tools of this machine stand for those of the images.
pub fn images(lazuli: &Path, tools: &Path) -> Value {
    let mut images = Map::new();
    let image = |program: &Path, arguments: &[&str]| {
        // The name shows in the User-Agent.
        let entry = format!("/{}", program.file_name().unwrap().to_string_lossy());
        let mut files = json!({entry.as_str(): program});
        for path in ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/mke2fs.conf", "/etc/ssl"] {
            if Path::new(path).exists() {
                files[path] = json!(path);
            }
        }
        let entrypoint = [&[entry.as_str()], arguments].concat();
        json!({"entrypoint": entrypoint, "files": files})
    };
    for object in objects_with_snapshots() {
        for container in object["spec"]["template"]["spec"]["containers"].as_array().into_iter().flatten() {
            let name = container["image"].as_str().unwrap();
            let repository = name.rsplit('/').next().unwrap().split(':').next().unwrap();
            let program = match repository {
                "lazuli-controller" | "lazuli-node" => lazuli.to_owned(),
                sidecar => tools.join(sidecar),
            };
            images.insert(name.to_owned(), image(&program, &[]));
        }
    }
    let mut idle = image(&tools.join("node"), &["idle"]);
    images.insert(IDLE.to_owned(), idle.clone());
    idle["entrypoint"] = json!(["/bin/sh", "-c", RUN_OR_REST, "sh"]);
    images.insert(SHELL.to_owned(), idle);
    Value::Object(images)
}

/// The cloud configuration that the emulator wrote, with its resource manager over TLS: a pod reaches it through a
/// network, and credentials go over no network in the clear.
///
/// `keys` come in addition.
pub fn cloud_config(folder: &Path, keys: Value) -> String {
    let mut config: Value = serde_json::from_str(&fs::read_to_string(folder.join("azure.json")).unwrap()).unwrap();
    config["resourceManagerEndpoint"] = json!(format!("https://{EMULATOR_TLS}"));
    config.as_object_mut().unwrap().extend(keys.as_object().cloned().unwrap_or_default());
    config.to_string()
}
