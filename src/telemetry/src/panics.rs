//! Panics: a bug of this program ends the call or the task that met it, never the process.
//!
//! [`catch`] stands around whatever serves one caller among several. It relies on unwinding, so a build with
//! `panic = "abort"` does not compile.

use std::{
    any::Any,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind},
    pin::pin,
    task::Poll,
};

#[cfg(not(panic = "unwind"))]
compile_error!("a panic must unwind: it is caught where it concerns one caller, and the process goes on");

/// A panic may carry any value; ours carry text.
const NO_MESSAGE: &str = "a panic without a message";

/// How a shell tells that a program was ended by SIGPIPE (source: POSIX, 128 and the signal's number).
const CLOSED_PIPE: i32 = 128 + 13;

/// A panic that was caught, with its message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a bug in this program: {0}")]
pub struct Panicked(String);

impl Panicked {
    fn new(payload: &(dyn Any + Send)) -> Self {
        let message = payload.downcast_ref::<&str>().copied();
        let message = message.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self(message.unwrap_or(NO_MESSAGE).to_owned())
    }
}

/// Runs a future to its end or to its panic.
///
/// What the future shares with others must be whole after each statement: it is used on after the panic.
///
/// # Errors
/// [`Panicked`]. The caller logs it, with the object that it concerns, and answers.
pub async fn catch<F: Future>(future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    poll_fn(|context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(payload) => Poll::Ready(Err(Panicked::new(&*payload))),
    })
    .await
}

/// The panic hook of a process that logs: the place of a panic, in the log's own format and inside the span that it
/// happened in.
pub(super) fn log_place(info: &PanicHookInfo<'_>) {
    let place = info.location().map(ToString::to_string).unwrap_or_default();
    let message = info.payload_as_str().unwrap_or(NO_MESSAGE);
    // Such as `lazuli get disks | head`: the reader has enough, and the standard library panics.
    if message.starts_with("failed printing to stdout: Broken pipe") {
        std::process::exit(CLOSED_PIPE);
    }
    tracing::error!(place, error = message, "this program has a bug and panicked");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_future_is_run_to_its_end_or_to_its_panic() {
        let waits = async {
            tokio::task::yield_now().await;
            7
        };
        assert_eq!(catch(waits).await, Ok(7));
        let breaks = async {
            tokio::task::yield_now().await;
            let numbers = [1];
            numbers.iter().position(|number| *number == 2).expect("a two")
        };
        assert_eq!(catch(breaks).await.unwrap_err().to_string(), "a bug in this program: a two");
        let formats = poll_fn::<(), _>(|_| panic!("disk {}", 3));
        assert_eq!(catch(formats).await.unwrap_err().to_string(), "a bug in this program: disk 3");
    }
}
