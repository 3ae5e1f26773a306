//! Lists in pages. Recorded: `{"value": []}`, and `nextLink` when there is more (documented).
//!
//! A `nextLink` names the last item that was shown. What comes or goes between two pages hides nothing that is there
//! throughout, and shows nothing twice. Real Azure's tokens are opaque too; that they work like this is unverified.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::answer::{Answer, Content, Context, Page, Reply};
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::path;

/// Lists what `show` makes of the documents of one type, or of all, below an id; it leaves out those of which it
/// makes nothing.
pub(crate) fn select(
    context: &Context<'_>,
    scope: &str,
    kind: Option<&str>,
    mut show: impl FnMut(&Document) -> Option<Document>,
) -> Reply {
    let asked = Asked::of(context)?;
    let (mut items, mut last) = (Vec::new(), "");
    for (key, doc) in context.state.store.list(scope, kind, asked.after.as_deref(), context.now) {
        let Some(item) = show(doc) else {
            continue;
        };
        if items.len() == asked.size {
            return Ok(page(context, items, Some(last)));
        }
        items.push(item);
        last = key;
    }
    Ok(page(context, items, None))
}

/// Lists documents that stand in an order of their own.
pub(crate) fn of_documents(context: &Context<'_>, documents: Vec<Document>) -> Reply {
    let asked = Asked::of(context)?;
    let key = |doc: &Document| path::key(doc["id"].as_str().unwrap_or(""));
    // Where the last one that was shown has gone, nothing tells where the next page would begin: rather all again
    // than one too few.
    let shown = asked.after.and_then(|after| documents.iter().position(|doc| key(doc) == after));
    let begin = shown.map_or(0, |at| at + 1);
    let rest = documents.get(begin..).unwrap_or_default();
    let items = rest.get(..asked.size).unwrap_or(rest).to_vec();
    let last = items.last().filter(|_| items.len() < rest.len()).map(key);
    Ok(page(context, items, last.as_deref()))
}

/// Which part of a list a request asks for.
struct Asked {
    /// How many items at most.
    size: usize,
    /// The key of the item that was shown last.
    after: Option<String>,
}

impl Asked {
    fn of(context: &Context<'_>) -> Result<Self, Fault> {
        let query = &context.request.query;
        let refused =
            |top: &str| fault::bad_request(format!("The value '{top}' of query parameter '$top' is invalid."));
        let top = query
            .get("$top")
            .map(|top| top.parse::<usize>().ok().filter(|top| *top > 0).ok_or_else(|| refused(top)))
            .transpose()?;
        let key = |token: &String| String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok();
        let after = query
            .get("$skiptoken")
            .map(|token| key(token).ok_or_else(|| fault::bad_request("The skip token is invalid.")))
            .transpose()?;
        Ok(Self { size: top.unwrap_or(usize::MAX).min(context.shared.options.page_size.max(1)), after })
    }
}

/// A page; `last` is the key of its last item where more follow.
fn page(context: &Context<'_>, items: Vec<Document>, last: Option<&str>) -> Answer {
    let next = last.map(|last| {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in context.request.query.iter().filter(|(name, _)| *name != "$skiptoken") {
            query.append_pair(name, value);
        }
        query.append_pair("$skiptoken", &URL_SAFE_NO_PAD.encode(last));
        format!("{}{}?{}", context.request.base, context.request.raw_path, query.finish())
    });
    let some = !items.is_empty();
    let answer =
        Answer { status: 200, body: Content::Page(Page { value: items, next_link: next }), ..Answer::default() };
    // Recorded: lists of the compute provider that are not empty name the requests behind them.
    let provider = context.request.path.provider.as_deref().unwrap_or("");
    if some && provider.eq_ignore_ascii_case("Microsoft.Compute") {
        return answer.with("x-ms-original-request-ids", crate::derived::guid_of(&context.request.raw_path));
    }
    answer
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
