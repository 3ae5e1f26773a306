//! One PersistentVolume by name, as JSON: what is not understood of it is not lost.

use kube::Client;
use serde_json::Value;

use super::client::get;
use super::server::ApiError;

/// Why a PersistentVolume could not be read. One that does not exist is no error.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the persistentvolume {name} (the role needs get on persistentvolumes)")]
pub struct ReadVolumeError {
    name: String,
    #[source]
    source: Box<ApiError>,
}

/// Reads one PersistentVolume; `None` when there is none of that name.
///
/// # Errors
/// When the API server refuses or does not answer.
pub async fn read_volume(client: &Client, name: &str) -> Result<Option<Value>, ReadVolumeError> {
    // The name comes from a request that any client may have sent: a slash in it would ask for another resource.
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.');
    if name.is_empty() || name.starts_with('.') || !is_plain {
        return Ok(None);
    }
    let read = get(client, "/api/v1/persistentvolumes", name).await;
    read.map_err(|source| ReadVolumeError { name: name.to_owned(), source: ApiError::boxed(source) })
}

#[cfg(test)]
mod tests {
    use lazuli_apiserver::{ApiServer, Options};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_volume_is_read_whole_by_its_name() {
        let server = ApiServer::start(Options::default());
        let spec = json!({"csi": {"driver": "d", "volumeHandle": "h", "newer": {"than": "us"}}});
        server.put("persistentvolumes", json!({"metadata": {"name": "pvc-1"}, "spec": spec})).expect("is taken");
        let client = Client::new(server.router(), "default");
        let read = async |name: &'static str| read_volume(&client, name).await.expect("answers");
        assert_eq!(read("pvc-1").await.expect("is there")["spec"], spec);
        for name in ["pvc-2", "", "../pods", "a/b", ".", ".."] {
            assert_eq!(read(name).await, None, "{name:?}");
        }
    }
}
