//! The way to the API server, with a bound on the writes in flight.
//!
//! A start with 1,000 Services or 5,000 new Nodes has as many patches to send. Each request in flight has a connection of
//! its own, for the API server is asked by HTTP/1.1, and a connection holds tens of kilobytes and a file descriptor.

use std::sync::Arc;

use kube::Client;
use tokio::sync::Semaphore;

/// The most writes in flight. An API server answers one within milliseconds, so that these are thousands a second.
const WRITES: usize = 32;

/// The client of the API server. Clones share the bound.
#[derive(Clone)]
pub(crate) struct Api {
    /// For reads, and for the Lease, whose renewal must wait for nothing.
    pub(crate) client: Client,
    writes: Arc<Semaphore>,
}

impl Api {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, writes: Arc::new(Semaphore::new(WRITES)) }
    }

    /// Sends a write when fewer than [`WRITES`] are in flight.
    pub(crate) async fn write<T>(&self, write: impl Future<Output = T>) -> T {
        let _permit = self.writes.acquire().await.expect("the semaphore is never closed");
        write.await
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use tokio::sync::watch;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn no_more_writes_are_in_flight_than_the_bound_and_all_end() {
        let server = ApiServer::start(Options::default());
        let api = Api::new(Client::new(server.router(), "default"));
        let (in_flight, ends) = (watch::Sender::new(0_usize), watch::Sender::new(false));
        let mut all = tokio::task::JoinSet::new();
        for _ in 0..3 * WRITES {
            let (api, in_flight, mut ends) = (api.clone(), in_flight.clone(), ends.subscribe());
            all.spawn(async move {
                api.write(async {
                    in_flight.send_modify(|count| *count += 1);
                    _ = ends.wait_for(|ends| *ends).await;
                    in_flight.send_modify(|count| *count -= 1);
                })
                .await;
            });
        }
        in_flight.subscribe().wait_for(|count| *count == WRITES).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(*in_flight.borrow(), WRITES);
        ends.send_replace(true);
        assert_eq!(all.join_all().await.len(), 3 * WRITES);
    }
}
