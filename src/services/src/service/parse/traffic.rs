//! Rules and probes.

use lazuli_model::address::Family;

use super::Reader;
use crate::{
    ask::{
        Affinity, Mistake, PortProtocol, PrivateLinkAsk, ProbeAsk, ProbeProtocol, RuleAsk, TransportProtocol,
        names::{self, SHARED_PROBE},
    },
    service::{annotation::key, object::ServicePort},
};

const DEFAULT_IDLE_MINUTES: u16 = 4;
const DEFAULT_INTERVAL: u32 = 5;
const DEFAULT_COUNT: u32 = 2;
/// Azure wants interval times count below this (source: load balancer, probes).
const LONGEST_PROBING: u32 = 120;
const DEFAULT_PATH: &str = "/";
/// What kube-proxy answers on `healthCheckNodePort`.
const HEALTH_CHECK_PATH: &str = "/healthz";

pub(super) fn read(
    read: &mut Reader,
    family: Family,
    floating_ip: bool,
    private_link: Option<&PrivateLinkAsk>,
) -> (Vec<RuleAsk>, Vec<ProbeAsk>) {
    let has_high_availability = read.annotations.flag(key::HA_PORTS);
    // Rules of IPv6 on the internal side cannot have a floating IP: Azure does not take secondary addresses of NICs there.
    let is_floating = !(read.reads_as_internal && family == Family::V6);
    let common = common_probe(read, family, private_link);
    if has_high_availability && read.reads_as_internal && read.is_standard() {
        return high_availability(read, family, is_floating, common);
    }
    if has_high_availability {
        read.annotations.note_no_effect(key::HA_PORTS, "it needs an internal Service and Standard load balancers");
    }
    let (mut rules, mut probes): (Vec<RuleAsk>, Vec<ProbeAsk>) = (vec![], vec![]);
    for port in &read.object.ports {
        if read.annotations.port_flag(key::PORT_NO_RULE, port.port) {
            continue;
        }
        if port.protocol == PortProtocol::Sctp && !(read.reads_as_internal && read.is_standard()) {
            read.annotations.mistakes.push(Mistake::field(
                "spec.ports[].protocol",
                "SCTP",
                "SCTP needs an internal Service and Standard load balancers",
            ));
            continue;
        }
        let name = rule_name(read, port.protocol, port.port, family);
        let to_node_port = !is_floating || !floating_ip;
        if to_node_port && port.node_port == 0 {
            read.annotations.mistakes.push(Mistake::field(
                "spec.ports[].nodePort",
                0,
                format!(
                    "port {} needs a node port since it has no floating IP; set spec.allocateLoadBalancerNodePorts to true",
                    port.port
                ),
            ));
        }
        let mut used = None;
        if !read.annotations.port_flag(key::PORT_NO_PROBE, port.port) {
            used = match port_probe(read, port, &name, common.as_ref()) {
                Some(own) => {
                    probes.push(own);
                    Some(name.clone())
                }
                None => common.as_ref().map(|common| {
                    if !probes.contains(common) {
                        probes.push(common.clone());
                    }
                    common.name.clone()
                }),
            };
        }
        let protocol = match port.protocol {
            PortProtocol::Tcp => TransportProtocol::Tcp,
            PortProtocol::Udp => TransportProtocol::Udp,
            PortProtocol::Sctp => TransportProtocol::All,
        };
        let resets = protocol == TransportProtocol::Tcp && read.is_standard();
        rules.push(RuleAsk {
            name,
            protocol,
            frontend_port: port.port,
            backend_port: if to_node_port { port.node_port } else { port.port },
            probe: used,
            floating_ip: !to_node_port,
            tcp_reset: resets.then(|| !read.annotations.flag(key::DISABLE_TCP_RESET)),
            ..template(read)
        });
    }
    (rules, probes)
}

/// What all rules of a Service share.
fn template(read: &mut Reader) -> RuleAsk {
    let minutes = read.annotations.number(key::IDLE_TIMEOUT);
    RuleAsk {
        name: String::new(),
        protocol: TransportProtocol::All,
        frontend_port: 0,
        backend_port: 0,
        probe: None,
        floating_ip: true,
        idle_timeout_minutes: minutes.and_then(|minutes| minutes.try_into().ok()).unwrap_or(DEFAULT_IDLE_MINUTES),
        tcp_reset: None,
        affinity: if read.object.is_client_ip_affine { Affinity::ClientIp } else { Affinity::None },
        disable_outbound_snat: read.is_standard() && read.settings.disable_outbound_snat,
    }
}

fn rule_name(read: &Reader, protocol: PortProtocol, port: u16, family: Family) -> String {
    names::rule(&read.base, read.named_subnet(), protocol, port, read.object.is_dual_stack(), family)
}

/// One rule for all ports: named after the first port, probed as the first port that has a probe.
fn high_availability(
    read: &mut Reader,
    family: Family,
    is_floating: bool,
    common: Option<ProbeAsk>,
) -> (Vec<RuleAsk>, Vec<ProbeAsk>) {
    let Some(first) = read.object.ports.first() else { return (vec![], vec![]) };
    let name = rule_name(read, first.protocol, first.port, family);
    let probe = common.or_else(|| {
        let ports = &read.object.ports;
        ports.iter().find_map(|port| port_probe(read, port, &name, None))
    });
    let rule = RuleAsk {
        name,
        probe: probe.as_ref().map(|probe| probe.name.clone()),
        floating_ip: is_floating,
        tcp_reset: Some(!read.annotations.flag(key::DISABLE_TCP_RESET)),
        ..template(read)
    };
    (vec![rule], probe.into_iter().collect())
}

/// The probe that all ports of a Service use: that of `externalTrafficPolicy: Local`, or the one of all Services.
fn common_probe(read: &mut Reader, family: Family, private_link: Option<&PrivateLinkAsk>) -> Option<ProbeAsk> {
    if !read.object.is_local {
        return read.settings.shared_probe.as_ref().map(|shared| ProbeAsk {
            name: SHARED_PROBE.to_owned(),
            protocol: ProbeProtocol::Http,
            port: shared.port,
            path: Some(shared.path.clone()),
            interval_seconds: DEFAULT_INTERVAL,
            threshold: DEFAULT_COUNT,
        });
    }
    // kube-proxy does not speak the proxy protocol that a private link service would put in front.
    let is_kept = read.frozen.private_link
        && read.annotations.text(key::PLS_PROXY_PROTOCOL).is_some_and(|text| text.eq_ignore_ascii_case("true"));
    if is_kept || private_link.is_some_and(|link| link.proxy_protocol) {
        return None;
    }
    let port = read.object.health_check_node_port;
    if port == 0 {
        read.annotations.mistakes.push(Mistake::field(
            "spec.healthCheckNodePort",
            0,
            "externalTrafficPolicy: Local needs the node port that the API server allocates",
        ));
        return None;
    }
    let (interval_seconds, threshold) = rhythm(read, port);
    Some(ProbeAsk {
        name: rule_name(read, PortProtocol::Tcp, port, family),
        protocol: ProbeProtocol::Http,
        port,
        path: Some(HEALTH_CHECK_PATH.to_owned()),
        interval_seconds,
        threshold,
    })
}

/// Interval and count of the probe of a port.
fn rhythm(read: &mut Reader, port: u16) -> (u32, u32) {
    let interval = read.annotations.port_number(key::PORT_PROBE_INTERVAL, port, key::PROBE_INTERVAL);
    let count = read.annotations.port_number(key::PORT_PROBE_COUNT, port, key::PROBE_COUNT);
    let (seconds, number) = (
        interval.as_ref().map_or(DEFAULT_INTERVAL, |(seconds, _)| *seconds),
        count.as_ref().map_or(DEFAULT_COUNT, |(number, _)| *number),
    );
    if seconds * number >= LONGEST_PROBING
        && let Some((_, key)) = interval.or(count)
    {
        let message = format!(
            "{number} probes every {seconds} s take {} s; allowed is less than {LONGEST_PROBING} s",
            seconds * number
        );
        read.annotations.refuse(&key, message);
    }
    (seconds, number)
}

/// The probe of a port's own: none for UDP and SCTP, none where the common one serves.
fn port_probe(read: &mut Reader, port: &ServicePort, name: &str, common: Option<&ProbeAsk>) -> Option<ProbeAsk> {
    if port.protocol != PortProtocol::Tcp || common.is_some_and(|common| common.name == SHARED_PROBE) {
        return None;
    }
    let named = read.annotations.port_text(key::PORT_PROBE_PORT, port.port);
    if named.is_none() && common.is_some() {
        return None;
    }
    let at = match named {
        None => port.node_port,
        Some((text, key)) => probed_port(read, text, &key)?,
    };
    if at == 0 {
        read.annotations.mistakes.push(Mistake::field(
            "spec.ports[].nodePort",
            0,
            format!(
                "the probe of port {} needs a node port; set spec.allocateLoadBalancerNodePorts to true, or annotation \
                 {} to true",
                port.port,
                key::PORT_NO_PROBE.replace("{port}", &port.port.to_string())
            ),
        ));
        return None;
    }
    let protocol = probe_protocol(read, port);
    let path = (protocol != ProbeProtocol::Tcp).then(|| {
        let own = read.annotations.port_text(key::PORT_PROBE_PATH, port.port).map(|(path, _)| path);
        own.or_else(|| read.annotations.raw(key::PROBE_PATH)).unwrap_or(DEFAULT_PATH).to_owned()
    });
    let (interval_seconds, threshold) = rhythm(read, port.port);
    Some(ProbeAsk { name: name.to_owned(), protocol, port: at, path, interval_seconds, threshold })
}

/// The port that `health-probe_port` means: the node port of a port of the Service, by name or number, or itself.
fn probed_port(read: &mut Reader, text: &str, key: &str) -> Option<u16> {
    let by_name = read.object.ports.iter().find(|port| !port.name.is_empty() && port.name.eq_ignore_ascii_case(text));
    if let Some(port) = by_name {
        return Some(port.node_port);
    }
    match text.trim().parse::<u16>() {
        Ok(number) if number > 0 => {
            let by_number = read.object.ports.iter().find(|port| port.port == number);
            Some(by_number.map_or(number, |port| port.node_port))
        }
        _ => {
            read.annotations.refuse_by_table(key);
            None
        }
    }
}

/// The protocol of a probe: the port's annotation, then its `appProtocol`, then the Service's annotation, then TCP. An
/// `appProtocol` that no probe speaks means TCP.
fn probe_protocol(read: &mut Reader, port: &ServicePort) -> ProbeProtocol {
    let own = read.annotations.port_text(key::PORT_PROBE_PROTOCOL, port.port);
    let (text, key) = match (own, &port.app_protocol) {
        (Some((text, key)), _) => (text, Some(key)),
        (None, Some(protocol)) => (protocol.as_str(), None),
        (None, None) => match read.annotations.raw(key::PROBE_PROTOCOL) {
            Some(text) => (text, Some(key::PROBE_PROTOCOL.to_owned())),
            None => return ProbeProtocol::Tcp,
        },
    };
    match text.trim().to_ascii_lowercase().as_str() {
        "http" => ProbeProtocol::Http,
        "https" if read.is_standard() => ProbeProtocol::Https,
        "https" => {
            if let Some(key) = key {
                read.annotations.note_no_effect(&key, "probes of Basic load balancers do not speak HTTPS; TCP is used");
            }
            ProbeProtocol::Tcp
        }
        "tcp" => ProbeProtocol::Tcp,
        _ => {
            if let Some(key) = key {
                read.annotations.refuse_by_table(&key);
            }
            ProbeProtocol::Tcp
        }
    }
}
