//! What a node gets after its key was refused, and what happens to the Secret.

use super::*;

const OWN_SECRET: &str = "azure-storage-account-f1-secret";

#[tokio::test]
async fn after_a_rotation_a_node_gets_the_new_key_at_once_and_the_drivers_secret_follows() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", KEY));
    // What another node is refused for says nothing to this one, and n2 has no Pod with the volume.
    assert_eq!(cluster.another("n2", VOLUME, KEY).await.unwrap_err().code, Code::PermissionDenied);
    assert_eq!(cluster.stored(OWN_SECRET), encode(KEY));
    assert_eq!(cluster.another("n1", VOLUME, KEY).await, expected("f1", NEW_KEY));
    assert_eq!(cluster.stored(OWN_SECRET), encode(NEW_KEY));
    assert_eq!(cluster.asked.lock().unwrap().len(), 1);
    // From now on the Secret has it: nobody asks Azure again.
    assert_eq!(cluster.key("n1", VOLUME).await, expected("f1", NEW_KEY));
    assert_eq!(cluster.another("n1", VOLUME, KEY).await, expected("f1", NEW_KEY));
    assert_eq!(cluster.asked.lock().unwrap().len(), 1);
    // Not every refusal is a rotation.
    let error = cluster.another("n1", VOLUME, NEW_KEY).await.unwrap_err();
    assert_eq!(error.code, Code::FailedPrecondition);
    assert!(error.message.contains("the key that Azure lists for storage account f1"), "{error}");
}

#[tokio::test]
async fn a_secret_of_a_person_is_never_written_and_the_refusal_names_it() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let data = json!({"azurestorageaccountname": encode("f1"), "azurestorageaccountkey": encode(KEY)});
    cluster.secret("mine", data.clone());
    let id = "g#f1#of-mine###db";
    cluster.volume("mine", "mine", id, json!({"secretName": "mine"})).await;
    cluster.pod("db", "mine", "n1", "app", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]));
    // One of the driver's name, with a note of a person beside the key.
    let mut noted = data;
    noted["note"] = encode("rotate in March");
    cluster.secret(OWN_SECRET, noted);
    for (id, name) in [(id, "mine"), (VOLUME, OWN_SECRET)] {
        let error = cluster.another("n1", id, KEY).await.unwrap_err();
        assert_eq!(error.code, Code::FailedPrecondition);
        assert!(error.message.contains(&format!("Secret db/{name}")) && !error.message.contains(KEY), "{error}");
        assert_eq!(cluster.stored(name), encode(KEY));
    }
    assert!(cluster.asked.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_secret_that_cannot_be_written_costs_the_node_nothing() {
    let cluster = Cluster::start().await;
    let authority = Authority::make();
    std::fs::write(cluster.path("ca.crt"), authority.pem()).unwrap();
    // The role lacks the verb.
    let refuse = async |request: axum::extract::Request, next: axum::middleware::Next| match *request.method() {
        http::Method::PUT => {
            let status = json!({"kind": "Status", "apiVersion": "v1", "code": 403, "reason": "Forbidden"});
            axum::response::IntoResponse::into_response((http::StatusCode::FORBIDDEN, axum::Json(status)))
        }
        _ => next.run(request).await,
    };
    let client = Client::new(cluster.server.router().layer(axum::middleware::from_fn(refuse)), "default");
    cluster.endpoints(&[cluster.replica_with(&authority, NAME, client).await]);
    for _ in 0..2 {
        assert_eq!(cluster.another("n1", VOLUME, KEY).await, expected("f1", NEW_KEY));
        assert_eq!(cluster.stored(OWN_SECRET), encode(KEY));
    }
}

#[tokio::test]
async fn a_secret_of_another_account_than_the_volume_s_is_refused_with_both_names() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    cluster.secret(OWN_SECRET, json!({"azurestorageaccountname": encode("f9"), "azurestorageaccountkey": encode(KEY)}));
    let (code, message) = cluster.refused("n1", VOLUME).await;
    assert_eq!(code, Code::FailedPrecondition);
    for part in ["PersistentVolume pv-1", "account f1", "Secret db/azure-storage-account-f1-secret", "account f9"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert_eq!(cluster.another("n1", VOLUME, KEY).await.unwrap_err().code, Code::FailedPrecondition);
    assert_eq!(cluster.stored(OWN_SECRET), encode(KEY));
}

#[tokio::test]
async fn slow_listings_of_one_account_keep_nobody_waiting_whose_key_is_in_a_secret() {
    let cluster = Cluster::start().await;
    cluster.trusted_replica().await;
    let id = "g#slow#of-slow###db";
    cluster.volume("slow", "slow", id, json!({})).await;
    cluster.pod("db", "slow", "n1", "app", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "slow"}}]));
    cluster.pod("db", "app-2", "n2", "app", json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]));
    let node = cluster.node("n1");
    let none = BTreeMap::new();
    let slow = futures::future::join_all((0..8).map(|_| node.key(id, &none, None)));
    let other = async {
        while cluster.asked.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        timeout(Duration::from_secs(4), cluster.key("n2", VOLUME)).await
    };
    tokio::select! {
        _ = slow => panic!("a listing has ended"),
        key = other => assert_eq!(key.expect("it has no turn to wait for"), expected("f1", KEY)),
    }
    assert_eq!(cluster.asked.lock().unwrap().len(), 1, "one listing of an account at a time");
}
