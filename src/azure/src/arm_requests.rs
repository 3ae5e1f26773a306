//! Requests to the resource manager under the Go manager's names.

use std::time::Duration;

use lazuli_telemetry::{
    go_names::{Family, GoNames, METER_OF_MANAGER},
    labels::Bounded,
};

use crate::error::Verb;

/// Source of the names, labels and buckets: a scrape of the Go manager v1.35.3, and its client's source.
const DURATION: Family = Family::histogram(
    "arm_request_duration_seconds",
    "How long requests to Azure Resource Manager took; the operation that one begins is not waited for",
    &[
        "subscription_id",
        "resource_group",
        "resource",
        "method",
        "otel_scope_name",
        "otel_scope_schema_url",
        "otel_scope_version",
    ],
    &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 600.0],
);
const ERRORS: Family = Family::counter(
    "arm_request_errors_counter_total",
    "Requests to Azure Resource Manager that were refused, or that no answer came to",
    &[
        "subscription_id",
        "resource_group",
        "resource",
        "method",
        "status_code",
        "error_code",
        "otel_scope_name",
        "otel_scope_schema_url",
        "otel_scope_version",
    ],
);

/// The families of the Go manager that this crate writes.
pub const GO_FAMILIES: &[&Family] = &[&DURATION, &ERRORS];

/// The most resource groups that have series of their own: those of the cloud configuration are six at most.
const MOST_GROUPS: usize = 16;
/// The most codes of Azure's errors that have series of their own.
const MOST_CODES: usize = 64;

/// A request that went out, and what became of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent<'a> {
    pub(crate) verb: Verb,
    /// The path, without the query.
    pub(crate) path: &'a str,
    /// The HTTP status of the answer; `None` without one.
    pub(crate) status: Option<u16>,
    /// Azure's `error.code`; empty where the request was not refused.
    pub(crate) code: &'a str,
    /// From the sending to the whole answer.
    pub(crate) took: Duration,
}

/// What the path of a resource, or of a list of them, says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Target<'a> {
    pub(crate) subscription: &'a str,
    resource_group: &'a str,
    /// Its type, without the provider.
    kind: &'a str,
    /// The type below it: of its child, or an action.
    child: &'a str,
    /// How many segments come after the provider: an even number names one resource.
    segments: usize,
}

impl<'a> Target<'a> {
    pub(crate) fn of(path: &'a str) -> Self {
        let mut target = Self::default();
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        while let Some(name) = segments.next() {
            let is = |what: &str| name.eq_ignore_ascii_case(what);
            if is("subscriptions") {
                target.subscription = segments.next().unwrap_or_default();
            } else if is("resourceGroups") {
                target.resource_group = segments.next().unwrap_or_default();
            } else if is("providers") {
                let rest: Vec<&str> = segments.skip(1).collect();
                target.kind = rest.first().copied().unwrap_or_default();
                target.child = rest.get(2).copied().unwrap_or_default();
                target.segments = rest.len();
                break;
            }
        }
        target
    }

    /// What the Go manager calls the resource; `None` for what it does not count.
    fn resource(&self) -> Option<&'static str> {
        let is = |child: &str| self.child.eq_ignore_ascii_case(child);
        let kind = self.kind.to_ascii_lowercase();
        Some(match kind.as_str() {
            "availabilitysets" => "AvailabilitySet",
            "disks" => "Disk",
            "snapshots" => "Snapshot",
            "virtualmachines" => "VirtualMachine",
            "virtualmachinescalesets" if is("virtualMachines") => "VirtualMachineScaleSetVM",
            "virtualmachinescalesets" => "VirtualMachineScaleSet",
            "loadbalancers" if is("backendAddressPools") => "BackendAddressPool",
            "loadbalancers" => "LoadBalancer",
            "networksecuritygroups" => "SecurityGroup",
            "publicipaddresses" => "PublicIPAddress",
            "publicipprefixes" => "PublicIPPrefix",
            "networkinterfaces" => "Interface",
            "privatelinkservices" => "PrivateLinkService",
            "routetables" => "RouteTable",
            "virtualnetworks" if is("subnets") => "Subnet",
            "virtualnetworks" => "VirtualNetwork",
            "storageaccounts" if is("fileServices") => "FileShare",
            "storageaccounts" => "Account",
            _ => return None,
        })
    }

    /// What the Go manager calls the request.
    fn method(&self, verb: Verb) -> &'static str {
        match verb {
            Verb::Get if self.segments % 2 == 1 => "list",
            Verb::Get => "get",
            Verb::Put => "create_or_update",
            Verb::Patch => "update",
            Verb::Delete => "delete",
            Verb::Post if self.child.eq_ignore_ascii_case("listKeys") => "listKeys",
            Verb::Post => "action",
        }
    }
}

/// What shows requests under the Go manager's names.
#[derive(Debug, Clone)]
pub(crate) struct ArmRequests {
    go: GoNames,
    groups: Bounded,
    codes: Bounded,
}

impl ArmRequests {
    pub(crate) fn new(go: GoNames) -> Self {
        Self { go, groups: Bounded::new(MOST_GROUPS), codes: Bounded::new(MOST_CODES) }
    }

    /// Counts a request. `subscription` is bounded already.
    pub(crate) fn count(&self, sent: &Sent<'_>, target: &Target<'_>, subscription: &str) {
        let Some(resource) = target.resource().filter(|_| self.go.is_on()) else { return };
        let group = self.groups.of(&target.resource_group.to_lowercase());
        let labels = [subscription, &group, resource, target.method(sent.verb)];
        self.go.observe(&DURATION, &[&labels[..], &METER_OF_MANAGER].concat(), sent.took.as_secs_f64());
        if !matches!(sent.status, Some(200..=399)) {
            let status = sent.status.map(|status| status.to_string()).unwrap_or_default();
            let code = self.codes.of(sent.code);
            self.go.count(&ERRORS, &[&labels[..], &[&status, &code], &METER_OF_MANAGER].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "/subscriptions/s/resourceGroups/Group/providers/";

    #[test]
    fn a_path_and_a_verb_are_what_the_go_manager_calls_them() {
        for (verb, path, expected) in [
            (Verb::Get, "Microsoft.Network/loadBalancers", ("LoadBalancer", "list")),
            (Verb::Get, "Microsoft.Network/loadBalancers/a", ("LoadBalancer", "get")),
            (Verb::Put, "microsoft.network/LOADBALANCERS/a", ("LoadBalancer", "create_or_update")),
            (Verb::Get, "Microsoft.Network/virtualNetworks/a/subnets/b", ("Subnet", "get")),
            (Verb::Delete, "Microsoft.Network/publicIPAddresses/a", ("PublicIPAddress", "delete")),
            (
                Verb::Get,
                "Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines/1",
                ("VirtualMachineScaleSetVM", "get"),
            ),
            (
                Verb::Get,
                "Microsoft.Compute/virtualMachineScaleSets/a/virtualMachines",
                ("VirtualMachineScaleSetVM", "list"),
            ),
            (Verb::Post, "Microsoft.Storage/storageAccounts/a/listKeys", ("Account", "listKeys")),
        ] {
            let path = format!("{GROUP}{path}");
            let target = Target::of(&path);
            assert_eq!((target.resource(), target.method(verb)), (Some(expected.0), expected.1), "{path}");
            assert_eq!((target.subscription, target.resource_group), ("s", "Group"), "{path}");
        }
        for path in
            ["/subscriptions/s/providers/Microsoft.Compute/locations/e/operations/1", "/metadata/endpoints", "/"]
        {
            assert_eq!(Target::of(path).resource(), None, "{path}");
        }
    }

    #[test]
    fn refused_requests_and_those_without_an_answer_are_errors_and_names_are_bounded() {
        let go = GoNames::on();
        let requests = ArmRequests::new(go.clone());
        let count = |path: &str, status, code: &str| {
            let sent = Sent { verb: Verb::Put, path, status, code, took: Duration::from_millis(300) };
            requests.count(&sent, &Target::of(path), "s");
        };
        let path = format!("{GROUP}Microsoft.Network/loadBalancers/a");
        count(&path, Some(201), "");
        count(&path, Some(409), "Conflict");
        count(&path, None, "");
        for number in 0..1_000 {
            let code = format!("Code{number}");
            let path = format!("/subscriptions/s/resourceGroups/g{number}/providers/Microsoft.Network/routeTables/a");
            count(&path, Some(400), &code);
        }
        let mut page = String::new();
        go.write(&mut page);
        let labels = r#"subscription_id="s",resource_group="group",resource="LoadBalancer",method="create_or_update""#;
        let scope = r#"otel_scope_name="cloud-provider-azure",otel_scope_schema_url="",otel_scope_version="""#;
        for line in [
            format!("arm_request_duration_seconds_count{{{labels},{scope}}} 3"),
            format!(
                "arm_request_errors_counter_total{{{labels},status_code=\"409\",error_code=\"Conflict\",{scope}}} 1"
            ),
            format!("arm_request_errors_counter_total{{{labels},status_code=\"\",error_code=\"\",{scope}}} 1"),
        ] {
            assert!(page.lines().any(|there| there == line), "{line} is not in\n{page}");
        }
        let series = page.lines().filter(|line| line.starts_with("arm_request_duration_seconds_count")).count();
        assert!(series <= MOST_GROUPS + 2, "{series}");
    }
}
