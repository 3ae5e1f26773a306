//! Services on their whole way, from the object to the bodies that go to Azure.

mod access_lists;
mod bodies;
mod cases;
mod fuzz;
mod live;
mod mistakes;
mod take_over;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use lazuli_model::{ArmId, ServiceKey, address::Family, tags::TagPolicy};
use serde_json::{Value, json};

use super::{
    Existing, ServiceObject, annotation,
    object::ServicePort,
    parse,
    wants::{self, Former, Stage},
};
use crate::service::fixtures::*;
use crate::{
    ask::{AddressAsk, Ask, Denial, PortProtocol, Side},
    network::{Settings, load_balancer, public_ip, security_group, settings::LoadBalancerSku},
};

#[test]
fn a_service_that_is_silent_or_has_a_rule_for_all_ports_is_reached_at_its_node_ports() {
    use crate::ask::{SecurityProtocol::*, names::BaseName};
    let of = |name: &str, ports: &[u16]| {
        let ports = ports.iter().map(|number| port(PortProtocol::Tcp, *number)).collect();
        ServiceObject { key: ServiceKey::new("default", name, name.repeat(8)), ports, ..service() }
    };
    let base = |object: &ServiceObject| BaseName::of(&object.key).as_str().to_lowercase();
    let [plain, for_all, silent] = [of("aaaa", &[80]), of("bbbb", &[81, 82]), of("cccc", &[83])];
    let of_rules = BTreeMap::from([(base(&plain), [(Tcp, 30_080)].into()), (base(&for_all), [(Any, 0)].into())]);
    let all = wants::ports_at_nodes(of_rules, [&plain, &for_all, &silent], |key| *key == silent.key);
    let expected = [
        (base(&plain), BTreeSet::from([(Tcp, 30_080)])),
        (base(&for_all), BTreeSet::from([(Tcp, 30_081), (Tcp, 30_082), (Any, 0)])),
        (base(&silent), BTreeSet::from([(Tcp, 30_083)])),
    ];
    assert_eq!(all, expected.into());
}
