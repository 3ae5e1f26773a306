//! `lazuli instances add-ssh-key`: reads the machines, prints the plan, asks, writes the extensions, and reports.
//!
//! What becomes of each machine is decided in [`lazuli_nodes::vm_access`].

use std::{
    io::{IsTerminal as _, Write},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgGroup, Args};
use lazuli_assembly::clients::CloudOptions;
use lazuli_azure::{
    Until,
    compute::{Compute, extension_id},
    error::ArmError,
};
use lazuli_csi::server::chain;
use lazuli_model::{ArmId, fault::Fault};
use lazuli_nodes::vm_access::{self, Extension, Foreign, Machine, PublicKey, PublicKeyError, Step, User};
use lazuli_quota::permit::Priority;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, task::JoinSet, time::Instant};
use tokio_util::sync::CancellationToken;

use super::super::{Outcome, connect::connected, machines, output::Format, progress::Progress};

type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// How many machines are read or changed at a time.
const AT_A_TIME: usize = 10;
/// How long the reads may take together.
const READS: Duration = Duration::from_secs(600);
/// How long one machine may take. An extension that does not report is given up by Azure after 90 minutes; a person need
/// not wait for that, and a repetition of the command takes up where this one ended.
const ONE_MACHINE: Duration = Duration::from_secs(900);
/// The pause after a refused write to which Azure gave none.
const PAUSE: Duration = Duration::from_secs(30);
/// Most bytes of a key file. An RSA key of 16,384 bits has about 2,800.
const LARGEST_KEY: u64 = 16 * 1024;

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("machines").required(true).args(["node", "all"])))]
pub(super) struct AddSshKey {
    /// The user who gets the key.
    #[arg(long, value_name = "NAME")]
    user: User,
    /// The file with the public key: one line, ssh-ed25519 or ssh-rsa.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// The machine of this Node; may be repeated. Without a cluster: the VM or the computer of this name in the configured
    /// resource group.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    node: Vec<String>,
    /// The machines of all Nodes. Without a cluster: all machines in the configured resource group.
    #[arg(long)]
    all: bool,
    /// Give a VM access extension new settings although another program made it. The settings that it has cannot be read
    /// back.
    #[arg(long)]
    replace: bool,
    /// Do not ask. Without a terminal nothing is written unless this is given.
    #[arg(long)]
    yes: bool,
    /// Print the plan and end.
    #[arg(long)]
    dry_run: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
    #[command(flatten)]
    cloud: CloudOptions,
}

/// Why nothing is written, or not everything.
#[derive(Debug, thiserror::Error)]
enum AddError {
    #[error("the key file {} cannot be read", .0.display())]
    Unreadable(PathBuf, #[source] std::io::Error),
    #[error("the key file {} is larger than {LARGEST_KEY} bytes; expected one public key", .0.display())]
    TooLarge(PathBuf),
    #[error("the key file {} cannot be used", .0.display())]
    Key(PathBuf, #[source] PublicKeyError),
    #[error("the cluster has no machine to which a key can be added")]
    NoMachines,
    #[error("nothing is written: there is no terminal to ask at; give --yes to write without a question")]
    NoTerminal,
    #[error("nothing is written: the answer was not yes")]
    Declined,
    #[error("{0} of {1} machines do not have the key; see above, and repeat the command for these")]
    Incomplete(usize, usize),
}

/// Whether a person can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Console {
    Terminal,
    None,
}

pub(super) async fn run(options: &AddSshKey, stop: CancellationToken) -> Outcome {
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let console = if is_terminal { Console::Terminal } else { Console::None };
    Box::pin(execute(options, console, &stop, &mut std::io::stdout())).await
}

/// A machine and what becomes of it.
#[derive(Debug)]
struct Planned {
    name: String,
    id: ArmId,
    /// What is planned, or why the machine cannot be read.
    step: Result<(Machine, Step), String>,
}

impl Planned {
    fn text(&self) -> String {
        match &self.step {
            Ok((_, step)) => step.to_string(),
            Err(why) => format!("cannot be read: {why}"),
        }
    }

    fn writes(&self) -> bool {
        matches!(&self.step, Ok((_, step)) if !matches!(step, Step::Skip(_)))
    }

    /// Whether the machine should have the key and is left out.
    fn is_shortfall(&self) -> bool {
        match &self.step {
            Ok((_, Step::Skip(why))) => why.is_shortfall(),
            Ok(_) => false,
            Err(_) => true,
        }
    }

    fn json(&self) -> Value {
        json!({"node": self.name, "machine": self.id.as_str(), "writes": self.writes(), "step": self.text()})
    }
}

/// How a write ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ended {
    Added,
    Failed(String),
    /// The command was stopped while Azure was at work.
    Interrupted,
    /// The command was stopped before this machine's turn.
    NotBegun,
}

impl Ended {
    fn text(&self) -> String {
        match self {
            Self::Added => "has the key".to_owned(),
            Self::Failed(why) => format!("failed: {why}"),
            Self::Interrupted => "interrupted; Azure may go on with it".to_owned(),
            Self::NotBegun => "not begun".to_owned(),
        }
    }
}

async fn execute(
    options: &AddSshKey,
    console: Console,
    stop: &CancellationToken,
    out: &mut (impl Write + Send),
) -> Outcome {
    let key = read_key(options).await?;
    let progress = Progress::begin("the cluster and its machines are read");
    let (client, config, azure) = connected(&options.cloud).await?;
    let reads = Until::new(Instant::now() + READS, stop.clone());
    let machines = machines::of_cluster(&config, client.as_ref(), &azure.compute, &reads).await?;
    let mut chosen: Vec<(String, ArmId)> = Vec::new();
    if options.all {
        for node in &machines.without_machine {
            tracing::warn!(node, "the Node's provider id names no machine of Azure; it is left out");
        }
        chosen.extend(machines.by_name.clone());
    } else {
        for name in &options.node {
            let (name, id) = machines.of(name, &config, client.is_some())?;
            if chosen.iter().all(|(_, known)| known != id) {
                chosen.push((name.to_owned(), id.clone()));
            }
        }
    }
    if chosen.is_empty() {
        return Err(AddError::NoMachines.into());
    }
    let foreign = if options.replace { Foreign::Replace } else { Foreign::Keep };
    let subscription = config.cluster.subscription_id.as_str();
    let plan = plan(chosen, (foreign, subscription), &azure.compute, &reads).await;
    drop(progress);
    if options.output == Format::Text {
        write!(out, "{}", plan_text(&plan, options, &key))?;
    }
    let of_programs = |results: Value| {
        let key = json!({"kind": key.kind(), "fingerprint": fingerprint(&key), "comment": key.comment()});
        let plan: Vec<Value> = plan.iter().map(Planned::json).collect();
        let object = json!({"user": options.user.to_string(), "key": key, "plan": plan, "results": results});
        options.output.of_programs(&object).unwrap_or_default()
    };
    if options.dry_run {
        return Ok(write!(out, "{}", of_programs(Value::Null))?);
    }
    let writes = plan.iter().filter(|planned| planned.writes()).count();
    if writes > 0 && !options.yes {
        if console == Console::Terminal && (options.output != Format::Text || !std::io::stdout().is_terminal()) {
            // What is asked about must be seen.
            eprint!("{}", plan_text(&plan, options, &key));
        }
        confirm(console, writes, stop).await?;
    }
    let results = Box::pin(apply(&plan, options, &key, &azure.compute, stop, |name, ended| match options.output {
        Format::Text => writeln!(out, "{name}: {}", ended.text()),
        Format::Json | Format::Yaml => Ok(()),
    }))
    .await?;
    let ended =
        |(name, ended): &(String, Ended)| json!({"node": name, "added": *ended == Ended::Added, "text": ended.text()});
    write!(out, "{}", of_programs(results.iter().map(ended).collect()))?;
    let missing = plan.iter().filter(|planned| planned.is_shortfall()).count()
        + results.iter().filter(|(_, ended)| *ended != Ended::Added).count();
    if missing > 0 { Err(AddError::Incomplete(missing, plan.len()).into()) } else { Ok(()) }
}

async fn read_key(options: &AddSshKey) -> Result<PublicKey, AddError> {
    let path = || options.key.clone();
    let unreadable = |error| AddError::Unreadable(path(), error);
    let file = tokio::fs::File::open(&options.key).await.map_err(unreadable)?;
    let mut text = String::new();
    file.take(LARGEST_KEY + 1).read_to_string(&mut text).await.map_err(unreadable)?;
    if text.len() as u64 > LARGEST_KEY {
        return Err(AddError::TooLarge(path()));
    }
    text.parse().map_err(|error| AddError::Key(path(), error))
}

/// Reads the machines, and decides what becomes of each.
async fn plan(
    chosen: Vec<(String, ArmId)>,
    (foreign, subscription): (Foreign, &str),
    compute: &Compute,
    until: &Until,
) -> Vec<Planned> {
    let mut waiting = chosen.into_iter().enumerate();
    let mut running = JoinSet::new();
    let mut done: Vec<(usize, Planned)> = Vec::new();
    loop {
        while running.len() < AT_A_TIME
            && let Some((at, (name, id))) = waiting.next()
        {
            let (compute, until, subscription) = (compute.clone(), until.clone(), subscription.to_owned());
            running.spawn(async move {
                let read = compute.read_alone(&id, Priority::Read, &until).await;
                let step = match read {
                    Ok(body) => {
                        let machine = Machine::read(&name, &id, &body);
                        let step = vm_access::plan(&machine, foreign, &subscription);
                        Ok((machine, step))
                    }
                    Err(error) => Err(chain(&error)),
                };
                (at, Planned { name, id, step })
            });
        }
        match running.join_next().await {
            Some(read) => done.push(read.expect("a read neither panics nor is aborted")),
            None => break,
        }
    }
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, planned)| planned).collect()
}

fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(ring::digest::digest(&ring::digest::SHA256, key.blob()).as_ref())
}

fn plan_text(plan: &[Planned], options: &AddSshKey, key: &PublicKey) -> String {
    let comment = if key.comment().is_empty() { String::new() } else { format!(" {}", key.comment()) };
    let fingerprint = fingerprint(key);
    let width = plan.iter().map(|planned| planned.name.chars().count()).max().unwrap_or_default();
    let line = |planned: &Planned| {
        let Planned { name, id, .. } = planned;
        format!("  {name:<width$}  {}\n  {:<width$}    {id}\n", planned.text(), "")
    };
    let lines = plan.iter().map(line);
    format!(
        "{} {fingerprint}{comment}\nfor user {}, who may become root by sudo on these machines:\n{}",
        key.kind(),
        options.user,
        lines.collect::<String>()
    )
}

/// Asks at the terminal.
async fn confirm(console: Console, machines: usize, stop: &CancellationToken) -> Result<(), AnyError> {
    if console == Console::None {
        return Err(AddError::NoTerminal.into());
    }
    eprint!("Change {machines} machine{}? [y/N] ", if machines == 1 { "" } else { "s" });
    std::io::stderr().flush()?;
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).map(|_| line)
    });
    let answer = stop.run_until_cancelled(read).await.ok_or(AddError::Declined)??;
    if is_yes(&answer?) { Ok(()) } else { Err(AddError::Declined.into()) }
}

fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Writes the extensions, and says how each ended as it ends. Returns them in the order of the plan.
async fn apply(
    plan: &[Planned],
    options: &AddSshKey,
    key: &PublicKey,
    compute: &Compute,
    stop: &CancellationToken,
    mut tell: impl FnMut(&str, &Ended) -> std::io::Result<()>,
) -> std::io::Result<Vec<(String, Ended)>> {
    let run = uuid::Uuid::new_v4().to_string();
    let write = |planned: &Planned| {
        let (machine, step) = planned.step.as_ref().ok()?;
        Some((planned.id.clone(), vm_access::extension(machine, step, &options.user, key, &run)?))
    };
    let mut results: Vec<(String, Ended)> = Vec::new();
    let mut waiting = Vec::new();
    for planned in plan {
        if let Some(write) = write(planned) {
            waiting.push((results.len(), write));
            results.push((planned.name.clone(), Ended::NotBegun));
        }
    }
    let mut waiting = waiting.into_iter();
    let mut running = JoinSet::new();
    loop {
        while running.len() < AT_A_TIME
            && !stop.is_cancelled()
            && let Some((at, (id, extension))) = waiting.next()
        {
            let (compute, stop) = (compute.clone(), stop.clone());
            running.spawn(async move { (at, add(&compute, &id, extension, &stop).await) });
        }
        let Some(ended) = running.join_next().await else { break };
        let (at, ended) = ended.expect("a write neither panics nor is aborted");
        results[at].1 = ended;
        tell(&results[at].0, &results[at].1)?;
    }
    for (name, ended) in results.iter().filter(|(_, ended)| *ended == Ended::NotBegun) {
        tell(name, ended)?;
    }
    Ok(results)
}

/// Writes one extension and waits until the machine has run it.
async fn add(compute: &Compute, machine: &ArmId, extension: Extension, stop: &CancellationToken) -> Ended {
    let Ok(id) = extension_id(machine, &extension.name) else {
        return Ended::Failed(format!("{:?} cannot be the name of an extension", extension.name));
    };
    let deadline = Instant::now() + ONE_MACHINE;
    let until = Until::new(deadline, stop.clone());
    let written = loop {
        let written = match compute.put_extension(machine, &id, extension.body.clone(), &until).await {
            Ok(mut operation) => operation.settle(&until).await,
            Err(error) => Err(error),
        };
        let pause = match &written {
            Err(error) => pause_of(error),
            Ok(()) => None,
        };
        match pause {
            Some(pause) if Instant::now() + pause < deadline => {
                if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return Ended::NotBegun;
                }
            }
            _ => break written,
        }
    };
    match written {
        Ok(()) => Ended::Added,
        Err(error) if stop.is_cancelled() && error.fault == Fault::Deadline => Ended::Interrupted,
        Err(error) => Ended::Failed(chain(&error)),
    }
}

/// How long to wait before a refused write is sent again; `None` for what a repetition does not cure.
fn pause_of(error: &ArmError) -> Option<Duration> {
    match error.fault {
        Fault::Throttled { retry_after } => Some(retry_after.unwrap_or(PAUSE)),
        // Another operation on the machine is in flight, such as that of a disk.
        Fault::Conflict => Some(PAUSE),
        _ => None,
    }
}

#[cfg(test)]
#[cfg(feature = "emulator")]
mod tests;
