use super::*;
use axum::body::Body;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::scenario::{CLIENT_ID, CLIENT_SECRET, FederatedCredential, TENANT};

/// 2026-01-01T00:00:00Z.
const NOW: Timestamp = Timestamp::constant(1_767_225_600, 0);

fn directory() -> Directory {
    Directory::new(&Scenario::default(), "http://127.0.0.1:1", Tokens::default(), Arc::new(|| NOW))
}

async fn send(directory: Directory, request: Request<Body>) -> (StatusCode, Value) {
    let response = router(Arc::new(directory)).oneshot(request).await.unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or_default())
}

fn form(path: &str, fields: &[(&str, &str)]) -> Request<Body> {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    Request::post(path)
        .header("Host", "localhost:7777")
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(Body::from(body))
        .unwrap()
}

fn fields<'a>(changed: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields = BTreeMap::from([
        ("grant_type", "client_credentials"),
        ("client_id", CLIENT_ID),
        ("client_secret", CLIENT_SECRET),
        ("scope", "https://management.azure.com/.default"),
    ]);
    fields.extend(changed.iter().copied());
    fields.into_iter().filter(|(_, v)| !v.is_empty()).collect()
}

fn v2() -> String {
    format!("/{TENANT}/oauth2/v2.0/token")
}

fn assertion(claims: &Value) -> String {
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.sig", part(json!({"alg": "RS256"})), part(claims.clone()))
}

const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

#[tokio::test]
async fn a_secret_buys_a_token_that_is_valid_until_it_expires() {
    let directory = directory();
    let tokens = directory.tokens.clone();
    let (status, body) = send(directory, form(&v2(), &fields(&[]))).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["token_type"], "Bearer");
    assert_eq!(body["expires_in"], 3599);
    assert_eq!(body["ext_expires_in"], 3599);
    let token = body["access_token"].as_str().unwrap();
    let claims = token::claims(token).unwrap();
    assert_eq!(claims["aud"], "https://management.azure.com");
    assert_eq!(claims["tid"], TENANT);
    assert_eq!(claims["appid"], CLIENT_ID);
    assert!(tokens.valid(token, NOW));
    assert!(tokens.valid(token, NOW + Duration::from_secs(3_598)));
    assert!(!tokens.valid(token, NOW + Duration::from_secs(3_599)));
    // Another emulator knows it too, as after a restart.
    assert!(Tokens::default().valid(token, NOW));
}

#[test]
fn a_foreign_or_changed_token_is_not_valid() {
    let tokens = Tokens::default();
    let subject = Subject {
        tenant: TENANT.to_owned(),
        client_id: CLIENT_ID.to_owned(),
        object_id: "o".to_owned(),
        identity: None,
    };
    let token = tokens.issue("aud", &subject, NOW, TOKEN_LIFETIME);
    assert!(tokens.valid(&token, NOW));
    assert_eq!(tokens.read(&token).object_id.as_deref(), Some("o"));
    assert_eq!(tokens.read("x").object_id, None);
    assert!(!tokens.valid(&format!("{token}x"), NOW));
    assert!(!tokens.valid("x", NOW));
    assert!(!tokens.valid(&assertion(&json!({"exp": 9e9, "nbf": 0})), NOW));
    tokens.revoke_all();
    assert!(!tokens.valid(&token, NOW));
    assert!(tokens.valid(&tokens.issue("aud", &subject, NOW, TOKEN_LIFETIME), NOW));
}

#[test]
fn a_token_that_was_read_before_is_checked_anew() {
    let (tokens, subject) = (Tokens::default(), Subject::default());
    let token = tokens.issue("aud", &subject, NOW, TOKEN_LIFETIME);
    assert!(tokens.valid(&token, NOW));
    assert!(!tokens.valid(&token, NOW - Duration::from_secs(1)));
    assert!(!tokens.valid(&token, NOW + TOKEN_LIFETIME));
    // However many others were read.
    for n in 0..1000 {
        assert!(!tokens.valid(&format!("{token}{n}"), NOW));
    }
    assert!(tokens.valid(&token, NOW));
}

#[tokio::test]
async fn the_older_endpoint_takes_a_resource_and_answers_in_strings() {
    let path = format!("/{TENANT}/oauth2/token");
    let asked = fields(&[("scope", ""), ("resource", "https://management.azure.com/")]);
    let (status, body) = send(directory(), form(&path, &asked)).await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(body["expires_in"], "3599");
    assert_eq!(body["expires_on"], (NOW.as_second() + 3_599).to_string());
    assert_eq!(body["resource"], "https://management.azure.com/");
}

#[tokio::test]
async fn adfs_takes_a_resource_or_a_scope() {
    for asked in [
        fields(&[("scope", ""), ("resource", "https://management.local/x")]),
        fields(&[("scope", "openid https://management.local/x/.default")]),
    ] {
        let (status, body) = send(directory(), form("/adfs/oauth2/token", &asked)).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        let claims = token::claims(body["access_token"].as_str().unwrap()).unwrap();
        assert_eq!(claims["aud"], "https://management.local/x");
    }
}

#[tokio::test]
async fn the_tenant_may_be_named_by_domain_or_as_common() {
    for tenant in ["lazuli.onmicrosoft.com", "common", "organizations"] {
        let path = format!("/{tenant}/oauth2/v2.0/token");
        let (status, _) = send(directory(), form(&path, &fields(&[]))).await;
        assert_eq!(status, StatusCode::OK, "{tenant}");
    }
}

#[tokio::test]
async fn every_refusal_has_its_status_error_and_number() {
    let unknown = "11111111-1111-1111-1111-111111111111";
    for (path, changed, status, error, number) in [
        (v2(), ("client_secret", "wrong"), 401, "invalid_client", 7_000_215),
        (v2(), ("client_secret", ""), 401, "invalid_client", 7_000_218),
        (v2(), ("client_id", unknown), 400, "unauthorized_client", 700_016),
        (v2(), ("client_id", ""), 400, "invalid_request", 900_144),
        (v2(), ("scope", ""), 400, "invalid_request", 900_144),
        (v2(), ("scope", "https://x/user_impersonation"), 400, "invalid_scope", 1_002_012),
        (v2(), ("grant_type", "password"), 400, "unsupported_grant_type", 70_003),
        (v2(), ("grant_type", ""), 400, "invalid_request", 900_144),
        (format!("/{unknown}/oauth2/v2.0/token"), ("a", "b"), 400, "invalid_request", 90_002),
    ] {
        let (got, body) = send(directory(), form(&path, &fields(&[changed]))).await;
        assert_eq!(got.as_u16(), status, "{changed:?} {body}");
        assert_eq!(body["error"], error, "{changed:?}");
        assert_eq!(body["error_codes"][0], number, "{changed:?}");
        let text = body["error_description"].as_str().unwrap();
        assert!(text.starts_with(&format!("AADSTS{number}: ")), "{text}");
    }
}

#[tokio::test]
async fn a_client_may_sign_in_by_the_authorization_header() {
    let basic = STANDARD.encode(format!("{CLIENT_ID}:{CLIENT_SECRET}"));
    let mut request = form(&v2(), &fields(&[("client_id", ""), ("client_secret", "")]));
    request.headers_mut().insert("Authorization", format!("Basic {basic}").parse().unwrap());
    let (status, body) = send(directory(), request).await;
    assert_eq!(status, StatusCode::OK, "{body}");
}

#[tokio::test]
async fn an_assertion_is_believed_while_it_is_well_formed_and_in_time() {
    let now = NOW.as_second();
    let good = json!({"iss": "https://oidc", "sub": "s", "aud": "api://AzureADTokenExchange", "exp": now + 60});
    let late = json!({"iss": "https://oidc", "sub": "s", "exp": now - 3_600});
    let early = json!({"iss": "https://oidc", "sub": "s", "exp": now + 9_000, "nbf": now + 3_600});
    let endless = json!({"iss": "https://oidc", "sub": "s"});
    for (jwt, number) in [
        (assertion(&good), None),
        (assertion(&late), Some(700_024)),
        (assertion(&early), Some(700_024)),
        (assertion(&endless), Some(700_024)),
        ("no.jwt".to_owned(), Some(50_027)),
    ] {
        let asked = fields(&[("client_secret", ""), ("client_assertion_type", JWT_BEARER), ("client_assertion", &jwt)]);
        let (status, body) = send(directory(), form(&v2(), &asked)).await;
        match number {
            None => assert_eq!(status, StatusCode::OK, "{body}"),
            Some(number) => assert_eq!(body["error_codes"][0], number, "{body}"),
        }
    }
}

#[tokio::test]
async fn listed_federated_credentials_are_the_only_ones_that_count() {
    let exp = NOW.as_second() + 60;
    for (issuer, subject, accepted) in [
        ("https://oidc", "system:serviceaccount:kube-system:lazuli", true),
        ("https://oidc", "system:serviceaccount:default:default", false),
        ("https://other", "system:serviceaccount:kube-system:lazuli", false),
        // As if signed by the client's own certificate, of which it has none.
        (CLIENT_ID, CLIENT_ID, false),
    ] {
        let mut directory = directory();
        directory.clients[0].federated = vec![FederatedCredential {
            issuer: "https://oidc".to_owned(),
            subject: "system:serviceaccount:kube-system:lazuli".to_owned(),
        }];
        let jwt = assertion(&json!({"iss": issuer, "sub": subject, "exp": exp}));
        let asked = fields(&[("client_secret", ""), ("client_assertion_type", JWT_BEARER), ("client_assertion", &jwt)]);
        let (status, body) = send(directory, form(&v2(), &asked)).await;
        assert_eq!(status == StatusCode::OK, accepted, "{issuer} {subject} {body}");
    }
}

fn get_at(path: &str) -> Request<Body> {
    let mut request = Request::get(path).header("Host", "localhost:7777").body(Body::empty()).unwrap();
    request.extensions_mut().insert(crate::tls::OverTls);
    request
}

#[tokio::test]
async fn discovery_leads_to_a_configuration_whose_issuer_is_on_the_callers_host() {
    let path = format!(
        "/common/discovery/instance?api-version=1.1&authorization_endpoint=https%3A%2F%2Flocalhost%3A7777%2F{TENANT}%2Foauth2%2Fv2.0%2Fauthorize"
    );
    let (status, body) = send(directory(), get_at(&path)).await;
    assert_eq!(status, StatusCode::OK);
    let expected = format!("https://localhost:7777/{TENANT}/v2.0/.well-known/openid-configuration");
    assert_eq!(body["tenant_discovery_endpoint"], expected);
    assert_eq!(body["metadata"][0]["aliases"], json!(["localhost:7777"]));

    let path = format!("/{TENANT}/v2.0/.well-known/openid-configuration");
    let (_, body) = send(directory(), get_at(&path)).await;
    assert_eq!(body["issuer"], format!("https://localhost:7777/{TENANT}/v2.0"));
    assert_eq!(body["token_endpoint"], format!("https://localhost:7777/{TENANT}/oauth2/v2.0/token"));
    let (_, body) = send(directory(), get_at("/adfs/.well-known/openid-configuration")).await;
    assert_eq!(body["token_endpoint"], "https://localhost:7777/adfs/oauth2/token");
    let (status, _) = send(directory(), get_at("/contoso.com/v2.0/.well-known/openid-configuration")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}
