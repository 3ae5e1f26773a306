//! The machines that Nodes of a name named once.

use std::collections::BTreeMap;

use crate::ArmId;

/// Of how many names of Nodes former machines are remembered.
const MOST: usize = 4_096;
/// How many former machines of one name are remembered, so that one Node that is created again and again ousts no other.
const MOST_OF_ONE: usize = 4;

/// By the name of a Node, the machines that Nodes of this name named and do not name now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FormerMachines {
    /// Of each name, the newest last.
    by_name: BTreeMap<Box<str>, Vec<Former>>,
    /// How many have been added.
    added: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Former {
    machine: ArmId,
    /// A higher number was added later.
    order: u64,
}

impl FormerMachines {
    /// Adds a machine. The name whose last machine was added first goes where there are too many.
    pub(super) fn add(&mut self, name: &str, machine: &ArmId) {
        self.added += 1;
        let of_name = self.by_name.entry(name.into()).or_default();
        of_name.retain(|former| former.machine != *machine);
        of_name.push(Former { machine: machine.clone(), order: self.added });
        if of_name.len() > MOST_OF_ONE {
            of_name.remove(0);
        }
        if self.by_name.len() > MOST {
            let newest = |of_name: &[Former]| of_name.last().map(|former| former.order);
            let oldest = self.by_name.iter().min_by_key(|(_, of_name)| newest(of_name)).map(|(name, _)| name.clone());
            oldest.map(|name| self.by_name.remove(&name));
        }
    }

    /// Forgets a machine that the Node of this name names now.
    pub(super) fn forget(&mut self, name: &str, machine: &ArmId) {
        if let Some(of_name) = self.by_name.get_mut(name) {
            of_name.retain(|former| former.machine != *machine);
            if of_name.is_empty() {
                self.by_name.remove(name);
            }
        }
    }

    /// Those of a name.
    pub(super) fn of(&self, name: &str) -> impl Iterator<Item = &ArmId> {
        let of_name = self.by_name.get(name).or_else(|| self.by_name.get(&*name.to_ascii_lowercase()));
        of_name.into_iter().flatten().map(|former| &former.machine)
    }

    /// The names of the Nodes that named a machine.
    pub(super) fn names_of(&self, machine: &ArmId) -> impl Iterator<Item = &str> {
        let named = move |of_name: &[Former]| of_name.iter().any(|former| former.machine == *machine);
        self.by_name.iter().filter(move |(_, of_name)| named(of_name)).map(|(name, _)| &**name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_names_are_forgotten_and_one_name_ousts_no_other() {
        let vm = |name: &str| ArmId::virtual_machine("s", "g", name).unwrap();
        let mut former = FormerMachines::default();
        // The first name is the last one in the order of names.
        (0..MOST).for_each(|at| former.add(&format!("m-{:05}", MOST - at), &vm("vm")));
        (0..=2 * MOST).for_each(|at| former.add("m-00001", &vm(&format!("vm-{at}"))));
        let first = format!("m-{MOST:05}");
        assert_eq!((former.of(&first).count(), former.of("M-00001").count()), (1, MOST_OF_ONE));
        former.add("x", &vm("vm"));
        assert_eq!((former.of(&first).count(), former.of("x").count()), (0, 1));
        assert_eq!(former.by_name.len(), MOST);
        former.forget("x", &vm("vm"));
        assert_eq!(former.of("x").count(), 0);
    }
}
