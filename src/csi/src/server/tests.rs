use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use csi_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
    identity_client::IdentityClient,
    identity_server::{Identity, IdentityServer},
};
use tokio::{net::UnixStream, sync::mpsc};
use tonic::{Request, Response};

use super::*;
use crate::scratch::{Scratch, channel_to};

fn unix(path: &Path) -> Endpoint {
    Endpoint::Unix(path.to_owned())
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[tokio::test]
async fn a_socket_appears_with_its_final_mode_and_leaves_nothing_beside_it() {
    let scratch = Scratch::new();
    let path = scratch.join("plugin/csi.sock");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["csi.sock"]);
    assert_eq!(listener.endpoint(), Some(unix(&path)));
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn a_path_that_no_client_could_connect_to_is_refused() {
    let scratch = Scratch::new();
    let rest = 107 - scratch.path().as_os_str().len() - 1;
    let longest = scratch.join("s".repeat(rest));
    let _listener = Listener::bind(&unix(&longest)).await.unwrap();
    UnixStream::connect(&longest).await.unwrap();
    let longer = scratch.join("s".repeat(rest + 1));
    let refused = Listener::bind(&unix(&longer)).await.unwrap_err().to_string();
    assert!(refused.contains("108 bytes") && refused.contains("107 at most"), "{refused}");
    assert!(refused.contains(longer.to_str().unwrap()) && !longer.exists(), "{refused}");
}

/// A process that went on would be healthy and deaf; its successor makes the socket anew.
#[tokio::test(start_paused = true)]
async fn a_socket_file_that_is_removed_or_replaced_ends_the_process_and_an_ordered_end_is_none() {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    for replaced in [false, true] {
        let listener = Listener::bind(&unix(&path)).await.unwrap();
        let (file, stop) = (listener.file().unwrap(), CancellationToken::new());
        fs::remove_file(&path).unwrap();
        if replaced {
            fs::write(&path, "").unwrap();
        }
        let lost = file.keep(&stop).await.unwrap_err().to_string();
        assert!(stop.is_cancelled() && lost.contains(path.to_str().unwrap()), "{lost}");
        let _ = fs::remove_file(&path);
    }
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    let (file, stop) = (listener.file().unwrap(), CancellationToken::new());
    let kept = tokio::spawn({
        let (file, stop) = (file.clone(), stop.clone());
        async move { file.keep(&stop).await }
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!kept.is_finished());
    stop.cancel();
    file.remove_if_ours();
    kept.await.unwrap().unwrap();
}

#[tokio::test]
async fn an_existing_directory_keeps_its_mode() {
    let scratch = Scratch::new();
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let _listener = Listener::bind(&unix(&scratch.join("csi.sock"))).await.unwrap();
    assert_eq!(mode(scratch.path()), 0o755);
}

#[tokio::test]
async fn a_socket_of_a_dead_process_is_replaced() {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert_eq!(UnixStream::connect(&path).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    assert!(listener.file().unwrap().is_ours());
    UnixStream::connect(&path).await.unwrap();
}

#[tokio::test]
async fn a_hidden_directory_left_by_a_killed_process_is_no_obstacle() {
    let scratch = Scratch::new();
    let hidden = scratch.join(format!(".csi{}", std::process::id()));
    fs::create_dir(&hidden).unwrap();
    drop(std::os::unix::net::UnixListener::bind(hidden.join(".s")).unwrap());
    let _listener = Listener::bind(&unix(&scratch.join("csi.sock"))).await.unwrap();
    assert!(!hidden.exists());
}

#[tokio::test]
async fn a_socket_that_a_live_process_serves_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    let first = Listener::bind(&unix(&path)).await.unwrap();
    let error = Listener::bind(&unix(&path)).await.unwrap_err();
    assert!(matches!(&error, BindError::InUse(taken) if *taken == path), "{error}");
    assert!(error.to_string().contains("another process is listening"));
    assert!(first.file().unwrap().is_ours());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_refused_and_left_alone() {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    fs::write(&path, "another program's").unwrap();
    assert!(matches!(Listener::bind(&unix(&path)).await, Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "another program's");
}

#[tokio::test]
async fn another_process_s_socket_of_the_same_name_is_not_removed() {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    let file = Listener::bind(&unix(&path)).await.unwrap().file().unwrap();
    fs::remove_file(&path).unwrap();
    let other = std::os::unix::net::UnixListener::bind(scratch.join("other")).unwrap();
    fs::rename(scratch.join("other"), &path).unwrap();
    let inode = fs::metadata(&path).unwrap().ino();
    file.remove_if_ours();
    assert_eq!(fs::metadata(&path).map(|found| found.ino()).ok(), Some(inode).filter(|_| !file.is_ours()));
    drop(other);
}

#[tokio::test]
async fn a_tcp_endpoint_tells_the_port_that_the_kernel_chose() {
    for exposed in ["tcp://0.0.0.0:0", "tcp://[::]:0", "tcp://192.0.2.7:0"] {
        let endpoint = exposed.parse().unwrap();
        let refused = Listener::bind(&endpoint).await.unwrap_err().to_string();
        assert!(refused.contains(exposed) && refused.contains("--allow-remote-endpoint"), "{refused}");
    }
    let everywhere = "tcp://0.0.0.0:0".parse().unwrap();
    assert!(Listener::bind_within(&everywhere, Reach::Network).await.is_ok());
    for near in ["tcp://localhost:0", "tcp://[::ffff:127.0.0.1]:0"] {
        assert!(!matches!(Listener::bind(&near.parse().unwrap()).await, Err(BindError::Exposed { .. })), "{near}");
    }
    let listener = Listener::bind(&"tcp://:0".parse().unwrap()).await.unwrap();
    let Some(Endpoint::Tcp { host, port }) = listener.endpoint() else { panic!("no address") };
    assert_eq!(host, "127.0.0.1");
    assert_ne!(port, 0);
}

/// An identity whose Probe says that it was entered and then waits to be let go, and with a bug in its capabilities.
struct Slow {
    entered: mpsc::UnboundedSender<()>,
    release: CancellationToken,
}

#[tonic::async_trait]
impl Identity for Slow {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Err(status(Code::Unimplemented, "never"))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        panic!("no capability was prepared")
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        self.entered.send(()).unwrap();
        self.release.cancelled().await;
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

struct Served {
    path: PathBuf,
    stop: CancellationToken,
    release: CancellationToken,
    entered: mpsc::UnboundedReceiver<()>,
    serving: tokio::task::JoinHandle<Result<Drained, ServeError>>,
    _scratch: Scratch,
}

async fn serve_slowly(drain: Duration) -> Served {
    let scratch = Scratch::new();
    let path = scratch.join("csi.sock");
    let listener = Listener::bind(&unix(&path)).await.unwrap();
    let (stop, release) = (CancellationToken::new(), CancellationToken::new());
    let (sender, entered) = mpsc::unbounded_channel();
    let service = IdentityServer::new(Slow { entered: sender, release: release.clone() });
    let serving = tokio::spawn(serve(Routes::new(service), listener, stop.clone(), drain));
    Served { path, stop, release, entered, serving, _scratch: scratch }
}

#[tokio::test]
async fn a_drain_refuses_newcomers_and_finishes_what_is_in_flight() {
    let mut served = serve_slowly(Duration::from_secs(3600)).await;
    let mut client = IdentityClient::new(channel_to(&served.path).await);
    let call = tokio::spawn(async move { client.probe(ProbeRequest {}).await });
    served.entered.recv().await.unwrap();
    served.stop.cancel();
    let gone = async {
        while UnixStream::connect(&served.path).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    gone.await;
    assert!(!served.path.exists());
    assert!(!call.is_finished());
    served.release.cancel();
    assert_eq!(call.await.unwrap().unwrap().into_inner().ready, Some(true));
    assert_eq!(served.serving.await.unwrap().unwrap(), Drained::All);
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline() {
    let mut served = serve_slowly(Duration::ZERO).await;
    let mut client = IdentityClient::new(channel_to(&served.path).await);
    let call = tokio::spawn(async move { client.probe(ProbeRequest {}).await });
    served.entered.recv().await.unwrap();
    served.stop.cancel();
    assert_eq!(served.serving.await.unwrap().unwrap(), Drained::TimedOut);
    call.abort();
}

/// As kubelet does, the client sends every call over one connection: what breaks it breaks all.
#[tokio::test]
async fn a_call_that_panics_is_answered_and_the_calls_beside_it_on_its_connection_go_on() {
    let mut served = serve_slowly(Duration::ZERO).await;
    let mut client = IdentityClient::new(channel_to(&served.path).await);
    let mut beside = client.clone();
    let beside = tokio::spawn(async move { beside.probe(ProbeRequest {}).await });
    served.entered.recv().await.unwrap();
    let error = client.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await.unwrap_err();
    assert_eq!(error.code(), tonic::Code::Internal);
    assert!(error.message().contains("no capability was prepared"), "{}", error.message());
    served.release.cancel();
    assert_eq!(beside.await.unwrap().unwrap().into_inner().ready, Some(true));
    served.stop.cancel();
}

#[tokio::test]
async fn a_status_reaches_the_client_with_code_and_message() {
    let served = serve_slowly(Duration::ZERO).await;
    let mut client = IdentityClient::new(channel_to(&served.path).await);
    let error = client.get_plugin_info(GetPluginInfoRequest {}).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (tonic::Code::Unimplemented, "never"));
    served.stop.cancel();
}

#[derive(Debug, thiserror::Error)]
#[error("outer")]
struct Outer(#[source] io::Error);

#[test]
fn a_chain_is_printed_from_the_outside_in() {
    assert_eq!(chain(&Outer(io::Error::other("inner"))), "outer: inner");
    let status = failure(Code::Internal, &Outer(io::Error::other("inner")));
    assert_eq!((status.code(), status.message()), (tonic::Code::Internal, "outer: inner"));
}

#[test]
fn a_long_message_keeps_its_head_and_its_tail_within_an_event() {
    for filler in ["x", "ü", "漢"] {
        let long = format!("HEAD {} TAIL", filler.repeat(2000));
        let cut = status(Code::Internal, long).message().to_owned();
        assert!(cut.len() <= MESSAGE_LIMIT && cut.len() > MESSAGE_LIMIT - 10, "{}", cut.len());
        assert!(cut.starts_with("HEAD ") && cut.ends_with(" TAIL") && cut.contains(" ... "), "{cut}");
    }
    assert_eq!(status(Code::Internal, "short").message(), "short");
}

#[test]
fn every_code_keeps_its_number() {
    assert_eq!(status(Code::InvalidArgument, "").code(), tonic::Code::InvalidArgument);
    assert_eq!(status(Code::Unavailable, "").code(), tonic::Code::Unavailable);
    assert_eq!(status(Code::Unauthenticated, "").code(), tonic::Code::Unauthenticated);
}
