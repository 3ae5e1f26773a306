//! VM sizes that are newer than the shipped table, and what they take.
//!
//! A node holds no Azure credentials, so the controller asks Azure and leaves the answer in one ConfigMap of its own
//! namespace, a key per size. In most clusters there is nothing to say and no ConfigMap. The node plugin has it as an
//! optional volume, a file per key, and needs no right to read it.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use lazuli_model::size::SizeLimits;
use serde_json::json;

use super::{client::answered, server::ApiError};

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
    source: Box<ApiError>,
}

fn failed(action: &'static str, needs: &'static str) -> impl FnOnce(kube::Error) -> SizesError {
    move |source| SizesError { action, needs, source: ApiError::boxed(source) }
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
    Ok(limits(map.and_then(|map| map.data).unwrap_or_default()))
}

/// Why a mounted ConfigMap could not be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read published VM sizes at {}", path.display())]
pub struct SizesFileError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// What was published last, from the folder where the ConfigMap is mounted; nothing where the folder is missing or
/// empty, as it is while there is no ConfigMap.
///
/// # Errors
/// When the folder or a file of it cannot be read.
pub fn mounted_sizes(folder: &Path) -> Result<SizeLimits, SizesFileError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SizesFileError { path, source }
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(SizeLimits::default()),
        entries => entries.map_err(failed(folder))?,
    };
    let mut values = Vec::new();
    for entry in entries {
        let entry = entry.map_err(failed(folder))?;
        // Source: kubelet's atomic writer. What it swaps begins with two dots; keys of sizes begin with a letter.
        let Some(name) = entry.file_name().to_str().filter(|name| !name.starts_with('.')).map(str::to_owned) else {
            continue;
        };
        match fs::read_to_string(entry.path()) {
            Ok(count) => values.push((name, count)),
            // kubelet has changed the content since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(&entry.path())(error)),
        }
    }
    Ok(limits(values))
}

/// Entries that are no numbers, which another writer put there, say nothing.
fn limits(values: impl IntoIterator<Item = (String, String)>) -> SizeLimits {
    SizeLimits::new(values.into_iter().filter_map(|(name, count)| Some((name, count.trim().parse().ok()?))))
}
