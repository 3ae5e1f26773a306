//! From paths and methods to the store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{body::Body, extract, response::Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    Refused,
    accept::{self, Form},
    core_events, discovery, openapi,
    patch::Patch,
    resource::{self, Resource},
    schema::{self, UnknownFields},
    select::Selector,
    status,
    store::{Keeping, Part, Store, Write},
    table::Include,
    tokens,
    view::View,
    watch::{self, Watch},
};

/// The longest body. Source: `maxRequestBodyBytes` of kube-apiserver.
const LONGEST: usize = 3 * 1024 * 1024;

/// What the creator of a Pod, a claim or a VolumeSnapshot is told: nothing carries them out here.
const NOT_CARRIED_OUT: &str = "this API server keeps the object and nothing carries it out: no Pod runs here, no claim is \
                               bound and no snapshot is taken; scripts/cluster up starts a real Kubernetes whose claims bind and whose Pods run";

/// A request for an object or a collection.
pub(crate) struct Request<'a> {
    store: &'a Arc<Store>,
    /// The kind that is asked for.
    resource: &'static Resource,
    namespace: Option<String>,
    name: Option<String>,
    part: Part,
    form: Form,
    query: HashMap<String, String>,
}

/// What an answer carries.
enum Content {
    Json(StatusCode, String),
    Stream(Body),
}

/// An answer, and what is said of the request beside it.
struct Answer {
    content: Content,
    media: &'static str,
    warnings: Vec<String>,
}

/// The media type of most answers.
const JSON: &str = "application/json";
/// That of all groups in one answer, which clients look for.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

impl Answer {
    fn json(code: StatusCode, text: String) -> Self {
        Self { content: Content::Json(code, text), media: JSON, warnings: Vec::new() }
    }

    fn warning(mut self, warnings: Vec<String>) -> Self {
        self.warnings = warnings;
        self
    }
}

fn ok(object: &Value) -> Answer {
    Answer::json(StatusCode::OK, object.to_string())
}

/// The header of a warning. Source: RFC 7234, 5.5; 299 is the code that Kubernetes' clients print.
fn warning_header(text: &str) -> Option<HeaderValue> {
    let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
    HeaderValue::from_str(&format!("299 - \"{quoted}\"")).ok()
}

impl<'a> Request<'a> {
    /// Answers one HTTP request.
    pub(crate) async fn answer(store: &'a Arc<Store>, request: extract::Request) -> Response {
        let answer = Self::carried_out(store, request).await.unwrap_or_else(|refused| {
            let code = StatusCode::from_u16(refused.code).expect("the codes are HTTP's");
            Answer::json(code, refused.object().to_string())
        });
        let (code, body) = match answer.content {
            Content::Json(code, text) => (code, Body::from(text)),
            Content::Stream(body) => (StatusCode::OK, body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(answer.media));
        for warning in answer.warnings.iter().filter_map(|text| warning_header(text)) {
            headers.append(header::WARNING, warning);
        }
        if let Ok(date) = HeaderValue::from_str(&store.clock.date()) {
            headers.insert(header::DATE, date);
        }
        response
    }

    async fn carried_out(store: &'a Arc<Store>, request: extract::Request) -> Result<Answer, Refused> {
        let (head, body) = request.into_parts();
        let path: Vec<&str> = head.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let form = accept::wanted(&head.headers)?;
        if head.method == Method::GET
            && let Some(answer) = about_the_server(&path, form)
        {
            return Ok(answer);
        }
        let query = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let is_review = head.method == Method::POST && path == tokens::REVIEWS;
        let request = if is_review { None } else { Some(Self::of_path(store, &path, form, query)?) };
        let body = axum::body::to_bytes(body, LONGEST).await.map_err(|_| Refused {
            code: 413,
            reason: "RequestEntityTooLarge",
            message: format!("the body is longer than {LONGEST} bytes"),
        })?;
        let Some(request) = request else {
            let review = serde_json::from_slice(&body).map_err(|_| status::bad_request("the body is not JSON"))?;
            return Ok(Answer::json(StatusCode::CREATED, tokens::review(store, review).to_string()));
        };
        request.dispatch(&head.method, media(&head.headers), &body)
    }

    fn of_path(
        store: &'a Arc<Store>,
        path: &[&str],
        form: Form,
        query: HashMap<String, String>,
    ) -> Result<Self, Refused> {
        let (group, version, rest) = match path {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(status::no_such_path()),
        };
        // `namespaces/x` alone is the object; with more behind it, it says where the rest lives.
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && *rest != ["status"] => {
                (Some((*namespace).to_owned()), rest)
            }
            rest => (None, rest),
        };
        let [plural, rest @ ..] = rest else { return Err(status::no_such_path()) };
        let resource = resource::find(group, version, plural).ok_or_else(status::no_such_path)?;
        let (name, part) = match rest {
            [] => (None, Part::Main),
            [name] => (Some((*name).to_owned()), Part::Main),
            [name, "status"] if resource.has_status => (Some((*name).to_owned()), Part::Status),
            _ => return Err(status::no_such_path()),
        };
        if namespace.is_some() && !resource.namespaced || namespace.is_none() && resource.namespaced && name.is_some() {
            return Err(status::no_such_path());
        }
        Ok(Self { store, resource, namespace, name, part, form, query })
    }

    fn asked(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    fn is_asked(&self, key: &str) -> bool {
        ["true", "1"].contains(&self.asked(key))
    }

    fn keeping(&self) -> Result<Keeping, Refused> {
        match self.asked("dryRun") {
            "" => Ok(Keeping::Kept),
            "All" => Ok(Keeping::DryRun),
            other => {
                Err(status::bad_request(format!("dryRun: Unsupported value: {other:?}: supported values: \"All\"")))
            }
        }
    }

    fn view(&self) -> Result<View, Refused> {
        let include = match self.asked("includeObject") {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::Nothing,
            "Object" => Include::Object,
            other => return Err(status::bad_request(format!("unrecognized includeObject value: {other:?}"))),
        };
        Ok(View { resource: self.resource, form: self.form, include })
    }

    /// The answer with one object, as the client wants to see it.
    fn one(&self, code: StatusCode, object: &Value) -> Result<Answer, Refused> {
        Ok(Answer::json(code, self.view()?.one(object, self.store.clock.now())))
    }

    fn dispatch(&self, method: &Method, media: &str, body: &[u8]) -> Result<Answer, Refused> {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let kept = self.resource.kept();
        let Some(name) = self.name.as_deref() else {
            return match *method {
                Method::GET if self.is_asked("watch") => self.watch(),
                Method::GET => self.list(),
                Method::POST => self.create(self.object(media, body)?),
                _ => Err(status::method_not_allowed()),
            };
        };
        match *method {
            Method::GET => self.one(StatusCode::OK, &*self.store.get(kept, namespace, name)?),
            Method::PUT => {
                let (object, warnings) = self.object(media, body)?;
                if !object["metadata"]["name"].is_string() {
                    return Err(status::bad_request("the name of the object is required"));
                }
                self.update(&Write::Whole(&object), warnings)
            }
            Method::PATCH => {
                let (of, unknown, body) = (self.resource, self.unknown_fields()?, patch(media, body)?);
                self.update(&Write::Patch(Patch { of, media, body: &body, unknown }), Vec::new())
            }
            Method::DELETE if self.part == Part::Main => {
                let options = if body.is_empty() { Value::Null } else { parsed(media, body)? };
                let keeping = match options.pointer("/dryRun/0") {
                    Some(_) => Keeping::DryRun,
                    None => self.keeping()?,
                };
                let (object, gone) = self.store.delete(kept, namespace, name, &options, keeping)?;
                match gone {
                    true => Ok(ok(&self.deleted(name, &object))),
                    false => self.one(StatusCode::OK, &object),
                }
            }
            _ => Err(status::method_not_allowed()),
        }
    }

    /// The object of a body as it is kept, and what is said of it.
    fn object(&self, media: &str, body: &[u8]) -> Result<(Value, Vec<String>), Refused> {
        let mut object = parsed(media, body)?;
        let judged = schema::check(self.resource, &object).judged(self.unknown_fields()?);
        let warnings = judged.map_err(|why| status::not_of_kind(self.resource, &why))?;
        schema::with_text_quantities(&schema::type_of(self.resource), &mut object);
        let object = if self.resource.kept_as.is_some() { core_events::kept(&object) } else { object };
        Ok((object, warnings))
    }

    /// What becomes of fields that the kind does not have, as the client asks.
    fn unknown_fields(&self) -> Result<UnknownFields, Refused> {
        match self.asked("fieldValidation") {
            "Strict" => Ok(UnknownFields::Refused),
            "Warn" => Ok(UnknownFields::Warned),
            // Source: the API server's default is Warn. This one's other clients send what they have tested.
            "" | "Ignore" => Ok(UnknownFields::Ignored),
            other => Err(status::bad_request(format!(
                "fieldValidation: Unsupported value: {other:?}: supported values: \"Ignore\", \"Strict\", \"Warn\""
            ))),
        }
    }

    fn update(&self, write: &Write<'_>, mut warnings: Vec<String>) -> Result<Answer, Refused> {
        let (namespace, name) =
            (self.namespace.as_deref().unwrap_or_default(), self.name.as_deref().unwrap_or_default());
        let how = (self.part, self.keeping()?);
        let (object, more) = self.store.update(self.resource.kept(), (namespace, name), how, write)?;
        warnings.extend(more);
        Ok(self.one(StatusCode::OK, &object)?.warning(warnings))
    }

    fn deleted(&self, name: &str, object: &Value) -> Value {
        let mut details = json!({"name": name, "kind": self.resource.plural, "uid": object["metadata"]["uid"]});
        if !self.resource.group.is_empty() {
            details["group"] = json!(self.resource.group);
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }

    fn create(&self, (mut object, mut warnings): (Value, Vec<String>)) -> Result<Answer, Refused> {
        if !object["metadata"].is_object() {
            return Err(status::bad_request("the object has no metadata"));
        }
        if let Some(namespace) = &self.namespace {
            let named = object["metadata"]["namespace"].as_str().unwrap_or(namespace);
            if named != namespace {
                return Err(status::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            object["metadata"]["namespace"] = json!(namespace);
        } else if self.resource.namespaced {
            return Err(status::method_not_allowed());
        }
        let made = self.store.create(self.resource.kept(), object, self.keeping()?)?;
        if ["Pod", "PersistentVolumeClaim", "VolumeSnapshot"].contains(&self.resource.kind) {
            warnings.push(NOT_CARRIED_OUT.to_owned());
        }
        Ok(self.one(StatusCode::CREATED, &made)?.warning(warnings))
    }

    fn selector(&self) -> Result<Selector, Refused> {
        let (labels, fields) = (self.asked("labelSelector"), self.asked("fieldSelector"));
        // An object by its name alone is a collection of one.
        Selector::parse(self.resource, self.namespace.as_deref(), labels, fields)
    }

    fn list(&self) -> Result<Answer, Refused> {
        let limit = match self.asked("limit") {
            "" => 0,
            text => text.parse().map_err(|_| status::bad_request(format!("limit: Invalid value: {text:?}")))?,
        };
        let token = Some(self.asked("continue")).filter(|token| !token.is_empty());
        let asked = self.asked("resourceVersion");
        if token.is_none() && !asked.is_empty() {
            let (asked, head) = (watch::version(asked)?, self.store.head());
            if asked > head {
                return Err(status::too_new(asked, head));
            }
            if self.asked("resourceVersionMatch") == "Exact" && asked != head {
                return Err(status::expired(asked, head));
            }
        }
        let page = self.store.page(self.resource.kept(), &self.selector()?, limit, token)?;
        let mut metadata = json!({"resourceVersion": page.version.to_string()});
        if let Some(token) = page.token {
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(page.remaining);
        }
        let items = page.items.iter().map(|item| &**item);
        Ok(Answer::json(StatusCode::OK, self.view()?.list(items, metadata, self.store.clock.now())))
    }

    fn watch(&self) -> Result<Answer, Refused> {
        let from = match self.asked("resourceVersion") {
            "" | "0" => None,
            text => Some(watch::version(text)?),
        };
        let initial = self.is_asked("sendInitialEvents");
        let bookmarks = self.is_asked("allowWatchBookmarks");
        let lasts = match self.asked("timeoutSeconds") {
            "" | "0" => None,
            text => {
                let seconds = text.parse().map_err(|_| status::bad_request(format!("timeoutSeconds: {text:?}")))?;
                Some(Duration::from_secs(seconds))
            }
        };
        if let Some(from) = from.filter(|from| *from > self.store.head()) {
            return Err(status::too_new(from, self.store.head()));
        }
        let watch = Watch {
            view: self.view()?,
            selector: self.selector()?,
            from: from.filter(|_| !initial),
            bookmarks,
            mark_initial: initial && bookmarks,
            lasts,
        };
        let content = Content::Stream(watch::body(self.store, watch));
        Ok(Answer { content, media: JSON, warnings: Vec::new() })
    }
}

/// The media type of a body, without its parameters.
fn media(headers: &HeaderMap) -> &str {
    let media = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim()
}

/// The JSON of a body. Source: kube-apiserver takes a body without a media type for JSON.
fn parsed(media: &str, body: &[u8]) -> Result<Value, Refused> {
    match ["", JSON].iter().any(|one| media.eq_ignore_ascii_case(one)) {
        true => json_of(body),
        false => Err(status::unsupported_body(media)),
    }
}

fn json_of(body: &[u8]) -> Result<Value, Refused> {
    serde_json::from_slice(body).map_err(|error| status::bad_request(format!("the body is not JSON: {error}")))
}

/// The patch of a body. One that is no JSON is refused by its media type first.
fn patch(media: &str, body: &[u8]) -> Result<Value, Refused> {
    match crate::patch::MEDIA.contains(&media) {
        true => json_of(body),
        false => Err(status::unsupported_patch(media)),
    }
}

/// Health, version, discovery and OpenAPI.
fn about_the_server(path: &[&str], form: Form) -> Option<Answer> {
    let found = match path {
        ["healthz" | "readyz" | "livez"] => return Some(Answer::json(StatusCode::OK, "ok".to_owned())),
        ["version"] => json!({
            "major": "1", "minor": "36", "gitVersion": crate::VERSION, "gitCommit": "", "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc", "platform": "linux/amd64",
        }),
        [root @ ("api" | "apis")] if form == Form::Discovery => {
            return Some(Answer { media: DISCOVERY, ..ok(&discovery::aggregated(root)) });
        }
        ["api"] => discovery::versions(),
        ["apis"] => discovery::group_list(),
        ["apis", group] => discovery::group(group)?,
        ["api", version] => discovery::resource_list("", version)?,
        ["apis", group, version] => discovery::resource_list(group, version)?,
        ["openapi", "v3"] => openapi::index(),
        ["openapi", "v3", "api", version] => openapi::document("", version)?,
        ["openapi", "v3", "apis", group, version] => openapi::document(group, version)?,
        _ => return None,
    };
    Some(ok(&found))
}
