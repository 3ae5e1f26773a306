//! `lazuli cloud-controllers`.

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
#[cfg(feature = "emulator")]
use clap::Parser;
use lazuli_assembly::clients::{self, CloudOptions};
use lazuli_balancing::preview::Planned;
use lazuli_cluster::{Ended, EventMetrics, LeaseName, Reporter, event_queue, write_events};
use lazuli_config::LooksAfter;
use lazuli_controllers::{Controller, NodeOptions, Options as ControllerOptions, settings};
use lazuli_diagnosis::controller_list::Controller as ControllerName;
use lazuli_engine::lease::Loss;
use lazuli_model::address::Cidr;
use lazuli_reconcile::metrics::Metrics;
use lazuli_services::{network::settings::AddressSharing, service::ClusterAddresses};
use lazuli_storage::list::VolumeHandles;
use lazuli_telemetry::{Readiness, register_process};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    Outcome,
    azure_ready::{self, TOLERANCE},
    csi_controller::{BUILD, host_name, seed},
    endpoints::EndpointOptions,
    go_arguments::{CloudControllerManager, GoArguments, boolean},
    node_controllers::NodeArguments,
    stop,
    webhook::WebhookOptions,
};

/// Options of the cloud controllers.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The name of the cluster: that of its load balancers, where the cloud configuration gives no other, and the one in
    /// the tags of its public IPs. It must be the name that the Azure cloud-controller-manager was given.
    #[arg(long, env = "LAZULI_CLUSTER_NAME", default_value = "kubernetes", value_parser = not_empty)]
    cluster_name: String,
    /// The Lease that the leading replica holds. Default: the Lease of the Azure cloud-controller-manager, so that only
    /// one of both acts.
    #[arg(long, alias = "leader-elect-resource-name", env = "LAZULI_LEASE_NAME", default_value = "cloud-controller-manager", value_parser = object_name)]
    lease_name: String,
    /// The namespace of that Lease.
    #[arg(long, alias = "leader-elect-resource-namespace", env = "LAZULI_LEASE_NAMESPACE", default_value = "kube-system", value_parser = object_name)]
    lease_namespace: String,
    /// Serve the Services with this spec.loadBalancerClass and no others. Default: the Services without a class.
    #[arg(long, env = "LAZULI_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = not_empty)]
    load_balancer_class: Option<String>,
    /// The availability zones for new public IPs and new internal frontends, such as 1,2,3. Default: all zones of the
    /// region, which Azure is asked for.
    #[arg(long, env = "LAZULI_ZONES", value_delimiter = ',', value_name = "ZONE", value_parser = zone)]
    zones: Vec<String>,
    /// Print what service-lb would write to Azure and to Services, and end. Writes nothing, and needs no Lease. What the
    /// controllers of Nodes and routes would write is not planned: lazuli doctor --kubeconfig FILE names the routes that stay.
    #[arg(long, value_parser = boolean, env = "LAZULI_DRY_RUN")]
    dry_run: bool,
    /// Make the changes too that remove or replace something of a Service or let more sources reach it, when this program takes the Services over from
    /// the Azure cloud-controller-manager, if they are those of the plan with this hash: --dry-run prints it. Without it
    /// they wait, and the Services' events say so.
    #[arg(long, env = "LAZULI_ACCEPT_PLAN", value_name = "HASH", num_args = 0..=1, require_equals = true,
        default_missing_value = "without a value", value_parser = plan_hash)]
    accept_plan: Option<String>,
    /// The address ranges that Services may name in the annotation azure-additional-public-ips, such as 20.1.0.0/16. They
    /// restrict the rule that always holds, and open nothing that it closes: an address must be public, no Node, Pod or
    /// other Service of the cluster may have it, and it must be outside of --cluster-cidr and --service-cluster-ip-range. Default: every address that this rule allows. What a Service has already
    /// stays.
    #[arg(long, env = "LAZULI_ALLOWED_EXTERNAL_ADDRESSES", value_delimiter = ',', value_name = "RANGE")]
    allowed_external_addresses: Vec<Cidr>,
    /// Which Services may share an address: any, with an event where a Service of another namespace uses it; or namespace: only
    /// those of one namespace, and of the namespaces that the owner of the address names in its Service's annotation
    /// lazuli.azure/share-with. What Azure shows already stays.
    #[arg(long, env = "LAZULI_SHARE_ADDRESSES", value_enum, default_value_t = ShareAddresses::Any)]
    share_addresses: ShareAddresses,
    /// The resource groups in which Services may name public IPs, their prefixes and private link services, beside those of
    /// the cloud configuration: names alone, for all are of the network's subscription. Default: all. What a Service has already it keeps.
    #[arg(long, env = "LAZULI_ALLOWED_SERVICE_RESOURCE_GROUPS", value_delimiter = ',', value_name = "GROUP", value_parser = group)]
    allowed_service_resource_groups: Vec<String>,
    /// How often what Azure holds is read again although nothing has changed here, in seconds: to undo what others have
    /// changed. 0: never.
    #[arg(long, env = "LAZULI_RESYNC_SECONDS", default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(..=86_400))]
    resync_seconds: u64,
    /// How long writes in flight may finish after SIGTERM, in seconds. A process that takes longer ends without giving
    /// up its Lease.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(..=86_400))]
    drain_seconds: u64,
    #[command(flatten)]
    nodes: NodeArguments,
    #[command(flatten)]
    cloud: CloudOptions,
    #[command(flatten)]
    endpoints: EndpointOptions,
    #[command(flatten)]
    webhook: WebhookOptions,
    #[command(flatten)]
    of_manager: GoArguments<CloudControllerManager>,
}

/// Which Services may share an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ShareAddresses {
    /// All.
    Any,
    /// Those of one namespace, and of the namespaces that the owner names.
    Namespace,
}

impl From<ShareAddresses> for AddressSharing {
    fn from(share: ShareAddresses) -> Self {
        match share {
            ShareAddresses::Any => Self::Any,
            ShareAddresses::Namespace => Self::Namespace,
        }
    }
}

/// How long a dry run may take: the lists of a large cluster and of what Azure holds take seconds.
const PLANNING: Duration = Duration::from_secs(120);

/// The reporter of events.
const REPORTER: &str = "lazuli-cloud-controllers";

/// Who asks, in the API server's audit log: the disk driver of the same pod has the same account.
const USER_AGENT: &str = concat!("lazuli-cloud-controllers/", env!("CARGO_PKG_VERSION"));

fn not_empty(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// Reads an availability zone. Source: Azure's document on availability zones; it numbers the zones of a region from 1.
fn zone(text: &str) -> Result<String, String> {
    match text.trim().parse::<u8>() {
        Ok(1..) if text.trim().starts_with(|char: char| char.is_ascii_digit()) => Ok(text.trim().to_owned()),
        _ => Err("allowed: the numbers of zones, such as 1,2,3".to_owned()),
    }
}

/// Reads the name of a resource group. Source: Azure's rules and restrictions for the names of resources.
fn group(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_allowed = |char: char| char.is_alphanumeric() || matches!(char, '_' | '.' | '-' | '(' | ')');
    match !text.is_empty() && text.chars().count() <= LONGEST_GROUP && text.chars().all(is_allowed) {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "allowed: names of resource groups without their subscription, of at most {LONGEST_GROUP} letters, digits, \
             '_', '-', '.' and parentheses, such as network,shared-ips"
        )),
    }
}

/// The longest name of a resource group.
const LONGEST_GROUP: usize = 90;

/// The longest name of an object (source: Kubernetes' document on object names, DNS subdomain).
const LONGEST_OBJECT_NAME: usize = 253;

fn object_name(text: &str) -> Result<String, String> {
    let is_edge = |char: &char| char.is_ascii_lowercase() || char.is_ascii_digit();
    let is_label = |label: &str| {
        label.chars().all(|char| is_edge(&char) || char == '-')
            && label.chars().next().is_some_and(|char| is_edge(&char))
            && label.chars().last().is_some_and(|char| is_edge(&char))
    };
    if text.len() <= LONGEST_OBJECT_NAME && text.split('.').all(is_label) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "Kubernetes takes no such name: allowed are at most {LONGEST_OBJECT_NAME} lower-case letters, digits, '-' \
             and '.', with a letter or digit at both ends of each part"
        ))
    }
}

/// Why the process cannot run, or cannot run on.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(
        "the cloud controllers need a cluster, and none is named: give --kubeconfig, set KUBECONFIG, or run in a pod"
    )]
    NoCluster,
    #[error(
        "no plan could be made within {} s, because Services, Nodes or what Azure holds of them could not be read: the \
         log above says which; see that the API server of the kubeconfig answers",
        PLANNING.as_secs()
    )]
    NoPlan,
    #[error("the dry run was stopped before its plan was made; nothing was written")]
    Interrupted,
    #[error(
        "the Lease {namespace}/{name} is lost: {}; another replica may write to Azure now, so this process ends; it waits for \
         the Lease when it is started again",
        because(*.loss)
    )]
    LeaseLost { namespace: String, name: String, loss: Loss },
}

/// Why the Lease is lost, and what to do.
fn because(loss: Loss) -> &'static str {
    match loss {
        Loss::Taken => "another process took it; see that no two programs are given one Lease by mistake",
        Loss::NotRenewed => {
            "the API server took no renewal for as long as the Lease lasts; the log above says what it answered"
        }
    }
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    Box::pin(serve(options, stop)).await
}

/// The options as a command line gives them.
#[cfg(feature = "emulator")]
#[derive(Debug, Parser)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

/// Runs in this process with these arguments, until `stop`.
#[cfg(feature = "emulator")]
pub(super) async fn run_with(arguments: Vec<String>, stop: CancellationToken) -> Outcome {
    let arguments = std::iter::once("cloud-controllers".to_owned()).chain(arguments);
    Box::pin(serve(CommandLine::try_parse_from(arguments)?.options, stop)).await
}

/// Runs until `stop` and until writes in flight then have ended, or until the lease is lost.
async fn serve(options: Options, stop: CancellationToken) -> Outcome {
    let mut registry = Registry::default();
    register_process(&mut registry, BUILD);
    let readiness = Readiness::new();
    let azure_condition = readiness.tolerant_condition("azure", TOLERANCE);
    let cluster_condition = readiness.tolerant_condition("cluster", TOLERANCE);

    options.of_manager.log();
    let client = clients::cluster_as(USER_AGENT, &options.cloud).await?.ok_or(RunError::NoCluster)?;
    let config = clients::configuration(&options.cloud, Some(&client)).await?;
    let runs = !config.cluster.disable_controllers;
    if !runs {
        tracing::warn!("the cloud configuration: disableCloudProvider is true: no controller runs");
    }
    let serves_services = runs && options.nodes.runs(ControllerName::ServiceLb);
    let nodes = options.nodes.options(&config)?.filter(|_| runs);
    for warning in config.for_cloud_controllers(LooksAfter { services: serves_services, nodes: nodes.is_some() })? {
        tracing::warn!("the cloud configuration: {warning}");
    }
    let mut settings = if serves_services {
        settings::settings(&config, &options.cluster_name)?
    } else {
        settings::without_services(&config, &options.cluster_name)
    };
    settings.share_addresses = options.share_addresses.into();
    let groups = options.allowed_service_resource_groups.iter().map(|group| group.to_lowercase()).collect();
    settings.allowed_groups = Some(groups).filter(|groups: &BTreeSet<String>| !groups.is_empty());
    let (routes, retry) = (options.cloud.routes.table()?, settings::retry(&config));
    let azure = clients::connect_with(&config, routes, &mut registry, seed(), retry).await?;
    azure.network.arm().set_ceilings(settings::ceilings(&config));
    let lease = LeaseName {
        namespace: options.lease_namespace.clone(),
        name: options.lease_name.clone(),
        // A host name is not enough: a container that was restarted has the name of the one before.
        identity: format!("{}_{}", host_name(REPORTER), uuid::Uuid::new_v4()),
    };
    let event_metrics = EventMetrics::register(&mut registry);
    let (events, queue) = event_queue(&event_metrics);
    let reporter = Reporter { controller: REPORTER.to_owned(), instance: host_name(REPORTER) };
    // Events about Services name them; no volume is looked up.
    let (_, no_volumes) = watch::channel(VolumeHandles::NoCluster);
    let ended = CancellationToken::new();
    let writing = Box::pin(write_events(client.clone(), reporter, no_volumes, queue, event_metrics, ended.clone()));
    let mut controller = Controller::new(
        ControllerOptions {
            settings,
            zones: Some(options.zones.clone()).filter(|zones| !zones.is_empty()),
            lease: lease.clone(),
            class: options.load_balancer_class.clone(),
            accepted_plan: options.accept_plan.clone().filter(|hash| !hash.is_empty()),
            external: ClusterAddresses {
                allowed: options.allowed_external_addresses.clone(),
                pods: options.nodes.cluster_ranges().to_vec(),
                services: options.nodes.service_ranges().to_vec(),
                ..ClusterAddresses::default()
            },
            resync: Some(Duration::from_secs(options.resync_seconds)).filter(|every| !every.is_zero()),
            events,
        },
        azure.network.clone(),
        client.clone(),
        Metrics::register(&mut registry),
    );
    if options.dry_run {
        if !serves_services {
            tracing::warn!("service-lb does not run, and only its changes are planned");
        }
        let planning = async { if serves_services { controller.dry_run().await } else { Ok((Vec::new(), None)) } };
        let (planned, hash) = tokio::select! {
            planned = tokio::time::timeout(PLANNING, planning) => planned.map_err(|_| RunError::NoPlan)??,
            () = stop.cancelled() => return Err(RunError::Interrupted.into()),
        };
        print!("{}{}", plan(&planned, hash.as_deref()), not_planned(nodes.as_ref()));
        return Ok(());
    }
    if !serves_services {
        controller = controller.without_services();
    }
    // Without a controller there is nothing to lead, and another manager may hold the Lease.
    let leads = serves_services || nodes.is_some();
    if runs && !leads {
        tracing::warn!("--controllers leaves no controller to run: write *,-NAME for all but one");
    }
    if let Some(nodes) = nodes {
        controller = controller.with_nodes(nodes, azure.compute.clone());
    }
    let webhook = options.webhook.bind(&azure, &options.cloud, &client, &mut registry).await?;
    // Every replica answers reviews: that needs no Lease, and no start of a cluster waits for a leader.
    let endpoints = options.endpoints.bind(registry, readiness, Some(&client)).await?.and(webhook);
    if leads {
        tracing::info!(
            cluster = options.cluster_name,
            lease = %format_args!("{}/{}", lease.namespace, lease.name),
            identity = lease.identity,
            class = options.load_balancer_class,
            "waiting for the Lease of the cloud controllers"
        );
    }
    let drain = Duration::from_secs(options.drain_seconds);
    let controlling = async {
        let running = async {
            if leads {
                return Box::pin(controller.run(stop.clone())).await;
            }
            stop.cancelled().await;
            Ended::Stopped
        };
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(drain).await;
        };
        let outcome = tokio::select! {
            outcome = running => Some(outcome),
            () = late => None,
        };
        ended.cancel();
        outcome
    };
    let (outcome, (), (), (), _) = tokio::join!(
        controlling,
        writing,
        endpoints.run(&ended),
        async {
            // Without /readyz nothing asks for it.
            if options.endpoints.has_probes() {
                let azure = azure_ready::keep(&azure, &azure_condition);
                let cluster = lazuli_cluster::keep_asking(&client, &cluster_condition);
                ended.run_until_cancelled(async { tokio::join!(azure, cluster) }).await;
            }
        },
        ended.run_until_cancelled(azure.credential.keep(&options.cloud, Some(&client))),
    );
    match outcome {
        Some(Ended::Stopped) => Ok(()),
        Some(Ended::Lost(loss)) => {
            Err(RunError::LeaseLost { namespace: lease.namespace, name: lease.name, loss }.into())
        }
        None => {
            tracing::warn!(
                "the drain time is over with writes in flight; Azure finishes them, and the next replica leads when \
                 the Lease has expired"
            );
            Ok(())
        }
    }
}

/// The plan for people. `hash` is that of what it removes or replaces.
fn plan(planned: &[Planned], hash: Option<&str>) -> String {
    if planned.is_empty() {
        return "nothing would be written\n".to_owned();
    }
    let mut text: String = planned.iter().map(|one| format!("{one}\n")).collect();
    if let Some(hash) = hash {
        text.push_str(&format!("at a take-over, --accept-plan={hash} accepts what is removed or replaced\n"));
    }
    text
}

/// What is said of controllers that run and that no dry run plans.
fn not_planned(nodes: Option<&NodeOptions>) -> String {
    let Some(NodeOptions { controllers, routes, .. }) = nodes else { return String::new() };
    let table = routes.as_ref().map(|routes| format!("the routes of {}", routes.table.name()));
    let all = [
        (controllers.node, "cloud-node", Some("addresses, labels and taints of new Nodes".to_owned())),
        (controllers.lifecycle, "cloud-node-lifecycle", Some("Nodes whose machines are stopped or gone".to_owned())),
        (controllers.route, "node-route", table),
    ];
    let running = all.into_iter().filter(|(runs, ..)| *runs);
    running.filter_map(|(_, name, what)| Some(format!("not planned: what {name} would change ({})\n", what?))).collect()
}

/// The hash of a plan, as a dry run prints it. An empty text, such as that of an empty variable, is none.
fn plan_hash(text: &str) -> Result<String, String> {
    let is_hash = text.len() == 16 && text.chars().all(|char| char.is_ascii_digit() || ('a'..='f').contains(&char));
    (is_hash || text.is_empty()).then(|| text.to_owned()).ok_or_else(|| {
        "expected --accept-plan=HASH with the hash of the plan that is accepted, 16 hexadecimal digits: lazuli cloud-controllers --dry-run with the \
         same settings prints the plan and its hash"
            .to_owned()
    })
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
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
            let options = lazuli_emulator::Options { latency: Profile::typical(), ..Default::default() };
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
    }

    #[test]
    fn a_plan_is_accepted_by_its_hash_and_a_plain_flag_says_how() {
        let parse = |flag: &str| CommandLine::try_parse_from(["cloud-controllers", flag]);
        assert!(parse("--accept-plan=0123456789abcdef").is_ok());
        // As of a variable that is set and empty.
        assert_eq!(parse("--accept-plan=").unwrap().options.accept_plan.filter(|hash| !hash.is_empty()), None);
        let error =
            CommandLine::try_parse_from(["cloud-controllers", "--accept-plan", "0123456789abcdef"]).unwrap_err();
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
}
