//! Which failures of mounting a share a person gets an event about, and how they are counted.
//!
//! kubelet shows each failure on the Pod and repeats the call. An event of this driver says what lasts and what to do, and
//! can be selected by its reason. It is about the Pod, where the request names it: kubelet names it when it publishes. Of a
//! failure of staging it is about the claim, where the volume names it, else about the Node.

use std::path::Path;

use lazuli_host::{mount::MountError, smb::SmbError};
use lazuli_model::event::{Claim, Event, Pod, Reason, Regarding};

use super::{Node, error::ShareError, keys::KeyError, metrics::Outcome, request::Desired};

/// What a failure is, for events and metrics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) outcome: Outcome,
    /// The reason of the event, and what happened: without what changes from try to try. Events are counted by their text.
    pub(super) event: Option<(Reason, String)>,
}

impl Node {
    /// Reports a failure to mount or to publish a share, where a person must know about it.
    pub(super) fn report(&self, desired: &Desired, error: &ShareError) {
        if let Some((reason, what)) = described(error).event {
            self.send(desired, reason, &what);
        }
    }

    /// Reports that what is mounted does not work any more, and why.
    pub(super) fn report_dead(&self, desired: &Desired, path: &Path, why: &str) {
        let volume = &desired.request.volume_id;
        tracing::warn!(volume, path = %path.display(), error = why, "the mount does not answer, and is replaced");
        self.config.metrics.note_dead();
        self.send(desired, Reason::FileMountDead, &format!("what was mounted of its share is dead ({why})"));
    }

    fn send(&self, desired: &Desired, reason: Reason, what: &str) {
        let (node, volume) = (&self.config.node_id, &desired.request.volume_id);
        let get = |key: &str| desired.request.context.get(key).map(String::as_str);
        let pod = Pod::of_context(get).map(Regarding::Pod);
        let regarding =
            pod.or_else(|| Claim::of_context(get).map(Regarding::Claim)).or_else(|| Regarding::of_node(node));
        let Some(regarding) = regarding else { return };
        let what = format_args!("Volume {volume} on node {node}: {}", what.trim_end_matches('.'));
        self.config.events.send(Event::new(regarding, reason, what));
    }
}

pub(super) fn described(error: &ShareError) -> Described {
    let with = |outcome, reason, what: String| Described { outcome, event: Some((reason, what)) };
    let unreachable = |what| with(Outcome::ServerUnreachable, Reason::FileServerUnreachable, what);
    match error {
        // Without what each replica said: the order of the replicas changes.
        ShareError::Key(KeyError::Unavailable(_)) | ShareError::KeyTooLate(_) => {
            let what = "no controller hands out the key of its storage account".to_owned();
            with(Outcome::KeyUnavailable, Reason::AccountKeyUnavailable, what)
        }
        ShareError::Key(KeyError::Refused(why)) => {
            with(Outcome::KeyDenied, Reason::AccountKeyDenied, format!("this node is not given its key: {why}"))
        }
        ShareError::Key(KeyError::NoKey(why)) => {
            with(Outcome::KeyMissing, Reason::AccountKeyMissing, format!("there is no key for it: {why}"))
        }
        ShareError::NoKeySource => with(Outcome::KeyMissing, Reason::AccountKeyMissing, error.to_string()),
        ShareError::NoOtherKey { other, .. } => {
            let other = described(other).event.map_or_else(|| "there is no other".to_owned(), |(_, what)| what);
            with(Outcome::KeyRefused, Reason::AccountKeyRefused, format!("its file server refuses its key; {other}"))
        }
        ShareError::Smb(error) => of_smb(error).unwrap_or(Described { outcome: Outcome::Other, event: None }),
        ShareError::Mount(MountError::Call(_)) => unreachable(HANGS.to_owned()),
        _ => Described { outcome: Outcome::Other, event: None },
    }
}

const HANGS: &str = "its file server does not answer what is mounted: a call has not returned in time";

fn of_smb(error: &SmbError) -> Option<Described> {
    let (outcome, reason, what) = match error {
        SmbError::Refused { source_name, user, .. } => {
            let what = format!("the file server does not let account {user} mount {source_name}");
            (Outcome::KeyRefused, Reason::AccountKeyRefused, what)
        }
        SmbError::NoShare { source_name, .. } => {
            let what = format!("there is no share or folder {source_name}");
            (Outcome::ShareNotFound, Reason::FileShareNotFound, what)
        }
        SmbError::Unreachable { source_name, .. } => {
            let what = format!("the server of {source_name} does not answer on TCP port 445");
            (Outcome::ServerUnreachable, Reason::FileServerUnreachable, what)
        }
        SmbError::Unresolved { server, .. }
        | SmbError::ResolverSilent { server, .. }
        | SmbError::NoAddress { server } => {
            let what = format!("the name {server} has no address on this node");
            (Outcome::ServerUnreachable, Reason::FileServerUnreachable, what)
        }
        SmbError::Call(_) | SmbError::Target(MountError::Call(_)) => {
            (Outcome::ServerUnreachable, Reason::FileServerUnreachable, HANGS.to_owned())
        }
        _ => return None,
    };
    Some(Described { outcome, event: Some((reason, what)) })
}

#[cfg(test)]
mod tests {
    use std::{io, path::PathBuf, time::Duration};

    use super::*;

    fn system(number: i32) -> io::Error {
        io::Error::from_raw_os_error(number)
    }

    #[test]
    fn each_cause_has_a_reason_and_an_outcome_of_its_own_and_a_text_that_does_not_change() {
        let source_name = "//f1.file.core.windows.net/data".to_owned();
        let (user, log, server) = ("f1".to_owned(), "serial 4711".to_owned(), "f1.file.core.windows.net".to_owned());
        let refused = || SmbError::Refused {
            source_name: source_name.clone(),
            user: user.clone(),
            log: log.clone(),
            source: system(13),
        };
        for (error, outcome, reason, part) in [
            (
                ShareError::Key(KeyError::Unavailable("10.0.0.4711:1: no connection".into())),
                Outcome::KeyUnavailable,
                Reason::AccountKeyUnavailable,
                "no controller hands out the key",
            ),
            (
                ShareError::KeyTooLate(Duration::from_secs(4711)),
                Outcome::KeyUnavailable,
                Reason::AccountKeyUnavailable,
                "no controller hands out the key",
            ),
            (
                ShareError::Key(KeyError::Refused("no Pod on node n1 uses it".into())),
                Outcome::KeyDenied,
                Reason::AccountKeyDenied,
                "no Pod on node n1 uses it",
            ),
            (
                ShareError::Key(KeyError::NoKey("Secret db/mine does not exist".into())),
                Outcome::KeyMissing,
                Reason::AccountKeyMissing,
                "Secret db/mine does not exist",
            ),
            (ShareError::NoKeySource, Outcome::KeyMissing, Reason::AccountKeyMissing, "nodeStageSecretRef"),
            (ShareError::Smb(refused()), Outcome::KeyRefused, Reason::AccountKeyRefused, "account f1 mount //f1.file"),
            (
                ShareError::NoOtherKey {
                    other: Box::new(ShareError::Key(KeyError::NoKey("write the key into Secret db/mine".into()))),
                    source: refused(),
                },
                Outcome::KeyRefused,
                Reason::AccountKeyRefused,
                "Secret db/mine",
            ),
            (
                ShareError::NoOtherKey {
                    other: Box::new(ShareError::Key(KeyError::Unavailable("10.0.0.4711:1: late".into()))),
                    source: refused(),
                },
                Outcome::KeyRefused,
                Reason::AccountKeyRefused,
                "no controller hands out the key",
            ),
            (
                ShareError::Smb(SmbError::NoShare {
                    source_name: source_name.clone(),
                    log: log.clone(),
                    source: system(2),
                }),
                Outcome::ShareNotFound,
                Reason::FileShareNotFound,
                "no share or folder //f1.file",
            ),
            (
                ShareError::Smb(SmbError::Unreachable { source_name, log, source: system(113) }),
                Outcome::ServerUnreachable,
                Reason::FileServerUnreachable,
                "port 445",
            ),
            (
                ShareError::Smb(SmbError::NoAddress { server }),
                Outcome::ServerUnreachable,
                Reason::FileServerUnreachable,
                "the name f1.file.core.windows.net has no address",
            ),
        ] {
            let Described { outcome: got, event: Some((found, what)) } = described(&error) else { panic!("{error}") };
            assert_eq!((got, found), (outcome, reason), "{error}");
            assert!(what.contains(part) && !what.contains("4711"), "{what}");
        }
    }

    #[test]
    fn what_a_repetition_cures_and_what_kubelet_says_itself_is_no_event() {
        for error in [
            ShareError::InProgress(crate::locks::InProgress("v".into())),
            ShareError::NotStaged(PathBuf::from("/staging")),
            ShareError::Restaging(PathBuf::from("/staging")),
            ShareError::Task,
            ShareError::Smb(SmbError::NoModule),
        ] {
            assert_eq!(described(&error), Described { outcome: Outcome::Other, event: None }, "{error}");
        }
    }
}
