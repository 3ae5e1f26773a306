//! The lists of tables and of queues of an account. Neither can be made here, so both are empty.
//!
//! Documented: the form of the lists (`ListTableResource`, `ListQueueResource`), and that accounts of premium page
//! blobs have neither service. Unverified: the code of that refusal, which is the one that is documented for files.

use serde_json::json;

use super::accounts::account;
use super::base::{location, require_provisioned};
use super::{skus, windows};
use crate::answer::{Answer, Context, Reply};
use crate::fault;

pub(super) fn tables(context: &mut Context<'_>) -> Reply {
    list(context, "table", "Table", "Microsoft.Storage/storageAccounts/tableServices/tables")
}

pub(super) fn queues(context: &mut Context<'_>) -> Reply {
    list(context, "queue", "Queue", "Microsoft.Storage/storageAccounts/queueServices/queues")
}

fn list(context: &mut Context<'_>, service: &str, name: &str, kind: &str) -> Reply {
    let account = account(context, "read", kind)?;
    require_provisioned(&account)?;
    if !skus::services(account["kind"].as_str().unwrap_or(""), skus::of(&account)).contains(&service) {
        return Err(fault::service_unsupported(name));
    }
    windows::list(context, location(&account))?;
    Ok(Answer::json(200, json!({"value": []})))
}
