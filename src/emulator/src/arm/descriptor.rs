//! What the emulator knows of a resource type, as data.
//!
//! A [`Descriptor`] is one table per type. [`super::engine`] reads it for PUT, PATCH, GET, LIST and DELETE, and
//! [`super::routes`] finds the routes in it. What data cannot say is a hook: a plain function.
//!
//! # How to add a type
//!
//! 1. Find its PUT body in `schema.txt`, or add it there.
//! 2. Write the descriptor, on top of a constant of its family that holds what its provider does everywhere:
//!
//!    ```ignore
//!    pub(crate) static NAT_GATEWAY: Descriptor = Descriptor {
//!        kind: kinds::NAT_GATEWAY,
//!        path: "natGateways",
//!        schema: Schema { name: "NNatGateway", root: "natGateway" },
//!        references: &[Reference::new("properties/publicIpAddresses/*", kinds::ADDRESS)],
//!        in_use: &[InUse { by: By::References, fault: |gateway, by| fault::nat_gateway_in_use(path::of(gateway), by) }],
//!        shows: &[BackReference { member: "subnets", from: kinds::NETWORK, form: Form::Some }],
//!        hooks: Hooks {
//!            complete: |draft| Ok(json!({"properties": {
//!                "idleTimeoutInMinutes": draft.number("idleTimeoutInMinutes", 4),
//!                "publicIpAddresses": draft.asked()["publicIpAddresses"],
//!            }})),
//!            ..base::RESOURCE.hooks
//!        },
//!        ..base::RESOURCE
//!    };
//!    ```
//!
//!    The subnet's descriptor already names `natGateway` among its references, so the engine now finds the gateway
//!    there, refuses a subnet whose gateway does not exist, and refuses to delete a gateway that a subnet names.
//! 3. Add `&NAT_GATEWAY` to the list of its provider, in `network::PROVIDER`. A new provider is added to
//!    `arm::registry`.
//! 4. Add its refusals to the catalogue of errors, each with its evidence, and a test that drives its whole life.
//!
//! Routes, the list of providers, deletion of resource groups, quotas, throttling, restarts from a state file and
//! unknown paths follow from the descriptor.
//!
//! Worked examples are [`super::network::route_tables`], which is short, [`super::network::load_balancers`], whose
//! parts name each other, and [`super::compute::snapshots`], whose documents are shown when an operation ends.
//!
//! | a type that | has |
//! |---|---|
//! | keeps parts in its own document, such as rules | [`Descriptor::children`] |
//! | has resources below it that are documents of their own, such as shares and instances | a descriptor with [`Descriptor::parent`] |
//! | names other resources | [`Descriptor::references`] |
//! | cannot be deleted while another names it | [`Descriptor::in_use`] |
//! | shows who names it, or who names a part of it | [`Descriptor::shows`], [`Children::shows`] |
//! | gets something at the end of a write, such as an address | [`Hooks::settle`] |
//! | changes other resources | [`Hooks::changed`] |
//! | keeps its old document until a write has ended | [`Commit::AtEnd`](super::protocol::Commit::AtEnd) |
//! | needs the hypervisor, or makes resources below it | [`Hooks::begun`], [`Hooks::settle`], [`Hooks::failed`] |
//! | answers a repeated request as it did the first one | [`Writers::Judged`] |
//! | moves other resources with a write, such as disks | [`Hooks::plan`] |
//! | makes its document in an order of its own | [`Hooks::document`] |
//! | has actions, such as a POST | [`Descriptor::routes`] |
//! | does something altogether different | [`Own`] |

use std::time::Duration;

use serde_json::{Value, json};

use super::protocol::{
    Absent, Access, Answered, Etags, Latency, Limits, NamedBy, Patch, Put, Schema, Scope, Shape, Stamps,
};
use crate::answer::{Answer, Context, OperationHeaders, Reply};
use crate::fault::Fault;
use crate::latency::OperationKind;
use crate::operations::Style;
use crate::options::{Options, Switches};
use crate::path::{self, ArmPath};
use crate::phases::Moved;
use crate::state::{Effect, HypervisorStep, State, Undo};
use crate::store::{Machine, Resource};
use crate::throttle::Policy;

/// Answers one request.
pub(crate) type Handler = fn(&mut Context<'_>) -> Reply;

/// A resource provider.
pub(crate) struct Provider {
    /// As Azure prints it.
    pub(crate) namespace: &'static str,
    /// Its resource types.
    pub(crate) types: &'static [&'static Descriptor],
    /// Further types that its document names, each with versions.
    pub(crate) other_types: &'static [(&'static str, &'static [&'static str])],
    /// Routes that belong to no resource: operations, usages, catalogues. Paths begin after the namespace.
    pub(crate) routes: &'static [Extra],
}

/// The registry: what every provider has, for those who find a type by its name.
///
/// The state carries it, so that what works on documents of any type names none of them.
#[derive(Clone, Copy)]
pub(crate) struct Types {
    pub(crate) providers: &'static [&'static Provider],
    /// Providers that no list shows.
    pub(crate) hidden: &'static [&'static Provider],
}

impl Types {
    pub(crate) fn providers(self) -> impl Iterator<Item = &'static Provider> {
        self.providers.iter().chain(self.hidden).copied()
    }

    /// Every resource type that has a descriptor.
    pub(crate) fn all(self) -> impl Iterator<Item = &'static Descriptor> {
        self.providers().flat_map(|provider| provider.types.iter().copied())
    }

    /// The descriptor of a type, in any letter case.
    pub(crate) fn named(self, kind: &str) -> Option<&'static Descriptor> {
        self.all().find(|descriptor| descriptor.kind.eq_ignore_ascii_case(kind))
    }

    /// The descriptor of a type of which the emulator makes resources itself.
    ///
    /// # Panics
    ///
    /// When no provider lists the type.
    pub(crate) fn of_kind(self, kind: &'static str) -> &'static Descriptor {
        self.named(kind).expect("the registry has every type that is named in the source")
    }

    /// The type of the resource that a path names, or below which it is.
    pub(crate) fn at(self, path: &ArmPath) -> Option<&'static Descriptor> {
        let provider = path.provider.as_deref()?;
        let fits = |descriptor: &&Descriptor| {
            let mut segments = descriptor.path.split('/').zip(&path.rest);
            descriptor.namespace().eq_ignore_ascii_case(provider)
                && path.rest.len() > descriptor.depth()
                && segments.all(|(own, asked)| own == "*" || own.eq_ignore_ascii_case(asked))
        };
        self.all().filter(fits).max_by_key(|descriptor| descriptor.depth())
    }

    /// The descriptor of the type of a document.
    pub(crate) fn of(self, doc: &Value) -> Option<&'static Descriptor> {
        self.named(doc["type"].as_str()?)
    }
}

/// Headers of answers.
pub(crate) type Headers = &'static [(&'static str, &'static str)];

/// A resource type.
pub(crate) struct Descriptor {
    /// The type as Azure prints it: `Microsoft.Network/publicIPAddresses`.
    pub(crate) kind: &'static str,
    /// The path of the collection after the namespace, with `*` for names: `publicIPAddresses`,
    /// `storageAccounts/*/fileServices/default/shares`.
    pub(crate) path: &'static str,
    /// What the names of its operations begin with, where it is not the last segment of the path.
    pub(crate) operations: Option<&'static str>,
    /// The resource that must exist, and with which this one goes. Without one it is the resource group.
    pub(crate) parent: Option<&'static Descriptor>,
    /// Versions that the provider's document names.
    pub(crate) api_versions: &'static [&'static str],
    pub(crate) family: &'static Family,
    /// Where it can be listed.
    pub(crate) lists: &'static [Scope],
    pub(crate) limits: Limits,
    /// Whether each has buckets of its own. What has none counts in those of the resource that it is below.
    pub(crate) own_buckets: bool,
    /// What answers of the provider carry besides what all carry; an empty list is without.
    pub(crate) headers: Headers,
    pub(crate) latency: Latency,
    /// How the body of a PUT is read.
    pub(crate) schema: Schema,
    /// The members of the document in the order in which the service prints them.
    pub(crate) layout: &'static [&'static str],
    /// What the engine puts at the start of `properties`.
    pub(crate) stamps: Stamps,
    pub(crate) put: Put,
    /// `provisioningState` while a creation runs, where it is another than while a change does.
    pub(crate) creating: Option<&'static str>,
    /// What a PUT makes of what it leaves out of a resource that exists.
    pub(crate) absent: Absent,
    pub(crate) patch: Patch,
    /// How a DELETE is answered. One of what does not exist is always 204.
    pub(crate) delete: Answered,
    pub(crate) writers: Writers,
    /// Parts that stand in the document, with ids of their own.
    pub(crate) children: &'static [Children],
    /// Resources that must exist.
    pub(crate) references: &'static [Reference],
    /// What stops a deletion.
    pub(crate) in_use: &'static [InUse],
    /// Members that show who refers to the resource.
    pub(crate) shows: &'static [BackReference],
    /// Properties that `$expand` of a GET may name. None: `$expand` is not looked at.
    pub(crate) expands: &'static [&'static str],
    pub(crate) quotas: &'static [Quota],
    pub(crate) hooks: Hooks,
    /// Verbs that the type answers itself.
    pub(crate) own: Own,
    /// Further routes; paths begin after the name of the resource.
    pub(crate) routes: &'static [Extra],
}

/// What all types of a provider, or several of them, have in common.
pub(crate) struct Family {
    /// The shape of the status object of its operations.
    pub(crate) style: Style,
    /// The collection of its operations: `providers/{namespace}/locations/{location}/{collection}`.
    pub(crate) namespace: &'static str,
    pub(crate) collection: &'static str,
    /// Whether answers carry `Azure-AsyncNotification`.
    pub(crate) notification: bool,
    /// Seconds told to those who poll.
    pub(crate) retry_after: fn(&Options) -> u64,
    pub(crate) etags: Etags,
    /// Whether the lower bound of a bench counts its operations.
    pub(crate) counted: bool,
}

/// What an accepted write comes with besides its document.
#[derive(Debug, Default)]
pub(crate) struct Begun {
    /// What the operation does to resources besides its own; none: what the descriptor says.
    pub(crate) kind: Option<OperationKind>,
    /// What the hypervisor does during the operation.
    pub(crate) steps: Vec<HypervisorStep>,
}

impl Begun {
    /// With work for the hypervisor alone.
    pub(crate) fn with(steps: Vec<HypervisorStep>) -> Self {
        Self { kind: None, steps }
    }
}

/// A write that its type has planned, and for which it has changed other resources already.
pub(crate) struct Planned {
    pub(crate) id: String,
    /// What stands from now on. The engine numbers its etag.
    pub(crate) doc: Value,
    /// Of a machine that is created: what its document does not show.
    pub(crate) machine: Option<Machine>,
    pub(crate) kind: OperationKind,
    /// What the hypervisor does during the operation.
    pub(crate) steps: Vec<HypervisorStep>,
    /// The disks that the operation moves.
    pub(crate) moved: Moved,
    /// The end of the operation, and what a failure leaves behind.
    pub(crate) effect: Effect,
    pub(crate) undo: Undo,
    /// How the answer points at the operation.
    pub(crate) shape: Shape,
    /// The answer but for that, of the resource as it stands.
    pub(crate) answer: fn(&Context<'_>, &Resource) -> Answer,
}

/// Plans the write that a request asks for, or refuses it and changes nothing.
pub(crate) type PlanWrite = fn(&mut Context<'_>, Verb) -> Result<Planned, Fault>;

/// Judges whether a write may begin, of the old document and of what is asked.
pub(crate) type Judge = fn(&mut Context<'_>, Option<&Value>, &Value) -> Result<Beside, Fault>;

/// How an accepted write stands to what runs.
#[derive(Debug)]
pub(crate) enum Beside {
    /// It changes the resource.
    Alone,
    /// It asks for what this operation does already: it changes nothing, and ends with it.
    Joins(String),
}

/// What becomes of a write while another one runs.
#[derive(Clone, Copy)]
pub(crate) enum Writers {
    /// Both run to their end; the newer document stands.
    Together,
    /// 409 `Conflict`.
    Refuse,
    /// The older one ends as `Canceled`.
    Supersede,
    /// As the type says, which also refuses what is being deleted or in another region. A deletion is refused as with
    /// `Refuse`.
    Judged(Judge),
}

/// Parts of a document with ids of their own.
pub(crate) struct Children {
    pub(crate) kind: &'static str,
    /// The member of `properties` that holds them, and the segment of their path.
    pub(crate) member: &'static str,
    pub(crate) access: Access,
    pub(crate) schema: Schema,
    pub(crate) layout: &'static [&'static str],
    /// How many there must be at least.
    pub(crate) least: usize,
    pub(crate) references: &'static [Reference],
    /// Whom a refusal of a reference names.
    pub(crate) named_by: NamedBy,
    pub(crate) in_use: &'static [InUse],
    /// Members that show who refers to one of them, also in the same document.
    pub(crate) shows: &'static [BackReference],
    /// Whether they are `Succeeded` while a write of the resource runs. Recorded for the parts of private links.
    pub(crate) settled: bool,
    /// Makes `properties` of what was asked, but for the state.
    pub(crate) complete: fn(&Draft<'_>, &Part<'_>) -> Result<Value, Fault>,
}

/// Where a document names another resource.
#[derive(Clone, Copy)]
pub(crate) struct Reference {
    /// The path of an object with an `id`, with `*` for each item of an array.
    pub(crate) at: &'static str,
    /// The type, or the type of children, that the id must be of.
    pub(crate) to: &'static str,
    /// Whether only one may name it.
    pub(crate) exclusive: Option<Exclusive>,
    /// The operation that a refusal names where what is named must be in the state `Succeeded`.
    pub(crate) provisioned_by: Option<&'static str>,
}

/// The refusals of a second reference to what only one may name.
#[derive(Clone, Copy)]
pub(crate) struct Exclusive {
    /// Another resource names it: of the part that names it here, its id, and the other resource.
    pub(crate) taken: fn(&str, &str, &str) -> Fault,
    /// Another part of the same document names it: of its id and the resource.
    pub(crate) twice: fn(&str, &str) -> Fault,
}

impl Reference {
    pub(crate) const fn new(at: &'static str, to: &'static str) -> Self {
        Self { at, to, exclusive: None, provisioned_by: None }
    }

    /// To what only one may name.
    pub(crate) const fn exclusive(self, refusals: Exclusive) -> Self {
        Self { exclusive: Some(refusals), ..self }
    }

    /// To what must be in the state `Succeeded`, to which this operation brings it.
    pub(crate) const fn provisioned(self, operation: &'static str) -> Self {
        Self { provisioned_by: Some(operation), ..self }
    }
}

/// What stops a deletion.
pub(crate) struct InUse {
    pub(crate) by: By,
    /// The refusal, of the document and the id of what uses it.
    pub(crate) fault: fn(&Value, &str) -> Fault,
}

/// Who uses a resource.
#[derive(Clone, Copy)]
pub(crate) enum By {
    /// Who refers to it, by any descriptor.
    References,
    /// The same. Where the switch says so, those of this type go together with the whole resource, and then only a
    /// part is kept by them.
    ReferencesBut(&'static str, fn(&Switches) -> bool),
    /// Those that its own document names.
    Named(fn(&Value) -> Vec<String>),
    /// Those of these types that refer to one of its children.
    ToChildren(&'static [&'static str]),
}

/// A member that shows who refers to a resource.
pub(crate) struct BackReference {
    /// The member of `properties`.
    pub(crate) member: &'static str,
    /// The type that refers, or the type of children.
    pub(crate) from: &'static str,
    pub(crate) form: Form,
}

/// How a back reference is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `{"id": …}` of the first, or no member.
    One,
    /// An array, empty where there are none.
    Many,
    /// An array, or no member.
    Some,
    /// An array of addresses of a backend pool, each with its network interface's configuration, or no member.
    Addresses,
    /// Not at all: only the etag changes.
    Hidden,
}

/// How many there may be in a subscription and region.
pub(crate) struct Quota {
    /// The name in the usage API.
    pub(crate) name: &'static str,
    pub(crate) local_name: &'static str,
    /// The default.
    pub(crate) limit: u64,
    /// Which documents of the type count.
    pub(crate) counts: fn(&Value) -> bool,
    pub(crate) fault: fn(&Exceeded<'_>) -> Fault,
}

/// A quota that one more resource would exceed.
pub(crate) struct Exceeded<'a> {
    pub(crate) name: &'static str,
    pub(crate) location: &'a str,
    pub(crate) limit: u64,
    /// How many there are.
    pub(crate) used: u64,
}

/// Makes a whole document.
pub(crate) type MakeDocument = fn(&Draft<'_>) -> Result<Value, Fault>;

/// Begins a write, of the old document and the new.
pub(crate) type BeginWrite = fn(&mut Context<'_>, Option<&Value>, Option<&Value>) -> Result<Begun, Fault>;

/// What data cannot say. Each has a default in [`Hooks::NONE`].
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    /// Whether a name is allowed, of the type and the name.
    pub(crate) name: fn(&str, &str) -> Result<(), Fault>,
    /// The refusal of a request for a resource that is not there, where it is not the gateway's 404.
    pub(crate) missing: Option<fn(&Context<'_>) -> Fault>,
    /// Plans a PUT or PATCH that is more than a change of its own document, such as one that moves disks: in place of all
    /// checks and hooks of a write. What is planned, the engine accepts.
    pub(crate) plan: Option<PlanWrite>,
    /// Makes what the document holds besides the members that every resource has: `properties` with its defaults,
    /// `sku`, `kind`.
    pub(crate) complete: fn(&Draft<'_>) -> Result<Value, Fault>,
    /// Makes the whole document but for the state, of a type whose members have an order of their own: in place of
    /// `complete`, of the layout, and of the check of zones.
    pub(crate) document: Option<MakeDocument>,
    /// Judges the whole document, of the new and the old.
    pub(crate) check: fn(&State, &Value, Option<&Value>) -> Result<(), Fault>,
    /// The body of the answer to a write with an operation, of the document, of what was asked, and of the document
    /// before.
    pub(crate) accepted: fn(&Value, &Value, Option<&Value>) -> Value,
    /// Refuses the deletion of what nothing uses.
    pub(crate) deletable: fn(&Context<'_>, &Value) -> Result<(), Fault>,
    /// A write is about to be accepted, of the old document and the new: changes what is below the resource, or refuses
    /// the write and changes nothing.
    pub(crate) begun: BeginWrite,
    /// The end of a write, before the document is put in place: adds what the service draws, or fails the write.
    pub(crate) settle: fn(&mut State, &mut Value, Duration) -> Result<(), Fault>,
    /// The end of a write of what is gone by then, of its id.
    pub(crate) gone: fn(&str) -> Result<(), Fault>,
    /// An operation on the resource of this id has failed, which has been marked.
    pub(crate) failed: fn(&mut State, &str, Duration),
    /// Takes the resource away with what goes with it, in place of the engine.
    pub(crate) remove: Option<fn(&mut State, &str, Duration)>,
    /// The document has been put in place or removed: changes what other resources show.
    pub(crate) changed: fn(&mut State, Option<&Value>, Option<&Value>, Duration),
}

impl Hooks {
    pub(crate) const NONE: Self = Self {
        name: |_, _| Ok(()),
        missing: None,
        plan: None,
        complete: |draft| Ok(json!({ "properties": draft.body["properties"] })),
        document: None,
        check: |_, _, _| Ok(()),
        accepted: |doc, _, _| doc.clone(),
        deletable: |_, _| Ok(()),
        begun: |_, _, _| Ok(Begun::default()),
        settle: |_, _, _| Ok(()),
        gone: |_| Ok(()),
        failed: |_, _, _| (),
        remove: None,
        changed: |_, _, _, _| (),
    };
}

/// Verbs that a type answers itself.
#[derive(Clone, Copy)]
pub(crate) struct Own {
    pub(crate) put: Option<Handler>,
    pub(crate) patch: Option<Handler>,
    pub(crate) get: Option<Handler>,
    pub(crate) delete: Option<Handler>,
    pub(crate) list: Option<Handler>,
}

impl Own {
    pub(crate) const NONE: Self = Self { put: None, patch: None, get: None, delete: None, list: None };
}

/// A route besides the verbs.
pub(crate) struct Extra {
    pub(crate) method: &'static str,
    pub(crate) scope: Scope,
    /// In lower case, with `*` for names.
    pub(crate) path: &'static str,
    /// The emulator's name of the operation.
    pub(crate) operation: &'static str,
    pub(crate) handler: Handler,
    pub(crate) limit: Option<Policy>,
    /// The first api-version that has it, where that is not the first of the type.
    pub(crate) since: Option<&'static str>,
    /// As [`Descriptor::headers`].
    pub(crate) headers: Headers,
}

/// Where a document comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A request: everything in it is checked.
    Request,
    /// A scenario: its addresses are known to be free.
    Scenario,
}

/// What a request does with what it leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Put,
    Patch,
}

/// What a document is made of.
pub(crate) struct Draft<'a> {
    pub(crate) state: &'a State,
    pub(crate) id: &'a str,
    pub(crate) name: &'a str,
    pub(crate) location: &'a str,
    /// The body, read by the schema.
    pub(crate) body: &'a Value,
    /// The document before the write.
    pub(crate) old: Option<&'a Value>,
    /// The `resourceGuid` of the old document; drawn for a new one, for whatever is unique in it.
    pub(crate) guid: &'a str,
    /// The time as resources show it.
    pub(crate) stamp: &'a str,
    pub(crate) switches: &'a Switches,
    pub(crate) origin: Origin,
    pub(crate) verb: Verb,
}

impl Draft<'_> {
    /// `properties` of the body.
    pub(crate) fn asked(&self) -> &Value {
        &self.body["properties"]
    }

    /// A property that is a string, or its default.
    pub(crate) fn text<'a>(&'a self, property: &str, default: &'a str) -> &'a str {
        self.asked()[property].as_str().unwrap_or(default)
    }

    /// A property that is a boolean; false where it is absent.
    pub(crate) fn flag(&self, property: &str) -> bool {
        self.asked()[property].as_bool().unwrap_or(false)
    }

    /// A property that is a number, or its default.
    pub(crate) fn number(&self, property: &str, default: u64) -> u64 {
        self.asked()[property].as_u64().unwrap_or(default)
    }
}

/// What one of the children is made of.
pub(crate) struct Part<'a> {
    pub(crate) id: &'a str,
    /// The item of the body.
    pub(crate) asked: &'a Value,
    /// Its document before the write.
    pub(crate) old: Option<&'a Value>,
    /// Those that stand before it, complete.
    pub(crate) before: &'a [Value],
}

impl Descriptor {
    /// `Microsoft.Network`.
    pub(crate) fn namespace(&self) -> &'static str {
        self.kind.split_once('/').map_or(self.kind, |(namespace, _)| namespace)
    }

    /// The first part of the names of its operations.
    pub(crate) fn stem(&self) -> &'static str {
        self.operations.unwrap_or_else(|| path::name_of(self.path))
    }

    /// How many segments stand between the namespace and the name.
    pub(crate) fn depth(&self) -> usize {
        if self.parent.is_none() { 1 } else { self.path.split('/').count() }
    }

    /// How many segments after the namespace name the resource that has the buckets.
    pub(crate) fn limited_at(&self) -> usize {
        match self.parent {
            Some(parent) if !self.own_buckets => parent.limited_at(),
            _ => self.depth() + 1,
        }
    }

    /// The name that a request gives.
    pub(crate) fn name<'a>(&self, context: &'a Context<'_>) -> &'a str {
        context.request.segment(self.depth())
    }

    /// The path below `base` with the names of the request: `Microsoft.Network/publicIPAddresses/ip1`.
    fn filled(&self, context: &Context<'_>) -> String {
        if self.parent.is_none() {
            return format!("{}/{}", self.kind, self.name(context));
        }
        let segments = self.path.split('/').enumerate().map(|(at, segment)| match segment {
            "*" => context.request.segment(at),
            segment => segment,
        });
        let segments: Vec<&str> = segments.chain(std::iter::once(self.name(context))).collect();
        format!("{}/{}", self.namespace(), segments.join("/"))
    }

    /// The id that a request gives.
    pub(crate) fn id(&self, context: &Context<'_>) -> String {
        format!("{}/providers/{}", context.request.group_id(), self.filled(context))
    }

    /// The same below a group or a parent whose id is spelt as Azure prints it.
    pub(crate) fn id_below(&self, base: &str, context: &Context<'_>) -> String {
        let Some(parent) = self.parent else {
            return format!("{base}/providers/{}", self.filled(context));
        };
        let between = self.path.get(parent.path.len()..).unwrap_or("").trim_start_matches("/*/");
        format!("{base}/{between}/{}", self.name(context))
    }

    /// The refusal of a request for a resource that is not there.
    pub(crate) fn missing(&self, context: &Context<'_>) -> Fault {
        self.hooks.missing.map_or_else(|| self.not_found(context), |missing| missing(context))
    }

    /// The 404 of the gateway.
    pub(crate) fn not_found(&self, context: &Context<'_>) -> Fault {
        let filled = self.filled(context);
        let (kind, name) = filled.rsplit_once('/').unwrap_or((&filled, ""));
        crate::fault::resource_not_found(kind, name, context.request.group())
    }
}

impl Family {
    /// The headers of an answer that points at an operation.
    pub(crate) fn headers(&self, answered: Answered) -> OperationHeaders {
        OperationHeaders {
            asynchronous: matches!(answered.shape, Shape::AsyncOperation | Shape::Both),
            location: matches!(answered.shape, Shape::Location | Shape::Both),
            notification: self.notification && answered.shape != Shape::Synchronous,
        }
    }

    /// The path of the operations in a location.
    pub(crate) fn operations(&self, location: &str) -> String {
        format!("providers/{}/locations/{location}/{}", self.namespace, self.collection)
    }
}
