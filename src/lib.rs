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
//! | `lazuli demo`, `doctor`, `bench` | show it working; say what is wrong; measure |
//!
//! # The house
//!
//! Crates are split where the set of dependencies changes, and nowhere else; the rooms of this package are modules.
//! A test reads the sources and holds this table.
//!
//! | level | room | may import |
//! |---|---|---|
//! | 0 | `lazuli-plan` (pure decisions), `csi-proto` (generated), `lazuli-emulator` | nothing of ours |
//! | 1 | `lazuli-azure` (the client), [`config`] | plan |
//! | 1 | [`telemetry`] (logs, `/metrics`, `/healthz`) | nothing of ours |
//! | 2 | [`cluster`] (Kubernetes client, VolumeAttachments, secrets) | plan, telemetry |
//! | 2 | [`host`] (devices, mkfs, mounts, resize, stats) | plan |
//! | 3 | [`disk`] (managed disks as volumes) | plan, azure, config, telemetry |
//! | 4 | [`csi`] (gRPC services, registration) | csi-proto, plan, azure, config, disk, host, cluster, telemetry |
//! | 5 | [`cli`] (a file per subcommand; `wire`: configuration to clients) | all; alone names the emulator |
//!
//! # How a request goes
//!
//! `ControllerPublishVolume` arrives at [`csi`], is parsed into values of `lazuli-plan`, and becomes a wish at the
//! owner of its VM in [`disk`]. The owner waits until a burst of wishes is quiet, reads the VM through
//! `lazuli-azure`, asks `lazuli_plan::attach::plan` for the one write that serves them all, sends it, polls it by
//! `lazuli_plan::poll`, reads the VM again and answers each caller with what Azure then says. A failure is sorted by
//! `lazuli_plan::fault` and becomes the gRPC code that the sidecar in front understands.
//!
//! # What holds everywhere
//!
//! - What chooses is pure and lives in `lazuli-plan`; what touches a socket, file, clock or process chooses nothing.
//! - Every write has an owner that outlives its caller; a repeated request joins it.
//! - A process may be killed between any two instructions: the next one reads what is there and goes on. State lives
//!   in Azure and in the Kubernetes API, and nowhere else.
//! - Clients speak to logical https origins; a route table says where those really are. That is the only seam to the
//!   world, so everything runs whole against the emulator, in one thread and on paused time if need be.
//! - Secrets are types that print `<redacted>`.

pub mod cli;
pub mod cluster;
pub mod config;
pub mod csi;
pub mod disk;
pub mod host;
pub mod telemetry;
