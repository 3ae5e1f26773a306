//! The emulator's own speed: single requests and a long list, in process and over loopback TCP.
//!
//! Throttling is off and operations take no time, so that nothing but the emulator is measured. The time of a request
//! lasts until its body is read and the tasks that it left have run.

use std::time::{Duration, Instant};

use axum::{Router, body::Body};
use bytes::Bytes;
use clap::Args;
use http::{HeaderMap, Request, StatusCode};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use lazuli_emulator::{
    Emulator,
    scenario::{Disk, LOCATION, RESOURCE_GROUP, SUBSCRIPTION, Scenario},
};
use serde_json::{Map, Value, json};
use tokio::net::TcpStream;
use tower::ServiceExt;
use url::Url;

use super::{
    super::{number::whole, output::Format},
    figures::rounded,
    processes::{AnyError, own_cpu_time},
};

/// An api-version of disks.
const API_VERSION: &str = "2025-01-02";
/// Bodies are those of the emulator: a page of documents is the largest.
const LARGEST_BODY: usize = 256 << 20;

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many disks exist, and are listed.
    #[arg(long, default_value_t = 20_000, value_parser = whole::<u32>(1..=40_000))]
    disks: u32,
    /// How many requests of each kind are sent.
    #[arg(long, default_value_t = 2_000, value_parser = whole::<u32>(1..=4_000))]
    requests: u32,
    /// How many disks a page of the list holds.
    #[arg(long, default_value_t = 1_000, value_parser = whole::<u32>(1..=u32::MAX))]
    page_size: u32,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let result = measure(&options).await?;
    Ok((result, options.output))
}

async fn measure(options: &Options) -> Result<Value, AnyError> {
    // First of all, while the tables of this process have not been read yet.
    let start = start().await?;
    let mut result = json!({ "bench": "emulator", "disks": options.disks, "requests": options.requests });
    result["start_ms"] = millis(start);
    let emulator = Emulator::start(lazuli_emulator::Options {
        scenario: cloud(options.disks),
        throttling: false,
        page_size: options.page_size as usize,
        ..lazuli_emulator::Options::default()
    })
    .await?;
    let stream = TcpStream::connect(emulator.url().trim_start_matches("http://")).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let (url, token) = (Url::parse(&emulator.url())?, emulator.control().token());
    let ways = [("in_process", Way::InProcess(emulator.service())), ("loopback", Way::Loopback(sender))];
    let mut clients =
        ways.map(|(name, way)| (name, Client { way, host: url.authority().to_owned(), token: token.clone() }));
    // The lists of both first: a PUT adds to them.
    let mut figures = Map::new();
    for (name, client) in &mut clients {
        client.list(&mut figures, name).await?;
    }
    for (name, client) in &mut clients {
        client.requests(&mut figures, name, options).await?;
    }
    emulator.shutdown().await;
    for (name, value) in figures {
        result[name] = value;
    }
    // Of the emulator and of the client that measures it.
    result["cpu_s"] = rounded(own_cpu_time()?.as_secs_f64());
    Ok(result)
}

/// From nothing to the first answer of an emulator in which nothing exists.
async fn start() -> Result<Duration, AnyError> {
    let began = Instant::now();
    let empty = Scenario { virtual_machines: Vec::new(), virtual_networks: Vec::new(), ..Scenario::default() };
    let options = lazuli_emulator::Options { scenario: empty, ..lazuli_emulator::Options::default() };
    let emulator = Emulator::start(options).await?;
    let (way, token) = (Way::InProcess(emulator.service()), emulator.control().token());
    let mut client = Client { way, host: "127.0.0.1".to_owned(), token };
    client.expect(StatusCode::OK, "GET", &list_path(), None).await?;
    let took = began.elapsed();
    emulator.shutdown().await;
    Ok(took)
}

/// So many disks, and nothing else.
fn cloud(disks: u32) -> Scenario {
    let disk = |n| Disk {
        name: disk_name(n),
        size_gib: 32,
        sku: "Premium_LRS".to_owned(),
        zone: None,
        resource_group: None,
        attach_to: None,
        tags: Default::default(),
    };
    Scenario {
        virtual_machines: Vec::new(),
        virtual_networks: Vec::new(),
        disks: (0..disks).map(disk).collect(),
        ..Scenario::default()
    }
}

fn disk_name(n: u32) -> String {
    format!("disk-{n:05}")
}

fn disk_path(name: &str) -> String {
    format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/{RESOURCE_GROUP}/providers/Microsoft.Compute/disks/{name}?api-version={API_VERSION}"
    )
}

fn list_path() -> String {
    format!("/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Compute/disks?api-version={API_VERSION}")
}

/// How the emulator is reached.
enum Way {
    InProcess(Router),
    Loopback(SendRequest<Body>),
}

struct Client {
    way: Way,
    host: String,
    token: String,
}

struct Answer {
    headers: HeaderMap,
    body: Bytes,
    took: Duration,
}

impl Client {
    /// Single requests: GETs of disks that exist, PUTs of new ones, polls of their operations.
    async fn requests(
        &mut self,
        figures: &mut Map<String, Value>,
        prefix: &str,
        options: &Options,
    ) -> Result<(), AnyError> {
        let mut gets = Vec::new();
        for n in 0..options.requests {
            // A prime step: all over the cloud, and not in its order.
            let name = disk_name(n.wrapping_mul(7919) % options.disks);
            gets.push(self.expect(StatusCode::OK, "GET", &disk_path(&name), None).await?.took);
        }
        let (mut puts, mut polls) = (Vec::new(), Vec::new());
        for n in 0..options.requests {
            let body = json!({
                "location": LOCATION,
                "sku": { "name": "Premium_LRS" },
                "properties": { "creationData": { "createOption": "Empty" }, "diskSizeGB": 32 },
                "tags": { "kubernetes.io-created-for-pv-name": format!("pvc-{n:05}") },
            });
            let path = disk_path(&format!("{prefix}-{n:05}"));
            let accepted = self.expect(StatusCode::ACCEPTED, "PUT", &path, Some(body)).await?;
            puts.push(accepted.took);
            let operation = accepted.headers.get("azure-asyncoperation").ok_or("no operation came with a PUT")?;
            let path = path_of(operation.to_str()?)?;
            polls.push(self.expect(StatusCode::OK, "GET", &path, None).await?.took);
        }
        for (name, times) in [("get", gets), ("put", puts), ("poll", polls)] {
            spread(figures, &format!("{prefix}_{name}"), times);
        }
        Ok(())
    }

    /// The list of all disks, page by page.
    async fn list(&mut self, figures: &mut Map<String, Value>, prefix: &str) -> Result<(), AnyError> {
        let (mut next, mut took, mut pages, mut disks) = (Some(list_path()), Duration::ZERO, 0, 0);
        while let Some(path) = next {
            let answer = self.expect(StatusCode::OK, "GET", &path, None).await?;
            took += answer.took;
            let page: Value = serde_json::from_slice(&answer.body)?;
            pages += 1;
            disks += page["value"].as_array().map_or(0, Vec::len);
            next = page["nextLink"].as_str().map(path_of).transpose()?;
        }
        figures.insert(format!("{prefix}_list_disks"), json!(disks));
        figures.insert(format!("{prefix}_list_pages"), json!(pages));
        figures.insert(format!("{prefix}_list_ms"), millis(took));
        Ok(())
    }

    /// Sends a request and expects an answer of this status.
    async fn expect(
        &mut self,
        status: StatusCode,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> Result<Answer, AnyError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(body.map_or_else(Body::empty, |body| Body::from(body.to_string())))?;
        let began = Instant::now();
        let response = match &mut self.way {
            Way::InProcess(service) => service.clone().oneshot(request).await?,
            Way::Loopback(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?.map(Body::new)
            }
        };
        let (head, body) = response.into_parts();
        let body = axum::body::to_bytes(body, LARGEST_BODY).await?;
        tokio::task::yield_now().await;
        let took = began.elapsed();
        if head.status != status {
            let text = String::from_utf8_lossy(&body);
            return Err(format!("the emulator answers {} to {method} {path}: {text}", head.status).into());
        }
        Ok(Answer { headers: head.headers, body, took })
    }
}

/// Path and query of a URL that the emulator gave.
fn path_of(url: &str) -> Result<String, AnyError> {
    let url = Url::parse(url)?;
    Ok(format!("{}?{}", url.path(), url.query().unwrap_or_default()))
}

/// The median and the 99th percentile, in microseconds.
fn spread(figures: &mut Map<String, Value>, name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    for percent in [50, 99] {
        let nth = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        let micros = times.get(nth).map_or(0.0, |time| (time.as_secs_f64() * 1e7).round() / 10.0);
        figures.insert(format!("{name}_p{percent}_us"), json!(micros));
    }
}

fn millis(time: Duration) -> Value {
    json!((time.as_secs_f64() * 1e4).round() / 10.0)
}
