//! The arguments of the Go file driver. Its list starts no subcommand: `csi-controller` and `csi-node` serve disks and
//! shares, and take the list of the disk driver. The table says what becomes of each argument when a cluster moves.
//!
//! Source: the options and the main program of azurefile-csi-driver, and its chart.

use super::{
    MOST,
    Value::{self, Flag, Number, Text, Whole, Words},
};

/// An argument of the Go file driver.
#[derive(Debug)]
struct Row {
    /// Its name without dashes.
    name: &'static str,
    /// What it takes.
    value: Value,
    equal: Equal,
    /// What is different with another value, or why it is the same with each.
    sentence: &'static str,
}

/// With which values shares are served as before.
#[derive(Debug, Clone, Copy)]
enum Equal {
    /// With each.
    Any,
    /// With these, as the list writes them.
    With(&'static [&'static str]),
}

use Equal::{Any, With};

const fn row(name: &'static str, value: Value, equal: Equal, sentence: &'static str) -> Row {
    Row { name, value, equal, sentence }
}

const OFF: Equal = With(&["false"]);
const ON: Equal = With(&["true"]);
const AGENT: &str = "the key userAgent of the cloud configuration is added to what requests to Azure name";
const NFS: &str = "it is of NFS shares, which are not served";
const INLINE: &str = "pods with inline volumes do not start, whatever this says";
const COPIES: &str = "shares are neither cloned nor restored from snapshots";
const LOG: &str = "--log says what is logged";
const WINDOWS: &str = "nodes with Windows are not served";

const ROWS: &[Row] = &[
    row("endpoint", Text, Any, "--file-endpoint is where the file driver is served"),
    row("nodeid", Text, Any, "the node's id is its Kubernetes node name (--node-id)"),
    row("kubeconfig", Text, Any, "--kubeconfig is the same"),
    row("drivername", Text, With(&["file.csi.azure.com"]), "give the name as --file-driver-name"),
    row("cloud-config-secret-name", Text, Any, "the argument is the same"),
    row("cloud-config-secret-namespace", Text, Any, "the argument is the same"),
    row(
        "allow-empty-cloud-config",
        Flag,
        Any,
        "the controller needs a cloud configuration, and the node plugin reads none",
    ),
    row(
        "metrics-address",
        Text,
        With(&[""]),
        "nothing is served there; give --metrics-endpoint=:PORT, which asks readers for a token of the cluster",
    ),
    row("custom-user-agent", Text, With(&[""]), AGENT),
    row("user-agent-suffix", Text, With(&[""]), AGENT),
    row("enable-volume-mount-group", Flag, ON, "the fsGroup of a pod is the group of the mounted files in any case"),
    row("enable-get-volume-stats", Flag, ON, "statistics of volumes are given in any case"),
    row("vol-stats-cache-expire-in-minutes", Whole(0, MOST), Any, "statistics are read when they are asked for"),
    row("print-volume-stats-call-logs", Flag, Any, LOG),
    row(
        "mount-permissions",
        Whole(0, 7777),
        With(&["0777"]),
        "it is of NFS shares; the mount options dir_mode and file_mode say it of SMB shares",
    ),
    row("fsgroup-change-policy", Words(&["", "None", "Always", "OnRootMismatch"]), Any, NFS),
    row("append-noresvport-option", Flag, Any, NFS),
    row("append-actimeo-option", Flag, Any, NFS),
    row("enable-azurefile-proxy", Flag, Any, NFS),
    row("azurefile-proxy-endpoint", Text, Any, NFS),
    row("append-closetimeo-option", Flag, OFF, "closetimeo=0 is not added; give it in the mountOptions of the class"),
    row(
        "append-nosharesock-option",
        Flag,
        ON,
        "nosharesock is added in any case; sharesock in the mountOptions of the class takes its place",
    ),
    row("append-mount-error-help-link", Flag, Any, "a failed mount says what to do"),
    row("enable-vhd", Flag, Any, "classes and volumes with VHD files are named where they are judged"),
    row("allow-inline-volume-key-access-with-identity", Flag, OFF, INLINE),
    row("inline-volume-secret-authz", Text, With(&[""]), INLINE),
    row("sas-token-expiration-minutes", Whole(0, MOST), With(&[]), COPIES),
    row("wait-for-azcopy-timeout-minutes", Whole(0, MOST), With(&[]), COPIES),
    row("skip-matching-tag-cache-expire-in-minutes", Whole(0, MOST), Any, "accounts are read when a share is made"),
    row("enable-kata-cc-mount", Flag, OFF, "shares are mounted on the node, not in the machine of a confidential pod"),
    row("enable-windows-host-process", Flag, OFF, WINDOWS),
    row("remove-smb-mount-on-windows", Flag, Any, WINDOWS),
    row("kube-api-qps", Number, Any, "objects are followed by watches; there is no limit to set"),
    row("kube-api-burst", Whole(0, MOST), Any, "objects are followed by watches; there is no limit to set"),
    row("v", Text, Any, LOG),
    row("vmodule", Text, Any, LOG),
    row("logtostderr", Flag, Any, LOG),
    row("alsologtostderr", Flag, Any, LOG),
    row("stderrthreshold", Text, Any, LOG),
];

/// What becomes of a list: why a value in it is none that the argument takes, and what is different, an argument a sentence.
/// Of an argument that is given twice the last one counts, as in the Go driver.
pub(in crate::cli) fn judge(arguments: &[String]) -> (Option<String>, Vec<String>) {
    let (mut refused, mut notes) = (None, Vec::new());
    for (at, argument) in arguments.iter().enumerate() {
        let (name, value) = split(argument);
        if arguments[at + 1..].iter().any(|later| split(later).0 == name) {
            continue;
        }
        let Some(row) = ROWS.iter().find(|row| row.name == name) else {
            notes.push(format!("--{name} is no argument of azurefile-csi-driver that is known here"));
            continue;
        };
        if let Err(allowed) = row.value.check(value) {
            refused.get_or_insert(format!("--{name}={value} of azurefile-csi-driver: {allowed}"));
        } else if !row.is_equal(value) {
            notes.push(format!("--{name}={value} of azurefile-csi-driver: {}", row.sentence));
        }
    }
    (refused, notes)
}

/// The name and the value of an argument; the name alone is true.
fn split(argument: &str) -> (&str, &str) {
    let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
    (name.trim_start_matches('-'), value)
}

impl Row {
    fn is_equal(&self, value: &str) -> bool {
        match self.equal {
            Any => true,
            With(values) if matches!(self.value, Flag) => {
                values.iter().any(|same| super::boolean(same) == super::boolean(value))
            }
            With(values) => values.contains(&value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(words: &[&str]) -> (Option<String>, Vec<String>) {
        judge(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_lists_of_the_chart_are_served_equally_but_for_what_is_named() {
        // Source: charts/latest/azurefile-csi-driver, templates of the controller and of the node plugin.
        let controller = [
            "--v=5",
            "--endpoint=unix:///csi/csi.sock",
            "--metrics-address=0.0.0.0:29614",
            "--kubeconfig=",
            "--drivername=file.csi.azure.com",
            "--cloud-config-secret-name=azure-cloud-provider",
            "--cloud-config-secret-namespace=kube-system",
            "--custom-user-agent=",
            "--user-agent-suffix=OSS-helm",
            "--allow-empty-cloud-config=false",
        ];
        let (refused, notes) = judged(&controller);
        assert_eq!(refused, None);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(
            notes[0].starts_with("--metrics-address=0.0.0.0:29614 of azurefile-csi-driver: nothing is served there")
        );
        assert!(notes[1].contains("userAgent"));
        let node = [
            "--v=5",
            "--endpoint=unix:///csi/csi.sock",
            "--nodeid=node-1",
            "--enable-get-volume-stats=true",
            "--enable-volume-mount-group",
            "--mount-permissions=0777",
            "--allow-inline-volume-key-access-with-identity=false",
            "--enable-kata-cc-mount=false",
            "--append-nosharesock-option=True",
        ];
        assert_eq!(judged(&node), (None, vec![]));
    }

    #[test]
    fn another_value_differs_a_wrong_one_is_refused_and_the_last_one_counts() {
        let notes = |words: &[&str]| judged(words).1;
        assert!(notes(&["--append-closetimeo-option=true"])[0].contains("mountOptions of the class"));
        assert!(notes(&["--append-closetimeo-option"])[0].contains("=true of azurefile-csi-driver"));
        assert!(notes(&["--sas-token-expiration-minutes=10"])[0].contains("neither cloned"));
        assert!(notes(&["--nonsense=1"])[0].starts_with("--nonsense is no argument"));
        assert_eq!(
            notes(&["--append-closetimeo-option=true", "--append-closetimeo-option=false"]),
            Vec::<String>::new()
        );
        for (argument, allowed) in [
            ("--enable-vhd=perhaps", "true or false"),
            ("--mount-permissions=rwx", "a whole number from 0 to 7777"),
            ("--fsgroup-change-policy=never", "an empty text, None, Always, OnRootMismatch"),
        ] {
            let (refused, _) = judged(&[argument]);
            assert!(refused.as_deref().is_some_and(|why| why.contains(allowed)), "{argument}: {refused:?}");
        }
    }

    #[test]
    fn each_row_stands_once_and_its_values_are_some_that_it_takes() {
        for row in ROWS {
            assert_eq!(ROWS.iter().filter(|other| other.name == row.name).count(), 1, "--{}", row.name);
            assert!(row.sentence.len() > 15 && !row.sentence.ends_with('.'), "--{}", row.name);
            if let With(values) = row.equal {
                assert!(values.iter().all(|value| row.value.check(value).is_ok()), "--{}", row.name);
            }
        }
    }
}
