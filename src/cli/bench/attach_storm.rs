//! An attach storm: every disk of every node is published at the same moment.

use std::{path::Path, sync::Arc, time::Instant};

use bytes::Bytes;
use clap::Args;
use csi_proto::csi::{
    ControllerGetVolumeRequest, ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, VolumeCapability,
    controller_client::ControllerClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use http::{HeaderMap, Method};
use lazuli_azure::transport::{Routes, Tls, Transport};
use lazuli_plan::model::ArmId;
use lazuli_rig::Folder;
use serde_json::{Value, json};
use tokio::{process::Child, sync::Semaphore, task::JoinSet};
use tonic::transport::Channel;
use url::Url;

use super::{
    super::{Outcome, output::Format},
    processes::{self, AnyError},
};

/// Machine sizes by how many data disks they take (source: the published size tables).
const SIZES: [(u32, &str); 5] = [
    (4, "Standard_D2s_v3"),
    (8, "Standard_D4s_v3"),
    (16, "Standard_D8s_v3"),
    (32, "Standard_D16s_v3"),
    (64, "Standard_M128s"),
];

/// Options of the storm.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many nodes.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    nodes: u32,
    /// How many disks, spread evenly over the nodes; at most 64 a node.
    #[arg(long, default_value_t = 160, value_parser = clap::value_parser!(u32).range(1..=64_000))]
    disks: u32,
    /// How long Azure takes: none, typical, azure, bad-day, or a file.
    #[arg(long, default_value = "typical")]
    latency: String,
    /// At most so many publishes at a time; default: all.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    callers: Option<u32>,
    /// Seed of Azure's latencies.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Retry-After, in seconds, on accepted operations and their polls.
    #[arg(long)]
    retry_after: Option<u64>,
    /// How data disks are written: auto, action or whole-list.
    #[arg(long, default_value = "auto")]
    attach_method: String,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) async fn run(options: Options) -> Outcome {
    let per_node = options.disks.div_ceil(options.nodes);
    let Some((_, size)) = SIZES.iter().find(|(takes, _)| *takes >= per_node) else {
        let most = options.nodes * 64;
        return Err(format!("{} nodes take at most {most} disks, not {}", options.nodes, options.disks).into());
    };
    let folder = Folder::make("bench")?;
    let storm = Storm::start(&options, size, folder.path()).await?;
    let result = storm.blow(&options).await;
    storm.end().await;
    let result = result?;
    options.output.print_object(&result);
    Ok(())
}

/// The processes of a storm.
struct Storm {
    azure: Child,
    controller: Child,
    control: Control,
    client: ControllerClient<Channel>,
    volumes: Vec<(String, String)>,
}

/// The control interface of the emulator.
struct Control {
    transport: Transport,
    base: Url,
}

impl Control {
    async fn call(&self, method: Method, path: &str) -> Result<Value, AnyError> {
        let url = self.base.join(path)?;
        let answer = self.transport.send(method, &url, HeaderMap::new(), Bytes::new()).await?;
        if !answer.status().is_success() {
            return Err(format!("the emulator answers {} to {path}", answer.status()).into());
        }
        Ok(serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
    }
}

impl Storm {
    async fn start(options: &Options, size: &str, folder: &Path) -> Result<Self, AnyError> {
        let scenario = json!({
            "virtualMachines": [{ "name": "node-{}", "count": options.nodes, "size": size }],
            "disks": (0..options.disks)
                .map(|n| json!({ "name": format!("storm-{n:05}"), "sizeGib": 32, "sku": "Premium_LRS" }))
                .collect::<Vec<_>>(),
        });
        let (scenario_file, config) = (folder.join("scenario.json"), folder.join("azure.json"));
        std::fs::write(&scenario_file, scenario.to_string())?;
        let mut azure = processes::emulator(&config);
        azure.arg("--latency").arg(&options.latency).arg("--scenario").arg(&scenario_file);
        azure.args(["--seed", &options.seed.to_string()]);
        if let Some(seconds) = options.retry_after {
            azure.args(["--retry-after", &seconds.to_string()]);
        }
        let (azure, base) = processes::ready(azure).await?;
        let socket = folder.join("csi.sock");
        let controller =
            processes::controller(&socket, &config).args(["--attach-method", &options.attach_method]).spawn()?;
        let client = ControllerClient::new(processes::connected(&socket).await?);

        let text: Value = serde_json::from_str(&std::fs::read_to_string(&config)?)?;
        let word = |key: &str| text[key].as_str().unwrap_or_default().to_owned();
        let (subscription, group) = (word("subscriptionId"), word("resourceGroup"));
        let volumes = (0..options.disks)
            .map(|n| {
                let disk = ArmId::disk(&subscription, &group, &format!("storm-{n:05}"))?;
                Ok((disk.to_string(), format!("node-{}", n % options.nodes)))
            })
            .collect::<Result<Vec<_>, AnyError>>()?;
        let control = Control { transport: Transport::new(Routes::none(), &Tls::default())?, base };
        Ok(Self { azure, controller, control, client, volumes })
    }

    async fn blow(&self, options: &Options) -> Result<Value, AnyError> {
        // A controller at work has a token and a connection; a cold start is measured elsewhere.
        let first = ControllerGetVolumeRequest { volume_id: self.volumes[0].0.clone() };
        self.client.clone().controller_get_volume(first).await?;
        let nodes: u32 = options.nodes;

        self.control.call(Method::DELETE, "/_emulator/calls").await?;
        let attach = self.all(options.callers, Step::Publish).await?;
        let counters = self.control.call(Method::GET, "/_emulator/counters").await?;
        let bound = seconds(&self.control.call(Method::GET, "/_emulator/lower-bound").await?["total"]);
        let vm_writes = self.vm_writes().await?;

        self.control.call(Method::DELETE, "/_emulator/calls").await?;
        let detach = self.all(options.callers, Step::Unpublish).await?;
        let detach_bound = seconds(&self.control.call(Method::GET, "/_emulator/lower-bound").await?["total"]);
        let detach_writes = self.vm_writes().await?;
        let ratio = |run: &Run, bound: f64| if bound > 0.0 { json!(round(run.makespan / bound)) } else { Value::Null };

        Ok(json!({
            "bench": "attach-storm",
            "nodes": nodes,
            "disks": options.disks,
            "latency": options.latency,
            "callers": options.callers.unwrap_or(options.disks),
            "seed": options.seed,
            "makespan_s": round(attach.makespan),
            "lower_bound_s": round(bound),
            "ratio": ratio(&attach, bound),
            "p50_s": round(attach.percentile(50)),
            "p99_s": round(attach.percentile(99)),
            "arm_reads": counters["reads"],
            "arm_writes": counters["writes"],
            "vm_writes": vm_writes,
            "polls": counters["polls"],
            "throttled": counters["throttled"],
            "detach_makespan_s": round(detach.makespan),
            "detach_lower_bound_s": round(detach_bound),
            "detach_ratio": ratio(&detach, detach_bound),
            "detach_vm_writes": detach_writes,
            "peak_rss_bytes": processes::memory(&self.controller)?.peak,
        }))
    }

    async fn vm_writes(&self) -> Result<usize, AnyError> {
        let calls = self.control.call(Method::GET, "/_emulator/calls").await?;
        let writes = |call: &&Value| {
            call["method"] != "GET"
                && call["path"].as_str().is_some_and(|path| path.to_ascii_lowercase().contains("/virtualmachines/"))
        };
        Ok(calls.as_array().into_iter().flatten().filter(writes).count())
    }

    /// Sends one request for each volume, all at once or so many at a time.
    async fn all(&self, callers: Option<u32>, step: Step) -> Result<Run, AnyError> {
        let gate = Arc::new(Semaphore::new(callers.map_or(Semaphore::MAX_PERMITS, |callers| callers as usize)));
        let started = Instant::now();
        let mut requests = JoinSet::new();
        for (volume_id, node_id) in self.volumes.clone() {
            let (gate, client) = (gate.clone(), self.client.clone());
            requests.spawn(async move {
                let _place = gate.acquire_owned().await?;
                let sent = Instant::now();
                step.send(client, volume_id, node_id).await?;
                Ok::<_, AnyError>(sent.elapsed().as_secs_f64())
            });
        }
        let mut latencies = Vec::new();
        while let Some(latency) = requests.join_next().await {
            latencies.push(latency??);
        }
        let makespan = started.elapsed().as_secs_f64();
        latencies.sort_by(f64::total_cmp);
        Ok(Run { makespan, latencies })
    }

    async fn end(mut self) {
        for child in [&mut self.controller, &mut self.azure] {
            processes::end(child).await;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Publish,
    Unpublish,
}

impl Step {
    async fn send(
        self,
        mut client: ControllerClient<Channel>,
        volume_id: String,
        node_id: String,
    ) -> Result<(), AnyError> {
        match self {
            Self::Publish => {
                let capability = VolumeCapability {
                    access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
                    access_type: Some(AccessType::Mount(MountVolume::default())),
                };
                let request = ControllerPublishVolumeRequest {
                    volume_id,
                    node_id,
                    volume_capability: Some(capability),
                    // As a provisioned volume has it.
                    volume_context: [("requestedsizegib".to_owned(), "32".to_owned())].into(),
                    ..Default::default()
                };
                client.controller_publish_volume(request).await?;
            }
            Self::Unpublish => {
                let request = ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
                client.controller_unpublish_volume(request).await?;
            }
        }
        Ok(())
    }
}

/// How long a round took, in seconds.
struct Run {
    makespan: f64,
    latencies: Vec<f64>,
}

impl Run {
    fn percentile(&self, percent: usize) -> f64 {
        let index = (self.latencies.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies.get(index).copied().unwrap_or_default()
    }
}

/// Reads a duration as the emulator writes it: whole seconds and nanoseconds.
fn seconds(value: &Value) -> f64 {
    value["secs"].as_f64().unwrap_or_default() + value["nanos"].as_f64().unwrap_or_default() / 1e9
}

fn round(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}
