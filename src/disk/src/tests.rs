//! Tests against the emulator, in one runtime on paused time.

mod answers;
mod changes;
mod copies;
mod failed_snapshots;
mod late_requests;
mod proof_type_of_a_disk_is_believed_too_long;
mod rig;
mod snapshot_races;
mod snapshots;
