//! What can be wrong with a configuration. No variant carries a configured value, because any of them
//! may be a password in the wrong place; the exceptions are named where they are made.

use std::fmt;
use std::path::PathBuf;

use super::UnknownKey;

/// Why a configuration could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the cloud configuration {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The document is far larger than a configuration ever is, so it is probably another file.
    #[error("the cloud configuration {origin} is larger than {limit} bytes")]
    TooLarge {
        /// File name or secret reference.
        origin: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// Neither JSON nor YAML, or not a mapping.
    #[error("the cloud configuration {origin} {what}{}", At(*.position))]
    Syntax {
        /// File name or secret reference.
        origin: String,
        /// What is wrong, in words that quote nothing of the document.
        what: &'static str,
        /// Line and column, counted from 1, where known.
        position: Option<(u64, u64)>,
    },
    /// `cloudConfigType` is `secret`, and no secret was given.
    #[error("{origin} says cloudConfigType: secret, but the secret with the cloud configuration was not found")]
    SecretMissing {
        /// The file that asks for the secret.
        origin: String,
    },
    /// Values are missing or of the wrong kind. All of them are listed, not only the first.
    #[error("{0}")]
    Invalid(Problems),
}

/// Shows `: line 3, column 7` or nothing.
struct At(Option<(u64, u64)>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some((line, column)) => write!(f, ": line {line}, column {column}"),
            None => Ok(()),
        }
    }
}

/// Everything wrong with a configuration, one entry per key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

/// One key that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File name, secret reference or environment variable the value came from.
    pub origin: String,
    /// The key as in the documentation, with a path for nested ones:
    /// `multipleStandardLoadBalancerConfigurations[0].name`.
    pub key: String,
    /// What is wrong with it.
    pub kind: ProblemKind,
}

impl Problem {
    /// Notes which of the unknown keys probably means a key that is missing.
    pub(crate) fn note_misspelt(&mut self, unknown: &[UnknownKey]) {
        match &mut self.kind {
            ProblemKind::Missing { misspelt, .. } => {
                let meant = unknown.iter().find(|unknown| unknown.nearest.as_ref() == Some(&self.key));
                *misspelt = meant.map(|unknown| unknown.key.clone());
            }
            ProblemKind::NoCredential { misspelt } => {
                *misspelt = unknown.iter().filter(|unknown| unknown.is_of_credential()).cloned().collect();
            }
            ProblemKind::WrongKind { .. } | ProblemKind::Unusable { .. } => {}
        }
    }
}

/// The ways in which a key can be unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProblemKind {
    /// A required key is absent or empty.
    Missing {
        /// What belongs there.
        expected: String,
        /// The unknown key that is given and probably means it, with its path.
        misspelt: Option<String>,
    },
    /// No key gives a credential.
    NoCredential {
        /// The unknown keys that are given and probably mean one that would.
        misspelt: Vec<UnknownKey>,
    },
    /// The value has another kind than expected.
    WrongKind {
        /// Kind of the value found ("a string", "a list"), never the value.
        found: &'static str,
        /// What belongs there.
        expected: String,
    },
    /// The kind is right and the value still cannot be used.
    Unusable {
        /// Why, in a sentence without subject.
        reason: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: ", self.origin, self.key)?;
        match &self.kind {
            ProblemKind::Missing { expected, misspelt } => {
                write!(f, "missing, expected {expected}")?;
                let hint =
                    |written: &String| write!(f, " (the unknown key {written} is given; did you mean {}?)", self.key);
                misspelt.as_ref().map_or(Ok(()), hint)
            }
            ProblemKind::WrongKind { found, expected } => {
                write!(f, "found {found}, expected {expected}")
            }
            ProblemKind::NoCredential { misspelt } => {
                f.write_str(
                    "no credentials: set useManagedIdentityExtension, or aadClientId with aadClientSecret, or \
                     useFederatedWorkloadIdentityExtension with aadFederatedTokenFile (or useInstanceMetadata where no Azure \
                     resource is to be changed)",
                )?;
                misspelt.iter().try_for_each(|key| write!(f, "; the unknown key {key} is given"))
            }
            ProblemKind::Unusable { reason } => f.write_str(reason),
        }
    }
}

/// Why a description of a cloud's endpoints cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// Not JSON, or not of the expected form.
    #[error("{what}")]
    Malformed {
        /// What is wrong, quoting nothing of the document.
        what: &'static str,
    },
    /// A property that every cloud has is absent or of the wrong kind.
    #[error("the endpoint description has no usable {property}")]
    Property {
        /// Name of the property.
        property: &'static str,
    },
    /// An endpoint is not one we send credentials to.
    #[error("{property} {source}")]
    Endpoint {
        /// Name of the property.
        property: &'static str,
        /// Why.
        source: EndpointError,
    },
    /// A resource manager that is not Azure's asks for tokens of Azure's own services.
    #[error(
        "the resource manager {host} is not one of Azure's own, and it names only audiences that may be Azure's \
         ({named}): expected an audience of its own, such as https://{host}/"
    )]
    AudienceOfAzure {
        /// Host of the resource manager.
        host: String,
        /// The audiences that are named.
        named: String,
    },
    /// The description lists several clouds, and none has the resource manager that was asked.
    #[error("the endpoint description names {count} clouds and none of them has the host {host}")]
    NotListed {
        /// Clouds listed.
        count: usize,
        /// Host of the resource manager that was asked.
        host: String,
    },
}

/// Why an endpoint URL is refused. A URL may contain a password, so the text shows its host at most.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Not an absolute URL with a host.
    #[error("is not an absolute https URL")]
    NotAUrl,
    /// A password or token would travel in clear text.
    #[error("uses http with host {host}: credentials travel over https only, except to a loopback host")]
    ClearText {
        /// The host.
        host: String,
    },
    /// Neither http nor https.
    #[error("has scheme {scheme}, expected https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// `https://user:password@host`.
    #[error("contains a user name or password")]
    UserInfo,
}
