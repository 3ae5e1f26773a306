//! What is counted of requests for keys.

use lazuli_model::fault::Code;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    outcome: &'static str,
}

/// How many requests nodes made for keys, by what became of them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Labels, Counter>,
}

impl Metrics {
    /// Registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let requests = Family::default();
        let help = "Requests of nodes for keys of storage accounts, by outcome";
        registry.register("lazuli_key_requests", help, requests.clone());
        Self { requests }
    }

    /// Counts a request that was refused with a code, or granted.
    pub(crate) fn note(&self, refused: Option<Code>) {
        let outcome = match refused {
            None => "granted",
            Some(Code::Unauthenticated) => "unauthenticated",
            Some(Code::PermissionDenied) => "denied",
            Some(Code::ResourceExhausted) => "too_many",
            Some(Code::InvalidArgument) => "malformed",
            Some(Code::Unavailable | Code::DeadlineExceeded) => "unavailable",
            Some(_) => "no_key",
        };
        self.requests.get_or_create(&Labels { outcome }).inc();
    }
}
