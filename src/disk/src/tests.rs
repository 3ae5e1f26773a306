//! Tests against the emulator, in one runtime on paused time.

mod answers;
mod changes;
mod copies;
mod late_requests;
mod proof_a_failed_snapshot_can_never_be_deleted;
mod proof_type_of_a_disk_is_believed_too_long;
mod rig;
mod snapshot_races;
mod snapshots;
