//! File shares.
//!
//! Recorded: the refusal of a share that is missing. Documented: all requests are synchronous, 201 for a new share and 200
//! for one that exists; names; members; sizes are told in [`super::share_sizes`]. Unverified: that a PUT of a share that
//! exists changes what it names, and what a share without an access tier shows. The usage of a share is 0, also where
//! [`crate::smb`] serves its files.

use serde_json::{Value, json};

use super::base::{RESOURCE, location, post, stamp};
use super::share_base::{self, Asked, SCHEMA, asked, etag, said, snapshot_header};
use super::skus::{self, Media};
use super::{share_deletion, share_leases, share_lists, share_sizes, share_snapshots, windows};
use crate::answer::{Answer, Context, Reply};
use crate::arm::descriptor::{Descriptor, Own};
use crate::arm::storage::file_services::FILE_SERVICE;
use crate::arm::{kinds, writes};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;
use crate::store::Resource;

pub(crate) static SHARE: Descriptor = Descriptor {
    kind: kinds::SHARE,
    path: "storageAccounts/*/fileServices/default/shares",
    operations: Some("fileShares"),
    parent: Some(&FILE_SERVICE),
    schema: SCHEMA,
    layout: &["id", "name", "type", "etag", "properties"],
    own: Own {
        put: Some(put),
        patch: Some(patch),
        get: Some(get),
        delete: Some(share_deletion::delete),
        list: Some(share_lists::list),
    },
    routes: &[
        post("restore", "fileShares.restore", share_deletion::restore),
        post("lease", "fileShares.lease", share_leases::lease),
    ],
    ..RESOURCE
};

/// Documented names.
fn check_name(name: &str) -> Result<(), Fault> {
    if !(3..=63).contains(&name.len()) {
        return Err(fault::share_name_length());
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.bytes().all(|byte| plain(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    if fits { Ok(()) } else { Err(fault::share_name_invalid()) }
}

/// PUT: of a share, or of a snapshot of one.
fn put(context: &mut Context<'_>) -> Reply {
    let asked = asked(context, "write")?;
    windows::write(context, location(&asked.account))?;
    let made = match context.request.query.get("$expand").map(|expand| expand.to_ascii_lowercase()) {
        Some(expand) if expand == "snapshots" => share_snapshots::create(context, &asked),
        Some(expand) if !expand.is_empty() => Err(fault::share_query_invalid()),
        _ => create(context, &asked),
    };
    made.map_err(|refused| said(context, refused))
}

fn create(context: &mut Context<'_>, asked: &Asked) -> Reply {
    check_name(share_base::name(context))?;
    let body = context.read(SCHEMA.name, SCHEMA.root, true)?;
    if context.state.store.contains(&asked.id) {
        return change(context, asked, &body);
    }
    if share_deletion::holds_name(context, asked) {
        return Err(fault::share_being_deleted());
    }
    let mut properties = json!({});
    share_leases::show_none(&mut properties);
    let now = stamp(context.shared.clock.at(context.now));
    lay_over(&mut properties, &body["properties"], &asked.account, &now)?;
    check(&properties, &asked.account)?;
    properties["lastModifiedTime"] = json!(now);
    let gib = properties["shareQuota"].as_u64().unwrap_or(0);
    share_sizes::check_account(context.state, &asked.account, &asked.id, gib)?;
    let doc = json!({
        "id": asked.id,
        "name": path::name_of(&asked.id),
        "type": kinds::SHARE,
        "etag": etag(context, None),
        "properties": properties,
    });
    let now = context.now;
    context.state.store.insert(&asked.id, Resource::new(doc.clone()), now);
    Ok(Answer::json(201, doc))
}

/// PATCH.
fn patch(context: &mut Context<'_>) -> Reply {
    let asked = asked(context, "write")?;
    windows::write(context, location(&asked.account))?;
    let body = context.read(SCHEMA.name, SCHEMA.root, true)?;
    change(context, &asked, &body).map_err(|refused| said(context, refused))
}

fn change(context: &mut Context<'_>, asked: &Asked, body: &Value) -> Reply {
    let mut doc = context.state.store.document(&asked.id).ok_or_else(fault::share_not_found)?.into_value();
    let old = doc.clone();
    let now = stamp(context.shared.clock.at(context.now));
    lay_over(&mut doc["properties"], &body["properties"], &asked.account, &now)?;
    check(&doc["properties"], &asked.account)?;
    if old["properties"]["enabledProtocols"] != doc["properties"]["enabledProtocols"] {
        return Err(fault::share_header_invalid());
    }
    let gib = doc["properties"]["shareQuota"].as_u64().unwrap_or(0);
    share_sizes::check_account(context.state, &asked.account, &asked.id, gib)?;
    if old != doc {
        doc["etag"] = json!(etag(context, Some(&old)));
        doc["properties"]["lastModifiedTime"] = json!(now);
        let at = context.now;
        context.state.store.change(&asked.id, at, |resource| resource.doc = doc.clone().into());
    }
    Ok(Answer::json(200, doc))
}

/// Lays what is asked over the properties of a share, and fills in what is missing.
fn lay_over(properties: &mut Value, asked: &Value, account: &Value, now: &str) -> Result<(), Fault> {
    const SETTABLE: [&str; 8] = [
        "shareQuota",
        "metadata",
        "provisionedIops",
        "provisionedBandwidthMibps",
        "enabledProtocols",
        "rootSquash",
        "signedIdentifiers",
        "fileSharePaidBursting",
    ];
    *properties = writes::with(properties.take(), &SETTABLE, asked);
    share_sizes::fill(properties, account)?;
    let default = match skus::of(account).media {
        Media::PayAsYouGo => Some("TransactionOptimized"),
        Media::ProvisionedV1 => Some("Premium"),
        Media::StandardV2 | Media::PremiumV2 => None,
    };
    let had = properties["accessTier"].as_str().map(str::to_owned);
    let tier = asked["accessTier"].as_str().or(had.as_deref()).or(default);
    if let Some(tier) = tier.filter(|tier| had.as_deref() != Some(*tier)) {
        properties["accessTier"] = json!(tier);
        properties["accessTierChangeTime"] = json!(now);
    }
    *properties = writes::with_others(properties.take(), &json!({"enabledProtocols": "SMB"}));
    if properties["enabledProtocols"] == "NFS" {
        *properties = writes::with_others(properties.take(), &json!({"rootSquash": "NoRootSquash"}));
    }
    Ok(())
}

/// Documented: tiers and NFS follow from the account; the codes are unverified.
fn check(properties: &Value, account: &Value) -> Result<(), Fault> {
    let media = skus::of(account).media;
    let fits = match (media, properties["accessTier"].as_str()) {
        (Media::PayAsYouGo, tier) => tier != Some("Premium"),
        (Media::ProvisionedV1, tier) => tier == Some("Premium"),
        (Media::StandardV2 | Media::PremiumV2, tier) => tier.is_none(),
    };
    if !fits {
        return Err(fault::share_header_invalid());
    }
    let nfs = properties["enabledProtocols"] == "NFS";
    if nfs && !matches!(media, Media::ProvisionedV1 | Media::PremiumV2) {
        return Err(fault::service_unsupported("NFS"));
    }
    if !nfs && properties.get("rootSquash").is_some() {
        return Err(fault::share_header_invalid());
    }
    Ok(())
}

/// GET: of a share, or of one of its snapshots. `$expand=stats` shows the usage.
fn get(context: &mut Context<'_>) -> Reply {
    let asked = asked(context, "read")?;
    windows::read(context, location(&asked.account))?;
    show(context, &asked).map_err(|refused| said(context, refused))
}

fn show(context: &Context<'_>, asked: &Asked) -> Reply {
    let share = context.state.store.shown(&asked.id, context.now).ok_or_else(fault::share_not_found)?;
    let mut shown = match snapshot_header(context) {
        None => share.into_value(),
        Some(time) => {
            let found = share_snapshots::find(context, &asked.id, &time);
            let snapshot: Document = found.ok_or_else(fault::share_snapshot_not_found)?;
            share_snapshots::shown(&snapshot, &share)
        }
    };
    match context.request.query.get("$expand").map(String::as_str) {
        None | Some("") => {}
        Some(expand) if expand.eq_ignore_ascii_case("stats") => shown["properties"]["shareUsageBytes"] = json!(0),
        Some(_) => return Err(fault::share_query_invalid()),
    }
    Ok(Answer::json(200, shown))
}
