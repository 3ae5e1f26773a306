//! The table of keys names what the parser reads.

use std::collections::BTreeSet;

use lazuli_model::reference::{Comparison, UsedBy};

use super::*;

/// Every key that reading a document with all mappings and lists asks for.
fn asked() -> BTreeSet<String> {
    let selector = json!({"matchLabels": {"a": "b"}});
    let document = with(json!({
        "multipleStandardLoadBalancerConfigurations": [{"name": "n", "primaryVMSet": "s", "nodeSelector": selector}],
        "auxiliaryTokenProvider": {"vaultName": "v"}, "loadBalancerRateLimit": {"cloudProviderRateLimit": true},
    }));
    let document = Document::parse("azure.json", document.to_string().as_bytes()).expect("parses");
    let report = RefCell::new(Report::default());
    let _ = build::config(reader([&document], &report), &Environment::new(&BTreeMap::new()));
    let keys = report.into_inner().asked.into_iter().map(|key| key.replace("[0]", "[]"));
    // Selectors are Kubernetes' own, and the keys of a limit are those of all requests.
    keys.filter(|key| !key.contains("Selector.") && !key.starts_with("loadBalancerRateLimit.")).collect()
}

#[test]
fn the_table_has_the_keys_that_are_read_and_no_others() {
    let table: BTreeSet<String> = KEYS.iter().map(|row| row.key.to_owned()).collect();
    let asked = asked();
    assert_eq!(table.len(), KEYS.len(), "each key is there once");
    assert_eq!(asked.difference(&table).collect::<Vec<_>>(), Vec::<&String>::new(), "are read and in no row");
    assert_eq!(table.difference(&asked).collect::<Vec<_>>(), Vec::<&String>::new(), "are in the table and not read");
}

#[test]
fn a_row_says_who_uses_the_key_or_why_no_process_does() {
    for row in KEYS {
        let is_used = is_used_by_all(row.key) || row.used_by != UsedBy::default();
        let has_no_use = matches!(row.go, Comparison::NoEffect(_));
        // What is refused for another tenant does nothing for the cluster's own.
        let is_of_tenants = OF_OTHER_TENANTS.iter().any(|key| row.key.starts_with(key));
        assert_eq!(is_used, !has_no_use && !is_of_tenants, "{}", row.key);
        assert!(row.meaning.ends_with('.') && !row.meaning.contains('|'), "{}", row.key);
        assert!(!row.values.is_empty() && !row.values.contains('|'), "{}", row.key);
        assert!(row.go.reason().is_none_or(|why| !why.ends_with('.') && !why.contains('|')), "{}", row.key);
    }
    let sorted = KEYS.is_sorted_by_key(|row| row.key.to_lowercase());
    assert!(sorted, "the keys are sorted by name");
}

#[test]
fn the_default_of_a_key_is_what_an_absent_one_counts_as() {
    let config = load(&json!({
        "tenantId": TENANT, "subscriptionId": SUBSCRIPTION, "resourceGroup": "g", "location": "l",
        "useManagedIdentityExtension": true,
    }))
    .expect("loads");
    let default = |key: &str| KEYS.iter().find(|row| row.key == key).expect("is in the table").default.to_owned();
    let balancing = &config.load_balancing;
    assert_eq!(default("maximumLoadBalancerRuleCount"), balancing.maximum_rules.to_string());
    assert_eq!(default("clusterServiceSharedLoadBalancerHealthProbePort"), balancing.shared_probe_port.to_string());
    assert_eq!(default("clusterServiceSharedLoadBalancerHealthProbePath"), balancing.shared_probe_path);
    assert_eq!(default("excludeMasterFromStandardLB"), balancing.exclude_control_plane.to_string());
    assert_eq!(default("disableOutboundSNAT"), balancing.disable_outbound_snat.to_string());
    assert_eq!(default("cloudProviderBackoffRetries"), config.backoff.retries.to_string());
    assert_eq!(default("cloudProviderBackoffExponent"), config.backoff.exponent.to_string());
    assert_eq!(default("cloudProviderBackoffDuration"), config.backoff.duration.as_secs().to_string());
    assert_eq!(default("cloudProviderBackoffJitter"), format!("{:.1}", config.backoff.jitter));
    assert_eq!(default("cloudProviderRateLimitQPS"), config.rate_limits.default.read_per_second.to_string());
    assert_eq!(default("cloudProviderRateLimitBucket"), config.rate_limits.default.read_burst.to_string());
    assert_eq!(default("useInstanceMetadata"), config.cluster.use_instance_metadata.to_string());
    assert_eq!((balancing.sku, default("loadBalancerSku").as_str()), (LoadBalancerSku::Standard, "standard"));
    assert_eq!((config.cluster.vm_type, default("vmType").as_str()), (VmType::Vmss, "vmss"));
}
