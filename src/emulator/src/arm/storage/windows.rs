//! How many requests the storage provider takes. Documented (request-limits-and-throttling): for a subscription and
//! region 10 writes a second and 1,200 an hour, 800 reads and 100 lists in five minutes. That a list of a whole
//! subscription counts apart from the regions, that a group's counts in the group's region, that `listKeys` is a read, that
//! a window begins with its first request, and that `Retry-After` is the rest of it are unverified.

use std::time::Duration;

use crate::answer::Context;
use crate::arm::lists;
use crate::fault::{self, Fault};
use crate::throttle::Window;

const fn window(name: &'static str, limit: u64, seconds: u64) -> Window {
    Window { name, limit, length: Duration::from_secs(seconds) }
}

const READS: [Window; 1] = [window("Microsoft.Storage/Read", 800, 300)];
const LISTS: [Window; 1] = [window("Microsoft.Storage/List", 100, 300)];
const WRITES: [Window; 2] = [window("Microsoft.Storage/Write", 10, 1), window("Microsoft.Storage/Write", 1_200, 3_600)];

/// A GET of one resource, or what only reads.
pub(super) fn read(context: &mut Context<'_>, location: &str) -> Result<(), Fault> {
    count(context, location, &READS, "Read")
}

/// A list.
pub(super) fn list(context: &mut Context<'_>, location: &str) -> Result<(), Fault> {
    count(context, location, &LISTS, "List")
}

/// A list of accounts.
pub(super) fn list_accounts(context: &mut Context<'_>) -> Result<(), Fault> {
    let scope = lists::scope(context)?;
    let group = context.state.store.document(&scope);
    let location = group.as_ref().and_then(|group| group["location"].as_str()).unwrap_or("").to_owned();
    list(context, &location)
}

/// Whatever changes something.
pub(super) fn write(context: &mut Context<'_>, location: &str) -> Result<(), Fault> {
    count(context, location, &WRITES, "Write")
}

fn count(context: &mut Context<'_>, location: &str, windows: &[Window], kind: &str) -> Result<(), Fault> {
    if !context.shared.options.throttling {
        return Ok(());
    }
    let owner = format!("{}/{location}", context.request.subscription_id().to_ascii_lowercase());
    let counted = context.state.throttle.count(&owner, windows, context.now);
    counted.map_err(|seconds| Fault { retry_after: Some(seconds), ..fault::storage_throttled(kind) })
}
