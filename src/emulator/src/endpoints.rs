//! Where a cloud's services are: `GET /metadata/endpoints`, and the address by which a caller reached
//! the emulator.
//!
//! All URLs in the answer point at the emulator itself. Three generations of the answer exist, told
//! apart by api-version:
//!
//! | api-version | form | evidence |
//! |---|---|---|
//! | up to 2017 (`1.0`, `2015-01-01`…) | one object with `galleryEndpoint`, `graphEndpoint`, `portalEndpoint`; what Azure Stack Hub serves | documented |
//! | 2018 to 2021 | an array with one object per cloud | documented by the clients that read it |
//! | from 2022-09-01 | one object, further members | documented by the clients that read it (hashicorp/go-azure-sdk, azure-cli) |

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, http::StatusCode};
use http::request::Parts;
use serde_json::{Value, json};

use crate::tls::OverTls;

/// What the answer depends on.
#[derive(Clone)]
pub(crate) struct Endpoints {
    /// Where the emulator is reached by a caller that sends no `Host`; no slash at the end.
    pub(crate) url: String,
    /// Where it serves over TLS besides. The storage services are said to be there: accounts take https alone, unless they say
    /// otherwise.
    pub(crate) tls_port: Option<u16>,
    /// Tenant id.
    pub(crate) tenant_id: String,
    /// Sign-in through ADFS, as on a disconnected Azure Stack Hub.
    pub(crate) adfs: bool,
}

/// The route.
pub(crate) fn router(endpoints: Arc<Endpoints>) -> Router {
    Router::new().route("/metadata/endpoints", get(serve)).with_state(endpoints)
}

/// The address by which this request reached the emulator, without a slash at the end. `url` when the
/// request does not say.
///
/// Clients compare the host of an issuer, and follow operation URLs: both must be where they came
/// from, be it `localhost`, an address, or a name of the certificate.
pub(crate) fn base(parts: &Parts, url: &str) -> String {
    let host = authority(parts);
    let Some(host) = host else {
        return url.to_owned();
    };
    let scheme = if parts.extensions.get::<OverTls>().is_some() { "https" } else { "http" };
    format!("{scheme}://{host}")
}

/// The host, and the port if there is one, that a request names: in its URL or in `Host`.
pub(crate) fn authority(parts: &Parts) -> Option<String> {
    let named = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    let host = named.or_else(|| Some(parts.headers.get(http::header::HOST)?.to_str().ok()?.to_owned()));
    host.filter(|host| !host.is_empty())
}

async fn serve(State(endpoints): State<Arc<Endpoints>>, RawQuery(query): RawQuery, parts: Parts) -> Response {
    let version = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes())
        .find(|(name, _)| name.eq_ignore_ascii_case("api-version"))
        .map(|(_, version)| version.into_owned());
    let Some(version) = version else {
        let error = json!({"error": {
            "code": "MissingApiVersionParameter",
            "message": "The api-version query parameter (?api-version=) is required for all requests.",
        }});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    };
    let base = base(&parts, &endpoints.url);
    let storage = storage(&base, endpoints.tls_port);
    // `1.0` is older than every date.
    let answer = match version.as_str() {
        version if version < "2018" => oldest(&endpoints, &base),
        version if version < "2022" => NAMES.map(|name| cloud(&endpoints, &base, &storage, name)).to_vec().into(),
        _ => newest(&endpoints, &base, &storage),
    };
    Json(answer).into_response()
}

fn login_endpoint(endpoints: &Endpoints, base: &str) -> String {
    if endpoints.adfs { format!("{base}/adfs") } else { format!("{base}/") }
}

/// The suffix of the storage services for a caller that reached the emulator at `base`.
fn storage(base: &str, tls_port: Option<u16>) -> String {
    let host = without_scheme(base);
    match tls_port {
        Some(port) if base.starts_with("http://") => {
            let end = host.rfind([':', ']']).filter(|end| host[*end..].starts_with(':')).unwrap_or(host.len());
            format!("{}:{port}", &host[..end])
        }
        _ => host.to_owned(),
    }
}

fn without_scheme(base: &str) -> &str {
    base.split_once("://").map_or(base, |(_, host)| host)
}

fn oldest(endpoints: &Endpoints, base: &str) -> Value {
    json!({
        "galleryEndpoint": format!("{base}/"),
        "graphEndpoint": format!("{base}/"),
        "portalEndpoint": format!("{base}/"),
        "authentication": {
            "loginEndpoint": login_endpoint(endpoints, base),
            "audiences": [format!("{base}/")],
        },
    })
}

/// Names under which clients look for their cloud in the array. The first is documented as the public
/// cloud's own; the others stand in the cloud configurations of Kubernetes. A client that does not find
/// its name falls back to the real cloud's addresses, so all of them lead here.
const NAMES: [&str; 3] = ["AzureCloud", "AzurePublicCloud", "AzureStackCloud"];

fn cloud(endpoints: &Endpoints, base: &str, storage: &str, name: &str) -> Value {
    let host = without_scheme(base);
    json!({
        "name": name,
        "portal": format!("{base}/"),
        "resourceManager": format!("{base}/"),
        "gallery": format!("{base}/"),
        "graph": format!("{base}/"),
        "graphAudience": format!("{base}/"),
        "batch": format!("{base}/"),
        "media": format!("{base}/"),
        "sqlManagement": format!("{base}/"),
        "vmImageAliasDoc": format!("{base}/"),
        "authentication": {
            "loginEndpoint": login_endpoint(endpoints, base),
            "audiences": [
                "https://management.core.windows.net/",
                "https://management.azure.com/",
                format!("{base}/"),
            ],
            // Documented: `common` in Azure, and the tenant in Azure Stack Hub, by which clients tell the two apart.
            "tenant": if endpoints.adfs { &endpoints.tenant_id } else { "common" },
            "identityProvider": if endpoints.adfs { "ADFS" } else { "AAD" },
        },
        "suffixes": {
            "storage": storage,
            "keyVaultDns": host,
            "sqlServerHostname": host,
            "acrLoginServer": host,
        },
    })
}

fn newest(endpoints: &Endpoints, base: &str, storage: &str) -> Value {
    let mut cloud = cloud(endpoints, base, storage, NAMES[0]);
    for member in [
        "microsoftGraphResourceId",
        "logAnalyticsResourceId",
        "ossrdbmsResourceId",
        "appInsightsResourceId",
        "attestationResourceId",
        "synapseAnalyticsResourceId",
        "activeDirectoryDataLake",
    ] {
        cloud[member] = json!(format!("{base}/"));
    }
    // Documented: the newest form has no slash at its end, all older ones have one.
    if !endpoints.adfs {
        cloud["authentication"]["loginEndpoint"] = json!(base);
    }
    cloud
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    async fn ask(query: &str, over_tls: bool) -> (StatusCode, Value) {
        let router = router(Arc::new(Endpoints {
            url: "http://127.0.0.1:1".to_owned(),
            tls_port: Some(8443),
            tenant_id: "t".to_owned(),
            adfs: false,
        }));
        let mut request = Request::get(format!("/metadata/endpoints{query}"))
            .header("Host", "localhost:7777")
            .body(Body::empty())
            .unwrap();
        if over_tls {
            request.extensions_mut().insert(OverTls);
        }
        let response = router.oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn each_generation_of_api_version_gets_its_own_form() {
        let (_, oldest) = ask("?api-version=2015-01-01", false).await;
        assert_eq!(oldest["galleryEndpoint"], "http://localhost:7777/");
        assert_eq!(oldest["authentication"]["audiences"][0], "http://localhost:7777/");
        let (_, azure_stack) = ask("?api-version=1.0", false).await;
        assert_eq!(azure_stack, oldest);
        let (_, array) = ask("?api-version=2019-05-01", false).await;
        assert_eq!(array[0]["resourceManager"], "http://localhost:7777/");
        for name in ["AzureCloud", "AzurePublicCloud", "AzureStackCloud"] {
            let found = array.as_array().unwrap().iter().find(|cloud| cloud["name"] == name);
            assert_eq!(found.unwrap()["resourceManager"], "http://localhost:7777/", "{name}");
        }
        let (_, newest) = ask("?api-version=2022-09-01", false).await;
        assert_eq!(newest["authentication"]["tenant"], "common");
        assert!(newest["microsoftGraphResourceId"].is_string());
    }

    #[tokio::test]
    async fn urls_lead_back_to_where_the_caller_came_from() {
        let (_, body) = ask("?api-version=2022-09-01", true).await;
        assert_eq!(body["authentication"]["loginEndpoint"], "https://localhost:7777");
        let (_, body) = ask("?api-version=2019-05-01", true).await;
        assert_eq!(body[0]["authentication"]["loginEndpoint"], "https://localhost:7777/");
    }

    #[tokio::test]
    async fn storage_services_are_where_https_is() {
        let (_, body) = ask("?api-version=2022-09-01", false).await;
        assert_eq!(body["suffixes"]["storage"], "localhost:8443");
        // A caller over TLS may have come through another port than the one listened on.
        let (_, body) = ask("?api-version=2019-05-01", true).await;
        assert_eq!(body[0]["suffixes"]["storage"], "localhost:7777");
        assert_eq!(storage("http://[::1]:1", Some(2)), "[::1]:2");
        assert_eq!(storage("http://[::1]", Some(2)), "[::1]:2");
        assert_eq!(storage("http://127.0.0.1:1", None), "127.0.0.1:1");
    }

    /// Terraform's provider takes an Azure whose metadata name a tenant for an Azure Stack Hub.
    #[tokio::test]
    async fn azure_names_no_tenant_and_an_azure_stack_its_own() {
        let stack =
            Endpoints { url: "http://127.0.0.1:1".to_owned(), tls_port: None, tenant_id: "t".to_owned(), adfs: true };
        for (endpoints, tenant, login) in
            [(&stack, "t", "http://h/adfs"), (&Endpoints { adfs: false, ..stack.clone() }, "common", "http://h")]
        {
            let authentication = newest(endpoints, "http://h", "h")["authentication"].take();
            assert_eq!(authentication["tenant"], tenant);
            assert_eq!(authentication["loginEndpoint"], login);
        }
    }

    #[tokio::test]
    async fn an_api_version_is_required() {
        let (status, body) = ask("", false).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(body["error"]["code"], "MissingApiVersionParameter");
    }

    #[test]
    fn a_request_without_host_is_answered_with_the_configured_address() {
        let (parts, ()) = Request::get("/x").body(()).unwrap().into_parts();
        assert_eq!(base(&parts, "http://127.0.0.1:1"), "http://127.0.0.1:1");
    }
}
