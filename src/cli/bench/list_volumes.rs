//! ListVolumes of a large cluster, from its first page to its last: the controller's memory, the time, the reads.

use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use csi_proto::csi::{ListVolumesRequest, controller_client::ControllerClient};
use http::{HeaderMap, Method};
use lazuli_azure::transport::{Routes, Tls, Transport};
use lazuli_rig::Folder;
use serde_json::{Value, json};
use tonic::transport::Channel;
use url::Url;

use super::{
    super::{number::whole, output::Format},
    figures::rounded,
    processes::{self, AnyError, Measured},
};

/// Disks of a machine of the scenario, whose size takes 64 (source: the published size tables).
const DISKS_PER_NODE: u32 = 50;
const SIZE: &str = "Standard_M128s";

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many disks, each attached to a node and tagged as the drivers tag them.
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u32>(1..=100_000))]
    disks: u32,
    /// How many times the whole list is read, one after the other.
    #[arg(long, default_value_t = 3, value_parser = whole::<u32>(1..=100))]
    lists: u32,
    /// The max_entries of each page; 0: as many as a message holds.
    #[arg(long, default_value_t = 0, value_parser = whole::<i32>(0..=i32::MAX))]
    max_entries: i32,
    #[command(flatten)]
    measured: Measured,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let result = measure(&options, &folder).await?;
    Ok((result, options.output))
}

async fn measure(options: &Options, folder: &Folder) -> Result<Value, AnyError> {
    let (scenario, config) = (folder.path().join("scenario.json"), folder.path().join("azure.json"));
    std::fs::write(&scenario, scenario_of(options.disks).to_string())?;
    let mut azure = processes::emulator(&config);
    azure.args(["--latency", "none"]).arg("--scenario").arg(&scenario);
    let (mut azure, base) = processes::ready(azure).await?;
    let socket = folder.path().join("controller.sock");
    let mut controller = processes::started(&mut options.measured.controller(&socket, &config))?;
    // The client takes messages of 4 MiB, as the sidecars do.
    let client = ControllerClient::new(processes::connected(&socket, &mut controller).await?);
    let idle = processes::memory(&controller)?;

    let control = Transport::new(Routes::none(), &Tls::default())?;
    emulator(&control, &base, Method::DELETE, "/_emulator/calls").await?;
    let (mut pages, mut seconds) = (0, Vec::new());
    for _ in 0..options.lists {
        let began = Instant::now();
        let (entries, of_this) = list(&client, options.max_entries).await?;
        seconds.push(began.elapsed().as_secs_f64());
        if entries != options.disks as usize {
            return Err(format!("{entries} volumes are listed, not {}", options.disks).into());
        }
        pages = of_this;
    }
    let counters = emulator(&control, &base, Method::GET, "/_emulator/counters").await?;
    let (memory, cpu) = (processes::memory(&controller)?, processes::cpu_time(&controller)?);
    for child in [&mut controller, &mut azure] {
        processes::end(child).await;
    }
    Ok(json!({
        "bench": "list-volumes",
        "disks": options.disks,
        "lists": options.lists,
        "max_entries": options.max_entries,
        "pages_per_list": pages,
        "first_list_s": rounded(seconds[0]),
        "slowest_list_s": rounded(seconds.iter().copied().fold(0.0, f64::max)),
        "arm_reads": counters["reads"],
        "throttled": counters["throttled"],
        "rss_before_bytes": idle.now,
        "rss_after_bytes": memory.now,
        "peak_rss_bytes": memory.peak,
        "program_rss_bytes": memory.program,
        "cpu_s": rounded(cpu.as_secs_f64()),
    }))
}

/// Machines full of disks, with names and tags as long as those of provisioned volumes.
fn scenario_of(disks: u32) -> Value {
    let disk = |n: u32| {
        let volume = format!("pvc-{n:08x}-0000-4000-8000-{n:012x}");
        json!({
            "name": volume,
            "sizeGib": 32,
            "sku": "Premium_LRS",
            "attachTo": { "vm": format!("node-{}", n / DISKS_PER_NODE), "lun": n % DISKS_PER_NODE },
            "tags": {
                "k8s-azure-created-by": "kubernetes-azure-dd",
                "kubernetes.io-created-for-pv-name": volume,
                "kubernetes.io-created-for-pvc-name": format!("data-database-{n}"),
                "kubernetes.io-created-for-pvc-namespace": "production",
            },
        })
    };
    json!({
        "virtualMachines": [{ "name": "node-{}", "count": disks.div_ceil(DISKS_PER_NODE), "size": SIZE }],
        "disks": (0..disks).map(disk).collect::<Vec<_>>(),
    })
}

/// Reads a list to its end, and says how many volumes and how many pages it has.
async fn list(client: &ControllerClient<Channel>, max_entries: i32) -> Result<(usize, usize), AnyError> {
    let (mut entries, mut pages, mut starting_token) = (0, 0, String::new());
    loop {
        let request = ListVolumesRequest { max_entries, starting_token };
        let page = client.clone().list_volumes(request).await?.into_inner();
        entries += page.entries.len();
        pages += 1;
        if page.next_token.is_empty() {
            return Ok((entries, pages));
        }
        starting_token = page.next_token;
    }
}

/// A call of the emulator's control interface.
async fn emulator(transport: &Transport, base: &Url, method: Method, path: &str) -> Result<Value, AnyError> {
    let answer = transport.send(method, &base.join(path)?, HeaderMap::new(), Bytes::new()).await?;
    if !answer.status().is_success() {
        return Err(format!("the emulator answers {} to {path}", answer.status()).into());
    }
    Ok(serde_json::from_slice(answer.body()).unwrap_or(Value::Null))
}
