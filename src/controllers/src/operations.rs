//! What is counted of work on Services, routes and new Nodes: one measured value for our metric and for the Go manager's.

use std::time::Duration;

use lazuli_balancing::Key;
use lazuli_engine::service::Reason;
use lazuli_model::reference::{Metric, MetricType::Histogram as Spread};
use lazuli_nodes::routing::{Edit, names};
use lazuli_services::{
    network::Settings,
    service::{ServiceObject, annotation::key},
};
use lazuli_telemetry::{
    go_names::{Family as GoFamily, GoNames, METER_OF_MANAGER},
    labels::Bounded,
};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};

const OPERATIONS: Metric = Metric::new(
    Spread,
    "lazuli_operation_duration",
    "How long work on Services and routes took, by operation and by outcome: succeeded, failed",
)
.in_unit("seconds")
.by(&["operation", "outcome"])
.as_go("cloudprovider_azure_op_duration_seconds, provider_reconcile_duration_seconds");

/// The metrics of the cloud controllers.
pub const METRICS: &[Metric] = &[OPERATIONS];

/// Seconds; from a Service that changes nothing to one that waits for the longest operation of Azure.
const BUCKETS: [f64; 11] = [0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0];

/// The most Services and Nodes that have series of their own under the Go manager's names. The others are `other`.
const MOST_SOURCES: usize = 500;

/// Source of the names, labels and buckets of these families: a scrape of the Go manager v1.35.3.
const OPERATION_LABELS: &[&str] = &["request", "resource_group", "subscription_id", "source"];
const OPERATION_DURATION: GoFamily = GoFamily::histogram(
    "cloudprovider_azure_op_duration_seconds",
    "How long work on a Service or a route took, from the change to what Azure shows",
    OPERATION_LABELS,
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0],
);
const OPERATION_FAILURES: GoFamily = GoFamily::counter(
    "cloudprovider_azure_op_failure_count",
    "Work on a Service or a route that failed; a failure that stays the same is counted once",
    OPERATION_LABELS,
);

/// What a Service asks for, as far as the Go manager's labels say it.
const RECONCILE_LABELS: &[&str] = &[
    "name",
    "annotations_additional_public_ips",
    "annotations_allowed_ip_ranges",
    "annotations_allowed_service_tags",
    "annotations_internal_load_balancer",
    "annotations_load_balancer_source_ranges",
    "annotations_pip_name",
    "annotations_pip_prefix",
    "spec_load_balancer_source_ranges",
    "otel_scope_name",
    "otel_scope_schema_url",
    "otel_scope_version",
];
const RECONCILE_DURATION: GoFamily = GoFamily::histogram(
    "provider_reconcile_duration_seconds",
    "How long work on Services took, by what they ask for",
    RECONCILE_LABELS,
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0],
);
const RECONCILE_ERRORS: GoFamily = GoFamily::counter(
    "provider_reconcile_errors_counter_total",
    "Work on Services that failed, by what they ask for",
    RECONCILE_LABELS,
);

const DELAYS: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
const TAINT_REMOVAL: GoFamily = GoFamily::histogram(
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "From the creation of a Node to the patch that takes its taint uninitialized",
    &[],
    DELAYS,
);
const INITIAL_SYNC: GoFamily = GoFamily::histogram(
    "node_controller_initial_node_sync_delay_seconds",
    "From the creation of a Node to the patch that initialises it, which is the one that takes its taint",
    &[],
    DELAYS,
);

/// The families of the Go manager that this crate writes.
pub const GO_FAMILIES: &[&GoFamily] =
    &[&OPERATION_DURATION, &OPERATION_FAILURES, &RECONCILE_DURATION, &RECONCILE_ERRORS, &TAINT_REMOVAL, &INITIAL_SYNC];

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// A Service gets what it asks for.
    EnsureService,
    /// Everything of a Service goes.
    DeleteService,
    /// A route is made, or led elsewhere.
    CreateRoute,
    /// A route is removed.
    DeleteRoute,
}

impl What {
    fn as_str(self) -> &'static str {
        match self {
            Self::EnsureService => "ensure_service",
            Self::DeleteService => "delete_service",
            Self::CreateRoute => "create_route",
            Self::DeleteRoute => "delete_route",
        }
    }

    /// The request of the Go manager's operations, and the name of its reconciliations of Services.
    fn as_go(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::EnsureService => ("services_ensure_loadbalancer", Some("EnsureLoadBalancer")),
            Self::DeleteService => ("services_ensure_loadbalancer_deleted", Some("EnsureLoadBalancerDeleted")),
            Self::CreateRoute => ("routes_create_route", None),
            Self::DeleteRoute => ("routes_delete_route", None),
        }
    }
}

/// Which of the values are there that the Go manager's labels tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features([bool; 8]);

impl Features {
    /// In the order of [`RECONCILE_LABELS`].
    pub(crate) fn of(service: &ServiceObject) -> Self {
        let has = |key: &str| service.annotations.get(key).is_some_and(|value| !value.is_empty());
        Self([
            has(key::ADDITIONAL_IPS),
            has(key::IP_RANGES),
            has(key::SERVICE_TAGS),
            has(key::INTERNAL),
            has(key::SOURCE_RANGES),
            has(key::PIP_NAME),
            has(key::PIP_PREFIX),
            service.source_ranges.iter().next().is_some(),
        ])
    }
}

/// Work that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation<'a> {
    pub(crate) what: What,
    /// The Service, as `namespace/name`, or the Node.
    pub(crate) source: &'a str,
    pub(crate) succeeded: bool,
    pub(crate) took: Duration,
    pub(crate) features: Features,
}

/// What a report on a Service says of the work on it; `None` where that goes on, such as while it waits. `is_gone`: whether
/// everything of it is to go.
pub(crate) fn ended(reason: &Reason<Key>, is_gone: bool) -> Option<(What, bool)> {
    // What is reported as deleted may not be there any more.
    let is_removal = is_gone || *reason == Reason::Deleted;
    let what = if is_removal { What::DeleteService } else { What::EnsureService };
    let succeeded = matches!(reason, Reason::Ensured | Reason::Unchanged | Reason::Deleted);
    reason.ends_work().then_some((what, succeeded))
}

/// The routes that a write of a route table makes or removes, by what is done and the Node. A route whose name no provider
/// made has its name for a Node.
pub(crate) fn of_routes(edits: &[Edit]) -> Vec<(What, String)> {
    let node = |route: &str| names::node(route).unwrap_or(route).to_owned();
    let edits = edits.iter().filter_map(|edit| match edit {
        Edit::PutRoute { name, .. } => Some((What::CreateRoute, node(name))),
        Edit::RemoveRoute(name) => Some((What::DeleteRoute, node(name))),
        Edit::Create | Edit::Tags { .. } => None,
    });
    edits.collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    operation: &'static str,
    outcome: &'static str,
}

/// What is counted. Clones count together; the default is shown nowhere.
#[derive(Debug, Clone)]
pub struct Operations {
    durations: Family<Labels, Histogram, fn() -> Histogram>,
    go: GoNames,
    resource_group: String,
    subscription: String,
    sources: Bounded,
}

impl Default for Operations {
    fn default() -> Self {
        Self {
            durations: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            go: GoNames::default(),
            resource_group: String::new(),
            subscription: String::new(),
            sources: Bounded::new(MOST_SOURCES),
        }
    }
}

impl Operations {
    /// Whether the Go manager's names are shown.
    pub(crate) fn shows_features(&self) -> bool {
        self.go.is_on()
    }

    /// Makes them known to a registry, and to what shows the Go manager's names.
    pub fn register(registry: &mut Registry, go: GoNames, settings: &Settings) -> Self {
        let resource_group = settings.resource_group.to_lowercase();
        let operations = Self { go, resource_group, subscription: settings.subscription.clone(), ..Self::default() };
        let durations = operations.durations.clone();
        registry.register_with_unit(OPERATIONS.stem, OPERATIONS.help, Unit::Seconds, durations);
        // Without labels, a series is there before the first Node.
        operations.go.show(&TAINT_REMOVAL, &[]);
        operations.go.show(&INITIAL_SYNC, &[]);
        operations
    }

    pub(crate) fn ended(&self, operation: &Operation<'_>) {
        let took = operation.took.as_secs_f64();
        let outcome = if operation.succeeded { "succeeded" } else { "failed" };
        self.durations.get_or_create(&Labels { operation: operation.what.as_str(), outcome }).observe(took);
        if !self.go.is_on() {
            return;
        }
        let (request, reconciliation) = operation.what.as_go();
        let source = self.sources.of(operation.source);
        let labels = [request, &self.resource_group, &self.subscription, &source];
        self.go.observe(&OPERATION_DURATION, &labels, took);
        if !operation.succeeded {
            self.go.count(&OPERATION_FAILURES, &labels);
        }
        if let Some(name) = reconciliation {
            let features = operation.features.0.map(|feature| if feature { "true" } else { "false" });
            let labels = [&[name][..], &features, &METER_OF_MANAGER].concat();
            self.go.observe(&RECONCILE_DURATION, &labels, took);
            if !operation.succeeded {
                self.go.count(&RECONCILE_ERRORS, &labels);
            }
        }
    }

    /// A Node of this age has been initialised.
    pub(crate) fn initialised(&self, age: Duration) {
        self.go.observe(&TAINT_REMOVAL, &[], age.as_secs_f64());
        self.go.observe(&INITIAL_SYNC, &[], age.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use lazuli_engine::{Refusal, Waiting};
    use lazuli_model::{ArmId, fault::Fault};

    use super::*;

    fn page(go: &GoNames) -> String {
        let mut page = String::new();
        go.write(&mut page);
        page
    }

    fn on() -> (Operations, GoNames) {
        let go = GoNames::on();
        let operations = Operations {
            go: go.clone(),
            resource_group: "group".to_owned(),
            subscription: "s".to_owned(),
            ..Operations::default()
        };
        (operations, go)
    }

    #[test]
    fn a_report_ends_an_operation_or_says_that_it_goes_on() {
        let key = || Key::PublicIp(ArmId::resource("s", "g", "Microsoft.Network/publicIPAddresses", "ip").unwrap());
        use What::{DeleteService, EnsureService};
        for (reason, is_gone, expected) in [
            (Reason::Ensured, false, Some((EnsureService, true))),
            (Reason::Deleted, true, Some((DeleteService, true))),
            (Reason::Invalid(vec![]), false, Some((EnsureService, false))),
            (Reason::Retry(key(), Fault::Forbidden), true, Some((DeleteService, false))),
            (Reason::Refused(key(), Refusal::Azure(Fault::Invalid)), false, Some((EnsureService, false))),
            (Reason::Held(key()), false, None),
            (Reason::Waits(key(), Waiting::Write), true, None),
            (Reason::Unread(vec![]), true, None),
        ] {
            assert_eq!(ended(&reason, is_gone), expected, "{reason:?}");
        }
    }

    #[test]
    fn a_write_of_a_route_table_is_an_operation_for_each_route() {
        let (range, next_hop) = ("10.244.1.0/24".parse().unwrap(), IpAddr::from(Ipv4Addr::new(10, 0, 0, 4)));
        let edits = [
            Edit::Create,
            Edit::PutRoute { name: "node-1____10244100024".to_owned(), range, next_hop },
            Edit::RemoveRoute("node-2".to_owned()),
        ];
        let expected = [(What::CreateRoute, "node-1".to_owned()), (What::DeleteRoute, "node-2".to_owned())];
        assert_eq!(of_routes(&edits), expected);
    }

    #[test]
    fn one_measured_operation_counts_under_our_name_and_under_those_of_the_go_manager() {
        let (operations, go) = on();
        let mut features = Features::default();
        features.0[3] = true;
        let what = What::EnsureService;
        let took = Duration::from_secs(3);
        operations.ended(&Operation { what, source: "shop/web", succeeded: true, took, features });
        operations.ended(&Operation { what, source: "shop/web", succeeded: false, took, features });
        let route = Operation { what: What::CreateRoute, source: "node-1", succeeded: true, took, features };
        operations.ended(&route);
        operations.initialised(Duration::from_secs(20));
        let page = page(&go);
        let of =
            r#"{request="services_ensure_loadbalancer",resource_group="group",subscription_id="s",source="shop/web"}"#;
        for line in [
            format!("cloudprovider_azure_op_duration_seconds_count{of} 2"),
            format!("cloudprovider_azure_op_failure_count{of} 1"),
            "node_controller_initial_node_sync_delay_seconds_bucket{le=\"64\"} 1".to_owned(),
        ] {
            assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
        }
        let reconciled: Vec<&str> =
            page.lines().filter(|line| line.starts_with("provider_reconcile_duration_seconds_count")).collect();
        assert!(
            matches!(reconciled[..], [one] if one.contains("internal_load_balancer=\"true\"") && one.ends_with(" 2"))
        );
        let mut registry = Registry::default();
        registry.register_with_unit(OPERATIONS.stem, OPERATIONS.help, Unit::Seconds, operations.durations);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for (operation, outcome) in
            [("ensure_service", "succeeded"), ("ensure_service", "failed"), ("create_route", "succeeded")]
        {
            let line = format!("{}_count{{operation=\"{operation}\",outcome=\"{outcome}\"}} 1", OPERATIONS.name());
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn names_of_services_make_a_bounded_number_of_series() {
        let (operations, go) = on();
        for number in 0..10 * MOST_SOURCES {
            let source = format!("shop/{number}");
            let (what, took, features) = (What::EnsureService, Duration::ZERO, Features::default());
            operations.ended(&Operation { what, source: &source, succeeded: true, took, features });
        }
        let page = page(&go);
        let series = page.lines().filter(|line| line.starts_with("cloudprovider_azure_op_duration_seconds_count"));
        assert_eq!(series.count(), MOST_SOURCES + 1);
        assert!(page.contains(
            "request=\"services_ensure_loadbalancer\",resource_group=\"group\",subscription_id=\"s\",source=\"other\""
        ));
    }
}
