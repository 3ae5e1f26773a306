//! Which PersistentVolume a claim has, read live: a person asks by the name of a claim, and no part of this program follows
//! claims.

use kube::{Client, api::ListParams, core::Request};
use lazuli_model::kube_name::is_subdomain;
use serde::Deserialize;

use super::{
    client::{PAGE, Page, answered},
    server::ApiError,
};

/// Why it is not known which PersistentVolume a claim has.
#[derive(Debug, thiserror::Error)]
#[error("cannot read PersistentVolumeClaim {namespace}/{name} (the role needs list on persistentvolumeclaims)")]
pub struct ReadClaimError {
    namespace: String,
    name: String,
    #[source]
    source: Box<ApiError>,
}

/// What a claim says of its volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedVolume {
    /// The PersistentVolume; `None` while there is none.
    pub volume: Option<String>,
    /// The name by which external-provisioner asks for the claim's disk (source: its option `--volume-name-prefix`, whose
    /// default is `pvc`).
    pub disk_name: String,
}

#[derive(Deserialize)]
struct SlimClaim {
    metadata: SlimMetadata,
    #[serde(default)]
    spec: SlimSpec,
}

#[derive(Deserialize)]
struct SlimMetadata {
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimSpec {
    volume_name: Option<String>,
}

/// Reads which volume a claim has; `None` when there is no such claim.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn claimed_volume(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<ClaimedVolume>, ReadClaimError> {
    // Both come from a person: a slash in one of them would ask for another resource.
    if !is_subdomain(namespace) || !is_subdomain(name) {
        return Ok(None);
    }
    let failed = |source| ReadClaimError {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        source: ApiError::boxed(source),
    };
    // A list of one name needs no right that external-provisioner, of the same account, does not have.
    let only = ListParams::default().fields(&format!("metadata.name={name}")).limit(PAGE);
    let collection = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims");
    let request = Request::new(collection).list(&only).map_err(|error| failed(kube::Error::BuildRequest(error)))?;
    let page: Page<SlimClaim> = answered(client.request(request)).await.map_err(failed)?;
    let found = page.into_items().into_iter().find(|claim| claim.metadata.name == name);
    Ok(found.map(|claim| ClaimedVolume {
        volume: claim.spec.volume_name.filter(|volume| !volume.is_empty()),
        disk_name: format!("pvc-{}", claim.metadata.uid),
    }))
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn the_volume_of_a_claim_is_found_and_no_other_resource_is_asked_for() {
        let server = ApiServer::start(Options::default());
        let put = |name: &str, spec| {
            let metadata = json!({"name": name, "namespace": "db"});
            server.put("persistentvolumeclaims", json!({"metadata": metadata, "spec": spec})).expect("is taken")
        };
        put("data-0", json!({"volumeName": "pv-7"}));
        let pending = put("data-1", json!({"volumeName": ""}));
        let client = Client::new(server.router(), "default");
        let read = async |namespace: &str, name: &str| claimed_volume(&client, namespace, name).await.expect("answers");
        assert_eq!(read("db", "data-0").await.and_then(|claim| claim.volume).as_deref(), Some("pv-7"));
        let uid = pending["metadata"]["uid"].as_str().expect("has a uid");
        let expected = ClaimedVolume { volume: None, disk_name: format!("pvc-{uid}") };
        assert_eq!(read("db", "data-1").await, Some(expected));
        for (namespace, name) in [("db", "data-2"), ("web", "data-0"), ("..", "pods"), ("db", "../data-0"), ("", "")] {
            assert_eq!(read(namespace, name).await, None, "{namespace}/{name}");
        }
    }
}
