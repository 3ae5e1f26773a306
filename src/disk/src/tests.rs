//! Tests against the emulator, in one runtime on paused time.

mod answers;
mod changes;
mod copies;
mod failed_snapshots;
mod late_requests;
mod rig;
mod snapshot_races;
mod snapshots;
mod types_of_disks;
