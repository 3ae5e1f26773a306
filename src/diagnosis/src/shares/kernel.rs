//! Whether the kernel of this node can mount a share.

use super::super::{Finding, Grade};

/// The check.
pub const KERNEL: &str = "SMB of this node's kernel";

/// What a node shows of its kernel. A file that cannot be read is `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kernel {
    /// Its release, as `uname -r` prints it.
    pub release: String,
    /// `/proc/filesystems`: what can be mounted now.
    pub filesystems: Option<String>,
    /// `modules.builtin` of its modules.
    pub built_in: Option<String>,
    /// `modules.dep` of its modules.
    pub modules: Option<String>,
}

/// Whether a line names the file of the module `cifs`, also a compressed one. In `modules.dep` the modules that it needs
/// follow a colon.
fn is_cifs(line: &str) -> bool {
    let path = line.split(':').next().unwrap_or_default().trim();
    let file = path.rsplit('/').next().unwrap_or_default();
    file == "cifs.ko" || file.strip_prefix("cifs.ko.").is_some_and(|compression| !compression.contains('.'))
}

/// Whether a kernel mounts `cifs`, now or after it has loaded the module.
pub fn smb(kernel: &Kernel) -> Finding {
    let Kernel { release, filesystems, built_in, modules } = kernel;
    let has = |file: &Option<String>| file.as_deref().map(|text| text.lines().any(is_cifs));
    let is_loaded =
        filesystems.as_deref().map(|text| text.lines().any(|line| line.split_whitespace().last() == Some("cifs")));
    match (is_loaded, has(built_in), has(modules)) {
        (Some(true), ..) => Finding::new(KERNEL, Grade::Fine, format!("kernel {release} mounts cifs")),
        (_, Some(true), _) | (_, _, Some(true)) => Finding::new(
            KERNEL,
            Grade::Fine,
            format!("kernel {release} has the module cifs, and loads it for the first mount"),
        ),
        (_, _, None) => {
            let text = format!(
                "not checked: cifs is not loaded, and /lib/modules/{release} cannot be read here; modprobe cifs on the node \
                 tells"
            );
            Finding::new(KERNEL, Grade::Unseen, text)
        }
        (_, _, Some(false)) => {
            let text = format!(
                "kernel {release} has no module cifs, so no share can be mounted on this node: install the package of its \
                 modules (linux-modules-extra-{release} on Ubuntu), or a kernel that has it"
            );
            Finding::new(KERNEL, Grade::Wrong, text)
        }
    }
}
