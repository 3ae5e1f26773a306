//! The product's reader of disks as a program for a guest: prints a line for each disk that it finds.
//!
//! `reader FOLDER LUNS LUNS`: kubelet's folder, where there must be disks, and where there must be none, with commas.

#![expect(clippy::unwrap_used, reason = "a program of tests that cannot go on says why and ends")]

use std::time::Duration;

use lazuli_host::{Deadline, Host};

#[path = "../reader/look.rs"]
mod look;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let luns = |text: &String| -> Vec<u32> {
        text.split(',').filter(|lun| !lun.is_empty()).map(|lun| lun.parse().unwrap()).collect()
    };
    let host = Host::new().with_kubelet(&arguments[0]);
    let limit = || Deadline::after(Duration::from_secs(60));
    for (lun, disk) in look::look(&host, &luns(&arguments[1]), &luns(&arguments[2]), limit).await {
        println!("{lun} {} {} {}", disk.bytes, disk.is_certain, disk.name);
    }
}
