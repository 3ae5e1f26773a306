//! `lazuli cloud-controllers`.

use std::time::Duration;

use clap::Args;
use lazuli_assembly::clients::{self, CloudOptions};
use lazuli_cluster::{Ended, LeaseName};
use lazuli_config::{BackendPoolType, Config, ConfigError};
use lazuli_controllers::{Controller, Options as ControllerOptions, settings};
use lazuli_reconcile::metrics::Metrics;
use lazuli_telemetry::{Readiness, register_process};
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;

use super::{
    Outcome,
    azure_ready::{self, TOLERANCE},
    csi_controller::{BUILD, host_name, seed},
    endpoints::EndpointOptions,
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
    #[arg(long, env = "LAZULI_LEASE_NAME", default_value = "cloud-controller-manager", value_parser = not_empty)]
    lease_name: String,
    /// The namespace of that Lease.
    #[arg(long, env = "LAZULI_LEASE_NAMESPACE", default_value = "kube-system", value_parser = not_empty)]
    lease_namespace: String,
    /// Serve the Services with this spec.loadBalancerClass and no others. Default: the Services without a class.
    #[arg(long, env = "LAZULI_LOAD_BALANCER_CLASS", value_name = "CLASS", value_parser = not_empty)]
    load_balancer_class: Option<String>,
    /// The availability zones of the region, such as 1,2,3, for new public IPs and new internal frontends. Default:
    /// none, and Azure decides.
    #[arg(long, env = "LAZULI_ZONES", value_delimiter = ',', value_name = "ZONE", value_parser = not_empty)]
    zones: Vec<String>,
    /// How long writes in flight may finish after SIGTERM, in seconds. A process that takes longer ends without giving
    /// up its Lease.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(..=86_400))]
    drain_seconds: u64,
    #[command(flatten)]
    cloud: CloudOptions,
    #[command(flatten)]
    endpoints: EndpointOptions,
    #[command(flatten)]
    webhook: WebhookOptions,
}

fn not_empty(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("it is empty".to_owned()),
        text => Ok(text.to_owned()),
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
        "the Lease {namespace}/{name} is lost: another replica may write to Azure now, so this process ends; it waits \
         for the Lease when it is started again"
    )]
    LeaseLost { namespace: String, name: String },
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    serve(options, stop).await
}

/// Runs until `stop` and until writes in flight then have ended, or until the lease is lost.
async fn serve(options: Options, stop: CancellationToken) -> Outcome {
    let mut registry = Registry::default();
    register_process(&mut registry, BUILD);
    let readiness = Readiness::new();
    let azure_condition = readiness.tolerant_condition("azure", TOLERANCE);

    let client = clients::cluster(&options.cloud).await?.ok_or(RunError::NoCluster)?;
    let config = clients::configuration(&options.cloud, Some(&client)).await?;
    for warning in warnings(&config)? {
        tracing::warn!("the cloud configuration: {warning}");
    }
    let settings = settings::settings(&config, &options.cluster_name)?;
    let azure = clients::connect(&config, options.cloud.routes.table()?, &mut registry, seed()).await?;
    let lease = LeaseName {
        namespace: options.lease_namespace.clone(),
        name: options.lease_name.clone(),
        // A host name is not enough: a container that was restarted has the name of the one before.
        identity: format!("{}_{}", host_name("lazuli-cloud-controllers"), uuid::Uuid::new_v4()),
    };
    let controller = Controller::new(
        ControllerOptions {
            settings,
            zones: options.zones.clone(),
            lease: lease.clone(),
            class: options.load_balancer_class.clone(),
        },
        azure.network.clone(),
        client.clone(),
        Metrics::register(&mut registry),
    );
    let webhook = options.webhook.bind(&azure, &config.cluster.location, &client, &mut registry).await?;
    // Every replica answers reviews: that needs no Lease, and no start of a cluster waits for a leader.
    let endpoints = options.endpoints.bind(registry, readiness, Some(&client)).await?.and(webhook);
    tracing::info!(
        cluster = options.cluster_name,
        lease = %format_args!("{}/{}", lease.namespace, lease.name),
        identity = lease.identity,
        class = options.load_balancer_class,
        "waiting for the Lease of the cloud controllers"
    );
    let ended = CancellationToken::new();
    let drain = Duration::from_secs(options.drain_seconds);
    let controlling = async {
        let running = Box::pin(controller.run(stop.clone()));
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
    let (outcome, (), (), _) = tokio::join!(
        controlling,
        endpoints.run(&ended),
        async {
            // Without /readyz nothing asks for it.
            if options.endpoints.has_probes() {
                ended.run_until_cancelled(azure_ready::keep(&azure, &azure_condition)).await;
            }
        },
        ended.run_until_cancelled(azure.credential.keep(&options.cloud, Some(&client))),
    );
    match outcome {
        Some(Ended::Stopped) => Ok(()),
        Some(Ended::Lost) => Err(RunError::LeaseLost { namespace: lease.namespace, name: lease.name }.into()),
        None => {
            tracing::warn!(
                "the drain time is over with writes in flight; Azure finishes them, and the next replica leads when \
                 the Lease has expired"
            );
            Ok(())
        }
    }
}

/// What an operator must know of the configuration before Services are served by it.
fn warnings(config: &Config) -> Result<Vec<String>, ConfigError> {
    let mut warnings = config.for_services()?;
    if config.load_balancing.pool_type != BackendPoolType::NodeIp {
        warnings.push(
            "loadBalancerBackendPoolConfigurationType is not nodeIP: this version keeps the members of backend pools as \
             they are, so that a new Node gets no traffic from outside and a new pool stays empty"
                .to_owned(),
        );
    }
    Ok(warnings)
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests {
    use clap::Parser;
    use lazuli_apiserver::{ApiServer, Options as ApiServerOptions};
    use lazuli_azure::{
        Until,
        network::{NetworkType, NetworkWrite},
        transport::Routes,
    };
    use lazuli_config::{Document, Environment};
    use lazuli_emulator::{Emulator, latency::Profile, scenario};
    use lazuli_rig::{Folder, azure_json};
    use serde_json::{Value, json};
    use tokio::{
        task::JoinHandle,
        time::{Instant, sleep},
    };

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        options: Options,
    }

    /// An Azure and an API server, both behind sockets, and the files that lead a process to them.
    struct World {
        azure: Emulator,
        server: ApiServer,
        folder: Folder,
    }

    impl World {
        async fn start(pool_type: &str) -> Self {
            let _ = rustls::crypto::ring::default_provider().install_default();
            let options = lazuli_emulator::Options { latency: Profile::typical(), ..Default::default() };
            let configured = options.scenario.clone();
            let azure = Emulator::start(options).await.unwrap();
            let folder = Folder::make("cloud-controllers").unwrap();
            let mut config = azure_json(&configured, &azure.url());
            for (key, value) in [
                ("vnetName", "lazuli-vnet"),
                ("subnetName", "nodes"),
                ("securityGroupName", "nodes-nsg"),
                ("loadBalancerSku", "standard"),
                ("loadBalancerBackendPoolConfigurationType", pool_type),
            ] {
                config[key] = value.into();
            }
            let server = ApiServer::start(ApiServerOptions::default());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = server.router();
            tokio::spawn(async move { axum::serve(listener, router).await });
            let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}]});
            let world = Self { azure, server, folder };
            world.write("azure.json", &config);
            world.write("kubeconfig", &kubeconfig);
            world.make_security_group(&config).await;
            let vms = format!(
                "azure:///subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines",
                scenario::SUBSCRIPTION,
                scenario::RESOURCE_GROUP
            );
            for at in 0..2 {
                let node = json!({"metadata": {"name": format!("node-{at}")},
                    "spec": {"providerID": format!("{vms}/node-{at}")},
                    "status": {"addresses": [{"type": "InternalIP", "address": format!("10.240.0.{}", 4 + at)}]}});
                world.server.put("nodes", node).unwrap();
            }
            world
        }

        fn write(&self, name: &str, value: &Value) {
            std::fs::write(self.folder.path().join(name), value.to_string()).unwrap();
        }

        /// The cluster's security group, which its installer makes.
        async fn make_security_group(&self, config: &Value) {
            let document = Document::parse("azure.json", config.to_string().as_bytes()).unwrap();
            let config = Config::from_documents(Some(&document), None, &Environment::new(&Default::default())).unwrap();
            let azure = clients::connect(&config, Routes::none(), &mut Registry::default(), 1).await.unwrap();
            let id = format!(
                "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/networkSecurityGroups/nodes-nsg",
                scenario::SUBSCRIPTION,
                scenario::RESOURCE_GROUP
            );
            let until = Until::within(Duration::from_secs(600));
            let kind = NetworkType::SecurityGroup;
            let (subscription, group) = (scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP);
            // Reads bring the token that a write needs.
            azure.network.list(kind, subscription, group, &until).await.unwrap();
            let body = json!({"location": scenario::LOCATION, "properties": {}});
            let put = NetworkWrite::Put { body, etag: None };
            let mut made = azure.network.write(kind, &id.parse().unwrap(), put, None, &until).await.unwrap();
            made.settle(&until).await.unwrap();
        }

        fn process(&self, more: &[&str]) -> (CancellationToken, JoinHandle<Outcome>) {
            let path = |name: &str| self.folder.path().join(name).display().to_string();
            let mut arguments = vec![
                "cloud-controllers".to_owned(),
                format!("--cloud-config={}", path("azure.json")),
                format!("--kubeconfig={}", path("kubeconfig")),
                "--cloud-config-secret-name=".to_owned(),
            ];
            arguments.extend(more.iter().map(|argument| (*argument).to_owned()));
            let stop = CancellationToken::new();
            let options = Command::parse_from(arguments).options;
            (stop.clone(), tokio::spawn(Box::pin(serve(options, stop))))
        }

        fn service(&self, name: &str, class: Option<&str>) {
            let mut service =
                json!({"metadata": {"name": name}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}});
            if let Some(class) = class {
                service["spec"]["loadBalancerClass"] = class.into();
            }
            self.server.put("services", service).unwrap();
        }

        fn addresses(&self, name: &str) -> usize {
            let service = self.server.get("services", "default", name).unwrap();
            service["status"]["loadBalancer"]["ingress"].as_array().map_or(0, Vec::len)
        }

        fn holder(&self) -> Option<String> {
            let lease = self.server.get("leases", "kube-system", "cloud-controller-manager")?;
            lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
        }

        /// What was asked of Azure so far that changes something.
        fn writes(&self) -> Vec<String> {
            let calls = self.azure.control().call_log();
            let writes = calls.iter().filter(|call| call.plane == "arm" && call.method != "GET");
            writes.map(|call| format!("{} {} {}", call.method, call.path, call.status)).collect()
        }

        /// Waits for this, in the time of the paused clock.
        async fn until(&self, what: &str, is: impl Fn() -> bool) {
            let began = Instant::now();
            while !is() {
                assert!(began.elapsed() < Duration::from_secs(300), "{what}: {:#?}", self.writes());
                sleep(Duration::from_millis(100)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_gets_its_address_and_the_next_process_takes_over_without_a_write() {
        let world = World::start("nodeIP").await;
        world.service("web", None);
        world.service("canary", Some("lazuli"));
        let (stop, running) = world.process(&[]);
        world.until("web has an address", || world.addresses("web") == 1).await;
        let first = world.holder().expect("the process leads");

        // Another one waits meanwhile, and does nothing.
        let (stop_second, second) = world.process(&[]);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(world.holder(), Some(first.clone()));
        let (writes, services) = (world.writes(), world.server.list("services"));
        let stopped = Instant::now();
        stop.cancel();
        running.await.unwrap().unwrap();
        world.until("the second process leads", || world.holder().is_some_and(|holder| holder != first)).await;
        // It need not wait until the lease expires.
        assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());
        sleep(Duration::from_secs(600)).await;
        assert_eq!(world.writes(), writes);
        assert_eq!(world.server.list("services"), services);
        assert_eq!(world.addresses("canary"), 0, "a Service of another class");

        world.service("other", None);
        world.until("other has an address", || world.addresses("other") == 1).await;
        stop_second.cancel();
        second.await.unwrap().unwrap();
        assert_eq!(world.holder(), None);
        world.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_loses_its_lease_ends_with_an_error_that_names_it() {
        let world = World::start("nodeIP").await;
        let (_stop, running) = world.process(&[]);
        world.until("the process leads", || world.holder().is_some()).await;
        let mut lease = world.server.get("leases", "kube-system", "cloud-controller-manager").unwrap();
        lease["spec"]["holderIdentity"] = "another".into();
        world.server.put("leases", lease).unwrap();
        let error = running.await.unwrap().unwrap_err().to_string();
        assert!(error.starts_with("the Lease kube-system/cloud-controller-manager is lost"), "{error}");
        assert_eq!(world.holder().as_deref(), Some("another"), "the Lease of another replica is not touched");
        world.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_class_is_claimed_beside_the_manager_that_serves_the_others() {
        let world = World::start("nodeIP").await;
        world.service("web", None);
        world.service("canary", Some("lazuli"));
        let (stop, running) = world.process(&["--load-balancer-class=lazuli", "--lease-name=canary"]);
        world.until("canary has an address", || world.addresses("canary") == 1).await;
        assert_eq!((world.addresses("web"), world.holder()), (0, None));
        stop.cancel();
        running.await.unwrap().unwrap();
        world.azure.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_configuration_without_what_services_need_ends_the_start() {
        let world = World::start("nodeIP").await;
        let path = world.folder.path().join("azure.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        config.as_object_mut().unwrap().remove("securityGroupName");
        world.write("azure.json", &config);
        let (_stop, running) = world.process(&[]);
        let error = running.await.unwrap().unwrap_err().to_string();
        assert!(error.contains("securityGroupName"), "{error}");
        let options = Command::try_parse_from(["cloud-controllers", "--cluster-name="]);
        assert!(options.is_err(), "a cluster without a name");
        world.azure.shutdown().await;
    }
}
