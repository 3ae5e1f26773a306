//! The calls about snapshots.

use lazuli_azure::{
    Until,
    arm::Operation,
    compute::{Freshness, Snapshot, SnapshotList, decode_snapshot},
    error::{ArmError, Verb},
    permits::Permit,
};
use lazuli_model::{ArmId, Disk, Snapshot as DiskSnapshot, snapshot_spec::SnapshotSpec};
use tokio_util::sync::CancellationToken;

use super::{Client, LIST, WRITE, unbounded};

impl Client {
    pub(crate) async fn read_snapshot(
        &self,
        id: &ArmId,
        freshness: Freshness,
    ) -> Result<Snapshot<DiskSnapshot>, ArmError> {
        self.compute.read_snapshot(id, freshness, &unbounded()).await
    }

    /// Lists the snapshots of a subscription, or of one of its resource groups.
    pub(crate) async fn list_snapshots(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
    ) -> Result<SnapshotList, ArmError> {
        self.compute.list_snapshots(subscription, resource_group, &Until::working(LIST)).await
    }

    /// Lists the disks of a subscription, or of one of its resource groups.
    pub(crate) async fn list_whole_disks(
        &self,
        subscription: &str,
        resource_group: Option<&str>,
    ) -> Result<Vec<Disk>, ArmError> {
        let sent_at = self.clock().now();
        let disks = self.compute.list_disks_of(subscription, resource_group, &Until::working(LIST)).await;
        disks.iter().flatten().for_each(|disk| self.known.learn_listed(&disk.id, disk.sku, sent_at));
        disks
    }

    /// Waits for a permit to make or to delete a snapshot.
    pub(crate) async fn permit_snapshot(&self, verb: Verb, id: &ArmId) -> Result<Permit, ArmError> {
        self.compute.permit_snapshot(verb, id, &unbounded()).await
    }

    /// Sends the creation of a snapshot once and at once, if it is wanted.
    pub(crate) async fn create_snapshot(
        &self,
        id: &ArmId,
        spec: &SnapshotSpec,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.compute.create_snapshot(id, spec, Some(permit), &until).await
    }

    /// Waits for the end of a snapshot's creation and gives the snapshot as Azure then describes it, read again where the
    /// operation's result does not hold it.
    pub(crate) async fn written_snapshot(
        &self,
        id: &ArmId,
        mut operation: Operation,
    ) -> Result<DiskSnapshot, ArmError> {
        let result = operation.wait(&Until::working(WRITE)).await?;
        match result.as_ref().map(decode_snapshot) {
            Some(Ok(snapshot)) => Ok(snapshot),
            _ => Ok(self.read_snapshot(id, Freshness::single()).await?.model),
        }
    }

    /// Sends the deletion of a snapshot once and at once, if it is wanted.
    pub(crate) async fn delete_snapshot(
        &self,
        id: &ArmId,
        permit: Permit,
        wanted: &CancellationToken,
    ) -> Result<Operation, ArmError> {
        let until = Until::working(WRITE).while_wanted(wanted.clone());
        self.compute.delete_snapshot(id, Some(permit), &until).await
    }
}
