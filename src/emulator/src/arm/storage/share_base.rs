//! What requests to shares have in common: what they are about, how they are refused, and what is over by then.

use serde_json::Value;

use super::accounts::files_account;
use super::base::of_service;
use super::own_documents::{DELETED, HELD, OVER};
use super::share_leases;
use crate::answer::Context;
use crate::arm::kinds;
use crate::arm::protocol::Schema;
use crate::document::Document;
use crate::fault::Fault;
use crate::path;

/// How the body of a share is read.
pub(super) const SCHEMA: Schema = Schema { name: "SFileShare", root: "fileShare" };

/// Where the name of a share is in the path, after the namespace.
const NAME: usize = 5;

/// What a request to a share begins with.
pub(super) struct Asked {
    pub(super) account: Document,
    /// The share's id, with the account's as it is spelt.
    pub(super) id: String,
}

/// The account and the share of a request. What is over is gone first.
pub(super) fn asked(context: &mut Context<'_>, action: &str) -> Result<Asked, Fault> {
    let account = files_account(context, action, kinds::SHARE)?;
    forget_what_is_over(context, &account);
    let id = id_of(&account, name(context));
    Ok(Asked { account, id })
}

pub(super) fn id_of(account: &Value, name: &str) -> String {
    format!("{}/fileServices/default/shares/{name}", path::of(account))
}

/// The time in the form of the snapshot that a request is about, if it is.
pub(super) fn snapshot_header(context: &Context<'_>) -> Option<String> {
    context.request.header("x-ms-snapshot").filter(|time| !time.is_empty()).map(str::to_owned)
}

/// A new etag: the moment in units of 100 ns since the year 1, as the file service prints it.
pub(super) fn etag(context: &Context<'_>, before: Option<&Value>) -> String {
    const TICKS_AT_EPOCH: i128 = 621_355_968_000_000_000;
    let had = before.and_then(|doc| u64::from_str_radix(doc["etag"].as_str()?.trim_matches('"').get(2..)?, 16).ok());
    let nanos = context.shared.clock.at(context.now).as_nanosecond();
    let ticks = u64::try_from(TICKS_AT_EPOCH + nanos / 100).unwrap_or(0);
    let ticks = had.map_or(ticks, |had| ticks.max(had + 1));
    format!("\"0x{ticks:X}\"")
}

/// The name of the share of a request.
pub(super) fn name<'a>(context: &'a Context<'_>) -> &'a str {
    context.request.segment(NAME)
}

/// As the file service says what it refuses; what is read from the body, the provider refuses itself.
pub(super) fn said(context: &mut Context<'_>, refused: Fault) -> Fault {
    match refused.code.as_str() {
        "InvalidParameter" | "BadRequest" | "InvalidRequestContent" | "UnsupportedMediaType" => refused,
        _ => of_service(context, refused),
    }
}

pub(super) fn below_service(account: &Value, what: &str, name: &str) -> String {
    format!("{}/fileServices/default/{what}/{name}", path::of(account))
}

/// Removes deleted shares of an account whose days have passed, frees names, and ends leases.
pub(super) fn forget_what_is_over(context: &mut Context<'_>, account: &Value) {
    let now = context.shared.clock.at(context.now).as_nanosecond();
    let is_over =
        |doc: &Value| doc[OVER].as_str().and_then(|over| over.parse::<i128>().ok()).is_some_and(|at| at <= now);
    let store = &context.state.store;
    let kept = store.below_of_kind(path::of(account), DELETED).chain(store.below_of_kind(path::of(account), HELD));
    let over: Vec<String> =
        kept.filter(|resource| is_over(&resource.doc)).map(|resource| resource.id().to_owned()).collect();
    let at = context.now;
    for id in over {
        for below in context.state.store.below(&id) {
            context.state.store.remove(&below, at);
        }
    }
    share_leases::follow_time(context, account);
}
