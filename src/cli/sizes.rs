//! Keeps what is known of VM sizes up to date while a process runs: the controller asks Azure about sizes that the
//! shipped table lacks and tells the nodes; a node listens.

use std::{collections::BTreeSet, time::Duration};

use lazuli_azure::{Until, compute::Compute};
use lazuli_plan::{
    node::ClusterNodes,
    size::{self, SizeLimits},
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

use lazuli_cluster::{SizesError, publish_sizes, published_sizes};
use lazuli_csi::server::chain;

/// How often a node reads what is published.
const EVERY: Duration = Duration::from_secs(60 * 60);
/// How soon after a failure.
const AGAIN: Duration = Duration::from_secs(5 * 60);
/// How long Azure's list may take: it is megabytes.
const LIST: Duration = Duration::from_secs(120);

/// A region's sizes, as Azure tells them.
pub(super) struct Region {
    pub(super) compute: Compute,
    pub(super) subscription: String,
    pub(super) location: String,
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error(transparent)]
    Cluster(#[from] SizesError),
    #[error("cannot list the VM sizes of {location}")]
    Azure {
        location: String,
        #[source]
        source: Box<lazuli_azure::error::ArmError>,
    },
}

/// For the controller: asks about sizes that the cluster's Nodes have and the table does not, until `stop`. Costs Azure
/// nothing where there are none.
pub(super) async fn keep(
    client: Option<kube::Client>,
    mut nodes: watch::Receiver<ClusterNodes>,
    region: Region,
    known: watch::Sender<SizeLimits>,
    stop: CancellationToken,
) {
    let Some(client) = client else { return };
    let mut news = News { client, region, known, told: SizeLimits::default(), asked: BTreeSet::new() };
    let work = async {
        // What an earlier process learned need not be asked for again, also of pools that have no node now.
        if let Ok(published) = published_sizes(&news.client).await {
            news.told = published.clone();
            news.known.send_replace(published);
        }
        loop {
            let found = match nodes.wait_for(|nodes| news.has_work(nodes)).await {
                Ok(nodes) => news.unknown(&nodes),
                // The watch of the Nodes has ended, and with it the process.
                Err(_) => return,
            };
            if let Err(error) = news.learn(found).await {
                tracing::warn!(error = chain(&error), "VM sizes newer than this program stay unknown for now");
                sleep(AGAIN).await;
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

struct News {
    client: kube::Client,
    region: Region,
    known: watch::Sender<SizeLimits>,
    /// What the nodes have been told.
    told: SizeLimits,
    /// Sizes that Azure was asked about; those it did not tell are not asked about again.
    asked: BTreeSet<String>,
}

impl News {
    /// The VM sizes of the cluster's nodes that are known neither here nor to Azure's last answer.
    fn unknown(&self, nodes: &ClusterNodes) -> Vec<String> {
        let known = self.known.borrow();
        let is_news = |name: &&str| known.max_data_disks(name).is_none() && !self.asked.contains(*name);
        nodes.vm_sizes().into_iter().filter(is_news).map(str::to_owned).collect()
    }

    /// Whether there is a size to ask about, or an answer that the nodes have not been told.
    fn has_work(&self, nodes: &ClusterNodes) -> bool {
        *self.known.borrow() != self.told || !self.unknown(nodes).is_empty()
    }

    async fn learn(&mut self, news: Vec<String>) -> Result<(), KeepError> {
        if !news.is_empty() {
            self.ask(news).await?;
        }
        let known = self.known.borrow().clone();
        if known != self.told {
            publish_sizes(&self.client, &known).await?;
            self.told = known;
        }
        Ok(())
    }

    /// Asks Azure about sizes of the cluster. Of what it tells of a whole region only these are kept.
    async fn ask(&mut self, news: Vec<String>) -> Result<(), KeepError> {
        let Region { compute, subscription, location } = &self.region;
        let sizes = compute
            .vm_sizes(subscription, location, &Until::within(LIST))
            .await
            .map_err(|source| KeepError::Azure { location: location.clone(), source: Box::new(source) })?;
        let wanted = |name: &str| news.iter().any(|size| size.eq_ignore_ascii_case(name));
        let found = sizes.into_iter().filter(|(name, _)| wanted(name));
        let before = self.known.borrow().clone();
        let limits = SizeLimits::new(before.iter().map(|(name, count)| (name.to_owned(), count)).chain(found));
        for name in news.iter().filter(|name| limits.max_data_disks(name).is_none()) {
            let most = size::DEFAULT_MAX_DATA_DISKS;
            tracing::warn!(size = name, most, "Azure does not tell how many data disks this VM size takes");
        }
        tracing::info!(sizes = limits.iter().count(), "VM sizes newer than this program's table are known");
        self.asked.extend(news);
        self.known.send_replace(limits);
        Ok(())
    }
}

/// For a node: what the controller has published, until `stop`. A failure is told as well, as no news: see [`first`].
pub(super) async fn listen(client: Option<kube::Client>, known: watch::Sender<SizeLimits>, stop: CancellationToken) {
    let Some(client) = client else { return };
    let work = async {
        loop {
            match published_sizes(&client).await {
                Ok(limits) => {
                    known.send_replace(limits);
                    sleep(EVERY).await;
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::warn!(error, "published VM sizes cannot be read; this program's table counts");
                    known.send_modify(|_| {});
                    sleep(AGAIN).await;
                }
            }
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Waits for the first answer, but not long: kubelet asks once, and a node without the answer is better than none.
pub(super) async fn first(known: &mut watch::Receiver<SizeLimits>) {
    const PATIENCE: Duration = Duration::from_secs(3);
    if tokio::time::timeout(PATIENCE, known.changed()).await.is_err() {
        tracing::warn!("no answer yet about VM sizes newer than this program's table");
    }
}
