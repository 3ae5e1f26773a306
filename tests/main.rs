//! The integration tests: one binary, a folder per tier.
//!
//! | module | what | needs |
//! |---|---|---|
//! | `it` | real gRPC over a unix socket, real HTTP to the emulator, recorded traffic, the house's own rules | nothing |

#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod it {
    mod cargo_lock;
    mod disk_batch;
    mod disk_callers;
    mod disk_determinism;
    mod disk_expand;
    mod disk_gone;
    mod disk_list;
    mod disk_luns;
    mod disk_incidents;
    mod disk_replicas;
    mod disk_kill;
    mod disk_rig;
    mod disk_spelling;
    mod disk_storm;
    mod import_table;
    mod oracle_bodies;
    mod recordings;
}
