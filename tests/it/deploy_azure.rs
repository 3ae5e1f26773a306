//! The Azure roles in `deploy/azure` allow what the controller does, and nothing else.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use csi_proto::csi::{CreateSnapshotRequest, DeleteSnapshotRequest, ListSnapshotsRequest};
use lazuli_assembly::clients;
use lazuli_azure::{Until, transport::Routes};
use lazuli_config::{Config, Credential, Document, Environment, ManagedIdentity};
use lazuli_emulator::{call_log::Call, options::MissingInstance, scenario};
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::{
    disk_rig::{
        GIB, Method, Rig, create_all, delete, expand, list, numbered, publish_all, seconds, typical, unpublish_all,
    },
    disk_scale_sets, file_claims,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/azure")
}

/// The actions of a role's file.
pub(super) fn actions(file: &str) -> BTreeSet<String> {
    let role: Value = serde_json::from_slice(&fs::read(folder().join(file)).unwrap()).unwrap();
    for empty in ["NotActions", "DataActions", "NotDataActions"] {
        assert_eq!(role[empty], serde_json::json!([]), "{file}: {empty}");
    }
    role["Actions"].as_array().unwrap().iter().map(|action| action.as_str().unwrap().to_owned()).collect()
}

/// The rows of the table: action, file, and whether a call of the controller shows it.
pub(super) fn table() -> Vec<(String, String, bool)> {
    let text = fs::read_to_string(folder().join("README.md")).unwrap();
    let rows = text.lines().filter(|line| line.starts_with("| `Microsoft."));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        let by_call = ["a call of the controller", "a call of the cloud controllers"].contains(&cells[3]);
        (cells[0].to_owned(), cells[1].to_owned(), by_call)
    };
    rows.map(row).collect()
}

/// The action that a request needs (source: Azure's rule for the names of operations: the provider, the types of the
/// path without the names of the resources, and what the method does).
fn action(call: &Call) -> String {
    let (_, path) = call.path.rsplit_once("/providers/").unwrap();
    let mut segments = path.split('/');
    let provider = segments.next().unwrap();
    let segments: Vec<&str> = segments.collect();
    let types: Vec<&str> = segments.iter().step_by(2).copied().collect();
    let done = match call.method.as_str() {
        "GET" => "read",
        "PUT" | "PATCH" => "write",
        "DELETE" => "delete",
        "POST" => "action",
        method => panic!("{method} {}", call.path),
    };
    // A provider itself is a resource of the subscription.
    if types.is_empty() {
        return format!("Microsoft.Resources/subscriptions/providers/{done}");
    }
    format!("{provider}/{}/{done}", types.join("/"))
}

/// The actions of a role's file as they are compared: Azure ignores their letter case, as that of paths.
fn allowed(file: &str) -> BTreeSet<String> {
    actions(file).iter().map(|action| action.to_lowercase()).collect()
}

/// What the requests of the controller's own client need, in lower case.
pub(super) fn needed(calls: &[Call]) -> BTreeSet<String> {
    let ours = |call: &&Call| call.user_agent.as_deref().is_some_and(|agent| agent.starts_with("lazuli"));
    calls.iter().filter(ours).map(|call| action(call).to_lowercase()).collect()
}

/// Asking about the creation of a storage account, by the name that its path gives. No role has it: that Azure knows an action
/// of this name is not known here, and Azure refuses a role with an action that it does not know.
const ACCOUNT_OPERATION: &str = "microsoft.storage/locations/asyncoperations/read";

/// Fails unless the roles allow these requests. [`Rig::stop`] asks, so that every test of the controller is a test of
/// the roles.
#[track_caller]
pub(super) fn assert_allowed(calls: &[Call]) {
    let mut allowed: BTreeSet<String> =
        ["role.json", "role-whole-list.json", "role-blob-disks.json", "role-files.json", "role-files-network.json"]
            .into_iter()
            .flat_map(allowed)
            .collect();
    allowed.insert(ACCOUNT_OPERATION.to_owned());
    let missing: Vec<String> = needed(calls).difference(&allowed).cloned().collect();
    assert!(missing.is_empty(), "the roles in deploy/azure lack {missing:?}");
}

/// A volume's life with one way to attach, and everything else that the controller asks Azure.
async fn life(method: Method) -> BTreeSet<String> {
    let mut rig = Rig::with(typical(), |options| method.set(options)).await;
    let client = rig.controller().await;
    let volumes = create_all(&client, &numbered(2)).await;
    for answer in publish_all(&client, &volumes, "node-0").await {
        answer.unwrap();
    }
    list(&client).await.unwrap();
    for answer in unpublish_all(&client, &volumes, "node-0").await {
        answer.unwrap();
    }
    expand(&client, &volumes[0].volume_id, 2 * GIB, 0).await.unwrap();
    // A machine that is gone is looked for in a list.
    for answer in unpublish_all(&client, &volumes, "gone").await {
        answer.unwrap();
    }
    let request = CreateSnapshotRequest {
        name: "snapshot-0".into(),
        source_volume_id: volumes[0].volume_id.clone(),
        ..Default::default()
    };
    let snapshot_id = client.clone().create_snapshot(request).await.unwrap().into_inner().snapshot.unwrap().snapshot_id;
    client.clone().list_snapshots(ListSnapshotsRequest::default()).await.unwrap();
    client.clone().delete_snapshot(DeleteSnapshotRequest { snapshot_id, ..Default::default() }).await.unwrap();
    for volume in &volumes {
        delete(&client, &volume.volume_id).await.unwrap();
    }
    // What the controller asks about VM sizes that its table lacks.
    let document = lazuli_rig::azure_json(&scenario::Scenario::default(), &rig.lab.emulator.url()).to_string();
    let document = Document::parse("the embedded Azure", document.as_bytes()).unwrap();
    let config = Config::from_documents(Some(&document), None, &Environment::new(&BTreeMap::new())).unwrap();
    let azure = clients::connect(&config, Routes::none(), &mut Registry::default(), 1).await.unwrap();
    azure.compute.vm_sizes(scenario::SUBSCRIPTION, scenario::LOCATION, &Until::within(seconds(60))).await.unwrap();
    let mut needed = needed(&rig.calls());
    rig.stop().await;
    needed.extend(disk_scale_sets::actions_of_a_life(method, MissingInstance::NotFound).await);
    needed
}

#[tokio::test(start_paused = true)]
async fn the_roles_allow_what_the_controller_asks_of_azure_and_nothing_else() {
    let (base, whole_list) = (allowed("role.json"), allowed("role-whole-list.json"));
    let linked: BTreeSet<String> = table()
        .into_iter()
        .filter(|(_, file, by_call)| file == "role.json" && !by_call)
        .map(|(action, _, _)| action.to_lowercase())
        .collect();
    assert_eq!(
        Box::pin(life(Method::Action)).await,
        base.difference(&linked).cloned().collect(),
        "the role without writes"
    );

    let attach = ["virtualmachines", "virtualmachinescalesets/virtualmachines"]
        .map(|kind| format!("microsoft.compute/{kind}/attachdetachdatadisks/action"));
    for method in [Method::WholeList, Method::AzureStack] {
        let mut needed = Box::pin(life(method)).await;
        for attach in attach.clone() {
            assert!(needed.insert(attach), "{method:?} asks for the action");
        }
        let both: BTreeSet<String> = base.union(&whole_list).cloned().collect();
        assert_eq!(needed, both.difference(&linked).cloned().collect(), "both roles, with {method:?}");
    }
    assert!(base.is_disjoint(&whole_list), "an action is in both roles");
}

#[tokio::test]
async fn the_role_of_files_allows_what_the_controller_asks_of_azure_for_shares_and_nothing_else() {
    let linked: BTreeSet<String> = table()
        .into_iter()
        .filter(|(_, file, by_call)| file == "role-files.json" && !by_call)
        .map(|(action, _, _)| action.to_lowercase())
        .collect();
    let mut needed = needed(&Box::pin(file_claims::calls_of_a_life()).await);
    assert!(needed.remove(ACCOUNT_OPERATION), "the creation of an account is asked about");
    assert_eq!(
        needed,
        allowed("role-files.json").difference(&linked).cloned().collect(),
        "left the requests, right the role"
    );
}

#[test]
fn every_action_of_a_role_has_one_row_that_says_how_it_is_known() {
    let mut rows: Vec<(String, String)> = table().into_iter().map(|(action, file, _)| (action, file)).collect();
    rows.sort();
    let files = [
        "role.json",
        "role-whole-list.json",
        "role-blob-disks.json",
        "role-files.json",
        "role-files-network.json",
        "role-cloud-controllers.json",
        "role-scale-set-pools.json",
        "role-add-ssh-key.json",
    ];
    let of_file = |file: &'static str| actions(file).into_iter().map(move |action| (action, file.to_owned()));
    let mut listed: Vec<(String, String)> = files.into_iter().flat_map(of_file).collect();
    listed.sort();
    assert_eq!(rows, listed);
}

#[test]
fn an_action_is_named_as_azure_names_it() {
    let named = |method: &str, path: &str| {
        let call = serde_json::json!({"method": method, "path": path});
        action(&Call {
            number: 1,
            at_ms: 0,
            plane: "arm".to_owned(),
            method: call["method"].as_str().unwrap().to_owned(),
            path: call["path"].as_str().unwrap().to_owned(),
            api_version: None,
            operation: String::new(),
            user_agent: None,
            if_match: None,
            body: None,
            status: 200,
            code: None,
            started: None,
            latency_ms: None,
            incident: false,
        })
    };
    for (method, path, action) in [
        ("GET", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks", "disks/read"),
        ("PUT", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", "disks/write"),
        ("DELETE", "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d", "disks/delete"),
        (
            "POST",
            "/subscriptions/s/providers/Microsoft.Compute/virtualMachines/v/restart",
            "virtualMachines/restart/action",
        ),
        ("GET", "/subscriptions/s/providers/Microsoft.Compute/locations/l/operations/o", "locations/operations/read"),
    ] {
        assert_eq!(named(method, path), format!("Microsoft.Compute/{action}"));
    }
}

/// The cloud configuration in an example's Secret.
fn credential(file: &str) -> Credential {
    let example: Value = serde_saphyr::from_str(&fs::read_to_string(folder().join(file)).unwrap()).unwrap();
    let text = example["stringData"]["cloud-config"].as_str().unwrap();
    let document = Document::parse(file.to_owned(), text.as_bytes()).unwrap();
    Config::from_documents(Some(&document), None, &Environment::new(&BTreeMap::new())).unwrap().credential
}

#[test]
fn the_example_of_each_identity_is_a_configuration_that_signs_in_so() {
    const CLIENT: &str = "00000000-0000-0000-0000-00000000000a";
    let identity = ManagedIdentity::ClientId(CLIENT.to_owned());
    assert_eq!(credential("managed-identity.secret.yaml"), Credential::ManagedIdentity(identity));
    let Credential::ClientSecret { client_id, .. } = credential("service-principal.secret.yaml") else {
        panic!("another credential");
    };
    assert_eq!(client_id, CLIENT);

    let values = fs::read_to_string(folder().join("workload-identity.values.yaml")).unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    let document = Document::parse("values", values["azure"]["config"].to_string().as_bytes()).unwrap();
    // What the chart puts into the environment.
    let variables = [("AZURE_CLIENT_ID", CLIENT), ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/token")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let config = Config::from_documents(Some(&document), None, &Environment::new(&variables)).unwrap();
    let Credential::FederatedToken { client_id, .. } = config.credential else { panic!("another credential") };
    assert_eq!((client_id.as_str(), &values["azure"]["workloadIdentity"]["clientId"]), (CLIENT, &CLIENT.into()));
}
