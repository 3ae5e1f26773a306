//! Tests against the emulator, in one runtime on paused time.

mod answers;
mod rig;
