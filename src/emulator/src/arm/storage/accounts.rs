//! Storage accounts.
//!
//! Recorded: the members of an account of the kind `Storage`, the form of its creation, PATCH and DELETE. Documented: the
//! names, which are unique over all subscriptions; the defaults of newer properties (storage-account-overview); what
//! cannot be changed (StorageAccounts_Update). Unverified: that a PUT leaves what it does not name as it is, and all of
//! what an account shows besides the recorded members where its body does not say it.

use std::time::Duration;

use serde_json::{Value, json};

use super::base::{FAMILY, RESOURCE, VERSIONS, location, post, require_provisioned, same_subscription, zulu};
use super::{base, keys, network_acls, no_services, skus, windows};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Descriptor, Draft, Hooks, Own, Quota};
use crate::arm::engine::{delete as removal, put as write, read};
use crate::arm::network::private_links;
use crate::arm::protocol::{Answered, Commit, Latency, Patch, Put, Schema, Scope, Shape, Stamps};
use crate::arm::{kinds, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::path;
use crate::state::State;

const SCHEMA: Schema = Schema { name: "SStorageAccount", root: "storageAccount" };

pub(crate) static STORAGE_ACCOUNT: Descriptor = Descriptor {
    kind: kinds::STORAGE_ACCOUNT,
    path: "storageAccounts",
    api_versions: VERSIONS,
    family: &FAMILY,
    lists: &[Scope::Either],
    latency: Latency { write: OperationKind::StorageAccount, delete: OperationKind::StorageAccount },
    schema: SCHEMA,
    layout: &["sku", "kind", "id", "name", "type", "location", "extendedLocation", "tags", "identity", "properties"],
    stamps: Stamps::State,
    put: Put {
        created: Answered::new(202, Shape::Location),
        updated: |_| Answered::new(200, Shape::Synchronous),
        running: |_| "Creating",
        commit: Commit::AtEnd,
    },
    creating: Some("Creating"),
    patch: Patch::Merge { operation: "update", schema: SCHEMA, answered: Answered::new(200, Shape::Synchronous) },
    quotas: &[Quota {
        name: "StorageAccounts",
        local_name: "Storage Accounts",
        limit: 250,
        counts: |_| true,
        fault: |exceeded| fault::too_many_accounts(exceeded.limit, exceeded.location, exceeded.used),
    }],
    hooks: Hooks { name: check_name, complete, check, settle: network_acls::settle, changed, ..RESOURCE.hooks },
    own: Own { put: Some(put), patch: Some(patch), get: Some(get), delete: Some(delete), list: Some(list) },
    routes: &[
        post("listkeys", "storageAccounts.listKeys", keys::list),
        post("regeneratekey", "storageAccounts.regenerateKey", keys::regenerate),
        base::get("tableservices/default/tables", "table.list", no_services::tables),
        base::get("queueservices/default/queues", "queue.list", no_services::queues),
    ],
    ..RESOURCE
};

/// PUT: the engine's, with what the provider refuses before it looks at anything else.
fn put(context: &mut Context<'_>) -> Reply {
    let body = context.request.body()?.clone();
    let location = path::location(member(&body, "location").as_str().unwrap_or(""));
    windows::write(context, &location)?;
    if location.is_empty() {
        return Err(fault::location_required());
    }
    if member(&body, "kind").as_str().is_none() {
        return Err(fault::account_property_invalid("kind"));
    }
    if member(member(&body, "sku"), "name").as_str().is_none() {
        return Err(fault::account_property_invalid("sku"));
    }
    refuse_while_busy(context)?;
    write::put(&STORAGE_ACCOUNT, context)
}

fn patch(context: &mut Context<'_>) -> Reply {
    windows::write(context, &own_location(context))?;
    refuse_while_busy(context)?;
    write::patch(&STORAGE_ACCOUNT, context)
}

fn get(context: &mut Context<'_>) -> Reply {
    windows::read(context, &own_location(context))?;
    read::get(&STORAGE_ACCOUNT, context)
}

fn delete(context: &mut Context<'_>) -> Reply {
    windows::write(context, &own_location(context))?;
    refuse_while_busy(context)?;
    removal::delete(&STORAGE_ACCOUNT, context)
}

fn list(context: &mut Context<'_>) -> Reply {
    windows::list_accounts(context)?;
    read::list(&STORAGE_ACCOUNT, context)
}

/// A new account has new keys. The private endpoints of one that is gone are cut off. Told of what goes with an account too.
fn changed(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    if let (Some(old), None) = (old, new) {
        state.blobs.forget(old);
    }
    keys::follow(state, old, new, at);
    if let (Some(old), None) = (old, new) {
        private_links::disconnect(state, path::of(old), at);
    }
}

/// A member of an object in any letter case.
fn member<'a>(object: &'a Value, name: &str) -> &'a Value {
    let found = object.as_object().and_then(|object| object.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)));
    found.map_or(&Value::Null, |(_, value)| value)
}

/// The location of the account of the request, if there is one.
fn own_location(context: &Context<'_>) -> String {
    let doc = context.state.store.document(&STORAGE_ACCOUNT.id(context));
    doc.map(|doc| location(&doc).to_owned()).unwrap_or_default()
}

/// Documented: a second write while one runs. That a repeated creation is such a write is unverified.
fn refuse_while_busy(context: &Context<'_>) -> Result<(), Fault> {
    let found = context.state.store.get(&STORAGE_ACCOUNT.id(context));
    match found.is_some_and(|account| account.provisioning() == "Creating") {
        true => Err(fault::account_busy()),
        false => Ok(()),
    }
}

fn check_name(_: &str, name: &str) -> Result<(), Fault> {
    let fits =
        (3..=24).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if fits { Ok(()) } else { Err(fault::account_name_invalid(name)) }
}

/// The account that has a name, whoever's it is.
fn of_name<'a>(state: &'a State, name: &str) -> Option<&'a Value> {
    state.store.of_kind(kinds::STORAGE_ACCOUNT).find(|doc| path::name_of(path::of(doc)).eq_ignore_ascii_case(name))
}

/// POST `checkNameAvailability`. Recorded for a free name; reasons and texts are documented.
pub(super) fn check_name_availability(context: &mut Context<'_>) -> Reply {
    windows::read(context, "")?;
    let body = context.request.body()?.clone();
    let name = member(&body, "name").as_str().unwrap_or("");
    if !member(&body, "type").as_str().is_some_and(|kind| kind.eq_ignore_ascii_case(kinds::STORAGE_ACCOUNT)) {
        return Err(fault::account_property_invalid("type"));
    }
    let (reason, why) = match check_name(kinds::STORAGE_ACCOUNT, name) {
        Err(fault) => ("AccountNameInvalid", fault.message),
        Ok(()) if of_name(context.state, name).is_some() => ("AlreadyExists", fault::account_taken(name).message),
        Ok(()) => return Ok(Answer::json(200, json!({"nameAvailable": true}))),
    };
    Ok(Answer::json(200, json!({"nameAvailable": false, "reason": reason, "message": why})))
}

/// What a caller sets, besides the SKU, the kind, rules of networks and encryption.
const SETTABLE: [&str; 22] = [
    "dnsEndpointType",
    "defaultToOAuthAuthentication",
    "publicNetworkAccess",
    "keyPolicy",
    "sasPolicy",
    "allowedCopyScope",
    "customDomain",
    "routingPreference",
    "dualStackEndpointPreference",
    "immutableStorageWithVersioning",
    "isSftpEnabled",
    "isLocalUserEnabled",
    "isNfsV3Enabled",
    "isHnsEnabled",
    "enableExtendedGroups",
    "allowCrossTenantReplication",
    "minimumTlsVersion",
    "allowBlobPublicAccess",
    "allowSharedKeyAccess",
    "largeFileSharesState",
    "azureFilesIdentityBasedAuthentication",
    "supportsHttpsTrafficOnly",
];

fn complete(draft: &Draft<'_>) -> Result<Value, Fault> {
    let (asked, body) = (draft.asked(), draft.body);
    let kind = skus::kind(body["kind"].as_str().unwrap_or(""));
    let sku = skus::find(body["sku"]["name"].as_str().unwrap_or(""));
    let (kind, sku) = match (kind, sku) {
        (Some(kind), Some(sku)) if sku.takes(kind) => (kind, sku),
        (Some(_), None) => return Err(fault::account_parameters_invalid("sku")),
        (None, Some(_)) => return Err(fault::account_parameters_invalid("kind")),
        _ => return Err(fault::account_parameters_invalid("kind, sku")),
    };
    let had = draft.old.map(|old| &old["properties"]);
    let kept = |member: &str, default: Value| had.and_then(|had| had.get(member)).cloned().unwrap_or(default);
    let now = zulu(draft.stamp);
    let mut properties = json!({
        "keyCreationTime": kept("keyCreationTime", json!({"key1": now, "key2": now})),
        "privateEndpointConnections": kept("privateEndpointConnections", json!([])),
    });
    properties = writes::with(properties, &SETTABLE, asked);
    let newer = match kind {
        // Recorded: what is newer than this kind is not shown.
        "Storage" => json!({}),
        _ => json!({"minimumTlsVersion": "TLS1_0", "allowBlobPublicAccess": false}),
    };
    properties = writes::with_others(properties, &newer);
    properties["networkAcls"] = network_rules(&asked["networkAcls"]);
    properties = writes::with_others(properties, &json!({"supportsHttpsTrafficOnly": true}));
    properties["encryption"] = encryption(&asked["encryption"], &now);
    match (asked["accessTier"].as_str(), kind) {
        // Documented: https://aka.ms/storageaccountaccesstier.
        (Some(tier), "Storage") => return Err(access_tier_refused(tier)),
        (Some(tier), _) => properties["accessTier"] = json!(tier),
        (None, "StorageV2" | "BlobStorage") => properties["accessTier"] = json!("Hot"),
        (None, _) => {}
    }
    properties["creationTime"] = kept("creationTime", json!(now));
    place(&mut properties, draft, kind, sku);
    Ok(json!({"sku": sku.shown(), "kind": kind, "identity": body["identity"], "properties": properties}))
        .map(without_null_identity)
}

fn without_null_identity(mut made: Value) -> Value {
    if made["identity"].is_null()
        && let Some(made) = made.as_object_mut()
    {
        made.shift_remove("identity");
    }
    made
}

fn access_tier_refused(tier: &str) -> Fault {
    let mut refused = fault::storage_value_not_allowed(tier, "accessTier");
    refused.message.push_str(" For more information, see - https://aka.ms/storageaccountaccesstier");
    refused
}

/// Recorded defaults; documented: each rule allows, and a rule of a subnet shows a state.
fn network_rules(asked: &Value) -> Value {
    let default =
        json!({"bypass": "AzureServices", "virtualNetworkRules": [], "ipRules": [], "defaultAction": "Allow"});
    let mut rules = writes::with_others(if asked.is_object() { asked.clone() } else { json!({}) }, &default);
    for (list, default) in [
        ("virtualNetworkRules", json!({"action": "Allow", "state": "Succeeded"})),
        ("ipRules", json!({"action": "Allow"})),
    ] {
        for rule in rules[list].as_array_mut().into_iter().flatten() {
            *rule = writes::with_others(rule.take(), &default);
        }
    }
    rules
}

/// Recorded: files and blobs are encrypted with the account's keys from the start.
fn encryption(asked: &Value, now: &str) -> Value {
    let mut encryption = if asked.is_object() { asked.clone() } else { json!({}) };
    let mut services = writes::object(&encryption["services"]);
    for service in ["file", "blob"] {
        services.entry(service).or_insert_with(|| json!({}));
    }
    let default = json!({"keyType": "Account", "enabled": true, "lastEnabledTime": now});
    for service in services.values_mut() {
        *service = writes::with_others(service.take(), &default);
    }
    encryption["services"] = Value::Object(services);
    writes::with_others(encryption, &json!({"keySource": "Microsoft.Storage"}))
}

/// Where an account is, and where it answers. Recorded.
fn place(properties: &mut Value, draft: &Draft<'_>, kind: &str, sku: &skus::Sku) {
    let endpoints = |name: &str, services: &[&str]| -> Value {
        let url =
            |service: &&str| ((*service).to_owned(), json!(format!("https://{name}.{service}.core.windows.net/")));
        Value::Object(services.iter().map(url).collect())
    };
    let services = skus::services(kind, sku);
    properties["primaryEndpoints"] = endpoints(draft.name, services);
    properties["primaryLocation"] = json!(draft.location);
    properties["statusOfPrimary"] = json!("available");
    let Some(secondary) = skus::paired(draft.location).filter(|_| sku.secondary != skus::Secondary::None) else {
        return;
    };
    properties["secondaryLocation"] = json!(secondary);
    properties["statusOfSecondary"] = json!("available");
    if sku.secondary == skus::Secondary::Readable {
        // Recorded: files have none.
        let services: Vec<&str> = services.iter().copied().filter(|service| *service != "file").collect();
        properties["secondaryEndpoints"] = endpoints(&format!("{}-secondary", draft.name), &services);
    }
}

/// The name of a new account is free; of one that exists stays what cannot change. Documented, but for the code of a
/// changed SKU.
fn check(state: &State, new: &Value, old: Option<&Value>) -> Result<(), Fault> {
    let id = path::of(new);
    let Some(old) = old else {
        return match of_name(state, path::name_of(id)) {
            None => Ok(()),
            Some(other) if same_subscription(path::of(other), id) => Err(fault::account_exists(path::name_of(id))),
            Some(_) => Err(fault::account_taken(path::name_of(id))),
        };
    };
    // Documented: the older kinds can become the newest of general purpose.
    let upgrade = new["kind"] == "StorageV2" && (old["kind"] == "Storage" || old["kind"] == "BlobStorage");
    if old["kind"] != new["kind"] && !upgrade {
        return Err(fault::account_property_fixed("kind"));
    }
    let (had, has) = (&old["properties"], &new["properties"]);
    for fixed in ["isHnsEnabled", "isNfsV3Enabled", "dnsEndpointType"] {
        if had[fixed] != has[fixed] {
            return Err(fault::account_property_fixed(fixed));
        }
    }
    network_acls::check(state, new, old)?;
    let infrastructure = |properties: &Value| properties["encryption"]["requireInfrastructureEncryption"].clone();
    if infrastructure(had) != infrastructure(has) {
        return Err(fault::account_property_fixed("requireInfrastructureEncryption"));
    }
    // Documented: once enabled, it cannot be disabled.
    if had["largeFileSharesState"] == "Enabled" && has["largeFileSharesState"] != "Enabled" {
        return Err(fault::account_property_fixed("largeFileSharesState"));
    }
    let fixed = |account: &Value| {
        let sku = skus::of(account);
        sku.media != skus::Media::PayAsYouGo || sku.name.ends_with("ZRS") && !sku.name.ends_with("GZRS")
    };
    if old["sku"]["name"] != new["sku"]["name"] && (fixed(old) || fixed(new)) {
        return Err(fault::account_property_fixed("sku.name"));
    }
    Ok(())
}

/// Changes an account that exists, without a request of its own.
pub(super) fn change(context: &mut Context<'_>, account: &Value, change: impl FnOnce(&mut Value)) {
    let now: Duration = context.now;
    context.state.store.change(path::of(account), now, |resource| change(&mut resource.doc));
}

/// The account of a request to what is below it. Recorded: without it the gateway says that the parent is missing;
/// `action` is `read`, `write` or `delete`.
pub(super) fn account(context: &Context<'_>, action: &str, kind: &str) -> Result<Document, Fault> {
    context.require_group()?;
    let id = STORAGE_ACCOUNT.id(context);
    let kind = kind.split_once('/').map_or(kind, |(_, kind)| kind);
    let found = context.state.store.document(&id);
    found.ok_or_else(|| fault::storage_parent_not_found(action, kind, id))
}

/// The account of a request to its file service. Documented: an account that is being created has none yet, and
/// accounts for blobs have none at all.
pub(super) fn files_account(context: &Context<'_>, action: &str, kind: &str) -> Result<Document, Fault> {
    let account = account(context, action, kind)?;
    require_provisioned(&account)?;
    match skus::has_files(&account) {
        true => Ok(account),
        false => Err(fault::service_unsupported("File")),
    }
}
