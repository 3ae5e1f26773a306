//! The cluster's Nodes, what requests have found of their VMs, and the lists of machines.
//!
//! Which VM a node is decides [`lazuli_storage::publish`].

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{
    FutureExt, TryFutureExt,
    future::{BoxFuture, WeakShared},
};
use lazuli_azure::error::ArmError;
use lazuli_model::{ArmId, Vm, node::ClusterNodes};
use lazuli_storage::publish::{MachineList, NodeMemory};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::{client::Client, cluster_snapshot::ClusterSnapshot};

/// How old the list of VMs may be in which a node is searched. Single reads of the VM and the disk prove the result.
const LIST_AGE: Duration = Duration::from_secs(2);

/// Machines of a list.
type Machines = Result<Arc<Vec<Vm>>, ArmError>;

/// A list of VMs that is being read for several callers.
type WeakVmList = WeakShared<BoxFuture<'static, Machines>>;

async fn read(of: MachineList, client: Client) -> Result<Vec<Vm>, ArmError> {
    match of {
        MachineList::Group { subscription, group } => client.list_vms(&subscription, &group).await,
        MachineList::ScaleSet(set) => client.list_instances(&set).await,
    }
}

/// The nodes and their VMs, in both directions.
#[derive(Clone)]
pub(crate) struct Nodes {
    subscription: String,
    resource_group: String,
    /// What Kubernetes says of them.
    cluster: ClusterSnapshot<ClusterNodes>,
    memory: Arc<Mutex<NodeMemory>>,
    /// Of each list the reading that was begun last, and when; empty once no caller waits for it.
    latest: Arc<Mutex<BTreeMap<MachineList, (Instant, WeakVmList)>>>,
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("resource_group", &self.resource_group).field("memory", &self.memory).finish()
    }
}

impl Nodes {
    pub(crate) fn new(subscription: &str, resource_group: &str, cluster: watch::Receiver<ClusterNodes>) -> Self {
        Self {
            subscription: subscription.into(),
            resource_group: resource_group.into(),
            cluster: ClusterSnapshot::new(cluster, |nodes| *nodes != ClusterNodes::Cold),
            memory: Arc::default(),
            latest: Arc::default(),
        }
    }

    /// What requests have found.
    pub(crate) fn memory(&self) -> MutexGuard<'_, NodeMemory> {
        // A change is two insertions. One of them alone does no harm.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What Kubernetes says of the nodes.
    pub(crate) fn cluster(&self) -> watch::Ref<'_, ClusterNodes> {
        self.cluster.now()
    }

    /// Waits until the Nodes are known, at most so long.
    pub(crate) async fn known_within(&self, longest: Duration) {
        let _ = timeout(longest, self.cluster.known()).await;
    }

    /// The name of the node that a VM is: as Kubernetes spells it where that is known, else the VM's own.
    pub(crate) fn name_of(&self, vm: &ArmId) -> String {
        let cluster = self.cluster.now();
        self.memory().name_of(&cluster, vm)
    }

    /// The instance of a scale set of the cluster's resource group whose computer has this name.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(crate) async fn instance_named(&self, client: &Client, computer: &str) -> Result<Option<Vm>, ArmError> {
        client.instance_named(&self.subscription, &self.resource_group, computer).await
    }

    /// The machines of a list, and a time before it was sent. All who ask within a while share one reading, unless it was
    /// begun before `not_before`.
    ///
    /// # Errors
    /// Azure's own failures.
    pub(crate) async fn list(
        &self,
        client: &Client,
        of: MachineList,
        not_before: Option<Instant>,
    ) -> Result<(Instant, Arc<Vec<Vm>>), ArmError> {
        let (began, list) = {
            let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
            let is_fresh = |began: &Instant| {
                began.elapsed() <= LIST_AGE && not_before.is_none_or(|not_before| *began >= not_before)
            };
            let fresh = latest.get(&of).filter(|(began, _)| is_fresh(began));
            match fresh.and_then(|(began, list)| Some((*began, list.upgrade()?))) {
                Some(fresh) => fresh,
                None => {
                    latest.retain(|_, (began, _)| began.elapsed() <= LIST_AGE);
                    let began = Instant::now();
                    let list = read(of.clone(), client.clone()).map_ok(Arc::new).boxed().shared();
                    if let Some(weak) = list.downgrade() {
                        latest.insert(of, (began, weak));
                    }
                    (began, list)
                }
            }
        };
        Ok((began, list.await?))
    }
}
