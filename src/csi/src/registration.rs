//! kubelet's plugin registration, done by the plugin itself.
//!
//! kubelet watches a directory. When a socket appears there it calls `GetInfo`, connects to the CSI socket named in
//! the answer, calls `NodeGetInfo`, and reports the outcome with `NotifyRegistrationStatus`. What follows from
//! kubelet's plugin watcher, and what this module does about it:
//!
//! - kubelet acts on the *appearance* of a socket and does not try again after a failure: so after a reported failure
//!   the socket is made anew, after a growing pause.
//! - kubelet drops the driver when the socket is removed, also when the one who removes it is the registrar of
//!   another driver version that used the same name: so the file is watched, and made anew when it is not ours.
//! - kubelet keeps one entry per driver *name*, and removing any socket that announced the name drops the entry: so
//!   the removal of another socket whose name carries the driver's makes ours anew, too.
//! - kubelet says nothing when it drops an entry: so the state is `Announced` again until kubelet calls back.
//!
//! ```text
//!          bind              NotifyRegistrationStatus(true)
//! Taken <--------> Announced ------------------------------> Registered
//!   ^                 ^  |  (false)                              |
//!   | another process |  v                                       |
//!   +---- is there    Refused -- pause --> socket made anew <----+ socket lost
//! ```

mod watch;

use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use csi_proto::registration::{
    InfoRequest, PluginInfo, RegistrationStatus as Notification, RegistrationStatusResponse,
    registration_server::{Registration as RegistrationRpcs, RegistrationServer},
};
use tokio::{sync::watch as channel, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, service::Routes};

use super::server::{self, Endpoint, Listener, SocketFile};
use lazuli_telemetry::{Condition, Verdict};
use watch::DirectoryWatch;

/// The type kubelet expects of a CSI driver (source: k8s.io/kubelet, pluginregistration/v1 constants).
const PLUGIN_TYPE: &str = "CSIPlugin";
/// The registration protocol's version that kubelet accepts for CSI drivers (source: node-driver-registrar).
const SUPPORTED_VERSION: &str = "1.0.0";
/// How often to look whether the socket is still there when the kernel sends no events.
const LOOK: Duration = Duration::from_secs(10);
/// The pause before the socket is made anew after the first failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// How long a callback from kubelet may finish after the socket is given up.
const DRAIN: Duration = Duration::from_secs(1);

/// How far the registration is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Nothing has happened yet.
    Starting,
    /// The socket is there; kubelet has not called back yet.
    Announced,
    /// kubelet has registered the driver.
    Registered,
    /// kubelet tried and failed, and why.
    Refused(String),
    /// The socket cannot be made, and why.
    Taken(String),
}

impl State {
    /// What a readiness check answers.
    fn verdict(&self) -> Verdict {
        match self {
            Self::Registered => Verdict::Ready("kubelet has registered the driver".into()),
            Self::Starting | Self::Announced => Verdict::NotReady("kubelet has not registered the driver yet".into()),
            Self::Refused(why) => Verdict::NotReady(format!("kubelet refused to register the driver: {why}")),
            Self::Taken(why) => Verdict::NotReady(format!("the registration socket cannot be made: {why}")),
        }
    }
}

/// A driver to be registered.
#[derive(Debug, Clone)]
pub struct Registration {
    driver: String,
    endpoint: PathBuf,
    directory: PathBuf,
    progress: Progress,
}

/// The state, for those who follow it and for those who ask whether the process is ready.
#[derive(Debug, Clone)]
struct Progress {
    state: channel::Sender<State>,
    condition: Condition,
}

impl Progress {
    /// Tells everybody; returns what was before.
    fn reached(&self, state: State) -> State {
        self.condition.set(state.verdict());
        self.state.send_replace(state)
    }
}

impl Registration {
    /// `endpoint` is the CSI socket's path as *kubelet* sees it; `directory` is kubelet's `plugins_registry` as this
    /// process sees it. `condition` is ready while kubelet has the driver registered.
    pub fn new(
        driver: impl Into<String>,
        endpoint: impl Into<PathBuf>,
        directory: impl Into<PathBuf>,
        condition: Condition,
    ) -> Self {
        let progress = Progress { state: channel::Sender::new(State::Starting), condition };
        Self { driver: driver.into(), endpoint: endpoint.into(), directory: directory.into(), progress }
    }

    /// The socket's path: the name that the Go registrar uses, so that two registrars of one driver exclude each
    /// other.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(self.file_name())
    }

    /// How far it is, as it changes.
    pub fn states(&self) -> channel::Receiver<State> {
        self.progress.state.subscribe()
    }

    /// Keeps the driver registered until `stop` is cancelled. The CSI socket must be served before this runs, because
    /// kubelet calls it at once.
    pub async fn keep(self, stop: CancellationToken) {
        let driver = self.driver.as_str();
        let mut pause = FIRST_PAUSE;
        while !stop.is_cancelled() {
            // Watch before looking: what happens between the two is then an event.
            let mut directory = Directory::watch(&self.directory);
            match self.announce(&mut directory, &stop).await {
                Ended::Told => return,
                Ended::Lost { registered } => {
                    tracing::info!(driver, "the registration socket was lost; making it anew");
                    if registered {
                        pause = FIRST_PAUSE;
                        continue;
                    }
                    // Not at once: two processes that remove each other's socket must not spin.
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = sleep(pause) => {}
                    }
                }
                Ended::Refused => {
                    tracing::warn!(driver, ?pause, "kubelet refused the driver; announcing it again after a pause");
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = sleep(pause) => {}
                    }
                }
                Ended::Failed(error) => {
                    let error = server::chain(error.as_ref());
                    tracing::warn!(driver, error, "cannot announce the driver; trying again");
                    self.progress.reached(State::Taken(error));
                    tokio::select! {
                        () = stop.cancelled() => {}
                        () = sleep(pause.min(LOOK)) => {}
                        // The other process has left.
                        () = directory.removal(|name| name == self.file_name().as_os_str()) => {}
                    }
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the socket and serves it until something happens.
    async fn announce(&self, directory: &mut Directory, stop: &CancellationToken) -> Ended {
        let listener = match Listener::bind(&Endpoint::Unix(self.socket())).await {
            Ok(listener) => listener,
            Err(error) => return Ended::Failed(Box::new(error)),
        };
        let Some(file) = listener.file() else {
            return Ended::Failed("the registration endpoint is not a file".into());
        };
        self.progress.reached(State::Announced);
        let serving = stop.child_token();
        let service = RegistrationServer::new(Callbacks(self.clone()));
        let served = server::serve(Routes::new(service), listener, serving.clone(), DRAIN);
        tokio::pin!(served);
        let mut follow = self.states();
        let ended = tokio::select! {
            ended = &mut served => return match ended {
                Ok(_) => Ended::Told,
                Err(error) => Ended::Failed(Box::new(error)),
            },
            () = self.lost(&file, directory) => {
                Ended::Lost { registered: self.progress.reached(State::Announced) == State::Registered }
            }
            _ = follow.wait_for(|state| matches!(state, State::Refused(_))) => Ended::Refused,
        };
        serving.cancel();
        // What kubelet was told is still answered; a failure here changes nothing.
        let _ = served.await;
        ended
    }

    /// Returns when the socket is not ours any more, or when kubelet is about to forget it.
    async fn lost(&self, file: &SocketFile, directory: &mut Directory) {
        while file.is_ours() {
            tokio::select! {
                rival = directory.change(|name| self.is_rival(name)) => if rival {
                    return;
                },
                // Events can be lost when the queue overflows.
                () = sleep(LOOK) => {}
            }
        }
    }

    fn file_name(&self) -> OsString {
        format!("{}-reg.sock", self.driver).into()
    }

    /// Whether a file of this name would have announced the same driver.
    fn is_rival(&self, name: &OsStr) -> bool {
        let text = name.to_string_lossy();
        name != self.file_name() && text.starts_with(&self.driver) && text.ends_with(".sock")
    }
}

/// kubelet's directory, with events as long as the kernel gives them.
struct Directory(Option<DirectoryWatch>);

impl Directory {
    fn watch(path: &Path) -> Self {
        // kubelet makes it, but nothing says that it is quicker than we are.
        let _ = std::fs::create_dir_all(path);
        let watch = DirectoryWatch::new(path);
        Self(watch.inspect_err(|error| tracing::warn!(%error, "no file events; looking every {LOOK:?}")).ok())
    }

    /// Waits for a change; says whether a name that `wanted` accepts was removed.
    async fn change(&mut self, wanted: impl Fn(&OsStr) -> bool) -> bool {
        if let Some(watch) = &mut self.0 {
            match watch.changes().await {
                Ok(changes) => return changes.removed.iter().any(|name| wanted(name)),
                Err(error) => {
                    tracing::warn!(%error, "file events ended; looking every {LOOK:?}");
                    self.0 = None;
                }
            }
        }
        std::future::pending().await
    }

    /// Waits until a name that `wanted` accepts is removed.
    async fn removal(&mut self, wanted: impl Fn(&OsStr) -> bool) {
        while !self.change(&wanted).await {}
    }
}

enum Ended {
    /// `stop` was cancelled.
    Told,
    /// The socket is not ours any more.
    Lost {
        /// Whether kubelet had registered it.
        registered: bool,
    },
    /// kubelet reported a failure.
    Refused,
    /// The socket could not be made or served.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

/// What kubelet calls.
struct Callbacks(Registration);

#[tonic::async_trait]
impl RegistrationRpcs for Callbacks {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: self.0.driver.clone(),
            endpoint: self.0.endpoint.display().to_string(),
            supported_versions: vec![SUPPORTED_VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<Notification>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let Notification { plugin_registered, error } = request.into_inner();
        let state = if plugin_registered { State::Registered } else { State::Refused(error) };
        match &state {
            State::Refused(error) => tracing::warn!(error, "kubelet did not register the driver"),
            _ => tracing::info!(driver = self.0.driver, "kubelet registered the driver"),
        }
        self.0.progress.reached(state);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests;
