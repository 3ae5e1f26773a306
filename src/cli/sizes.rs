//! Keeps what is known of VM sizes up to date while a process runs: the controller asks Azure about sizes that the
//! shipped table lacks and publishes them in a ConfigMap; a node plugin reads the files of that ConfigMap's volume.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use lazuli_azure::{Until, compute::Compute};
use lazuli_cluster::{SizesError, mounted_sizes, publish_sizes, published_sizes};
use lazuli_csi::server::chain;
use lazuli_model::{
    node::ClusterNodes,
    size::{self, SizeLimits},
};
use tokio::{sync::watch, time::sleep};
use tokio_util::sync::CancellationToken;

/// How soon after a failure.
const AGAIN: Duration = Duration::from_secs(5 * 60);
/// How often a node plugin looks into the volume. kubelet brings it up to date about once a minute.
const LOOK: Duration = Duration::from_secs(60);
/// How long Azure's list may take: it is megabytes.
const LIST: Duration = Duration::from_secs(120);

/// A region's sizes, as Azure lists them.
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
    let mut news = News { client, region, known, published: SizeLimits::default(), asked: BTreeSet::new() };
    let work = async {
        // What an earlier process learned need not be asked for again, also of pools that have no node now.
        if let Ok(published) = published_sizes(&news.client).await {
            news.published = published.clone();
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
    /// What was published to the nodes.
    published: SizeLimits,
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

    /// Whether there is a size to ask about, or an answer that is not published to the nodes yet.
    fn has_work(&self, nodes: &ClusterNodes) -> bool {
        *self.known.borrow() != self.published || !self.unknown(nodes).is_empty()
    }

    async fn learn(&mut self, news: Vec<String>) -> Result<(), KeepError> {
        if !news.is_empty() {
            self.ask(news).await?;
        }
        let known = self.known.borrow().clone();
        if known != self.published {
            publish_sizes(&self.client, &known).await?;
            self.published = known;
        }
        Ok(())
    }

    /// Asks Azure about sizes of the cluster. Of its list for the whole region only these are kept.
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

/// For a node: the folder where what the controller has published is mounted.
pub(super) struct Published {
    folder: PathBuf,
    known: watch::Sender<SizeLimits>,
    /// The last failure, which is logged once.
    failure: Option<String>,
}

impl Published {
    /// What the folder holds now, and as it changes while [`Published::follow`] runs.
    pub(super) async fn open(folder: PathBuf) -> (Self, watch::Receiver<SizeLimits>) {
        let (known, sizes) = watch::channel(SizeLimits::default());
        let mut published = Self { folder, known, failure: None };
        published.look().await;
        (published, sizes)
    }

    /// Looks again and again until `stop`.
    pub(super) async fn follow(mut self, stop: CancellationToken) {
        let work = async {
            loop {
                sleep(LOOK).await;
                self.look().await;
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// What cannot be read changes nothing.
    async fn look(&mut self) {
        let folder = self.folder.clone();
        let failure = match tokio::task::spawn_blocking(move || mounted_sizes(&folder)).await {
            Ok(Ok(limits)) => {
                let count = limits.iter().count();
                let is_new = |known: &mut SizeLimits| {
                    let is_new = *known != limits;
                    *known = limits;
                    is_new
                };
                if self.known.send_if_modified(is_new) {
                    tracing::info!(sizes = count, "VM sizes newer than this program's table are known");
                }
                None
            }
            Ok(Err(error)) => Some(chain(&error)),
            Err(error) => Some(chain(&error)),
        };
        if let Some(error) = failure.as_ref().filter(|failure| self.failure.as_ref() != Some(failure)) {
            tracing::warn!(
                error,
                "published VM sizes cannot be read; those from before and this program's table count"
            );
        }
        self.failure = failure;
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::*;

    /// Writes a ConfigMap's content as kubelet does: a new folder, and one symbolic link that changes to it.
    fn publish(folder: &Path, version: &str, sizes: &[(&str, &str)]) {
        let version = format!("..{version}");
        fs::create_dir_all(folder.join(&version)).unwrap();
        for (name, count) in sizes {
            fs::write(folder.join(&version).join(name), count).unwrap();
            let _ = symlink(format!("..data/{name}"), folder.join(name));
        }
        symlink(&version, folder.join("..data_tmp")).unwrap();
        fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_mounted_of_newer_sizes_may_be_absent_come_change_and_go() {
        let base = std::env::temp_dir().join(format!("lazuli-vm-sizes-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        let folder = base.join("mounted");
        let (published, sizes) = Published::open(folder.clone()).await;
        let stop = CancellationToken::new();
        let following = tokio::spawn(published.follow(stop.clone()));
        let of = |name: &str| sizes.borrow().max_data_disks(name);
        assert_eq!(of("Standard_D2s_v99"), None);
        // From here on the folder changes in the middle between two looks.
        sleep(LOOK / 2).await;

        publish(&folder, "1", &[("Standard_D2s_v99", "6\n"), ("Standard_E4s_v99", "many")]);
        sleep(LOOK * 2).await;
        assert_eq!((of("standard_d2s_v99"), of("Standard_E4s_v99")), (Some(6), None));
        publish(&folder, "2", &[("Standard_D2s_v99", "8"), ("Standard_E4s_v99", "12")]);
        sleep(LOOK * 2).await;
        assert_eq!((of("Standard_D2s_v99"), of("Standard_E4s_v99")), (Some(8), Some(12)));
        // A process that starts now knows them at once.
        assert_eq!(Published::open(folder.clone()).await.1.borrow().max_data_disks("Standard_D2s_v99"), Some(8));
        // A folder that cannot be read says nothing new.
        fs::remove_dir_all(&folder).unwrap();
        fs::write(&folder, "").unwrap();
        sleep(LOOK * 2).await;
        assert_eq!(of("Standard_D2s_v99"), Some(8));
        fs::remove_file(&folder).unwrap();
        sleep(LOOK * 2).await;
        assert_eq!(of("Standard_D2s_v99"), None);
        stop.cancel();
        following.await.unwrap();
        fs::remove_dir_all(&base).unwrap();
    }
}
