use super::*;

fn service() -> ServiceKey {
    ServiceKey::new("default", "web", "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
}

fn base() -> BaseName {
    BaseName::of(&service())
}

#[test]
fn a_base_name_is_an_a_and_the_uid_without_dashes_cut_to_32() {
    assert_eq!(base().as_str(), "a0a1b2c3d4e5f60718293a4b5c6d7e8f");
    assert_eq!(base().as_str().len(), 32);
    assert_eq!(BaseName::of(&ServiceKey::new("n", "s", "1-2")).as_str(), "a12");
}

#[test]
fn a_service_owns_names_that_begin_with_its_base_and_go_on_with_a_dash() {
    let base = base();
    assert!(base.owns("A0A1B2C3D4E5F60718293A4B5C6D7E8F-TCP-80"));
    assert!(base.owns("a0a1b2c3d4e5f60718293a4b5c6d7e8f"));
    assert!(!base.owns("a0a1b2c3d4e5f60718293a4b5c6d7e8f9"));
    assert!(!base.owns("a0a1b2c3"));
    assert_eq!(base_in("a0a1b2c3d4e5f60718293a4b5c6d7e8f-x-TCP-1"), Some(base.as_str()));
    assert_eq!(base_in("a0a1b2c3d4e5f60718293a4b5c6d7e8fx"), None);
    assert_eq!(base_in("aksOutboundRule-of-the-whole-cluster"), None);
}

#[test]
fn frontends_bear_the_subnet_and_the_family() {
    let base = base();
    assert_eq!(frontend(&base, None, false, Family::V6), base.as_str());
    assert_eq!(frontend(&base, None, true, Family::V4), base.as_str());
    assert_eq!(frontend(&base, None, true, Family::V6), format!("{base}-IPv6"));
    assert_eq!(frontend(&base, Some("apps"), true, Family::V6), format!("{base}-apps-IPv6"));
}

#[test]
fn a_frontend_that_is_cut_ends_in_a_letter_or_an_underscore() {
    let base = base();
    // 32 of the base, a dash, then 42 of the subnet.
    let digit = "s".repeat(41) + "1234";
    assert_eq!(frontend(&base, Some(&digit), false, Family::V4), format!("{base}-{}_", "s".repeat(41)));
    let letter = "s".repeat(60);
    assert_eq!(frontend(&base, Some(&letter), false, Family::V4), format!("{base}-{}", "s".repeat(42)));
    let whole = "s".repeat(41) + "1";
    assert_eq!(frontend(&base, Some(&whole), false, Family::V4), format!("{base}-{whole}"));
    assert_eq!(frontend(&base, Some(&letter), true, Family::V6).len(), 80);
}

#[test]
fn rules_cut_the_subnet_so_that_protocol_and_port_stay() {
    let base = base();
    assert_eq!(rule(&base, None, PortProtocol::Tcp, 80, false, Family::V4), format!("{base}-TCP-80"));
    assert_eq!(rule(&base, None, PortProtocol::Udp, 53, true, Family::V6), format!("{base}-UDP-53-IPv6"));
    let subnet = "n".repeat(60);
    let name = rule(&base, Some(&subnet), PortProtocol::Sctp, 65535, true, Family::V6);
    assert_eq!(name, format!("{base}-{}-SCTP-65535-IPv6", "n".repeat(31)));
    assert_eq!(name.len(), 80);
}

#[test]
fn pools_public_ips_and_load_balancers_are_named_after_the_cluster() {
    assert_eq!(pool("kubernetes", Family::V4), "kubernetes");
    assert_eq!(pool("kubernetes", Family::V6), "kubernetes-IPv6");
    assert_eq!(local_pool(&service(), Family::V4), "default-web");
    assert_eq!(local_pool(&service(), Family::V6), "default-web-ipv6");
    let base = base();
    assert_eq!(public_ip("kubernetes", &base, None, false, Family::V6), format!("kubernetes-{base}"));
    assert_eq!(public_ip("kubernetes", &base, None, true, Family::V6), format!("kubernetes-{base}-IPv6"));
    let long = public_ip("kubernetes", &base, Some(&"p".repeat(60)), true, Family::V6);
    assert_eq!(long, format!("kubernetes-{base}-{}-IPv6", "p".repeat(31)));
    assert_eq!(load_balancer("kubernetes", true), "kubernetes-internal");
    assert_eq!(load_balancer_stem("kubernetes-Internal"), "kubernetes");
    assert_eq!(load_balancer_stem("kubernetes"), "kubernetes");
    assert_eq!(private_link("afoo"), "pls-afoo");
}

#[test]
fn security_rules_are_named_by_the_digest_of_protocol_sources_and_ports() {
    // `printf 'Tcp_Internet_80' | md5sum` and so on: both lists in the order of texts.
    let internet = ["Internet".to_owned()];
    assert_eq!(
        allow_rule(SecurityProtocol::Tcp, Family::V4, &internet, &[80]),
        "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77"
    );
    let ranges = ["20.0.0.0/8".to_owned(), "10.0.0.0/8".to_owned()];
    assert_eq!(
        allow_rule(SecurityProtocol::Any, Family::V6, &ranges, &[80, 443, 8080]),
        "k8s-azure-lb_allow_IPv6_4ed1de4c8e08ca5211c45a377c90c22d"
    );
    assert_eq!(deny_all_rule(Family::V6), "k8s-azure-lb_deny-all_IPv6");
}

#[test]
fn names_of_older_security_rules_are_recognised() {
    let base = base();
    let name = format!("{base}-TCP-80-Internet");
    assert_eq!(old_security_rule(&name), Some(OldSecurityRule::Own { base: base.as_str() }));
    let name = format!("{base}-my-subnet-TCP-80-10.0.0.0_8");
    assert_eq!(old_security_rule(&name), Some(OldSecurityRule::Own { base: base.as_str() }));
    assert_eq!(old_security_rule("shared-UDP-53-Internet"), Some(OldSecurityRule::Shared));
    for name in ["shared-rule", "allow-ssh", "k8s-azure-lb_allow_IPv4_0", base.as_str(), "shared-TCP-80-"] {
        assert_eq!(old_security_rule(name), None, "{name}");
    }
}
