//! Who we are to Azure. Exactly one way is chosen, in the order of the Go peers: federated token, managed
//! identity, client secret, certificate, data-plane identity file.

use std::path::PathBuf;

use serde::Serialize;

use super::Secret;

/// How tokens for the resource manager are obtained.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Credential {
    /// A token of the cluster, exchanged at the authority (workload identity).
    FederatedToken {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// File with the token; kubelet rotates it, so it is read for each exchange.
        token_file: PathBuf,
    },
    /// The identity of the machine, from the instance metadata service.
    ManagedIdentity(ManagedIdentity),
    /// A service principal with a password.
    ClientSecret {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// Its password.
        secret: Secret,
    },
    /// A service principal with a certificate.
    ClientCertificate {
        /// Tenant of the application.
        tenant_id: String,
        /// The application.
        client_id: String,
        /// The file with the certificate and its key, PEM or PKCS#12; read for each exchange.
        path: PathBuf,
        /// The password of a PKCS#12 file.
        password: Option<Secret>,
    },
    /// None configured. Enough for a node, which asks the instance metadata service only.
    Absent,
}

/// Which identity of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ManagedIdentity {
    /// The one that belongs to the machine.
    SystemAssigned,
    /// A user-assigned one, by client id.
    ClientId(String),
    /// A user-assigned one, by the ARM id of the identity.
    ResourceId(String),
}

impl ManagedIdentity {
    /// From `userAssignedIdentityID`: a client id or an ARM id; absent is the machine's own.
    pub(super) fn from_key(id: Option<String>) -> Self {
        match id {
            None => Self::SystemAssigned,
            // Source: the Go peers tell them apart so.
            Some(id) if id.to_ascii_lowercase().contains("/subscriptions/") => Self::ResourceId(id),
            Some(id) => Self::ClientId(id),
        }
    }
}
