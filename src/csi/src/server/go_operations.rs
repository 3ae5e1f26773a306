//! RPCs under the names of the Go drivers.

use std::time::Duration;

use lazuli_telemetry::go_names::{Family, GoNames};
use tonic::Code;

/// Seconds. Source of the names, labels and buckets: the sources of the Go disk driver v1.34.4 and of the Go file driver, of
/// which the first was scraped.
const BUCKETS: &[f64] = &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0];

const DISK: Families = Families {
    durations: &Family::histogram(
        "azuredisk_csi_driver_operation_duration_seconds",
        "How long calls of the disk driver took",
        &["operation", "success"],
        BUCKETS,
    ),
    labeled: &Family::histogram(
        "azuredisk_csi_driver_operation_duration_seconds_labeled",
        "How long calls of the disk driver took that make a disk, by the kind of disk",
        &["operation", "success", "storage_account_type"],
        BUCKETS,
    ),
    totals: &Family::counter(
        "azuredisk_csi_driver_operations_total",
        "Calls of the disk driver",
        &["operation", "success"],
    ),
};
const FILE: Families = Families {
    durations: &Family::histogram(
        "azurefile_csi_driver_operation_duration_seconds",
        "How long calls of the file driver took",
        &["operation", "success"],
        BUCKETS,
    ),
    labeled: &Family::histogram(
        "azurefile_csi_driver_operation_duration_seconds_labeled",
        "How long calls of the file driver took that make a share, by protocol and kind of account",
        &["operation", "success", "protocol", "storage_account_type"],
        BUCKETS,
    ),
    totals: &Family::counter(
        "azurefile_csi_driver_operations_total",
        "Calls of the file driver",
        &["operation", "success"],
    ),
};

/// The families of the Go drivers that this crate writes.
pub const GO_FAMILIES: &[&Family] =
    &[DISK.durations, DISK.labeled, DISK.totals, FILE.durations, FILE.labeled, FILE.totals];

/// The families of a driver.
#[derive(Debug, Clone, Copy)]
struct Families {
    durations: &'static Family,
    labeled: &'static Family,
    totals: &'static Family,
}

/// The Go driver whose place is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GoDriver {
    /// `disk.csi.azure.com`
    #[default]
    Disk,
    /// `file.csi.azure.com`
    File,
}

impl GoDriver {
    fn families(self) -> Families {
        match self {
            Self::Disk => DISK,
            Self::File => FILE,
        }
    }

    /// Whether it counts a call that ends like this. The disk driver begins to count when it has checked the arguments, but in
    /// the two calls that bind a volume for a Pod.
    fn counts(self, method: &str, code: Code) -> bool {
        let is_checked_first = !matches!(method, "NodePublishVolume" | "NodeUnpublishVolume");
        !(self == Self::Disk && code == Code::InvalidArgument && is_checked_first)
    }
}

/// What the Go drivers call an RPC; `None` for those that they do not count.
fn operation(method: &str) -> Option<&'static str> {
    Some(match method {
        "CreateVolume" => "controller_create_volume",
        "DeleteVolume" => "controller_delete_volume",
        "ControllerModifyVolume" => "controller_modify_volume",
        "ControllerPublishVolume" => "controller_publish_volume",
        "ControllerUnpublishVolume" => "controller_unpublish_volume",
        "ControllerExpandVolume" => "controller_expand_volume",
        "NodeStageVolume" => "node_stage_volume",
        "NodeUnstageVolume" => "node_unstage_volume",
        "NodePublishVolume" => "node_publish_volume",
        "NodeUnpublishVolume" => "node_unpublish_volume",
        "NodeExpandVolume" => "node_expand_volume",
        _ => return None,
    })
}

/// What a handler says of what it makes or changes: values of closed sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The kind of disk or of storage account, as Azure spells it.
    pub storage_account_type: &'static str,
    /// Of a share: `smb` or `nfs`.
    pub protocol: &'static str,
}

/// A call that has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended<'a> {
    pub(super) method: &'a str,
    pub(super) code: Code,
    pub(super) took: Duration,
    pub(super) made: Option<Made>,
}

/// Counts a call.
pub(super) fn count(go: &GoNames, driver: GoDriver, call: &Ended<'_>) {
    let Some(operation) = operation(call.method).filter(|_| driver.counts(call.method, call.code)) else { return };
    let families = driver.families();
    let success = if call.code == Code::Ok { "true" } else { "false" };
    let took = call.took.as_secs_f64();
    go.observe(families.durations, &[operation, success], took);
    go.count(families.totals, &[operation, success]);
    match (driver, call.made) {
        (_, None) => {}
        (GoDriver::Disk, Some(made)) => {
            go.observe(families.labeled, &[operation, success, made.storage_account_type], took);
        }
        (GoDriver::File, Some(made)) => {
            go.observe(families.labeled, &[operation, success, made.protocol, made.storage_account_type], took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(driver: GoDriver, calls: &[(&str, Code, Option<Made>)]) -> String {
        let go = GoNames::on();
        for (method, code, made) in calls {
            let took = Duration::from_millis(700);
            count(&go, driver, &Ended { method, code: *code, took, made: *made });
        }
        let mut page = String::new();
        go.write(&mut page);
        page
    }

    #[test]
    fn calls_bear_the_names_of_the_go_driver_whose_place_is_taken() {
        let made = Some(Made { storage_account_type: "Premium_LRS", protocol: "smb" });
        let calls = [
            ("CreateVolume", Code::Ok, made),
            ("CreateVolume", Code::Unavailable, made),
            ("ControllerGetCapabilities", Code::Ok, None),
            ("Invented", Code::Ok, None),
        ];
        let of_disks = page(GoDriver::Disk, &calls);
        for line in [
            r#"azuredisk_csi_driver_operations_total{operation="controller_create_volume",success="true"} 1"#,
            r#"azuredisk_csi_driver_operation_duration_seconds_bucket{operation="controller_create_volume",success="false",le="1"} 1"#,
            r#"azuredisk_csi_driver_operation_duration_seconds_labeled_count{operation="controller_create_volume",success="true",storage_account_type="Premium_LRS"} 1"#,
        ] {
            assert!(of_disks.lines().any(|there| there == line), "{line} is not in\n{of_disks}");
        }
        assert!(!of_disks.contains("get_capabilities") && !of_disks.contains("azurefile"), "{of_disks}");
        let of_files = page(GoDriver::File, &calls);
        let labels = r#"{operation="controller_create_volume",success="true",protocol="smb",storage_account_type="Premium_LRS"}"#;
        let line = format!("azurefile_csi_driver_operation_duration_seconds_labeled_count{labels} 1");
        assert!(of_files.contains(&line) && !of_files.contains("azuredisk"), "{of_files}");
    }

    #[test]
    fn arguments_that_are_refused_are_no_operation_of_the_disk_driver() {
        let refused = |method| page(GoDriver::Disk, &[(method, Code::InvalidArgument, None)]);
        assert_eq!(refused("CreateVolume"), "");
        assert!(refused("NodePublishVolume").contains("success=\"false\""));
        assert!(page(GoDriver::File, &[("CreateVolume", Code::InvalidArgument, None)]).contains("success=\"false\""));
    }
}
