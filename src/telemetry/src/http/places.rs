//! How many connections are served at a time, and which one is cut for a new one.
//!
//! Any client that reaches a port can open connections and say nothing. A new connection is therefore never kept waiting
//! by such a client: where there are as many as there may be, the oldest gives way that has not sent its request yet, of the
//! source with the most. A server may also have a limit for each source, and then a source beyond it loses its own oldest.
//! A client that sends its request at once is served, also beside a client of the same address that does not.
//!
//! A request that has arrived is never cut. Where only such are left, a new connection waits; beyond the limit of its source
//! it is refused.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many connections are served at a time.
pub(super) const CONNECTIONS: usize = 128;

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
#[derive(Debug)]
struct Connections {
    of_one_source: usize,
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
        let victim = if of_source >= self.of_one_source {
            Some(waiting.find(|(_, open)| open.source == source).ok_or(Full::OfSource)?)
        } else if self.open.len() >= CONNECTIONS {
            // Of equals the oldest: `max_by_key` gives the last.
            Some(waiting.rev().max_by_key(|(_, open)| counts.get(&open.source).copied()).ok_or(Full::Everywhere)?)
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
enum Full {
    /// Its source has as many requests under way as one source may have.
    OfSource,
    /// All connections have requests under way.
    Everywhere,
}

/// The places of a server. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Places {
    connections: Arc<Mutex<Connections>>,
    freed: Arc<Notify>,
}

impl Places {
    /// Places of which one source has so many at most.
    pub(super) fn new(of_one_source: usize) -> Self {
        let connections = Connections { of_one_source, next: 0, open: BTreeMap::new() };
        Self { connections: Arc::new(Mutex::new(connections)), freed: Arc::default() }
    }

    /// A place for a connection, as soon as there is one; one that must give way is told so. `None` where the connection is to
    /// be closed.
    pub(super) async fn take(&self, source: IpAddr) -> Option<Place> {
        loop {
            match self.try_take(source) {
                Ok(place) => return Some(place),
                Err(Full::OfSource) => return None,
                // One that ended meanwhile has left its notice.
                Err(Full::Everywhere) => self.freed.notified().await,
            }
        }
    }

    fn try_take(&self, source: IpAddr) -> Result<Place, Full> {
        let cut = CancellationToken::new();
        let (id, victim) = self.lock().admit(source, cut.clone())?;
        if let Some(victim) = victim {
            victim.cancel();
        }
        Ok(Place { id, cut, places: self.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        // A panic elsewhere leaves it whole: each change is one insertion or removal.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.places.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ONE_SOURCE: usize = 32;

    fn source(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    fn is_cut(place: &Place) -> bool {
        place.cut.is_cancelled()
    }

    #[test]
    fn a_source_that_opens_many_loses_its_oldest_and_no_other_source_loses_any() {
        let places = Places::new(OF_ONE_SOURCE);
        let other = places.try_take(source(2)).unwrap();
        let mut flood: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.try_take(source(1)).unwrap()).collect();
        assert!(!flood.iter().any(is_cut));
        // One of the same source, behind another spelling of the address.
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        let node = places.try_take(mapped).unwrap();
        assert!(is_cut(&flood[0]) && !flood[1..].iter().any(is_cut));
        node.arrived();
        flood.extend((0..10 * OF_ONE_SOURCE).map(|_| places.try_take(source(1)).unwrap()));
        assert!(!is_cut(&node) && !is_cut(&other));
        assert_eq!(flood.iter().filter(|place| !is_cut(place)).count(), OF_ONE_SOURCE - 1);
        drop((flood, node, other));
        assert!(places.lock().open.is_empty());
    }

    #[test]
    fn where_all_places_are_taken_the_source_with_the_most_gives_way() {
        let places = Places::new(OF_ONE_SOURCE);
        let many: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.try_take(source(1)).unwrap()).collect();
        let few: Vec<Place> =
            (0..CONNECTIONS - OF_ONE_SOURCE).map(|at| places.try_take(source(2 + (at % 48) as u8)).unwrap()).collect();
        let new = places.try_take(source(200)).unwrap();
        assert!(is_cut(&many[0]) && !many[1..].iter().chain(&few).any(is_cut) && !is_cut(&new));
    }

    #[test]
    fn a_request_that_has_arrived_is_never_cut() {
        let places = Places::new(OF_ONE_SOURCE);
        let busy: Vec<Place> = (0..OF_ONE_SOURCE).map(|_| places.try_take(source(1)).unwrap()).collect();
        busy.iter().for_each(Place::arrived);
        assert_eq!(places.try_take(source(1)).err(), Some(Full::OfSource));
        let others: Vec<Place> =
            (0..CONNECTIONS - OF_ONE_SOURCE).map(|at| places.try_take(source(2 + (at % 48) as u8)).unwrap()).collect();
        // The source with the most has nothing to give.
        let new = places.try_take(source(200)).unwrap();
        assert!(is_cut(&others[0]) && !busy.iter().any(is_cut) && !is_cut(&new));
        others.iter().chain([&new]).for_each(Place::arrived);
        assert_eq!(places.try_take(source(201)).err(), Some(Full::Everywhere));
        drop(busy);
        assert!(places.try_take(source(201)).is_ok());
    }

    #[tokio::test]
    async fn where_only_requests_are_under_way_a_connection_waits_and_beyond_its_source_s_limit_it_is_refused() {
        let places = Places::new(CONNECTIONS - 1);
        let mut busy: Vec<Place> = (0..CONNECTIONS - 1).map(|_| places.try_take(source(1)).unwrap()).collect();
        busy.push(places.try_take(source(2)).unwrap());
        busy.iter().for_each(Place::arrived);
        assert!(places.take(source(1)).await.is_none());
        let waiting = tokio::spawn({
            let places = places.clone();
            async move { places.take(source(3)).await.is_some() }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(busy.pop());
        assert!(waiting.await.unwrap());
    }
}
