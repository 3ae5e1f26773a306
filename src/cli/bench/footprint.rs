//! What the provider costs while it does nothing: the size of the program, and the memory of controller and node.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use csi_proto::csi::{
    ListVolumesRequest, NodeGetInfoRequest, controller_client::ControllerClient, node_client::NodeClient,
};
use lazuli_rig::Folder;
use serde_json::{Value, json};

use super::{
    super::{Outcome, number::whole, output::Format},
    processes::{self, AnyError},
};

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Which program to measure, such as the one of an image, which is built without the emulator; default: this one.
    #[arg(long, value_name = "FILE", default_value = processes::THIS_PROGRAM, hide_default_value = true)]
    program: PathBuf,
    /// How long to let the processes rest after their first call, in seconds.
    #[arg(long, default_value_t = 5, value_parser = whole::<u64>(0..=u64::MAX))]
    rest_seconds: u64,
    /// How to print.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
}

pub(super) async fn run(options: Options) -> Outcome {
    let folder = Folder::make("bench")?;
    let result = measure(&folder, &options.program, Duration::from_secs(options.rest_seconds)).await?;
    options.output.print_object(&result);
    Ok(())
}

async fn measure(folder: &Folder, program: &Path, rest: Duration) -> Result<Value, AnyError> {
    let binary =
        std::fs::metadata(program).map_err(|error| format!("cannot measure {}: {error}", program.display()))?;
    let config = folder.path().join("azure.json");
    let (mut azure, url) = processes::ready(processes::emulator(&config)).await?;
    let (at_controller, at_node) = (folder.path().join("controller.sock"), folder.path().join("node.sock"));
    let mut controller = processes::controller_of(program, &at_controller, &config).spawn()?;
    let mut node = processes::node_of(program, &at_node, &url.join("/_imds/node-0")?).spawn()?;
    // One call each, so that what every process needs sooner or later is there: a token, connections, buffers.
    let mut controllers = ControllerClient::new(processes::connected(&at_controller).await?);
    controllers.list_volumes(ListVolumesRequest::default()).await?;
    let mut nodes = NodeClient::new(processes::connected(&at_node).await?);
    nodes.node_get_info(NodeGetInfoRequest {}).await?;
    tokio::time::sleep(rest).await;
    let (of_controller, of_node) = (processes::memory(&controller)?, processes::memory(&node)?);
    for child in [&mut node, &mut controller, &mut azure] {
        processes::end(child).await;
    }
    Ok(json!({
        "bench": "footprint",
        "binary_bytes": binary.len(),
        "controller_rss_bytes": of_controller.now,
        "controller_peak_rss_bytes": of_controller.peak,
        "node_rss_bytes": of_node.now,
        "node_peak_rss_bytes": of_node.peak,
    }))
}
