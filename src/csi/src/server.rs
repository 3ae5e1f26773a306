//! Serving gRPC: where to listen, how to drain, what to log, and how an error becomes a status.
//!
//! ```text
//! bind -> serve -> (stop is cancelled) -> socket file removed -> no new connections -> RPCs in flight finish
//!                                                                                  \-> or the drain time is over
//! ```
//!
//! It never looks into a request: that is the services' business.

mod authority;
mod endpoint;
mod go_operations;
mod listener;
mod metrics;
mod rpc_log;

use std::{error::Error, time::Duration};

use lazuli_model::fault::Code;
use tokio_stream::{
    StreamExt as _,
    wrappers::{TcpListenerStream, UnixListenerStream},
};
use tokio_util::sync::CancellationToken;
use tonic::{Status, service::Routes, transport::Server};

pub use lazuli_model::chain;

pub use endpoint::{Endpoint, EndpointError};
pub use go_operations::{GO_FAMILIES, GoDriver, Made};
pub use listener::{BindError, Listener, Reach, SocketFile, SocketLost};
pub use metrics::{METRICS, RpcMetrics};
pub use rpc_log::{RpcLayer, RpcNote};

use authority::AnyAuthority;
use listener::Socket;

/// Why serving ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server failed")]
pub struct ServeError(#[source] tonic::transport::Error);

/// How serving ended after it was told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drained {
    /// Every RPC in flight got its answer.
    All,
    /// The drain time passed first. What still runs goes on until the process ends; every step of it can be repeated.
    TimedOut,
}

/// Serves until `stop` is cancelled, then finishes what is in flight for at most `drain`. Calls are logged, not
/// counted.
///
/// # Errors
/// [`ServeError`] when the listener fails before that.
pub async fn serve(
    routes: Routes,
    listener: Listener,
    stop: CancellationToken,
    drain: Duration,
) -> Result<Drained, ServeError> {
    serve_with(RpcLayer::default(), routes, listener, stop, drain).await
}

/// [`serve`] with a layer of the caller's, such as one that counts ([`RpcLayer::with_metrics`]).
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    layer: RpcLayer,
    routes: Routes,
    listener: Listener,
    stop: CancellationToken,
    drain: Duration,
) -> Result<Drained, ServeError> {
    let file = listener.file();
    let router = Server::builder().layer(layer).add_routes(routes);
    let told = {
        let stop = stop.clone();
        async move {
            stop.cancelled_owned().await;
            // While the listener is still open, so that the inode number cannot be another socket's.
            if let Some(file) = file {
                file.remove_if_ours();
            }
        }
    };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(drain).await;
    };
    let running = async {
        match listener.socket {
            Socket::Unix(socket, _) => {
                let incoming = UnixListenerStream::new(socket).map(|stream| stream.map(AnyAuthority::new));
                router.serve_with_incoming_shutdown(incoming, told).await
            }
            Socket::Tcp(socket) => router.serve_with_incoming_shutdown(TcpListenerStream::new(socket), told).await,
        }
    };
    tokio::select! {
        ended = running => ended.map(|()| Drained::All).map_err(ServeError),
        () = overdue => Ok(Drained::TimedOut),
    }
}

/// How long a status message may be, in bytes. A Kubernetes event holds 1024, and the sidecar's own words are around
/// ours (source: the note limit of the events API; the Go driver cuts at 990 too).
pub const MESSAGE_LIMIT: usize = 990;

/// A status with this code and message. A long message keeps its head, which says what failed, and its tail, which
/// says why.
pub fn status(code: Code, message: impl Into<String>) -> Status {
    Status::new(tonic::Code::from(code as i32), shortened(message.into()))
}

/// A status with this code and the whole chain of the error.
pub fn failure(code: Code, error: &(dyn Error + 'static)) -> Status {
    status(code, chain(error))
}

fn shortened(message: String) -> String {
    const GAP: &str = " ... ";
    if message.len() <= MESSAGE_LIMIT {
        return message;
    }
    /// A longer run of characters is no word, and is cut.
    const LONGEST_WORD: usize = 64;
    let room = MESSAGE_LIMIT - GAP.len();
    // Two fifths for the head: the cause is usually at the end and longer.
    let mut head = room * 2 / 5;
    while !message.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = message.len() - (room - room * 2 / 5);
    while !message.is_char_boundary(tail) {
        tail += 1;
    }
    // Whole words, where they end near.
    let (first, last) = (&message[..head], &message[tail..]);
    let first = first.rfind(' ').filter(|at| head - at <= LONGEST_WORD).map_or(first, |at| &first[..at]);
    let last = last.find(' ').filter(|at| *at <= LONGEST_WORD).map_or(last, |at| &last[at + 1..]);
    format!("{first}{GAP}{last}")
}

#[cfg(test)]
mod tests;
