//! The integration tests: one binary, a folder per tier.
//!
//! | module | what | needs |
//! |---|---|---|
//! | `it` | real gRPC over a unix socket, real HTTP to the emulator, recorded traffic, the project's own rules | nothing |
//! | `api_server` | what a client of Kubernetes may rest on, against the small API server, and in `privileged::cluster` against the real one | nothing |
//! | `kubectl` | what kubectl prints, for `it` and for a real cluster | kubectl |
//! | `model` | random lives of a cluster against the emulator, on paused time, from one seed | nothing |
//! | `privileged` | the program's own processes, real block devices, real mounts, kill -9 | root |
//! | `reader` | what a machine must show to the reader of its disks, for `privileged` and `guest` | nothing |
//! | `guest` | a machine with a kernel of its own in QEMU, for mounts of file shares and for disks | root, and what `scripts/guest` installs |
//! | `privileged::cluster` | the chart installed in a real Kubernetes, its containers as processes: `lazuli-test-cluster` | root, and the programs that `scripts/test cluster` builds |

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod it {
    mod admission;
    mod audit_readme;
    mod audit_requests;
    mod audit_switches;
    mod bench_stopped;
    mod blob_kills;
    mod cargo_lock;
    mod chart_fleet;
    mod chart_names;
    mod chart_roles;
    mod chart_rules;
    mod cloud_controllers;
    mod core_dumps;
    mod deploy_azure;
    mod deploy_file;
    mod deploy_manifests;
    mod deploy_rights;
    mod deploy_snapshots;
    mod disk_admission;
    mod disk_adoption;
    mod disk_batch;
    mod disk_blob_rules;
    mod disk_blobs;
    mod disk_callers;
    mod disk_casing;
    mod disk_changes;
    mod disk_copies;
    mod disk_dangling;
    mod disk_defects;
    mod disk_determinism;
    mod disk_events;
    mod disk_expand;
    mod disk_force_detach;
    mod disk_gone;
    mod disk_imports;
    mod disk_incidents;
    mod disk_kill;
    mod disk_late_attach;
    mod disk_late_writes;
    mod disk_leaving;
    mod disk_list;
    mod disk_luns;
    mod disk_nodes;
    mod disk_permit;
    mod disk_replicas;
    mod disk_rig;
    mod disk_scale_sets;
    mod disk_source;
    mod disk_stale_disks;
    mod disk_storm;
    mod disk_waits;
    mod disk_windows;
    mod empty_variables;
    mod faults_in_glue;
    mod file_claims;
    mod file_claims_network;
    mod first_use;
    mod go_bodies;
    mod go_bodies_1_30;
    mod import_circles;
    mod import_table;
    mod oracle_bodies;
    mod peer_defects;
    mod peer_defects_nodes;
    mod peer_defects_services;
    mod published_tables;
    mod quick_start;
    mod recordings;
    mod rules;
    mod service_judge;
    mod service_judge_tests;
    mod service_kill;
    mod service_order;
    mod service_random;
    mod service_reach;
    mod service_rig;
    mod snapshot_kills;
    mod tiers;
    mod unknown_keys;
    mod up;
    mod why;
    mod worker_answers;
}

use lazuli_test_cluster::certificates;

mod api_server;
mod guest;
mod kubectl;
mod model;
mod reader;

mod privileged {
    use lazuli_test_cluster::azure;

    mod azure_killed;
    mod cloud;
    mod cluster;
    mod content;
    mod controller_killed;
    mod frozen;
    mod growth;
    mod kubelet;
    mod mount_options;
    mod move_to_another_node;
    mod node_killed;
    mod nvme;
    mod open_files;
    mod process;
    mod stopping;
    mod storm;
    mod up;
    mod wrong_disk;
}
