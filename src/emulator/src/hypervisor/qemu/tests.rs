//! With a QEMU that has no guest, where one is installed: what it is asked for is what it does. And with none.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::super::Hypervisor;
use super::*;

const MIB: u64 = 1 << 20;
const VM: &str = "Node-0";

/// A root folder, with a socket for QEMU.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("lazuli-qemu-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("qmp")
    }

    async fn try_start(&self, attached: Vec<Attachment>) -> Result<Hypervisor, HypervisorError> {
        self.try_start_as(Shown::Scsi, attached).await
    }

    async fn try_start_as(&self, shown: Shown, attached: Vec<Attachment>) -> Result<Hypervisor, HypervisorError> {
        let machines = QemuMachines { sockets: [(VM.to_lowercase(), self.socket())].into() };
        let machine = Machine { name: VM.to_owned(), shown };
        Hypervisor::start_qemu(&self.0, machines, vec![machine], attached).await
    }

    async fn start(&self, attached: Vec<Attachment>) -> Hypervisor {
        self.try_start(attached).await.unwrap()
    }

    /// The files of disks.
    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.join("disks")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A QEMU whose processor does not run.
pub(crate) struct Process(Child);

impl Process {
    fn start(root: &Root, arguments: &[&str]) -> Option<Self> {
        Self::start_at(&root.socket(), arguments)
    }

    /// One that listens at a socket, where QEMU is installed.
    pub(crate) fn start_at(socket: &Path, arguments: &[&str]) -> Option<Self> {
        let qmp = format!("unix:{},server=on,wait=off", socket.display());
        let started = Command::new("qemu-system-x86_64")
            .args(["-machine", "q35", "-accel", "tcg", "-m", "64", "-S", "-nodefaults", "-no-user-config"])
            .args(["-display", "none", "-qmp", &qmp])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn();
        let mut process = match started {
            Ok(child) => Self(child),
            Err(error) => {
                eprintln!("skipped: qemu-system-x86_64: {error}");
                return None;
            }
        };
        while Qmp::connect(socket, &PATIENCE.into()).is_err_and(|error| error.is_off()) {
            assert_eq!(process.0.try_wait().unwrap(), None, "QEMU has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(process)
    }

    fn with_controller(root: &Root) -> Option<Self> {
        Self::start(root, &["-device", "virtio-scsi-pci,id=lazuli"])
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn disk(name: &str, size_bytes: u64) -> DiskFacts {
    let id = format!("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/{name}");
    DiskFacts { id, unique_id: String::new(), size_bytes, file: None }
}

fn at(lun: u8, disk: &DiskFacts) -> Attachment {
    Attachment { vm: VM.to_owned(), lun, disk: disk.clone() }
}

/// What QEMU has: file and size by LUN.
fn plugged(root: &Root) -> BTreeMap<u8, (String, u64)> {
    plugged_at(&root.socket())
}

/// The same, by the socket.
pub(crate) fn plugged_at(socket: &Path) -> BTreeMap<u8, (String, u64)> {
    let mut qmp = Qmp::connect(socket, &PATIENCE.into()).unwrap();
    let blocks = qmp.execute("query-block", json!({})).unwrap();
    let has = look(&mut qmp).unwrap();
    assert_eq!(has.nodes.len(), has.devices.len(), "no block node without a device");
    let of_block = |block: &serde_json::Value| {
        let lun = block["qdev"].as_str()?.strip_prefix("lazuli-lun-")?.parse().ok()?;
        let file = block["inserted"]["file"].as_str()?.to_owned();
        Some((lun, (file, block["inserted"]["image"]["virtual-size"].as_u64()?)))
    };
    blocks.as_array().unwrap().iter().filter_map(of_block).collect()
}

/// LUN and size alone.
fn sizes(root: &Root) -> Vec<(u8, u64)> {
    plugged(root).into_iter().map(|(lun, (_, bytes))| (lun, bytes)).collect()
}

#[tokio::test]
async fn disks_are_plugged_at_their_luns_grow_and_go() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let hypervisor = root.start(vec![]).await;
    assert_eq!((hypervisor.name(), hypervisor.node_root(VM)), ("QEMU", None));
    let (mut one, two) = (disk("one", 4 * MIB), disk("two", 8 * MIB));
    hypervisor.create_disk(&one).await.unwrap();
    hypervisor.attach(VM, 63, &one).await.unwrap();
    hypervisor.attach("node-0", 0, &two).await.unwrap();
    hypervisor.attach(VM, 63, &one).await.unwrap();
    assert_eq!(sizes(&root), [(0, 8 * MIB), (63, 4 * MIB)]);

    one.size_bytes = 6 * MIB;
    hypervisor.resize(&one).await.unwrap();
    assert_eq!(sizes(&root), [(0, 8 * MIB), (63, 6 * MIB)]);
    // Another disk at the LUN takes it over.
    hypervisor.detach(VM, 0).await.unwrap();
    hypervisor.attach(VM, 63, &two).await.unwrap();
    let has = plugged(&root);
    assert!(has.len() == 1 && has[&63].0.contains("/disks/two-"), "{has:?}");
    hypervisor.withdraw(VM, 63, &one).await.unwrap();
    assert_eq!(plugged(&root).len(), 1);
    for _ in 0..2 {
        hypervisor.detach(VM, 63).await.unwrap();
        assert_eq!(sizes(&root), []);
    }
    hypervisor.delete_disk(&one.id).await.unwrap();
    hypervisor.delete_disk(&two.id).await.unwrap();
    hypervisor.withdraw(VM, 63, &one).await.unwrap();
    assert_eq!(root.files(), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_vhd_is_plugged_without_its_footer_and_withdrawn_by_its_file() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let file = root.0.join("blob");
    fs::File::create(&file).unwrap().set_len(4 * MIB + 512).unwrap();
    let vhd = DiskFacts { file: Some(file.clone()), ..disk("vhd", 4 * MIB) };
    let hypervisor = root.start(vec![]).await;
    hypervisor.attach(VM, 5, &vhd).await.unwrap();
    assert_eq!(sizes(&root), [(5, 4 * MIB)]);
    hypervisor.withdraw(VM, 5, &vhd).await.unwrap();
    assert_eq!(sizes(&root), []);
    assert_eq!(fs::metadata(&file).unwrap().len(), 4 * MIB + 512);
}

#[tokio::test]
async fn the_next_emulator_adopts_what_is_right_and_sets_the_rest_right() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let [kept, wrong, late, gone] = ["kept", "wrong", "late", "gone"].map(|name| disk(name, 2 * MIB));
    let first = root.start(vec![at(1, &kept), at(2, &wrong), at(3, &gone)]).await;
    assert!(root.try_start(vec![]).await.is_err_and(|error| matches!(error, HypervisorError::InUse { .. })));
    // The first ends without a farewell, in the middle of an unplug.
    drop(first);
    let mut qmp = Qmp::connect(&root.socket(), &PATIENCE.into()).unwrap();
    qmp.execute("device_del", json!({"id": "lazuli-lun-3"})).unwrap();
    qmp.wait_until_gone("lazuli-lun-3").unwrap();
    let before = qmp.execute("qom-list", json!({"path": "/machine/peripheral"})).unwrap();
    drop(qmp);
    let second = root.start(vec![at(1, &kept), at(2, &late)]).await;
    let has = plugged(&root);
    assert_eq!(has.keys().copied().collect::<Vec<_>>(), [1, 2]);
    assert!(has[&1].0.contains("/kept-") && has[&2].0.contains("/late-"), "{has:?}");
    assert!(before.to_string().contains("lazuli-lun-1"));
    second.shutdown().await.unwrap();
    assert_eq!(sizes(&root), []);
}

#[tokio::test]
async fn a_machine_of_another_emulator_is_left_alone() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let one = disk("one", MIB);
    let first = root.start(vec![at(7, &one)]).await;
    // Another root and another name of the socket; the machine's own is the same.
    let second = Root::new();
    std::os::unix::fs::symlink(root.socket(), second.socket()).unwrap();
    let error = second.try_start(vec![]).await.unwrap_err();
    let text = crate::error_chain::chain(&error);
    let (pid, lock) = (std::process::id(), format!("{}.lock", root.socket().display()));
    assert!(
        text.contains(&format!("another emulator (process {pid}) plugs the disks of the machine node-0")),
        "{text}"
    );
    assert!(text.contains(&second.socket().display().to_string()) && text.contains(&lock), "{text}");
    assert_eq!(sizes(&root), [(7, MIB)]);
    drop(first);
    let _second = second.start(vec![]).await;
    assert_eq!(sizes(&root), []);
}

#[tokio::test]
async fn a_machine_that_is_off_is_claimed_before_its_qemu_starts() {
    let root = Root::new();
    let late = root.0.join("late");
    let start = |folder: PathBuf| {
        let machines = QemuMachines { sockets: [(VM.to_lowercase(), late.join("qmp"))].into() };
        async move { Hypervisor::start_qemu(&folder, machines, vec![], vec![]).await }
    };
    // Two may hope for a machine whose folder is not there yet: the first that can claim it has it.
    let first = start(root.0.join("a")).await.unwrap();
    let second = start(root.0.join("b")).await.unwrap();
    fs::create_dir(&late).unwrap();
    second.detach(VM, 0).await.unwrap();
    let error = first.attach(VM, 0, &disk("one", MIB)).await.unwrap_err();
    assert!(matches!(error, HypervisorError::QemuInUse { .. }), "{error}");
    let error = start(root.0.join("c")).await.unwrap_err();
    assert!(matches!(error, HypervisorError::QemuInUse { .. }), "{error}");
}

#[tokio::test]
async fn a_machine_with_nvme_has_no_disks_after_the_start() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let one = disk("one", MIB);
    drop(root.start(vec![at(7, &one)]).await);
    assert_eq!(sizes(&root), [(7, MIB)]);
    let nvme = Shown::Nvme { multipath: false, system: true };
    // As SCSI it has had one, and a file of it stays.
    let _hypervisor = root.try_start_as(nvme, vec![at(7, &one)]).await.unwrap();
    assert_eq!((sizes(&root), root.files().len()), (vec![], 1));
}

#[tokio::test]
async fn a_start_that_is_given_up_leaves_its_root_to_the_next() {
    let root = Root::new();
    // It takes connections and says nothing.
    let _socket = std::os::unix::net::UnixListener::bind(root.socket()).unwrap();
    let begun = Instant::now();
    let start = tokio::time::timeout(Duration::from_millis(100), root.try_start(vec![]));
    assert!(start.await.is_err(), "it waits for the greeting");
    while Hypervisor::start_qemu(&root.0, QemuMachines::default(), vec![], vec![]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() < PATIENCE / 3, "it goes on waiting");
    }
}

#[tokio::test]
async fn the_end_of_the_emulator_does_not_wait_for_silent_sockets() {
    let root = Root::new();
    let machines = ["a", "b", "c"].map(|vm| (vm.to_owned(), root.0.join(vm)));
    let qemu = QemuMachines { sockets: machines.clone().into() };
    let hypervisor = Hypervisor::start_qemu(&root.0, qemu, vec![], vec![]).await.unwrap();
    let _sockets = machines.map(|(_, path)| std::os::unix::net::UnixListener::bind(path).unwrap());
    let one = disk("one", MIB);
    let begun = Instant::now();
    let calls: Vec<_> = ["a", "b"]
        .map(|vm| {
            let (hypervisor, one) = (hypervisor.clone(), one.clone());
            tokio::spawn(async move { hypervisor.attach(vm, 0, &one).await })
        })
        .into();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let error = hypervisor.shutdown().await.unwrap_err();
    assert!(crate::error_chain::chain(&error).contains("no greeting"), "{error}");
    for call in calls {
        assert!(call.await.unwrap().is_err());
    }
    assert!(begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_client_for_which_qemu_has_no_room_is_no_call_without_an_end() {
    let root = Root::new();
    let Some(_qemu) = Process::with_controller(&root) else { return };
    let _served = Qmp::connect(&root.socket(), &PATIENCE.into()).unwrap();
    let _queue = [0, 1].map(|_| std::os::unix::net::UnixStream::connect(root.socket()).unwrap());
    for _ in 0..2 {
        let error = Qmp::connect(&root.socket(), &Duration::from_millis(50).into()).unwrap_err();
        assert!(matches!(error, QmpError::NoGreeting { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_qemu_without_the_controller_is_told_in_words_at_the_start() {
    for (arguments, told) in [
        (&[][..], "no device has the id lazuli"),
        (&["-device", "virtio-scsi-pci,id=scsi"], "no device has the id lazuli"),
        (&["-device", "lsi53c895a,id=lazuli"], "is of the kind lsi53c895a"),
    ] {
        let root = Root::new();
        // It starts after the emulator, and before the next one.
        let hypervisor = root.start(vec![]).await;
        let Some(_qemu) = Process::start(&root, arguments) else { return };
        let attached = hypervisor.attach(VM, 0, &disk("one", MIB)).await.unwrap_err();
        hypervisor.detach(VM, 0).await.unwrap();
        drop(hypervisor);
        let started = root.try_start(vec![]).await.unwrap_err();
        for error in [attached, started] {
            let text = crate::error_chain::chain(&error);
            assert!(text.contains("node-0") && text.contains(told), "{text}");
            assert!(text.contains("-device virtio-scsi-pci,id=lazuli"), "{text}");
        }
        assert_eq!(sizes(&root), []);
        // One of which nothing is wanted may be without.
        let nvme = Shown::Nvme { multipath: false, system: true };
        root.try_start_as(nvme, vec![]).await.unwrap();
    }
}

#[tokio::test]
async fn a_disk_that_qemu_refuses_keeps_no_file_open() {
    let root = Root::new();
    let taken = "driver=null-co,node-name=other,size=1048576";
    let at_lun = "scsi-hd,bus=lazuli.0,channel=0,scsi-id=0,lun=3,drive=other";
    let arguments = ["-device", "virtio-scsi-pci,id=lazuli", "-blockdev", taken, "-device", at_lun];
    let Some(_qemu) = Process::start(&root, &arguments) else { return };
    let hypervisor = root.start(vec![]).await;
    let error = hypervisor.attach(VM, 3, &disk("one", MIB)).await.unwrap_err();
    let text = crate::error_chain::chain(&error);
    assert!(text.contains("QEMU takes no disk: lun already used"), "{text}");
    assert_eq!(sizes(&root), []);
}

#[tokio::test]
async fn a_machine_that_is_off_has_no_devices_and_takes_none() {
    let root = Root::new();
    let one = disk("one", MIB);
    // Another process has gone and left its socket.
    for _ in 0..2 {
        let hypervisor = root.start(vec![at(0, &one)]).await;
        hypervisor.detach(VM, 0).await.unwrap();
        hypervisor.resize(&one).await.unwrap();
        let error = hypervisor.attach(VM, 0, &one).await.unwrap_err();
        assert!(crate::error_chain::chain(&error).contains("does QEMU run with -qmp"), "{error}");
        hypervisor.delete_machine(VM).await.unwrap();
        hypervisor.shutdown().await.unwrap();
        drop(hypervisor);
        let _ = std::os::unix::net::UnixListener::bind(root.socket());
    }
}

#[tokio::test]
async fn machines_without_a_socket_have_their_disks_on_paper() {
    let root = Root::new();
    let hypervisor = root.start(vec![]).await;
    let one = disk("one", MIB);
    hypervisor.create_machine("other", Shown::Nvme { multipath: false, system: true }).await.unwrap();
    hypervisor.attach("other", 0, &one).await.unwrap();
    fs::File::options().write(true).open(&root.files()[0]).unwrap().write_all_at(b"lapis", 7).unwrap();
    hypervisor.copy_disk(&one.id, &disk("two", 2 * MIB)).await.unwrap();
    for file in root.files() {
        let mut bytes = [0; 5];
        fs::File::open(file).unwrap().read_exact_at(&mut bytes, 7).unwrap();
        assert_eq!(&bytes, b"lapis");
    }
    hypervisor.detach("other", 0).await.unwrap();
}

#[tokio::test]
async fn what_azure_or_qemu_cannot_do_is_refused() {
    let root = Root::new();
    let hypervisor = root.start(vec![]).await;
    let one = disk("one", MIB);
    let error = hypervisor.attach(VM, 64, &one).await.unwrap_err().to_string();
    assert_eq!(error, "LUN 64 is too high: Azure's data disks have the LUNs 0 to 63");
    let nvme = Shown::Nvme { multipath: false, system: true };
    let error = hypervisor.create_machine(VM, nvme).await.unwrap_err().to_string();
    assert!(error.contains(VM) && error.contains("the disk controller SCSI"), "{error}");
    let check = |name: &str, shown| hypervisor.check(&Machine { name: name.to_owned(), shown });
    assert_eq!(check(VM, nvme).unwrap_err().to_string(), error);
    assert!(check(VM, Shown::Scsi).is_ok() && check("other", nvme).is_ok());
    assert!(Hypervisor::none().check(&Machine { name: VM.to_owned(), shown: nvme }).is_ok());
    drop(hypervisor);
    let error = root.try_start(vec![at(200, &one)]).await.unwrap_err().to_string();
    assert!(error.contains("LUN 200"), "{error}");
}
