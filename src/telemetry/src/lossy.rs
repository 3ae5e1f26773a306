//! A bounded queue whose sender never waits: what does not fit is counted and dropped.
//!
//! For reports that accompany a call and must not slow it down.

use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;

/// The sending end. Clones send to the same queue.
#[derive(Debug)]
pub struct Sender<T> {
    queue: Option<mpsc::Sender<T>>,
    lost: Counter,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    queue: mpsc::Receiver<T>,
}

/// A queue for so many items. `lost` counts those that did not fit.
pub fn channel<T>(capacity: usize, lost: Counter) -> (Sender<T>, Receiver<T>) {
    let (sender, queue) = mpsc::channel(capacity);
    (Sender { queue: Some(sender), lost }, Receiver { queue })
}

impl<T> Sender<T> {
    /// A sender without a queue: what it is given is dropped, and not counted.
    pub fn nowhere() -> Self {
        Self { queue: None, lost: Counter::default() }
    }

    /// Sends, or drops and counts. Never waits.
    pub fn send(&self, item: T) {
        if let Some(queue) = &self.queue
            && queue.try_send(item).is_err()
        {
            self.lost.inc();
        }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), lost: self.lost.clone() }
    }
}

impl<T> Default for Sender<T> {
    fn default() -> Self {
        Self::nowhere()
    }
}

impl<T> Receiver<T> {
    /// The next item; `None` when there is no sender any more.
    pub async fn receive(&mut self) -> Option<T> {
        self.queue.recv().await
    }

    /// The next item, if there is one now.
    pub fn try_receive(&mut self) -> Option<T> {
        self.queue.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_does_not_fit_is_counted_and_the_rest_arrives_in_order() {
        let lost = Counter::default();
        let (sender, mut receiver) = channel(2, lost.clone());
        for item in 0..5 {
            sender.send(item);
        }
        assert_eq!(lost.get(), 3);
        assert_eq!(
            (receiver.receive().await, receiver.try_receive(), receiver.try_receive()),
            (Some(0), Some(1), None)
        );
        sender.send(7);
        drop(sender);
        assert_eq!((receiver.receive().await, receiver.receive().await), (Some(7), None));
        Sender::nowhere().send(1);
    }

    #[tokio::test]
    async fn a_sender_whose_receiver_is_gone_counts_and_goes_on() {
        let lost = Counter::default();
        let (sender, receiver) = channel(2, lost.clone());
        drop(receiver);
        sender.send(1);
        assert_eq!(lost.get(), 1);
    }
}
