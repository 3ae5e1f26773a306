//! What a killed process left unfinished, settled at the next start.
//!
//! The state file shows each resource as it was between acceptance and end of its operation. There is
//! no operation any more, so nothing may stay `Updating`: what was accepted is taken to its end where
//! the file tells how (creations, changes of disks, attaches, detaches, deletions) and dropped where it
//! does not (power actions, access grants). A deployment of a template has failed. A machine in the state `Failed` stays as it is.

use std::time::Duration;

use serde_json::{Value, json};

use crate::arm::compute::scale_sets::{members, nics};
use crate::arm::compute::{attachments, background_copy, disk_access, disk_plan, instant_access, vm_create, vm_work};
use crate::arm::resources::groups;
use crate::arm::{engine, kinds};
use crate::blob::vhd;
use crate::path;
use crate::state::State;

const START: Duration = Duration::ZERO;

impl State {
    /// Settles what was in flight.
    pub(crate) fn recover(&mut self) {
        let in_state = |state: &Self, wanted: &[&str]| -> Vec<(String, String)> {
            state
                .store
                .iter()
                .filter(|(_, resource)| wanted.contains(&resource.provisioning()))
                .map(|(key, resource)| (key.clone(), resource.doc["type"].as_str().unwrap_or("").to_owned()))
                .collect()
        };
        // The file does not have the template: what of it was made stays.
        for (id, kind) in in_state(self, &["Accepted", "Running"]) {
            if kind == kinds::DEPLOYMENT {
                self.store.change(&id, START, |resource| {
                    resource.set_provisioning("Failed");
                    resource.busy = None;
                });
            }
        }
        // Deletions first: they release disks that other machines may have been about to take.
        for (id, kind) in in_state(self, &["Deleting"]) {
            self.recover_deletion(&id, &kind);
        }
        // Disks before machines, which look at them.
        for (id, kind) in in_state(self, &["Updating", "Creating"]) {
            if ![kinds::MACHINE, kinds::INSTANCE].contains(&kind.as_str()) {
                self.recover_resource(&id, &kind);
            }
        }
        for (id, kind) in in_state(self, &["Updating", "Creating"]) {
            if [kinds::MACHINE, kinds::INSTANCE].contains(&kind.as_str()) {
                self.recover_machine(&id);
            }
        }
    }

    /// Access signatures, background copies and instant access of the file end at their time.
    pub(crate) fn set_alarms(&mut self, start: jiff::Timestamp) {
        let out = self.store.iter().filter_map(|(key, resource)| Some((key.clone(), resource.signature_ends?)));
        for (id, ends) in out.collect::<Vec<_>>() {
            let left = u64::try_from(ends - start.as_second()).unwrap_or(0);
            disk_access::end_later(self, &id, Duration::from_secs(left), ends);
        }
        let copies = self.store.iter().filter_map(|(key, resource)| Some((key.clone(), resource.copy_ends?)));
        for (id, ends) in copies.collect::<Vec<_>>() {
            let left = u64::try_from(ends - start.as_second()).unwrap_or(0);
            background_copy::go_on(self, &id, START, Duration::from_secs(left));
        }
        let snapshots: Vec<String> =
            self.store.of_kind(kinds::SNAPSHOT).map(|snapshot| path::of(snapshot).to_owned()).collect();
        for id in snapshots {
            instant_access::end_later(self, &id, start);
        }
    }

    fn recover_deletion(&mut self, id: &str, kind: &str) {
        match kind {
            kinds::GROUP => {
                let _ = groups::remove(self, id, START);
            }
            kinds::MACHINE | kinds::INSTANCE => members::lose(self, &[id], START),
            kinds::DISK if self.store.disk(id).is_some_and(|doc| !attachments::owners(&doc).is_empty()) => {
                self.store.change(id, START, |resource| resource.set_provisioning("Succeeded"));
            }
            _ => match self.types.named(kind) {
                Some(descriptor) => engine::delete::remove(descriptor, self, id, START),
                None => drop(self.store.remove(id, START)),
            },
        }
    }

    fn recover_resource(&mut self, id: &str, kind: &str) {
        if let Some(descriptor) = self.types.named(kind) {
            // What fails stays as it is, in the state that others are told of.
            if engine::put::finish(descriptor, self, id, START).is_err() {
                self.store.change(id, START, |resource| resource.set_provisioning("Failed"));
                return;
            }
        }
        self.store.change(id, START, |resource| resource.set_provisioning("Succeeded"));
    }

    fn recover_machine(&mut self, id: &str) {
        // The key is in lower case; what others show is the id as it was spelt.
        let doc = self.store.vm(id).unwrap_or_default();
        let own_id = doc["id"].as_str().unwrap_or(id).to_owned();
        if vm_create::system_disk_free(self, &own_id).is_ok() {
            vm_create::take_os_disk(self, &own_id, START);
        }
        let elements = doc["properties"]["storageProfile"]["dataDisks"].as_array().cloned().unwrap_or_default();
        let mut kept = Vec::new();
        for element in elements {
            let lun = element["lun"].as_u64().and_then(|lun| u8::try_from(lun).ok());
            let disk = attachments::named_by(&element);
            let (Some(lun), Some(disk)) = (lun, disk) else {
                kept.push(element);
                continue;
            };
            let held = self.store.lun_map(id).get(&lun).is_some_and(|held| vhd::key(held) == vhd::key(disk));
            if element["toBeDetached"] == json!(true) {
                if held {
                    attachments::release(self, &own_id, lun, disk, START);
                }
            } else if held {
                kept.push(element);
            } else if attachments::empty_blob(&element)
                .is_none_or(|blob| disk_plan::make_blobs(self, &own_id, &[blob], START).is_ok())
                && attachments::still_free(self, &own_id, disk).is_ok()
            {
                attachments::take(self, &own_id, lun, disk, START);
                kept.push(element);
            } else {
                attachments::give_back(self, &own_id, disk, START);
            }
        }
        self.store.change(id, START, |resource| {
            resource.doc["properties"]["storageProfile"]["dataDisks"] = Value::Array(kept);
            resource.set_provisioning("Succeeded");
            vm_work::bump(resource);
        });
        nics::follow_model(self, id, START);
    }
}
