//! What is sent rests on a read; what is answered was true at some instant of its request; nothing is left that nobody
//! knows of.

use std::time::Duration;

use lazuli_engine::Id;
use lazuli_model::{CopyMethod, fault::Code};

use super::{
    Doing, Error, Name, Snap, Wish,
    world::{Key, Past, Rpc, World},
};
use crate::{
    snapshot::{Done, Failure},
    whole_snapshot::Op,
};

impl World {
    /// Whether something was so at an instant since then.
    fn was_since(&self, since: Duration, holds: impl Fn(&Past, Duration) -> bool) -> bool {
        // Each state has held from its own moment to that of the next.
        let ends = self.history.iter().skip(1).map(|past| past.at).chain([self.now]);
        self.history.iter().zip(ends).any(|(past, end)| end >= since && holds(past, end))
    }

    /// A write is sent.
    pub(super) fn sent(&mut self, key: Key, id: Id, op: Op) {
        let life = self.lives.entry(key).or_default().clone();
        let shown = life.read.filter(|(sent_at, _)| life.permitted.is_some_and(|at| *sent_at >= at));
        let read = shown.and_then(|(_, shown)| shown);
        match &op {
            Op::Put(spec) => {
                let may_be_ours = |snap: Snap| snap.is_ours && snap.state == Doing::Failed && life.tried;
                match read {
                    None => self.breaks("a creation that rests on no read behind its permit"),
                    Some(Some(snap)) if !may_be_ours(snap) => self.breaks(format!("a creation over {snap:?}")),
                    Some(_) => {}
                }
                if spec.method == CopyMethod::CopyStart {
                    self.count("copy sent");
                    let since = self.wished_at;
                    let is_whole =
                        |past: &Past, at| past.snaps.get(&Name::Local).is_some_and(|local| local.is_complete(at));
                    if !self.was_since(since, is_whole) {
                        self.breaks("a copy of what is not complete");
                    }
                }
            }
            Op::Delete => self.deletion_sent(key, read.flatten()),
        }
        self.goes_out(key, id, op);
    }

    fn deletion_sent(&mut self, key: Key, shown: Option<Snap>) {
        let since = self.wished_at;
        let is_clean_up = shown.is_some_and(|snap| snap.is_ours && snap.state == Doing::Failed);
        if is_clean_up {
            self.count("clean-up sent");
            return;
        }
        let is_wished = self.wish == Some(Wish::Delete) || self.rpcs.is_empty();
        match key.name {
            Name::Target if !is_wished => self.breaks("a deletion of the snapshot that is asked for"),
            Name::Target => {}
            Name::Local => {
                self.count("local deleted");
                let is_ours = |past: &Past, _| past.snaps.get(&Name::Local).is_some_and(|local| local.is_ours);
                let is_over =
                    |past: &Past, at| past.snaps.get(&Name::Target).is_some_and(|target| target.is_complete(at));
                if !self.was_since(since, is_ours) {
                    self.breaks("a deletion of a person's snapshot");
                }
                if !is_wished && !self.no_region && !self.was_since(since, is_over) {
                    self.breaks("a deletion of the local snapshot before its copy is complete");
                }
            }
        }
    }

    /// A request is answered.
    pub(super) fn judge(&mut self, rpc: &Rpc, outcome: &Result<Done, Failure<Error, Error>>) {
        match outcome {
            Ok(Done::Made(view)) => {
                let is_ready = view.is_ready;
                if is_ready {
                    self.ready_at = Some(rpc.began);
                }
                self.count(if is_ready { "ready" } else { "not ready" });
                let elsewhere = self.is_elsewhere;
                let is_there = |past: &Past, _: Duration| past.snaps.values().any(|snap| snap.is_ours);
                let is_whole = |past: &Past, at| {
                    past.snaps.get(&Name::Target).is_some_and(|snap| snap.is_ours && snap.is_complete(at))
                };
                // What a process remembers may be gone since: it is not called ready.
                if !rpc.is_remembered && !self.was_since(self.wished_at, is_there) {
                    self.breaks("a snapshot that was never there");
                }
                if is_ready && !self.was_since(rpc.began, is_whole) {
                    self.breaks("a snapshot is called ready that was not complete");
                }
                let is_of_disk = |past: &Past, _: Duration| match (past.snaps.get(&Name::Target), past.disk) {
                    (Some(snap), Some(disk)) => elsewhere || snap.of == disk,
                    (snap, _) => snap.is_some() || elsewhere,
                };
                if is_ready && !rpc.is_remembered && !self.was_since(self.wished_at, is_of_disk) {
                    self.breaks("a snapshot of an earlier disk is called ready");
                }
            }
            Ok(Done::Deleted) => {
                self.count("deleted");
                self.deleted_at = Some(rpc.began);
                let is_gone = |past: &Past, _: Duration| !past.snaps.contains_key(&Name::Target);
                let is_local_gone =
                    |past: &Past, _: Duration| past.snaps.get(&Name::Local).is_none_or(|local| !local.is_ours);
                if !self.was_since(rpc.began, is_gone) || self.is_elsewhere && !self.was_since(rpc.began, is_local_gone)
                {
                    self.breaks("a deletion of what was there all the time");
                }
            }
            Err(failure) => self.failed(rpc, failure),
        }
    }

    fn failed(&mut self, rpc: &Rpc, failure: &Failure<Error, Error>) {
        let code = Self::code(rpc.wish, failure);
        if rpc.wish == Wish::Delete || code.may_be_in_progress() {
            return;
        }
        self.count(if code == Code::AlreadyExists { "already exists" } else { "final failure" });
        // Whose source has gone makes no snapshot any more, and one of that name is another request's.
        if matches!(code, Code::AlreadyExists | Code::NotFound) {
            return;
        }
        let before = self.past(self.now.saturating_sub(Duration::from_millis(1_500)));
        let left = self.snaps.iter().find(|(name, snap)| snap.is_ours && before.snaps.contains_key(name));
        if let Some((_, left)) = left {
            let left = *left;
            self.breaks(format!("{code:?} for a snapshot that is there: {left:?}"));
        }
        if self.puts.get(&(rpc.replica, rpc.epoch)).is_some_and(|puts| *puts > 0) {
            self.breaks(format!("{code:?} while a creation may be in progress"));
        }
    }

    /// Everything has come to rest.
    pub(super) fn settled(&mut self) {
        let target = self.snaps.get(&Name::Target).copied();
        let local = self.snaps.get(&Name::Local).copied().filter(|local| local.is_ours);
        if let (Some(target), Some(local)) = (target, local)
            && target.is_ours
            && target.is_complete(self.now)
            && target.of == local.number
            && self.ready_at.is_some_and(|at| self.put_at < at)
        {
            self.breaks("the local snapshot of a complete copy is left");
        }
        let is_left = target.is_some_and(|target| target.is_ours) || self.is_elsewhere && local.is_some();
        if is_left && self.deleted_at.is_some_and(|at| self.put_at < at) {
            self.breaks("a snapshot is left that was deleted");
        }
    }
}
