//! When the pools of NICs have followed the Nodes: when the last NIC that was told to join or leave one has done so.

use std::collections::{BTreeMap, BTreeSet};

use lazuli_engine::{Outcome, Refusal, Waiting};
use lazuli_model::{ArmId, fault::Fault};
use lazuli_services::network::nic::{self, Nic};

use crate::objects::load_balancer_of;

/// The NICs that are on their way into or out of pools, with the load balancers of those.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Underway(BTreeMap<ArmId, BTreeSet<ArmId>>);

impl Underway {
    /// A NIC is told in which pools it is to be. One that no read has shown may be there already: it counts as on its way to
    /// none.
    pub fn told(&mut self, nic: &ArmId, want: &nic::Env, actual: Option<&Nic>) {
        let edits = actual.map(|actual| nic::plan(actual, want).edits).unwrap_or_default();
        let pools = edits.iter().map(|edit| match edit {
            nic::Edit::Join { pool, .. } | nic::Edit::Leave { pool, .. } => pool,
        });
        let balancers: BTreeSet<ArmId> = pools.filter_map(load_balancer_of).collect();
        if !balancers.is_empty() {
            self.0.entry(nic.clone()).or_default().extend(balancers);
        }
    }

    /// Takes in what became of a NIC's want. Returns the load balancers whose pools have followed the Nodes by it, or cannot.
    /// A pause that Azure asks for is neither.
    pub fn ended<R>(&mut self, nic: &ArmId, outcome: &Outcome<R>) -> (BTreeSet<ArmId>, Result<(), Fault>) {
        match outcome {
            Outcome::Done(_) => (self.arrived(nic), Ok(())),
            Outcome::Refused(Refusal::Azure(fault)) | Outcome::Waiting(Waiting::Retry(fault))
                if !matches!(fault, Fault::Throttled { .. }) =>
            {
                (self.0.get(nic).cloned().unwrap_or_default(), Err(fault.clone()))
            }
            Outcome::Refused(_) | Outcome::Waiting(_) => (BTreeSet::new(), Ok(())),
        }
    }

    /// A NIC is where it is to be, or does not exist any more. Returns the load balancers to or from which no other is on its
    /// way.
    pub fn arrived(&mut self, nic: &ArmId) -> BTreeSet<ArmId> {
        let mut balancers = self.0.remove(nic).unwrap_or_default();
        balancers.retain(|balancer| !self.0.values().any(|others| others.contains(balancer)));
        balancers
    }
}

#[cfg(test)]
mod tests {
    use lazuli_model::address::Family;

    use super::*;

    fn id(kind: &str, name: &str) -> ArmId {
        ArmId::resource("s", "g", &format!("Microsoft.Network/{kind}"), name).unwrap()
    }

    fn nic(name: &str) -> (ArmId, Nic) {
        let id = id("networkInterfaces", name);
        let body = serde_json::json!({"properties": {"provisioningState": "Succeeded", "ipConfigurations": [
            {"name": "one", "properties": {"primary": true, "privateIPAddress": "10.0.0.4", "privateIPAddressVersion": "IPv4"}}]}});
        let nic = Nic::read(&id, &body).unwrap();
        (id, nic)
    }

    fn joins(balancers: &[&ArmId]) -> nic::Env {
        let pools: BTreeSet<ArmId> =
            balancers.iter().map(|one| format!("{one}/backendAddressPools/kubernetes").parse().unwrap()).collect();
        nic::Env { wanted: BTreeMap::from([(Family::V4, pools.clone())]), managed: pools }
    }

    #[test]
    fn a_load_balancer_has_followed_when_its_last_nic_has_arrived() {
        let (public, internal) = (id("loadBalancers", "kubernetes"), id("loadBalancers", "kubernetes-internal"));
        let ((one, first), (two, second), (unknown, _)) = (nic("one"), nic("two"), nic("unknown"));
        let mut underway = Underway::default();
        underway.told(&one, &joins(&[&public, &internal]), Some(&first));
        underway.told(&two, &joins(&[&public]), Some(&second));
        underway.told(&unknown, &joins(&[&public]), None);
        let done = Outcome::Done(());
        assert_eq!(underway.ended(&unknown, &done), (BTreeSet::new(), Ok(())), "it may have been there");
        let pause = Fault::Throttled { retry_after: None };
        assert_eq!(underway.ended(&one, &Outcome::<()>::Waiting(Waiting::Retry(pause))), (BTreeSet::new(), Ok(())));
        let refused = Outcome::<()>::Refused(Refusal::Azure(Fault::Forbidden));
        let both = BTreeSet::from([public.clone(), internal.clone()]);
        assert_eq!(underway.ended(&one, &refused), (both, Err(Fault::Forbidden)));
        assert_eq!(underway.ended(&one, &done), (BTreeSet::from([internal]), Ok(())));
        assert_eq!(underway.ended(&one, &done), (BTreeSet::new(), Ok(())), "it is told once");
        assert_eq!(underway.arrived(&two), BTreeSet::from([public]));
        assert_eq!(underway, Underway::default());
    }
}
