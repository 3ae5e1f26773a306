//! Services: which there are, and the patches that a load balancer's controller makes.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

use http::{Method, Request};
use kube::Client;
use lazuli_model::{
    ServiceKey,
    address::{Family, lax_address},
};
use lazuli_services::{
    ask::PortProtocol,
    service::{
        ServiceObject,
        annotation::is_in_use,
        object::{FINALIZER, MOST_PORTS, ServicePort, SourceRanges},
    },
};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    client::{Pages, answered, null_as_empty},
    cluster_ips::{ClusterIps, OtherAddresses, external_ips_in_bounds},
    follow::{Change, Interest, Slim, SlimMetadata, WAITING, follow},
    inventory::ListError,
    server::ApiError,
};

/// The collection, over all namespaces.
const SERVICES: &str = "/api/v1/services";

/// A Service at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionedService {
    /// What it asks for.
    pub object: ServiceObject,
    /// `metadata.resourceVersion`. The API server's versions are numbers that grow.
    pub version: u64,
}

/// A Service, as far as the cloud controllers look at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchedService {
    /// It is or was a load balancer.
    Balanced(Box<VersionedService>),
    /// It is another one, with these addresses.
    Other(OtherAddresses),
}

/// A change of the Services.
pub type ServicesChange = Change<WatchedService>;

/// A change of one Service that its controller makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServicePatch {
    /// Add the finalizer.
    AddFinalizer,
    /// Remove the finalizer.
    RemoveFinalizer,
    /// Set the addresses of the status.
    SetStatus(Vec<IpAddr>),
    /// Take all addresses from the status.
    ClearStatus,
}

/// Why a Service was not patched.
#[derive(Debug, thiserror::Error)]
pub enum PatchServiceError {
    /// It does not exist any more, or another of that name does.
    #[error("Service {0} does not exist any more")]
    Gone(ServiceKey),
    /// It was changed since the version that the patch was planned from.
    #[error("Service {0} has changed since it was read")]
    Changed(ServiceKey),
    /// The API server refused the patch, or did not answer.
    #[error("cannot patch Service {service} (the role needs patch on {needs})")]
    Failed {
        /// Which Service.
        service: ServiceKey,
        /// The resource of the role.
        needs: &'static str,
        /// Why.
        #[source]
        source: Box<ApiError>,
    },
}

/// Follows the Services until the receiver is dropped: those that are or were load balancers, and of the others the
/// addresses. Poll the future beside the receiver. Of their labels those with these
/// keys are kept: a Service may have any number of others.
pub fn follow_services(
    client: Client,
    labels: BTreeSet<String>,
) -> (impl Future<Output = ()>, mpsc::Receiver<ServicesChange>) {
    let (changes, told) = mpsc::channel(WAITING);
    let interest = Interest { labels, ..Interest::default() };
    (follow::<SlimService>(client, SERVICES, interest, changes), told)
}

/// The Services that are load balancers, once and whole but for their labels, and the addresses of the others.
///
/// # Errors
/// When they cannot be listed.
pub async fn list_load_balancers(client: &Client) -> Result<(Vec<ServiceObject>, ClusterIps), ListError> {
    let (interest, mut kept, mut others) = (Interest::default(), Vec::new(), ClusterIps::default());
    let mut pages = Pages::new(client, SERVICES);
    while let Some(page) = pages.next::<SlimService>().await.map_err(|source| ListError::new("services", source))? {
        for service in page.into_items() {
            let name = service.metadata().key();
            let balanced = service.keep(&interest).and_then(|service| others.note(name, service));
            kept.extend(balanced.map(|service| service.object));
        }
    }
    Ok((kept, others))
}

/// Patches a Service if it is still at this version. Returns the version after it.
///
/// # Errors
/// [`PatchServiceError`].
pub async fn patch_service(
    client: &Client,
    service: &ServiceKey,
    version: u64,
    patch: &ServicePatch,
) -> Result<u64, PatchServiceError> {
    let ServiceKey { namespace, name, uid } = service;
    let metadata = json!({"resourceVersion": version.to_string(), "uid": uid});
    let with = |key: &str| {
        let mut metadata = metadata.clone();
        metadata[key] = json!([FINALIZER]);
        json!({"metadata": metadata})
    };
    let balancer =
        |ingress: Vec<Value>| json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": ingress}}});
    let (part, body) = match patch {
        ServicePatch::AddFinalizer => ("", with("finalizers")),
        ServicePatch::RemoveFinalizer => ("", with("$deleteFromPrimitiveList/finalizers")),
        ServicePatch::SetStatus(addresses) => {
            ("/status", balancer(addresses.iter().map(|address| json!({"ip": address.to_string()})).collect()))
        }
        ServicePatch::ClearStatus => {
            ("/status", json!({"metadata": metadata, "status": {"loadBalancer": {"ingress": null}}}))
        }
    };
    let needs = if part.is_empty() { "services" } else { "services/status" };
    let failed =
        |source| PatchServiceError::Failed { service: service.clone(), needs, source: ApiError::boxed(source) };
    // The list of addresses is replaced by a merge patch; finalizers are merged by a strategic one.
    let media = if part.is_empty() { "application/strategic-merge-patch+json" } else { "application/merge-patch+json" };
    let request = Request::builder()
        .method(Method::PATCH)
        .uri(format!("/api/v1/namespaces/{namespace}/services/{name}{part}?fieldManager=lazuli"))
        .header("content-type", media)
        .body(body.to_string().into_bytes())
        .map_err(|error| failed(kube::Error::HttpError(error)))?;
    match answered(client.request::<SlimService>(request)).await {
        Ok(patched) => Ok(patched.metadata.base.resource_version.parse().unwrap_or(version)),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(PatchServiceError::Gone(service.clone())),
        // Of a conflict the next event of the watch tells which it is: another version, or another Service of that name.
        Err(kube::Error::Api(status)) if status.code == 409 => Err(PatchServiceError::Changed(service.clone())),
        Err(source) => Err(failed(source)),
    }
}

#[derive(Debug, Clone, Deserialize)]
struct SlimService {
    metadata: ServiceMetadata,
    #[serde(default)]
    spec: ServiceSpec,
    #[serde(default)]
    status: ServiceStatus,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ServiceMetadata {
    #[serde(flatten)]
    base: SlimMetadata,
    #[serde(default)]
    uid: String,
    #[serde(default, deserialize_with = "null_as_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "annotations_in_use")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "null_as_empty")]
    finalizers: Vec<String>,
    deletion_timestamp: Option<String>,
}

/// The most bytes of annotations that are kept of a Service. Azure takes 4,000 address ranges in a rule, and no other value
/// is nearly as long as those.
const MOST_BYTES: usize = 80 * 1024;
/// The most bytes of source ranges that are kept of a Service: as many as Azure takes in a rule, the longest of them of IPv6
/// with a comma. Azure refuses more, unless some of them are parts of others.
const MOST_RANGE_BYTES: usize = 4_000 * 44;
/// What is kept of a value that is cut.
const CUT_TO: usize = 1024;
/// The end of a value that was cut. No value of any annotation may hold it, so the whole value counts as a mistake; in a
/// list of ranges this one admits nobody and denies the rest.
const CUT: &str = "…(cut: too many bytes)";

/// The longest `appProtocol` that is kept. A longer one is of no meaning here, and means TCP as any such.
const LONGEST_PROTOCOL: usize = 63;

/// What is kept of an address that is longer. No valid one has more than 45 bytes.
const LONGEST_ADDRESS: usize = 256;

/// Decodes the annotations that anything looks at. Who may write a Service may give it 256 KiB of others.
fn annotations_in_use<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct InUse;

    impl<'de> Visitor<'de> for InUse {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(BTreeMap::new())
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut kept = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if is_in_use(&key) {
                    kept.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(kept)
        }
    }

    let mut annotations = deserializer.deserialize_any(InUse)?;
    cut(&mut annotations);
    Ok(annotations)
}

/// Decodes the ranges, of which a list that is too long is cut like an annotation.
fn ranges_in_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SourceRanges, D::Error> {
    struct InBounds;

    impl<'de> Visitor<'de> for InBounds {
        type Value = SourceRanges;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("address ranges")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(SourceRanges::default())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut ranges = SourceRanges::default();
            while let Some(range) = all.next_element::<String>()? {
                if ranges.bytes() + range.len() < MOST_RANGE_BYTES {
                    ranges.push(&range);
                    continue;
                }
                while all.next_element::<IgnoredAny>()?.is_some() {}
                ranges.truncate(CUT_TO);
                ranges.push(CUT);
            }
            ranges.shrink_to_fit();
            Ok(ranges)
        }
    }

    deserializer.deserialize_any(InBounds)
}

/// Decodes the ports, of which one more is kept than a Service may have: it is refused for that.
fn ports_in_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServicePort>, D::Error> {
    struct InBounds;

    impl<'de> Visitor<'de> for InBounds {
        type Value = Vec<ServicePort>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("ports")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(vec![])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Self::Value, A::Error> {
            let mut ports = Vec::new();
            while ports.len() <= MOST_PORTS {
                let Some(port) = all.next_element::<SlimPort>()? else { break };
                ports.push(port.kept());
            }
            while all.next_element::<IgnoredAny>()?.is_some() {}
            ports.shrink_to_fit();
            Ok(ports)
        }
    }

    deserializer.deserialize_any(InBounds)
}

/// Decodes an address, of which no more than a mistake is kept where it is longer than any address.
fn address_in_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let mut address: Option<String> = Option::deserialize(deserializer)?;
    if let Some(address) = address.as_mut().filter(|address| address.len() > LONGEST_ADDRESS) {
        address.truncate(address.floor_char_boundary(LONGEST_ADDRESS));
        address.push_str(CUT);
        address.shrink_to_fit();
    }
    Ok(address)
}

/// Cuts the longest values until all of them have [`MOST_BYTES`] at most.
fn cut(annotations: &mut BTreeMap<String, String>) {
    let mut total: usize = annotations.values().map(String::len).sum();
    while total > MOST_BYTES {
        let longest = annotations.values_mut().max_by_key(|value| value.len());
        let Some(longest) = longest.filter(|value| value.len() > CUT_TO + CUT.len()) else { return };
        let before = longest.len();
        longest.truncate(longest.floor_char_boundary(CUT_TO));
        longest.push_str(CUT);
        longest.shrink_to_fit();
        total -= before - longest.len();
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    load_balancer_class: Option<String>,
    #[serde(deserialize_with = "ports_in_bounds")]
    ports: Vec<ServicePort>,
    #[serde(deserialize_with = "null_as_empty")]
    ip_families: Vec<String>,
    external_traffic_policy: String,
    health_check_node_port: u16,
    session_affinity: String,
    #[serde(deserialize_with = "ranges_in_bounds")]
    load_balancer_source_ranges: SourceRanges,
    #[serde(rename = "loadBalancerIP", deserialize_with = "address_in_bounds")]
    load_balancer_ip: Option<String>,
    #[serde(rename = "clusterIPs", deserialize_with = "null_as_empty")]
    cluster_ips: Vec<String>,
    #[serde(rename = "externalIPs", deserialize_with = "external_ips_in_bounds")]
    external_ips: Vec<IpAddr>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPort {
    name: String,
    protocol: String,
    port: u16,
    node_port: u16,
    app_protocol: Option<String>,
}

impl SlimPort {
    fn kept(self) -> ServicePort {
        ServicePort {
            name: self.name,
            protocol: match self.protocol.as_str() {
                "UDP" => PortProtocol::Udp,
                "SCTP" => PortProtocol::Sctp,
                _ => PortProtocol::Tcp,
            },
            port: self.port,
            node_port: self.node_port,
            app_protocol: self
                .app_protocol
                .map(|text| if text.len() > LONGEST_PROTOCOL { CUT.to_owned() } else { text }),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ServiceStatus {
    load_balancer: SlimBalancer,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimBalancer {
    #[serde(deserialize_with = "null_as_empty")]
    ingress: Vec<SlimIngress>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct SlimIngress {
    ip: String,
}

impl Slim for SlimService {
    type Kept = WatchedService;

    fn metadata(&self) -> &SlimMetadata {
        &self.metadata.base
    }

    /// Of a Service that neither is nor was a load balancer its addresses matter, and nothing else.
    fn keep(self, interest: &Interest) -> Option<WatchedService> {
        let Self { mut metadata, spec, status } = self;
        metadata.labels.retain(|key, _| interest.labels.contains(key));
        let is_load_balancer = spec.kind == "LoadBalancer";
        let has_finalizer = metadata.finalizers.iter().any(|one| one == FINALIZER);
        let cluster_ips: Vec<IpAddr> = spec.cluster_ips.iter().filter_map(|address| lax_address(address)).collect();
        if !is_load_balancer && !has_finalizer {
            // A Service without an address of its own, such as a headless one, has the text None there.
            let addresses = OtherAddresses { cluster: cluster_ips, external: spec.external_ips };
            return (addresses != OtherAddresses::default()).then_some(WatchedService::Other(addresses));
        }
        let family = |text: &String| match text.as_str() {
            "IPv4" => Some(Family::V4),
            "IPv6" => Some(Family::V6),
            _ => None,
        };
        let object = ServiceObject {
            key: ServiceKey::new(metadata.base.namespace, metadata.base.name, metadata.uid),
            labels: metadata.labels,
            namespace_labels: BTreeMap::new(),
            annotations: metadata.annotations,
            is_load_balancer,
            load_balancer_class: spec.load_balancer_class,
            ports: spec.ports,
            families: spec.ip_families.iter().filter_map(family).collect(),
            is_local: spec.external_traffic_policy == "Local",
            health_check_node_port: spec.health_check_node_port,
            is_client_ip_affine: spec.session_affinity == "ClientIP",
            source_ranges: spec.load_balancer_source_ranges,
            load_balancer_ip: spec.load_balancer_ip.filter(|address| !address.is_empty()),
            cluster_ips,
            external_ips: spec.external_ips,
            ingress: status.load_balancer.ingress.iter().filter_map(|one| one.ip.parse().ok()).collect(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            has_finalizer,
        };
        let version = metadata.base.resource_version.parse().unwrap_or_default();
        Some(WatchedService::Balanced(Box::new(VersionedService { object, version })))
    }
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};

    use super::*;

    fn service(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "annotations": {"a": "b"}},
            "spec": {"type": "LoadBalancer", "ports": [{"name": "web", "port": 80}]}})
    }

    fn start() -> (ApiServer, Client) {
        let server = ApiServer::start(Options::default());
        let client = Client::new(server.router(), "default");
        (server, client)
    }

    /// The Service of a change.
    fn applied(change: Option<ServicesChange>) -> VersionedService {
        match change {
            Some(Change::Applied(_, Some(WatchedService::Balanced(service)))) => *service,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_annotations_in_use_are_kept_and_only_so_many_bytes_of_them() {
        let key = |name: &str| format!("service.beta.kubernetes.io/{name}");
        let kept = |annotations: Value| {
            let metadata = json!({"name": "web", "annotations": annotations});
            let metadata: ServiceMetadata = serde_json::from_value(metadata).unwrap();
            metadata.annotations
        };
        assert_eq!(kept(Value::Null), BTreeMap::new());
        let mut annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": "x".repeat(250_000)});
        annotations["service.beta.kubernetes.io/aws-load-balancer-type"] = json!("nlb");
        // A misspelt key is reported, and Lazuli's own keys count.
        let in_use = [&*key("azure-pip-name"), &key("azure-pip-nmae"), &key("port_80_no_lb_rule"), "lazuli.azure/x"];
        for key in in_use {
            annotations[key] = json!("short");
        }
        let found = kept(annotations);
        assert_eq!(found.len(), in_use.len());
        assert!(in_use.iter().all(|key| found[*key] == "short"), "{found:?}");

        // The longest lists of ranges that Azure takes stay whole.
        let ranges = vec!["203.113.113.113/32"; 4_000].join(",");
        let found = kept(json!({key("azure-allowed-ip-ranges"): ranges}));
        assert_eq!(found[&key("azure-allowed-ip-ranges")], ranges);
        let long = "ä".repeat(60_000);
        let found = kept(json!({key("azure-allowed-ip-ranges"): ranges, key("azure-pip-tags"): long}));
        assert_eq!(found[&key("azure-allowed-ip-ranges")], ranges);
        let cut = &found[&key("azure-pip-tags")];
        assert!(cut.len() <= CUT_TO + CUT.len() && cut.ends_with(CUT), "{cut}");
    }

    #[test]
    fn of_labels_and_of_the_specification_only_what_is_in_use_is_kept_and_no_more_than_azure_takes() {
        let kept = |labels: Value, spec: Value| {
            let service = json!({"metadata": {"name": "web", "labels": labels, "managedFields": [{"x": "y"}]}, "spec": spec,
                "status": {"conditions": [{"message": "x".repeat(1000)}]}});
            let service: SlimService = serde_json::from_value(service).unwrap();
            let interest = Interest { labels: ["team".to_owned()].into(), ..Interest::default() };
            let Some(WatchedService::Balanced(service)) = service.keep(&interest) else {
                panic!("it is a load balancer")
            };
            service.object
        };
        let many: BTreeMap<String, &str> = (0..5_000).map(|number| (format!("label-{number}"), "x")).collect();
        let mut labels = json!(many);
        labels["team"] = json!("shop");
        let spec = |ranges: &[String], address: &str| {
            json!({"type": "LoadBalancer", "externalIPs": vec!["192.0.2.1"; 10_000], "loadBalancerSourceRanges": ranges,
                "loadBalancerIP": address})
        };
        // As many ranges as Azure takes in a rule stay whole.
        let range = |number: u32| format!("203.113.{}.{}/32", number / 256, number % 256);
        let most: Vec<String> = (0..4_000).map(range).collect();
        let object = kept(labels, spec(&most, "10.0.0.1"));
        assert_eq!(object.labels, BTreeMap::from([("team".to_owned(), "shop".to_owned())]));
        let texts = |object: ServiceObject| object.source_ranges.iter().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(object.load_balancer_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(texts(object), most);
        let longest: Vec<String> = (0..4_000).map(|number| format!("2001:db8:85a3:{number:x}::/64")).collect();
        assert_eq!(texts(kept(Value::Null, spec(&longest, "10.0.0.1"))), longest);
        let more: Vec<String> = (0..13_000).map(range).collect();
        let object = kept(Value::Null, spec(&more, &"1".repeat(250_000)));
        let bytes = object.source_ranges.bytes();
        assert!(bytes <= CUT_TO + CUT.len() + 1, "{bytes}");
        assert_eq!(object.source_ranges.iter().last(), Some(CUT));
        let address = object.load_balancer_ip.unwrap();
        assert!(address.len() <= LONGEST_ADDRESS + CUT.len() && address.ends_with(CUT), "{address}");
        assert_eq!(object.external_ips, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        let many: Vec<String> =
            (0..20_000).map(|number: u32| format!("20.0.{}.{}", number / 256, number % 256)).collect();
        let object = kept(Value::Null, json!({"type": "LoadBalancer", "externalIPs": many}));
        assert_eq!(object.external_ips.len(), lazuli_services::service::object::MOST_EXTERNAL_IPS);
        // Each of the shortest has no more memory than its bytes.
        let shortest = vec![String::new(); 250_000];
        let object = kept(Value::Null, spec(&shortest, ""));
        assert!(object.source_ranges.bytes() <= CUT_TO + CUT.len() + 1);
        // Of ports so many are kept that they are known to be too many.
        let port = |number: u32| json!({"port": number, "protocol": "UDP", "appProtocol": "x".repeat(300)});
        let ports = |count: u32| {
            kept(Value::Null, json!({"type": "LoadBalancer", "ports": (1..=count).map(port).collect::<Vec<_>>()})).ports
        };
        assert_eq!(ports(1_500).len(), MOST_PORTS);
        let many = ports(5_000);
        assert_eq!((many.len(), many[0].port, many[0].protocol), (MOST_PORTS + 1, 1, PortProtocol::Udp));
        assert_eq!(many[0].app_protocol.as_deref(), Some(CUT));
    }

    #[tokio::test(start_paused = true)]
    async fn services_are_followed_by_namespace_and_name() {
        let (server, client) = start();
        server.put("services", service("web")).unwrap();
        server.put("services", json!({"metadata": {"name": "dns"}, "spec": {"ports": [{"port": 53}]}})).unwrap();
        let (following, mut told) = follow_services(client, BTreeSet::new());
        tokio::spawn(following);
        let Some(Change::Replaced(all)) = told.recv().await else { panic!("no list") };
        let [(_, WatchedService::Other(addresses)), (name, WatchedService::Balanced(first))] = &all[..] else {
            panic!("{all:?}")
        };
        assert_eq!((name.as_str(), addresses.cluster.len()), ("shop/web", 1));
        let object = &first.object;
        assert_eq!((object.ports[0].port, object.ports[0].protocol), (80, PortProtocol::Tcp));
        assert!(object.ports[0].node_port >= 30_000);
        assert_eq!(object.families, [Family::V4]);
        assert!(object.is_load_balancer && !object.is_local && !object.has_finalizer && !object.is_deleting);
        let mut local = service("web");
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        server.put("services", local).unwrap();
        let changed = applied(told.recv().await);
        assert!(changed.object.is_local && changed.object.health_check_node_port >= 30_000);
        assert!(changed.version > first.version);
        server.delete("services", "shop", "web").unwrap();
        assert_eq!(told.recv().await, Some(Change::Deleted("shop/web".to_owned())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_that_cannot_be_decoded_is_told_with_its_field_and_followed_again_soon_after_its_correction() {
        let (server, client) = start();
        server.put("services", service("web")).unwrap();
        let (following, mut told) = follow_services(client, BTreeSet::new());
        tokio::spawn(following);
        assert!(matches!(told.recv().await, Some(Change::Replaced(_))));
        let mut wrong = service("web");
        wrong["spec"]["loadBalancerSourceRanges"] = json!("10.0.0.0/8");
        server.put("services", wrong).unwrap();
        let Some(Change::Lost(why)) = told.recv().await else { panic!("it was decoded") };
        assert!(why.contains("is not of its kind") && why.contains("invalid type: string"), "{why}");
        server.put("services", service("web")).unwrap();
        let corrected = tokio::time::Instant::now();
        while !matches!(told.recv().await.unwrap(), Change::Replaced(_)) {}
        assert!(corrected.elapsed() <= std::time::Duration::from_secs(15), "{:?}", corrected.elapsed());
    }

    #[test]
    fn the_addresses_of_services_that_are_no_load_balancers_are_known_while_they_have_them() {
        let keep = |spec: Value| {
            let service = json!({"metadata": {"name": "dns", "namespace": "shop"}, "spec": spec});
            let service: SlimService = serde_json::from_value(service).unwrap();
            service.keep(&Interest::default())
        };
        let of = |kind: &str, addresses: Value| keep(json!({"type": kind, "clusterIPs": addresses}));
        assert_eq!(of("ClusterIP", json!(["None"])), None, "a headless Service");
        assert_eq!(of("ExternalName", Value::Null), None);
        let balanced = of("LoadBalancer", json!(["10.0.0.10"])).unwrap();
        let mut known = ClusterIps::default();
        let mut after = |change: ServicesChange| {
            let balanced = match known.take_in(change) {
                Change::Replaced(all) => all.len(),
                Change::Applied(_, service) => usize::from(service.is_some()),
                _ => 0,
            };
            let all = known.iter().map(|address| address.to_string());
            let all = all.chain(known.external().map(|address| format!("external:{address}")));
            (all.collect::<Vec<_>>().join(" "), balanced)
        };
        let name = |name: &str| name.to_owned();
        let both = of("NodePort", json!(["10.0.0.11", "fd00::b"])).unwrap();
        let all = vec![(name("shop/dns"), both.clone()), (name("shop/web"), balanced.clone())];
        assert_eq!(after(Change::Replaced(all)), (name("10.0.0.11 fd00::b"), 1));
        assert_eq!(
            after(Change::Applied(name("shop/web"), Some(both))),
            (name("10.0.0.11 fd00::b 10.0.0.11 fd00::b"), 0)
        );
        assert_eq!(after(Change::Applied(name("shop/web"), Some(balanced))), (name("10.0.0.11 fd00::b"), 1));
        assert_eq!(after(Change::Confirmed), (name("10.0.0.11 fd00::b"), 0));
        assert_eq!(after(Change::Lost(name("x"))), (name("10.0.0.11 fd00::b"), 0), "what was known is known");
        assert_eq!(after(Change::Deleted(name("shop/dns"))), (name(""), 0));
        let one = of("ClusterIP", json!(["10.0.0.12"])).unwrap();
        assert_eq!(after(Change::Applied(name("shop/dns"), Some(one))), (name("10.0.0.12"), 0));
        assert_eq!(after(Change::Applied(name("shop/dns"), None)), (name(""), 0), "it is an ExternalName now");
        let headless =
            keep(json!({"clusterIPs": ["None"], "externalIPs": ["020.0.000.1", "x", "20.0.0.1", "2001:db8::1"]}));
        assert_eq!(
            after(Change::Applied(name("shop/dns"), headless)),
            (name("external:20.0.0.1 external:2001:db8::1"), 0)
        );
        assert_eq!(after(Change::Replaced(vec![])), (name(""), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn patches_change_one_version_and_leave_what_others_wrote() {
        let (server, client) = start();
        let mut made = service("web");
        made["metadata"]["finalizers"] = json!(["example.com/theirs"]);
        let made = server.put("services", made).unwrap();
        let uid = made["metadata"]["uid"].as_str().unwrap();
        let key = ServiceKey::new("shop", "web", uid);
        let first: u64 = made["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let second = patch_service(&client, &key, first, &ServicePatch::AddFinalizer).await.unwrap();
        let finalizers =
            |server: &ApiServer| server.get("services", "shop", "web").unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers(&server), json!(["example.com/theirs", FINALIZER]));
        let old = patch_service(&client, &key, first, &ServicePatch::RemoveFinalizer).await;
        assert!(matches!(old, Err(PatchServiceError::Changed(_))), "{old:?}");
        let addresses = ["20.0.0.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        let third = patch_service(&client, &key, second, &ServicePatch::SetStatus(addresses.into())).await.unwrap();
        let status = server.get("services", "shop", "web").unwrap()["status"]["loadBalancer"].clone();
        assert_eq!(status["ingress"][1]["ip"], "2001:db8::1");
        let fourth = patch_service(&client, &key, third, &ServicePatch::ClearStatus).await.unwrap();
        assert_eq!(server.get("services", "shop", "web").unwrap()["status"]["loadBalancer"], json!({}));
        server.delete("services", "shop", "web").unwrap();
        let removed = patch_service(&client, &key, fourth + 1, &ServicePatch::RemoveFinalizer).await;
        assert!(removed.is_ok(), "{removed:?}");
        assert_eq!(finalizers(&server), json!(["example.com/theirs"]));
        let absent = ServiceKey::new("shop", "none", uid);
        let gone = patch_service(&client, &absent, 1, &ServicePatch::AddFinalizer).await;
        assert!(matches!(gone, Err(PatchServiceError::Gone(_))), "{gone:?}");
        let other = ServiceKey::new("shop", "web", "00000000-0000-0000-0000-000000000000");
        let now = server.version();
        let replaced = patch_service(&client, &other, now, &ServicePatch::RemoveFinalizer).await;
        assert!(matches!(replaced, Err(PatchServiceError::Changed(_))), "{replaced:?}");
    }
}
