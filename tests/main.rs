//! The integration tests: one binary, a folder per tier.
//!
//! | module | what | needs |
//! |---|---|---|
//! | `it` | real gRPC over a unix socket, real HTTP to the emulator, recorded traffic, the house's own rules | nothing |

mod it {
    mod cargo_lock;
    mod import_table;
    mod oracle_bodies;
    mod recordings;
}
