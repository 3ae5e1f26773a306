//! Which disks a machine held at which moment: the metadata service shows that late.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// LUN to disk id.
type Luns = BTreeMap<u8, String>;

/// What the machines held, back to a horizon.
#[derive(Clone, Debug, Default)]
pub(crate) struct LunHistory {
    keep: Duration,
    machines: BTreeMap<String, VecDeque<(Duration, Luns)>>,
}

impl LunHistory {
    /// Remembers as much as a lag of `keep` needs.
    pub(crate) fn new(keep: Duration) -> Self {
        Self { keep, machines: BTreeMap::new() }
    }

    /// From `at` on the machine holds `luns`. Calls for one machine come in the order of time.
    pub(crate) fn record(&mut self, machine: &str, at: Duration, luns: Luns) {
        let entries = self.machines.entry(machine.to_ascii_lowercase()).or_default();
        entries.push_back((at, luns));
        // The newest entry from before the horizon still says what was held at the horizon.
        let horizon = at.saturating_sub(self.keep);
        while entries.get(1).is_some_and(|(time, _)| *time <= horizon) {
            entries.pop_front();
        }
    }

    /// What the machine held at `at`; nothing before its first record.
    pub(crate) fn held(&self, machine: &str, at: Duration) -> Luns {
        self.machines
            .get(&machine.to_ascii_lowercase())
            .and_then(|entries| entries.iter().rev().find(|(time, _)| *time <= at))
            .map(|(_, luns)| luns.clone())
            .unwrap_or_default()
    }
}
