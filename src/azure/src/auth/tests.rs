use serde_json::json;

use super::*;
use crate::testing::{ARM, CLIENT_SECRET, Fake, LOGIN, Reply, Seen, client_secret, url};

fn tokens(fake: &Fake, credential: Credential) -> Tokens {
    Tokens::new(fake.in_process(), credential, &format!("{ARM}/"), 7)
}

async fn text(tokens: &Tokens) -> String {
    tokens.bearer().await.unwrap().header.to_str().unwrap().to_owned()
}

/// Waits for the renewal that is under way, if one is.
async fn over(tokens: &Tokens) {
    let flight = tokens.0.lock().flight.clone();
    if let Some(flight) = flight {
        let _ = flight.await;
    }
}

fn only(fake: &Fake) -> Seen {
    let log = fake.log();
    assert_eq!(log.len(), 1, "{log:?}");
    log[0].clone()
}

#[tokio::test(start_paused = true)]
async fn many_callers_wait_for_one_token_and_it_is_kept() {
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    let callers = (0..50).map(|_| async { text(&tokens).await });
    let texts = futures::future::join_all(callers).await;
    assert!(texts.iter().all(|text| text == "Bearer token-1"));
    tokio::time::advance(Duration::from_secs(3_200)).await;
    assert_eq!(text(&tokens).await, "Bearer token-1");
    assert_eq!(fake.log().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_five_minutes_before_its_end() {
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    assert_eq!(text(&tokens).await, "Bearer token-1");
    tokio::time::advance(Duration::from_secs(3_599 - 300)).await;
    // Who asks first does not wait for it.
    assert_eq!(text(&tokens).await, "Bearer token-1");
    over(&tokens).await;
    assert_eq!(text(&tokens).await, "Bearer token-2");
    assert_eq!(fake.log().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_hangs_is_waited_for_by_nobody_who_has_a_good_token() {
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    assert_eq!(text(&tokens).await, "Bearer token-1");
    let _ = fake.clone().tokens([Reply::Silence, Reply::Silence]);
    tokio::time::advance(Duration::from_secs(3_599 - 300)).await;
    let began = Instant::now();
    for _ in 0..3 {
        assert_eq!(text(&tokens).await, "Bearer token-1");
        assert!(tokens.at_hand().is_some());
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    // It hangs beyond the old one's end; then there is nothing to do but wait.
    tokio::time::advance(Duration::from_secs(300)).await;
    assert!(tokens.at_hand().is_none());
    assert_eq!(text(&tokens).await, "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn while_renewal_fails_a_valid_token_is_still_used() {
    let no = || Reply::json(401, json!({"error": "invalid_client", "error_description": "AADSTS7000222: expired"}));
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    assert_eq!(text(&tokens).await, "Bearer token-1");
    let _ = fake.clone().tokens([no(), no()]);
    tokio::time::advance(Duration::from_secs(3_400)).await;
    assert_eq!(text(&tokens).await, "Bearer token-1");
    over(&tokens).await;
    // Not asked again at once.
    assert_eq!(text(&tokens).await, "Bearer token-1");
    over(&tokens).await;
    assert_eq!(fake.log().len(), 2);
    tokio::time::advance(Duration::from_secs(300)).await;
    assert!(matches!(tokens.bearer().await, Err(AuthError::Refused { .. })));
    tokio::time::advance(Backoff::FIRST * 2).await;
    assert_eq!(text(&tokens).await, "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_remembered_and_the_authority_asked_again_ever_later() {
    let no = || Reply::json(401, json!({"error": "invalid_client", "error_description": "AADSTS7000222: expired"}));
    let fake = Fake::new([]).tokens((0..10).map(|_| no()));
    let tokens = tokens(&fake, client_secret());
    let mut pauses = Vec::new();
    let mut asked = Instant::now();
    while pauses.len() < 9 {
        let before = fake.log().len();
        let callers = (0..50).map(|_| tokens.bearer());
        for refused in futures::future::join_all(callers).await {
            assert!(refused.unwrap_err().to_string().contains("AADSTS7000222"));
        }
        match fake.log().len() - before {
            0 => tokio::time::advance(Duration::from_secs(1)).await,
            1 => {
                pauses.push(asked.elapsed().as_secs());
                asked = Instant::now();
            }
            more => panic!("asked {more} times at once"),
        }
    }
    assert_eq!(pauses, [0, 5, 10, 20, 40, 80, 160, 300, 300]);
    // Once it was good, the next refusal begins anew.
    tokio::time::advance(Backoff::LONGEST).await;
    assert!(tokens.bearer().await.is_err());
    tokio::time::advance(Backoff::LONGEST).await;
    assert_eq!(text(&tokens).await, "Bearer token-1");
    let _ = fake.clone().tokens([no()]);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert!(tokens.bearer().await.is_err());
    tokio::time::advance(Backoff::FIRST).await;
    assert_eq!(text(&tokens).await, "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_never_taken_is_not_replaced_at_every_call_and_a_revoked_one_is_at_once() {
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    for _ in 0..600 {
        let bearer = tokens.bearer().await.unwrap();
        tokens.refused(&bearer);
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    // At 0, 0, 5, 15, 35, 75, 155, 315 and 615 s.
    assert_eq!(fake.log().len(), 8);
    for revoked in 0..3 {
        let bearer = tokens.bearer().await.unwrap();
        tokens.accepted(&bearer);
        tokens.refused(&bearer);
        assert_eq!(fake.log().len(), 8 + revoked);
    }
    assert_eq!(text(&tokens).await, "Bearer token-11");
}

#[tokio::test(start_paused = true)]
async fn a_replaced_credential_is_used_at_once_and_costs_nobody_a_good_token() {
    let other = || Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
    let no = || Reply::json(401, json!({"error": "invalid_client", "error_description": "AADSTS7000222: expired"}));
    // A remembered refusal was of the old one.
    let fake = Fake::new([]).tokens([no()]);
    let one = tokens(&fake, client_secret());
    assert!(one.bearer().await.is_err() && one.bearer().await.is_err());
    assert!(!one.replace(client_secret()));
    assert!(one.bearer().await.is_err());
    assert!(one.replace(other()));
    assert_eq!(text(&one).await, "Bearer token-1");
    assert!(fake.log()[1].line.contains("/metadata/identity/"));

    // The old token is good until there is a new one, also when the new credential is wrong.
    let fake = Fake::new([]);
    let one = tokens(&fake, client_secret());
    assert_eq!(text(&one).await, "Bearer token-1");
    let _ = fake.clone().tokens([no()]);
    one.replace(other());
    for _ in 0..2 {
        assert_eq!(text(&one).await, "Bearer token-1");
        over(&one).await;
    }
    assert_eq!(fake.log().len(), 2);
    tokio::time::advance(RENEWAL_PAUSE).await;
    assert_eq!(text(&one).await, "Bearer token-1");
    over(&one).await;
    assert_eq!(text(&one).await, "Bearer token-2");

    // What was under way for the old one counts for nothing.
    let fake = Fake::new([]).tokens([Reply::Silence]);
    let one = tokens(&fake, client_secret());
    let waiting = tokio::spawn({
        let one = one.clone();
        async move { one.bearer().await }
    });
    tokio::task::yield_now().await;
    one.replace(other());
    assert_eq!(text(&one).await, "Bearer token-1");
    waiting.await.unwrap().unwrap();
    assert_eq!(text(&one).await, "Bearer token-1");
}

#[tokio::test(start_paused = true)]
async fn a_refused_token_is_thrown_away_once() {
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_secret());
    let old = tokens.bearer().await.unwrap();
    tokens.refused(&old);
    assert_eq!(text(&tokens).await, "Bearer token-2");
    // Another caller's late complaint about the old one does not cost the new one.
    tokens.refused(&old);
    assert_eq!(text(&tokens).await, "Bearer token-2");
}

#[tokio::test(start_paused = true)]
async fn the_authoritys_words_are_kept_and_the_secret_is_not() {
    let fake = Fake::new([]).tokens([Reply::json(
        401,
        json!({"error": "invalid_client", "error_description": "AADSTS7000215: Invalid client secret provided.",
            "error_codes": [7000215]}),
    )]);
    let tokens = tokens(&fake, client_secret());
    let error = tokens.bearer().await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the authority https://login.microsoftonline.com/tenant/oauth2/v2.0/token refuses a token: 401 invalid_client: \
         AADSTS7000215: Invalid client secret provided."
    );
    assert_eq!(error.fault(), Fault::Unauthenticated);
    assert!(only(&fake).body.contains(CLIENT_SECRET));
    tokio::time::advance(Backoff::FIRST).await;
    let bearer = tokens.bearer().await.unwrap();
    let printed = format!("{error:?} {tokens:?} {bearer:?} {:?} {}", client_secret(), Secret::new(CLIENT_SECRET));
    assert!(!printed.contains(CLIENT_SECRET) && !printed.contains("token-1"), "{printed}");
    assert!(printed.contains("<redacted>"));
}

#[tokio::test(start_paused = true)]
async fn an_authority_that_fails_is_asked_again_a_bounded_number_of_times() {
    let fake = Fake::new([]).tokens([Reply::empty(503), Reply::Lost, Reply::empty(410)]);
    assert_eq!(text(&tokens(&fake, client_secret())).await, "Bearer token-1");
    assert_eq!(fake.log().len(), 4);

    let fake = Fake::new([]).tokens((0..4).map(|_| Reply::empty(500)));
    let error = tokens(&fake, client_secret()).bearer().await.unwrap_err();
    assert_eq!((error.fault(), fake.log().len()), (Fault::Unavailable, 4));

    let fake = Fake::new([]).tokens([Reply::empty(429).header("retry-after", "9")]);
    text(&tokens(&fake, client_secret())).await;
    assert_eq!(fake.log()[1].at, Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn the_identity_of_the_machine_is_asked_for_by_name_and_only_once() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ManagedIdentity/userAssignedIdentities/i";
    for (identity, query) in [
        (ManagedIdentity::SystemAssigned, ""),
        (ManagedIdentity::ClientId("c-1".into()), "&client_id=c-1"),
        (
            ManagedIdentity::ResourceId(id.into()),
            "&msi_res_id=%2Fsubscriptions%2Fs%2FresourceGroups%2Fg%2Fproviders%2FMicrosoft.ManagedIdentity%2FuserAssignedIdentities%2Fi",
        ),
    ] {
        let fake = Fake::new([]);
        // Its clock says 2017, and the token is good for an hour all the same.
        let tokens = tokens(&fake, Credential::ManagedIdentity(identity));
        assert_eq!(text(&tokens).await, "Bearer token-1");
        tokio::time::advance(Duration::from_secs(3_200)).await;
        assert_eq!(text(&tokens).await, "Bearer token-1");
        let expected = "GET 169.254.169.254/metadata/identity/oauth2/token?api-version=2019-08-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";
        assert_eq!(only(&fake).line, format!("{expected}{query}"));
    }
    // The SDK would ask seven times over a minute.
    let fake = Fake::new([])
        .tokens([Reply::json(400, json!({"error": "invalid_request", "error_description": "Identity not found"}))]);
    let error = tokens(&fake, Credential::ManagedIdentity(ManagedIdentity::SystemAssigned)).bearer().await.unwrap_err();
    assert!(error.to_string().contains("Identity not found"), "{error}");
    assert_eq!(error.fault(), Fault::Unauthenticated);
    only(&fake);
}

#[tokio::test(start_paused = true)]
async fn a_federated_token_is_read_from_its_file_for_each_exchange() {
    let file = std::env::temp_dir().join(format!("lazuli-token-{}", std::process::id()));
    let credential = Credential::FederatedToken {
        tenant_id: "tenant".into(),
        client_id: "app".into(),
        token_file: file.clone(),
        authority: url(LOGIN),
    };
    let fake = Fake::new([]);
    let tokens = tokens(&fake, credential);
    assert!(matches!(tokens.bearer().await, Err(AuthError::TokenFile(_))));
    for content in ["first-jwt", "second-jwt"] {
        std::fs::write(&file, format!("{content}\n")).unwrap();
        let bearer = tokens.bearer().await.unwrap();
        tokens.refused(&bearer);
        let body = fake.log().last().unwrap().body.clone();
        assert!(body.contains(&format!("client_assertion={content}&")), "{body}");
    }
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test(start_paused = true)]
async fn federation_services_are_asked_in_the_first_version_of_the_protocol() {
    for authority in ["https://adfs.local.azurestack.external/adfs", "https://adfs.local.azurestack.external/"] {
        let fake = Fake::new([]);
        let credential = Credential::ClientSecret {
            tenant_id: "ADFS".into(),
            client_id: "app".into(),
            secret: Secret::new(CLIENT_SECRET),
            authority: url(authority),
        };
        assert_eq!(text(&tokens(&fake, credential)).await, "Bearer token-1");
        let seen = only(&fake);
        assert_eq!(seen.line, "POST adfs.local.azurestack.external/adfs/oauth2/token");
        assert!(seen.body.contains("resource=https%3A%2F%2Fmanagement.azure.com%2F"), "{}", seen.body);
    }
}

fn client_certificate(tenant_id: &str, path: &std::path::Path, authority: &str) -> Credential {
    Credential::ClientCertificate {
        tenant_id: tenant_id.into(),
        client_id: "app".into(),
        path: path.into(),
        password: None,
        authority: url(authority),
    }
}

/// The header and the claims of the assertion that a request carries.
fn assertion(seen: &Seen) -> (serde_json::Value, serde_json::Value) {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    let form: Vec<(String, String)> = url::form_urlencoded::parse(seen.body.as_bytes()).into_owned().collect();
    let field = |name: &str| form.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert_eq!(field("client_assertion_type"), "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    let parts: Vec<String> = field("client_assertion").split('.').map(str::to_owned).collect();
    let part = |at: usize| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(&parts[at]).unwrap()).unwrap();
    (part(0), part(1))
}

const CERTIFICATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/client_certificates");

#[tokio::test(start_paused = true)]
async fn a_certificate_signs_for_the_authority_that_is_asked_and_is_read_for_each_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("client.pem");
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_certificate("tenant", &file, LOGIN));
    let missing = tokens.bearer().await.unwrap_err();
    assert!(matches!(&missing, AuthError::Certificate { path, .. } if *path == file), "{missing}");
    assert!(fake.log().is_empty(), "no request without an assertion");
    let mut seen = Vec::new();
    for certificate in ["test-only-client.pem", "test-only-other.pem"] {
        std::fs::copy(format!("{CERTIFICATES}/{certificate}"), &file).unwrap();
        let bearer = tokens.bearer().await.unwrap();
        tokens.refused(&bearer);
        let (header, claims) = assertion(fake.log().last().unwrap());
        assert_eq!(claims["aud"], format!("{LOGIN}/tenant/oauth2/v2.0/token"));
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("app"), &json!("app")));
        seen.push((header["x5t#S256"].clone(), claims["jti"].clone()));
    }
    assert!(seen[0].0 != seen[1].0 && seen[0].1 != seen[1].1, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn federation_services_take_a_certificate_by_its_old_thumbprint() {
    let file = PathBuf::from(format!("{CERTIFICATES}/test-only-client.pem"));
    let fake = Fake::new([]);
    let tokens = tokens(&fake, client_certificate("adfs", &file, "https://adfs.local.azurestack.external/adfs"));
    assert_eq!(text(&tokens).await, "Bearer token-1");
    let seen = only(&fake);
    assert_eq!(seen.line, "POST adfs.local.azurestack.external/adfs/oauth2/token");
    assert!(seen.body.contains("resource=https%3A%2F%2Fmanagement.azure.com%2F"), "{}", seen.body);
    let (header, claims) = assertion(&seen);
    assert_eq!(claims["aud"], "https://adfs.local.azurestack.external/adfs/oauth2/token");
    assert!(header["x5t"].is_string() && header.get("x5t#S256").is_none(), "{header}");
}

#[tokio::test(start_paused = true)]
async fn a_credential_that_cannot_work_says_so() {
    let fake = Fake::new([]);
    let credential = Credential::ClientSecret {
        tenant_id: "not a tenant".into(),
        client_id: "app".into(),
        secret: Secret::new(CLIENT_SECRET),
        authority: url(LOGIN),
    };
    let error = tokens(&fake, credential).bearer().await.unwrap_err();
    assert!(matches!(&error, AuthError::Unusable(source) if source.to_string().contains("not a tenant")), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_token_is_believed_for_a_day_at_most_however_long_its_issuer_says_it_lives() {
    let adfs = Credential::ClientSecret {
        tenant_id: "adfs".into(),
        client_id: "app".into(),
        secret: Secret::new(CLIENT_SECRET),
        authority: url("https://adfs.local.azurestack.external/adfs"),
    };
    let machine = Credential::ManagedIdentity(ManagedIdentity::SystemAssigned);
    for (credential, expires_in) in [
        (client_secret(), json!(i64::MAX)),
        (client_secret(), json!(86_401)),
        (adfs.clone(), json!(u64::MAX)),
        (adfs, json!(u64::MAX.to_string())),
        (machine, json!(u64::MAX.to_string())),
    ] {
        let answer = json!({"token_type": "Bearer", "expires_in": expires_in, "ext_expires_in": expires_in,
            "expires_on": "1506484173", "not_before": "1506480273", "resource": ARM, "access_token": "absurd"});
        let fake = Fake::new([]).tokens([Reply::json(200, answer)]);
        let tokens = tokens(&fake, credential);
        assert_eq!(text(&tokens).await, "Bearer absurd", "{expires_in}");
        tokio::time::advance(LONGEST_LIFETIME - RENEW_BEFORE - Duration::from_secs(1)).await;
        assert!(tokens.at_hand().is_some() && fake.log().len() == 1, "{expires_in}");
        tokio::time::advance(RENEW_BEFORE + Duration::from_secs(1)).await;
        assert!(tokens.at_hand().is_none(), "{expires_in}");
    }
}
