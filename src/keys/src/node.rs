//! The key of a volume, as a node gets it.

use std::collections::BTreeMap;

use kube::Client;
use lazuli_model::{Secret, fault::Code};
use lazuli_shares::{
    secret::{Credentials, SecretAccess, handout::NoKey, key_source},
    volume_id::ShareVolumeId,
};

use crate::{BrokerClient, KeyError, client::BrokerPlace, stored::stored};

/// How this node gets keys. Clones share everything. Keys are kept nowhere.
#[derive(Debug, Clone)]
pub struct NodeKeys(Way);

#[derive(Debug, Clone)]
enum Way {
    Broker(BrokerClient),
    Secrets(SecretsOfNode),
}

#[derive(Clone)]
struct SecretsOfNode {
    access: SecretAccess,
    client: Client,
}

impl std::fmt::Debug for SecretsOfNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SecretsOfNode").field(&self.access).finish()
    }
}

impl NodeKeys {
    /// Gets keys in the way of `access`; `place` is where the broker is, which the other ways do not need.
    pub fn new(access: SecretAccess, client: Client, place: BrokerPlace) -> Self {
        Self(match access {
            SecretAccess::Broker => Way::Broker(BrokerClient::new(client, place)),
            SecretAccess::Cluster | SecretAccess::Namespaces(_) => Way::Secrets(SecretsOfNode { access, client }),
        })
    }

    /// The account and key of a volume. `context` is what the request of CSI says of the volume; the broker reads it from
    /// the PersistentVolume instead. `refused` is the key that the file server has refused: the broker looks for another one,
    /// and a Secret that a node reads itself holds another one once a person or a driver has written it.
    ///
    /// # Errors
    /// [`KeyError`], for the caller of the RPC.
    pub async fn key(
        &self,
        volume_id: &str,
        context: &BTreeMap<String, String>,
        refused: Option<&Secret>,
    ) -> Result<Credentials, KeyError> {
        match &self.0 {
            Way::Broker(broker) => broker.key(volume_id, refused).await,
            Way::Secrets(SecretsOfNode { access, client }) => {
                let id = ShareVolumeId::parse(volume_id).ok();
                let source = key_source(context, id.as_ref()).map_err(|error| KeyError::of(error.code(), &error))?;
                let secret = source.secret.ok_or(NoKey::Nameless)?;
                access.lets_nodes_read(&secret).map_err(|error| KeyError::of(Code::PermissionDenied, &error))?;
                let found = stored(client, &secret).await?;
                let missing = NoKey::NoSecret { secret, why: "a node asks Azure for no keys" };
                Ok(found.ok_or(missing)?.secret.credentials)
            }
        }
    }
}
