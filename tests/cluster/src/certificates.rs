//! Certificates for servers of tests.

/// In PEM: a certificate authority's certificate, a certificate of it for the loopback address, and that one's key.
pub fn for_loopback() -> [String; 3] {
    for_name("127.0.0.1")
}

/// The same for a host name or an address.
pub fn for_name(name: &str) -> [String; 3] {
    let authority = rcgen::KeyPair::generate().unwrap();
    let mut of_authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    of_authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = of_authority.self_signed(&authority).unwrap().pem();
    let issuer = rcgen::Issuer::new(of_authority, authority);
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
    [root, params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem()]
}
