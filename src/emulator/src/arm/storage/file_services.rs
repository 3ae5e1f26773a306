//! The file service of an account, which is called `default` and is there as long as the account.
//!
//! Documented: its members, and soft delete of shares for 7 days unless it says otherwise. That a PUT leaves what it does
//! not name as it is, and all refusals of values are unverified.

use serde_json::{Value, json};

use super::accounts::{STORAGE_ACCOUNT, files_account};
use super::base::{RESOURCE, location, of_service};
use super::{skus, windows};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Descriptor, Own};
use crate::arm::protocol::Schema;
use crate::arm::{kinds, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Resource;

pub(crate) static FILE_SERVICE: Descriptor = Descriptor {
    kind: kinds::FILE_SERVICE,
    path: "storageAccounts/*/fileServices",
    parent: Some(&STORAGE_ACCOUNT),
    schema: Schema { name: "SFileService", root: "fileService" },
    own: Own {
        put: Some(put),
        patch: None,
        get: Some(get),
        delete: Some(|_| Err(fault::method_not_allowed("DELETE"))),
        list: Some(list),
    },
    ..RESOURCE
};

const DAYS_MOST: u64 = 365;

fn id_of(account: &Value) -> String {
    format!("{}/fileServices/default", path::of(account))
}

/// The service of an account, as it was last written.
pub(super) fn of(state: &State, account: &Value) -> Value {
    let id = id_of(account);
    if let Some(written) = state.store.document(&id) {
        return writes::with(written.into_value(), &["sku"], account);
    }
    let premium = skus::of(account).media == skus::Media::ProvisionedV1;
    json!({
        "sku": account["sku"],
        "id": id,
        "name": "default",
        "type": kinds::FILE_SERVICE,
        "properties": {
            "protocolSettings": {"smb": if premium { json!({"multichannel": {"enabled": false}}) } else { json!({}) }},
            "cors": {"corsRules": []},
            "shareDeleteRetentionPolicy": {"enabled": true, "days": 7},
        },
    })
}

/// How many days deleted shares are kept; none where they are not.
pub(super) fn retention(state: &State, account: &Value) -> Option<i64> {
    let service = of(state, account);
    let policy = &service["properties"]["shareDeleteRetentionPolicy"];
    policy["days"].as_i64().filter(|_| policy["enabled"] == true)
}

/// There is one of that name.
fn require_default(context: &Context<'_>) -> Result<(), Fault> {
    match FILE_SERVICE.name(context).eq_ignore_ascii_case("default") {
        true => Ok(()),
        false => Err(FILE_SERVICE.not_found(context)),
    }
}

fn get(context: &mut Context<'_>) -> Reply {
    let account = files_account(context, "read", kinds::FILE_SERVICE)?;
    windows::read(context, location(&account))?;
    require_default(context)?;
    Ok(Answer::json(200, of(context.state, &account)))
}

fn list(context: &mut Context<'_>) -> Reply {
    let account = files_account(context, "read", kinds::FILE_SERVICE)?;
    windows::list(context, location(&account))?;
    Ok(Answer::json(200, json!({"value": [of(context.state, &account)]})))
}

fn put(context: &mut Context<'_>) -> Reply {
    let account = files_account(context, "write", kinds::FILE_SERVICE)?;
    windows::write(context, location(&account))?;
    require_default(context)?;
    let body = context.read(FILE_SERVICE.schema.name, FILE_SERVICE.schema.root, true)?;
    let mut doc = of(context.state, &account);
    if let Err(refused) = change(&mut doc["properties"], &body["properties"], &account) {
        return Err(of_service(context, refused));
    }
    let (id, now) = (id_of(&account), context.now);
    match context.state.store.contains(&id) {
        true => {
            context.state.store.change(&id, now, |resource| resource.doc = Document::from(doc.clone()));
        }
        false => context.state.store.insert(&id, Resource::new(doc.clone()), now),
    }
    Ok(Answer::json(200, doc))
}

fn change(properties: &mut Value, asked: &Value, account: &Value) -> Result<(), Fault> {
    let policy = &asked["shareDeleteRetentionPolicy"];
    if policy.is_object() {
        properties["shareDeleteRetentionPolicy"] = match (policy["enabled"].as_bool(), policy["days"].as_u64()) {
            (Some(true), Some(days)) if (1..=DAYS_MOST).contains(&days) => json!({"enabled": true, "days": days}),
            (Some(false), None | Some(0..=DAYS_MOST)) => json!({"enabled": false, "days": 0}),
            _ => return Err(fault::share_node_invalid()),
        };
    }
    if asked["cors"].is_object() {
        properties["cors"] = writes::with_others(asked["cors"].clone(), &json!({"corsRules": []}));
    }
    let smb = &asked["protocolSettings"]["smb"];
    if smb["multichannel"]["enabled"] == true && !skus::of(account).name.starts_with("Premium") {
        return Err(fault::service_unsupported("SMB multichannel"));
    }
    for (member, value) in writes::object(smb) {
        properties["protocolSettings"]["smb"][member] = value;
    }
    if asked["protocolSettings"]["nfs"].is_object() {
        properties["protocolSettings"]["nfs"] = asked["protocolSettings"]["nfs"].clone();
    }
    Ok(())
}
