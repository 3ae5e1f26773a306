//! From paths and methods to the store.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{body::Body, extract, response::Response};
use http::{HeaderValue, Method, StatusCode, header};
use serde_json::{Value, json};

use crate::{
    Refused,
    resource::{self, Resource},
    select::Selector,
    status,
    store::{Part, Store, Write},
    tokens,
    watch::{self, Watch},
};

/// The longest body. Source: `maxRequestBodyBytes` of kube-apiserver.
const LONGEST: usize = 3 * 1024 * 1024;

/// A request for an object or a collection.
pub(crate) struct Request<'a> {
    store: &'a Arc<Store>,
    resource: &'static Resource,
    namespace: Option<String>,
    name: Option<String>,
    part: Part,
    query: HashMap<String, String>,
}

/// What an answer carries.
enum Answer {
    Json(StatusCode, String),
    Stream(Body),
}

fn ok(object: &Value) -> Answer {
    Answer::Json(StatusCode::OK, object.to_string())
}

impl<'a> Request<'a> {
    /// Answers one HTTP request.
    pub(crate) async fn answer(store: &'a Arc<Store>, request: extract::Request) -> Response {
        let answer = Self::carried_out(store, request).await.unwrap_or_else(|refused| {
            let code = StatusCode::from_u16(refused.code).expect("the codes are HTTP's");
            Answer::Json(code, refused.object().to_string())
        });
        let (code, body) = match answer {
            Answer::Json(code, text) => (code, Body::from(text)),
            Answer::Stream(body) => (StatusCode::OK, body),
        };
        let mut response = Response::new(body);
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Ok(date) = HeaderValue::from_str(&store.clock.date()) {
            headers.insert(header::DATE, date);
        }
        response
    }

    async fn carried_out(store: &'a Arc<Store>, request: extract::Request) -> Result<Answer, Refused> {
        let (head, body) = request.into_parts();
        let path: Vec<&str> = head.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        if head.method == Method::GET
            && let Some(answer) = about_the_server(&path)
        {
            return Ok(answer);
        }
        let query = url::form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes()).into_owned().collect();
        let is_review = head.method == Method::POST && path == tokens::REVIEWS;
        let request = if is_review { None } else { Some(Self::of_path(store, &path, query)?) };
        let body = axum::body::to_bytes(body, LONGEST).await.map_err(|_| Refused {
            code: 413,
            reason: "RequestEntityTooLarge",
            message: format!("the body is longer than {LONGEST} bytes"),
        })?;
        let Some(request) = request else {
            let review = serde_json::from_slice(&body).map_err(|_| status::bad_request("the body is not JSON"))?;
            return Ok(Answer::Json(StatusCode::CREATED, tokens::review(store, review).to_string()));
        };
        let media = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        request.dispatch(&head.method, media, &body)
    }

    fn of_path(store: &'a Arc<Store>, path: &[&str], query: HashMap<String, String>) -> Result<Self, Refused> {
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
        Ok(Self { store, resource, namespace, name, part, query })
    }

    fn asked(&self, key: &str) -> &str {
        self.query.get(key).map(String::as_str).unwrap_or_default()
    }

    fn is_asked(&self, key: &str) -> bool {
        ["true", "1"].contains(&self.asked(key))
    }

    fn dispatch(&self, method: &Method, media: &str, body: &[u8]) -> Result<Answer, Refused> {
        let parsed = || -> Result<Value, Refused> {
            serde_json::from_slice(body).map_err(|error| status::bad_request(format!("the body is not JSON: {error}")))
        };
        let namespace = self.namespace.as_deref().unwrap_or_default();
        let Some(name) = self.name.as_deref() else {
            return match *method {
                Method::GET if self.is_asked("watch") => self.watch(),
                Method::GET => self.list(),
                Method::POST => self.create(parsed()?),
                _ => Err(status::method_not_allowed()),
            };
        };
        match *method {
            Method::GET => Ok(ok(&*self.store.get(self.resource, namespace, name)?)),
            Method::PUT => {
                let object = parsed()?;
                let write = Write::Whole(&object);
                if !object["metadata"]["name"].is_string() {
                    return Err(status::bad_request("the name of the object is required"));
                }
                Ok(ok(&*self.store.update(self.resource, (namespace, name), self.part, &write)?))
            }
            Method::PATCH => {
                let patch = parsed()?;
                let write = Write::Patch { media, patch: &patch };
                Ok(ok(&*self.store.update(self.resource, (namespace, name), self.part, &write)?))
            }
            Method::DELETE if self.part == Part::Main => {
                let options = if body.is_empty() { Value::Null } else { parsed()? };
                let (object, gone) = self.store.delete(self.resource, namespace, name, &options)?;
                Ok(ok(&if gone { self.deleted(name, &object) } else { (*object).clone() }))
            }
            _ => Err(status::method_not_allowed()),
        }
    }

    fn deleted(&self, name: &str, object: &Value) -> Value {
        let mut details = json!({"name": name, "kind": self.resource.plural, "uid": object["metadata"]["uid"]});
        if !self.resource.group.is_empty() {
            details["group"] = json!(self.resource.group);
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }

    fn create(&self, mut object: Value) -> Result<Answer, Refused> {
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
        let made = self.store.create(self.resource, object)?;
        Ok(Answer::Json(StatusCode::CREATED, made.to_string()))
    }

    fn selector(&self) -> Result<Selector, Refused> {
        Selector::parse(self.namespace.as_deref(), self.asked("labelSelector"), self.asked("fieldSelector"))
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
        let page = self.store.page(self.resource, &self.selector()?, limit, token)?;
        let mut metadata = json!({"resourceVersion": page.version.to_string()});
        if let Some(token) = page.token {
            metadata["continue"] = json!(token);
            metadata["remainingItemCount"] = json!(page.remaining);
        }
        let head = json!({
            "kind": format!("{}List", self.resource.kind), "apiVersion": self.resource.api_version(), "metadata": metadata,
        });
        // The items are printed one by one: a list of 5,000 is not copied first.
        let mut text = head.to_string();
        text.pop();
        text.push_str(",\"items\":[");
        for (at, item) in page.items.iter().enumerate() {
            if at > 0 {
                text.push(',');
            }
            text.push_str(&item.to_string());
        }
        text.push_str("]}");
        Ok(Answer::Json(StatusCode::OK, text))
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
            resource: self.resource,
            selector: self.selector()?,
            from: from.filter(|_| !initial),
            bookmarks,
            mark_initial: initial && bookmarks,
            lasts,
        };
        Ok(Answer::Stream(watch::body(self.store, watch)))
    }
}

/// Health, version and discovery.
fn about_the_server(path: &[&str]) -> Option<Answer> {
    let kinds = |group: &str, version: &str| -> Vec<Value> {
        let known = resource::ALL.iter().filter(|one| one.group == group && one.version == version);
        known
            .map(|one| {
                json!({
                    "name": one.plural, "singularName": one.kind.to_lowercase(), "namespaced": one.namespaced,
                    "kind": one.kind, "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
                })
            })
            .collect()
    };
    let list = |group: &str, version: &str| {
        let resources = kinds(group, version);
        let name = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        (!resources.is_empty()).then(|| {
            ok(&json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}))
        })
    };
    match path {
        ["healthz" | "readyz" | "livez"] => Some(Answer::Json(StatusCode::OK, "ok".to_owned())),
        ["version"] => Some(ok(&json!({"major": "1", "minor": "36", "gitVersion": crate::VERSION}))),
        ["api"] => Some(ok(&json!({"kind": "APIVersions", "versions": ["v1"]}))),
        ["apis"] => {
            let mut groups: Vec<&str> =
                resource::ALL.iter().map(|one| one.group).filter(|one| !one.is_empty()).collect();
            groups.sort_unstable();
            groups.dedup();
            let groups: Vec<Value> = groups
                .into_iter()
                .map(|group| {
                    let version = json!({"groupVersion": format!("{group}/v1"), "version": "v1"});
                    json!({"name": group, "versions": [version], "preferredVersion": version})
                })
                .collect();
            Some(ok(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        ["api", version] => list("", version),
        ["apis", group, version] => list(group, version),
        _ => None,
    }
}
