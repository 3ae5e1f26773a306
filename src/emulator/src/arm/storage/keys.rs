//! The two keys of an account: base64 of 64 bytes (documented), drawn from the emulator's seed, the account's name, the
//! key's name and how often that key has been drawn, so that runs repeat. An account that is created again has other keys.
//!
//! How often is kept in a document of the emulator's own, outside of all subscriptions, which outlives the account.

use std::time::Duration;

use serde_json::{Value, json};

use super::accounts::{self, account};
use super::base::{location, require_provisioned, stamp};
use super::{own_documents, windows};
use crate::answer::{Answer, Context, Reply};
use crate::arm::kinds;
use crate::fault::{self, Fault};
use crate::path;
use crate::state::State;
use crate::store::Resource;

const KEYS: [&str; 2] = ["key1", "key2"];

/// The hook of accounts: a new one has new keys.
pub(super) fn follow(state: &mut State, old: Option<&Value>, new: Option<&Value>, at: Duration) {
    if let (None, Some(new)) = (old, new) {
        for key in KEYS {
            draw(state, path::name_of(path::of(new)), key, at);
        }
    }
}

fn draw(state: &mut State, account: &str, key: &str, at: Duration) {
    let id = own_documents::keys_id(account);
    if !state.store.contains(&id) {
        let properties = json!({"key1": 0, "key2": 0});
        let doc = json!({"id": id, "name": path::name_of(&id), "type": own_documents::KEYS, "properties": properties});
        state.store.insert(&id, Resource::new(doc), at);
    }
    let next = times(state, account, key) + 1;
    state.store.change(&id, at, |resource| resource.doc["properties"][key] = json!(next));
}

/// How often a key has been drawn.
fn times(state: &State, account: &str, key: &str) -> u64 {
    let count = state.store.document(&own_documents::keys_id(account));
    count.and_then(|count| count["properties"][key].as_u64()).unwrap_or(0)
}

/// The keys of an account as they are now.
pub(crate) fn values(state: &State, account: &Value) -> [String; 2] {
    let name = path::name_of(path::of(account));
    KEYS.map(|key| own_documents::key(state.random_seed(), name, key, times(state, name, key)))
}

/// Recorded form.
fn shown(state: &State, account: &Value) -> Value {
    let name = path::name_of(path::of(account));
    let key = |key: &str| {
        json!({
            "creationTime": account["properties"]["keyCreationTime"][key],
            "keyName": key,
            "value": own_documents::key(state.random_seed(), name, key, times(state, name, key)),
            "permissions": "FULL",
        })
    };
    json!({"keys": KEYS.map(key)})
}

/// The account, which must be there and provisioned.
fn own(context: &Context<'_>) -> Result<Value, Fault> {
    context.require_group()?;
    let found = account(context, "read", kinds::STORAGE_ACCOUNT);
    let account = found.map_err(|_| accounts::STORAGE_ACCOUNT.not_found(context))?.into_value();
    require_provisioned(&account)?;
    Ok(account)
}

/// POST `listKeys`. Documented: refused until the account is provisioned. Keys of Kerberos (`$expand=kerb`) are not
/// emulated.
pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let account = own(context)?;
    windows::read(context, location(&account))?;
    Ok(Answer::json(200, shown(context.state, &account)))
}

/// POST `regenerateKey`. Documented: the answer has both keys. The refusal of a name is unverified.
pub(super) fn regenerate(context: &mut Context<'_>) -> Reply {
    let mut account = own(context)?;
    windows::write(context, location(&account))?;
    let body = context.request.body()?;
    let asked = body["keyName"].as_str().unwrap_or("");
    let Some(key) = KEYS.into_iter().find(|key| key.eq_ignore_ascii_case(asked)) else {
        return Err(fault::storage_value_not_allowed(asked, "keyName"));
    };
    let now = context.now;
    draw(context.state, path::name_of(path::of(&account)), key, now);
    let drawn = json!(stamp(context.shared.clock.at(now)));
    account["properties"]["keyCreationTime"][key] = drawn.clone();
    accounts::change(context, &account, |doc| doc["properties"]["keyCreationTime"][key] = drawn);
    Ok(Answer::json(200, shown(context.state, &account)))
}
