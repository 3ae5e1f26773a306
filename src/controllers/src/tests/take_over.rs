//! The first leadership after another controller, and the plan without a write.

use super::*;

impl Rig {
    /// The front-end ports of all load-balancing rules.
    async fn ports(&self) -> Vec<u64> {
        let balancers = self.list(NetworkType::LoadBalancer).await;
        let rules = balancers.iter().flat_map(|one| one["properties"]["loadBalancingRules"].as_array().cloned());
        rules.flatten().filter_map(|rule| rule["properties"]["frontendPort"].as_u64()).collect()
    }

    /// How many rules there are for port 80.
    async fn eighties(&self) -> usize {
        self.ports().await.into_iter().filter(|port| *port == 80).count()
    }

    fn set_port(&self, name: &str, port: u16) {
        let mut service = self.server.get("services", "default", name).unwrap();
        service["spec"]["ports"] = json!([{"port": port}]);
        self.server.put("services", service).unwrap();
    }

    /// The Lease is as it was before this program led for the first time.
    fn forget_take_over(&self) {
        let mut lease = self.server.get("leases", "kube-system", "cloud-controller-manager").unwrap();
        lease["metadata"]["annotations"] = json!({});
        self.server.put("leases", lease).unwrap();
    }

    async fn stop(&self, (stop, running): (CancellationToken, JoinHandle<Ended>)) {
        stop.cancel();
        assert_eq!(running.await.unwrap(), Ended::Stopped);
    }
}

#[tokio::test(start_paused = true)]
async fn a_take_over_that_would_remove_something_waits_for_the_operator() {
    let rig = Rig::start().await;
    rig.service("web");
    let first = rig.controller("first");
    rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;

    // Another controller is said to have made it, and to have missed this change.
    rig.forget_take_over();
    rig.set_port("web", 81);
    let second = rig.controller("second");
    rig.until("the owner is told", async || rig.events("web").iter().any(|(reason, _)| reason == "PlanHeld")).await;
    sleep(Duration::from_secs(300)).await;
    let ports = rig.ports().await;
    assert!(ports.contains(&80), "{ports:?}");
    // What replaces nothing is made meanwhile.
    rig.service("other");
    rig.addresses("other").await;
    rig.stop(second).await;

    // The hash of another plan accepts nothing.
    let stop = CancellationToken::new();
    let wrong = rig.replica("wrong", Some("0123456789abcdef".to_owned()), &stop);
    let wrong = (stop.clone(), tokio::spawn(wrong.run(stop)));
    sleep(Duration::from_secs(300)).await;
    let ports = rig.ports().await;
    assert!(ports.contains(&80), "{ports:?}");
    rig.stop(wrong).await;

    let stop = CancellationToken::new();
    let (planned, hash) = rig.replica("dry", None, &stop).dry_run().await.unwrap();
    assert!(hash.is_some(), "{planned:?}");
    let third = rig.replica("third", hash, &stop);
    let third = (stop.clone(), tokio::spawn(third.run(stop)));
    rig.until("the plan is carried out", async || rig.eighties().await == 1).await;
    rig.stop(third).await;

    // From then on nothing waits any more.
    rig.set_port("web", 82);
    let fourth = rig.controller("fourth");
    rig.until("the next change is made", async || {
        let ports = rig.ports().await;
        ports.contains(&82) && !ports.contains(&81)
    })
    .await;
    rig.stop(fourth).await;
}

#[tokio::test(start_paused = true)]
async fn a_take_over_that_would_admit_more_waits_for_the_operator() {
    let rig = Rig::start().await;
    let ranges = |ranges: &[&str]| {
        let mut service = rig.server.get("services", "default", "web").unwrap();
        service["spec"]["loadBalancerSourceRanges"] = json!(ranges);
        rig.server.put("services", service).unwrap();
    };
    rig.service("web");
    ranges(&["203.0.113.0/24"]);
    let first = rig.controller("first");
    rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;
    let admitted = async || {
        let groups = rig.list(NetworkType::SecurityGroup).await;
        let rules = groups[0]["properties"]["securityRules"].as_array().cloned().unwrap();
        let allowed = rules.iter().filter(|rule| rule["properties"]["access"] == "Allow");
        let sources = allowed.flat_map(|rule| {
            let (one, many) =
                (&rule["properties"]["sourceAddressPrefix"], &rule["properties"]["sourceAddressPrefixes"]);
            [one].into_iter().chain(many.as_array().into_iter().flatten()).filter_map(Value::as_str).collect::<Vec<_>>()
        });
        sources.map(str::to_owned).collect::<std::collections::BTreeSet<_>>()
    };
    let narrow = || ["203.0.113.0/24".to_owned()].into();
    assert_eq!(admitted().await, narrow());

    // What the former controller denies, because it reads the list otherwise or had no time, the new one would let in.
    rig.forget_take_over();
    ranges(&["203.0.113.0/24", "198.51.100.0/24"]);
    let second = rig.controller("second");
    rig.until("the owner is told", async || rig.events("web").iter().any(|(reason, _)| reason == "PlanHeld")).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(admitted().await, narrow());
    rig.stop(second).await;
    let stop = CancellationToken::new();
    let (planned, hash) = rig.replica("dry", None, &stop).dry_run().await.unwrap();
    assert!(hash.is_some(), "{planned:?}");
    let third = rig.replica("third", hash, &stop);
    let third = (stop.clone(), tokio::spawn(third.run(stop)));
    rig.until("the plan is carried out", async || admitted().await.len() == 2).await;
    rig.stop(third).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_would_be_written_and_writes_nothing() {
    let rig = Rig::start().await;
    rig.service("web");
    let first = rig.controller("first");
    rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;
    let (writes, service) = (rig.writes(), rig.server.get("services", "default", "web"));
    let dry = async || {
        let stop = CancellationToken::new();
        let planned = rig.replica("dry", None, &stop).dry_run().await.unwrap().0;
        planned.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(dry().await, "");
    rig.service("other");
    let text = dry().await;
    assert!(text.contains("public IP kubernetes-a"), "{text}");
    assert!(text.contains("create it, IPv4") && text.contains("Service default/other:"), "{text}");
    assert!(!text.contains("removes, replaces or opens") && !text.contains("default/web"), "{text}");
    rig.server.delete("services", "default", "web").unwrap();
    let text = dry().await;
    assert!(text.contains("public IP kubernetes-a") && text.contains("delete it"), "{text}");
    assert_eq!(rig.writes(), writes);
    let before = service.unwrap();
    let after = rig.server.get("services", "default", "web").unwrap();
    assert_eq!(
        (&before["status"], &before["metadata"]["finalizers"]),
        (&after["status"], &after["metadata"]["finalizers"])
    );
    assert!(rig.server.list("events").iter().all(|event| event["regarding"]["name"] != "other"));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_names_an_absent_group_or_public_ip_does_not_hide_the_plan_of_the_others() {
    let rig = Rig::start().await;
    rig.service("good");
    rig.annotated("lost", &[("azure-load-balancer-resource-group", "nosuchgroup")]);
    rig.annotated("named", &[("azure-pip-name", "no-such-ip")]);
    let stop = CancellationToken::new();
    let planned = rig.replica("dry", None, &stop).dry_run().await.unwrap().0;
    let text = planned.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(text.contains("Service default/good:"), "{text}");
    assert!(text.contains("set the status to an address that Azure chooses"), "{text}");
    assert!(!text.contains("192.0.2."), "{text}");
    let refused = "not served: public IP no-such-ip does not exist in resource group";
    assert!(text.contains("Service default/named:") && text.contains(refused), "{text}");
}

/// Two clusters share a resource group and a security group, and each has a Service of one name.
#[tokio::test(start_paused = true)]
async fn the_service_of_the_same_name_in_another_cluster_keeps_its_address_and_rule() {
    let mut rig = Rig::with(Settings { cluster_name: "another".to_owned(), ..settings() }).await;
    rig.service("web");
    let first = rig.controller("first");
    let theirs = rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;
    // The destinations of all rules: rules of the same ports and sources are one rule.
    let admitted = async |rig: &Rig| {
        let group = rig.list(NetworkType::SecurityGroup).await.remove(0);
        let mut all: Vec<String> = Vec::new();
        for rule in group["properties"]["securityRules"].as_array().unwrap() {
            let (one, many) =
                (&rule["properties"]["destinationAddressPrefix"], &rule["properties"]["destinationAddressPrefixes"]);
            let listed = many.as_array().into_iter().flatten().chain([one]);
            all.extend(listed.filter_map(|address| Some(address.as_str()?.to_owned())));
        }
        all.sort();
        all
    };
    assert_eq!(admitted(&rig).await, theirs);

    let nodes = rig.server.list("nodes");
    rig.server = ApiServer::start(ApiServerOptions { seed: 2, ..ApiServerOptions::default() });
    for node in nodes {
        let (name, spec, status) = (&node["metadata"]["name"], &node["spec"], &node["status"]);
        rig.server.put("nodes", json!({"metadata": {"name": name}, "spec": spec, "status": status})).unwrap();
    }
    rig.settings = settings();
    rig.service("web");
    let second = rig.controller("second");
    let ours = rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    let mut both = [theirs.clone(), ours.clone()].concat();
    both.sort();
    assert_eq!(admitted(&rig).await, both);
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_ne!(ours, theirs);
    assert_eq!(admitted(&rig).await, theirs);
    let left = rig.list(NetworkType::PublicIp).await;
    let left: Vec<&Value> = left.iter().map(|ip| &ip["properties"]["ipAddress"]).collect();
    assert_eq!(left, [&json!(theirs[0])]);
    rig.stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_after_the_take_over_goes_ahead_while_another_waits() {
    let rig = Rig::start().await;
    for name in ["web", "shop"] {
        rig.service(name);
    }
    let first = rig.controller("first");
    for name in ["web", "shop"] {
        rig.addresses(name).await;
    }
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;

    rig.forget_take_over();
    rig.set_port("web", 81);
    let second = rig.controller("second");
    rig.until("the owner is told", async || rig.events("web").iter().any(|(reason, _)| reason == "PlanHeld")).await;
    // A new Service is served, and what the owner of another one changes now is made.
    rig.service("other");
    rig.addresses("other").await;
    rig.set_port("shop", 82);
    rig.until("shop is changed", async || rig.ports().await.contains(&82) && rig.eighties().await == 2).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.eighties().await, 2, "web and other: {:?}", rig.ports().await);
    assert!(rig.events("shop").iter().all(|(reason, _)| reason != "PlanHeld"), "{:?}", rig.events("shop"));
    // What the owner of web asks for now is no change that the former controller has missed.
    rig.set_port("web", 83);
    rig.until("web is changed", async || {
        let ports = rig.ports().await;
        ports.contains(&83) && !ports.contains(&81) && rig.eighties().await == 1
    })
    .await;
    rig.stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_met_a_service_before_it_moved_changes_its_side_by_no_typing_error() {
    let rig = Rig::start().await;
    rig.service("web");
    let first = rig.controller("first");
    rig.addresses("web").await;
    // This one has listed what Azure has, and waits for the Lease.
    let second = rig.controller("second");
    sleep(Duration::from_secs(60)).await;
    rig.annotated("web", &[("azure-load-balancer-internal", "true")]);
    rig.until("web has moved", async || rig.addresses("web").await[0].starts_with("10.")).await;
    sleep(Duration::from_secs(60)).await;
    let addresses = rig.addresses("web").await;
    rig.annotated("web", &[("azure-load-balancer-internal", "ture")]);
    sleep(Duration::from_secs(60)).await;
    let writes = rig.writes();
    rig.stop(first).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!((rig.addresses("web").await, rig.writes()), (addresses, writes));
    // The rest of the Service goes on.
    rig.set_port("web", 443);
    rig.until("the next leader serves the new port", async || rig.ports().await == [443]).await;
    assert!(rig.addresses("web").await[0].starts_with("10."));
    rig.stop(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_which_services_it_would_refuse_and_why() {
    let rig = Rig::start().await;
    rig.service("good");
    rig.annotated("wrong", &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
    rig.annotated("lost", &[("azure-load-balancer-ipv4", "20.9.9.9")]);
    rig.annotated("misspelt", &[("azure-load-balancer-interal", "true")]);
    let stop = CancellationToken::new();
    let planned = rig.replica("dry", None, &stop).dry_run().await.unwrap().0;
    let of =
        |name: &str| planned.iter().find(|one| one.object == format!("Service default/{name}")).unwrap().to_string();
    assert!(of("good").contains("set the status"));
    assert!(of("wrong").contains("not served: ") && of("wrong").contains("tcp-idle-timeout"), "{}", of("wrong"));
    assert!(of("lost").contains("not served: public IP 20.9.9.9 was not found"), "{}", of("lost"));
    let warning =
        "warning: unknown annotation service.beta.kubernetes.io/azure-load-balancer-interal; the nearest key is";
    assert!(of("misspelt").contains("set the status") && of("misspelt").contains(warning), "{}", of("misspelt"));
    assert!(planned.iter().all(|one| !one.replaces));
}

#[tokio::test(start_paused = true)]
async fn a_take_over_after_a_rollback_to_the_go_manager_waits_again() {
    let rig = Rig::start().await;
    rig.service("web");
    let first = rig.controller("first");
    rig.addresses("web").await;
    sleep(Duration::from_secs(60)).await;
    rig.stop(first).await;
    // Another replica of this program goes on without a question.
    let second = rig.controller("second");
    sleep(Duration::from_secs(60)).await;
    rig.stop(second).await;

    // The Go manager leads for a while. It leaves annotations as they are.
    let mut lease = rig.server.get("leases", "kube-system", "cloud-controller-manager").unwrap();
    assert!(lease["metadata"]["annotations"]["lazuli.azure/services-taken-over"].is_string(), "{lease}");
    lease["spec"]["leaseTransitions"] = json!(lease["spec"]["leaseTransitions"].as_i64().unwrap() + 1);
    lease["spec"]["holderIdentity"] = json!("");
    rig.server.put("leases", lease).unwrap();
    rig.set_port("web", 81);
    let third = rig.controller("third");
    rig.until("the owner is told", async || rig.events("web").iter().any(|(reason, _)| reason == "PlanHeld")).await;
    sleep(Duration::from_secs(300)).await;
    assert_eq!(rig.eighties().await, 1, "{:?}", rig.ports().await);
    rig.stop(third).await;
}
