//! Tests with a kernel of their own, for what the machine's kernel cannot do: SMB mounts by the kernel's client.
//!
//! `scripts/guest` makes the guest and says what is in it. In it `lazuli` is the program under test. What is in `full` runs
//! only where everything does.

mod driver;
mod emulator;
mod files;
mod folder;
mod full;
mod keys;
mod kubernetes;
mod machine;
mod pod;
mod provisioner;
mod sanity;
mod shares;
mod smoke;
mod wire;
