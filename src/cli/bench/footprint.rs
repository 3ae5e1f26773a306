//! What the provider costs while it does nothing: the size of the program, and the memory of controller and node.

use std::time::Duration;

use clap::Args;
use csi_proto::csi::{
    ListVolumesRequest, NodeGetInfoRequest, controller_client::ControllerClient, node_client::NodeClient,
};
use lazuli_rig::Folder;
use serde_json::{Value, json};

use super::{
    super::{number::whole, output::Format},
    figures::rounded,
    processes::{self, AnyError, Measured},
};

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(flatten)]
    measured: Measured,
    /// How long to let the processes rest after their first call, in seconds.
    #[arg(long, default_value_t = 5, value_parser = whole::<u64>(0..=u64::MAX))]
    rest_seconds: u64,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let folder = Folder::make("bench")?;
    let result = measure(&folder, &options.measured, Duration::from_secs(options.rest_seconds)).await?;
    Ok((result, options.output))
}

async fn measure(folder: &Folder, measured: &Measured, rest: Duration) -> Result<Value, AnyError> {
    let config = folder.path().join("azure.json");
    let (mut azure, url) = processes::ready(processes::emulator(&config)).await?;
    let (at_controller, at_node) = (folder.path().join("controller.sock"), folder.path().join("node.sock"));
    let mut controller = processes::started(&mut measured.controller(&at_controller, &config))?;
    let mut node = processes::started(&mut measured.node(&at_node, &url.join("/_imds/node-0")?))?;
    // One call each, so that what every process needs sooner or later is there: a token, connections, buffers.
    let mut controllers = ControllerClient::new(processes::connected(&at_controller, &mut controller).await?);
    controllers.list_volumes(ListVolumesRequest::default()).await?;
    let mut nodes = NodeClient::new(processes::connected(&at_node, &mut node).await?);
    nodes.node_get_info(NodeGetInfoRequest {}).await?;
    tokio::time::sleep(rest).await;
    let (of_controller, of_node) = (processes::memory(&controller)?, processes::memory(&node)?);
    let [controller_cpu, node_cpu] = [processes::cpu_time(&controller)?, processes::cpu_time(&node)?];
    for child in [&mut node, &mut controller, &mut azure] {
        processes::end(child).await;
    }
    Ok(json!({
        "bench": "footprint",
        "binary_bytes": measured.size()?,
        "controller_rss_bytes": of_controller.now,
        "controller_peak_rss_bytes": of_controller.peak,
        "controller_program_rss_bytes": of_controller.program,
        "controller_cpu_s": rounded(controller_cpu.as_secs_f64()),
        "node_rss_bytes": of_node.now,
        "node_peak_rss_bytes": of_node.peak,
        "node_program_rss_bytes": of_node.program,
        "node_cpu_s": rounded(node_cpu.as_secs_f64()),
    }))
}
