//! Lists of shares, with their snapshots and with deleted shares where `$expand` says so.
//!
//! Documented: `$filter` is what the names begin with, `$maxpagesize` the size of a page, `$skipToken` where the next one
//! begins. Unverified: the order of snapshots and deleted shares among the shares, and the size of a page without
//! `$maxpagesize`, which is the service's 5,000.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::accounts::files_account;
use super::base::location;
use super::share_base::{self, Asked};
use super::share_snapshots::SNAPSHOT;
use super::{own_documents, share_deletion, share_snapshots, windows};
use crate::answer::{Answer, Content, Context, Page, Reply};
use crate::arm::kinds;
use crate::fault::{self, Fault};
use crate::path;

const PAGE: usize = 5_000;

/// An item with what it is sorted by: the name, then its place among those of the name.
type Item = (String, Value);

pub(super) fn list(context: &mut Context<'_>) -> Reply {
    let account = files_account(context, "read", kinds::SHARE)?;
    windows::list(context, location(&account))?;
    share_base::forget_what_is_over(context, &account);
    let asked = Asked { id: String::new(), account };
    page(context, &asked).map_err(|refused| share_base::said(context, refused))
}

/// What `$expand` asks for: deleted shares, snapshots.
fn expansion(context: &Context<'_>) -> Result<(bool, bool), Fault> {
    let (mut deleted, mut snapshots) = (false, false);
    let asked = context.request.query.get("$expand").map_or("", String::as_str);
    for word in asked.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "deleted" => deleted = true,
            "snapshots" => snapshots = true,
            _ => return Err(fault::share_query_invalid()),
        }
    }
    Ok((deleted, snapshots))
}

fn page(context: &Context<'_>, asked: &Asked) -> Reply {
    let query = &context.request.query;
    let size = match query.get("$maxpagesize") {
        None => PAGE,
        Some(given) => given.parse::<usize>().ok().filter(|size| *size > 0).ok_or_else(fault::share_query_invalid)?,
    };
    let size = size.min(PAGE).min(context.shared.options.page_size.max(1));
    let after = match query.get("$skiptoken") {
        None => None,
        Some(token) => {
            let read = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
            Some(read.ok_or_else(fault::share_query_invalid)?)
        }
    };
    let mut items = items(context, asked, expansion(context)?);
    items.retain(|(key, _)| after.as_ref().is_none_or(|after| key > after));
    items.sort_by(|(one, _), (other, _)| one.cmp(other));
    let next = items.len() > size;
    items.truncate(size);
    let next_link = items.last().filter(|_| next).map(|(key, _)| next_link(context, key));
    let value = items.into_iter().map(|(_, item)| item.into()).collect();
    Ok(Answer { status: 200, body: Content::Page(Page { value, next_link }), ..Answer::default() })
}

fn items(context: &Context<'_>, asked: &Asked, (deleted, snapshots): (bool, bool)) -> Vec<Item> {
    let (store, now) = (&context.state.store, context.now);
    let scope = path::of(&asked.account);
    let prefix = context.request.query.get("$filter").map_or("", String::as_str).trim();
    let fits = |doc: &Value| doc["name"].as_str().is_some_and(|name| name.starts_with(prefix));
    // What no name has, and what sorts before all that a name may have.
    let key = |doc: &Value, place: &str| [doc["name"].as_str().unwrap_or(""), place].join("\u{1}");
    let mut items: Vec<Item> = Vec::new();
    for (_, doc) in store.list(scope, Some(kinds::SHARE), None, now).filter(|(_, doc)| fits(doc)) {
        items.push((key(doc, ""), doc.clone().into_value()));
        if !snapshots {
            continue;
        }
        for (_, snapshot) in store.list(path::of(doc), Some(SNAPSHOT), None, now) {
            let time = snapshot["properties"]["snapshotTime"].as_str().unwrap_or("");
            items.push((key(doc, time), share_snapshots::shown(snapshot, doc)));
        }
    }
    if deleted {
        for (_, doc) in store.list(scope, Some(own_documents::DELETED), None, now).filter(|(_, doc)| fits(doc)) {
            let version = doc["properties"]["version"].as_str().unwrap_or("");
            let shown = share_deletion::shown(context, &asked.account, doc);
            if snapshots {
                for (_, snapshot) in store.list(path::of(doc), Some(SNAPSHOT), None, now) {
                    let time = snapshot["properties"]["snapshotTime"].as_str().unwrap_or("");
                    items.push((
                        key(doc, &format!("deleted/{version}/{time}")),
                        share_snapshots::shown(snapshot, &shown),
                    ));
                }
            }
            items.push((key(doc, &format!("deleted/{version}")), shown));
        }
    }
    items
}

fn next_link(context: &Context<'_>, last: &str) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in context.request.query.iter().filter(|(name, _)| *name != "$skiptoken") {
        query.append_pair(name, value);
    }
    query.append_pair("$skipToken", &URL_SAFE_NO_PAD.encode(last));
    format!("{}{}?{}", context.request.base, context.request.raw_path, query.finish())
}
