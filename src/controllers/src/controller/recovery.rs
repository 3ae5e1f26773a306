//! What follows a panic in the work on one key: its state is lost, and what others told it is told again.

use std::{collections::BTreeSet, mem, time::Duration};

use lazuli_balancing::{Key, interfaces::Membership};
use lazuli_engine::{Acceptance, object, service::Event};
use lazuli_model::{ArmId, ServiceKey};

use super::Controller;
use crate::informed::Informed;

/// How long after a panic the key is told again: what has caused the panic may last.
const PAUSE: Duration = Duration::from_secs(5);

/// The keys whose states were lost since they were last told again.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    services: BTreeSet<ServiceKey>,
    objects: BTreeSet<Key>,
    interfaces: BTreeSet<ArmId>,
}

impl Informed {
    /// Records that the state of a Service was lost.
    pub(crate) fn lost_service(&self, key: &ServiceKey) {
        self.told().lost.services.insert(key.clone());
        self.recover.notify_one();
    }

    /// Records that the state of an object was lost that Services want something of.
    pub(crate) fn lost_object(&self, key: Key) {
        self.told().lost.objects.insert(key);
        self.recover.notify_one();
    }

    /// Records that the state of a network interface was lost.
    pub(crate) fn lost_interface(&self, id: &ArmId) {
        self.told().lost.interfaces.insert(id.clone());
        self.recover.notify_one();
    }
}

impl Controller {
    /// Tells keys that have lost their states what they were told before.
    pub(super) async fn follow_lost(&self) {
        loop {
            self.informed.recover.notified().await;
            tokio::time::sleep(PAUSE).await;
            self.tell_lost();
        }
    }

    fn tell_lost(&self) {
        let (lost, services, memberships) = {
            let told = &mut *self.informed.told();
            let lost = mem::take(&mut told.lost);
            let of_interface = |id: &ArmId| Some((id.clone(), told.nic_wants.get(id)?.clone()));
            let memberships: Vec<_> = lost.interfaces.iter().filter_map(of_interface).collect();
            (lost, told.services.clone().unwrap_or_default(), memberships)
        };
        for service in services.values() {
            let key = &service.object.key;
            if lost.services.contains(key) {
                self.changed(service);
            }
            for object in &lost.objects {
                self.informed.to_service(key, Event::Lost(object.clone()));
            }
        }
        let Some(workers) = self.informed.workers.get() else { return };
        for (id, (generation, want)) in memberships {
            let acceptance = Acceptance::Given;
            workers.nics.send(&id, object::Event::Requested { from: Membership, generation, want, acceptance }.into());
        }
    }
}
