//! `lazuli cloud-controllers` against an Azure and an API server.

use lazuli_emulator::latency::Profile;
use lazuli_rig::cluster::Cluster;
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};

use super::*;

struct World(Cluster);

impl World {
    async fn start() -> Self {
        let mut options = lazuli_emulator::Options { latency: Profile::typical(), ..Default::default() };
        // A group that Services may name.
        let first = options.scenario.resource_groups[0].clone();
        let elsewhere = lazuli_emulator::scenario::ResourceGroup { name: "elsewhere".to_owned(), ..first };
        options.scenario.resource_groups.push(elsewhere);
        let keys =
            [("loadBalancerSku", "standard".into()), ("loadBalancerBackendPoolConfigurationType", "nodeIP".into())];
        Self(Cluster::start(options, &keys).await.unwrap())
    }

    fn process(&self, more: &[&str]) -> (CancellationToken, JoinHandle<Outcome>) {
        let mut arguments = vec!["--controllers=service-lb".to_owned()];
        arguments.extend(self.0.arguments());
        arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
        let stop = CancellationToken::new();
        (stop.clone(), tokio::spawn(Box::pin(run_with(arguments, stop))))
    }

    fn service(&self, name: &str, class: Option<&str>) {
        self.0.service(name, Value::Null, json!(class)).unwrap();
    }

    /// Waits for this, in the time of the paused clock.
    async fn until(&self, what: &str, is: impl Fn(&Cluster) -> bool) {
        let began = Instant::now();
        while !is(&self.0) {
            assert!(began.elapsed() < Duration::from_secs(300), "{what}: {:#?}", self.0.writes());
            sleep(Duration::from_millis(100)).await;
        }
    }
}

#[test]
fn a_lease_is_named_as_kubernetes_takes_it() {
    for name in ["cloud-controller-manager", "a", "a.b-1"] {
        assert_eq!(object_name(name), Ok(name.to_owned()));
    }
    for name in ["", "Not Valid!", "-a", "a-", "a..b", "A", &"a".repeat(254)] {
        assert!(object_name(name).is_err(), "{name}");
    }
}

#[test]
fn a_class_is_named_as_kubernetes_takes_it() {
    for name in ["internal", "Internal_2", "example.com/internal"] {
        assert_eq!(class(name), Ok(name.to_owned()));
    }
    for name in ["", "x y", "example.com/", "/internal"] {
        assert!(class(name).unwrap_err().contains("such as example.com/internal"), "{name}");
    }
}

#[test]
fn a_zone_or_resource_group_that_azure_cannot_have_is_refused_with_what_is_allowed() {
    let parse = |flag: &str| CommandLine::try_parse_from(["cloud-controllers", flag]);
    assert_eq!(parse("--zones=1, 2,3").unwrap().options.zones, ["1", "2", "3"]);
    let groups = parse("--allowed-service-resource-groups=Net, b_(x).y-z").unwrap().options;
    assert_eq!(groups.allowed_service_resource_groups, ["Net", "b_(x).y-z"]);
    for (flag, item, allowed) in [
        ("--zones=1,x", "'x'", "allowed: the numbers of zones"),
        ("--zones=1,,2", "''", "allowed: the numbers of zones"),
        ("--zones=0", "'0'", "allowed: the numbers of zones"),
        ("--zones=+1", "'+1'", "allowed: the numbers of zones"),
        ("--zones=westeurope-1", "'westeurope-1'", "allowed: the numbers of zones"),
        ("--allowed-service-resource-groups=a,sub/group/x", "'sub/group/x'", "without their subscription"),
        ("--allowed-service-resource-groups=sub/group", "'sub/group'", "without their subscription"),
        ("--allowed-service-resource-groups=*", "'*'", "without their subscription"),
    ] {
        let refused = parse(flag).err().unwrap_or_else(|| panic!("{flag} passes")).to_string();
        let name = flag.split('=').next().unwrap();
        assert!(refused.contains(item) && refused.contains(name) && refused.contains(allowed), "{flag}: {refused}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_without_an_api_server_ends_and_so_does_one_that_is_stopped() {
    let world = World::start().await;
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    world.0.write("kubeconfig", &kubeconfig).unwrap();
    let (_, running) = world.process(&["--dry-run"]);
    let error = running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no plan could be made within 120 s"), "{error}");
    let (stop, running) = world.process(&["--dry-run"]);
    sleep(Duration::from_secs(5)).await;
    stop.cancel();
    let error = running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("stopped before its plan was made"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_that_the_api_server_refuses_the_services_says_so_at_once() {
    let world = World::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403,
        "message": "services is forbidden: User \"u\" cannot list resource \"services\""});
    let refuse = move || async move { (http::StatusCode::FORBIDDEN, axum::Json(status)) };
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(refuse)).await });
    let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}]});
    world.0.write("kubeconfig", &kubeconfig).unwrap();
    let began = Instant::now();
    let (_, running) = world.process(&["--dry-run"]);
    let error = running.await.unwrap().unwrap_err().to_string();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert!(error.contains("refuses the list of services (the role needs list and watch on services)"), "{error}");
    assert!(error.contains("cannot list resource"), "{error}");
    world.0.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_its_address_and_the_next_process_takes_over_without_a_write() {
    let world = World::start().await;
    world.service("web", None);
    world.service("canary", Some("lazuli"));
    let (stop, running) = world.process(&[]);
    world.until("web has an address", |cluster| cluster.addresses("web") == 1).await;
    let first = world.0.holder().expect("the process leads");

    // Another one waits meanwhile, and does nothing.
    let (stop_second, second) = world.process(&[]);
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.0.holder(), Some(first.clone()));
    let (writes, services) = (world.0.writes(), world.0.server.list("services"));
    let stopped = Instant::now();
    stop.cancel();
    running.await.unwrap().unwrap();
    let other_leads = |cluster: &Cluster| cluster.holder().is_some_and(|holder| holder != first);
    world.until("the second process leads", other_leads).await;
    // It need not wait until the lease expires.
    assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.0.writes(), writes);
    assert_eq!(world.0.server.list("services"), services);
    assert_eq!(world.0.addresses("canary"), 0, "a Service of another class");

    world.service("other", None);
    world.until("other has an address", |cluster| cluster.addresses("other") == 1).await;
    stop_second.cancel();
    second.await.unwrap().unwrap();
    assert_eq!(world.0.holder(), None);
    // What owners of Services were told is in the cluster.
    let told = world.0.server.list("events");
    let ensured = |event: &&Value| event["reason"] == "EnsuredLoadBalancer" && event["regarding"]["name"] == "web";
    assert_eq!(told.iter().filter(ensured).count(), 1, "{told:#?}");
    world.0.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_loses_its_lease_ends_with_an_error_that_names_it() {
    let world = World::start().await;
    let (_stop, running) = world.process(&[]);
    world.until("the process leads", |cluster| cluster.holder().is_some()).await;
    world.0.take_lease("another").unwrap();
    let error = running.await.unwrap().unwrap_err().to_string();
    let taken = "the Lease kube-system/cloud-controller-manager is lost: another process took it";
    assert!(error.starts_with(taken), "{error}");
    assert_eq!(world.0.holder().as_deref(), Some("another"), "the Lease of another replica is not touched");
    world.0.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_class_is_claimed_beside_the_manager_that_serves_the_others() {
    let world = World::start().await;
    world.service("web", None);
    world.service("canary", Some("lazuli"));
    let (stop, running) = world.process(&["--load-balancer-class=lazuli", "--lease-name=canary"]);
    world.until("canary has an address", |cluster| cluster.addresses("canary") == 1).await;
    assert_eq!((world.0.addresses("web"), world.0.holder()), (0, None));
    stop.cancel();
    running.await.unwrap().unwrap();
    world.0.azure.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_ends_by_itself_and_takes_no_lease() {
    let world = World::start().await;
    world.service("web", None);
    let writes = world.0.writes();
    let (_stop, running) = world.process(&["--dry-run"]);
    running.await.unwrap().unwrap();
    assert_eq!((world.0.writes(), world.0.holder()), (writes, None));
    world.0.azure.shutdown().await;
}

/// Another manager may need the Lease.
#[tokio::test(start_paused = true)]
async fn a_process_without_a_controller_takes_no_lease_and_runs_until_it_is_told_to_stop() {
    let world = World::start().await;
    world.service("web", None);
    let mut config = world.0.config().unwrap();
    config["disableCloudProvider"] = true.into();
    world.0.write("azure.json", &config).unwrap();
    let (stop, running) = world.process(&[]);
    sleep(Duration::from_secs(600)).await;
    assert!(!running.is_finished());
    assert_eq!((world.0.holder(), world.0.addresses("web")), (None, 0));
    stop.cancel();
    running.await.unwrap().unwrap();
    let (_stop, dry_run) = world.process(&["--dry-run"]);
    dry_run.await.unwrap().unwrap();
    world.0.azure.shutdown().await;
}

#[test]
fn a_plan_is_printed_object_by_object() {
    let one = |object: &str, replaces| Planned {
        object: object.to_owned(),
        changes: vec!["remove rule x".to_owned(), "add backend pool y".to_owned()],
        replaces,
        ..Planned::default()
    };
    let expected = "\
load balancer kubernetes (removes, replaces or opens):
  remove rule x
  add backend pool y
public IP ip:
  remove rule x
  add backend pool y
";
    let planned = [one("load balancer kubernetes", true), one("public IP ip", false)];
    assert_eq!(plan(&planned, None), expected);
    let text = plan(&planned, Some("0123456789abcdef"));
    assert!(text.starts_with(expected) && text.contains("--accept-plan=0123456789abcdef"), "{text}");
    assert_eq!(plan(&[], None), "nothing would be written\n");
    let warned = Planned { object: "Service a/b".into(), warnings: vec!["unknown".into()], ..Planned::default() };
    assert_eq!(plan(&[warned], None), "Service a/b:\n  warning: unknown\nnothing would be written\n");
}

#[test]
fn a_plan_is_accepted_by_its_hash_and_a_plain_flag_says_how() {
    let parse = |flag: &str| CommandLine::try_parse_from(["cloud-controllers", flag]);
    assert!(parse("--accept-plan=0123456789abcdef").is_ok());
    // As of a variable that is set and empty.
    assert_eq!(parse("--accept-plan=").unwrap().options.accept_plan.filter(|hash| !hash.is_empty()), None);
    let error = CommandLine::try_parse_from(["cloud-controllers", "--accept-plan", "0123456789abcdef"]).unwrap_err();
    assert!(error.to_string().contains("expected --accept-plan=HASH"), "{error}");
    for wrong in ["--accept-plan", "--accept-plan=true", "--accept-plan=0123456789ABCDEF"] {
        let error = parse(wrong).unwrap_err().to_string();
        assert!(error.contains("--dry-run"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_configuration_without_what_services_need_ends_the_start() {
    let world = World::start().await;
    let mut config = world.0.config().unwrap();
    config.as_object_mut().unwrap().remove("securityGroupName");
    world.0.write("azure.json", &config).unwrap();
    let (_stop, running) = world.process(&[]);
    let error = running.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("securityGroupName"), "{error}");
    let options = CommandLine::try_parse_from(["cloud-controllers", "--cluster-name="]);
    assert!(options.is_err(), "a cluster without a name");
    world.0.azure.shutdown().await;
}

/// The events about a Service, as reason and note.
fn events(world: &World, namespace: &str, name: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = world.0.server.list("events");
    let about = all.iter().filter(|event| {
        let object = &event["regarding"];
        (object["kind"].as_str(), object["namespace"].as_str(), object["name"].as_str())
            == (Some("Service"), Some(namespace), Some(name))
    });
    about.map(|event| (text(&event["reason"]), text(&event["note"]))).collect()
}

fn annotated(name: &str, namespace: &str, annotations: &[(&str, &str)]) -> Value {
    let all: serde_json::Map<String, Value> =
        annotations.iter().map(|(key, value)| (format!("service.beta.kubernetes.io/{key}"), json!(value))).collect();
    json!({"metadata": {"name": name, "namespace": namespace, "annotations": all},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]}})
}

fn config() -> lazuli_config::Config {
    let keys = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l",
        "useManagedIdentityExtension": true, "routeTableName": "rt"});
    let document = lazuli_config::Document::parse("azure.json", keys.to_string().as_bytes()).unwrap();
    let none = std::collections::BTreeMap::new();
    lazuli_config::Config::from_documents(Some(&document), None, &lazuli_config::Environment::new(&none)).unwrap()
}

#[test]
fn what_the_arguments_say_of_services_is_what_the_planners_know() {
    let read = |arguments: &[&str]| {
        let arguments = ["cloud-controllers"].iter().chain(arguments);
        let options = CommandLine::try_parse_from(arguments).unwrap().options;
        let mut settings = settings::without_services(&config(), "kubernetes");
        settings.share_addresses = AddressSharing::Namespace;
        options.restrict(&mut settings);
        (options.external(), settings.share_addresses, settings.allowed_groups)
    };
    assert_eq!(read(&[]), (ClusterAddresses::default(), AddressSharing::Any, None));
    let all = [
        "--allowed-external-addresses=20.1.0.0/16,2603:1030::/32",
        "--cluster-cidr=10.244.0.0/16,fd00::/48",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--share-addresses=namespace",
        "--allowed-service-resource-groups=Net,ips",
    ];
    let range = |text: &str| text.parse().unwrap();
    let external = ClusterAddresses {
        allowed: ["20.1.0.0/16", "2603:1030::/32"].map(range).to_vec(),
        pods: ["10.244.0.0/16", "fd00::/48"].map(range).to_vec(),
        services: vec![range("10.96.0.0/16")],
        ..ClusterAddresses::default()
    };
    let groups: BTreeSet<String> = ["ips", "net"].map(str::to_owned).into();
    assert_eq!(read(&all), (external, AddressSharing::Namespace, Some(groups)));
}

#[tokio::test(start_paused = true)]
async fn what_the_arguments_refuse_of_services_is_refused_by_the_running_process() {
    let world = World::start().await;
    world.service("web", None);
    let (stop, running) = world.process(&[
        "--allowed-external-addresses=20.1.0.0/16",
        "--service-cluster-ip-range=20.1.2.0/24",
        "--cluster-cidr=20.1.3.0/24",
        "--share-addresses=namespace",
        "--allowed-service-resource-groups=allowed",
    ]);
    world.until("web has an address", |cluster| cluster.addresses("web") == 1).await;
    let web = world.0.server.get("services", "default", "web").unwrap();
    let address = web["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap().to_owned();
    let in_group = [("azure-load-balancer-resource-group", "elsewhere"), ("azure-pip-name", "theirs")];
    for (name, annotations, reason, why) in [
        (
            "outside",
            &[("azure-additional-public-ips", "20.2.0.1")][..],
            "InvalidService",
            "in no range of --allowed-external",
        ),
        (
            "of-services",
            &[("azure-additional-public-ips", "20.1.2.1")],
            "InvalidService",
            "is in the range of Services",
        ),
        ("of-pods", &[("azure-additional-public-ips", "20.1.3.1")], "InvalidService", "is in the range of Pods"),
        (
            "guest",
            &[("azure-load-balancer-ipv4", &address)],
            "ForeignOwner",
            "--share-addresses=namespace lets only Services of namespace default",
        ),
        ("in-group", &in_group, "ForeignOwner", "is none of --allowed-service-resource-groups"),
    ] {
        world.0.server.put("services", annotated(name, "friend", annotations)).unwrap();
        let began = Instant::now();
        let is_told = || events(&world, "friend", name).iter().any(|(is, note)| is == reason && note.contains(why));
        while !is_told() {
            assert!(began.elapsed() < Duration::from_secs(300), "{name}: {:#?}", events(&world, "friend", name));
            sleep(Duration::from_millis(100)).await;
        }
        let refused = world.0.server.get("services", "friend", name).unwrap();
        assert!(refused["status"]["loadBalancer"]["ingress"].is_null(), "{name}: {refused}");
    }
    world
        .0
        .server
        .put("services", annotated("fine", "default", &[("azure-additional-public-ips", "20.1.0.1")]))
        .unwrap();
    world.until("fine has both addresses", |cluster| cluster.addresses("fine") == 2).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    world.0.azure.shutdown().await;
}

#[test]
fn a_dry_run_says_which_controllers_it_does_not_plan() {
    let config = config();
    let said = |arguments: &[&str]| {
        let arguments = ["cloud-controllers"].iter().chain(arguments);
        let nodes = CommandLine::try_parse_from(arguments).unwrap().options.nodes.options(&config).unwrap();
        not_planned(nodes.as_ref())
    };
    let nodes = "not planned: what cloud-node would change (addresses, labels and taints of new Nodes)\n\
                 not planned: what cloud-node-lifecycle would change (Nodes whose machines are stopped or gone)\n";
    assert_eq!(said(&[]), nodes);
    let routes = format!("{nodes}not planned: what node-route would change (the routes of rt)\n");
    assert_eq!(said(&["--cluster-cidr=10.244.0.0/16"]), routes);
    assert_eq!(said(&["--controllers=service-lb"]), "");
}

#[test]
fn a_plan_is_said_to_be_empty_only_where_services_were_looked_at() {
    let planned = vec![];
    assert_eq!(of_services(Looked::AtServices, &planned, None), "nothing would be written\n");
    for looked in [Looked::NotByControllers, Looked::NotByConfiguration] {
        let said = of_services(looked, &planned, None);
        assert!(said.starts_with("not looked at: Services") && !said.contains("nothing would be written"), "{said}");
    }
}

#[test]
fn a_number_that_is_none_is_refused_with_its_option_its_value_and_what_is_allowed() {
    for (flag, allowed) in [
        ("--resync-seconds=hourly", "a whole number from 0 to 86400"),
        ("--resync-seconds=86401", "a whole number from 0 to 86400"),
        ("--drain-seconds=-1", "a whole number from 0 to 86400"),
    ] {
        let (option, value) = flag.split_once('=').unwrap();
        let refused = CommandLine::try_parse_from(["cloud-controllers", flag]).err().unwrap().to_string();
        assert!([option, value, allowed].iter().all(|part| refused.contains(part)), "{refused}");
    }
}

#[test]
fn a_range_of_external_addresses_that_allows_nothing_is_named() {
    let said = |ranges: &str| {
        let flag = format!("--allowed-external-addresses={ranges}");
        CommandLine::try_parse_from(["cloud-controllers", &flag]).unwrap().options.without_effect()
    };
    assert_eq!(said("20.1.0.0/16,0.0.0.0/0"), Vec::<String>::new());
    let said = said("20.1.0.0/16,10.0.0.0/8,fd00::/8");
    assert_eq!(said.len(), 2, "{said:?}");
    let starts = [
        "--allowed-external-addresses=10.0.0.0/8 allows nothing: every address of it is private",
        "--allowed-external-addresses=fd00::/8 ",
    ];
    assert!(said.iter().zip(starts).all(|(one, start)| one.starts_with(start)), "{said:?}");
}
