//! The clients of commands that people run, which end.

use lazuli_assembly::clients::{self, Azure, CloudOptions};
use lazuli_config::Config;
use prometheus_client::registry::Registry;

use super::csi_controller::seed;

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// The clients of Azure.
pub(super) async fn azure_of(cloud: &CloudOptions, config: &Config) -> Result<Azure, AnyError> {
    Ok(clients::connect(config, cloud.table()?, &mut Registry::default(), seed()).await?)
}

/// The cluster, where there is one, the configuration, and the clients of Azure.
pub(super) async fn connected(cloud: &CloudOptions) -> Result<(Option<kube::Client>, Config, Azure), AnyError> {
    let client = clients::cluster(cloud).await?;
    let config = clients::configuration(cloud, client.as_ref()).await?;
    let azure = azure_of(cloud, &config).await?;
    Ok((client, config, azure))
}
