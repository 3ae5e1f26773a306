//! `lazuli cloud-controllers`.

use std::{collections::BTreeSet, time::Duration};

use clap::Args;
#[cfg(feature = "emulator")]
use clap::Parser;
use lazuli_assembly::clients::{self, CloudOptions};
use lazuli_balancing::preview::Planned;
use lazuli_cluster::{
    Ended, EventMetrics, LeaseName, LeaseView, Reporter, event_queue, register_leadership, write_events,
};
use lazuli_config::LooksAfter;
use lazuli_controllers::{Controller, NodeOptions, Operations, Options as ControllerOptions, settings};
use lazuli_diagnosis::controller_list::Controller as ControllerName;
use lazuli_engine::lease::Loss;
use lazuli_journal::{Leadership, Recorder, Topic};
use lazuli_model::{
    address::Cidr,
    kube_name::{LONGEST_SUBDOMAIN, is_qualified, is_subdomain},
};
use lazuli_reconcile::metrics::Metrics;
use lazuli_services::{
    network::{Settings, settings::AddressSharing},
    service::{ClusterAddresses, never_allowed},
};
use lazuli_storage::list::VolumeHandles;
use lazuli_telemetry::{Readiness, http::Page, register_process};
use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Outcome,
    azure_ready::{self, TOLERANCE},
    csi_controller::{BUILD, host_name, seed},
    endpoints::EndpointOptions,
    go_arguments::{CloudControllerManager, GoArguments, boolean},
    node_controllers::NodeArguments,
    number::whole,
    stop,
    webhook::WebhookOptions,
    why::{
        resolve::Names,
        socket::{Answering, CLOUD_CONTROLLERS, WhyOptions},
    },
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
    #[arg(long, env = "LAZULI_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = class)]
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
    #[arg(long, env = "LAZULI_ALLOWED_EXTERNAL_ADDRESSES", value_delimiter = ',', value_name = "RANGE,…", value_parser = range)]
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
    #[arg(long, env = "LAZULI_RESYNC_SECONDS", default_value_t = 3_600, value_parser = whole::<u64>(0..=86_400))]
    resync_seconds: u64,
    /// How long writes in flight may finish after SIGTERM, in seconds. A process that takes longer ends without giving
    /// up its Lease.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = whole::<u64>(0..=86_400))]
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
    why: WhyOptions,
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

impl Options {
    /// What Services may name of others is in no cloud configuration.
    fn restrict(&self, settings: &mut Settings) {
        settings.share_addresses = self.share_addresses.into();
        let groups = self.allowed_service_resource_groups.iter().map(|group| group.to_lowercase()).collect();
        settings.allowed_groups = Some(groups).filter(|groups: &BTreeSet<String>| !groups.is_empty());
    }

    /// What is said of ranges that allow nothing.
    fn without_effect(&self) -> Vec<String> {
        let said = |range: &Cidr| {
            let why = never_allowed(range)?;
            Some(format!(
                "--allowed-external-addresses={range} allows nothing: every address of it {why}, and no Service may name one; \
                 give ranges of public addresses"
            ))
        };
        self.allowed_external_addresses.iter().filter_map(said).collect()
    }

    /// What the arguments say of addresses that Services may not name as their own.
    fn external(&self) -> ClusterAddresses {
        ClusterAddresses {
            allowed: self.allowed_external_addresses.clone(),
            pods: self.nodes.cluster_ranges().to_vec(),
            services: self.nodes.service_ranges().to_vec(),
            ..ClusterAddresses::default()
        }
    }
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

fn object_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "Kubernetes takes no such name: allowed are at most {LONGEST_SUBDOMAIN} lower-case letters, digits, '-' \
             and '.', with a letter or digit at both ends of each part"
        ))
    }
}

fn class(text: &str) -> Result<String, String> {
    if is_qualified(text) {
        Ok(text.to_owned())
    } else {
        Err("Kubernetes takes no such class: allowed are a name of at most 63 letters, digits, '-', '_' and '.', with a \
             letter or digit at both ends, and a domain with a slash before it, such as example.com/internal"
            .to_owned())
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
pub(super) async fn serve(options: Options, stop: CancellationToken) -> Outcome {
    let start = Instant::now();
    let journal = Recorder::new(move || start.elapsed());
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
    options.restrict(&mut settings);
    options.without_effect().iter().for_each(|sentence| tracing::warn!("{sentence}"));
    let go = options.endpoints.go_names();
    let operations = Operations::register(&mut registry, go.clone(), &settings);
    let (routes, retry) = (options.cloud.table()?, settings::retry(&config));
    let azure = clients::connect_with(&config, routes, (&mut registry, go.clone()), seed(), retry).await?;
    azure.network.arm().set_ceilings(settings::ceilings(&config));
    let lease = LeaseName {
        namespace: options.lease_namespace.clone(),
        name: options.lease_name.clone(),
        // A host name is not enough: a container that was restarted has the name of the one before.
        identity: format!("{}_{}", host_name(REPORTER), uuid::Uuid::new_v4()),
    };
    let lease_view = LeaseView::default();
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
            lease_view: lease_view.clone(),
            class: options.load_balancer_class.clone(),
            accepted_plan: options.accept_plan.clone().filter(|hash| !hash.is_empty()),
            external: options.external(),
            resync: Some(Duration::from_secs(options.resync_seconds)).filter(|every| !every.is_zero()),
            events,
            journal: journal.clone(),
            operations,
        },
        azure.network.clone(),
        client.clone(),
        Metrics::register(&mut registry),
    );
    if options.dry_run {
        let planning = async { if serves_services { controller.dry_run().await } else { Ok((Vec::new(), None)) } };
        let (planned, hash) = tokio::select! {
            planned = tokio::time::timeout(PLANNING, planning) => planned.map_err(|_| RunError::NoPlan)??,
            () = stop.cancelled() => return Err(RunError::Interrupted.into()),
        };
        let looked = match (serves_services, runs) {
            (true, _) => Looked::AtServices,
            (false, true) => Looked::NotByControllers,
            (false, false) => Looked::NotByConfiguration,
        };
        print!("{}{}", of_services(looked, &planned, hash.as_deref()), not_planned(nodes.as_ref()));
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
    if leads {
        register_leadership(&mut registry, &go, &lease, &lease_view);
    }
    if let Some(nodes) = nodes {
        controller = controller.with_nodes(nodes, azure.compute.clone());
    }
    let webhook = options.webhook.bind(&azure, &options.cloud, &client, &mut registry).await?;
    // Every replica answers reviews: that needs no Lease, and no start of a cluster waits for a leader.
    let endpoints = options.endpoints.bind(Page::new(registry, go), readiness, Some(&client)).await?.and(webhook);
    if leads {
        tracing::info!(
            cluster = options.cluster_name,
            lease = %format_args!("{}/{}", lease.namespace, lease.name),
            identity = lease.identity,
            class = options.load_balancer_class,
            "waiting for the Lease of the cloud controllers"
        );
    }
    let why = options.why.bind(CLOUD_CONTROLLERS).await?;
    let answering = Answering {
        process: CLOUD_CONTROLLERS,
        topics: &[Topic::Service, Topic::Node],
        journal,
        names: Names::None,
        about: Box::new({
            let lease = format!("{}/{}", lease.namespace, lease.name);
            move || {
                if !leads {
                    return (None, vec!["No controller runs in it.".to_owned()]);
                }
                let seen = lease_view.seen();
                let leads = seen.leads_until.is_some_and(|until| Instant::now() < until);
                (Some(Leadership { lease: lease.clone(), leads, holder: seen.holder }), vec![])
            }
        }),
    };
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
    let (outcome, (), (), (), (), _) = tokio::join!(
        controlling,
        async {
            if let Some(why) = why {
                Box::pin(why.serve(&answering, &ended)).await;
            }
        },
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
    let mut text: String = planned.iter().map(|one| format!("{one}\n")).collect();
    if planned.iter().all(|one| one.changes.is_empty()) {
        text.push_str("nothing would be written\n");
    }
    if let Some(hash) = hash {
        text.push_str(&format!("at a take-over, --accept-plan={hash} accepts what is removed or replaced\n"));
    }
    text
}

/// Whether a dry run looks at Services.
#[derive(Debug, Clone, Copy)]
enum Looked {
    AtServices,
    /// `--controllers` leaves their controller out.
    NotByControllers,
    /// The configuration starts no controller.
    NotByConfiguration,
}

/// What a dry run says of Services.
fn of_services(looked: Looked, planned: &[Planned], hash: Option<&str>) -> String {
    let why = match looked {
        Looked::AtServices => return plan(planned, hash),
        Looked::NotByControllers => "--controllers leaves service-lb out",
        Looked::NotByConfiguration => {
            "disableCloudProvider of the cloud configuration is true, so that no controller runs"
        }
    };
    format!("not looked at: Services and what Azure has for them, because {why}\n")
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

/// A range of a list, which may have blanks around it.
fn range(text: &str) -> Result<Cidr, String> {
    text.trim().parse().map_err(|error: lazuli_model::address::CidrError| error.to_string())
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
mod tests;
