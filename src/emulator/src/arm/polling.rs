//! GETs of operations. Recorded: an asynchronous operation's object always comes with 200; a
//! `Location` answers 202 without a body until it is over (documented), then the result. Documented:
//! a failed operation's `Location` answers with the error and its status.

use crate::answer::{Answer, Context, Reply};
use crate::fault;
use crate::operations::Status;

/// Compute: `DiskOperations` and `operations`, with `monitor=true` as the `Location` form.
pub(crate) fn compute(context: &mut Context<'_>) -> Reply {
    let id = context.request.segment(3).to_owned();
    if context.request.query.get("monitor").is_some_and(|v| v.eq_ignore_ascii_case("true")) {
        return result(context, &id);
    }
    object(context, &id)
}

/// Network: the status object.
pub(crate) fn network(context: &mut Context<'_>) -> Reply {
    let id = context.request.segment(3).to_owned();
    object(context, &id)
}

/// Network: the `Location` form.
pub(crate) fn network_result(context: &mut Context<'_>) -> Reply {
    let id = context.request.segment(3).to_owned();
    result(context, &id)
}

/// Resource groups: the `Location` form only. Recorded: 200 with an empty body at the end.
pub(crate) fn group_result(context: &mut Context<'_>) -> Reply {
    let token = context.request.segment(1).to_owned();
    let id = context.state.operations.resolve(&token).unwrap_or(token);
    result(context, &id)
}

/// The status object of an operation.
pub(crate) fn object(context: &Context<'_>, id: &str) -> Reply {
    let operation = context.state.operations.get(id).ok_or_else(|| fault::unknown_operation(id))?;
    let mut answer = Answer::text(200, operation.object(&context.shared.clock));
    if operation.status == Status::Running
        && let Some(seconds) = operation.retry_after
    {
        answer = answer.with("retry-after", seconds.to_string());
    }
    Ok(answer)
}

fn result(context: &Context<'_>, id: &str) -> Reply {
    let operation = context.state.operations.get(id).ok_or_else(|| fault::unknown_operation(id))?;
    match &operation.status {
        Status::Running => {
            let own = format!("{}{}{}", context.request.base, context.request.raw_path, query_string(context));
            let mut answer = Answer::empty(202).with("location", own);
            if let Some(seconds) = operation.retry_after {
                answer = answer.with("retry-after", seconds.to_string());
            }
            Ok(answer)
        }
        Status::Succeeded => Ok(match operation.outcome.result() {
            Some(body) => Answer::text(200, body.to_owned()),
            None => Answer::empty(200),
        }),
        Status::Failed(fault) | Status::Canceled(fault) => Err(fault.clone()),
    }
}

fn query_string(context: &Context<'_>) -> String {
    let mut text = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in &context.request.query {
        text.append_pair(name, value);
    }
    format!("?{}", text.finish())
}
