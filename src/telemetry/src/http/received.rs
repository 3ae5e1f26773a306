//! The body of a request on its way in: it has a deadline, and its end is noted.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::places::Place;

/// A body that must have arrived within a time.
pub(super) struct Received {
    body: Body,
    late: Pin<Box<Sleep>>,
    place: Arc<Place>,
}

impl Received {
    /// `within` begins now, when the head has been read.
    pub(super) fn new(body: Body, within: Duration, place: Arc<Place>) -> Self {
        let received = Self { body, late: Box::pin(sleep(within)), place };
        received.note();
        received
    }

    fn note(&self) {
        if self.body.is_end_stream() {
            self.place.arrived();
        }
    }
}

impl HttpBody for Received {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                match &frame {
                    None => self.place.arrived(),
                    Some(_) => self.note(),
                }
                Poll::Ready(frame)
            }
            Poll::Pending => self.late.as_mut().poll(context).map(|()| {
                let late = io::Error::new(io::ErrorKind::TimedOut, "the request did not arrive in time");
                Some(Err(axum::Error::new(late)))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
