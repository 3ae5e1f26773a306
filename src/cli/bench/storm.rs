//! What the benches of many volumes share: their options, the processes, and a row of figures for a phase.
//!
//! A phase begins at the emulator the moment its first call is sent, and nothing is done between two phases: each has
//! the buckets that the one before it has left.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use csi_proto::csi::ControllerGetCapabilitiesRequest;
use lazuli_model::ArmId;
use serde_json::{Map, Value, json};
use tokio::process::Child;

use super::super::number::whole;
use super::{
    super::output::Format,
    control::{Begun, Control},
    figures::{self, rounded},
    processes::{self, AnyError, Measured},
    sidecars::{Round, Sidecars, Step, Volume},
};

/// Machine sizes by how many data disks they take (source: the published size tables).
const SIZES: [(u32, &str); 5] = [
    (4, "Standard_D2s_v3"),
    (8, "Standard_D4s_v3"),
    (16, "Standard_D8s_v3"),
    (32, "Standard_D16s_v3"),
    (64, "Standard_M128s"),
];

/// So many files and connections a process of a bench may have open, if the system lets it: a call that waits for
/// Azure may hold a connection.
const OPEN_FILES: u64 = 65_536;

/// Options of all benches of many volumes.
#[derive(Debug, Args)]
pub(super) struct StormOptions {
    /// How long Azure takes: none, typical, azure, bad-day, or a file.
    #[arg(long, default_value = "typical")]
    pub(super) latency: String,
    /// At most so many calls at a time; default: all.
    #[arg(long, value_parser = whole::<u32>(1..=u32::MAX))]
    pub(super) callers: Option<u32>,
    /// Seed of Azure's latencies.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(super) seed: u64,
    /// Retry-After, in seconds, on accepted operations and their polls.
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX))]
    retry_after: Option<u64>,
    /// How data disks are written: auto, action or whole-list.
    #[arg(long, default_value = "auto")]
    attach_method: String,
    /// Where no recording and no document says what Azure does, do this (see `lazuli emulator --help`); can be given
    /// again.
    #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',')]
    unverified: Vec<String>,
    #[command(flatten)]
    measured: Measured,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    pub(super) output: Format,
}

/// Options of the benches that spread volumes over nodes.
#[derive(Debug, Args)]
pub(super) struct SpreadOptions {
    /// How many nodes.
    #[arg(long, default_value_t = 10, value_parser = whole::<u32>(1..=5000))]
    pub(super) nodes: u32,
    /// How many volumes, spread evenly over the nodes; at most 64 a node.
    #[arg(long, default_value_t = 160, value_parser = whole::<u32>(1..=64_000))]
    pub(super) disks: u32,
    /// What the nodes are: VMs of their own, or instances of scale sets, of which each has 1,000.
    #[arg(long, value_enum, default_value_t = VmKind::Standalone)]
    vm_kind: VmKind,
    #[command(flatten)]
    pub(super) storm: StormOptions,
}

/// What nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum VmKind {
    Standalone,
    Uniform,
    Flexible,
}

impl VmKind {
    fn name(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Uniform => "uniform",
            Self::Flexible => "flexible",
        }
    }
}

/// How many instances a scale set has at most (source: Azure's published limits).
const INSTANCES: u32 = 1000;

impl SpreadOptions {
    /// Starts both processes, with one call at a time for each managed disk. `disks` are those that exist at the start.
    pub(super) async fn start_disks(&self, disks: Value, folder: &Path) -> Result<Storm, AnyError> {
        self.start(disks, folder, Served::Disks).await
    }

    /// The same for disks of either kind.
    pub(super) async fn start(&self, disks: Value, folder: &Path, served: Served) -> Result<Storm, AnyError> {
        let size = size(self.nodes, self.disks)?;
        let scenario = match self.vm_kind {
            VmKind::Standalone if served == Served::BlobDisks => {
                json!({ "virtualMachines": machines_of_blobs(self.nodes, size), "disks": disks })
            }
            VmKind::Uniform | VmKind::Flexible if served == Served::BlobDisks => {
                return Err("an instance of a scale set takes no blob disks; use --vm-kind standalone".into());
            }
            VmKind::Standalone => json!({ "virtualMachines": machines(self.nodes, size), "disks": disks }),
            VmKind::Uniform | VmKind::Flexible => {
                let sets = (0..self.nodes.div_ceil(INSTANCES)).map(|set| {
                    let count = (self.nodes - set * INSTANCES).min(INSTANCES);
                    let orchestration = self.vm_kind.name();
                    json!({ "name": format!("set{set}"), "count": count, "orchestration": orchestration, "size": size })
                });
                json!({ "virtualMachines": [], "scaleSets": sets.collect::<Vec<_>>(), "disks": disks })
            }
        };
        Storm::start(&self.storm, &scenario, self.disks, folder, served).await
    }

    /// The node ids of all nodes. Without Nodes to ask, the controller knows an instance of a uniform set by its id, and one
    /// of a flexible set by the name that the machine gives itself.
    pub(super) fn node_ids(&self, storm: &Storm) -> Vec<String> {
        let id = |node: u32| {
            let (set, instance) = (node / INSTANCES, node % INSTANCES);
            match self.vm_kind {
                VmKind::Standalone => standalone(node),
                VmKind::Flexible => format!("set{set}{}", six_digits(instance)),
                VmKind::Uniform => format!(
                    "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachineScaleSets/set{set}\
                     /virtualMachines/{instance}",
                    storm.subscription, storm.resource_group
                ),
            }
        };
        (0..self.nodes).map(id).collect()
    }

    /// What was measured, as the result names it.
    pub(super) fn describe(&self, bench: &str) -> Map<String, Value> {
        [
            ("bench", json!(bench)),
            ("nodes", json!(self.nodes)),
            ("disks", json!(self.disks)),
            ("vm_kind", json!(self.vm_kind.name())),
            ("latency", json!(self.storm.latency)),
            ("callers", json!(self.storm.callers.unwrap_or(self.disks))),
            ("seed", json!(self.storm.seed)),
        ]
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
    }
}

/// The smallest machine that takes its share of the disks.
pub(super) fn size(nodes: u32, disks: u32) -> Result<&'static str, AnyError> {
    let per_node = disks.div_ceil(nodes.max(1));
    let size = SIZES.iter().find(|(takes, _)| *takes >= per_node).map(|(_, size)| *size);
    size.ok_or_else(|| format!("{nodes} nodes take at most {} disks, not {disks}", nodes * 64).into())
}

/// The name of a node that is a VM of its own.
pub(super) fn standalone(node: u32) -> String {
    format!("node-{node}")
}

/// A number as Azure ends the computer names of instances: in base 36, with six digits.
fn six_digits(mut number: u32) -> String {
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdefghijklmnopqrstuvwxyz"[(number % 36) as usize];
        number /= 36;
    }
    digits.iter().map(|digit| char::from(*digit)).collect()
}

/// The machines of a scenario.
pub(super) fn machines(nodes: u32, size: &str) -> Value {
    json!([{ "name": "node-{}", "count": nodes, "size": size }])
}

/// The same with system disks that are blobs.
fn machines_of_blobs(nodes: u32, size: &str) -> Value {
    json!([{ "name": "node-{}", "count": nodes, "size": size, "osDisk": { "storageAccount": "systemdisks" } }])
}

/// What a storm is about: a driver, and of the one of disks which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Served {
    Disks,
    /// Blob services are reached over TLS alone.
    BlobDisks,
    Shares,
}

/// An emulator and a controller, each a process of its own.
pub(super) struct Storm {
    azure: Child,
    controller: Child,
    pub(super) control: Control,
    pub(super) sidecars: Sidecars,
    pub(super) subscription: String,
    pub(super) resource_group: String,
    pub(super) tenant: String,
    served: Served,
    phases: Vec<Phase>,
}

/// A phase that is over.
struct Phase {
    step: Step,
    begun: Begun,
    round: Round,
}

impl Storm {
    /// Starts both processes and connects; `calls` is how many calls there are at most at a time.
    pub(super) async fn start(
        options: &StormOptions,
        scenario: &Value,
        calls: u32,
        folder: &Path,
        served: Served,
    ) -> Result<Self, AnyError> {
        processes::allow_open_files(OPEN_FILES);
        let (scenario_file, config): (PathBuf, PathBuf) = (folder.join("scenario.json"), folder.join("azure.json"));
        std::fs::write(&scenario_file, scenario.to_string())?;
        let mut azure = processes::emulator(&config);
        azure.arg("--latency").arg(&options.latency).arg("--scenario").arg(&scenario_file);
        azure.args(["--seed", &options.seed.to_string()]);
        if let Some(seconds) = options.retry_after {
            azure.args(["--retry-after", &seconds.to_string()]);
        }
        for switch in &options.unverified {
            azure.args(["--unverified", switch]);
        }
        let certificates = folder.join("tls");
        if served == Served::BlobDisks {
            azure.args(["--tls", "127.0.0.1:0"]).arg("--tls-dir").arg(&certificates);
        }
        let (azure, base) = processes::ready(azure).await?;
        let socket = folder.join("csi.sock");
        let mut controller = options.measured.controller(&socket, &config);
        if served == Served::BlobDisks {
            controller.arg("--azure-ca-file").arg(certificates.join("ca.pem"));
        }
        controller.args(["--attach-method", &options.attach_method]);
        let of_files = folder.join("file.sock");
        if served == Served::Shares {
            controller.arg("--file-endpoint").arg(format!("unix://{}", of_files.display()));
        }
        let mut controller = processes::started(&mut controller)?;
        let socket = if served == Served::Shares { of_files } else { socket };
        let callers = options.callers.unwrap_or(calls).min(calls).max(1);
        let sidecars = Sidecars::connect(&socket, &mut controller, usize::try_from(callers)?).await?;
        sidecars.client().controller_get_capabilities(ControllerGetCapabilitiesRequest {}).await?;
        let text: Value = serde_json::from_str(&std::fs::read_to_string(&config)?)?;
        let word = |key: &str| text[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            azure,
            controller,
            control: Control::new(base)?,
            sidecars,
            subscription: word("subscriptionId"),
            resource_group: word("resourceGroup"),
            tenant: word("tenantId"),
            served,
            phases: Vec::new(),
        })
    }

    /// Volumes whose disks the scenario has.
    pub(super) fn existing(
        &self,
        names: impl Iterator<Item = String>,
        nodes: &[String],
    ) -> Result<Vec<Volume>, AnyError> {
        let mut volumes = to_be_made(names, nodes);
        for volume in &mut volumes {
            volume.id = ArmId::disk(&self.subscription, &self.resource_group, &volume.name)?.to_string();
            // As a provisioned volume has it.
            volume.context = [("requestedsizegib".to_owned(), "32".to_owned())].into();
        }
        Ok(volumes)
    }

    /// Runs a phase: one call for every volume.
    pub(super) async fn phase(&mut self, step: Step, volumes: &mut [Volume]) -> Result<(), AnyError> {
        let begun = self.control.begin(step.name()).await?;
        // A process that has died answers nothing any more, and the sidecars would repeat their calls for hours.
        let round = tokio::select! {
            round = self.sidecars.all(step, volumes) => round?,
            status = self.controller.wait() => {
                return Err(format!("the controller ended during {}: {}", step.name(), status?).into());
            }
            status = self.azure.wait() => {
                return Err(format!("the emulator ended during {}: {}", step.name(), status?).into());
            }
        };
        self.phases.push(Phase { step, begun, round });
        Ok(())
    }

    /// A row of figures for each phase, in order, after the last of them.
    pub(super) async fn rows(&self) -> Result<Vec<Map<String, Value>>, AnyError> {
        let all = self.control.phases().await?;
        let mut rows = Vec::new();
        for Phase { step, begun, round } in &self.phases {
            let counted = all.iter().find(|phase| phase["number"] == begun.number);
            let counted = counted.ok_or_else(|| format!("the emulator has forgotten phase {}", step.name()))?;
            let operations = self.control.operations(begun.number).await?;
            let mut row = figures::row(*step, *begun, round, counted, &operations);
            if self.served == Served::BlobDisks {
                row.extend(figures::blob_requests(counted));
            }
            rows.push(row);
        }
        Ok(rows)
    }

    /// How long it took until the first call of a phase was answered, in seconds.
    pub(super) fn first_answer(&self, step: Step) -> f64 {
        let phase = self.phases.iter().filter(|phase| phase.step == step);
        let answers = phase.flat_map(|phase| &phase.round.answers);
        let shortest = answers.map(|call| call.answered.duration_since(call.sent)).min();
        shortest.unwrap_or_default().as_secs_f64()
    }

    /// What the controller cost: the most memory that it held, what its program's file has of that, in bytes, and its
    /// processor time.
    pub(super) fn costs(&self) -> Result<[(String, Value); 3], AnyError> {
        let memory = processes::memory(&self.controller)?;
        let cpu = processes::cpu_time(&self.controller)?.as_secs_f64();
        let costs = [
            ("peak_rss_bytes", json!(memory.peak)),
            ("program_rss_bytes", json!(memory.program)),
            ("cpu_s", rounded(cpu)),
        ];
        Ok(costs.map(|(name, value)| (name.to_owned(), value)))
    }

    pub(super) async fn end(mut self) {
        for child in [&mut self.controller, &mut self.azure] {
            processes::end(child).await;
        }
    }
}

/// Volumes that are only a name, spread evenly over the nodes.
pub(super) fn to_be_made(names: impl Iterator<Item = String>, nodes: &[String]) -> Vec<Volume> {
    names
        .zip(nodes.iter().cycle())
        .map(|(name, node)| Volume {
            name,
            id: String::new(),
            context: Default::default(),
            node: node.clone(),
            parameters: vec![("skuName".to_owned(), "Premium_LRS".to_owned())],
            snapshot_name: String::new(),
            snapshot: String::new(),
        })
        .collect()
}

/// What all phases of a run sum up to.
pub(super) async fn totals(storm: &Storm, rows: &[Map<String, Value>]) -> Result<Map<String, Value>, AnyError> {
    let sum = |name: &str| rows.iter().filter_map(|row| row[name].as_u64()).sum::<u64>();
    let makespan: f64 = rows.iter().filter_map(|row| row["makespan_s"].as_f64()).sum();
    let bound = storm.control.lower_bound().await?;
    let mut totals = Map::new();
    totals.insert("makespan_s".into(), rounded(makespan));
    totals.insert("lower_bound_s".into(), rounded(bound));
    totals.insert("ratio".into(), figures::ratio(makespan, bound));
    for name in ["arm_reads", "arm_writes", "arm_deletes", "polls", "list_pages", "throttled", "repeated_rpcs"] {
        totals.insert(name.into(), json!(sum(name)));
    }
    if rows.iter().any(|row| row.contains_key("blob_reads")) {
        for name in ["blob_reads", "blob_writes"] {
            totals.insert(name.into(), json!(sum(name)));
        }
    }
    let calls = sum("arm_reads") + sum("arm_writes");
    totals.insert("throttled_share".into(), figures::share(sum("throttled"), calls));
    totals.extend(storm.costs()?);
    Ok(totals)
}
