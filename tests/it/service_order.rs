//! The order of writes, with the real controller: after each step of Azure, each Service that does not change is reached,
//! and no source is let in that no spec admits.
//!
//! # Gaps
//!
//! Azure or the names of the Go manager force these. Each is two writes long at most.
//!
//! | change | the Service is not reached | why |
//! |---|---|---|
//! | a public Service gets another public IP | from the write of the load balancer to the status | the frontend keeps its name, so one write replaces its public IP; the status is the only record of the security rules for the former address, so these go before the status changes |
//! | an internal Service gets another private address | the same | the same |
//!
//! Until the second write ends, the security group still admits the former address.
//!
//! # Not judged
//!
//! | case | what happens |
//! |---|---|
//! | the named private address of a Service changes while everything else is denied | the virtual network reaches the new address until the security group is written |
//! | a Service that denies everything else while floating IP is off | its denial names the nodes, and so closes the ports of other Services there |

use serde_json::{Value, json};

use super::service_rig::Judged;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
const DENY: (&str, &str) = ("azure-deny-all-except-load-balancer-source-ranges", "true");
const NODE_PORTS: (&str, &str) = ("azure-disable-load-balancer-floating-ip", "true");

/// Pools that list addresses, and pools that interfaces name.
const POOLS: [&str; 2] = ["nodeIP", "nodeIPConfiguration"];

fn pools(kind: &str) -> Vec<(&'static str, Value)> {
    vec![("loadBalancerBackendPoolConfigurationType", json!(kind))]
}

fn at(address: &str) -> (&'static str, &str) {
    ("azure-load-balancer-ipv4", address)
}

#[tokio::test(start_paused = true)]
async fn services_of_each_kind_come_and_go() {
    for kind in POOLS {
        let rig = Judged::start(&pools(kind)).await;
        let running = rig.controller("one");
        rig.service("steady", &[80, 443], &[], &[]);
        rig.rest().await;
        rig.service("public", &[80], &[], &[]);
        rig.service("ranges", &[8080], &["203.0.113.0/24"], &[]);
        rig.service("internal", &[80], &[], &[INTERNAL]);
        rig.service("closed", &[81], &["10.9.0.0/16"], &[INTERNAL, DENY]);
        rig.service("tagged", &[82], &[], &[("azure-allowed-service-tags", "AzureCloud")]);
        rig.service("ports", &[83], &["203.0.113.0/24"], &[NODE_PORTS]);
        rig.rest().await;
        for name in ["public", "ranges", "internal", "closed", "tagged", "ports"] {
            rig.delete(name);
        }
        rig.rest().await;
        running.stop().await;
        rig.end(kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_changes_its_side_and_back() {
    for kind in POOLS {
        let rig = Judged::start(&pools(kind)).await;
        let running = rig.controller("one");
        rig.service("steady", &[80], &[], &[]);
        rig.service("inner", &[80], &[], &[INTERNAL]);
        rig.service("web", &[81], &[], &[]);
        rig.rest().await;
        rig.service("web", &[81], &[], &[INTERNAL]);
        rig.rest().await;
        rig.service("web", &[81], &["203.0.113.0/24"], &[]);
        rig.rest().await;
        rig.service("web", &[81], &["10.9.0.0/16"], &[INTERNAL, DENY]);
        rig.rest().await;
        rig.service("web", &[81], &[], &[]);
        rig.rest().await;
        running.stop().await;
        rig.end(kind).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_public_service_moves_to_an_address_of_the_user_and_back() {
    let rig = Judged::start(&[]).await;
    let own = rig.public_ip("own").await;
    let running = rig.controller("one");
    rig.service("steady", &[80], &[], &[]);
    rig.service("web", &[81], &[], &[]);
    rig.rest().await;
    rig.service("web", &[81], &[], &[at(&own)]);
    rig.allow_gap("web", 2);
    rig.rest().await;
    assert_eq!(rig.addresses("web"), std::slice::from_ref(&own));
    rig.service("web", &[81], &[], &[]);
    rig.allow_gap("web", 2);
    rig.rest().await;
    assert_ne!(rig.addresses("web"), [own]);
    running.stop().await;
    rig.end("the user's public IP").await;
}

#[tokio::test(start_paused = true)]
async fn an_internal_service_changes_its_address() {
    let rig = Judged::start(&[]).await;
    let running = rig.controller("one");
    rig.service("steady", &[80], &[], &[INTERNAL]);
    rig.service("web", &[81], &["10.9.0.0/16"], &[INTERNAL]);
    rig.rest().await;
    for address in [Some("10.240.1.1"), Some("10.240.1.2"), None] {
        let annotations: Vec<_> = [INTERNAL].into_iter().chain(address.map(at)).collect();
        rig.service("web", &[81], &["10.9.0.0/16"], &annotations);
        rig.allow_gap("web", 2);
        rig.rest().await;
        assert!(address.is_none_or(|address| rig.addresses("web") == [address]));
    }
    running.stop().await;
    rig.end("private addresses").await;
}

#[tokio::test(start_paused = true)]
async fn ports_and_ranges_change() {
    for annotations in [&[][..], &[INTERNAL], &[INTERNAL, DENY], &[NODE_PORTS], &[INTERNAL, NODE_PORTS]] {
        let rig = Judged::start(&[]).await;
        let running = rig.controller("one");
        rig.service("steady", &[80], &[], annotations);
        rig.service("web", &[80], &["203.0.113.0/24", "10.9.0.0/16"], annotations);
        rig.rest().await;
        rig.service("web", &[80, 443], &["203.0.113.0/24", "10.9.0.0/16"], annotations);
        rig.rest().await;
        rig.service("web", &[443], &["192.0.2.0/24", "10.8.0.0/16"], annotations);
        rig.rest().await;
        rig.service("web", &[443, 444], &[], annotations);
        rig.rest().await;
        rig.service("web", &[80], &["203.0.113.0/24", "10.9.0.0/16"], annotations);
        rig.rest().await;
        rig.delete("web");
        rig.rest().await;
        running.stop().await;
        rig.end(&format!("{annotations:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn services_share_an_address_and_the_first_of_them_goes() {
    for side in [None, Some(INTERNAL)] {
        let rig = Judged::start(&[]).await;
        let running = rig.controller("one");
        rig.service("first", &[80], &[], &side.into_iter().collect::<Vec<_>>());
        rig.rest().await;
        let shared = rig.addresses("first").remove(0);
        let second: Vec<_> = side.into_iter().chain([at(&shared)]).collect();
        rig.service("second", &[81], &["203.0.113.0/24", "10.9.0.0/16"], &second);
        rig.service("third", &[82], &[], &second);
        rig.rest().await;
        assert_eq!(rig.addresses("second"), std::slice::from_ref(&shared));
        rig.delete("first");
        rig.rest().await;
        assert_eq!(rig.addresses("second"), [shared]);
        rig.delete("third");
        rig.rest().await;
        rig.delete("second");
        rig.rest().await;
        running.stop().await;
        rig.end("a shared address").await;
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_join_and_leave() {
    for kind in POOLS {
        let rig = Judged::start(&pools(kind)).await;
        let running = rig.controller("one");
        rig.service("web", &[80], &[], &[]);
        rig.service("inner", &[82], &["10.9.0.0/16"], &[INTERNAL, DENY]);
        rig.service("ports", &[83], &["203.0.113.0/24"], &[NODE_PORTS]);
        rig.rest().await;
        rig.node(2);
        rig.rest().await;
        rig.node(3);
        rig.delete_node(0);
        rig.rest().await;
        rig.delete_node(1);
        rig.delete_node(2);
        rig.rest().await;
        rig.node(0);
        rig.rest().await;
        running.stop().await;
        rig.end(kind).await;
    }
}

/// The ranges and the annotations of a Service.
type Kind = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// Two load balancers, each for the Nodes with its label.
fn two() -> Vec<(&'static str, Value)> {
    let of = |name: &str| {
        json!({"name": name, "primaryVMSet": format!("set-of-{name}"), "allowServicePlacement": true,
            "nodeSelector": {"matchLabels": {"pool": name}}})
    };
    vec![("multipleStandardLoadBalancerConfigurations", json!([of("one"), of("two")]))]
}

#[tokio::test(start_paused = true)]
async fn a_node_moves_between_load_balancers() {
    let rig = Judged::start(&two()).await;
    for (at, pool) in ["one", "one", "two", "two"].into_iter().enumerate() {
        rig.node(u8::try_from(at).unwrap());
        rig.label_node(at, pool);
    }
    let running = rig.controller("one");
    for (at, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        rig.service(name, &[80 + u16::try_from(at).unwrap()], &[], &[]);
    }
    rig.rest().await;
    rig.label_node(1, "two");
    rig.rest().await;
    rig.label_node(1, "one");
    rig.label_node(3, "one");
    rig.rest().await;
    running.stop().await;
    rig.end("a node moves").await;
}

#[tokio::test(start_paused = true)]
async fn a_service_deleted_after_any_write_leaves_nothing_behind() {
    let kinds: [Kind; 4] = [
        (&["203.0.113.0/24"], &[]),
        (&["10.9.0.0/16"], &[INTERNAL, DENY]),
        (&["203.0.113.0/24"], &[NODE_PORTS]),
        (&[], &[("azure-pip-name", "own")]),
    ];
    for (ranges, annotations) in kinds {
        for writes in 1.. {
            let rig = Judged::start(&[]).await;
            rig.public_ip("own").await;
            let running = rig.controller("one");
            rig.service("steady", &[80], &[], &[]);
            rig.service("inner", &[80], &[], &[INTERNAL]);
            rig.rest().await;
            let before = rig.writes();
            rig.service("web", &[81], ranges, annotations);
            let is_half_made = rig.until_writes(before + writes).await;
            rig.delete("web");
            rig.rest().await;
            running.stop().await;
            rig.end(&format!("{annotations:?} deleted after {writes} writes")).await;
            if !is_half_made {
                assert!(writes > 2, "{annotations:?} is made by {} writes", writes - 1);
                break;
            }
        }
    }
}
