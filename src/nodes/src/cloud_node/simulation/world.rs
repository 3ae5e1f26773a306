//! A small Azure: a route table and a subnet, as bodies with ETags and operations that take time, and machines. It knows
//! nothing of the planner or of the interpreter of its edits.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::{Value, json};

pub(super) const TABLE_ID: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/rt";
pub(super) const SUBNET_ID: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v/subnets/nodes";
const OTHER_TABLE: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/routeTables/other";
/// What stands between a Node and its range in the name of a route.
const SEPARATOR: &str = "____";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Table,
    Subnet,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Version {
    body: Value,
    pub(super) etag: u64,
    state: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    Precondition,
    Busy,
    Invalid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Power {
    Runs,
    Stopped,
    Gone,
}

/// What of the fleet's surroundings is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fleet {
    There,
    /// The scale set is deleted.
    NoSet,
    /// The resource group is deleted, with everything in it.
    NoGroup,
}

/// A route, as its Node, its range and its hop.
pub(super) type Route = (String, String, String);

#[derive(Debug)]
pub(super) struct Azure {
    things: BTreeMap<Thing, Vec<(Duration, Option<Version>)>>,
    etag: u64,
    running: BTreeMap<u64, (Thing, Option<Version>)>,
    pub(super) ended: BTreeMap<u64, bool>,
    /// The states of each machine, with the time from which on each held.
    machines: BTreeMap<u8, Vec<(Duration, Power)>>,
    /// The addresses of each machine, with the time from which on it had each; the number of the addresses before.
    addresses: BTreeMap<u8, Vec<(Duration, u8)>>,
    /// Whether the resource group of the fleet, and the scale set in it, are there.
    fleet: Fleet,
    /// What another writer has put into the table: routes by name, and a number.
    foreign: BTreeMap<String, Value>,
    note: u64,
    subnet_note: u64,
    is_others_subnet: bool,
    /// Whether a write of what is busy is refused for that, whatever its ETag.
    busy_first: bool,
}

fn route(name: &str, range: &str, hop: &str) -> Value {
    let properties = json!({"addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop});
    json!({"name": name, "properties": properties})
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The routes of a body that are named after Nodes and lead ranges of the cluster.
fn of_nodes(body: &Value) -> BTreeSet<Route> {
    let routes = body["properties"]["routes"].as_array();
    let parts = |route: &Value| {
        let name = text(&route["name"]);
        let range = text(&route["properties"]["addressPrefix"]);
        let is_ours = range.starts_with("10.244.") || range.starts_with("fd00:10:244:");
        let node = name.split_once(SEPARATOR).map(|(node, _)| node.to_owned());
        Some((node.filter(|_| is_ours)?, range, text(&route["properties"]["nextHopIpAddress"])))
    };
    routes.into_iter().flatten().filter_map(parts).collect()
}

impl Azure {
    /// A table that exists or not, and a subnet that is free, served by the table, or served by another one.
    pub(super) fn new(has_table: bool, subnet: u64, busy_first: bool) -> Self {
        let mut azure = Self {
            things: BTreeMap::new(),
            etag: 0,
            running: BTreeMap::new(),
            ended: BTreeMap::new(),
            machines: BTreeMap::new(),
            addresses: BTreeMap::new(),
            fleet: Fleet::There,
            foreign: BTreeMap::new(),
            note: 1,
            subnet_note: 7,
            is_others_subnet: subnet == 2,
            busy_first,
        };
        if has_table {
            for (name, range) in [("firewall", "10.9.0.0/16"), ("other____192168024", "192.168.0.0/24")] {
                azure.foreign.insert(name.to_owned(), route(name, range, "10.0.9.9"));
            }
            let mut routes: Vec<Value> = azure.foreign.values().cloned().collect();
            routes.push(route("left____10244200024", "10.244.200.0/24", "10.0.0.200"));
            let body = json!({"location": "l", "tags": {"team": "x"}, "properties": {"routes": routes, "future": 1}});
            azure.set(Duration::ZERO, Thing::Table, Some(body), "Succeeded");
        }
        let mut body = json!({"properties": {"addressPrefix": "10.0.0.0/16", "future": 7}});
        match subnet {
            0 => {}
            1 if has_table => body["properties"]["routeTable"] = json!({"id": TABLE_ID}),
            1 => {}
            _ => body["properties"]["routeTable"] = json!({"id": OTHER_TABLE}),
        }
        azure.set(Duration::ZERO, Thing::Subnet, Some(body), "Succeeded");
        azure
    }

    fn set(&mut self, now: Duration, thing: Thing, body: Option<Value>, state: &'static str) {
        self.etag += 1;
        let version = body.map(|body| Version { body, etag: self.etag, state });
        self.things.entry(thing).or_default().push((now, version));
    }

    fn at(&self, thing: Thing, as_of: Duration) -> Option<&Version> {
        self.things.get(&thing)?.iter().rev().find(|(from, _)| *from <= as_of)?.1.as_ref()
    }

    pub(super) fn current(&self, thing: Thing) -> Option<&Version> {
        self.at(thing, Duration::MAX)
    }

    /// What a read shows of that time: the body, as Azure completes it, and the ETag.
    pub(super) fn read(&self, thing: Thing, as_of: Duration) -> Option<(Value, u64)> {
        let version = self.at(thing, as_of)?;
        let mut body = version.body.clone();
        body["properties"]["provisioningState"] = version.state.into();
        let serves = |subnet: &Version| subnet.body["properties"]["routeTable"]["id"] == TABLE_ID;
        if thing == Thing::Table && self.at(Thing::Subnet, as_of).is_some_and(serves) {
            body["properties"]["subnets"] = json!([{"id": SUBNET_ID}]);
        }
        Some((body, version.etag))
    }

    fn is_busy(&self, thing: Thing) -> bool {
        self.current(thing).is_some_and(|version| version.state == "Updating")
            || self.running.values().any(|(running, _)| *running == thing)
    }

    /// Takes a write. Without an ETag nothing may be there.
    pub(super) fn write(
        &mut self,
        now: Duration,
        thing: Thing,
        etag: Option<u64>,
        mut body: Value,
        succeeds: bool,
        operation: u64,
    ) -> Result<(), Refused> {
        let before = self.current(thing).cloned();
        if self.busy_first && self.is_busy(thing) {
            return Err(Refused::Busy);
        }
        if etag != before.as_ref().map(|version| version.etag) {
            return Err(Refused::Precondition);
        }
        if self.is_busy(thing) {
            return Err(Refused::Busy);
        }
        let properties = body["properties"].as_object_mut().ok_or(Refused::Invalid)?;
        properties.remove("provisioningState");
        properties.remove("subnets");
        let routes = body["properties"]["routes"].as_array().cloned().unwrap_or_default();
        let (mut names, mut ranges) = (BTreeSet::new(), BTreeSet::new());
        for route in &routes {
            let is_new = names.insert(text(&route["name"]).to_lowercase());
            if !is_new || !ranges.insert(text(&route["properties"]["addressPrefix"])) {
                return Err(Refused::Invalid);
            }
        }
        let after = if succeeds { Some(body) } else { before.map(|version| version.body) };
        self.set(now, thing, after, "Updating");
        let shown = self.current(thing).cloned();
        self.running.insert(operation, (thing, shown));
        self.ended.remove(&operation);
        if !succeeds {
            self.ended.insert(operation, false);
        }
        Ok(())
    }

    /// Ends an operation.
    pub(super) fn end(&mut self, now: Duration, operation: u64) {
        let Some((thing, after)) = self.running.remove(&operation) else { return };
        let failed = self.ended.contains_key(&operation);
        self.ended.entry(operation).or_insert(true);
        self.set(now, thing, after.map(|version| version.body), if failed { "Failed" } else { "Succeeded" });
    }

    /// Whether an operation has succeeded; `None` while it runs.
    pub(super) fn outcome(&self, operation: u64) -> Option<bool> {
        if self.running.contains_key(&operation) { None } else { self.ended.get(&operation).copied() }
    }

    /// Another writer changes the table. Returns whether it could.
    pub(super) fn edit(
        &mut self,
        now: Duration,
        edit: impl FnOnce(&mut Vec<Value>, &mut Self) -> &'static str,
    ) -> bool {
        let Some(version) = self.current(Thing::Table).cloned().filter(|_| !self.is_busy(Thing::Table)) else {
            return false;
        };
        let mut body = version.body;
        let mut routes = body["properties"]["routes"].as_array().cloned().unwrap_or_default();
        let state = edit(&mut routes, self);
        body["properties"]["routes"] = routes.into();
        body["properties"]["future"] = self.note.into();
        self.set(now, Thing::Table, Some(body), state);
        true
    }

    /// The edit that adds a route.
    pub(super) fn adds(routes: &mut Vec<Value>, azure: &mut Self) -> &'static str {
        let number = azure.foreign.len();
        let name = format!("extra-{number}");
        let made = route(&name, &format!("172.16.{number}.0/24"), "10.0.9.9");
        routes.push(made.clone());
        azure.foreign.insert(name, made);
        "Succeeded"
    }

    /// The edit that changes what this program does not know.
    pub(super) fn notes(_: &mut Vec<Value>, azure: &mut Self) -> &'static str {
        azure.note += 1;
        "Succeeded"
    }

    fn of_a_node(routes: &[Value]) -> Option<usize> {
        let is_one = |route: &Value| {
            text(&route["name"]).contains(SEPARATOR)
                && text(&route["properties"]["addressPrefix"]).starts_with("10.244.")
        };
        routes.iter().rposition(is_one)
    }

    /// The edit that removes a route of a Node.
    pub(super) fn removes(routes: &mut Vec<Value>, _: &mut Self) -> &'static str {
        if let Some(at) = Self::of_a_node(routes) {
            routes.remove(at);
        }
        "Succeeded"
    }

    /// The edit that leads a route of a Node elsewhere.
    #[expect(clippy::ptr_arg, reason = "it is called as the other edits are")]
    pub(super) fn leads(routes: &mut Vec<Value>, _: &mut Self) -> &'static str {
        if let Some(at) = Self::of_a_node(routes) {
            routes[at]["properties"]["nextHopIpAddress"] = "10.0.9.9".into();
        }
        "Succeeded"
    }

    /// The operation of another writer ends.
    pub(super) fn other_ended(&mut self, now: Duration) {
        let body = self.current(Thing::Table).filter(|version| version.state == "Updating").map(|one| one.body.clone());
        if body.is_some() && !self.running.values().any(|(thing, _)| *thing == Thing::Table) {
            self.set(now, Thing::Table, body, "Succeeded");
        }
    }

    /// The routes of Nodes as they are now.
    pub(super) fn routes(&self) -> BTreeSet<Route> {
        self.current(Thing::Table).map(|version| of_nodes(&version.body)).unwrap_or_default()
    }

    /// Whether the routes of Nodes were so at any time since then.
    pub(super) fn showed(&self, since: Duration, is_so: impl Fn(&BTreeSet<Route>) -> bool) -> bool {
        let Some(versions) = self.things.get(&Thing::Table) else { return is_so(&BTreeSet::new()) };
        let later = versions.iter().filter(|(from, _)| *from > since).map(|(_, version)| version.as_ref());
        let all = later.chain([self.at(Thing::Table, since)]);
        all.map(|version| version.map(|version| of_nodes(&version.body)).unwrap_or_default())
            .any(|routes| is_so(&routes))
    }

    /// Whether what other writers have made is as they left it.
    pub(super) fn foreign_is_untouched(&self) -> Result<(), String> {
        if let Some(table) = self.current(Thing::Table) {
            let routes = table.body["properties"]["routes"].as_array().cloned().unwrap_or_default();
            if let Some((name, _)) = self.foreign.iter().find(|(_, foreign)| !routes.contains(foreign)) {
                return Err(format!("route {name} of another writer is gone or changed"));
            }
            // A table that another writer has never seen has no such property.
            if !self.foreign.is_empty() && table.body["properties"]["future"] != self.note {
                return Err("an unknown property of the route table is not as another writer left it".to_owned());
            }
        }
        let subnet = &self.current(Thing::Subnet).ok_or("the subnet is gone")?.body["properties"];
        if self.is_others_subnet && subnet["routeTable"]["id"] != OTHER_TABLE {
            return Err("the subnet was taken from another route table".to_owned());
        }
        if subnet["future"] != self.subnet_note || subnet["addressPrefix"] != "10.0.0.0/16" {
            return Err("the subnet is not as another writer left it".to_owned());
        }
        Ok(())
    }

    /// Whether the subnet is where it should be at rest.
    pub(super) fn is_associated(&self) -> bool {
        let subnet = self.current(Thing::Subnet);
        self.is_others_subnet || subnet.is_some_and(|one| one.body["properties"]["routeTable"]["id"] == TABLE_ID)
    }

    pub(super) fn turn(&mut self, now: Duration, machine: u8, power: Power) {
        self.machines.entry(machine).or_default().push((now, power));
    }

    pub(super) fn power(&self, machine: u8) -> Power {
        self.machines.get(&machine).and_then(|all| all.last()).map_or(Power::Gone, |(_, power)| *power)
    }

    /// A machine gets other addresses.
    pub(super) fn readdress(&mut self, now: Duration, machine: u8) {
        let number = self.addressed(machine, Duration::MAX) + 1;
        self.addresses.entry(machine).or_default().push((now, number));
    }

    /// How many other addresses a machine has had before those of that time.
    pub(super) fn addressed(&self, machine: u8, as_of: Duration) -> u8 {
        let all = self.addresses.get(&machine).map(Vec::as_slice).unwrap_or_default();
        all.iter().rev().find(|(from, _)| *from <= as_of).map_or(0, |(_, number)| *number)
    }

    /// The machines that exist.
    pub(super) fn machines(&self) -> impl Iterator<Item = u8> {
        self.machines.keys().copied().filter(|machine| self.power(*machine) != Power::Gone)
    }

    /// What becomes of the fleet's surroundings.
    pub(super) fn surround(&mut self, fleet: Fleet) {
        self.fleet = fleet;
    }

    pub(super) fn fleet(&self) -> Fleet {
        self.fleet
    }

    /// For how long in all, of that time, a machine was in a state, from the first moment to the last.
    pub(super) fn span(&self, machine: u8, of: Power, since: Duration, now: Duration) -> Duration {
        let states = self.machines.get(&machine).map(Vec::as_slice).unwrap_or_default();
        let ends = states.iter().skip(1).map(|(from, _)| *from).chain([now]);
        let in_it = states.iter().zip(ends).filter(|((_, power), end)| *power == of && *end >= since);
        let times: Vec<(Duration, Duration)> = in_it.map(|((from, _), end)| (*from, end)).collect();
        times.last().map_or(Duration::ZERO, |(_, end)| end.saturating_sub(times[0].0))
    }
}
