//! How a node mounts a share: the source, the options, and where the key is. The options never hold a user, a password or
//! a file of either: the key is a value of its own, for the kernel alone.

mod options;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt};

use lazuli_model::{
    parameter::{Context, Parameter, ParameterError, Parameters},
    template::Templates,
};

pub use options::{Defaults, without_credentials};

use crate::{
    name,
    parameters::not_done,
    secret::{KeySource, SecretRef, key_source},
    volume_id::{ShareVolumeId, ShareVolumeIdError},
};

/// The attribute of an inline volume of a Pod.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// A NodeStageVolume request, as far as it decides how the share is mounted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The volume id. A person's PersistentVolume may have any text; the context then says what it is.
    pub volume_id: String,
    /// The context of the volume.
    pub context: BTreeMap<String, String>,
    /// `mountOptions` of the PersistentVolume, in their order.
    pub mount_flags: Vec<String>,
    /// The account that the secrets of the request name, or the Secret of the volume; it counts where the volume names none.
    pub account: Option<String>,
    /// The group that owns the volume's files: `volume_mount_group`; empty for none.
    pub mount_group: String,
    /// Whether the access mode forbids writing.
    pub is_read_only: bool,
}

/// The server of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// A name or an address.
    Named(String),
    /// That of the account which stands beside its key alone: a person's volume names nothing but a Secret. It is known once
    /// [`Request::account`] is.
    OfSecret(SecretRef),
    /// That of the account in the secrets that kubelet passes when it stages, and at no other time: a person's volume names
    /// nothing else. A publish does not need it; what mounts does ([`MountPlan::to_mount`]).
    OfRequest,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(server) => f.write_str(server),
            Self::OfSecret(SecretRef { namespace, name }) => write!(f, "(the account in Secret {namespace}/{name})"),
            Self::OfRequest => f.write_str("(the account in the secrets of the request)"),
        }
    }
}

/// How a share is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPlan {
    /// The server.
    pub server: Server,
    /// The share.
    pub share: String,
    /// The folder of the share that is mounted, without slashes around it.
    pub folder: Option<String>,
    /// Whether the folder is made where it does not exist.
    pub creates_folder: bool,
    /// The options of `cifs`, in the order in which they count. None holds a credential.
    pub options: Vec<String>,
    /// Whether nothing can be written.
    pub is_read_only: bool,
    /// Where the key is, if the request's own secrets do not have it.
    pub key: KeySource,
    /// What a person should know of, a sentence each.
    pub warnings: Vec<String>,
}

impl MountPlan {
    /// The same plan, to mount by: it needs an account, of the volume or of the secrets.
    ///
    /// # Errors
    /// When neither the volume nor a Secret names it.
    pub fn to_mount(self, volume_id: &str) -> Result<Self, ParameterError> {
        match self.server {
            Server::Named(_) | Server::OfSecret(_) => Ok(self),
            Server::OfRequest => Err(ParameterError::invalid(
                "volume_id",
                volume_id,
                "it names no storage account, and neither do the attributes storageAccount and server; allowed is one of them",
            )),
        }
    }

    /// The source of the mount: `//server/share/folder`.
    pub fn source(&self) -> String {
        match &self.folder {
            Some(folder) => format!("//{}/{}/{folder}", self.server, self.share),
            None => format!("//{}/{}", self.server, self.share),
        }
    }
}

/// How a share is mounted. Whoever mounts it asks for [`MountPlan::to_mount`].
///
/// # Errors
/// When the volume cannot be mounted, or not by this version. Nothing has been done then, and a repetition would fail in
/// the same way.
pub fn plan(request: &Request, defaults: &Defaults<'_>) -> Result<MountPlan, ParameterError> {
    let context = Parameters::context(&request.context);
    refuse_what_is_not_done(context)?;
    let templates = Templates::of_context(context)?;
    let id = match ShareVolumeId::parse(&request.volume_id) {
        Ok(id) => Some(id),
        Err(ShareVolumeIdError::Traversal { id, field }) => {
            return Err(ParameterError::invalid("volume_id", id, format!("its field {field} may not hold \"..\"")));
        }
        // A person's volume.
        Err(_) => None,
    };
    if let Some(id) = id.as_ref().filter(|id| id.is_vhd()) {
        return Err(ParameterError::invalid(
            "volume_id",
            id,
            "a disk in a VHD file on a share is not mounted by this version",
        ));
    }
    let key = key_source(&request.context, id.as_ref())?;
    let (share, sub_path) = share(context, &templates, id.as_ref(), &request.volume_id)?;
    let folder = folder(context, &templates, &sub_path)?;
    let server = server(context, id.as_ref(), &key, defaults, request)?;
    let mut warnings = Vec::new();
    let (options, is_ro) = options::options(&request.mount_flags, &request.mount_group, defaults, &mut warnings)?;
    Ok(MountPlan {
        server,
        share,
        creates_folder: folder.is_some() && context.get("createfolderifnotexist")?.is_some_and(|one| one.is_true()),
        folder,
        options,
        is_read_only: request.is_read_only || is_ro,
        key,
        warnings,
    })
}

fn refuse_what_is_not_done(context: Context<'_>) -> Result<(), ParameterError> {
    for parameter in context.iter().filter(|parameter| !parameter.value.is_empty()) {
        let folded = parameter.key.to_ascii_lowercase();
        // kata's attributes have a meaning on nodes with confidential containers alone.
        if !matches!(folded.as_str(), "confidentialcontainerlabel" | "runtimeclasshandler" | "tenantid") {
            not_done(&folded, parameter)?;
        }
        match folded.as_str() {
            EPHEMERAL if parameter.is_true() => {
                return Err(parameter.refuse(
                    "shares that a Pod names itself are not mounted by this version; allowed is a PersistentVolumeClaim",
                ));
            }
            "diskname" if parameter.value.ends_with(".vhd") => {
                return Err(parameter.refuse("a disk in a VHD file on a share is not mounted by this version"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn filled(templates: &Templates<'_>, parameter: Parameter<'_>) -> Result<String, ParameterError> {
    let filled = templates.fill(parameter.value.trim());
    match templates.unfilled(&filled) {
        Some(template) => Err(parameter.refuse(format!("{template} is unknown in this volume's attributes"))),
        None => Ok(filled),
    }
}

/// Whether the share that a volume id names was made of a class's `shareName`: of a template, or of a name that had to be
/// made fit. The class's spelling is then not the share's name.
fn is_made_of(parameter: &Parameter<'_>, id: &ShareVolumeId, templates: &Templates<'_>) -> bool {
    let filled = templates.fill(parameter.value.trim());
    let is_unknown = templates.unfilled(&filled).is_some();
    is_unknown && id.is_named_by_class() || name::named(&filled).as_deref() == Some(id.share_name())
}

/// The share that a volume is about, as a node would mount it; `None` where a node could not.
pub(crate) fn share_of(volume_id: &str, context: &BTreeMap<String, String>) -> Option<String> {
    let read = Parameters::context(context);
    let templates = Templates::of_context(read).ok()?;
    let id = ShareVolumeId::parse(volume_id).ok();
    share(read, &templates, id.as_ref(), volume_id).ok().map(|(share, _)| share)
}

/// The share, and the folders that stand behind its name.
fn share(
    context: Context<'_>,
    templates: &Templates<'_>,
    id: Option<&ShareVolumeId>,
    volume_id: &str,
) -> Result<(String, String), ParameterError> {
    let no_share = || {
        let why = "it names no share, and neither does the attribute shareName";
        ParameterError::invalid("volume_id", volume_id, why)
    };
    let of_id = id.filter(|id| !id.share_name().is_empty());
    let of_class =
        context.get("sharename")?.filter(|parameter| !of_id.is_some_and(|id| is_made_of(parameter, id, templates)));
    let (whole, refused): (String, Option<Parameter<'_>>) = match (of_class, of_id) {
        (Some(parameter), _) => (filled(templates, parameter)?, Some(parameter)),
        (None, Some(id)) => (id.share.clone(), None),
        (None, None) => return Err(no_share()),
    };
    let whole = whole.trim_matches('/');
    let (share, folders) = whole.split_once('/').unwrap_or((whole, ""));
    let is_share = !share.is_empty()
        && share.len() <= 255
        && !share.contains(['\\', ',', '?', '*', '"', '<', '>', '|', ':'])
        && !share.chars().any(char::is_control)
        && ![".", ".."].contains(&share);
    if !is_share {
        let allowed = "allowed is the name of a share";
        return Err(match refused {
            Some(parameter) => parameter.refuse(allowed),
            None => ParameterError::invalid("volume_id", volume_id, allowed),
        });
    }
    Ok((share.to_owned(), folders.to_owned()))
}

fn folder(context: Context<'_>, templates: &Templates<'_>, sub_path: &str) -> Result<Option<String>, ParameterError> {
    let check = |parameter: Parameter<'_>, folder: &str| {
        name::check_folder(folder).map_err(|why| parameter.refuse(why)).map(|()| folder.trim_matches('/').to_owned())
    };
    let mut parts = Vec::new();
    if !sub_path.is_empty() {
        parts.push(check(Parameter { key: "shareName", value: sub_path }, sub_path)?);
    }
    if let Some(parameter) = context.get("foldername")? {
        parts.push(check(parameter, &filled(templates, parameter)?)?);
    }
    Ok(Some(parts.join("/")).filter(|folder| !folder.is_empty()))
}

/// Whether the account that a volume names is its account for certain. Without a resource group the id is that of a Pod's
/// own volume or of an in-tree one: it may have the name of a Secret where the account stands in others.
pub(crate) fn says_its_account(context: Context<'_>, id: Option<&ShareVolumeId>) -> Result<bool, ParameterError> {
    let is_sure = id.is_none_or(|id| !id.resource_group.is_empty() || id.account.is_empty());
    Ok(is_sure || context.get("storageaccount")?.is_some_and(|parameter| !parameter.value.trim().is_empty()))
}

fn server(
    context: Context<'_>,
    id: Option<&ShareVolumeId>,
    key: &KeySource,
    defaults: &Defaults<'_>,
    request: &Request,
) -> Result<Server, ParameterError> {
    if let Some(parameter) = context.get("server")?.filter(|parameter| !parameter.value.trim().is_empty()) {
        name::check_host(parameter.value.trim()).map_err(|why| parameter.refuse(why))?;
        return Ok(Server::Named(parameter.value.trim().to_owned()));
    }
    let suffix = context.get("storageendpointsuffix")?.map(|parameter| parameter.value.trim());
    let suffix = suffix.filter(|suffix| !suffix.is_empty()).unwrap_or(defaults.storage_endpoint_suffix);
    let is_sure = says_its_account(context, id)?;
    let named = key.account.as_ref().filter(|_| is_sure);
    let Some(account) = named.or(request.account.as_ref()) else {
        return Ok(key.secret.clone().map_or(Server::OfRequest, Server::OfSecret));
    };
    let host = format!("{account}.file.{suffix}");
    name::check_host(&host).map_err(|why| ParameterError::invalid("storageAccount", account, why))?;
    Ok(Server::Named(host))
}

/// How a staged share is published: as a bind mount of the staging folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PublishPlan {
    /// Whether the workload cannot write.
    pub is_read_only: bool,
}

/// How a staged share is published. `is_read_only` are the request's `readonly` and what its access mode says.
pub fn publish(is_read_only: bool, access_mode: lazuli_model::AccessMode) -> PublishPlan {
    PublishPlan { is_read_only: is_read_only || access_mode.is_read_only() }
}
