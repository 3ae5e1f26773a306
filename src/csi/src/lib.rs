//! The Container Storage Interface: what kubelet and the CSI sidecars call.
//!
//! This crate owns the gRPC edge of the storage drivers: sockets, requests parsed once, answers and codes chosen for
//! the sidecar that reads them, one log line per call, and kubelet's registration. It never talks to Azure's
//! management API itself (that is `disk`) and never makes a system call on a volume itself (that is `host`).
//!
//! | module | serves |
//! |---|---|
//! | [`server`] | nothing by itself: endpoints, listeners, draining, logging, statuses |
//! | [`identity`] | `csi.v1.Identity`, in every process |
//! | [`controller`] | `csi.v1.Controller` of `disk.csi.azure.com` |
//! | [`node`] | `csi.v1.Node` of `disk.csi.azure.com`, on every node |
//! | [`file::controller`], [`file::node`] | the same of `file.csi.azure.com` |
//! | [`registration`] | `pluginregistration.Registration`, so that kubelet finds the node service |

mod asked;
mod calls;
mod capability;
pub mod controller;
mod fields;
pub mod file;
pub mod identity;
mod locks;
mod mount_code;
mod mount_flags;
pub mod node;
mod pages;
mod pod_mount;
pub mod registration;
pub mod server;
mod usage;
mod wire;

#[cfg(test)]
mod scratch;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    /// The two services run on different machines and with different rights: what both know is a module of its own.
    #[test]
    fn the_controller_and_the_node_import_nothing_of_each_other() {
        let imports = |source: &str, module: &str| {
            let code = source.lines().filter(|line| !line.trim_start().starts_with("//"));
            let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && !"_:".contains(c)));
            let paths = words.filter(|word| word.contains("::"));
            paths.filter(|path| path.split("::").any(|part| part == module)).map(str::to_owned).collect::<Vec<_>>()
        };
        let known = "use super::{\n    node::KEY,\n};\nlet node = super::node::KEY; // crate::node\n// node::KEY\n";
        assert_eq!(imports(known, "node"), ["node::KEY", "super::node::KEY", "crate::node"]);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let below = |folder: &str| {
            let files = fs::read_dir(source.join(folder)).unwrap().map(|file| file.unwrap().path());
            files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect::<Vec<_>>()
        };
        let file = |name: &str| fs::read_to_string(source.join(name)).unwrap();
        let controller = [below("controller"), vec![file("mount_flags.rs"), file("capability.rs")]].concat();
        let node = [below("node"), vec![file("node.rs")]].concat();
        assert!(controller.len() > 2 && node.len() > 10);
        for (sources, other) in [(controller, "node"), (node, "controller")] {
            for source in sources {
                assert_eq!(imports(&source, other), Vec::<String>::new());
            }
        }
    }
}
