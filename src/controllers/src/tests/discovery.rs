//! Services that a process meets first as deleting: what they own is found before they are said to be gone.

use lazuli_emulator::incident::{Effect, Incident, Match};

use super::*;

/// A cluster beside which there are two more resource groups.
async fn with_groups(settings: Settings) -> Rig {
    let mut scenario = Scenario::default();
    let first = scenario.resource_groups[0].clone();
    for name in ["addresses", "links"] {
        scenario.resource_groups.push(scenario::ResourceGroup { name: name.to_owned(), ..first.clone() });
    }
    Rig::of(settings, scenario).await
}

impl Rig {
    async fn names_in(&self, kind: NetworkType, group: &str) -> Vec<String> {
        let until = lazuli_azure::Until::within(Duration::from_secs(60));
        let all = self.network.list(kind, scenario::SUBSCRIPTION, group, &until).await.unwrap();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Serves a Service, ends the process, and has its owner remove these annotations and delete it.
    async fn deleted_meanwhile(&self, name: &str, annotations: &[(&str, &str)], removed: &[&str]) {
        self.annotated(name, annotations);
        let (stop, running) = self.controller("first");
        self.addresses(name).await;
        sleep(Duration::from_secs(60)).await;
        stop.cancel();
        running.await.unwrap();
        let kept: Vec<_> = annotations.iter().filter(|(key, _)| !removed.contains(key)).copied().collect();
        self.annotated(name, &kept);
        self.server.delete("services", "default", name).unwrap();
        assert!(self.server.get("services", "default", name).is_some(), "the finalizer keeps it");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_met_first_as_deleting_leaves_no_public_ip_in_the_group_that_it_names() {
    let rig = with_groups(settings()).await;
    rig.deleted_meanwhile("web", &[("azure-load-balancer-resource-group", "Addresses")], &[]).await;
    assert_eq!(rig.names_in(NetworkType::PublicIp, "addresses").await.len(), 1);
    let (stop, running) = rig.controller("second");
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.names_in(NetworkType::PublicIp, "addresses").await, Vec::<String>::new());
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_met_first_as_deleting_leaves_no_private_link_service_in_the_group_that_it_names() {
    let rig = with_groups(Settings { pool_kind: PoolKind::Nic, ..settings() }).await;
    let annotations = [
        ("azure-load-balancer-internal", "true"),
        ("azure-pls-create", "true"),
        ("azure-pls-name", "entry"),
        ("azure-pls-resource-group", "links"),
    ];
    // The name of the private link service is nowhere but in its tag.
    rig.deleted_meanwhile("web", &annotations, &["azure-pls-create", "azure-pls-name"]).await;
    assert_eq!(rig.names_in(NetworkType::PrivateLinkService, "links").await, ["entry"]);
    let (stop, running) = rig.controller("second");
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.names_in(NetworkType::PrivateLinkService, "links").await, Vec::<String>::new());
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_group_that_cannot_be_read_holds_up_only_the_service_that_names_it() {
    let rig = with_groups(settings()).await;
    rig.service("other");
    rig.deleted_meanwhile("web", &[("azure-load-balancer-resource-group", "addresses")], &[]).await;
    rig.server.delete("services", "default", "other").unwrap();
    rig.emulator.control().add_incident(closes("addresses")).unwrap();
    let (stop, running) = rig.controller("second");
    rig.until("other is gone", async || rig.server.get("services", "default", "other").is_none()).await;
    rig.until("the owner of web is told", async || rig.obstacle("web").is_some()).await;
    sleep(Duration::from_secs(300)).await;
    assert!(rig.server.get("services", "default", "web").is_some());

    rig.emulator.control().clear_incidents();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.names_in(NetworkType::PublicIp, "addresses").await, Vec::<String>::new());
    stop.cancel();
    running.await.unwrap();
}

/// The answer to reads of a resource group that the identity has no right on.
fn closes(group: &str) -> Incident {
    let matching =
        Match { method: Some("GET".to_owned()), path: Some(format!("*/resourceGroups/{group}/*")), ..Match::default() };
    let then = Effect { status: Some(403), code: Some("AuthorizationFailed".to_owned()), ..Effect::default() };
    Incident { matching, then, times: 0 }
}

#[tokio::test(start_paused = true)]
async fn a_resource_group_that_was_misspelt_once_holds_up_no_deletion() {
    let rig = with_groups(settings()).await;
    rig.annotated("web", &[("azure-load-balancer-resource-group", "adresses")]);
    let (stop, running) = rig.controller("one");
    rig.until("the owner is told", async || rig.obstacle("web").is_some()).await;
    sleep(Duration::from_secs(60)).await;
    rig.annotated("web", &[("azure-load-balancer-resource-group", "addresses")]);
    rig.addresses("web").await;
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.list("services").is_empty()).await;
    assert_eq!(rig.names_in(NetworkType::PublicIp, "addresses").await, Vec::<String>::new());
    assert_eq!(rig.list(NetworkType::LoadBalancer).await, Vec::<Value>::new());
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_address_that_no_service_has_any_more_holds_up_only_services_that_name_its_closed_group() {
    let preconfigured_pools = PreconfiguredPools::External;
    let rig = with_groups(Settings { preconfigured_pools, ..settings() }).await;
    rig.annotated("web", &[("azure-load-balancer-resource-group", "addresses")]);
    let (stop, running) = rig.controller("one");
    rig.addresses("web").await;
    rig.server.delete("services", "default", "web").unwrap();
    rig.until("web is gone", async || rig.server.get("services", "default", "web").is_none()).await;
    assert_eq!(rig.names_in(NetworkType::PublicIp, "addresses").await.len(), 1, "the last frontend stays");

    rig.emulator.control().add_incident(closes("addresses")).unwrap();
    // A process that has read nothing of the address yet.
    stop.cancel();
    running.await.unwrap();
    rig.service("other");
    let (stop, running) = rig.controller("two");
    rig.addresses("other").await;
    rig.server.delete("services", "default", "other").unwrap();
    rig.until("other is gone", async || rig.server.get("services", "default", "other").is_none()).await;

    rig.emulator.control().clear_incidents();
    rig.service("third");
    rig.addresses("third").await;
    let is_removed = async || rig.names_in(NetworkType::PublicIp, "addresses").await.is_empty();
    rig.until("the address of web is gone", is_removed).await;
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_hundreds_of_changed_annotations_nothing_is_remembered_but_what_services_name_now() {
    let rig = Rig::start().await;
    let stop = CancellationToken::new();
    let controller = rig.replica("one", None, &stop);
    let informed = controller.informed.clone();
    let running = tokio::spawn(controller.run(stop.clone()));
    rig.service("web");
    rig.service("honest");
    rig.addresses("web").await;
    rig.addresses("honest").await;
    sleep(Duration::from_secs(120)).await;
    let before = informed.remembered();
    for number in 0..200 {
        let name = format!("name-{number}");
        // A public IP to be made in a group that is not there, one to be found, and an address to be looked for.
        let own = match number % 3 {
            0 => ("azure-load-balancer-resource-group", &*name),
            1 => ("azure-pip-name", &*name),
            _ => ("azure-pls-name", &*name),
        };
        // A public Service gets a private link service where floating IP is off; a pool of addresses gets none.
        let link = [("azure-disable-load-balancer-floating-ip", "true"), ("azure-pls-create", "true")];
        let all: Vec<_> = link.into_iter().filter(|_| number % 3 == 2).chain([own]).collect();
        rig.annotated("web", &all);
        sleep(Duration::from_secs(6)).await;
        // Services come and go that are never served.
        rig.annotated(&name, &[("azure-load-balancer-tcp-idle-timeout", "soon")]);
        sleep(Duration::from_secs(1)).await;
        rig.server.delete("services", "default", &name).unwrap();
    }
    rig.annotated("web", &[]);
    sleep(Duration::from_secs(7_200)).await;
    let after = informed.remembered();
    for (what, size) in &after {
        // Of refusals so many are kept.
        let most = if *what == "refusals" { 512 } else { before[what] + 2 };
        assert!(*size <= most, "{what}: {size}, before {}: {after:?}", before[what]);
    }
    stop.cancel();
    running.await.unwrap();
}
