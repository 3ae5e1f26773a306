//! Tests against the emulator, in one runtime on paused time.

mod answers;
mod changes;
mod copies;
mod late_requests;
mod rig;
mod snapshot_races;
mod snapshots;
