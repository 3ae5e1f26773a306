//! The pools that a node's NIC belongs to.
//!
//! Three kinds of objects hold what this module calls a NIC ([`Holder`]): a network interface; an instance of a uniform
//! scale set, which writes its interfaces itself; and the model of a scale set, by which its next instances are made.
//!
//! A NIC's IP configuration names its pools. Only pools of this provider's load balancers are taken away; what others put a
//! NIC into stays. Azure allows one public and one internal load balancer a NIC, so a NIC that is in another one's pool is
//! not added ([`NicPlan::conflicts`]).

use std::collections::{BTreeMap, BTreeSet};

use lazuli_model::{
    ArmId,
    address::Family,
    json::{BodyError, Provisioning, at, child_mut, list, object, set, text},
};
use serde_json::{Value, json};

use crate::ask::names;

/// What kind of object describes a NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// The network interface itself.
    Interface,
    /// An instance of a uniform scale set. Its interfaces cannot be written.
    Instance,
    /// The model of a scale set.
    Model,
}

impl Holder {
    /// The kind of object that has this id.
    pub fn of(id: &ArmId) -> Self {
        if id.is_type("Microsoft.Compute/virtualMachineScaleSets/virtualMachines") {
            Self::Instance
        } else if id.is_type("Microsoft.Compute/virtualMachineScaleSets") {
            Self::Model
        } else {
            Self::Interface
        }
    }

    /// What holds an IP configuration that a pool lists as its member.
    pub fn of_configuration(configuration: &ArmId) -> Option<ArmId> {
        let nic = configuration.parent()?;
        match nic.parent() {
            Some(instance) if Self::of(&instance) == Self::Instance => Some(instance),
            _ => Some(nic),
        }
    }

    /// Where its body has the list of NICs.
    fn path(self) -> Option<&'static [&'static str]> {
        const NICS: &str = "networkInterfaceConfigurations";
        match self {
            Self::Interface => None,
            Self::Instance => Some(&["properties", "networkProfileConfiguration", NICS]),
            Self::Model => Some(&["properties", "virtualMachineProfile", "networkProfile", NICS]),
        }
    }
}

/// A NIC as Azure describes it: of an instance or a model, the primary one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nic {
    /// The id of its holder.
    pub id: ArmId,
    /// The machine that it is attached to; none of a model.
    pub machine: Option<ArmId>,
    /// Whether it is its machine's primary one.
    pub is_primary: bool,
    /// Its IP configurations.
    pub configurations: Vec<IpConfiguration>,
    /// How its holder's last operation went.
    pub provisioning: Provisioning,
    /// Whether its holder is being deleted.
    pub is_deleting: bool,
    /// Of a model: whether Azure brings the instances in line with it by itself, so that a write of it may change
    /// machines that run.
    pub upgrades_instances: bool,
}

/// An IP configuration of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfiguration {
    /// Its name.
    pub name: String,
    /// The family of its address.
    pub family: Family,
    /// Whether it is the NIC's primary one.
    pub is_primary: bool,
    /// Its pools.
    pub pools: Vec<ArmId>,
}

/// What a NIC should be in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Env {
    /// The pools to be in, by family.
    pub wanted: BTreeMap<Family, BTreeSet<ArmId>>,
    /// The pools that this provider fills: one of them that is not wanted is left.
    pub managed: BTreeSet<ArmId>,
}

/// One change of a NIC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Join a pool.
    Join {
        /// The IP configuration.
        configuration: String,
        /// The pool.
        pool: ArmId,
    },
    /// Leave a pool.
    Leave {
        /// The IP configuration.
        configuration: String,
        /// The pool.
        pool: ArmId,
    },
}

/// A pool that a NIC cannot join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// It is in a pool of another load balancer of the same side.
    OtherLoadBalancer {
        /// The pool to join.
        wanted: ArmId,
        /// The pool that it is in.
        there: ArmId,
    },
    /// It has no address of the family.
    NoAddress(Family),
    /// Its last operation failed; Azure refuses to change it until an operator repairs it.
    Failed,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OtherLoadBalancer { wanted, there } => {
                write!(f, "{wanted} is to be joined, and {there} is of another load balancer of the same side")
            }
            Self::NoAddress(family) => write!(f, "it has no {family} address"),
            Self::Failed => f.write_str("its last operation failed, and it must be repaired first"),
        }
    }
}

/// What a NIC needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NicPlan {
    /// What one write changes.
    pub edits: Vec<Edit>,
    /// What it cannot join.
    pub conflicts: Vec<Conflict>,
}

impl Nic {
    /// Reads the body of the object of this id.
    ///
    /// # Errors
    /// When it is no object.
    pub fn read(id: &ArmId, body: &Value) -> Result<Self, BodyError> {
        if !body.is_object() {
            return Err(BodyError { object: "a NIC", field: "object" });
        }
        let holder = Holder::of(id);
        let nic = match holder.path() {
            None => body,
            Some(path) => primary(list(body, path)).unwrap_or(&Value::Null),
        };
        let configurations = list(nic, &["properties", "ipConfigurations"]).iter().filter_map(|item| {
            let property = |key| text(item, &["properties", key]);
            Some(IpConfiguration {
                name: text(item, &["name"])?.to_owned(),
                family: match property("privateIPAddressVersion") {
                    Some(version) if version.eq_ignore_ascii_case("IPv6") => Family::V6,
                    _ => Family::V4,
                },
                is_primary: at(item, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false),
                pools: list(item, &["properties", "loadBalancerBackendAddressPools"])
                    .iter()
                    .filter_map(|pool| text(pool, &["id"])?.parse().ok())
                    .collect(),
            })
        });
        let upgrade = text(body, &["properties", "upgradePolicy", "mode"]);
        Ok(Self {
            id: id.clone(),
            machine: match holder {
                Holder::Interface => text(body, &["properties", "virtualMachine", "id"]).and_then(|id| id.parse().ok()),
                Holder::Instance => Some(id.clone()),
                Holder::Model => None,
            },
            is_primary: is_primary(nic),
            configurations: configurations.collect(),
            provisioning: Provisioning::read(body),
            is_deleting: text(body, &["properties", "provisioningState"])
                .is_some_and(|state| state.eq_ignore_ascii_case("Deleting")),
            upgrades_instances: holder == Holder::Model
                && upgrade.is_some_and(|mode| !mode.eq_ignore_ascii_case("Manual")),
        })
    }

    /// Whether it is in a pool.
    pub fn is_in(&self, pool: &ArmId) -> bool {
        self.configurations.iter().any(|there| there.pools.contains(pool))
    }

    /// The IP configuration of a family: the primary one for IPv4, the first one for IPv6.
    fn of_family(&self, family: Family) -> Option<&IpConfiguration> {
        let mut all = self.configurations.iter().filter(|there| there.family == family);
        let first = all.clone().next();
        all.find(|there| there.is_primary).or(first)
    }
}

fn is_primary(nic: &Value) -> bool {
    at(nic, &["properties", "primary"]).and_then(Value::as_bool).unwrap_or(false)
}

/// The primary one of several NICs; one alone needs no mark.
fn primary(nics: &[Value]) -> Option<&Value> {
    nics.iter().find(|nic| is_primary(nic)).or_else(|| nics.first().filter(|_| nics.len() == 1))
}

/// The load balancer of a pool and whether it is an internal one, by its name.
fn balancer(pool: &ArmId) -> Option<(String, bool)> {
    let segments: Vec<&str> = pool.folded().split('/').collect();
    let (group, name) = (segments.get(4)?, segments.get(8)?);
    let stem = names::load_balancer_stem(name);
    Some((format!("{group}/{name}"), stem.len() != name.len()))
}

/// Plans one write of a NIC. One whose holder is being deleted leaves its pools with it.
pub fn plan(actual: &Nic, env: &Env) -> NicPlan {
    let mut plan = NicPlan::default();
    if actual.is_deleting {
        return plan;
    }
    for configuration in &actual.configurations {
        let family = configuration.family;
        let is_the_one = actual.of_family(family).is_some_and(|there| there.name == configuration.name);
        let wanted = env.wanted.get(&family).filter(|_| is_the_one);
        for pool in &configuration.pools {
            let is_wanted = wanted.is_some_and(|wanted| wanted.contains(pool));
            if env.managed.contains(pool) && !is_wanted {
                plan.edits.push(Edit::Leave { configuration: configuration.name.clone(), pool: pool.clone() });
            }
        }
    }
    let leaves =
        |pool: &ArmId| plan.edits.iter().any(|edit| matches!(edit, Edit::Leave { pool: left, .. } if left == pool));
    let stays: Vec<&ArmId> =
        actual.configurations.iter().flat_map(|there| &there.pools).filter(|pool| !leaves(pool)).collect();
    let mut joins = Vec::new();
    for (family, pools) in &env.wanted {
        let Some(configuration) = actual.of_family(*family) else {
            plan.conflicts.extend((!pools.is_empty()).then_some(Conflict::NoAddress(*family)));
            continue;
        };
        for pool in pools.iter().filter(|pool| !configuration.pools.contains(pool)) {
            let own = balancer(pool);
            let is_other = |there: &&&ArmId| {
                let theirs = balancer(there);
                theirs.is_some() && theirs != own && theirs.map(|(_, side)| side) == own.as_ref().map(|(_, side)| *side)
            };
            match stays.iter().find(is_other) {
                Some(there) => {
                    plan.conflicts.push(Conflict::OtherLoadBalancer { wanted: pool.clone(), there: (**there).clone() })
                }
                None => joins.push(Edit::Join { configuration: configuration.name.clone(), pool: pool.clone() }),
            }
        }
    }
    let is_interface = Holder::of(&actual.id) == Holder::Interface;
    if !joins.is_empty() && actual.provisioning == Provisioning::Failed && is_interface {
        plan.conflicts.push(Conflict::Failed);
        joins.clear();
    }
    plan.edits.extend(joins);
    plan
}

/// What the edits do to the model.
pub fn apply(mut actual: Nic, edits: &[Edit]) -> Nic {
    for edit in edits {
        let (Edit::Join { configuration, .. } | Edit::Leave { configuration, .. }) = edit;
        let Some(there) = actual.configurations.iter_mut().find(|there| there.name.eq_ignore_ascii_case(configuration))
        else {
            continue;
        };
        match edit {
            Edit::Join { pool, .. } => there.pools.push(pool.clone()),
            Edit::Leave { pool, .. } => there.pools.retain(|item| item != pool),
        }
    }
    actual
}

/// The body of the write that makes these edits: of a network interface all of it, of an instance and of a model its NICs
/// alone, for others write what else they hold. With the NICs of an instance goes its hardware profile, as it was just
/// read: the Go manager sends it in each such PUT, and what Azure makes of a PUT without it is not documented.
pub fn write_body(id: &ArmId, mut body: Value, edits: &[Edit]) -> Value {
    let holder = Holder::of(id);
    let Some(path) = holder.path() else { return apply_raw(body, edits) };
    let mut nics = list(&body, path).to_vec();
    let at = primary(&nics).and_then(|chosen| nics.iter().position(|nic| std::ptr::eq(nic, chosen)));
    if let Some(nic) = at.map(|at| &mut nics[at]) {
        *nic = apply_raw(nic.take(), edits);
    }
    let mut written = json!({});
    if holder == Holder::Instance {
        // A PUT without a location is refused.
        written["location"] = body["location"].take();
        if let Some(hardware) = body.pointer_mut("/properties/hardwareProfile") {
            written["properties"]["hardwareProfile"] = hardware.take();
        }
    }
    let (last, parents) = path.split_last().expect("the paths have several keys");
    set(object(&mut written, parents), last, json!(nics));
    written
}

/// What the edits do to the raw body of a NIC.
pub fn apply_raw(mut body: Value, edits: &[Edit]) -> Value {
    const POOLS: &str = "loadBalancerBackendAddressPools";
    for edit in edits {
        let (Edit::Join { configuration, pool } | Edit::Leave { configuration, pool }) = edit;
        let Some(there) = child_mut(&mut body, "ipConfigurations", configuration) else { continue };
        let mut pools = list(there, &["properties", POOLS]).to_vec();
        match edit {
            Edit::Join { .. } => pools.push(lazuli_model::json::reference(pool)),
            Edit::Leave { .. } => {
                pools.retain(|item| text(item, &["id"]).and_then(|id| id.parse::<ArmId>().ok()).as_ref() != Some(pool));
            }
        }
        set(object(there, &["properties"]), POOLS, json!(pools));
    }
    body
}

#[cfg(test)]
mod tests;
