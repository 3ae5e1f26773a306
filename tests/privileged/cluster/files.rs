//! A claim of a class of file shares, by the real sidecars and with the rights that the chart gives: the share and its
//! storage account are made, the Secret is written, the claim grows, a deletion that would lose a snapshot waits.
//!
//! No pod mounts it here: what a kernel does with a share, the tier `guest` tells.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{CLAIMS, Cluster, Drivers, EVENTS, VOLUMES};

const DRIVER: &str = "file.csi.azure.com";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

impl Cluster {
    /// A cluster with both drivers, and a class of file shares.
    async fn start_with_files() -> Option<Self> {
        let mut cluster = Self::start_empty(&[], "").await?;
        cluster.drivers = Drivers::DisksAndFiles;
        cluster.install_chart().await;
        let class = json!({
            "metadata": {"name": "files"}, "provisioner": DRIVER, "allowVolumeExpansion": true, "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate", "parameters": {"skuName": "Standard_LRS"},
        });
        cluster.kubernetes.create(CLASSES, class).await;
        Some(cluster)
    }

    /// The shares that Azure has, deleted ones left out: account, name and quota in GiB.
    async fn shares(&self) -> Vec<(String, String, u64)> {
        let dump = self.azure.dump().await;
        let resources = dump["resources"].as_object().unwrap();
        let share = |id: &String, document: &Value| {
            let (account, name) = id.split_once("/storageaccounts/")?.1.split_once("/fileservices/default/shares/")?;
            let gib = document["properties"]["shareQuota"].as_u64()?;
            (!name.contains('/')).then(|| (account.to_owned(), name.to_owned(), gib))
        };
        resources.iter().filter_map(|(id, document)| share(&id.to_lowercase(), document)).collect()
    }
}

#[tokio::test]
async fn a_claim_of_file_shares_is_bound_with_its_secret_grows_and_goes() {
    let Some(mut cluster) = Cluster::start_with_files().await else { return };
    let spec = json!({
        "storageClassName": "files", "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}},
    });
    for name in ["one", "two"] {
        cluster.kubernetes.create(CLAIMS, json!({"metadata": {"name": name}, "spec": spec})).await;
    }
    let mut volumes = Vec::new();
    for name in ["one", "two"] {
        let bound = |claim: Option<&Value>| claim.is_some_and(|claim| claim["status"]["phase"] == "Bound");
        let claim = cluster.kubernetes.until("a bound claim", &format!("{CLAIMS}/{name}"), bound).await;
        let path = format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap());
        volumes.push(cluster.kubernetes.get(&path).await.unwrap());
    }
    // Two shares in one account, under the names of their volumes.
    let shares = cluster.shares().await;
    assert_eq!(shares.len(), 2, "{shares:?}");
    let account = shares[0].0.clone();
    assert!(shares.iter().all(|(of, _, gib)| *of == account && *gib == 5), "{shares:?}");
    for volume in &volumes {
        let csi = &volume["spec"]["csi"];
        assert_eq!(csi["driver"], DRIVER);
        let handle: Vec<&str> = csi["volumeHandle"].as_str().unwrap().split('#').collect();
        assert_eq!(
            (handle[1], handle[2]),
            (account.as_str(), volume["metadata"]["name"].as_str().unwrap()),
            "{handle:?}"
        );
        assert_eq!(volume["spec"]["mountOptions"], Value::Null);
    }
    // The Secret, in the claims' namespace, holds a key of the account.
    let secret = format!("{SECRETS}/azure-storage-account-{account}-secret");
    let secret = cluster.kubernetes.get(&secret).await.expect("the Secret");
    let data = secret["data"].as_object().unwrap();
    let names: Vec<&String> = data.keys().collect();
    assert_eq!(names, ["azurestorageaccountkey", "azurestorageaccountname"], "{:?}", secret["metadata"]);
    assert!(data.values().all(|value| value.as_str().is_some_and(|text| !text.is_empty())));
    let decoded = |name: &str| String::from_utf8(STANDARD.decode(data[name].as_str().unwrap()).unwrap()).unwrap();
    assert_eq!(decoded("azurestorageaccountname"), account);
    let key = decoded("azurestorageaccountkey");

    cluster.grow("one", 8).await;
    let grown = cluster.shares().await;
    let one = volumes[0]["metadata"]["name"].as_str().unwrap();
    let quota = |name: &str| grown.iter().find(|(_, share, _)| share == name).map(|(.., gib)| *gib);
    assert_eq!((quota(one), grown.len()), (Some(8), 2), "{grown:?}");

    // A claim that no share can serve says why.
    let bad = json!({
        "metadata": {"name": "nfs"}, "provisioner": DRIVER, "volumeBindingMode": "Immediate",
        "parameters": {"protocol": "nfs"},
    });
    cluster.kubernetes.create(CLASSES, bad).await;
    let mut of_nfs = spec.clone();
    of_nfs["storageClassName"] = json!("nfs");
    cluster.kubernetes.create(CLAIMS, json!({"metadata": {"name": "nfs"}, "spec": of_nfs})).await;
    let told = |events: Option<&Value>| {
        let events = events.and_then(|events| events["items"].as_array()).cloned().unwrap_or_default();
        events.iter().any(|event| {
            let note = event["note"].as_str().unwrap_or_default();
            event["regarding"]["name"] == "nfs" && note.contains("no NFS shares")
        })
    };
    cluster.kubernetes.until("the event of the refused claim", EVENTS, told).await;
    cluster.delete_claim("nfs").await;

    for name in ["one", "two"] {
        cluster.delete_claim(name).await;
    }
    cluster.count("the end of all volumes", VOLUMES, 0).await;
    assert_eq!(cluster.shares().await, []);
    // The account stays for the next claim, and no log has its key.
    let logs = cluster.controller_logs().await;
    assert!(!logs.is_empty() && !logs.contains(&key));
    cluster.finish().await;
}
