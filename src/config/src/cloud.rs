//! Which Azure: the endpoints of a cloud, from its name, from a file or from its resource manager.
//!
//! Pure: the HTTP request for a [`Discovery`] is made elsewhere, and files arrive as text.

use serde::{Serialize, Serializer};
use serde_json::Value;
use url::{Host, Url};

use super::error::{CloudError, EndpointError};
use super::trust::without_audiences_of_azure;

/// The endpoints of one Azure cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cloud {
    /// Name, as in the `cloud` key: `AzurePublicCloud`.
    pub name: String,
    /// Azure Resource Manager.
    #[serde(serialize_with = "as_text")]
    pub resource_manager: Url,
    /// Authority that issues tokens; the tenant is appended to its path.
    #[serde(serialize_with = "as_text")]
    pub login: Url,
    /// Audiences a token for the resource manager may have; the first is the one to ask for. Not
    /// necessarily URLs, and never to be normalised: the authority compares them as text.
    pub audiences: Vec<String>,
    /// DNS suffix of storage endpoints: `core.windows.net` in `ACCOUNT.file.core.windows.net`.
    pub storage_suffix: String,
    /// Audience of a token for blobs and files.
    pub storage_audience: String,
    /// Azure's own portal, if known; for links in messages only.
    pub portal: Option<String>,
}

/// Writes a URL as its text.
fn as_text<S: Serializer>(url: &Url, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(url.as_str())
}

/// Where the endpoints come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CloudSource {
    /// They are known now.
    Known(Cloud),
    /// The resource manager must be asked first.
    Discover(Discovery),
}

/// A question to a resource manager for the endpoints of its cloud.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Discovery {
    /// The `resourceManagerEndpoint` key.
    #[serde(serialize_with = "as_text")]
    pub resource_manager: Url,
    /// The name for the result, from the `cloud` key.
    pub name: Option<String>,
    identity_system: IdentitySystem,
    overrides: EndpointFile,
}

/// Who issues tokens on Azure Stack. Source: `identitySystem` in the cloud configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum IdentitySystem {
    /// Microsoft Entra ID.
    AzureAd,
    /// Active Directory Federation Services; the tenant in token requests is the word `adfs`.
    Adfs,
}

/// What `AZURE_ENVIRONMENT_FILEPATH` names: the endpoint description of the go-autorest libraries.
/// Properties that no part of this program uses are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointFile {
    name: Option<String>,
    portal: Option<String>,
    #[serde(serialize_with = "as_optional_text")]
    resource_manager: Option<Url>,
    #[serde(serialize_with = "as_optional_text")]
    login: Option<Url>,
    audience: Option<String>,
    storage_suffix: Option<String>,
}

fn as_optional_text<S: Serializer>(url: &Option<Url>, serializer: S) -> Result<S::Ok, S::Error> {
    match url {
        Some(url) => serializer.serialize_some(url.as_str()),
        None => serializer.serialize_none(),
    }
}

/// Source: Azure SDK `cloud` package and go-autorest `environments`; names as their lookup accepts them.
struct WellKnown {
    names: &'static [&'static str],
    resource_manager: &'static str,
    login: &'static str,
    audiences: &'static [&'static str],
    storage_suffix: &'static str,
    portal: &'static str,
}

const WELL_KNOWN: &[WellKnown] = &[
    WellKnown {
        names: &["AzurePublicCloud", "AzureCloud"],
        resource_manager: "https://management.azure.com/",
        login: "https://login.microsoftonline.com/",
        audiences: &["https://management.azure.com/", "https://management.core.windows.net/"],
        storage_suffix: "core.windows.net",
        portal: "https://portal.azure.com/",
    },
    WellKnown {
        names: &["AzureChinaCloud"],
        resource_manager: "https://management.chinacloudapi.cn/",
        login: "https://login.chinacloudapi.cn/",
        audiences: &["https://management.chinacloudapi.cn/", "https://management.core.chinacloudapi.cn/"],
        storage_suffix: "core.chinacloudapi.cn",
        portal: "https://portal.azure.cn/",
    },
    WellKnown {
        names: &["AzureUSGovernmentCloud", "AzureUSGovernment"],
        resource_manager: "https://management.usgovcloudapi.net/",
        login: "https://login.microsoftonline.us/",
        audiences: &["https://management.usgovcloudapi.net/", "https://management.core.usgovcloudapi.net/"],
        storage_suffix: "core.usgovcloudapi.net",
        portal: "https://portal.azure.us/",
    },
];

/// Audience of storage tokens, the same in every cloud. Source: Microsoft docs, authorize access to
/// blobs with Microsoft Entra ID.
const STORAGE_AUDIENCE: &str = "https://storage.azure.com/";

/// The `cloud` value of Azure Stack Hub.
pub const AZURE_STACK: &str = "AZURESTACKCLOUD";

impl Cloud {
    /// The cloud with a well-known name, in any letter case.
    pub fn well_known(name: &str) -> Option<Self> {
        let known = WELL_KNOWN.iter().find(|known| known.names.iter().any(|n| n.eq_ignore_ascii_case(name)))?;
        Some(Self {
            name: known.names[0].to_owned(),
            resource_manager: constant(known.resource_manager),
            login: constant(known.login),
            audiences: known.audiences.iter().map(|&a| a.to_owned()).collect(),
            storage_suffix: known.storage_suffix.to_owned(),
            storage_audience: STORAGE_AUDIENCE.to_owned(),
            portal: Some(known.portal.to_owned()),
        })
    }

    /// Whether an endpoint is the resource manager of a well-known cloud, or of one of its regions.
    pub(super) fn is_resource_manager_of_azure(endpoint: &Url) -> bool {
        let Some(Host::Domain(name)) = endpoint.host() else { return false };
        WELL_KNOWN.iter().map(|known| constant(known.resource_manager)).any(|known| {
            let known = known.host_str().unwrap_or_default();
            name.strip_suffix(known).is_some_and(|region| region.is_empty() || region.ends_with('.'))
        })
    }

    /// Whether an endpoint is the resource manager or the authority of a well-known cloud.
    pub(super) fn is_of_azure(endpoint: &Url) -> bool {
        let is_authority = WELL_KNOWN.iter().any(|known| constant(known.login).origin() == endpoint.origin());
        let is_plain = endpoint.scheme() == "https" && endpoint.port().is_none();
        is_authority || (is_plain && Self::is_resource_manager_of_azure(endpoint))
    }

    /// The names of the well-known clouds, one each, for messages.
    pub fn well_known_names() -> impl Iterator<Item = &'static str> {
        WELL_KNOWN.iter().map(|known| known.names[0])
    }

    /// Every name that [`Cloud::well_known`] accepts.
    pub fn accepted_names() -> impl Iterator<Item = &'static str> {
        WELL_KNOWN.iter().flat_map(|known| known.names.iter().copied())
    }

    /// Reads the answer of `<resource manager>/metadata/endpoints`, in both its forms: one object without
    /// the resource manager (Azure Stack Hub, api-version 1.0), or an array of clouds (2019-05-01 and
    /// later). In an array the entry of the resource manager that was asked is taken; a single entry is
    /// taken in any case.
    ///
    /// # Errors
    /// [`CloudError`]; the endpoints found are held to the same rules as configured ones.
    pub fn from_metadata(json: &str, resource_manager: &Url) -> Result<Self, CloudError> {
        let value: Value = serde_json::from_str(json)
            .map_err(|_| CloudError::Malformed { what: "the answer of the metadata endpoint is not JSON" })?;
        let entry = match &value {
            Value::Object(_) => &value,
            Value::Array(entries) => pick(entries, resource_manager)?,
            _ => {
                return Err(CloudError::Malformed {
                    what: "the answer of the metadata endpoint is neither an object nor an array",
                });
            }
        };
        let authentication =
            property(entry, "authentication").ok_or(CloudError::Property { property: "authentication" })?;
        let login = endpoint("loginEndpoint", text(authentication, "loginEndpoint"))?;
        let audiences: Vec<String> = property(authentication, "audiences")
            .and_then(Value::as_array)
            .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned))
            .into_iter()
            .flatten()
            .filter(|audience| !audience.is_empty())
            .collect();
        if audiences.is_empty() {
            return Err(CloudError::Property { property: "authentication.audiences" });
        }
        let resource_manager = match text(entry, "resourceManager") {
            None => resource_manager.clone(),
            named => endpoint("resourceManager", named)?,
        };
        let storage_suffix = property(entry, "suffixes")
            .and_then(|suffixes| text(suffixes, "storage"))
            .map(str::to_owned)
            .or_else(|| stamp_suffix(&resource_manager))
            .ok_or(CloudError::Property { property: "suffixes.storage" })?;
        Ok(Self {
            name: text(entry, "name").unwrap_or("HybridEnvironment").to_owned(),
            resource_manager,
            login,
            audiences,
            storage_suffix,
            storage_audience: STORAGE_AUDIENCE.to_owned(),
            portal: text(entry, "portal").or_else(|| text(entry, "portalEndpoint")).map(str::to_owned),
        })
    }
}

/// The api-version of the metadata endpoint that names no storage services: what Azure Stack Hub serves, and what the Go
/// peers ask for.
const OF_A_STAMP: &str = "1.0";
/// One of a later form, which names them.
const OF_ANY_CLOUD: &str = "2022-09-01";

impl Discovery {
    /// The api-version that is asked for.
    pub const API_VERSION: &str = OF_A_STAMP;

    /// The api-version that is asked for besides, because the answer is to name the storage services: no domain follows from the
    /// address of a resource manager, as one does from the name of a stamp.
    pub fn api_version_of_storage(&self) -> Option<&'static str> {
        let is_address = !matches!(self.resource_manager.host(), Some(Host::Domain(name)) if name.contains('.'));
        (is_address && self.overrides.storage_suffix.is_none()).then_some(OF_ANY_CLOUD)
    }

    /// Takes the storage services of an answer to [`Discovery::api_version_of_storage`], where it names them.
    pub fn with_storage(&self, mut cloud: Cloud, json: &str) -> Cloud {
        if let Ok(other) = Cloud::from_metadata(json, &self.resource_manager) {
            cloud.storage_suffix = other.storage_suffix;
        }
        cloud
    }

    pub(super) fn new(
        resource_manager: Url,
        name: Option<String>,
        identity_system: IdentitySystem,
        overrides: EndpointFile,
    ) -> Self {
        Self { resource_manager, name, identity_system, overrides }
    }

    /// The cloud, from the body of the answer.
    ///
    /// # Errors
    /// Those of [`Cloud::from_metadata`], and [`CloudError::AudienceOfAzure`].
    pub fn finish(&self, json: &str) -> Result<Cloud, CloudError> {
        let mut cloud = Cloud::from_metadata(json, &self.resource_manager)?;
        if let Some(name) = &self.name {
            cloud.name.clone_from(name);
        }
        without_audiences_of_azure(self.overrides.apply(cloud, self.identity_system))
    }
}

impl EndpointFile {
    /// Reads the file's text.
    ///
    /// # Errors
    /// [`CloudError`].
    pub fn parse(json: &str) -> Result<Self, CloudError> {
        let value: Value = serde_json::from_str(json.trim_start_matches('\u{feff}'))
            .map_err(|_| CloudError::Malformed { what: "the endpoint description is not JSON" })?;
        if !value.is_object() {
            return Err(CloudError::Malformed { what: "the endpoint description is not a JSON object" });
        }
        let optional = |property: &'static str| match text(&value, property) {
            None => Ok(None),
            some => endpoint(property, some).map(Some),
        };
        let owned = |property| text(&value, property).map(str::to_owned);
        Ok(Self {
            name: owned("name"),
            portal: owned("managementPortalURL"),
            resource_manager: optional("resourceManagerEndpoint")?,
            login: optional("activeDirectoryEndpoint")?,
            // go-autorest fills the token audience from the service management endpoint when absent.
            audience: owned("tokenAudience").or_else(|| owned("serviceManagementEndpoint")),
            storage_suffix: owned("storageEndpointSuffix"),
        })
    }

    /// The endpoints in it that get credentials or tokens.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Url> {
        self.login.iter().chain(&self.resource_manager)
    }

    /// A cloud from the file alone.
    pub(super) fn whole(&self, identity_system: IdentitySystem) -> Result<Cloud, CloudError> {
        let required = |url: &Option<Url>, property| url.clone().ok_or(CloudError::Property { property });
        let resource_manager = required(&self.resource_manager, "resourceManagerEndpoint")?;
        let cloud = Cloud {
            name: self.name.clone().unwrap_or_else(|| AZURE_STACK.to_owned()),
            login: required(&self.login, "activeDirectoryEndpoint")?,
            audiences: self.audience.iter().cloned().collect(),
            storage_suffix: self
                .storage_suffix
                .clone()
                .or_else(|| stamp_suffix(&resource_manager))
                .ok_or(CloudError::Property { property: "storageEndpointSuffix" })?,
            resource_manager,
            storage_audience: STORAGE_AUDIENCE.to_owned(),
            portal: self.portal.clone(),
        };
        if cloud.audiences.is_empty() {
            return Err(CloudError::Property { property: "tokenAudience" });
        }
        without_audiences_of_azure(self.apply(cloud, identity_system))
    }

    /// Overrides a cloud's endpoints. As in the Go peers the resource manager is only taken together
    /// with its token audience: with a foreign audience every request would be refused.
    pub(super) fn apply(&self, mut cloud: Cloud, identity_system: IdentitySystem) -> Cloud {
        if let Some(login) = &self.login {
            cloud.login = login.clone();
        }
        if let (Some(resource_manager), Some(audience)) = (&self.resource_manager, &self.audience) {
            cloud.resource_manager = resource_manager.clone();
            cloud.audiences = vec![audience.clone()];
        }
        if let Some(suffix) = &self.storage_suffix {
            cloud.storage_suffix.clone_from(suffix);
        }
        if identity_system == IdentitySystem::Adfs {
            // The authority of an ADFS stamp is announced with the tenant in its path.
            let path = cloud.login.path().trim_end_matches('/').to_owned();
            if let Some(parent) = path.strip_suffix("/adfs") {
                cloud.login.set_path(&format!("{parent}/"));
            }
        }
        cloud
    }
}

/// Checks an endpoint that credentials or tokens will be sent to.
///
/// # Errors
/// [`EndpointError`]: only https, and http to a loopback host (a local Azure).
pub fn check_endpoint(text: &str) -> Result<Url, EndpointError> {
    let url = Url::parse(text).map_err(|_| EndpointError::NotAUrl)?;
    let Some(host) = url.host() else {
        return Err(EndpointError::NotAUrl);
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err(EndpointError::UserInfo);
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if is_loopback(&host) => Ok(url),
        "http" => Err(EndpointError::ClearText { host: host.to_string() }),
        scheme => Err(EndpointError::Scheme { scheme: scheme.to_owned() }),
    }
}

fn is_loopback(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => {
            let name = name.trim_end_matches('.');
            // RFC 6761: everything under localhost stays on the host.
            name == "localhost" || name.ends_with(".localhost")
        }
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.is_loopback(),
    }
}

fn constant(text: &str) -> Url {
    Url::parse(text).expect("the endpoints of well-known clouds are valid URLs")
}

fn endpoint(property: &'static str, text: Option<&str>) -> Result<Url, CloudError> {
    let text = text.ok_or(CloudError::Property { property })?;
    check_endpoint(text).map_err(|source| CloudError::Endpoint { property, source })
}

/// A property in any letter case, as Go's decoder finds it.
fn property<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    let map = value.as_object()?;
    map.get(name).or_else(|| map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value))
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    property(value, name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty())
}

fn pick<'v>(entries: &'v [Value], asked: &Url) -> Result<&'v Value, CloudError> {
    if let [only] = entries {
        return Ok(only);
    }
    entries
        .iter()
        .find(|entry| {
            text(entry, "resourceManager")
                .and_then(|text| Url::parse(text).ok())
                .is_some_and(|url| url.host_str() == asked.host_str())
        })
        .ok_or_else(|| CloudError::NotListed {
            count: entries.len(),
            host: asked.host_str().unwrap_or_default().to_owned(),
        })
}

/// `region.stamp.example` of `https://management.region.stamp.example`. Source: go-autorest derives the
/// storage suffix of an Azure Stack stamp so.
fn stamp_suffix(resource_manager: &Url) -> Option<String> {
    match resource_manager.host()? {
        Host::Domain(name) => name
            .split_once('.')
            .map(|(_, suffix)| suffix.to_owned())
            .filter(|suffix| !suffix.is_empty())
            .or_else(|| Some(name.to_owned())),
        address => Some(address.to_string()),
    }
}
