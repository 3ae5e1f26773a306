//! Lists in pages. Recorded: `{"value": []}`, and `nextLink` when there is more (documented).

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::fault;

/// Lists one type in the group or subscription of the request.
pub(crate) fn answer(context: &Context<'_>, kind: &str) -> Reply {
    let documents = documents(context, kind)?;
    page(context, documents)
}

/// The documents of one type in the group or subscription of the request.
pub(crate) fn documents(context: &Context<'_>, kind: &str) -> Result<Vec<Value>, fault::Fault> {
    let scope = if context.request.path.group.is_some() {
        context.require_group()?;
        context.request.group_id()
    } else {
        context.request.subscription_id()
    };
    Ok(context.state.store.listed(&scope, kind, context.now).into_iter().map(|(_, doc)| doc).collect())
}

/// One page. `$skiptoken` holds the number of documents before it.
pub(crate) fn page(context: &Context<'_>, documents: Vec<Value>) -> Reply {
    let query = &context.request.query;
    let size = query
        .get("$top")
        .map(|top| {
            top.parse::<usize>()
                .ok()
                .filter(|top| *top > 0)
                .ok_or_else(|| fault::bad_request(format!("The value '{top}' of query parameter '$top' is invalid.")))
        })
        .transpose()?
        .unwrap_or(usize::MAX)
        .min(context.shared.options.page_size.max(1));
    let skip = query
        .get("$skiptoken")
        .map(|token| token.parse::<usize>().map_err(|_| fault::bad_request("The skip token is invalid.")))
        .transpose()?
        .unwrap_or(0);
    let total = documents.len();
    let value: Vec<Value> = documents.into_iter().skip(skip).take(size).collect();
    let mut body = json!({ "value": value });
    let end = skip.saturating_add(size);
    if end < total {
        let mut next = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in query {
            if name != "$skiptoken" {
                next.append_pair(name, value);
            }
        }
        next.append_pair("$skiptoken", &end.to_string());
        body["nextLink"] = json!(format!("{}{}?{}", context.request.base, context.request.raw_path, next.finish()));
    }
    let some = body["value"].as_array().is_some_and(|value| !value.is_empty());
    let mut answer = Answer::json(200, body);
    // Recorded: lists of the compute provider that are not empty name the requests behind them.
    let provider = context.request.path.provider.as_deref().unwrap_or("");
    if some && provider.eq_ignore_ascii_case("Microsoft.Compute") {
        answer = answer.with("x-ms-original-request-ids", crate::state::guid_of(&context.request.raw_path));
    }
    Ok(answer)
}
