//! `lazuli emulator`.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use lazuli_emulator::{
    Emulator, HostName, HypervisorChoice, SWITCHES, Switches,
    api_versions::ApiVersions,
    hypervisor::QemuMachines,
    latency::Profile,
    quota_names,
    scenario::{RouteTable, Scenario, SecurityGroup},
    smb::Samba,
};
use lazuli_rig::{SECURITY_GROUP, azure_json};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::{Outcome, go_arguments::boolean, number::whole, output::Format, stop};

/// Options of the emulator.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Where to serve every plane: resource manager, login, instance metadata, control (/_emulator/), and a page that
    /// shows in a browser what exists, what runs and what was asked.
    #[arg(long, env = "LAZULI_EMULATOR_LISTEN", default_value = "127.0.0.1:8181")]
    listen: SocketAddr,
    /// Serve HTTPS as well, here; without an address, at 127.0.0.1:8443. Credentials of the Azure SDKs insist on it.
    #[arg(long, env = "LAZULI_EMULATOR_TLS", num_args = 0..=1, default_missing_value = "127.0.0.1:8443")]
    tls: Option<SocketAddr>,
    /// Another host name under which the emulator is reached, such as that of a Kubernetes Service. It answers to localhost,
    /// to addresses (page and control interface: to those listened on) and to these names, and to no other Host; the
    /// certificate of --tls holds them. Can be given again.
    #[arg(long = "name", env = "LAZULI_EMULATOR_NAMES", value_name = "HOST", value_delimiter = ',')]
    names: Vec<HostName>,
    /// A folder for the certificate authority: its key, and ca.pem for clients, which is renewed at every start for a
    /// year. A fresh authority at every start without it.
    #[arg(long, env = "LAZULI_EMULATOR_TLS_DIR")]
    tls_dir: Option<PathBuf>,
    /// What exists at the start (YAML or JSON); without it: resource group lazuli, machines node-0 and node-1, virtual network
    /// lazuli-vnet, security group nodes-nsg, route table lazuli-routes.
    #[arg(long, env = "LAZULI_EMULATOR_SCENARIO")]
    scenario: Option<PathBuf>,
    /// Keep what exists in this file, and start from it. Page blobs are files in a folder beside it, which has its name and
    /// `.blobs`. A killed emulator loses milliseconds; operations that ran then are at their end at the next start.
    #[arg(long, env = "LAZULI_EMULATOR_STATE")]
    state: Option<PathBuf>,
    /// How long operations take: none, typical (published medians), azure (spread around them with the published
    /// tail), bad-day, or a file.
    #[arg(long, env = "LAZULI_EMULATOR_LATENCY", default_value = "none")]
    latency: Profile,
    /// Retry-After, in seconds, on accepted operations and their polls. Without it: 10 for machines and networks,
    /// 2 for disks (see --unverified), 15 for resource groups, 17 for storage accounts.
    #[arg(long, env = "LAZULI_EMULATOR_RETRY_AFTER", value_parser = whole::<u64>(0..=u64::MAX))]
    retry_after: Option<u64>,
    /// How much faster than real time emulated time passes, for people: operations end sooner, buckets fill faster, a
    /// Retry-After without --retry-after is shorter. Tokens live in real time. Timings of such a run compare with
    /// nothing.
    #[arg(long, env = "LAZULI_EMULATOR_TIME_SCALE", default_value_t = 1.0, value_parser = time_scale)]
    time_scale: f64,
    /// Seed of everything random.
    #[arg(long, env = "LAZULI_EMULATOR_SEED", default_value_t = 1, value_parser = whole::<u64>(0..=u64::MAX))]
    seed: u64,
    /// Serve without request limits.
    #[arg(long, value_parser = boolean, env = "LAZULI_EMULATOR_NO_THROTTLING")]
    no_throttling: bool,
    /// Answer ids in other letter case than they were given in.
    #[arg(long, value_parser = boolean, env = "LAZULI_EMULATOR_NASTY_CASING")]
    nasty_casing: bool,
    /// How long reads go on showing the state before a write, in milliseconds.
    #[arg(long, env = "LAZULI_EMULATOR_READ_LAG_MS", default_value_t = 0, value_parser = whole::<u64>(0..=u64::MAX))]
    read_lag_ms: u64,
    /// How old the list of data disks is that the instance metadata service shows, in milliseconds.
    #[arg(long, env = "LAZULI_EMULATOR_IMDS_LAG_MS", default_value_t = 0, value_parser = whole::<u64>(0..=u64::MAX))]
    imds_lag_ms: u64,
    /// Resources per page of a list; $top may ask for fewer.
    #[arg(long, env = "LAZULI_EMULATOR_PAGE_SIZE", default_value_t = 1000, value_parser = whole::<usize>(1..=usize::MAX))]
    page_size: usize,
    /// A quota of every subscription and region, over the default and over the scenario's: cores, virtualMachines,
    /// availabilitySets, StandardDiskCount, StandardSSDDiskCount, PremiumDiskCount, UltraSSDDiskSizeInGB,
    /// PremiumV2DiskSizeInGB, PremiumV2DiskCount, StandardSnapshotCount, PremiumSnapshotCount, ZRSSnapshotCount and
    /// those of the network and storage providers. Can be given again.
    #[arg(long, env = "LAZULI_EMULATOR_QUOTAS", value_name = "NAME=N", value_delimiter = ',', value_parser = quota)]
    quota: Vec<(String, u64)>,
    /// Where no recording and no document says what Azure does, do this; can be given again.
    #[arg(long, env = "LAZULI_EMULATOR_UNVERIFIED", value_name = "KEY=VALUE", value_delimiter = ',',
        value_parser = switch, long_help = unverified_help())]
    unverified: Vec<String>,
    /// Add members that are newer than any published type, and refuse a write that drops one; list a machine size that
    /// is newer than any table of sizes.
    #[arg(long, value_parser = boolean, env = "LAZULI_EMULATOR_FUTURE_FIELDS")]
    future_fields: bool,
    /// Which api-versions a type takes, beside the published ones: dated (any day since the type began, no future
    /// one), published (none but newer ones), any.
    #[arg(long, env = "LAZULI_EMULATOR_API_VERSIONS", value_enum, default_value_t = Versions::Dated)]
    api_versions: Versions,
    /// Take any bearer token; without this, only those of the login and identity endpoints.
    #[arg(long, value_parser = boolean, env = "LAZULI_EMULATOR_ACCEPT_ANY_TOKEN")]
    accept_any_token: bool,
    /// What becomes of attached disks: none, loop (block devices; needs root), or qemu (SCSI disks of the machines that
    /// --qemu-qmp names).
    #[arg(long, env = "LAZULI_EMULATOR_HYPERVISOR", value_enum, default_value_t = Hypervisor::None)]
    hypervisor: Hypervisor,
    /// Where the hypervisor keeps its disks and the machines' sys and dev folders.
    #[arg(long, env = "LAZULI_EMULATOR_HYPERVISOR_ROOT", default_value = "/var/lib/lazuli-emulator")]
    hypervisor_root: PathBuf,
    /// With --hypervisor qemu, a machine that runs in QEMU, and the socket of its Machine Protocol. QEMU is started with
    /// `-qmp unix:PATH,server=on,wait=off` and, after the controllers of its own disks, `-device
    /// virtio-scsi-pci,id=lazuli`, on which data disks come and go. Can be given again, and in the environment with a
    /// line for each; a comma belongs to the path. Machines without a socket have no devices.
    #[arg(long, env = "LAZULI_EMULATOR_QEMU_QMP", value_name = "VM=PATH", value_delimiter = '\n', value_parser = qemu_qmp)]
    qemu_qmp: Vec<(String, PathBuf)>,
    /// What serves the files of shares: none, or samba (Debian's smbd on the loopback interface, a port for each storage
    /// account, which GET /_emulator/smb tells; needs root).
    #[arg(long, env = "LAZULI_EMULATOR_SMB", value_enum, default_value_t = Smb::None)]
    smb: Smb,
    /// Where the files of shares are kept.
    #[arg(long, env = "LAZULI_EMULATOR_SMB_ROOT", default_value = "/var/lib/lazuli-emulator/smb")]
    smb_root: PathBuf,
    /// The folder in which Debian's package samba is unpacked with what it depends on; / when it is installed.
    #[arg(long, env = "LAZULI_EMULATOR_SMB_PROGRAMS", default_value = "/")]
    smb_programs: PathBuf,
    /// Write a cloud configuration for clients of this emulator to this file. It names the plain address; clients that
    /// sign in over TLS only put the address of --tls in resourceManagerEndpoint.
    #[arg(long)]
    azure_json: Option<PathBuf>,
    /// How to say that it is ready: a sentence, or one JSON object with the addresses.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Hypervisor {
    None,
    Loop,
    Qemu,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Smb {
    None,
    Samba,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Versions {
    Dated,
    Published,
    Any,
}

impl From<Versions> for ApiVersions {
    fn from(given: Versions) -> Self {
        match given {
            Versions::Dated => Self::Dated,
            Versions::Published => Self::Published,
            Versions::Any => Self::Any,
        }
    }
}

/// The bounds of the time scale: a day that takes a century, and a year that takes half a minute.
const SLOWEST: f64 = 0.00001;
const FASTEST: f64 = 1_000_000.0;

fn time_scale(given: &str) -> Result<f64, String> {
    let scale: Option<f64> = given.parse().ok();
    scale
        .filter(|scale| (SLOWEST..=FASTEST).contains(scale))
        .ok_or_else(|| format!("allowed: a number from {SLOWEST} to {FASTEST}"))
}

fn quota(given: &str) -> Result<(String, u64), String> {
    let (name, limit) = given.split_once('=').ok_or("a quota is NAME=N")?;
    let name = quota_names().find(|known| known.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
        format!("there is no quota {name:?}; there are: {}", quota_names().collect::<Vec<_>>().join(", "))
    })?;
    let limit = limit.trim().parse().map_err(|_| format!("{limit:?} is no number"))?;
    Ok((name.to_owned(), limit))
}

fn qemu_qmp(given: &str) -> Result<(String, PathBuf), String> {
    match given.split_once('=') {
        // As QEMU writes it.
        Some((vm, path)) if path.starts_with("unix:") => {
            Err(format!("{given:?} has more than a path: give {vm}={}", path.trim_start_matches("unix:")))
        }
        Some((vm, path)) if !vm.is_empty() && !path.is_empty() => Ok((vm.to_owned(), path.into())),
        _ => Err(format!("{given:?} is not VM=PATH, such as node-0=/run/qemu/node-0.qmp")),
    }
}

/// What becomes of attached disks, by all options about it.
fn hypervisor(options: &Options) -> Result<HypervisorChoice, String> {
    let root = options.hypervisor_root.clone();
    if options.hypervisor != Hypervisor::Qemu && !options.qemu_qmp.is_empty() {
        return Err("--qemu-qmp names machines for --hypervisor qemu, which is not given".to_owned());
    }
    Ok(match options.hypervisor {
        Hypervisor::None => HypervisorChoice::None,
        Hypervisor::Loop => HypervisorChoice::Loop(root),
        Hypervisor::Qemu => HypervisorChoice::Qemu { root, machines: qemu_machines(&options.qemu_qmp)? },
    })
}

/// The machines in QEMU. One machine has one QEMU, and one QEMU is one machine.
fn qemu_machines(given: &[(String, PathBuf)]) -> Result<QemuMachines, String> {
    if given.is_empty() {
        return Err("--hypervisor qemu needs --qemu-qmp VM=PATH, once for each machine that runs in QEMU".to_owned());
    }
    let mut sockets = BTreeMap::new();
    for (vm, path) in given {
        let path = std::path::absolute(path).map_err(|error| format!("--qemu-qmp {vm}: {error}"))?;
        if let Some((other, _)) = sockets.iter().find(|(_, taken)| **taken == path) {
            return Err(format!("--qemu-qmp names the socket {} for {other} and for {vm}", path.display()));
        }
        if sockets.insert(vm.to_lowercase(), path).is_some() {
            return Err(format!("--qemu-qmp names the machine {vm} twice"));
        }
    }
    Ok(QemuMachines { sockets })
}

/// Refused here already, so that the error names the option.
fn switch(given: &str) -> Result<String, lazuli_emulator::SwitchError> {
    Switches::default().set(given).map(|()| given.to_owned())
}

fn switches(given: &[String]) -> Result<Switches, lazuli_emulator::SwitchError> {
    let mut switches = Switches::default();
    for one in given {
        switches.set(one)?;
    }
    Ok(switches)
}

fn unverified_help() -> String {
    let mut text =
        "Where no recording and no document says what Azure does, do this. Can be given again, or with commas.\n\
                    The first position is the default. A client should work in every position.\n"
            .to_owned();
    for (key, positions) in SWITCHES {
        text.push_str(&format!("\n  {key}={positions}"));
    }
    text
}

/// The route table that exists without a scenario.
const ROUTE_TABLE: &str = "lazuli-routes";

/// What exists without a scenario: all that the cloud configuration for clients names.
fn of_its_own() -> Scenario {
    let security_group = SecurityGroup { name: SECURITY_GROUP.to_owned(), resource_group: None };
    let route_table = RouteTable { name: ROUTE_TABLE.to_owned(), resource_group: None };
    Scenario { security_groups: vec![security_group], route_tables: vec![route_table], ..Scenario::default() }
}

pub(super) async fn run(options: Options) -> Outcome {
    let stop = stop::on_signal()?;
    let scenario = match &options.scenario {
        Some(path) => Scenario::load(path)?,
        None => of_its_own(),
    };
    let hypervisor = hypervisor(&options)?;
    let emulator = lazuli_emulator::Options {
        listen: options.listen,
        listen_tls: options.tls,
        names: options.names,
        tls_folder: options.tls_dir,
        seed: options.seed,
        start_time: jiff::Timestamp::now(),
        latency: options.latency,
        retry_after: options.retry_after,
        time_scale: options.time_scale,
        throttling: !options.no_throttling,
        nasty_casing: options.nasty_casing,
        read_lag: Duration::from_millis(options.read_lag_ms),
        imds_lag: Duration::from_millis(options.imds_lag_ms),
        page_size: options.page_size,
        quotas: options.quota.iter().cloned().collect(),
        unverified: switches(&options.unverified)?,
        future_fields: options.future_fields,
        api_versions: options.api_versions.into(),
        accept_any_token: options.accept_any_token,
        scenario: scenario.clone(),
        state_file: options.state,
        hypervisor,
        smb: match options.smb {
            Smb::None => None,
            Smb::Samba => Some(Samba { root: options.smb_root, programs: options.smb_programs }),
        },
    };
    let Some(emulator) = start_unless_stopped(emulator, &stop).await? else { return Ok(()) };
    let url = emulator.url();
    if let Some(path) = &options.azure_json {
        let text = serde_json::to_string_pretty(&azure_json(&scenario, &url))?;
        write_whole(path, &(text + "\n")).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    }
    match options.output {
        // A line, for it goes on.
        Format::Json => println!("{}", json!({ "url": url, "tlsUrl": emulator.tls_url() })),
        Format::Yaml => {
            let object = json!({ "url": url, "tlsUrl": emulator.tls_url() });
            print!("{}", Format::Yaml.of_programs(&object).unwrap_or_default());
        }
        Format::Text => {
            println!("An Azure is ready at {url}");
            if let Some(url) = emulator.tls_url() {
                println!("and at {url}, with the authority at /_emulator/ca.pem");
            }
            if let Some(path) = &options.azure_json {
                println!("A cloud configuration for it is in {}", path.display());
            }
            println!("Open {url}/ in a browser to see what exists, what runs and what is asked");
        }
    }
    stop.cancelled().await;
    // What starts next with this path waits for the next emulator, instead of asking this one.
    if let Some(path) = options.azure_json.as_ref().filter(|path| path.is_file()) {
        let _ = std::fs::remove_file(path);
    }
    emulator.shutdown().await;
    Ok(())
}

/// Starts an emulator, which may wait for others: a QEMU that says nothing. None where it is to stop before that. With
/// loop devices it starts to the end, so that it can let go of them.
async fn start_unless_stopped(
    options: lazuli_emulator::Options,
    stop: &CancellationToken,
) -> Result<Option<Emulator>, lazuli_emulator::StartError> {
    let waits = matches!(options.hypervisor, HypervisorChoice::Qemu { .. });
    tokio::select! {
        started = Emulator::start(options) => started.map(Some),
        () = stop.cancelled(), if waits => Ok(None),
    }
}

/// Writes a file so that a reader finds all of it or none: other programs wait for it to appear. A pipe or a terminal is
/// written as it is.
fn write_whole(path: &Path, text: &str) -> std::io::Result<()> {
    if path.exists() && !path.is_file() {
        return std::fs::write(path, text);
    }
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(format!(".{}", std::process::id()));
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, path).inspect_err(|_| drop(std::fs::remove_file(&unfinished)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parse(words: &[&str]) -> Result<Options, clap::Error> {
        Line::try_parse_from(std::iter::once("emulator").chain(words.iter().copied())).map(|line| line.options)
    }

    #[test]
    fn all_that_the_cloud_configuration_names_exists_without_a_scenario() {
        let scenario = of_its_own();
        let named = azure_json(&scenario, "http://127.0.0.1:1");
        assert_eq!(named["securityGroupName"], scenario.security_groups[0].name.as_str());
        assert_eq!(named["routeTableName"], scenario.route_tables[0].name.as_str());
        assert_eq!(named["vnetName"], scenario.virtual_networks[0].name.as_str());
    }

    #[test]
    fn quotas_and_switches_are_given_again_or_with_commas() {
        let options =
            parse(&["--quota", "cores=8,premiumdiskcount=2", "--quota", "virtualMachines=1", "--page-size", "3"])
                .unwrap();
        let quotas: Vec<(&str, u64)> = options.quota.iter().map(|(name, limit)| (name.as_str(), *limit)).collect();
        assert_eq!(quotas, [("cores", 8), ("PremiumDiskCount", 2), ("virtualMachines", 1)]);
        assert_eq!(options.page_size, 3);
        let options = parse(&["--name", "Azure.test,azure", "--name", "azure.default.svc"]).unwrap();
        let names: Vec<String> = options.names.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["azure.test", "azure", "azure.default.svc"]);
        let options = parse(&[
            "--unverified",
            "left-out-of-put=keep,disk-retry-after=9",
            "--unverified",
            "concurrent-vm-write=preempt",
        ])
        .unwrap();
        let switches = switches(&options.unverified).unwrap();
        assert_eq!(switches.left_out_of_put, lazuli_emulator::options::LeftOut::Keep);
        assert_eq!(switches.concurrent_vm_write, lazuli_emulator::options::Concurrent::Preempt);
        assert_eq!(switches.disk_retry_after, 9);
    }

    #[tokio::test]
    async fn a_start_that_waits_for_a_silent_qemu_ends_when_it_is_asked_to() {
        let folder = std::env::temp_dir().join(format!("lazuli-silent-qemu-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("qmp");
        let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let machines = QemuMachines { sockets: [("node-0".to_owned(), socket)].into() };
        let hypervisor = HypervisorChoice::Qemu { root: folder.clone(), machines };
        let options = lazuli_emulator::Options { hypervisor, ..lazuli_emulator::Options::default() };
        let (stop, asked) = (CancellationToken::new(), std::time::Instant::now());
        let asking = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            stop.cancel();
        };
        let (started, ()) = tokio::join!(start_unless_stopped(options, &stop), asking);
        assert!(started.unwrap().is_none() && asked.elapsed() < Duration::from_secs(2));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn machines_in_qemu_are_given_again_and_each_once() {
        let lines = "node-1=/run/c\nnode-2=/run/d";
        let words = ["--hypervisor", "qemu", "--qemu-qmp", "Node-0=/run/a=b,node-1=/c.qmp", "--qemu-qmp", lines];
        let HypervisorChoice::Qemu { machines, .. } = hypervisor(&parse(&words).unwrap()).unwrap() else {
            panic!("another hypervisor");
        };
        let sockets: Vec<(&str, &str)> =
            machines.sockets.iter().map(|(vm, path)| (vm.as_str(), path.to_str().unwrap())).collect();
        let expected = [("node-0", "/run/a=b,node-1=/c.qmp"), ("node-1", "/run/c"), ("node-2", "/run/d")];
        assert_eq!(sockets, expected);
        for (words, told) in [
            (&["--hypervisor", "qemu"][..], "needs --qemu-qmp VM=PATH"),
            (&["--hypervisor", "loop", "--qemu-qmp", "a=/b"], "which is not given"),
            (&["--qemu-qmp", "a=/b"], "which is not given"),
            (&["--hypervisor", "qemu", "--qemu-qmp", "a=/b\nA=/c"], "the machine A twice"),
            (&["--hypervisor", "qemu", "--qemu-qmp", "a=/b", "--qemu-qmp", "c=/b"], "the socket /b for a and for c"),
        ] {
            let error = hypervisor(&parse(words).unwrap()).unwrap_err();
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_would() {
        for (words, told) in [
            (["--unverified", "color=blue"], "left-out-of-put=detach|keep"),
            (["--unverified", "left-out-of-put=blue"], "detach|keep"),
            (["--quota", "disks=3"], "PremiumDiskCount"),
            (["--quota", "cores=many"], "is no number"),
            (["--qemu-qmp", "/run/a.qmp"], "is not VM=PATH"),
            (["--qemu-qmp", "=/run/a.qmp"], "is not VM=PATH"),
            (["--qemu-qmp", "a=unix:/run/a.qmp"], "give a=/run/a.qmp"),
            (["--page-size", "0"], "allowed: a whole number from 1 to"),
            (["--name", "https://azure.test"], "is no host name"),
            (["--time-scale", "0"], "a number from 0.00001 to 1000000"),
            (["--time-scale", "1e300"], "a number from 0.00001 to 1000000"),
        ] {
            let error = parse(&words).unwrap_err().to_string();
            assert!(error.contains(told), "{words:?}: {error}");
        }
    }

    #[test]
    fn the_help_names_every_switch_with_its_positions() {
        use clap::CommandFactory;

        let help = Line::command().render_long_help().to_string();
        for (key, positions) in SWITCHES {
            assert!(help.contains(&format!("{key}={positions}")), "{key}");
        }
    }
}
