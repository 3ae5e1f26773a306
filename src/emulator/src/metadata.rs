//! What the instance metadata service shows of the resource manager's machines.

use std::sync::Arc;

use serde_json::json;

use crate::arm::compute::instance_view;
use crate::blob::vhd;
use crate::imds::{Cloud, Imds};
use crate::state::Shared;
use crate::store::Store;

/// What the metadata service reads.
pub(crate) fn service(shared: &Arc<Shared>) -> Imds {
    let (machines, document, attached, elapsed, now) =
        (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let domains = Arc::clone(shared);
    Imds {
        tenant_id: shared.options.scenario.tenant_id.clone(),
        cloud: Cloud {
            machines: Box::new(move || machines.store(Store::machines)),
            domains: Box::new(move |doc| domains.store(|store| instance_view::domains(store, doc))),
            document: Box::new(move |id| match vhd::is_address(id) {
                // A blob has no document; what the service tells of it is its size.
                true => vhd::size(&document.state(), id)
                    .map(|bytes| json!({"properties": {"diskSizeGB": bytes >> 30, "diskSizeBytes": bytes}}).into()),
                false => document.store(|store| store.document(id)),
            }),
            attached: Box::new(move |id, ago| {
                let then = attached.clock.elapsed().saturating_sub(ago);
                attached.state().luns.held(id, then)
            }),
            elapsed: Box::new(move || elapsed.clock.elapsed()),
        },
        tokens: shared.tokens.clone(),
        now: Arc::new(move || now.clock.token_now()),
        lag: shared.options.imds_lag,
        throttling: shared.options.throttling,
        nasty_casing: shared.options.nasty_casing,
        answered: std::sync::Mutex::default(),
    }
}
