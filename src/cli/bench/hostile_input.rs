//! What people and pods with few rights can make the cloud controllers hold: admission reviews that name ever other
//! subscriptions, and Services as large as Kubernetes takes them.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener},
    time::{Duration, Instant},
};

use bytes::Bytes;
use clap::Args;
use futures::{StreamExt as _, TryStreamExt as _};
use http::{HeaderMap, HeaderValue, Method, header};
use lazuli_azure::transport::{Routes, Tls, Transport};
use serde_json::{Map, Value, json};
use url::Url;

use super::{
    super::{number::whole, output::Format},
    cluster::{self, Cluster, Layout},
    figures::rounded,
    processes::{AnyError, Measured},
};

/// How long the controllers rest in an empty cluster before their memory is measured.
const IDLE: Duration = Duration::from_secs(3);
/// How many reviews a hostile client has under way. The webhook works on fewer.
const AT_ONCE: usize = 16;
/// How long a resource id may be (source: the longest that this program takes).
const LONGEST_ID: usize = 1_024;
/// How long a name of a resource group or a disk of these ids is.
const LONG_NAME: usize = 460;
/// Bytes of a MiB, and of a KiB.
const MIB: u64 = 1 << 20;
const KIB: usize = 1 << 10;
/// The class of Services that another controller serves.
const OF_OTHERS: &str = "example.com/of-others";

/// Options of the measurement.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// How many reviews.
    #[arg(long, default_value_t = 10_000, value_parser = whole::<u32>(0..=1_000_000))]
    reviews: u32,
    /// How many Services.
    #[arg(long, default_value_t = 500, value_parser = whole::<u32>(0..=10_000))]
    services: u32,
    /// How many KiB a Service has. The annotations of one object are 256 KiB at most.
    #[arg(long, default_value_t = 250, value_parser = whole::<u32>(1..=1_000))]
    kib: u32,
    /// The Services are this controller's: it decides what to serve, and says what is wrong with them.
    #[arg(long)]
    served: bool,
    /// How many MiB the peak of the controllers' memory may be over that of an empty cluster.
    #[arg(long, default_value_t = 64, value_parser = whole::<u64>(0..=u64::MAX))]
    pub(super) limit_mib: u64,
    #[command(flatten)]
    measured: Measured,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Text, value_name = "FORM")]
    output: Format,
}

pub(super) async fn run(options: Options) -> Result<super::Figures, AnyError> {
    let (certificate, key) = certificate()?;
    let address = free_address()?;
    let layout = Layout {
        services: options.services,
        webhook: Some((address, &certificate, &key)),
        latency: "none",
        throttling: false,
        measured: options.measured.clone(),
        ..Layout::default()
    };
    let measured =
        async |cluster: &mut Cluster| measure(cluster, &options, &Webhook::new(address, &certificate)?).await;
    cluster::run(&layout, options.output, measured).await
}

/// Whether so much growth is little enough.
pub(super) fn judge(result: &Value, limit_mib: u64) -> Result<(), String> {
    let growth = result["growth_bytes"].as_u64().unwrap_or(u64::MAX);
    if growth <= limit_mib * MIB {
        return Ok(());
    }
    Err(format!(
        "hostile input makes the cloud controllers grow by {} MiB; allowed are {limit_mib} MiB (--limit-mib)",
        growth.div_ceil(MIB)
    ))
}

async fn measure(cluster: &mut Cluster, options: &Options, webhook: &Webhook) -> Result<Map<String, Value>, AnyError> {
    tokio::time::sleep(IDLE).await;
    let idle = cluster.memory()?.now;
    let phase = cluster.control.begin("reviews").await?;
    let began = Instant::now();
    webhook.send(options.reviews).await?;
    let reviewed = began.elapsed();
    let counted = cluster.rested(phase).await?;
    let after_reviews = cluster.memory()?;

    let phase = cluster.control.begin("services").await?;
    for number in 0..options.services {
        cluster.put("services", service(number, options.kib as usize * KIB, options.served))?;
        // The API server runs on this thread too, and must answer the renewals of the Lease meanwhile.
        tokio::task::yield_now().await;
    }
    cluster.rested(phase).await?;
    let watched = cluster.memory()?;
    let phase = cluster.control.begin("list").await?;
    cluster.relist();
    cluster.rested(phase).await?;
    let listed = cluster.memory()?;

    let mut result = Map::new();
    for (name, value) in [
        ("bench", json!("hostile-input")),
        ("reviews", json!(options.reviews)),
        ("services", json!(options.services)),
        ("service_kib", json!(options.kib)),
        ("served", json!(options.served)),
        ("reviews_s", rounded(reviewed.as_secs_f64())),
        ("review_arm_reads", json!(counted.sum("reads"))),
        ("idle_rss_bytes", json!(idle)),
        ("reviews_peak_rss_bytes", json!(after_reviews.peak)),
        ("watched_peak_rss_bytes", json!(watched.peak)),
        ("rss_bytes", json!(listed.now)),
        ("peak_rss_bytes", json!(listed.peak)),
        ("growth_bytes", json!(listed.peak.saturating_sub(idle))),
        ("limit_bytes", json!(options.limit_mib * MIB)),
    ] {
        result.insert(name.into(), value);
    }
    Ok(result)
}

/// A certificate for the loopback address, and its key, in PEM.
fn certificate() -> Result<(String, String), AnyError> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// An address at which no process listens.
fn free_address() -> Result<SocketAddr, AnyError> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The admission webhook, as any pod reaches it.
struct Webhook {
    transport: Transport,
    volumes: Url,
}

impl Webhook {
    fn new(address: SocketAddr, certificate: &str) -> Result<Self, AnyError> {
        let tls = Tls { extra_roots_pem: certificate.into() };
        let volumes = format!("https://{address}{}", lazuli_webhook::VOLUMES).parse()?;
        Ok(Self { transport: Transport::new(Routes::none(), &tls)?, volumes })
    }

    /// Sends so many reviews. Any answer of the webhook will do.
    async fn send(&self, count: u32) -> Result<(), AnyError> {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        let sent = futures::stream::iter(0..count).map(|number| {
            let body = Bytes::from(review(number).to_string());
            self.transport.send(Method::POST, &self.volumes, headers.clone(), body)
        });
        sent.buffer_unordered(AT_ONCE).try_for_each(|_| async { Ok(()) }).await?;
        Ok(())
    }
}

/// A review of a volume whose disk is where no other review's is.
fn review(number: u32) -> Value {
    let volume = json!({"metadata": {"name": format!("pv-{number}")},
        "spec": {"csi": {"driver": "disk.csi.azure.com", "volumeHandle": disk(number)}}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": format!("u-{number}"), "operation": "CREATE", "object": volume, "oldObject": null, "dryRun": false}})
}

/// The longest id that is taken.
fn disk(number: u32) -> String {
    let (subscription, group) = (uuid::Uuid::from_u128(number.into()), format!("{number:x>LONG_NAME$}"));
    let mut id = format!("/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Compute/disks/");
    let rest = LONGEST_ID - id.len();
    id.push_str(&"d".repeat(rest));
    id
}

/// A Service with so many bytes in one of its parts.
fn service(number: u32, bytes: usize, served: bool) -> Value {
    let mut service = json!({"metadata": {"name": format!("web-{number:05}"), "labels": {}, "annotations": {}},
        "spec": {"type": "LoadBalancer",
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30_000 + number % 2_768}]}});
    if !served {
        service["spec"]["loadBalancerClass"] = OF_OTHERS.into();
    }
    let range = |at: usize| format!("20.{}.{}.{}/32", at >> 16, (at >> 8) & 0xff, at & 0xff);
    match number % 6 {
        // Of no meaning here, as kubectl writes it.
        0 => {
            service["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] =
                "x".repeat(bytes).into();
        }
        // Of a meaning, and far too long.
        1 => service["metadata"]["annotations"]["service.beta.kubernetes.io/azure-pip-tags"] = "x".repeat(bytes).into(),
        2 => {
            const EACH: usize = 63 + 63;
            let label = |number| (format!("{number:x>63}"), "x".repeat(63));
            service["metadata"]["labels"] = json!((0..bytes / EACH).map(label).collect::<BTreeMap<_, _>>());
        }
        3 => {
            let ranges = (0..bytes / range(0xff_ffff).len()).map(range);
            service["spec"]["loadBalancerSourceRanges"] = ranges.collect();
        }
        4 => service["spec"]["externalIPs"] = vec!["192.0.2.1"; bytes / 12].into(),
        _ => {
            let field = |number: usize| (format!("f:field-{number:08}"), json!({}));
            let fields: Map<String, Value> = (0..bytes / 22).map(field).collect();
            service["metadata"]["managedFields"] =
                json!([{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}]);
        }
    }
    service
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_over_the_limit_fails_and_names_both() {
        let growth = |bytes: u64| serde_json::json!({"growth_bytes": bytes});
        assert_eq!(judge(&growth(64 * MIB), 64), Ok(()));
        let error = judge(&growth(64 * MIB + 1), 64).unwrap_err();
        assert!(error.contains("by 65 MiB") && error.contains("allowed are 64 MiB"), "{error}");
    }

    #[test]
    fn every_review_names_another_subscription_by_an_id_as_long_as_ids_may_be() {
        let ids: Vec<lazuli_model::ArmId> = [0, 9_999].map(|number| disk(number).parse().unwrap()).into();
        assert!(ids.iter().all(|id| id.as_str().len() == LONGEST_ID), "{ids:?}");
        assert!(ids[0].subscription() != ids[1].subscription() && ids[0].resource_group() != ids[1].resource_group());
        assert!(format!("{}x", disk(0)).parse::<lazuli_model::ArmId>().is_err());
    }

    #[test]
    fn a_service_of_every_kind_has_about_the_bytes_that_are_asked_for() {
        for number in 0..6 {
            let bytes = service(number, 250 * KIB, true).to_string().len();
            assert!((250 * KIB * 8 / 10..250 * KIB * 13 / 10).contains(&bytes), "{number}: {bytes}");
        }
    }
}
