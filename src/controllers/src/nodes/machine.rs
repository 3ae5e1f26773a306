//! The reads of machines: of a new Node's, which lists may answer, and of one that is not Ready, which no cache answers.

use std::{net::IpAddr, sync::Arc, time::Duration};

use lazuli_azure::{
    Until,
    compute::{Freshness, decode_instance_view},
    error::ArmError,
    network::NetworkType,
};
use lazuli_plan::{
    cloud_node::{
        Instance, InstanceAddress,
        body::{self, Machine},
        controls,
        step::{Checked, Lookup},
    },
    fault::Fault,
    model::ArmId,
    network::public_ip::PublicIp,
    node,
    permit::Priority,
};
use serde_json::Value;
use tracing::{debug, error};

use super::known::Known;

/// How long one read may take, with its waits for permits.
const READ: Duration = Duration::from_secs(120);

/// How long the reads for a new Node wait, while reads are short, for those of other Nodes. Nodes join in groups, and one
/// list answers all of them; a read of each would take more than the bucket of reads is refilled by.
const PATIENCE: Duration = Duration::from_secs(2);

fn freshness() -> Freshness {
    Freshness::listed().patience(PATIENCE)
}

fn fault(error: ArmError) -> Fault {
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
    let mut addresses = Vec::new();
    for nic in &machine.nics {
        for body::NicAddress { private, public } in body::nic_addresses(interface(known, nic).await?.as_ref()) {
            let public = match public {
                Some(id) => public_address(known, &id).await?,
                None => None,
            };
            addresses.push(InstanceAddress { private, public });
        }
    }
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

async fn interface(known: &Known, nic: &ArmId) -> Result<Arc<Value>, Fault> {
    let until = Until::within(READ);
    if nic.is_type("Microsoft.Network/networkInterfaces") {
        let read = known.network.read(NetworkType::Interface, nic, freshness(), &until).await;
        return read.map(|read| read.body).map_err(fault);
    }
    // That of an instance of a uniform scale set is in no list of NICs.
    known.network.read_alone(nic, Priority::Read, &until).await.map(Arc::new).map_err(fault)
}

async fn public_address(known: &Known, id: &ArmId) -> Result<Option<IpAddr>, Fault> {
    let read = known.network.read(NetworkType::PublicIp, id, freshness(), &Until::within(READ)).await;
    let read = read.map_err(fault)?;
    Ok(malformed(PublicIp::read(id, &read.body))?.address)
}

/// Reads whether a machine runs; of one that is not there, whether that is proved.
pub(super) async fn check(known: &Known, machine: &ArmId) -> Checked {
    match alone(known, machine).await {
        Ok(body) => match malformed(decode_instance_view(&body)) {
            Ok(view) => Checked::Here(view),
            Err(fault) => Checked::Unproved(fault),
        },
        Err(Fault::NotFound) => control(known, machine).await,
        // Of an instance Azure may also say that its scale set does not exist, or that the request is invalid, because
        // the instance is not an active one. Then the set and the list of its instances tell.
        Err(fault @ (Fault::ScopeNotFound | Fault::Invalid)) => match is_listed(known, machine).await {
            Ok(Some(false)) => control(known, machine).await,
            Ok(Some(true) | None) => Checked::Unproved(fault),
            Err(fault) => Checked::Unproved(fault),
        },
        Err(fault) => Checked::Unproved(fault),
    }
}

/// Whether the scale set of an instance exists and lists it; `None` for what is no instance of a uniform set.
async fn is_listed(known: &Known, machine: &ArmId) -> Result<Option<bool>, Fault> {
    let Some(set) = body::scale_set(machine) else { return Ok(None) };
    let until = Until::within(READ);
    if !known.compute.scale_set_exists(&set, Priority::Read, &until).await.map_err(fault)? {
        return Ok(Some(false));
    }
    let instances = known.compute.list_instances(&set, &until).await.map_err(fault)?;
    Ok(Some(instances.iter().any(|instance| instance.id == *machine)))
}

async fn alone(known: &Known, machine: &ArmId) -> Result<Value, Fault> {
    known.compute.read_alone(machine, Priority::Read, &Until::within(READ)).await.map_err(fault)
}

/// Whether something else in the resource group of a machine that is not there answers.
async fn control(known: &Known, machine: &ArmId) -> Checked {
    let others = known.told().nodes.as_ref().map(|nodes| controls(machine, nodes.values())).unwrap_or_default();
    for other in &others {
        match alone(known, other).await {
            Ok(_) => return Checked::Gone,
            // It may be gone too.
            Err(Fault::NotFound) => {}
            Err(fault) => return Checked::Unproved(fault),
        }
    }
    // Of the only machine of its group the group's list is the control.
    let (subscription, group) = (machine.subscription(), machine.resource_group());
    match known.compute.list_vms(subscription, group, &Until::within(READ)).await {
        Ok(all) if others.is_empty() && all.iter().all(|vm| vm.id != *machine) => Checked::Gone,
        Ok(_) => Checked::Unproved(Fault::NotFound),
        Err(error) => Checked::Unproved(fault(error)),
    }
}
