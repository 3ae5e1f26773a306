//! Containers.
//!
//! Documented: the answers, names, and that the name of a deleted container is not free for 30 seconds at least. Stored access
//! policies are not emulated.

use super::conditions::Conditions;
use super::context::{Answer, Context, OF_CONTAINER, Reply, check_lease};
use super::documents::Container;
use super::error::{self, BlobError};
use super::xml;
use crate::leases::{self, Answered, SECOND};

/// How long the name of a deleted container is not free.
const NAME_HELD: i128 = 30 * SECOND;

/// The root container, whose blobs need no container in their address.
pub(super) const ROOT: &str = "$root";

fn check_name(name: &str) -> Result<(), BlobError> {
    if name == ROOT {
        return Ok(());
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let fits = name.bytes().all(|byte| plain(byte) || byte == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--");
    match ((3..=63).contains(&name.len()), fits) {
        (false, _) => Err(error::NAME_LENGTH.into()),
        (true, false) => Err(error::INVALID_RESOURCE_NAME.into()),
        (true, true) => Ok(()),
    }
}

/// PUT `?restype=container`.
pub(super) fn create(context: &mut Context<'_>) -> Reply {
    let name = context.container_name().to_owned();
    check_name(&name)?;
    let public_access = match context.asked.header("x-ms-blob-public-access") {
        None => None,
        Some(level @ ("container" | "blob")) => Some(level.to_owned()),
        Some(other) => return Err(BlobError::header("x-ms-blob-public-access", other)),
    };
    if public_access.is_some() && context.account["properties"]["allowBlobPublicAccess"] != true {
        return Err(error::PUBLIC_ACCESS_NOT_PERMITTED.into());
    }
    let metadata = context.asked.metadata()?;
    match context.documents.container(&name).map(|container| container.deleted_until) {
        Some(None) => return Err(error::CONTAINER_ALREADY_EXISTS.into()),
        Some(Some(until)) if until > context.now => return Err(error::CONTAINER_BEING_DELETED.into()),
        _ => {}
    }
    let etag = context.documents.blobs.next_etag(context.now);
    let container =
        Container { name, etag, modified: context.now, metadata, public_access, lease: None, deleted_until: None };
    context.documents.put_container(&container);
    Ok(Answer::new(201).stand(container.stand()))
}

/// GET, HEAD.
pub(super) fn properties(context: &mut Context<'_>) -> Reply {
    let container = context.container()?;
    let given = context.asked.lease_id()?;
    check_lease(container.lease.as_ref(), given.as_deref(), context.now, false, &OF_CONTAINER)?;
    let answer = Answer::new(200).stand(container.stand()).metadata(&container.metadata);
    if context.asked.query("comp") == "metadata" {
        return Ok(answer);
    }
    let answer = answer
        .lease(container.lease.as_ref(), context.now)
        .with("x-ms-has-immutability-policy", "false")
        .with("x-ms-has-legal-hold", "false")
        .with("x-ms-default-encryption-scope", "$account-encryption-key")
        .with("x-ms-deny-encryption-scope-override", "false");
    Ok(with_access(answer, &container))
}

fn with_access(answer: Answer, container: &Container) -> Answer {
    match &container.public_access {
        Some(level) => answer.with("x-ms-blob-public-access", level),
        None => answer,
    }
}

/// GET `?comp=acl`.
pub(super) fn access(context: &mut Context<'_>) -> Reply {
    let container = context.container()?;
    let body = xml::document("<SignedIdentifiers />");
    Ok(with_access(Answer::xml(body).stand(container.stand()), &container))
}

/// The container of a request that changes it. Documented: what a lease keeps off is deletion.
fn written(context: &Context<'_>, is_locked: bool) -> Result<Container, BlobError> {
    let container = context.container()?;
    if !Conditions::read(&context.asked.headers, "")?.allow_write(Some(container.stand())) {
        return Err(error::CONDITION_NOT_MET.into());
    }
    let given = context.asked.lease_id()?;
    check_lease(container.lease.as_ref(), given.as_deref(), context.now, is_locked, &OF_CONTAINER)?;
    Ok(container)
}

/// PUT `?comp=metadata`.
pub(super) fn set_metadata(context: &mut Context<'_>) -> Reply {
    let mut container = written(context, false)?;
    container.metadata = context.asked.metadata()?;
    container.etag = context.documents.blobs.next_etag(context.now);
    container.modified = context.now;
    context.documents.put_container(&container);
    Ok(Answer::new(200).stand(container.stand()))
}

/// DELETE.
pub(super) fn delete(context: &mut Context<'_>) -> Reply {
    let container = written(context, true)?;
    context.documents.remove_container(&container.name);
    let deleted_until = Some(context.now + NAME_HELD);
    let gone = Container { deleted_until, lease: None, metadata: container.metadata.clone(), ..container };
    context.documents.put_container(&gone);
    Ok(Answer::new(202))
}

/// PUT `?comp=lease`.
pub(super) fn lease(context: &mut Context<'_>) -> Reply {
    let mut container = context.container()?;
    if !Conditions::read(&context.asked.headers, "")?.allow_write(Some(container.stand())) {
        return Err(error::CONDITION_NOT_MET.into());
    }
    let generated = context.new_id.clone();
    let action = context.asked.lease_action(|| generated)?;
    let status = leased_status(&action);
    let (lease, answered) = leases::act(container.lease.take(), action, context.now)?;
    container.lease = lease;
    context.documents.put_container(&container);
    Ok(leased(Answer::new(status).stand(container.stand()), answered))
}

/// Documented, for containers and blobs.
pub(super) fn leased_status(action: &leases::Action) -> u16 {
    match action {
        leases::Action::Acquire { .. } => 201,
        leases::Action::Break { .. } => 202,
        _ => 200,
    }
}

/// An answer with what became of a lease.
pub(super) fn leased(answer: Answer, answered: Answered) -> Answer {
    match answered {
        Answered::Id(id) => answer.with("x-ms-lease-id", id),
        Answered::Seconds(seconds) => answer.with("x-ms-lease-time", seconds.to_string()),
        Answered::Nothing => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_containers_are_lower_case_with_single_hyphens() {
        for right in ["vhds", "a-1", "$root", &"a".repeat(63)] {
            assert_eq!(check_name(right), Ok(()), "{right}");
        }
        for (wrong, code) in [
            ("ab", "OutOfRangeInput"),
            (&*"a".repeat(64), "OutOfRangeInput"),
            ("Vhds", "InvalidResourceName"),
            ("a--b", "InvalidResourceName"),
            ("-ab", "InvalidResourceName"),
            ("a_b", "InvalidResourceName"),
        ] {
            assert_eq!(check_name(wrong).map_err(|error| error.code), Err(code.to_owned()), "{wrong}");
        }
    }
}
