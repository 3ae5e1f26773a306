//! Which calls the steps of conversions to PremiumV2 ([`lazuli_storage::conversion`]) are, and the words for people. It chooses
//! nothing.

use std::{sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt as _};
use lazuli_model::{
    ArmId, SkuName,
    event::{Event, Regarding},
};
use lazuli_quota::permit::Priority;
use lazuli_reconcile::{Clock, Kind, Workers, metrics::Metrics};
use lazuli_storage::conversion::{self, Action, State};
use lazuli_telemetry::lossy;
use lazuli_volume::modify::{Conversion, ConversionReport};
use tracing::info;

use crate::client::Client;

/// The disks that Azure converts, as far as this process knows. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Conversions(Workers<Converting>);

impl Conversions {
    pub(crate) fn new(client: Client, events: lossy::Sender<Event>, metrics: Metrics) -> Self {
        Self(Workers::new(Arc::new(Converting { client, events }), Clock::start(), metrics))
    }

    /// A change of the disk has begun this conversion.
    pub(crate) fn began(&self, disk: &ArmId, conversion: Conversion) {
        self.0.send(disk, conversion::Event::Began(conversion));
    }

    /// A list shows that the disk is being converted.
    pub(crate) fn found(&self, disk: &ArmId) {
        self.0.send(disk, conversion::Event::Found);
    }
}

struct Converting {
    client: Client,
    events: lossy::Sender<Event>,
}

impl Kind for Converting {
    type Key = ArmId;
    type State = State;
    type Event = conversion::Event;
    type Action = Action;

    const NAME: &'static str = "disk_conversion";

    fn woke() -> conversion::Event {
        conversion::Event::Woke
    }

    fn drain() -> conversion::Event {
        conversion::Event::Drain
    }

    /// The work ends when it is forgotten.
    fn is_drained(_: &Action) -> bool {
        false
    }

    fn action_name(action: &Action) -> &'static str {
        match action {
            Action::Report(_) => "report",
            Action::Read => "read",
        }
    }

    fn step(&self, _: &ArmId, state: &mut State, now: Duration, event: conversion::Event) -> Vec<Action> {
        state.step(now, event)
    }

    fn wake_at(&self, state: &State) -> Option<Duration> {
        state.wake_at()
    }

    fn is_idle(&self, state: &State) -> bool {
        state.is_idle()
    }

    fn carry_out(&self, disk: &ArmId, _: &mut State, action: Action) -> Option<BoxFuture<'static, conversion::Event>> {
        match action {
            Action::Report(report) => {
                let what = words(disk, report);
                info!(%disk, "{what}");
                self.events.send(Event::new(Regarding::ClaimOf(disk.into()), report.reason(), what));
                None
            }
            Action::Read => {
                let (client, disk) = (self.client.clone(), disk.clone());
                let read = async move {
                    let read = client.see_disk(&disk, Priority::List).await;
                    conversion::Event::Read(read.map(|seen| Box::new(seen.disk)).map_err(|error| error.fault.clone()))
                };
                Some(read.boxed())
            }
        }
    }

    /// The next list that shows the disk finds it again.
    fn broken_off(&self, _: &ArmId) {}
}

/// What happens to a disk, in an event: the same for every process that tells it.
fn words(disk: &ArmId, report: ConversionReport) -> String {
    let (name, to) = (disk.name(), SkuName::PremiumV2Lrs);
    match report {
        ConversionReport::Started(Some(from)) => format!("Azure has begun to convert disk {name} from {from} to {to}"),
        ConversionReport::Started(None) => format!("Azure has begun to convert disk {name} to {to}"),
        ConversionReport::Progress(percent) => format!("Disk {name} is converted to {to} by {percent} percent or more"),
        ConversionReport::Long(limit) => {
            format!("The conversion of disk {name} to {to} has taken more than {} hours", limit.as_secs() / 3_600)
        }
        ConversionReport::Completed => format!("Disk {name} is converted to {to}"),
    }
}
