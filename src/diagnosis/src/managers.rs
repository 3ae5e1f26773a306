//! The managers that run in a cluster, by the command lines of their pods.
//!
//! A manager that runs outside of pods, as the control plane of a managed cluster does, cannot be seen. So what is seen
//! may be wrong, and what is not seen is never said to be absent.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::address::Cidr;

use super::{Finding, Grade, some};
use crate::controller_list::{Controller, Entry, runs};

/// The check of who gives pod ranges.
const ALLOCATORS: &str = "allocators of pod ranges";
/// The check of managers that do the same work.
const MANAGERS: &str = "cloud controllers";
/// The check of CSI controllers of one driver.
const DRIVERS: &str = "disk drivers";

/// The usual name of the disk driver.
const DISK_DRIVER: &str = "disk.csi.azure.com";

/// A program that this one must know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// Of Kubernetes; it gives pod ranges where it is told to.
    KubeControllerManager,
    /// The Azure cloud-controller-manager.
    CloudControllerManager,
    /// `lazuli cloud-controllers`.
    CloudControllers,
    /// The controller of the Azure disk driver in Go.
    GoDiskController,
    /// `lazuli csi-controller`.
    DiskController,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Self::KubeControllerManager => "kube-controller-manager",
            Self::CloudControllerManager => "the Azure cloud-controller-manager",
            Self::CloudControllers => "lazuli cloud-controllers",
            Self::GoDiskController => "the Azure disk driver in Go",
            Self::DiskController => "lazuli csi-controller",
        }
    }

    /// The program that a container runs, by its command line.
    fn of(words: &[&str]) -> Option<Self> {
        let is = |word: &&str, name: &str| word.rsplit('/').next() == Some(name);
        let runs = |name: &str| words.iter().take_while(|word| !word.starts_with("--")).any(|word| is(word, name));
        if runs("kube-controller-manager") {
            Some(Self::KubeControllerManager)
        } else if runs("cloud-controller-manager") || runs("azure-cloud-controller-manager") {
            Some(Self::CloudControllerManager)
        } else if words.contains(&"cloud-controllers") {
            Some(Self::CloudControllers)
        } else if words.contains(&"csi-controller") {
            Some(Self::DiskController)
        } else if runs("azurediskplugin") && !is_of_node(words) {
            Some(Self::GoDiskController)
        } else {
            None
        }
    }
}

/// Whether the Go driver's command line is that of its node plugin, which is the same program as its controller.
fn is_of_node(words: &[&str]) -> bool {
    words.iter().any(|word| word.starts_with("--nodeid"))
}

/// A container that runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// What made the pod: the Deployment, DaemonSet or static pod, as `Kind/name`. Pods of one owner are replicas.
    pub owner: String,
    /// Its image.
    pub image: String,
    /// Its command and its arguments.
    pub command: Vec<String>,
    /// The Helm release that the label `app.kubernetes.io/instance` of its pod names.
    pub release: Option<String>,
}

/// Replicas of one program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manager {
    /// Which.
    pub program: Program,
    /// The namespace of its pods.
    pub namespace: String,
    /// What made its pods.
    pub owner: String,
    /// Its pods.
    pub pods: Vec<String>,
    flags: BTreeMap<String, String>,
}

impl Manager {
    /// A flag, without its dashes.
    fn flag(&self, name: &str) -> Option<&str> {
        self.flags.get(name).map(String::as_str)
    }

    /// Whether a flag is set; `None` where an environment variable decides.
    fn is_set(&self, name: &str) -> Option<bool> {
        match self.flag(name) {
            None => Some(false),
            Some(value) if value.contains("$(") => None,
            Some(value) => Some(["", "true", "1", "t"].iter().any(|yes| value.eq_ignore_ascii_case(yes))),
        }
    }

    fn controllers(&self) -> Vec<&str> {
        self.flag("controllers").unwrap_or("*").split(',').map(str::trim).collect()
    }

    /// Whether it gives Nodes their pod ranges.
    fn allocates(&self) -> Option<bool> {
        if matches!(self.program, Program::CloudControllers | Program::GoDiskController | Program::DiskController) {
            return Some(false);
        }
        let controllers = self.controllers();
        let names = ["node-ipam-controller", "nodeipam", "node-ipam"];
        let off = |name: &&str| name.strip_prefix('-').is_some_and(|name| names.contains(&name));
        let is_named = controllers.iter().any(|name| names.contains(name));
        if controllers.iter().any(off) || !(is_named || controllers.contains(&"*")) {
            return Some(false);
        }
        self.is_set("allocate-node-cidrs")
    }

    /// The cloud controllers that it runs.
    fn cloud_controllers(&self) -> BTreeSet<Controller> {
        // Names that this program does not have, such as node-ipam, are about other controllers.
        let list: Vec<Entry> = self.controllers().into_iter().filter_map(|name| name.parse().ok()).collect();
        let routes = self.flag("configure-cloud-routes").is_none_or(|value| !value.eq_ignore_ascii_case("false"));
        let runs = |one: &Controller| runs(&list, *one) && (*one != Controller::NodeRoute || routes);
        Controller::ALL.into_iter().filter(runs).collect()
    }

    /// The Lease for which it asks, as `namespace/name`.
    pub fn lease(&self) -> String {
        let (name, namespace) = match self.program {
            Program::CloudControllers => (self.flag("lease-name"), self.flag("lease-namespace")),
            _ => (self.flag("leader-elect-resource-name"), self.flag("leader-elect-resource-namespace")),
        };
        let usual = if self.program == Program::KubeControllerManager { self.program.name() } else { CLOUD_LEASE.1 };
        format!("{}/{}", namespace.unwrap_or(CLOUD_LEASE.0), name.unwrap_or(usual))
    }

    /// Whether it waits for its Lease before it acts.
    fn elects(&self) -> bool {
        self.program == Program::CloudControllers
            || self.is_set("leader-elect").unwrap_or(true)
            || self.flag("leader-elect").is_none()
    }

    fn service_flags(&self) -> ServiceFlags {
        let known = |name: &str| self.flag(name).filter(|text| !text.is_empty() && !text.contains("$("));
        let text = |name: &str| known(name).map(str::to_owned);
        let items = |name: &str| known(name).into_iter().flat_map(|text| text.split(',').map(str::trim));
        let mut flags = ServiceFlags { cluster_name: text("cluster-name"), ..ServiceFlags::default() };
        // The others are this program's own.
        if self.program == Program::CloudControllers {
            flags.class = text("load-balancer-class");
            flags.allowed_external =
                items("allowed-external-addresses").filter_map(|range| range.parse().ok()).collect();
            flags.share_addresses = text("share-addresses");
            flags.allowed_groups = items("allowed-service-resource-groups").map(str::to_lowercase).collect();
        }
        flags
    }

    /// The name of the disk driver, as the command line spells it.
    fn driver(&self) -> &str {
        let given = |name| self.flag(name).filter(|text| !text.is_empty());
        given("driver-name").or(given("drivername")).unwrap_or(DISK_DRIVER)
    }

    /// The class of the Services that it serves.
    fn class(&self) -> Option<&str> {
        self.flag("load-balancer-class")
    }

    fn described(&self) -> String {
        format!("{} ({}/{})", self.program.name(), self.namespace, self.owner)
    }
}

/// The Lease of the cloud controllers of both programs, where no flag names another.
pub const CLOUD_LEASE: (&str, &str) = ("kube-system", "cloud-controller-manager");

/// The managers among these containers.
pub fn managers(containers: &[Container]) -> Vec<Manager> {
    let mut managers: Vec<Manager> = Vec::new();
    for container in containers {
        // A shell's command line is one argument.
        let words: Vec<&str> = container.command.iter().flat_map(|word| word.split_whitespace()).collect();
        let image = container.image.rsplit('/').next().unwrap_or_default();
        let by_image = || match image.split([':', '@']).next()? {
            "azure-cloud-controller-manager" => Some(Program::CloudControllerManager),
            "azuredisk-csi" if !is_of_node(&words) => Some(Program::GoDiskController),
            _ => None,
        };
        let Some(program) = Program::of(&words).or_else(by_image) else { continue };
        // Each machine of a control plane owns its static pods, which are replicas all the same.
        let is_static = container.owner.starts_with("Node/");
        let owner = if is_static { "static pods" } else { container.owner.as_str() };
        let same = |one: &&mut Manager| {
            (one.program, one.namespace.as_str(), one.owner.as_str()) == (program, &container.namespace, owner)
        };
        match managers.iter_mut().find(same) {
            Some(manager) => manager.pods.push(container.pod.clone()),
            None => managers.push(Manager {
                program,
                namespace: container.namespace.clone(),
                owner: owner.to_owned(),
                pods: vec![container.pod.clone()],
                flags: flags(&words),
            }),
        }
    }
    managers.sort_by(|one, other| {
        (one.program, &one.namespace, &one.owner).cmp(&(other.program, &other.namespace, &other.owner))
    });
    managers
}

/// The flags of a command line, as Go's and Rust's programs read them: `--name=value`, `--name value`, and `--name`.
fn flags(words: &[&str]) -> BTreeMap<String, String> {
    let mut flags = BTreeMap::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value),
            None => (flag, words.next_if(|next| !next.starts_with('-')).copied().unwrap_or_default()),
        };
        flags.insert(name.to_owned(), value.trim_matches(['"', '\'']).to_owned());
    }
    flags
}

/// The ranges of pods and those of Services that the flags of these managers name.
pub fn ranges(managers: &[Manager]) -> (Vec<Cidr>, Vec<Cidr>) {
    let of = |flag: &str| {
        let texts = managers.iter().filter_map(|manager| manager.flag(flag));
        let ranges: BTreeSet<Cidr> =
            texts.flat_map(|text| text.split(',')).filter_map(|text| text.trim().parse().ok()).collect();
        ranges.into_iter().collect()
    };
    (of("cluster-cidr"), of("service-cluster-ip-range"))
}

/// What the flags of a manager say of Services. What an environment variable or a file sets cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServiceFlags {
    /// `--cluster-name`.
    pub cluster_name: Option<String>,
    /// `--load-balancer-class`.
    pub class: Option<String>,
    /// `--allowed-external-addresses`.
    pub allowed_external: Vec<Cidr>,
    /// `--share-addresses`.
    pub share_addresses: Option<String>,
    /// `--allowed-service-resource-groups`.
    pub allowed_groups: Vec<String>,
}

/// What the flags say of Services, for each manager that serves some: those of this program, else those of the Azure
/// cloud-controller-manager. Where none can be seen, as if one had no flags.
pub fn of_services(managers: &[Manager]) -> Vec<ServiceFlags> {
    let serves = |program: Program| -> Vec<ServiceFlags> {
        let all = managers.iter().filter(|one| one.program == program);
        all.filter(|one| one.cloud_controllers().contains(&Controller::ServiceLb)).map(Manager::service_flags).collect()
    };
    let all = [serves(Program::CloudControllers), serves(Program::CloudControllerManager)];
    all.into_iter().find(|all| !all.is_empty()).unwrap_or_else(|| vec![ServiceFlags::default()])
}

/// What the flags of the disk driver's controller say of attaches. What an environment variable sets cannot be seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskFlags {
    /// `--driver-name`.
    pub driver: String,
    /// The entries of `--allowed-resource-groups`.
    pub allowed_groups: Vec<String>,
    /// Whether Pods may name the disks of claims: `--allow-inline-claimed-disks`.
    pub allows_inline: bool,
}

/// What the flags say of attaches, for each controller of this program's disk driver.
pub fn of_disks(managers: &[Manager]) -> Vec<DiskFlags> {
    let ours = managers.iter().filter(|one| one.program == Program::DiskController);
    let flags = |one: &Manager| {
        let text = |name: &str| one.flag(name).filter(|text| !text.is_empty() && !text.contains("$("));
        let groups = text("allowed-resource-groups").into_iter().flat_map(|text| text.split(','));
        DiskFlags {
            driver: Some(one.driver()).filter(|name| !name.contains("$(")).unwrap_or(DISK_DRIVER).to_owned(),
            allowed_groups: groups.map(|group| group.trim().to_owned()).collect(),
            allows_inline: one.is_set("allow-inline-claimed-disks") != Some(false),
        }
    };
    ours.map(flags).collect()
}

/// Whether exactly one program gives pod ranges, as far as can be seen.
pub fn allocators(managers: &[Manager], have_ranges: bool) -> Vec<Finding> {
    let finding = |grade, text: String| vec![Finding::new(ALLOCATORS, grade, text)];
    // Replicas share a Lease.
    let mut by_lease: BTreeMap<(Program, String), &Manager> = BTreeMap::new();
    for manager in managers.iter().filter(|manager| manager.allocates() == Some(true)) {
        by_lease.entry((manager.program, manager.lease())).or_insert(manager);
    }
    let names: Vec<String> = by_lease.values().map(|manager| manager.described()).collect();
    let unclear: Vec<String> =
        managers.iter().filter(|manager| manager.allocates().is_none()).map(Manager::described).collect();
    match &names[..] {
        [_, _, ..] => finding(
            Grade::Wrong,
            format!(
                "{} each give Nodes pod ranges (--allocate-node-cidrs), so that two Nodes may get one range: set it to false \
                 for all but one",
                some(&names)
            ),
        ),
        _ if !unclear.is_empty() => finding(
            Grade::Unseen,
            format!(
                "whether {} gives Nodes pod ranges is in an environment variable and cannot be seen: look at its \
                 --allocate-node-cidrs",
                some(&unclear)
            ),
        ),
        [one] => finding(Grade::Fine, format!("{one} gives Nodes pod ranges, and no other program that can be seen does")),
        [] if managers.iter().any(|manager| manager.program == Program::KubeControllerManager) => match have_ranges {
            true => finding(
                Grade::Note,
                "Nodes have pod ranges, and no program that can be seen gives them: find out which does before a Node is \
                 added"
                    .to_owned(),
            ),
            false => vec![],
        },
        [] => finding(
            Grade::Unseen,
            "no pod of kube-controller-manager can be seen, as where the control plane is managed or runs outside of pods: \
             make sure that exactly one program runs with --allocate-node-cidrs where Nodes need pod ranges"
                .to_owned(),
        ),
    }
}

/// Whether two managers do the same work. `holders` are the holders of Leases, by `namespace/name`.
pub fn rivals(managers: &[Manager], holders: &BTreeMap<String, String>) -> Vec<Finding> {
    let is_cloud = |one: &&Manager| matches!(one.program, Program::CloudControllerManager | Program::CloudControllers);
    let cloud: Vec<&Manager> = managers.iter().filter(is_cloud).collect();
    let mut findings = Vec::new();
    for (at, one) in cloud.iter().enumerate() {
        for other in &cloud[at + 1..] {
            findings.extend(rival_clouds(one, other, holders));
        }
    }
    if findings.is_empty()
        && let [one] = cloud[..]
    {
        let holder = holders.get(&one.lease()).map_or_else(String::new, |holder| format!(", held by {holder}"));
        let text = format!("{} runs alone with the Lease {}{holder}", one.described(), one.lease());
        findings.push(Finding::new(MANAGERS, Grade::Fine, text));
    }
    let is_disk = |one: &&Manager| matches!(one.program, Program::GoDiskController | Program::DiskController);
    let disks: Vec<&Manager> = managers.iter().filter(is_disk).collect();
    for (at, one) in disks.iter().enumerate() {
        for other in &disks[at + 1..] {
            findings.extend(rival_drivers(one, other));
        }
    }
    findings
}

fn rival_clouds(one: &Manager, other: &Manager, holders: &BTreeMap<String, String>) -> Option<Finding> {
    let (first, second) = (one.described(), other.described());
    if one.lease() == other.lease() && one.elects() && other.elects() {
        let lease = one.lease();
        let holder = holders.get(&lease).map_or("the one that holds it", String::as_str);
        let text = format!(
            "{first} and {second} ask for the same Lease {lease}, so that only {holder} acts and the other takes over when it \
             ends: scale one of them to 0 when the change from one to the other is done"
        );
        return Some(Finding::new(MANAGERS, Grade::Note, text));
    }
    let both: Vec<Controller> = one.cloud_controllers().intersection(&other.cloud_controllers()).copied().collect();
    let same_class = one.class() == other.class();
    let lease = |manager: &Manager| if manager.elects() { manager.lease() } else { "--leader-elect=false".to_owned() };
    let both: Vec<&str> = both
        .into_iter()
        .filter(|controller| *controller != Controller::ServiceLb || same_class)
        .map(|controller| controller.names()[1])
        .collect();
    if both.is_empty() {
        return None;
    }
    let text = format!(
        "{first} and {second} both run {} without a Lease in common ({} and {}), so that both act at once: give both one \
         Lease, or divide the controllers by --controllers",
        both.join(", "),
        lease(one),
        lease(other)
    );
    Some(Finding::new(MANAGERS, Grade::Wrong, text))
}

fn rival_drivers(one: &Manager, other: &Manager) -> Option<Finding> {
    let name = one.driver();
    if name != other.driver() {
        return None;
    }
    let (first, second) = (one.described(), other.described());
    // Sidecars elect their leaders in the namespace that they run in.
    let text = if one.namespace == other.namespace {
        format!(
            "{first} and {second} both serve the driver {name}; their sidecars share Leases, so that one of them acts at a \
             time: remove one when the change from one to the other is done"
        )
    } else {
        format!(
            "{first} and {second} both serve the driver {name} from two namespaces, so that their sidecars have Leases of \
             their own and both act at once: remove one"
        )
    };
    let grade = if one.namespace == other.namespace { Grade::Note } else { Grade::Wrong };
    Some(Finding::new(DRIVERS, grade, text))
}
