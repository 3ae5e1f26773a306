//! That the chart's containers run as their manifests say, how much memory each takes, and that they end in order.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    time::SystemTime,
};

use serde_json::{Value, json};

use super::{super::cloud::NODES, Cluster, PODS_OF_THE_CHART, chart, node::Container};

/// The container's arguments as the chart and the overlay give them, with the variables that its pod has.
fn expected_arguments(container: &Value, node: &str) -> Vec<String> {
    let arguments = container["args"].as_array().unwrap().iter().map(|argument| argument.as_str().unwrap());
    arguments.map(|text| text.replace("$(NODE_NAME)", node).replace("$(NAMESPACE)", "kube-system")).collect()
}

fn command_line(container: Container) -> Vec<String> {
    let line = fs::read(container.proc("cmdline")).unwrap();
    let words = line.strip_suffix(&[0]).unwrap().split(|byte| *byte == 0);
    words.map(|word| String::from_utf8(word.to_vec()).unwrap()).collect()
}

/// The options of what is mounted at a path of the container (source: proc_pid_mountinfo(5)).
fn mount_options(container: Container, path: &str) -> String {
    let table = fs::read_to_string(container.proc("mountinfo")).unwrap();
    let line = table.lines().rev().find(|line| line.split(' ').nth(4) == Some(path)).unwrap();
    line.split(' ').nth(5).unwrap().to_owned()
}

#[tokio::test]
async fn the_charts_containers_run_as_their_manifests_say_and_end_in_order() {
    let Some(mut cluster) = Cluster::start(&[]).await else { return };
    let objects = chart::with_overlay(chart::objects(), cluster.folder.path());
    let template = |kind: &str| {
        let object = objects.iter().find(|object| object["kind"] == kind).unwrap();
        object["spec"]["template"]["spec"].clone()
    };
    let own_capabilities = Container::of_this_process().status("CapBnd");
    let mut memory: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut all = Vec::new();
    for (component, kind) in [("controller", "Deployment"), ("node", "DaemonSet")] {
        let template = template(kind);
        for (pod, node) in cluster.pods_of(component).await {
            for declared in template["containers"].as_array().unwrap() {
                let name = declared["name"].as_str().unwrap();
                let container = cluster.container(&pod, node, name).unwrap();
                let say = format!("{component} {name}");
                assert_eq!(command_line(container)[1..], expected_arguments(declared, node), "{say}");

                // The container's own security context wins over that of the pod.
                let security = |key: &str| {
                    let own = &declared["securityContext"][key];
                    if own.is_null() { template["securityContext"][key].clone() } else { own.clone() }
                };
                let (user, group) = (security("runAsUser"), security("runAsGroup"));
                let four = |id: &Value| format!("{id} {id} {id} {id}");
                assert_eq!((container.status("Uid"), container.status("Gid")), (four(&user), four(&group)), "{say}");
                let none = "0000000000000000";
                let privileged = security("privileged") == true;
                assert_eq!(security("capabilities")["drop"] == json!(["ALL"]), !privileged, "{say}");
                let expected = if privileged { own_capabilities.as_str() } else { none };
                for set in ["CapBnd", "CapEff", "CapPrm"] {
                    assert_eq!(container.status(set), expected, "{say}: {set}");
                }
                let escalates = security("allowPrivilegeEscalation") != false;
                assert_eq!(container.status("NoNewPrivs"), if escalates { "0" } else { "1" }, "{say}");
                assert_eq!(security("readOnlyRootFilesystem"), true, "{say}");
                assert!(mount_options(container, "/").split(',').any(|option| option == "ro"), "{say}: its root");

                // Nothing of the node shows but what the pod mounts.
                assert!(!container.path("/etc/passwd").exists() && !container.path("/root").exists(), "{say}");
                assert_eq!(container.path("/dev/loop-control").exists(), privileged, "{say}");
                for mount in declared["volumeMounts"].as_array().unwrap() {
                    mount_options(container, mount["mountPath"].as_str().unwrap());
                }
                let token = container.path("/var/run/secrets/kubernetes.io/serviceaccount/token");
                let token = fs::metadata(token).unwrap();
                assert_eq!((json!(token.uid()), token.permissions().mode() & 0o777), (user, 0o600), "{say}: its token");

                let network = |of: Container| fs::read_link(of.proc("ns/net")).unwrap();
                let of_node = network(cluster.container(&cluster.node_plugin(node).await, node, "lazuli").unwrap());
                assert_eq!(network(container) == of_node, template["hostNetwork"] == true, "{say}: its network");
                let name = if component == "node" { "lazuli (node)" } else { name };
                let kib: u64 = container.status("VmRSS").strip_suffix(" kB").unwrap().parse().unwrap();
                memory.entry(name.to_owned()).or_default().push(kib);
                all.push((pod.clone(), node, declared["name"].as_str().unwrap().to_owned()));
            }
        }
    }
    for (name, kib) in memory {
        println!("resident memory of {name}: {} MiB", kib.into_iter().max().unwrap() / 1024);
    }

    for (kind, name) in [("deployments", "lazuli-controller"), ("daemonsets", "lazuli-node")] {
        cluster.kubernetes.delete(&format!("/apis/apps/v1/namespaces/kube-system/{kind}/{name}")).await;
    }
    cluster.count("the end of the chart's pods", PODS_OF_THE_CHART, 0).await;
    let mut ends: BTreeMap<String, BTreeMap<String, SystemTime>> = BTreeMap::new();
    for (pod, node, container) in all {
        let index = NODES.iter().position(|one| *one == node).unwrap();
        let ending = Container::ending(cluster.folder.path(), index, &pod, &container);
        let (code, at) = ending.unwrap_or_else(|| panic!("{container} of {pod} has not ended"));
        // A sidecar ends by the signal; a first process of a container then has code 2 (source: Go, os/signal).
        let expected = if container == "lazuli" { [0, 0] } else { [0, 2] };
        assert!(expected.contains(&code), "{container} of {pod} ended with {code}");
        ends.entry(pod).or_default().insert(container, at);
    }
    // preStop: the last calls of the sidecars arrive before the driver is told to stop.
    for (pod, ends) in ends {
        assert_eq!(ends.values().max(), ends.get("lazuli"), "{pod}: the driver ends last");
    }
    cluster.finish().await;
}

/// Pod security, by the API server's own judgement (source: Pod Security Standards).
#[tokio::test]
async fn the_controllers_pod_is_restricted_and_the_nodes_network_is_all_that_breaks_it() {
    let Some(cluster) = Cluster::start_empty(&[], "").await else { return };
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    let namespace = json!({"metadata": {"name": "strict", "labels": labels}});
    cluster.kubernetes.create("/api/v1/namespaces", namespace).await;
    let account = json!({"metadata": {"name": "lazuli-controller"}});
    cluster.kubernetes.create("/api/v1/namespaces/strict/serviceaccounts", account).await;

    let deployment = chart::objects().into_iter().find(|object| object["kind"] == "Deployment").unwrap();
    let spec = &deployment["spec"]["template"]["spec"];
    assert!(spec["hostNetwork"].is_null());
    let pods = "/api/v1/namespaces/strict/pods?dryRun=All";
    let pod = |spec: &Value| json!({"metadata": {"name": "controller"}, "spec": spec});
    assert_eq!(cluster.kubernetes.refusal_of_object(pods, pod(spec)).await, None);

    // As controller.hostNetwork of the chart does it.
    let mut on_the_node = spec.clone();
    on_the_node["hostNetwork"] = json!(true);
    on_the_node["dnsPolicy"] = json!("Default");
    let (code, message) = cluster.kubernetes.refusal_of_object(pods, pod(&on_the_node)).await.expect("is refused");
    assert_eq!(code, 403, "{message}");
    let containers = spec["containers"].as_array().unwrap();
    let names: Vec<String> = containers.iter().map(|container| container["name"].to_string()).collect();
    let of_container = |container: &Value| container["ports"].as_array().cloned().unwrap_or_default();
    let mut ports: Vec<u64> =
        containers.iter().flat_map(of_container).map(|port| port["containerPort"].as_u64().unwrap()).collect();
    ports.sort_unstable();
    let ports: Vec<String> = ports.iter().map(u64::to_string).collect();
    let violations = format!(
        "violates PodSecurity \"restricted:latest\": host namespaces (hostNetwork=true), hostPort (containers {} use hostPorts {})",
        names.join(", "),
        ports.join(", "),
    );
    assert!(message.ends_with(&violations), "{message}\nexpected\n{violations}");
    cluster.finish().await;
}
