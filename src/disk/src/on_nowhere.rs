//! A client without an Azure, for tests of what happens before it answers.

use lazuli_azure::{
    arm::{Arm, Retry},
    auth::{Credential, ManagedIdentity, Tokens},
    compute::{ApiVersions, Compute},
    metrics as azure_metrics,
    transport::{Routes, Tls, Transport},
};
use lazuli_reconcile::Clock;

use crate::{blobs::Blobs, client::Client, known::KnownDisks};

/// A client that reaches nothing.
pub(crate) fn client() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let authority = url::Url::parse("https://login.example").unwrap();
    let credential = Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
    let transport = Transport::new(Routes::none(), &Tls::default()).unwrap();
    let tokens = Tokens::new(transport.clone(), credential, "audience", 1);
    let metrics = azure_metrics::Metrics::unregistered();
    let arm = Arm::new(authority, transport, tokens, metrics, Retry::default(), 1);
    let known = KnownDisks::new(Clock::start());
    Client::new(Compute::new(arm, ApiVersions::public()), known, Blobs::new(None, "s"))
}
