//! Tests with a kernel of their own, for what the machine's kernel cannot do: SMB mounts by the kernel's client, SCSI disks
//! and NVMe namespaces that come, grow and go.
//!
//! `scripts/guest` makes the guest and says what is in it. In it `lazuli` is the program under test. What is in `full` runs
//! only where everything does.

mod disk_driver;
mod disks;
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
