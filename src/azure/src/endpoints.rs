//! The endpoints of a cloud, as its resource manager describes them. Asked without a token; read by the
//! configuration, which knows what they mean.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use serde_json::Value;
use url::Url;

use crate::{
    arm::without_mark,
    transport::{Transport, TransportError},
};

/// The endpoints could not be read.
#[derive(Debug, thiserror::Error)]
pub enum EndpointsError {
    /// There was no answer.
    #[error("the resource manager gives no answer")]
    Unreachable {
        /// Why; it names the place.
        #[source]
        source: TransportError,
    },
    /// The answer was no.
    #[error("the resource manager {endpoint} does not tell its endpoints: {status}")]
    Refused {
        /// Which one: scheme, host and port as they are asked.
        endpoint: String,
        /// The HTTP status.
        status: u16,
    },
    /// The answer is no JSON.
    #[error("the endpoints of {endpoint} are no JSON")]
    Malformed {
        /// Which one: scheme, host and port as they are asked.
        endpoint: String,
        /// Why not.
        #[source]
        source: serde_json::Error,
    },
}

/// Reads `GET {resource manager}/metadata/endpoints` (source: Microsoft docs, Azure Stack Hub, connect with the API).
///
/// # Errors
/// When there is no answer, the answer is no, or it is no JSON.
pub async fn read_endpoints(
    transport: &Transport,
    resource_manager: &Url,
    api_version: &str,
) -> Result<Value, EndpointsError> {
    let endpoint = transport.place(resource_manager);
    let mut url = resource_manager.clone();
    url.set_path(&format!("{}/metadata/endpoints", resource_manager.path().trim_end_matches('/')));
    url.query_pairs_mut().append_pair("api-version", api_version);
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let answer = match transport.send(Method::GET, &url, headers, Bytes::new()).await {
        Ok(answer) => answer,
        Err(source) => return Err(EndpointsError::Unreachable { source }),
    };
    if !answer.status().is_success() {
        return Err(EndpointsError::Refused { endpoint, status: answer.status().as_u16() });
    }
    serde_json::from_slice(without_mark(answer.body())).map_err(|source| EndpointsError::Malformed { endpoint, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{ARM, Fake, Reply, url};

    #[tokio::test(start_paused = true)]
    async fn the_endpoints_are_read_without_a_token() {
        let body = serde_json::json!({"portalEndpoint": "https://portal.azure.com"});
        let fake = Fake::new([Reply::json(200, body.clone()), Reply::empty(500), Reply::empty(200), Reply::Lost]);
        let transport = fake.in_process();
        let ask = || async { read_endpoints(&transport, &url(ARM), "2022-09-01").await };
        assert_eq!(ask().await.unwrap(), body);
        let log = fake.log();
        assert_eq!(log[0].line, "GET management.azure.com/metadata/endpoints?api-version=2022-09-01");
        assert_eq!(log[0].authorization, None);
        assert!(log[0].client_request_id.is_some());
        assert!(matches!(ask().await, Err(EndpointsError::Refused { status: 500, .. })));
        assert!(matches!(ask().await, Err(EndpointsError::Malformed { .. })));
        assert!(matches!(ask().await, Err(EndpointsError::Unreachable { .. })));
    }
}
