//! Requests as the resource providers see them, and answers as they give them.

use std::collections::BTreeMap;
use std::time::Duration;

use http::HeaderMap;
use serde::Serialize;
use serde_json::Value;

use crate::definition;
use crate::document::Document;
use crate::fault::{self, Fault};
use crate::latency::OperationKind;
use crate::operations::{Order, Style};
use crate::path::ArmPath;
use crate::schema::{self, Reading};
use crate::state::{Effect, HypervisorStep, Pending, Shared, State, Undo, Work};

/// A request to the resource manager.
pub(crate) struct Request {
    pub(crate) method: String,
    /// As sent, without query.
    pub(crate) raw_path: String,
    pub(crate) path: ArmPath,
    /// Query parameters with lower-case names.
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) api_version: String,
    pub(crate) headers: HeaderMap,
    pub(crate) raw: String,
    pub(crate) json: Option<Value>,
    /// `http://host:port`.
    pub(crate) base: String,
    /// The failure that an incident orders for the operation this request starts.
    pub(crate) late_failure: Option<Fault>,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// `/subscriptions/{s}`.
    pub(crate) fn subscription_id(&self) -> String {
        format!("/subscriptions/{}", self.path.subscription)
    }

    /// The id of the group, as Azure prints it.
    pub(crate) fn group_id(&self) -> String {
        format!("{}/resourceGroups/{}", self.subscription_id(), self.path.group.as_deref().unwrap_or(""))
    }

    /// The group's name as the caller spelt it.
    pub(crate) fn group(&self) -> &str {
        self.path.group.as_deref().unwrap_or("")
    }

    /// The nth segment after the provider.
    pub(crate) fn segment(&self, nth: usize) -> &str {
        self.path.rest.get(nth).map_or("", String::as_str)
    }

    /// The JSON body.
    ///
    /// # Errors
    ///
    /// 415 without a JSON content type, 400 without a JSON object.
    pub(crate) fn body(&self) -> Result<&Value, Fault> {
        let given = self.header("content-type").unwrap_or("<null>");
        if !given.to_ascii_lowercase().starts_with("application/json") {
            return Err(fault::unsupported_media_type(given));
        }
        match &self.json {
            Some(value @ Value::Object(_)) => Ok(value),
            Some(_) => Err(fault::invalid_content(
                "Cannot deserialize the current JSON value because the type requires a JSON object",
            )),
            None if self.raw.trim().is_empty() => Err(fault::invalid_content("The request body must not be empty")),
            None => Err(fault::invalid_content("Unexpected character encountered while parsing the request body")),
        }
    }
}

/// The body of an answer. What the store has is shared with it, and written out by reference.
#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    /// No body.
    #[default]
    Empty,
    /// A document.
    Document(Document),
    /// A document that is written out already.
    Text(String),
    /// A page of a list.
    Page(Page),
}

/// A page of a list.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub(crate) value: Vec<Document>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_link: Option<String>,
}

impl Content {
    /// The body as JSON text.
    pub(crate) fn into_text(self) -> Option<Vec<u8>> {
        // Strings, numbers and documents: there is nothing in it that JSON does not have.
        match self {
            Self::Empty => None,
            Self::Document(doc) => serde_json::to_vec(&doc).ok(),
            Self::Text(text) => Some(text.into_bytes()),
            Self::Page(page) => serde_json::to_vec(&page).ok(),
        }
    }

    /// A list without items.
    pub(crate) fn is_empty_list(&self) -> bool {
        match self {
            Self::Empty | Self::Text(_) => false,
            Self::Document(doc) => doc["value"].as_array().is_some_and(Vec::is_empty),
            Self::Page(page) => page.value.is_empty(),
        }
    }

    /// Changes each document in it, the items of a list one by one.
    pub(crate) fn change(&mut self, mut change: impl FnMut(&mut Value)) {
        if let Self::Text(text) = self
            && let Ok(value) = serde_json::from_str::<Value>(text)
        {
            *self = Self::Document(value.into());
        }
        match self {
            Self::Empty | Self::Text(_) => {}
            Self::Document(doc) => change(doc),
            Self::Page(page) => page.value.iter_mut().for_each(|doc| change(doc)),
        }
    }
}

/// An answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Content,
    /// The operation that was started, and the latency drawn for it.
    pub(crate) started: Option<(String, Duration)>,
}

impl Answer {
    pub(crate) fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn json(status: u16, body: impl Into<Document>) -> Self {
        Self { status, body: Content::Document(body.into()), ..Self::default() }
    }

    /// With a body that is JSON text.
    pub(crate) fn text(status: u16, body: String) -> Self {
        Self { status, body: Content::Text(body), ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// With the headers that point at a started operation.
    pub(crate) fn started(mut self, started: Started, headers: OperationHeaders) -> Self {
        if headers.notification {
            self = self.with("azure-asyncnotification", "Enabled");
        }
        if headers.asynchronous {
            self = self.with("azure-asyncoperation", started.url.clone());
        }
        if headers.location {
            self = self.with("location", started.location);
        }
        if (headers.asynchronous || headers.location)
            && let Some(seconds) = started.retry_after
        {
            self = self.with("retry-after", seconds.to_string());
        }
        self.started = Some((started.id, started.latency));
        self
    }
}

/// Which of an operation's headers an answer carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OperationHeaders {
    pub(crate) asynchronous: bool,
    pub(crate) location: bool,
    pub(crate) notification: bool,
}

/// An operation that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Started {
    pub(crate) id: String,
    pub(crate) url: String,
    pub(crate) location: String,
    pub(crate) latency: Duration,
    /// Which write of the resource it is, counted from 1.
    pub(crate) nth: u64,
    pub(crate) retry_after: Option<u64>,
}

/// What an operation is about.
pub(crate) struct Start<'a> {
    pub(crate) style: Style,
    pub(crate) kind: OperationKind,
    /// Id of the resource that it changes.
    pub(crate) resource: &'a str,
    /// Path of the operation's collection, such as
    /// `providers/Microsoft.Compute/locations/eastus/DiskOperations`.
    pub(crate) collection: String,
    pub(crate) retry_after: u64,
    pub(crate) steps: Vec<HypervisorStep>,
    pub(crate) effect: Effect,
    pub(crate) undo: Option<Undo>,
    /// Ends together with this one, if it is still running: a repeated request joins the first.
    pub(crate) together_with: Option<&'a str>,
}

/// What a handler works with.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) state: &'a mut State,
    pub(crate) request: &'a Request,
    pub(crate) now: Duration,
    /// The caller's object id.
    pub(crate) principal: &'a str,
}

/// An answer or a refusal.
pub(crate) type Reply = Result<Answer, Fault>;

impl Context<'_> {
    /// The body read by the schema of a type.
    pub(crate) fn read(&self, type_name: &str, root: &'static str, partial: bool) -> Result<Value, Fault> {
        self.read_body(self.request.body()?, type_name, root, partial)
    }

    /// The same of a part that stands in the document of a resource. The templates of the Azure CLI give a NAT rule a
    /// location, which Azure takes there; that it takes one everywhere is unverified.
    pub(crate) fn read_part(&self, type_name: &str, root: &'static str) -> Result<Value, Fault> {
        let mut body = self.request.body()?.clone();
        if let Some(members) = body.as_object_mut() {
            members.retain(|name, _| !name.eq_ignore_ascii_case("location"));
        }
        self.read_body(&body, type_name, root, false)
    }

    fn read_body(&self, body: &Value, type_name: &str, root: &'static str, partial: bool) -> Result<Value, Fault> {
        let future = self.shared.options.future_fields.then_some(crate::unknown_fields::MEMBER);
        if matches!(self.request.method.as_str(), "PUT" | "PATCH") {
            // Unverified: the definition that the gateway has of a group's members.
            if type_name != "ResourceGroup" && type_name != "TagsObject" {
                definition::check_members(body, &self.request.raw, future)?;
            }
            definition::check_tags(body)?;
        }
        let unknown = schema::unknown_to(&self.request.api_version);
        schema::read(body, &self.request.raw, type_name, Reading { root, partial, future, unknown })
    }

    /// Refuses unless the group exists and is not being deleted.
    pub(crate) fn require_group(&self) -> Result<Document, Fault> {
        let id = self.request.group_id();
        let Some(group) = self.state.store.get(&id) else {
            return Err(fault::group_not_found(self.request.group()));
        };
        if group.provisioning() == "Deleting" && self.request.method != "GET" {
            return Err(fault::group_being_deleted(self.request.group()));
        }
        Ok(group.doc.clone())
    }

    /// Accepts an operation.
    pub(crate) fn start(&mut self, start: Start<'_>) -> Started {
        let id = self.state.guid();
        let nth = self
            .state
            .store
            .change(start.resource, self.now, |resource| {
                resource.writes += 1;
                resource.writes
            })
            .unwrap_or(0);
        let options = &self.shared.options;
        let mut due = self.now + self.state.draw(options, start.kind, start.resource, nth);
        if let Some(other) = start.together_with.and_then(|id| self.state.operations.get(id)) {
            due = other.due.max(self.now);
        }
        let retry_after = Some(options.retry_after.unwrap_or(start.retry_after))
            .map(|seconds| if options.retry_after.is_none() { options.scaled(seconds) } else { seconds });
        let version = &self.request.api_version;
        let subscription = self.request.subscription_id();
        let base = &self.request.base;
        let signature = format!("api-version={version}&t=638&c=lazuli&s=emulator&h={}", &id[..8]);
        let query = match start.style {
            Style::Compute => {
                let partition = crate::derived::guid_of(&subscription);
                format!("p={partition}&{signature}")
            }
            Style::Storage => format!("monitor=true&{signature}"),
            Style::Network | Style::Group | Style::Deployment => signature,
        };
        let root = format!("{base}{subscription}/{}", start.collection);
        let url = match start.style {
            Style::Group => root.clone(),
            _ => format!("{root}/{id}?{query}"),
        };
        let location = match start.style {
            Style::Compute => format!("{root}/{id}?{query}&monitor=true"),
            Style::Network => {
                format!("{}/{id}?{query}", root.trim_end_matches("operations").to_owned() + "operationResults")
            }
            Style::Group | Style::Deployment => format!("{root}?{query}"),
            Style::Storage => url.clone(),
        };
        let latency = due - self.now;
        self.state.operations.accept(Order {
            id: id.clone(),
            style: start.style,
            kind: start.kind,
            resource: start.resource.to_owned(),
            started: self.now,
            due,
            retry_after,
            late_failure: self.request.late_failure.clone(),
            held: self.shared.hypervisor.has_devices() && !start.steps.is_empty(),
            work: Work { effect: start.effect, undo: start.undo },
        });
        self.state.pending.push(Pending { operation: id.clone(), started: self.now, due, steps: start.steps });
        Started { id, url, location, latency, nth, retry_after }
    }
}
