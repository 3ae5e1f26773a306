//! How many connections are served at a time, and which one is cut for a new one.
//!
//! Any client that reaches a port can open connections and say nothing. A new connection is therefore never kept waiting
//! by such a client: where its source has as many as one source may have, the oldest of that source is cut that has not
//! sent its request yet; where there are as many as there may be, that of the source with the most. A client that sends
//! its request at once is served, also beside a client of the same address that does not. A request that has arrived is
//! never cut: where only such are left, the new connection is refused.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// How many connections are served at a time.
pub(super) const CONNECTIONS: usize = 128;

/// How many of one source. A node asks for few keys at a time, and a scraper has one connection.
pub(super) const OF_ONE_SOURCE: usize = 32;

/// How far a connection has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its request has not arrived.
    Receiving,
    /// Its request is being answered.
    Answering,
}

#[derive(Debug)]
struct Open {
    source: IpAddr,
    phase: Phase,
    cut: CancellationToken,
}

/// The open connections, in the order in which they came.
#[derive(Debug, Default)]
struct Connections {
    next: u64,
    open: BTreeMap<u64, Open>,
}

impl Connections {
    /// Takes a connection in. The one that gives way for it is forgotten, and its token is given.
    ///
    /// # Errors
    /// When none can give way.
    fn admit(&mut self, source: IpAddr, cut: CancellationToken) -> Result<(u64, Option<CancellationToken>), Full> {
        let source = source.to_canonical();
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.open.values() {
            *counts.entry(open.source).or_default() += 1;
        }
        let of_source = counts.get(&source).copied().unwrap_or_default();
        let gives_way = |(_, open): &(&u64, &Open)| open.phase == Phase::Receiving;
        let mut waiting = self.open.iter().filter(gives_way);
        let victim = if of_source >= OF_ONE_SOURCE {
            Some(waiting.find(|(_, open)| open.source == source).ok_or(Full)?)
        } else if self.open.len() >= CONNECTIONS {
            // Of equals the oldest: `max_by_key` gives the last.
            Some(waiting.rev().max_by_key(|(_, open)| counts.get(&open.source).copied()).ok_or(Full)?)
        } else {
            None
        };
        let victim = victim.map(|(id, _)| *id);
        let victim = victim.and_then(|id| self.open.remove(&id)).map(|open| open.cut);
        let id = self.next;
        self.next += 1;
        self.open.insert(id, Open { source, phase: Phase::Receiving, cut });
        Ok((id, victim))
    }
}

/// No connection can give way for another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The places of a server. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Places(Arc<Mutex<Connections>>);

impl Places {
    /// A place for a connection; one that must give way is told so.
    ///
    /// # Errors
    /// [`Full`]: the connection is to be closed.
    pub(super) fn take(&self, source: IpAddr) -> Result<Place, Full> {
        let cut = CancellationToken::new();
        let (id, victim) = self.lock().admit(source, cut.clone())?;
        if let Some(victim) = victim {
            victim.cancel();
        }
        Ok(Place { id, cut, places: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // A panic elsewhere leaves it whole: each change is one insertion or removal.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    id: u64,
    cut: CancellationToken,
    places: Places,
}

impl Place {
    /// The request has arrived: the connection gives way no more.
    pub(super) fn arrived(&self) {
        if let Some(open) = self.places.lock().open.get_mut(&self.id) {
            open.phase = Phase::Answering;
        }
    }

    /// Ends when the connection has to give way.
    pub(super) async fn cut(&self) {
        self.cut.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_cut(place: &Place) -> bool {
        place.cut.is_cancelled()
    }

    #[test]
    fn a_source_that_opens_many_loses_its_oldest_and_no_other_source_loses_any() {
        let places = Places::default();
        let other = places.take(source(2)).unwrap();
        let mut flood: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.take(source(1)).unwrap()).collect();
        assert!(!flood.iter().any(is_cut));
        // One of the same source, behind another spelling of the address.
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let node = places.take(mapped).unwrap();
        assert!(is_cut(&flood[0]) && !flood[1..].iter().any(is_cut));
        node.arrived();
        flood.extend((0..10 * OF_ONE_SOURCE).map(|_| places.take(source(1)).unwrap()));
        assert!(!is_cut(&node) && !is_cut(&other));
        assert_eq!(flood.iter().filter(|place| !is_cut(place)).count(), OF_ONE_SOURCE - 1);
        drop((flood, node, other));
        assert!(places.lock().open.is_empty());
    }

    #[test]
    fn where_all_places_are_taken_the_source_with_the_most_gives_way() {
        let places = Places::default();
        let many: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.take(source(1)).unwrap()).collect();
        let few: Vec<Place> =
            (0..CONNECTIONS - OF_ONE_SOURCE).map(|at| places.take(source(2 + (at % 48) as u8)).unwrap()).collect();
        let new = places.take(source(200)).unwrap();
        assert!(is_cut(&many[0]) && !many[1..].iter().chain(&few).any(is_cut) && !is_cut(&new));
    }

    #[test]
    fn a_request_that_has_arrived_is_never_cut() {
        let places = Places::default();
        let busy: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.take(source(1)).unwrap()).collect();
        busy.iter().for_each(Place::arrived);
        assert_eq!(places.take(source(1)).err(), Some(Full));
        let others: Vec<Place> =
            (0..CONNECTIONS - OF_ONE_SOURCE).map(|at| places.take(source(2 + (at % 48) as u8)).unwrap()).collect();
        // The source with the most has nothing to give.
        let new = places.take(source(200)).unwrap();
        assert!(is_cut(&others[0]) && !busy.iter().any(is_cut) && !is_cut(&new));
        others.iter().chain([&new]).for_each(Place::arrived);
        assert_eq!(places.take(source(201)).err(), Some(Full));
        drop(busy);
        assert!(places.take(source(201)).is_ok());
    }
}
