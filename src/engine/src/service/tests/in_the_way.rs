//! What keeps Azure from giving up a part, and is found only later.

use super::*;

/// The old load balancer gives up nothing while a private link service has its frontend, and does so when that is gone.
struct Behind {
    bench: Bench,
    has_link: bool,
    refused: Option<u64>,
}

impl Behind {
    fn changed(&mut self, snapshot: Snapshot<Web>) {
        let mut due = std::collections::VecDeque::from(self.bench.step(Event::Changed(snapshot)));
        while let Some(action) = due.pop_front() {
            let event = match action {
                Action::Tell { key: LINK, generation, want: (Level::Clean, _), .. } => {
                    self.has_link = false;
                    if let Some(generation) = self.refused.take() {
                        let outcome = Outcome::Done(7);
                        due.extend(self.bench.step(Event::Told { key: OLD_LB, generation, outcome }));
                    }
                    Event::Told { key: LINK, generation, outcome: Outcome::Done(7) }
                }
                Action::Tell { key: OLD_LB, generation, want: (Level::Clean, _), .. } if self.has_link => {
                    self.refused = Some(generation);
                    let outcome = Outcome::Refused(Refusal::Azure(Fault::InUse));
                    Event::Told { key: OLD_LB, generation, outcome }
                }
                Action::Tell { key, generation, .. } => Event::Told { key, generation, outcome: Outcome::Done(7) },
                Action::Patch { id, .. } => {
                    self.bench.version += 1;
                    Event::Patched { id, result: Ok(self.bench.version) }
                }
                _ => continue,
            };
            due.extend(self.bench.step(event));
        }
    }
}

#[test]
fn a_private_link_service_that_is_found_after_another_spec_goes_before_its_frontend() {
    let mut world = Behind { bench: Bench::new(Order::Parallel), has_link: true, refused: None };
    for spec in [ADMITS, DENIES] {
        let snapshot = world.bench.naming(&[], Desired::Present(spec));
        world.changed(Snapshot { status: Some(7), ..snapshot });
        assert!(world.has_link && world.refused.is_some(), "nothing has shown it yet");
    }
    let mut listed = world.bench.naming(&[], Desired::Present(DENIES));
    listed.status = Some(7);
    listed.found.insert(LINK);
    world.changed(listed);
    assert!(!world.has_link, "it is in the way of the old load balancer");
    assert_eq!(world.bench.state.level_of(&OLD_LB), Some((Level::Clean, true)));
}
