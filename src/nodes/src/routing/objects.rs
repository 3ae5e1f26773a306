//! Route tables, and the subnets that they serve, as objects of the engine.

use std::collections::BTreeMap;

use lazuli_engine::{
    Explanation,
    object::{Object, Plan, Served, Write},
};
use lazuli_model::{
    ArmId,
    json::{Provisioning, object, reference, set},
};
use lazuli_quota::permit::Priority;
use serde_json::Value;

use super::{
    AssociatedSubnet, Edit, Env, RouteTable, Want,
    plan::{self, Served as TableServed},
    replaces,
};

/// What a route table shows of a Node whose routes are as wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Whether the table serves any subnet. Without one its routes lead nothing.
    pub is_associated: bool,
    /// Whether its last operation has not failed. Of one that did it is not known which routes work.
    pub is_provisioned: bool,
    /// Why a route of the Node, which exists, would not be added now.
    pub objection: Option<&'static str>,
}

/// Route tables. Nodes want something of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteTables;

impl Object for RouteTables {
    type Requester = String;
    type Want = Want;
    type Model = RouteTable;
    type Inputs = Env;
    type Op = Vec<Edit>;
    type Report = Report;
    type Related = ArmId;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<String, Want>, actual: Option<&RouteTable>, inputs: &Env) -> Plan<Self> {
        let plan::Plan { edits, served, kept } = plan::plan(wants, actual, inputs);
        // A table whose last operation failed is written again, also without a change.
        let has_failed = actual.is_some_and(|table| table.provisioning == Provisioning::Failed);
        let is_associated = actual.is_some_and(|table| !table.subnets.is_empty());
        let report =
            |node: &String| Report { is_associated, is_provisioned: !has_failed, objection: kept.get(node).copied() };
        let write = (!edits.is_empty() || (has_failed && !served.is_empty())).then(|| Write {
            // Pods of many Nodes wait for one write.
            priority: Priority::Attach,
            replaces: replaces(&edits, actual),
            is_partial: false,
            taints: vec![],
            op: edits,
        });
        let served = served.into_iter().map(|(node, served)| {
            let served = match served {
                TableServed::Done => Served::Met(report(&node)),
                TableServed::Pending => Served::Pending,
                TableServed::Waiting(what) => Served::Waiting(what),
                TableServed::Refused(why) => Served::Refused(why),
            };
            (node, served)
        });
        Plan { write, served: served.collect() }
    }

    fn is_updating(model: &RouteTable) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes(want: &Want) -> bool {
        matches!(want, Want::Gone(_))
    }
}

/// Subnets, each of which belongs to one route table at most. A route table wants a subnet to belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetAssociations;

impl Object for SubnetAssociations {
    type Requester = ArmId;
    type Want = ();
    type Model = AssociatedSubnet;
    type Inputs = ();
    /// The route table that the subnet is to belong to.
    type Op = ArmId;
    type Report = ();
    type Related = ArmId;

    const CONDITIONAL: bool = true;

    fn plan(wants: &BTreeMap<ArmId, ()>, actual: Option<&AssociatedSubnet>, (): &()) -> Plan<Self> {
        let refused = |message: String| Served::Refused(Explanation { reason: "SubnetNotAssociated", message });
        let mut write = None;
        let mut served = BTreeMap::new();
        for table in wants.keys() {
            let how = match actual.map(|subnet| (subnet, &subnet.route_table)) {
                None => refused(format!(
                    "the subnet of the cloud configuration does not exist, so route table {} leads nothing; correct \
                     vnetName and subnetName",
                    table.name()
                )),
                Some((_, Some(there))) if there == table => Served::Met(()),
                Some((subnet, Some(there))) => refused(format!(
                    "subnet {} belongs to route table {there}, and a subnet has one; name that table in routeTableName, or \
                     take it off the subnet",
                    subnet.id.name()
                )),
                Some((_, None)) => {
                    let associate = || Write {
                        op: table.clone(),
                        priority: Priority::Attach,
                        replaces: false,
                        is_partial: false,
                        taints: vec![table.clone()],
                    };
                    write.get_or_insert_with(associate);
                    Served::Pending
                }
            };
            served.insert(table.clone(), how);
        }
        Plan { write, served }
    }

    fn is_updating(model: &AssociatedSubnet) -> bool {
        model.provisioning == Provisioning::Updating
    }

    fn removes((): &()) -> bool {
        false
    }
}

/// The raw body of a subnet that belongs to a route table from now on. All else stays.
pub fn associate(mut subnet: Value, table: &ArmId) -> Value {
    set(object(&mut subnet, &["properties"]), "routeTable", reference(table));
    subnet
}
