//! `lazuli csi-controller`.

use std::{sync::Arc, time::Duration};

use clap::{ArgAction, Args};
use lazuli_assembly::{
    clients::{self, CloudOptions},
    services::{self, AttachMethod, ClusterView, ListVolumes},
};
use lazuli_csi::{
    identity::{DISK_DRIVER, driver_name},
    server::{self, Drained, Endpoint, Listener, RpcLayer, RpcMetrics, SocketFile, SocketLost},
};
use lazuli_plan::{list::VolumeHandles, lun::LunReservations, size::SizeLimits};
use lazuli_telemetry::{
    BuildInfo, Readiness,
    http::{self, Listen, Shown},
    register_process,
};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Outcome, sizes, stop};

/// Options of the controller.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where to serve gRPC: unix:///path/of.sock or tcp://address:port.
    #[arg(long, env = "CSI_ENDPOINT", default_value = "unix:///csi/csi.sock")]
    endpoint: Endpoint,
    /// Where to answer /healthz, /readyz and /metrics; default: nowhere.
    #[arg(long, env = "LAZULI_HTTP_LISTEN")]
    http_listen: Option<Listen>,
    /// The name of the driver, as StorageClasses and PVs spell it.
    #[arg(long, env = "LAZULI_DRIVER_NAME", default_value = DISK_DRIVER, value_parser = driver_name)]
    driver_name: String,
    /// How a VM's data disks are written. auto: by what changes, and the whole list where Azure or our role does not
    /// have that action.
    #[arg(long, env = "LAZULI_ATTACH_METHOD", value_enum, default_value_t = AttachMethod::Auto)]
    attach_method: AttachMethod,
    /// Whether to offer ListVolumes: true or false. With it external-attacher finds, once a minute, disks that were
    /// attached or detached by others, at the cost of at least one read of Azure for each resource group.
    #[arg(long, env = "LAZULI_LIST_VOLUMES", default_value_t = true, action = ArgAction::Set, value_name = "BOOL")]
    list_volumes: bool,
    /// How long requests in flight may finish after SIGTERM, in seconds.
    #[arg(long, env = "LAZULI_DRAIN_SECONDS", default_value_t = 25, value_parser = clap::value_parser!(u64).range(..=86_400))]
    drain_seconds: u64,
    #[command(flatten)]
    cloud: CloudOptions,
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    let mut registry = Registry::default();
    register_process(&mut registry, BUILD);
    let readiness = Readiness::new();
    let (azure_ready, cluster_ready) = (readiness.condition("azure"), readiness.condition("cluster"));

    let client = clients::cluster(&options.cloud).await?;
    let config = clients::configuration(&options.cloud, client.as_ref()).await?;
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    let azure = clients::connect(&config, options.cloud.routes.table()?, &mut registry, seed()).await?;
    azure_ready.ready(format!("resource manager {}", azure.cloud.resource_manager));

    let (no_luns, no_handles) = match client {
        Some(_) => (LunReservations::Cold, VolumeHandles::Cold),
        None => (LunReservations::NoCluster, VolumeHandles::NoCluster),
    };
    cluster_ready.ready(if client.is_some() { "VolumeAttachments are watched" } else { "no cluster" });
    let (snapshot, reservations) = watch::channel(no_luns);
    let (known_handles, handles) = watch::channel(no_handles);
    let watching = tokio::spawn({
        let (driver, stop) = (options.driver_name.clone(), stop.clone());
        let client = client.clone();
        async move { lazuli_cluster::watch_luns(client, &driver, snapshot, known_handles, stop).await }
    });
    let (known, known_sizes) = watch::channel(SizeLimits::default());
    let region = sizes::Region {
        compute: azure.compute.clone(),
        subscription: azure.defaults.subscription.clone(),
        location: azure.defaults.location.clone(),
    };
    let looking = tokio::spawn(sizes::keep(client, region, known, stop.clone()));

    let routes = services::controller(
        &azure,
        &options.driver_name,
        ClusterView { reservations, handles, sizes: known_sizes },
        options.attach_method,
        if options.list_volumes { ListVolumes::On } else { ListVolumes::Off },
        &readiness,
    );
    let calls = RpcLayer::with_metrics(RpcMetrics::register(&mut registry));
    let health = http(options.http_listen, registry, readiness).await?;
    let listener = Listener::bind(&options.endpoint).await?;
    tracing::info!(endpoint = %options.endpoint, driver = options.driver_name, "serving CSI Identity and Controller");
    let drain = Duration::from_secs(options.drain_seconds);
    let drained = CancellationToken::new();
    let file = listener.file();
    let (served, told, kept) = tokio::join!(
        async {
            let served = server::serve_with(calls, routes, listener, stop.clone(), drain).await;
            // A server that failed takes the process with it.
            stop.cancel();
            drained.cancel();
            served
        },
        answer(health, &stop, &drained),
        keep(file, &stop)
    );
    watching.await?;
    looking.await?;
    told?;
    kept?;
    if served? == Drained::TimedOut {
        tracing::warn!("the drain time is over with requests in flight; what Azure was told goes on");
    }
    Ok(())
}

/// Watches over the socket's file, where the endpoint has one.
pub(super) async fn keep(file: Option<SocketFile>, stop: &CancellationToken) -> Result<(), SocketLost> {
    match file {
        Some(file) => file.keep(stop).await,
        None => Ok(()),
    }
}

/// Takes the port for probes and scrapes, where they are wanted: one that is taken ends the start, not the process a
/// day later.
pub(super) async fn http(
    listen: Option<Listen>,
    registry: Registry,
    readiness: Readiness,
) -> Result<Option<http::Server>, http::ServeError> {
    match listen {
        Some(listen) => Ok(Some(http::Server::bind(listen, Shown { registry: Arc::new(registry), readiness }).await?)),
        None => Ok(None),
    }
}

/// Answers probes and scrapes until `drained`. A server that fails before takes the process with it.
pub(super) async fn answer(
    server: Option<http::Server>,
    stop: &CancellationToken,
    drained: &CancellationToken,
) -> Result<(), http::ServeError> {
    let Some(server) = server else { return Ok(()) };
    let ended = server.run(drained.clone()).await;
    stop.cancel();
    ended
}

/// What this binary was built from.
pub(super) const BUILD: BuildInfo = BuildInfo {
    version: env!("CARGO_PKG_VERSION"),
    revision: match option_env!("LAZULI_REVISION") {
        Some(revision) => revision,
        None => "unknown",
    },
};

/// A seed for jitter and request ids: a different one in every process.
pub(super) fn seed() -> u64 {
    let bits = uuid::Uuid::new_v4().as_u128();
    (bits as u64) ^ ((bits >> 64) as u64)
}
