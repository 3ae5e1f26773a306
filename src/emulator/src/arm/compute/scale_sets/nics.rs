//! Documents of the network interfaces of sets' machines, and of their public addresses: made from the configurations of
//! the model, or of the instance.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};

use super::members::touch;
use crate::arm::descriptor::{Draft, Origin, Verb};
use crate::arm::engine::{self, delete, document};
use crate::arm::network::{private_addresses, public_ip_addresses};
use crate::arm::{kinds, writes};
use crate::derived::guid_of;
use crate::document::Document;
use crate::fault::Fault;
use crate::path;
use crate::state::State;
use crate::store::Resource;

/// Private addresses by the names of interface and configuration.
pub(crate) type Addresses = BTreeMap<(String, String), String>;

fn name(value: &Value) -> &str {
    value["name"].as_str().unwrap_or("")
}

/// Each IP configuration with its interface.
fn each(configurations: &Value) -> impl Iterator<Item = (&Value, &Value)> {
    configurations.as_array().into_iter().flatten().flat_map(|interface| {
        let own = interface["properties"]["ipConfigurations"].as_array().into_iter().flatten();
        own.map(move |configuration| (interface, configuration))
    })
}

/// Subnet and family of an IP configuration.
fn place(configuration: &Value) -> (String, bool) {
    let properties = &configuration["properties"];
    let subnet = properties["subnet"]["id"].as_str().unwrap_or("").to_owned();
    (subnet, properties["privateIPAddressVersion"] == "IPv6")
}

/// Free addresses for so many instances.
///
/// # Errors
///
/// When a subnet has too few.
pub(crate) fn allocate(state: &State, configurations: &Value, count: usize) -> Result<Vec<Addresses>, Fault> {
    let mut needed: BTreeMap<(String, bool), usize> = BTreeMap::new();
    for (_, configuration) in each(configurations) {
        *needed.entry(place(configuration)).or_default() += count;
    }
    let mut free = BTreeMap::new();
    for ((subnet, ipv6), count) in needed {
        let addresses = private_addresses::free_addresses(state, &subnet, ipv6, count)?;
        free.insert((subnet, ipv6), addresses.into_iter());
    }
    let mut of_one = || {
        let next = |(interface, configuration): (&Value, &Value)| {
            let address = free.get_mut(&place(configuration))?.next()?;
            Some(((name(interface).to_owned(), name(configuration).to_owned()), address))
        };
        each(configurations).filter_map(next).collect::<Addresses>()
    };
    Ok((0..count).map(|_| of_one()).collect())
}

/// What a machine's network profile says of its interfaces. Those of a flexible instance are resources of the group.
pub(crate) fn names(machine: &str, configurations: &Value, unique: &str) -> Vec<Value> {
    let id = |interface: &Value| id_of(machine, interface, unique);
    let list = configurations.as_array().into_iter().flatten();
    list.map(|interface| {
        let mut properties = json!({"primary": interface["properties"]["primary"]});
        if !path::parent_of(machine).contains("/virtualMachineScaleSets/") {
            properties["deleteOption"] = json!(interface["properties"]["deleteOption"].as_str().unwrap_or("Delete"));
        }
        json!({"id": id(interface), "properties": properties})
    })
    .collect()
}

fn id_of(machine: &str, interface: &Value, unique: &str) -> String {
    if path::parent_of(machine).contains("/virtualMachineScaleSets/") {
        return format!("{machine}/networkInterfaces/{}", name(interface));
    }
    let group = machine.split("/providers/").next().unwrap_or("");
    format!("{group}/providers/{}/{}-{}", kinds::NIC, name(interface), unique.get(..8).unwrap_or(""))
}

/// The documents of a machine's interfaces, and of their public addresses. `public`: those that are taken.
///
/// # Errors
///
/// When a configuration cannot be completed, for its subnet.
pub(crate) fn documents(
    state: &State,
    machine: &Value,
    configurations: &Value,
    addresses: &Addresses,
    public: &mut BTreeSet<IpAddr>,
) -> Result<Vec<Value>, Fault> {
    let mut documents = Vec::new();
    for interface in configurations.as_array().into_iter().flatten() {
        let mut doc = one(state, machine, interface, addresses)?;
        // Public addresses of a flexible set's machines are not emulated.
        if machine["type"] == kinds::INSTANCE {
            documents.extend(public_addresses(state, &mut doc, interface, public)?);
        }
        documents.push(doc);
    }
    Ok(documents)
}

fn one(state: &State, machine: &Value, interface: &Value, addresses: &Addresses) -> Result<Value, Fault> {
    let machine_id = path::of(machine);
    let id = id_of(machine_id, interface, machine["properties"]["vmId"].as_str().unwrap_or(""));
    let flexible = machine["type"] == kinds::MACHINE;
    let descriptor = state.types.of_kind(if flexible { kinds::NIC } else { kinds::INSTANCE_NIC });
    let asked = &interface["properties"];
    let configuration = |own: &Value| {
        let mut properties = writes::object(&own["properties"]);
        properties.shift_remove("publicIPAddressConfiguration");
        properties.shift_remove("loadBalancerInboundNatPools");
        if let Some(address) = addresses.get(&(name(interface).to_owned(), name(own).to_owned())) {
            properties.insert("privateIPAddress".to_owned(), json!(address));
        }
        json!({"name": own["name"], "properties": properties})
    };
    let list = asked["ipConfigurations"].as_array().into_iter().flatten();
    let mut properties = json!({"ipConfigurations": list.map(configuration).collect::<Vec<_>>()});
    const MEMBERS: [&str; 3] = ["enableAcceleratedNetworking", "enableIPForwarding", "networkSecurityGroup"];
    properties = writes::with(properties, &MEMBERS, asked);
    let (guid, etag) = (guid_of(&id), document::weak(&guid_of(&format!("{id}/etag"))));
    let body = json!({"properties": properties});
    let draft = Draft {
        state,
        id: &id,
        name: path::name_of(&id),
        location: machine["location"].as_str().unwrap_or(""),
        body: &body,
        old: None,
        guid: &guid,
        stamp: "",
        switches: &state.switches,
        // Its addresses are known to be free.
        origin: Origin::Scenario,
        verb: Verb::Put,
    };
    let mut doc = document::complete(descriptor, &draft, Some(&etag), "Succeeded")?;
    let mac = guid.replace('-', "").to_ascii_uppercase();
    let properties = &mut doc["properties"];
    properties["macAddress"] = json!(format!("00-0D-3A-{}-{}-{}", &mac[0..2], &mac[2..4], &mac[4..6]));
    properties["primary"] = asked["primary"].clone();
    properties["virtualMachine"] = json!({"id": machine_id});
    Ok(doc)
}

/// Brings the interfaces of an instance in line with its configurations. Addresses stay.
///
/// # Errors
///
/// When a subnet has no more addresses.
pub(crate) fn follow(state: &mut State, instance: &Value, at: Duration) -> Result<(), Fault> {
    let types = state.types;
    let descriptor_of = |doc: &Value| {
        let is_address = doc["type"] == kinds::INSTANCE_ADDRESS;
        types.of_kind(if is_address { kinds::INSTANCE_ADDRESS } else { kinds::INSTANCE_NIC })
    };
    let configurations = &instance["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"];
    let id = path::of(instance);
    let below = [kinds::INSTANCE_NIC, kinds::INSTANCE_ADDRESS].into_iter();
    let had: Vec<Document> =
        below.flat_map(|kind| state.store.below_of_kind(id, kind)).map(|resource| resource.doc.clone()).collect();
    let mut addresses = allocate(state, configurations, 1)?.pop().unwrap_or_default();
    for (interface, configuration) in had.iter().flat_map(|old| {
        let own = old["properties"]["ipConfigurations"].as_array().into_iter().flatten();
        own.map(move |configuration| (&**old, configuration))
    }) {
        let wanted =
            each(configurations).find(|(one, own)| name(one) == name(interface) && name(own) == name(configuration));
        let stays = |own: &Value| own["properties"]["subnet"] == configuration["properties"]["subnet"];
        if let (Some(_), Some(address)) =
            (wanted.filter(|(_, own)| stays(own)), configuration["properties"]["privateIPAddress"].as_str())
        {
            addresses.insert((name(interface).to_owned(), name(configuration).to_owned()), address.to_owned());
        }
    }
    let mut public = public_ip_addresses::taken(state);
    let wanted = documents(state, instance, configurations, &addresses, &mut public)?;
    for old in had.iter().filter(|old| !wanted.iter().any(|new| path::same(path::of(new), path::of(old)))) {
        delete::remove(descriptor_of(old), state, path::of(old), at);
    }
    for mut new in wanted {
        let old = had.iter().find(|old| path::same(path::of(old), path::of(&new)));
        match old {
            Some(old) if document::same(old, &new) => continue,
            Some(_) => {
                let etag = document::weak(&state.guid());
                document::retag(descriptor_of(&new), &mut new, &etag);
                state.store.change(path::of(&new), at, |resource| resource.doc = new.clone().into());
            }
            None => state.store.insert(path::of(&new), Resource::new(new.clone()), at),
        }
        engine::changed(descriptor_of(&new), state, old.map(|old| &**old), Some(&new), at);
    }
    let named = names(id, configurations, "");
    state.store.change(id, at, |resource| {
        if resource.doc["properties"]["networkProfile"]["networkInterfaces"] != json!(named) {
            resource.doc["properties"]["networkProfile"]["networkInterfaces"] = json!(named);
        }
    });
    Ok(())
}

/// The documents of the public addresses that an interface's configurations ask for, which the interface then names.
///
/// # Errors
///
/// When there are no more addresses.
fn public_addresses(
    state: &State,
    interface: &mut Value,
    configuration: &Value,
    public: &mut BTreeSet<IpAddr>,
) -> Result<Vec<Value>, Fault> {
    let asked = configuration["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let parts = interface["properties"]["ipConfigurations"].as_array_mut().into_iter().flatten();
    let mut made = Vec::new();
    for (asked, part) in asked.zip(parts) {
        let asked = &asked["properties"]["publicIPAddressConfiguration"];
        let Some(name) = asked["name"].as_str() else {
            continue;
        };
        let id = format!("{}/publicIPAddresses/{name}", path::of(part));
        let own = &asked["properties"];
        let properties = json!({
            "provisioningState": "Succeeded",
            "resourceGuid": guid_of(&id),
            "publicIPAddressVersion": own["publicIPAddressVersion"].as_str().unwrap_or("IPv4"),
            "publicIPAllocationMethod": "Static",
            "idleTimeoutInMinutes": own["idleTimeoutInMinutes"].as_u64().unwrap_or(4),
            "ipTags": [],
            "ipConfiguration": {"id": part["id"]},
        });
        let mut doc = json!({
            "name": name, "id": id, "etag": document::weak(&guid_of(&format!("{id}/etag"))),
            "properties": writes::with(properties, &["publicIPPrefix"], own), "type": kinds::INSTANCE_ADDRESS,
            "sku": writes::with_others(asked["sku"].clone(), &json!({"name": "Standard", "tier": "Regional"})),
        });
        // It stays as long as it is asked for.
        let had = state.store.document(&id).and_then(|had| had["properties"]["ipAddress"].as_str().map(str::to_owned));
        let address = match had {
            Some(address) => address,
            None => {
                let drawn = public_ip_addresses::draw_beside(state, &doc, public)?;
                public.insert(drawn);
                drawn.to_string()
            }
        };
        doc["properties"]["ipAddress"] = json!(address);
        part["properties"]["publicIPAddress"] = json!({"id": id});
        made.push(doc);
    }
    Ok(made)
}

/// At the end of a write its interfaces follow what its model says.
pub(crate) fn follow_model(state: &mut State, id: &str, at: Duration) {
    let Some(doc) = state.store.document(id).filter(|doc| doc["type"] == kinds::INSTANCE) else {
        return;
    };
    // That there are enough addresses has been checked when the write was accepted, as far as that goes.
    if follow(state, &doc, at).is_err() {
        state.store.change(id, at, |resource| resource.set_provisioning("Failed"));
    }
    touch(state, id, at);
}
