//! Which Services have pools of their own, and on which Nodes their endpoints are.
//!
//! Pools follow EndpointSlices at once, or no more often than the operator allows: then the Nodes of a Service count that
//! were known when the interval before ended. A pool without a Node follows at once, because its Service is not served.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// The Nodes of Services with local traffic.
#[derive(Debug, Clone, Default)]
pub struct LocalPools {
    /// The least time between two changes that the pool of a Service follows.
    interval: Duration,
    /// The Nodes of each slice, by its Service as `namespace/name` and by the slice.
    slices: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    of_slice: BTreeMap<String, String>,
    /// What the pools follow, by Service.
    followed: BTreeMap<String, Followed>,
}

#[derive(Debug, Clone, Default)]
struct Followed {
    nodes: BTreeSet<String>,
    /// From when on the next change may be followed.
    free_at: Duration,
}

/// The Service of an EndpointSlice, as `namespace/name`, and the Nodes with an endpoint of it.
pub type SliceNodes = (String, BTreeSet<String>);

impl LocalPools {
    /// Pools that follow a change no sooner than so long after the one before.
    pub fn new(interval: Duration) -> Self {
        Self { interval, ..Self::default() }
    }

    /// Takes in one EndpointSlice; `None` when it is gone. Returns the Services whose pools are to change now.
    pub fn slice(&mut self, slice: &str, now: Option<SliceNodes>, at: Duration) -> BTreeSet<String> {
        let touched = self.put(slice, now);
        self.follow(touched, at)
    }

    /// Takes in all EndpointSlices there are, likewise.
    pub fn replace(&mut self, all: impl IntoIterator<Item = (String, SliceNodes)>, at: Duration) -> BTreeSet<String> {
        let mut gone: BTreeSet<String> = self.of_slice.keys().cloned().collect();
        let mut touched = BTreeSet::new();
        for (slice, nodes) in all {
            gone.remove(&slice);
            touched.extend(self.put(&slice, Some(nodes)));
        }
        for slice in gone {
            touched.extend(self.put(&slice, None));
        }
        self.follow(touched, at)
    }

    /// The Services whose pools are to change now because their interval is over.
    pub fn due(&mut self, at: Duration) -> BTreeSet<String> {
        let services: Vec<String> =
            self.waiting().filter(|(_, free_at)| *free_at <= at).map(|(one, _)| one.clone()).collect();
        self.follow(services, at)
    }

    /// When the first of those is due.
    pub fn wake_at(&self) -> Option<Duration> {
        self.waiting().map(|(_, free_at)| free_at).min()
    }

    /// The Nodes that the pool of a Service, given as `namespace/name`, lists. `None` where the Service has no slice: then
    /// nothing is known of its endpoints.
    pub fn nodes_of(&self, service: &str) -> Option<BTreeSet<String>> {
        let followed = self.followed.get(service).map(|followed| followed.nodes.clone());
        followed.or_else(|| self.slices.contains_key(service).then(BTreeSet::new))
    }

    /// Puts a slice in its place. Returns the Services that it is and was of.
    fn put(&mut self, slice: &str, now: Option<SliceNodes>) -> BTreeSet<String> {
        let mut touched = BTreeSet::new();
        if let Some(service) = self.of_slice.remove(slice) {
            if let Some(slices) = self.slices.get_mut(&service) {
                slices.remove(slice);
                if slices.is_empty() {
                    self.slices.remove(&service);
                }
            }
            touched.insert(service);
        }
        if let Some((service, nodes)) = now {
            self.of_slice.insert(slice.to_owned(), service.clone());
            self.slices.entry(service.clone()).or_default().insert(slice.to_owned(), nodes);
            touched.insert(service);
        }
        touched
    }

    fn follow(&mut self, services: impl IntoIterator<Item = String>, at: Duration) -> BTreeSet<String> {
        let mut differ = BTreeSet::new();
        for service in services {
            let nodes = self.current(&service);
            let followed = self.followed.entry(service.clone()).or_default();
            if nodes != followed.nodes && (at >= followed.free_at || followed.nodes.is_empty()) {
                *followed = Followed { nodes, free_at: at.saturating_add(self.interval) };
                differ.insert(service.clone());
            }
            if self.followed.get(&service).is_some_and(|followed| followed.nodes.is_empty()) {
                self.followed.remove(&service);
            }
        }
        differ
    }

    /// The Nodes with an endpoint of a Service.
    fn current(&self, service: &str) -> BTreeSet<String> {
        self.slices.get(service).into_iter().flat_map(BTreeMap::values).flatten().cloned().collect()
    }

    /// The Services whose pools differ from their endpoints, and when they may follow.
    fn waiting(&self) -> impl Iterator<Item = (&String, Duration)> {
        self.followed
            .iter()
            .filter(|_| !self.interval.is_zero())
            .filter(|(service, followed)| self.current(service) != followed.nodes)
            .map(|(service, followed)| (service, followed.free_at))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::ZERO;

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_nodes_of_a_service_are_those_of_all_its_slices() {
        let mut pools = LocalPools::default();
        let web = || "shop/web".to_owned();
        assert_eq!(pools.slice("shop/a", Some((web(), nodes(&["one", "two"]))), NOW), [web()].into());
        assert_eq!(pools.slice("shop/b", Some((web(), nodes(&["two"]))), NOW), BTreeSet::new(), "no Node more");
        assert_eq!(pools.slice("shop/a", Some((web(), nodes(&["one"]))), NOW), BTreeSet::new());
        assert_eq!(pools.nodes_of("shop/web"), Some(nodes(&["one", "two"])));
        assert_eq!(pools.slice("shop/b", Some(("shop/db".to_owned(), nodes(&["two"]))), NOW).len(), 2, "it moved");
        assert_eq!(pools.slice("shop/a", None, NOW), [web()].into());
        assert_eq!(pools.slice("shop/a", None, NOW), BTreeSet::new());
        assert_eq!((pools.of_slice.len(), pools.slices.len(), pools.followed.len()), (1, 1, 1), "nothing is kept");
        let all = [("shop/c".to_owned(), (web(), nodes(&["one"]))), ("shop/d".to_owned(), (web(), nodes(&["two"])))];
        assert_eq!(pools.replace(all, NOW).len(), 2, "one Service is gone, another is there");
        assert_eq!(pools.nodes_of("shop/web"), Some(nodes(&["one", "two"])));
    }

    #[test]
    fn a_pool_follows_no_sooner_than_the_interval_says_and_one_without_nodes_at_once() {
        let s = Duration::from_secs;
        let mut pools = LocalPools::new(s(30));
        let put = |pools: &mut LocalPools, names: &[&str], at| {
            !pools.slice("shop/a", Some(("shop/web".to_owned(), nodes(names))), s(at)).is_empty()
        };
        assert_eq!(pools.nodes_of("shop/web"), None, "nothing is known of it");
        assert!(!put(&mut pools, &[], 0));
        assert_eq!(pools.nodes_of("shop/web"), Some(nodes(&[])));
        assert!(put(&mut pools, &["one"], 1), "it has served no client");
        assert!(!put(&mut pools, &["one", "two"], 2));
        assert!(!put(&mut pools, &["two"], 3));
        assert_eq!((pools.nodes_of("shop/web"), pools.wake_at()), (Some(nodes(&["one"])), Some(s(31))));
        assert_eq!(pools.due(s(30)), BTreeSet::new());
        assert_eq!(pools.due(s(31)).len(), 1);
        assert_eq!((pools.nodes_of("shop/web"), pools.wake_at()), (Some(nodes(&["two"])), None));
        // What goes back to what it was needs no write.
        assert!(!put(&mut pools, &["three"], 40) && !put(&mut pools, &["two"], 41));
        assert_eq!(pools.wake_at(), None);
        assert!(put(&mut pools, &["three"], 62));
    }

    proptest! {
        #[test]
        fn every_change_is_followed_in_the_end_and_none_too_soon(
            interval in 0_u64..20,
            changes in proptest::collection::vec((0_u64..8, 0_u8..3, proptest::collection::btree_set(0_u8..4, 0..3)), 1..30),
        ) {
            let interval = Duration::from_secs(interval);
            let mut pools = LocalPools::new(interval);
            let (mut now, mut followed) = (NOW, Vec::new());
            let mut note = |services: BTreeSet<String>, pools: &LocalPools, at: Duration| {
                if !services.is_empty() {
                    followed.push((at, pools.nodes_of("shop/web")));
                }
            };
            for (pause, slice, on) in changes {
                let next = now + Duration::from_secs(pause);
                while let Some(at) = pools.wake_at().filter(|at| *at <= next) {
                    let services = pools.due(at);
                    prop_assert!(!services.is_empty(), "what is due is followed");
                    note(services, &pools, at);
                }
                now = next;
                let on = on.iter().map(|node| format!("node-{node}")).collect();
                let services = pools.slice(&format!("shop/{slice}"), Some(("shop/web".to_owned(), on)), now);
                note(services, &pools, now);
            }
            while let Some(at) = pools.wake_at() {
                let services = pools.due(at);
                note(services, &pools, at);
            }
            prop_assert_eq!(pools.nodes_of("shop/web"), Some(pools.current("shop/web")));
            for pair in followed.windows(2) {
                let ((before, had), (after, _)) = (&pair[0], &pair[1]);
                prop_assert!(had.as_ref().is_none_or(BTreeSet::is_empty) || *after - *before >= interval, "{followed:?}");
            }
        }
    }
}
