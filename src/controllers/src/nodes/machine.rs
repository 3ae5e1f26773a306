//! The reads of machines: of a new Node's, which lists may answer; for the addresses of an initialised one; and of one that
//! is not Ready, which no cache answers.

use std::{net::IpAddr, sync::Arc, time::Duration};

use lazuli_azure::{
    Until,
    compute::{Freshness, decode_instance_view},
    error::ArmError,
    network::NetworkType,
};
use lazuli_model::{ArmId, fault::Fault, node};
use lazuli_nodes::cloud_node::{
    Instance, InstanceAddress,
    body::{self, Machine},
    existence::{Answer, Next, Read, Round},
    step::{Checked, Lookup},
};
use lazuli_quota::{permit::Priority, read::Accept};
use lazuli_services::network::public_ip::PublicIp;
use serde_json::Value;
use tracing::{debug, error};

use super::known::Known;

/// How long one read may take, with its waits for permits.
pub(super) const READ: Duration = Duration::from_secs(120);

/// How long the reads for a new Node wait, while reads are short, for those of other Nodes. Nodes join in groups, and one
/// list answers all of them; a read of each would take more than the bucket of reads is refilled by.
const PATIENCE: Duration = Duration::from_secs(2);

fn freshness() -> Freshness {
    Freshness::listed().patience(PATIENCE)
}

pub(super) fn fault(error: ArmError) -> Fault {
    debug!(%error, "a machine cannot be read");
    error.fault.clone()
}

fn malformed<T>(result: Result<T, impl std::fmt::Display>) -> Result<T, Fault> {
    result.map_err(|error| {
        error!(%error, "Azure answered what cannot be read");
        Fault::Malformed
    })
}

/// Reads what Azure says of the machine of a new Node, as far as its plugin does not.
pub(super) async fn instance(known: &Known, node: &str, lookup: &Lookup) -> Result<Instance, Fault> {
    let told = || known.told().nodes.as_ref().and_then(|nodes| nodes.get(node).cloned());
    let mut machine = match lookup {
        Lookup::Machine(node::Machine::Vm(id) | node::Machine::Instance(id)) => by_id(known, id).await?,
        Lookup::Named { name, resource_group } => {
            let group = resource_group.as_deref().unwrap_or(&known.options.resource_group);
            let claimed = told().and_then(|node| node.facts?.machine());
            by_name(known, group, name, claimed).await?
        }
    };
    // Azure has proved which machine it is.
    let node = told();
    if let Some(instance) = node.as_ref().and_then(|node| node.instance_of(&machine.id)) {
        return Ok(Instance { id: machine.id, ..instance });
    }
    if machine.lacks_fault_domain() {
        let facts = node.and_then(|node| node.facts);
        machine.fault_domain = facts.and_then(|facts| facts.fault_domain_of(&machine.id, &machine.size));
    }
    if machine.lacks_fault_domain() {
        let whole = known.compute.read_alone(&machine.id, Priority::Read, &Until::within(READ)).await.map_err(fault)?;
        machine.fault_domain = malformed(Machine::read(&whole))?.fault_domain;
    }
    let addresses = addresses_of(known, &machine, freshness).await?;
    let Machine { id, size, location, zone, fault_domain, .. } = machine;
    Ok(Instance { id, size, location, zone, fault_domain, addresses })
}

async fn by_id(known: &Known, id: &ArmId) -> Result<Machine, Fault> {
    let read = known.compute.read_vm(id, freshness(), &Until::within(READ)).await.map_err(fault)?;
    malformed(Machine::read(&read.raw))
}

/// The VM of this name, or the one whose computer is called so: that of a flexible scale set, or the instance of a uniform
/// one. Which one that is the Node's plugin may claim: then that one is looked at first.
async fn by_name(known: &Known, resource_group: &str, name: &str, claimed: Option<ArmId>) -> Result<Machine, Fault> {
    let subscription = &known.options.subscription;
    let is_called = |computer: &Option<String>| computer.as_ref().is_some_and(|one| one.eq_ignore_ascii_case(name));
    let is_near = |id: &ArmId| {
        id.subscription().eq_ignore_ascii_case(subscription) && id.resource_group().eq_ignore_ascii_case(resource_group)
    };
    let claimed = claimed.filter(|id| is_near(id) && node::Machine::of_id(id.clone()).is_some());
    if let Some(id) = claimed
        && let Ok(machine) = by_id(known, &id).await
        && is_called(&machine.computer_name)
    {
        return Ok(machine);
    }
    let id = malformed(ArmId::virtual_machine(subscription, resource_group, name))?;
    match by_id(known, &id).await {
        Err(Fault::NotFound) => {}
        other => return other,
    }
    let all = known.compute.list_vms(subscription, resource_group, &Until::within(READ)).await.map_err(fault)?;
    let until = Until::within(READ);
    let found = match all.into_iter().find(|vm| is_called(&vm.computer_name)) {
        Some(vm) => Some(vm),
        None => known.compute.instance_named(subscription, resource_group, name, &until).await.map_err(fault)?,
    };
    match found {
        Some(vm) => by_id(known, &vm.id).await,
        None => Err(Fault::NotFound),
    }
}

/// Reads the addresses of the machine of a Node that is initialised.
pub(super) async fn addresses(known: &Known, machine: &ArmId, accept: Accept) -> Result<Vec<InstanceAddress>, Fault> {
    let fresh = || Freshness { accept, ..freshness() };
    let read = known.compute.read_vm(machine, fresh(), &Until::within(READ)).await.map_err(fault)?;
    addresses_of(known, &malformed(Machine::read(&read.raw))?, fresh).await
}

/// Reads the addresses of a machine.
async fn addresses_of(
    known: &Known,
    machine: &Machine,
    fresh: impl Fn() -> Freshness,
) -> Result<Vec<InstanceAddress>, Fault> {
    let mut addresses = Vec::new();
    for nic in &machine.nics {
        let nic = interface(known, nic, fresh()).await?;
        for body::NicAddress { private, public } in body::nic_addresses(&nic) {
            let public = match public {
                Some(id) => public_address(known, &id, fresh()).await?,
                None => None,
            };
            addresses.push(InstanceAddress { private, public });
        }
    }
    Ok(addresses)
}

async fn interface(known: &Known, nic: &ArmId, freshness: Freshness) -> Result<Arc<Value>, Fault> {
    let until = Until::within(READ);
    if nic.is_type("Microsoft.Network/networkInterfaces") {
        let read = known.network.read(NetworkType::Interface, nic, freshness, &until).await;
        return read.map(|read| read.body).map_err(fault);
    }
    // That of an instance of a uniform scale set is in no list of NICs.
    known.network.read_alone(nic, Priority::Read, &until).await.map(Arc::new).map_err(fault)
}

async fn public_address(known: &Known, id: &ArmId, freshness: Freshness) -> Result<Option<IpAddr>, Fault> {
    let read = known.network.read(NetworkType::PublicIp, id, freshness, &Until::within(READ)).await;
    let read = read.map_err(fault)?;
    Ok(malformed(PublicIp::read(id, &read.body))?.address)
}

/// Reads whether a machine runs; of one that is not there, whether that is proved.
pub(super) async fn check(known: &Known, machine: &ArmId) -> Checked {
    let mut round = {
        let told = known.told();
        Round::new(machine, told.nodes.iter().flat_map(|nodes| nodes.values()), known.scope())
    };
    loop {
        match round.next() {
            Next::Ended(checked) => return checked.clone(),
            Next::Read(read) => {
                let answer = answer(known, read).await.unwrap_or_else(Answer::Failed);
                round.answered(answer);
            }
        }
    }
}

/// Carries out one read of a round.
async fn answer(known: &Known, read: &Read) -> Result<Answer, Fault> {
    Ok(match read {
        Read::Machine(machine) => Answer::Here(malformed(decode_instance_view(&alone(known, machine).await?))?),
        Read::Control(control) => alone(known, control).await.map(|_| Answer::There)?,
        Read::Instances(set) => {
            let listed = known.compute.list_instances(set, &Until::within(READ)).await;
            Answer::Listed(listed.map_err(fault)?.into_iter().map(|one| one.id).collect())
        }
        Read::Machines { subscription, resource_group } => {
            let listed = known.compute.list_vms(subscription, resource_group, &Until::within(READ)).await;
            Answer::Listed(listed.map_err(fault)?.into_iter().map(|one| one.id).collect())
        }
    })
}

async fn alone(known: &Known, machine: &ArmId) -> Result<Value, Fault> {
    known.compute.read_alone(machine, Priority::Read, &Until::within(READ)).await.map_err(fault)
}
