//! Where a person's cluster keeps its files, and what is left of one: its processes and its loop devices.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use nix::unistd::Pid;
use serde_json::Value;

use crate::process::processes;

/// The environment variable by which the processes of a supervisor are found, with the cluster's folder as its value.
pub(crate) const MARKER: &str = "LAZULI_CLUSTER_SUPERVISOR";
/// The longest path of a unix socket (source: unix(7), `sun_path`).
const LONGEST_SOCKET: usize = 107;
/// The longest of those that the cluster makes below its folder.
const SOCKET: &str = "node-0-runtime/cri.sock";

/// The folder of a cluster.
#[derive(Debug, Clone)]
pub struct Place(PathBuf);

impl Place {
    /// The folder at an absolute path; why it cannot be.
    ///
    /// # Errors
    /// The path is too long for the sockets in it.
    pub fn new(path: &Path) -> Result<Self, String> {
        let longest = path.join(SOCKET).as_os_str().len();
        if longest > LONGEST_SOCKET {
            let most = LONGEST_SOCKET - SOCKET.len() - 1;
            return Err(format!(
                "the folder {} has {} bytes in its path, and sockets in it allow {most}: name another one with --folder",
                path.display(),
                path.as_os_str().len(),
            ));
        }
        Ok(Self(path.to_owned()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The kubeconfig for this machine.
    pub fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// What the supervisor and its panics have said.
    pub fn log(&self) -> PathBuf {
        self.0.join("supervisor.log")
    }

    /// The names of the nodes that should run, in JSON. Without it they are those of the start.
    pub fn nodes(&self) -> PathBuf {
        self.0.join("nodes.json")
    }

    /// Why the supervisor has ended, if something failed.
    pub fn failure(&self) -> PathBuf {
        self.0.join("failure")
    }

    /// The supervisor's process id, for people.
    pub fn pid(&self) -> PathBuf {
        self.0.join("supervisor.pid")
    }

    /// The steps of the start, a line each.
    pub fn steps(&self) -> PathBuf {
        self.0.join("steps")
    }

    /// The addresses, in JSON. It is there once the cluster serves.
    pub fn addresses(&self) -> PathBuf {
        self.0.join("addresses.json")
    }

    /// The programs for a person's path.
    pub fn programs(&self) -> PathBuf {
        self.0.join("bin")
    }

    /// Whether this is the folder of a cluster.
    pub fn is_used(&self) -> bool {
        self.log().exists()
    }

    /// The processes of the supervisor, in this process's namespace. All others of the cluster end with them.
    pub fn supervisors(&self) -> Vec<Pid> {
        let wanted = [MARKER.as_bytes(), b"=", self.0.as_os_str().as_encoded_bytes()].concat();
        let is_it = |pid: &i32| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == wanted)
        };
        processes().filter(is_it).map(Pid::from_raw).collect()
    }

    /// The loop devices on files below it.
    ///
    /// # Errors
    /// `losetup` cannot be run.
    pub fn loops(&self) -> io::Result<Vec<String>> {
        let output = Command::new("losetup")
            .args(["--list", "--noheadings", "--raw", "--output", "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE"])
            .output()?;
        Ok(loops_on(&String::from_utf8_lossy(&output.stdout), &self.0, &files_below(&self.0.join("azure"))))
    }
}

/// A file as a loop device remembers it: `MAJOR:MINOR` of its file system, and its inode.
type FileId = (String, u64);

fn files_below(folder: &Path) -> BTreeSet<FileId> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.metadata() {
            Ok(of) if of.is_dir() => found.append(&mut files_below(&entry.path())),
            Ok(of) if of.is_file() => {
                let device = format!("{}:{}", rustix::fs::major(of.dev()), rustix::fs::minor(of.dev()));
                found.insert((device, of.ino()));
            }
            _ => {}
        }
    }
    found
}

/// Those of the devices in a list of `losetup` whose file is one of these or below a folder. The mounts by which the file
/// was opened may be gone, and then its path is no longer whole.
fn loops_on(list: &str, folder: &Path, files: &BTreeSet<FileId>) -> Vec<String> {
    let is_it = |line: &str| {
        let mut words = line.splitn(4, ' ');
        let (name, device, inode) = (words.next()?, words.next()?, words.next()?.parse().ok()?);
        let file = words.next().unwrap_or_default().trim_end_matches("\\x20(deleted)").trim_end_matches(" (deleted)");
        let is_below = Path::new(file).starts_with(folder);
        (is_below || files.contains(&(device.to_owned(), inode))).then(|| name.to_owned())
    };
    list.lines().filter_map(is_it).collect()
}

/// Writes a file of JSON so that a reader sees the whole of it or none.
pub(crate) fn write_json(file: &Path, value: &Value) -> io::Result<()> {
    let part = file.with_extension("part");
    fs::write(&part, value.to_string())?;
    fs::rename(&part, file)
}

/// The object in a file of JSON; `None` while it is not there.
pub(crate) fn read_json(file: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_device_is_of_the_cluster_by_its_files_path_or_inode() {
        let list = "/dev/loop0 254:1 17 /var/lib/other.img\n\
            /dev/loop1 254:1 18 /c/azure/disks/a.img\n\
            /dev/loop2 254:1 19 /azure/disks/b.img\n\
            /dev/loop3 254:2 19 /cc/azure/disks/c.img\n\
            /dev/loop4 0:0 0 /c/azure/disks/d.img\\x20(deleted)\n";
        let files = BTreeSet::from([("254:1".to_owned(), 19)]);
        assert_eq!(loops_on(list, Path::new("/c"), &files), ["/dev/loop1", "/dev/loop2", "/dev/loop4"]);
    }

    #[test]
    fn a_folder_is_refused_when_its_sockets_would_have_too_long_a_path() {
        assert!(Place::new(Path::new(&format!("/{}", "a".repeat(82)))).is_ok());
        let why = Place::new(Path::new(&format!("/{}", "a".repeat(83)))).unwrap_err();
        assert!(why.contains("84 bytes") && why.contains("allow 83") && why.contains("--folder"), "{why}");
    }

    #[test]
    fn no_process_supervises_a_folder_that_no_cluster_has() {
        assert_eq!(Place::new(Path::new("/no/such/cluster")).unwrap().supervisors(), []);
    }
}
