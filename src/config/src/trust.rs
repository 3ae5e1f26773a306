//! To which endpoints a credential may go.
//!
//! The `cloud` and `resourceManagerEndpoint` keys decide where passwords and tokens are sent. An account that may write
//! the Secret must not redirect a credential that is not in the Secret: the one of the file on the machine, of the
//! process's environment, or of the machine itself. A private resource manager names the audience of the tokens that it
//! is sent. A token for an audience of Azure's own services would let it act in Azure.
//!
//! The other way round, who may write the file must not redirect the credential of the Secret: the file may be a ConfigMap.
//! That credential goes to Microsoft's clouds, to the resource manager that the Secret itself names, and to endpoints that
//! the process's arguments name.

use std::cell::RefCell;

use url::{Host, Url};

use super::{
    Credential, Document, ENDPOINT_FILE_VARIABLE, Environment, Secret,
    cloud::{Cloud, EndpointFile},
    error::{CloudError, Problem, ProblemKind},
    reader,
    reader::Report,
};

/// Domains of Microsoft's clouds that serve resources or issue tokens. Source: the endpoints of the Azure SDKs' clouds
/// and the service domains of Microsoft's documentation of Azure Government and of Azure operated by 21Vianet.
const AZURE_DOMAINS: [&str; 11] = [
    "azure.com",
    "azure.net",
    "azure.us",
    "azure.cn",
    "windows.net",
    "microsoft.com",
    "microsoftonline.com",
    "microsoftonline.us",
    "usgovcloudapi.net",
    "chinacloudapi.cn",
    "microsoftonline.cn",
];

/// The two keys that decide where a credential is sent.
#[derive(PartialEq, Eq)]
struct Destination {
    cloud: String,
    resource_manager: Option<String>,
}

impl Destination {
    fn of(documents: &[&Document]) -> Self {
        // What is wrong with a value is reported where the configuration is built.
        let report = RefCell::new(Report::default());
        let mut keys = reader(documents.iter().copied(), &report);
        let cloud = keys.text("cloud").unwrap_or_else(|| "AzurePublicCloud".to_owned());
        let endpoint = keys.text("resourceManagerEndpoint");
        Self {
            cloud: Cloud::well_known(&cloud).map_or(cloud, |known| known.name).to_ascii_lowercase(),
            resource_manager: endpoint.map(|text| Url::parse(&text).map_or(text, String::from)),
        }
    }
}

/// What is wrong with a Secret that changes where the credential is sent without bringing that credential. `file` is
/// the document below it, where there is one.
pub(super) fn check_secret(
    file: Option<&Document>,
    secret: &Document,
    credential: &Credential,
    environment: &Environment<'_>,
) -> Option<Problem> {
    let base = Destination::of(file.as_slice());
    let with_secret = Destination::of(&file.into_iter().chain([secret]).collect::<Vec<_>>());
    let key = if base.resource_manager != with_secret.resource_manager {
        "resourceManagerEndpoint"
    } else if file.is_some() && base.cloud != with_secret.cloud {
        "cloud"
    } else {
        return None;
    };
    let whose = match credential {
        Credential::Absent => return None,
        Credential::ClientSecret { secret: used, .. } => {
            let report = RefCell::new(Report::default());
            let own: Option<Secret> = reader([secret], &report).secret("aadClientSecret");
            match (environment.text("AZURE_CLIENT_SECRET"), file) {
                (None, _) if own.as_ref() == Some(used) => return None,
                (Some(_), _) => "the password of the variable AZURE_CLIENT_SECRET".to_owned(),
                (None, Some(file)) => format!("the aadClientSecret of {}", file.origin()),
                (None, None) => "another aadClientSecret".to_owned(),
            }
        }
        // A Secret names a certificate by its path; the file is this machine's.
        Credential::ClientCertificate { path, .. } => {
            format!("the client certificate {} of this machine", path.display())
        }
        Credential::FederatedToken { .. } => "the federated token of this process".to_owned(),
        Credential::ManagedIdentity(_) => "the managed identity of this machine".to_owned(),
    };
    let set_in = file.map_or("a file (--cloud-config)", Document::origin);
    Some(Problem {
        origin: secret.origin().to_owned(),
        key: key.to_owned(),
        kind: ProblemKind::Unusable {
            reason: format!(
                "this Secret decides where the credential is sent, and the credential in use is {whose}; allowed is a \
                 Secret with an aadClientSecret of its own, or {key} set in {set_in} instead"
            ),
        },
    })
}

/// What is wrong with where the credential of a Secret is sent: the endpoint is Microsoft's, or the Secret or an argument
/// names it.
pub(super) fn check_endpoints_of_secret(
    file: Option<&Document>,
    secret: &Document,
    credential: &Credential,
    environment: &Environment<'_>,
) -> Option<Problem> {
    let what = credential_of_secret(secret, credential, environment)?;
    let problem = |origin: &str, key: &str, endpoint: &Url| {
        let (secret, endpoint) = (secret.origin(), endpoint.origin().ascii_serialization());
        Some(Problem {
            origin: origin.to_owned(),
            key: key.to_owned(),
            kind: ProblemKind::Unusable {
                reason: format!(
                    "{endpoint} would get the {what} of {secret}, and neither that Secret nor an argument names this \
                     endpoint: set resourceManagerEndpoint in the Secret too, or give --trusted-endpoint={endpoint}"
                ),
            },
        })
    };
    let (own, used) =
        (Destination::of(&[secret]), Destination::of(&file.into_iter().chain([secret]).collect::<Vec<_>>()));
    let of_secret = own.resource_manager.as_deref().and_then(|text| Url::parse(text).ok());
    let may_get = |endpoint: &Url| {
        let named = environment.trusted.iter().chain(&of_secret);
        Cloud::is_of_azure(endpoint) || named.into_iter().any(|named| named.origin() == endpoint.origin())
    };
    // An endpoint that is no URL is reported where the configuration is built.
    let resource_manager = used.resource_manager.and_then(|text| Url::parse(&text).ok());
    if let Some(endpoint) = resource_manager.filter(|endpoint| !may_get(endpoint)) {
        let origin = file.map_or(secret.origin(), Document::origin);
        return problem(origin, "resourceManagerEndpoint", &endpoint);
    }
    let (path, text) = environment.endpoint_file?;
    let described = EndpointFile::parse(text).ok()?;
    let endpoint = described.endpoints().find(|endpoint| !may_get(endpoint))?;
    problem(path, ENDPOINT_FILE_VARIABLE, endpoint)
}

/// What the Secret holds of the credential in use; `None` where that comes from elsewhere.
fn credential_of_secret(
    secret: &Document,
    credential: &Credential,
    environment: &Environment<'_>,
) -> Option<&'static str> {
    let report = RefCell::new(Report::default());
    let mut keys = reader([secret], &report);
    let is_there = match credential {
        Credential::ClientSecret { secret: used, .. } => {
            let is_own = keys.secret("aadClientSecret").as_ref() == Some(used);
            return (is_own && environment.text("AZURE_CLIENT_SECRET").is_none()).then_some("aadClientSecret");
        }
        Credential::ClientCertificate { .. } => {
            keys.text("aadClientCertPath").is_some() || keys.secret("aadClientCertPassword").is_some()
        }
        Credential::FederatedToken { .. } | Credential::ManagedIdentity(_) | Credential::Absent => false,
    };
    is_there.then_some("client certificate")
}

/// Leaves out, of a resource manager that is none of Azure's own, the audiences of Azure's own services.
///
/// # Errors
/// [`CloudError::AudienceOfAzure`] when no audience is left.
pub(super) fn without_audiences_of_azure(mut cloud: Cloud) -> Result<Cloud, CloudError> {
    if Cloud::is_resource_manager_of_azure(&cloud.resource_manager) {
        return Ok(cloud);
    }
    let named = cloud.audiences.join(", ");
    cloud.audiences.retain(|audience| !may_be_azures(audience));
    if cloud.audiences.is_empty() {
        let host = cloud.resource_manager.host_str().unwrap_or_default().to_owned();
        return Err(CloudError::AudienceOfAzure { host, named });
    }
    Ok(cloud)
}

/// Whether a token for this audience may open one of Azure's own services. An audience that is no URL with a host is
/// the id of an application, and Azure's services are applications too.
fn may_be_azures(audience: &str) -> bool {
    let Ok(url) = Url::parse(audience) else { return true };
    match url.host() {
        None => true,
        Some(Host::Domain(name)) => {
            let name = name.trim_end_matches('.');
            AZURE_DOMAINS
                .iter()
                .any(|domain| name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
        }
        Some(Host::Ipv4(_) | Host::Ipv6(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_an_audience_of_azure_is_told_by_its_domain() {
        for audience in [
            "https://management.azure.com/",
            "https://management.azure.com",
            "https://MANAGEMENT.Azure.com./x",
            "https://management.core.windows.net/",
            "https://graph.microsoft.com/",
            "https://storage.azure.com/",
            "https://vault.azure.net",
            "https://management.core.usgovcloudapi.net/",
            "https://azure.com",
            "797f4846-ba00-4fd7-ba43-dac1f8f63013",
            "api:",
            "urn:azure",
            "",
        ] {
            assert!(may_be_azures(audience), "{audience}");
        }
        for audience in [
            "https://management.local.azurestack.external/",
            "https://management.adfs.azurestack.local/4de154de-f8a8-4017-af41-df619da68155",
            "https://management.contoso.onmicrosoft.com/4de154de-f8a8-4017-af41-df619da68155",
            "https://notazure.com/",
            "http://127.0.0.1:8181/",
            "http://[::1]:1/",
        ] {
            assert!(!may_be_azures(audience), "{audience}");
        }
    }
}
