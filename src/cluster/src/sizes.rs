//! VM sizes that are newer than the shipped table, and what they take.
//!
//! A node holds no Azure credentials, so the controller asks Azure and leaves the answer in one ConfigMap of its own
//! namespace, a key per size. In most clusters there is nothing to say and no ConfigMap.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use lazuli_plan::size::SizeLimits;
use serde_json::json;

use super::client::answered;

/// The ConfigMap.
const NAME: &str = "lazuli-vm-sizes";
/// Who owns its keys (source: server-side apply; two replicas that say the same do not contradict each other).
const MANAGER: &str = "lazuli";

/// Why sizes could not be read or published.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} (the role needs {needs})")]
pub struct SizesError {
    action: &'static str,
    needs: &'static str,
    #[source]
    source: Box<kube::Error>,
}

fn failed(action: &'static str, needs: &'static str) -> impl FnOnce(kube::Error) -> SizesError {
    move |source| SizesError { action, needs, source: Box::new(source) }
}

/// Tells the nodes, in place of whatever was told before.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn publish_sizes(client: &Client, sizes: &SizeLimits) -> Result<(), SizesError> {
    let data: BTreeMap<&str, String> = sizes.iter().map(|(name, count)| (name, count.to_string())).collect();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": NAME}, "data": data});
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let told = answered(maps.patch(NAME, &PatchParams::apply(MANAGER).force(), &Patch::Apply(map))).await;
    told.map(|_| ()).map_err(failed("publish VM sizes", "create and patch on the configmap lazuli-vm-sizes"))
}

/// What was told last; nothing where nothing was.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn published_sizes(client: &Client) -> Result<SizeLimits, SizesError> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let map = answered(maps.get_opt(NAME)).await;
    let map = map.map_err(failed("read published VM sizes", "get on the configmap lazuli-vm-sizes"))?;
    let data = map.and_then(|map| map.data).unwrap_or_default();
    // A value that is no number was not written by this program, and says nothing.
    Ok(SizeLimits::new(data.into_iter().filter_map(|(name, count)| Some((name, count.trim().parse().ok()?)))))
}
