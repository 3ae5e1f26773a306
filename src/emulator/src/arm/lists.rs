//! Lists in pages. Recorded: `{"value": []}`, and `nextLink` when there is more (documented).

use serde_json::{Value, json};

use crate::answer::{Answer, Context, Reply};
use crate::fault::{self, Fault};

/// Lists one type in the group or subscription of the request.
pub(crate) fn answer(context: &Context<'_>, kind: &str) -> Reply {
    let (store, now) = (&context.state.store, context.now);
    let keys = store.keys_of(&scope(context)?, kind, now);
    let shown = |key: &&String| store.shown_ref(key, now).cloned();
    part(context, keys.len(), |skip, size| keys.iter().skip(skip).take(size).filter_map(shown).collect())
}

/// The documents of one type in the group or subscription of the request.
pub(crate) fn documents(context: &Context<'_>, kind: &str) -> Result<Vec<Value>, Fault> {
    Ok(context.state.store.listed(&scope(context)?, kind, context.now))
}

/// Id of the group or subscription of the request.
pub(crate) fn scope(context: &Context<'_>) -> Result<String, Fault> {
    if context.request.path.group.is_some() {
        context.require_group()?;
        return Ok(context.request.group_id());
    }
    Ok(context.request.subscription_id())
}

/// What `$filter` asks for: names in lower case with the values they must equal, all of them. Documented for
/// lists of the gateway itself: groups and resources.
///
/// # Errors
///
/// 400 `InvalidFilterInQueryString` for anything but `name eq 'value'` joined by `and`, and for a name that
/// is not among `known` (in lower case).
pub(crate) fn conditions(context: &Context<'_>, known: &[&str]) -> Result<Vec<(String, String)>, Fault> {
    let filter = context.request.query.get("$filter").map_or("", String::as_str);
    if filter.trim().is_empty() {
        return Ok(Vec::new());
    }
    let refused = || fault::invalid_filter(filter);
    let mut found = Vec::new();
    let mut rest = filter.trim();
    loop {
        let (name, after) = rest.split_once(char::is_whitespace).ok_or_else(refused)?;
        let (operator, after) = after.trim_start().split_once(char::is_whitespace).ok_or_else(refused)?;
        // In a value a quote is written twice.
        let text = after.trim_start().strip_prefix('\'').ok_or_else(refused)?;
        let mut value = String::new();
        let mut letters = text.char_indices().peekable();
        let end = loop {
            match letters.next() {
                Some((_, '\'')) if letters.peek().is_some_and(|(_, next)| *next == '\'') => {
                    letters.next();
                    value.push('\'');
                }
                Some((at, '\'')) => break at,
                Some((_, letter)) => value.push(letter),
                None => return Err(refused()),
            }
        };
        let name = name.to_ascii_lowercase();
        if !operator.eq_ignore_ascii_case("eq") || !known.contains(&name.as_str()) {
            return Err(refused());
        }
        found.push((name, value));
        rest = text.get(end + 1..).unwrap_or("").trim();
        if rest.is_empty() {
            return Ok(found);
        }
        let (and, after) = rest.split_once(char::is_whitespace).ok_or_else(refused)?;
        if !and.eq_ignore_ascii_case("and") {
            return Err(refused());
        }
        rest = after.trim_start();
    }
}

/// Whether a document's tags meet the conditions `tagname` and `tagvalue`. Documented: names of tags in any
/// letter case, values as they are.
pub(crate) fn tagged(doc: &Value, conditions: &[(String, String)]) -> bool {
    let wanted = |name: &str| conditions.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
    let (name, value) = (wanted("tagname"), wanted("tagvalue"));
    if name.is_none() && value.is_none() {
        return true;
    }
    doc["tags"].as_object().into_iter().flatten().any(|(own, tag)| {
        name.is_none_or(|name| own.eq_ignore_ascii_case(name)) && value.is_none_or(|value| tag == value)
    })
}

/// One page.
pub(crate) fn page(context: &Context<'_>, documents: Vec<Value>) -> Reply {
    part(context, documents.len(), |skip, size| documents.into_iter().skip(skip).take(size).collect())
}

/// One page of `total` documents, taken by how many are before it, which `$skiptoken` holds, and its size.
pub(crate) fn part(context: &Context<'_>, total: usize, take: impl FnOnce(usize, usize) -> Vec<Value>) -> Reply {
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
    let mut body = json!({ "value": take(skip, size) });
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
        answer = answer.with("x-ms-original-request-ids", crate::derived::guid_of(&context.request.raw_path));
    }
    Ok(answer)
}
