//! `lazuli bench`: what an operator would measure, against the embedded Azure.

mod attach_storm;
mod cluster;
mod control;
mod emulator;
mod figures;
mod footprint;
mod hostile_input;
mod life_storm;
mod list_volumes;
mod node_churn;
mod node_join;
mod node_loss;
mod processes;
mod service_storm;
mod share_storm;
mod sidecars;
mod snapshot_storm;
mod storm;
mod words;

use clap::{Args, Subcommand};

use serde_json::Value;

use super::{Outcome, output::Format, progress::Progress};
use processes::AnyError;

/// Options of the benches.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// Attaches many disks to many nodes at once, then detaches them.
    ///
    /// Emulator and controller are processes of their own. Azure's request buckets are full at the start and never
    /// filled afterwards. Figures with the prefix detach_ are of detaching, attach_ and those without a prefix of
    /// attaching; without a prefix arm_reads, arm_writes, polls, list_pages, throttled and repeated_rpcs are of the
    /// whole run. arm_reads includes polls, arm_writes includes deletions, and both include what was refused.
    AttachStorm(storm::SpreadOptions),
    /// Creates, attaches, detaches and deletes many volumes, each phase at once and right after the one before it.
    ///
    /// Emulator and controller are processes of their own. Azure's request buckets are full at the start and never
    /// filled afterwards: a phase has what the one before it has left. lower_bound_s starts from that and counts one
    /// write and one read for each disk or VM; lower_bound_full_s is the same from full buckets. arm_reads includes
    /// polls, arm_writes includes deletions, and both include what was refused. noticed_* is the time from an
    /// operation's end, by the emulator's clock, to the answer of the call.
    ///
    /// With --kind shared or dedicated the volumes are VHD blob disks, on machines whose system disks are VHDs too: accounts is
    /// how many storage accounts they are in, and requests has what Azure was asked, by operation. lower_bound_s of the creation
    /// is first_disk_s, when the first account is there and a disk in it; those of attaching and detaching count the VMs, and
    /// the deletion has none. blob_reads and blob_writes are requests to the accounts' blob services. They take none of the
    /// resource manager's buckets, so no bound counts them.
    LifeStorm(life_storm::Options),
    /// Deletes VMs with disks attached to them, then detaches all these disks at once.
    ///
    /// Another principal deletes the VMs, so that the controller's request buckets are its own. The figures are of
    /// detaching.
    NodeLoss(node_loss::Options),
    /// Makes many Services of type LoadBalancer, and waits until each has its address.
    ///
    /// Emulator and cloud controllers are processes of their own, and the API server is a small one in this process.
    /// Azure's request buckets are full at the start and never filled afterwards. A Service has one TCP port and a public
    /// IP of its own; its time is from its creation to the moment when the API server has its status.
    ///
    /// lower_bound_s = max(W, D) + P + max(L, G). W is the wait for the last write of a public IP that two buckets impose:
    /// the larger of (n - 200) / 10 and (n - 1000) / (10 / 3), at least 0, where n is the number of Services and of one
    /// write for each load balancer and for the security group. D is the time over which Services are made (--spread). P, L
    /// and G are the shortest times that Azure took in this run for a public IP, a load balancer and a security group.
    /// ratio is makespan_s over that. The three terms are bound_wait_s, bound_public_ip_s and bound_last_write_s, and
    /// over_bound_s is makespan_s less their sum. A load balancer takes one write at a time: Services whose public IPs come
    /// while the first write is in flight share a second one, which takes second_load_balancer_write_s or more. Of few Services
    /// the bound is short, so that this write alone makes the ratio about 1.6; of many it is a small part. The writes of network interfaces that --pool-kind nic adds are not in n: no status
    /// waits for them. Writes are counted until none was made for some seconds after the last status.
    ServiceStorm(service_storm::Options),
    /// Creates, grows and deletes many file shares, each phase at once and right after the one before it.
    ///
    /// Emulator and controller are processes of their own. Azure's storage provider takes 10 writes a second and 1,200 an
    /// hour of a subscription in a region, and 800 reads and 100 lists in five minutes: 1,000 shares are created with
    /// --create-only, and their whole life is that of 390 at most. lower_bound_s is one write for each share, ten at once
    /// and then ten a second; of the creation after first_share_s, when the account is there and the first share with it. reads_per_created_share is without
    /// polls.
    ShareStorm(share_storm::Options),
    /// Takes snapshots of many disks, restores and changes volumes from them, and deletes both, each phase at once and right
    /// after the one before it.
    ///
    /// As life-storm. The disks exist at the start. A call is repeated until its snapshot is ready. The last phase deletes the
    /// snapshots and the restored volumes at once: lower_bound_s counts a deletion of each. reads_per_* are all reads of a
    /// phase, lists and polls included, over the number of snapshots.
    SnapshotStorm(snapshot_storm::Options),
    /// Lets nodes join and leave a cluster with many Services, and lets the informers list everything anew.
    ///
    /// Set up as service-storm, but Azure takes no time and refuses no request for coming too soon. With several load
    /// balancers a node is an instance of one of as many scale sets, each of which is the primary one of a load balancer,
    /// so that one node changes one pool: at best a phase is one pool write for each load balancer that its nodes belong
    /// to, one write of the route table (--routes), and none when only the informers list. Each phase is counted until no
    /// write was made for some seconds. idle_rss_bytes is the memory of the controllers in an empty cluster.
    NodeChurn(node_churn::Options),
    /// Makes many new nodes, and waits until each is initialised: without the taint that keeps pods away.
    ///
    /// Set up as service-storm. Azure has a machine with one network interface for each node; the node has the taint of new
    /// nodes, is Ready, and has neither a provider id nor addresses. A node's time is from its creation to the moment when
    /// the API server has it without the taint. node_writes counts requests of the controllers to change a node.
    ///
    /// lower_bound_s = max(D, W): what Azure's limits and the creations impose. D is when the last node is made (--spread).
    /// W is the wait of the last page of the two lists, of machines and of their interfaces, in the bucket of reads:
    /// (p - 250) / 25, at least 0, where p is twice the number of nodes over 1,000, rounded up. The rest of makespan_s is
    /// work of this computer, so that without --spread there is no ratio.
    NodeJoin(node_join::Options),
    /// Sends hostile reviews to the admission webhook, lets the cloud controllers watch large Services, and fails where that
    /// costs memory.
    ///
    /// Set up as node-churn. Each review is of a PersistentVolume whose disk is in a subscription and a resource group of its
    /// own, with an id as long as ids may be. Each Service has so many KiB in its annotations, labels, ranges, external
    /// addresses and managed fields by turns, and is of a loadBalancerClass that other controllers serve: it is
    /// watched and held, and costs Azure nothing. Then the informers list everything anew. growth_bytes is how far the peak of the
    /// controllers' memory is over idle_rss_bytes, that of an empty cluster. The bench fails where it is over --limit-mib.
    HostileInput(hostile_input::Options),
    /// How fast the emulator itself is: single requests and a list of 20,000 disks, in process and over loopback TCP.
    Emulator(emulator::Options),
    /// The size of this program, and the memory of an idle controller and node plugin.
    Footprint(footprint::Options),
    /// The whole list of a large cluster's volumes: the controller's peak memory, the time, the reads of Azure.
    ListVolumes(list_volumes::Options),
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = super::stop::on_signal()?;
    tokio::select! {
        // A bench that is dropped ends its processes and removes its folder.
        () = stop.cancelled() => Err("the bench was stopped before it had measured all".into()),
        outcome = measured(options) => outcome,
    }
}

/// What a bench has measured, and how to print it.
type Figures = (Value, Format);

async fn measured(options: Options) -> Outcome {
    let limit_mib = match &options.bench {
        Bench::HostileInput(options) => Some(options.limit_mib),
        _ => None,
    };
    let progress = Progress::begin("the bench runs, with processes of its own");
    let (result, format) = figures_of(options.bench).await?;
    drop(progress);
    words::print(&result, format);
    match limit_mib {
        Some(limit_mib) => hostile_input::judge(&result, limit_mib).map_err(Into::into),
        None => Ok(()),
    }
}

async fn figures_of(bench: Bench) -> Result<Figures, AnyError> {
    match bench {
        Bench::AttachStorm(options) => attach_storm::run(options).await,
        Bench::LifeStorm(options) => life_storm::run(options).await,
        Bench::NodeLoss(options) => node_loss::run(options).await,
        Bench::ServiceStorm(options) => service_storm::run(options).await,
        Bench::ShareStorm(options) => share_storm::run(options).await,
        Bench::SnapshotStorm(options) => snapshot_storm::run(options).await,
        Bench::NodeChurn(options) => node_churn::run(options).await,
        Bench::NodeJoin(options) => node_join::run(options).await,
        Bench::HostileInput(options) => hostile_input::run(options).await,
        Bench::Emulator(options) => emulator::run(options).await,
        Bench::Footprint(options) => footprint::run(options).await,
        Bench::ListVolumes(options) => list_volumes::run(options).await,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_options_of_every_bench_hold_together() {
        crate::cli::Cli::command().debug_assert();
    }
}
