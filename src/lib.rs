//! Lazuli: the whole Azure provider for Kubernetes in one plugin.
//!
//! # The processes
//!
//! One binary; a subcommand is a process.
//!
//! | process | what it does |
//! |---|---|
//! | `lazuli csi-controller` | CSI Identity and Controller services of `disk.csi.azure.com` |
//! | `lazuli csi-node` | CSI Identity and Node services on every node; registers itself with kubelet |
//! | `lazuli emulator` | Azure itself as a local HTTP server, with block devices if asked |
//! | `lazuli up` | Azure with its page, a small Kubernetes API for kubectl, and all of the above in one process |
//! | `lazuli demo`, `doctor`, `bench` | show it working; say what is wrong; measure |
//! | `lazuli explain` | explain parameters, annotations, keys of the configuration, options, events and metrics |
//! | `lazuli why` | ask a running process why an object waits |
//! | `lazuli get`, `instances` | print what the provider sees of the cluster; add an SSH key to its machines |
//! | `lazuli completion`, `man`, `version` | what shells and `man` read; which program this is |
//!
//! # The crates
//!
//! A crate imports only crates that lie below it:
//!
//! ```text
//! +------------------------------------------------------------------------------------------------------+
//! | lazuli     the command line: a file per subcommand                                                   |
//! |            its tests: test-cluster  a real Kubernetes on one machine   +----------------------------+
//! |                                                                         | rig   both, in one process |
//! +-------------------------------------------------------------------------+------------+---------------+
//! | assembly   from a configuration to clients and gRPC services                         | emulator      |
//! +------------------------------------------------------------+-------------------------+               |
//! | csi        gRPC services, registration with kubelet        | controllers  Services   | Azure itself, |
//! |                                                            | webhook      admission  | as a local    |
//! |                                                            | keys         broker     |               |
//! +-----------+-----------+------------------+-----------------+------------+------------+ HTTP server   |
//! | csi-proto | telemetry | disk             | host            | cluster    | config     |               |
//! |           |           | file  blob-disk  |                 | client of  | azure.json +---------------+
//! | generated | logs,     +------------------+ Linux: devices, | Kubernetes |            | apiserver     |
//! | code      | metrics,  | azure     client | file systems,   |            |            | Kubernetes'   |
//! |           | probes    | reconcile tasks  | mounts          |            |            | API, in       |
//! |           |           +------------------+-----------------+------------+------------+ memory, for   |
//! |           |           | vm-disks   data disks of a VM        diagnosis  for people    | tests         |
//! |           |           | balancing  Services on the engine                             |               |
//! |           |           | nodes      Nodes and routes          storage    disks         |               |
//! |           |           | services   of type LoadBalancer      engine     the steps     |               |
//! |           |           | vhd        blob disks                                         |               |
//! |           |           | journal    records for lazuli why    shares     file shares   |               |
//! |           |           | volume     disks of classes          staging    devices      |               |
//! |           |           | quota      permits, polls, reads     model      the values    |               |
//! +-----------+-----------+--------------------------------------------------------------+---------------+
//! ```
//!
//! This package is the command line ([`cli`]). Its feature `emulator` is on by default; a production image is built
//! without it, and has neither `lazuli-emulator` and `lazuli-rig` nor the subcommands that need them.
//!
//! The table is complete. A test compares it with the manifests, which cargo enforces.
//!
//! | level | crate | what it owns | imports | its tests also |
//! |---|---|---|---|---|
//! | 0 | `lazuli-model` | the values that all crates share, and what follows from one of them alone | nothing of ours | |
//! | 0 | `csi-proto` | generated code of the gRPC services | nothing of ours | |
//! | 0 | `lazuli-emulator` | Azure itself as a local HTTP server | nothing of ours | |
//! | 0 | `lazuli-apiserver` | a small Kubernetes API server, for kubectl, simulation and bench | nothing of ours | |
//! | 0 | `lazuli-telemetry` | logs, `/metrics`, `/healthz`, `/readyz` | nothing of ours | |
//! | 1 | `lazuli-journal` | what was asked, seen and decided about each object, in bounded memory | model | |
//! | 1 | `lazuli-quota` | when a request goes to Azure: permits, polls, shared reads | model | |
//! | 1 | `lazuli-services` | what Services ask of Azure, and the planners of its network | model | |
//! | 1 | `lazuli-config` | the cloud configuration, `azure.json` | model | |
//! | 1 | `lazuli-volume` | which disk, snapshot or copy a class asks for, and what comes next of it | model | |
//! | 2 | `lazuli-staging` | every decision of a node about a device | model, volume | |
//! | 2 | `lazuli-engine` | the reconcile engine: the steps of an object of Azure and of a Service | model, quota | |
//! | 3 | `lazuli-vhd` | every decision about VHD blob disks and their storage accounts | engine, model, volume | |
//! | 3 | `lazuli-balancing` | Services on the engine | engine, model, quota, services | |
//! | 3 | `lazuli-nodes` | every decision about Nodes and routes | engine, model, quota | |
//! | 3 | `lazuli-shares` | every decision about file shares and their storage accounts | engine, model | |
//! | 3 | `lazuli-reconcile` | runs the steps of the reconcile engine: mailbox, task and timer of each key | engine, journal, model, quota, telemetry | |
//! | 4 | `lazuli-storage` | attach and detach, and the steps of whole disks and snapshots | engine, model, quota, vhd, volume | |
//! | 4 | `lazuli-azure` | the client of Azure | model, quota, telemetry, vhd | emulator, volume |
//! | 4 | `lazuli-host` | Linux: devices, mkfs, mounts, SMB, resize, stats | model, staging, volume | |
//! | 4 | `lazuli-diagnosis` | what is wrong with a cluster, for people | model, nodes, services, shares, vhd, volume | |
//! | 5 | `lazuli-vm-disks` | every decision on a VM's data disks | engine, model, quota, storage | |
//! | 5 | `lazuli-cluster` | the client of Kubernetes: VolumeAttachments, Nodes, secrets, leases, events | diagnosis, engine, model, nodes, services, shares, storage, telemetry, volume | apiserver |
//! | 5 | `lazuli-file` | file shares as volumes | azure, engine, journal, model, quota, reconcile, shares | emulator |
//! | 5 | `lazuli-blob-disk` | VHD blob disks as volumes | azure, engine, journal, model, quota, reconcile, vhd | emulator |
//! | 6 | `lazuli-disk` | managed disks as volumes | azure, blob-disk, engine, journal, model, quota, reconcile, storage, telemetry, vhd, vm-disks, volume | emulator |
//! | 6 | `lazuli-controllers` | the cloud controllers: Services of type LoadBalancer | azure, balancing, cluster, config, engine, journal, model, nodes, quota, reconcile, services, telemetry | apiserver, emulator, storage |
//! | 6 | `lazuli-webhook` | the admission webhooks: labels of volumes, claims that cannot grow as asked | azure, cluster, model, quota, storage | |
//! | 6 | `lazuli-keys` | how nodes get the keys of storage accounts: the broker and its client | cluster, model, shares, telemetry | apiserver |
//! | 6 | `lazuli-test-cluster` | a real Kubernetes on this machine, for the tier `cluster` and `scripts/cluster`; in no program | cluster, emulator | |
//! | 7 | `lazuli-csi` | gRPC services, registration with kubelet | azure, blob-disk, csi-proto, disk, file, host, journal, model, shares, staging, storage, telemetry, vhd, volume | |
//! | 8 | `lazuli-assembly` | from a configuration to clients and services | azure, blob-disk, cluster, config, csi, csi-proto, disk, file, journal, keys, model, reconcile, shares, storage, telemetry, vhd, volume | |
//! | 9 | `lazuli-rig` | emulator, controllers and nodes in one process | apiserver, assembly, azure, config, csi, csi-proto, emulator, host, journal, model, reconcile, storage, telemetry, vhd, volume | |
//! | 10 | `lazuli` | the command line | apiserver, assembly, azure, balancing, cluster, config, controllers, csi, csi-proto, diagnosis, emulator, engine, host, journal, keys, model, nodes, quota, reconcile, rig, services, shares, storage, telemetry, vhd, volume, webhook | blob-disk, disk, test-cluster |
//!
//! # How a request goes
//!
//! `ControllerPublishVolume` arrives at `lazuli-csi`, which parses it into values of `lazuli-model` and `lazuli-storage`. `lazuli-disk` carries out
//! the step of the request (`lazuli_storage::publish`), which finds the VM of the node by the Nodes that `lazuli-cluster`
//! watches (`lazuli_model::node`), and asks the worker of that VM. That runs the VM's step (`lazuli_vm_disks`) and does what it says. The step waits until a
//! burst of requests is over, takes a permit to write the VM, has the VM and the disks read through `lazuli-azure`, and asks
//! `lazuli_storage::attach::plan` for the one write that serves all requests. It has that write sent, and when it has ended
//! the VM read again, and answers each caller with what Azure then says. `lazuli_model::fault` sorts a failure into the gRPC code that the sidecar in front understands, and into the event
//! that a person gets about what no repetition cures; `lazuli-cluster` writes it, and no call waits for that.
//!
//! Azure gives one identity few requests. Each request therefore waits in `lazuli_azure::permits` until Azure has a token
//! for it, by priority, then arrival (`lazuli_quota::permit`). Reads go through the read broker of `lazuli-azure`: callers
//! share single reads, many single reads become one list, and lists show the ends of operations (`lazuli_quota::read`,
//! `lazuli_quota::poll`).
//!
//! # What holds everywhere
//!
//! - What chooses is pure and lives in the decision crates (`lazuli-model` to `lazuli-diagnosis`); what touches a socket, file, clock or process chooses nothing.
//! - Every write runs in a task that outlives its caller; a repeated request joins it.
//! - A process may be killed between any two instructions: the next one reads what is there and goes on. State lives
//!   in Azure and in the Kubernetes API, and nowhere else.
//! - Clients speak to logical https origins; a route table says where those really are. That is the only seam to the
//!   world, so everything runs whole against the emulator, in one thread and on paused time if need be.
//! - Secrets are types that print `<redacted>`.

pub mod cli;
