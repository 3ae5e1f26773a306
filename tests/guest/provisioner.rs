//! What external-provisioner and kube-controller-manager do beside csi-sanity: a share that is made gets a PersistentVolume,
//! a claim and Pods, and before a share is deleted its volume is released. Calls and answers pass unchanged.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, Response, request, response},
};
use csi_proto::csi::{CreateVolumeResponse, DeleteVolumeRequest};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use serde_json::json;
use tokio::net::TcpListener;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

use super::kubernetes::Cluster;

const CREATE: &str = "/csi.v1.Controller/CreateVolume";
const DELETE: &str = "/csi.v1.Controller/DeleteVolume";

/// Before the message in a body: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// An answer as it came.
struct Answer {
    head: response::Parts,
    body: Bytes,
    trailers: Option<HeaderMap>,
}

/// Serves the controller on a port of the loopback interface, as long as the runtime of the test lives.
pub(super) async fn serve(cluster: Arc<Cluster>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().fallback(pass).with_state(cluster);
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

async fn pass(State(cluster): State<Arc<Cluster>>, request: Request) -> Response<Body> {
    let (head, body) = request.into_parts();
    let asked = body.collect().await.unwrap().to_bytes();
    let answer = match head.uri.path() {
        CREATE => create(&cluster, &head, asked).await,
        DELETE => delete(&cluster, &head, asked).await,
        _ => send(&cluster, &head, asked).await,
    };
    let body = match answer.trailers {
        Some(trailers) => Body::new(Full::new(answer.body).with_trailers(async move { Some(Ok(trailers)) })),
        // A failure may stand in the head, with which the answer ends.
        None => Body::empty(),
    };
    Response::from_parts(answer.head, body)
}

async fn send(cluster: &Cluster, head: &request::Parts, body: Bytes) -> Answer {
    let mut request = http::Request::new(tonic::body::Body::new(Full::new(body)));
    *request.version_mut() = head.version;
    *request.method_mut() = head.method.clone();
    *request.uri_mut() = head.uri.clone();
    *request.headers_mut() = head.headers.clone();
    let answer = cluster.controller.clone().ready().await.unwrap().call(request).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    Answer { head, body: body.to_bytes(), trailers }
}

async fn create(cluster: &Cluster, head: &request::Parts, asked: Bytes) -> Answer {
    let answer = send(cluster, head, asked).await;
    if answer.failure().is_none() {
        let volume = message::<CreateVolumeResponse>(&answer.body).volume.unwrap();
        cluster.bind(&volume.volume_id, &json!(volume.volume_context)).await;
    }
    answer
}

async fn delete(cluster: &Cluster, head: &request::Parts, asked: Bytes) -> Answer {
    let DeleteVolumeRequest { volume_id, .. } = message(&asked);
    cluster.release(&volume_id);
    loop {
        let answer = send(cluster, head, asked.clone()).await;
        match answer.failure() {
            // external-provisioner repeats: that the volume is released reaches the controller in a moment.
            Some(status) if status.code() == Code::Unavailable && status.message().contains("is not released") => {}
            Some(_) => return answer,
            None => {
                cluster.forget(&volume_id);
                return answer;
            }
        }
    }
}

impl Answer {
    /// Why it failed, where it did.
    fn failure(&self) -> Option<Status> {
        Status::from_header_map(self.trailers.as_ref().unwrap_or(&self.head.headers))
            .filter(|status| status.code() != Code::Ok)
    }
}

fn message<T: Message + Default>(body: &[u8]) -> T {
    T::decode(&body[PREFIX..]).unwrap()
}
