//! The principals of a scenario: their object ids, and what they may do.

use super::{Client, Identity, Scenario};
use crate::derived::guid_of;
use crate::path;
use crate::roles::Roles;

impl Scenario {
    /// What each principal may do.
    pub(crate) fn roles(&self) -> Roles {
        let clients = self.clients.iter().map(|client| (client.object_id(), client.roles.clone()));
        let identities = self.identities.iter().map(|own| (self.identity_principal(own), own.roles.clone()));
        Roles::new(clients.chain(identities))
    }

    /// The object id of a user-assigned identity's service principal, given or derived.
    pub(crate) fn identity_principal(&self, identity: &Identity) -> String {
        let derived = || guid_of(&format!("{}/principal", path::key(&self.identity_id(identity))));
        identity.object_id.clone().unwrap_or_else(derived)
    }

    /// The object id of a client by its id, of a managed identity by its name or client id, or one that is given
    /// itself.
    pub(crate) fn principal(&self, given: &str) -> Option<String> {
        let client = self.clients.iter().find(|client| client.id.eq_ignore_ascii_case(given));
        let is_named = |identity: &&Identity| {
            identity.name.eq_ignore_ascii_case(given)
                || identity.client_id.as_ref().is_some_and(|id| id.eq_ignore_ascii_case(given))
        };
        client
            .map(Client::object_id)
            .or_else(|| Some(self.identity_principal(self.identities.iter().find(is_named)?)))
            .or_else(|| uuid::Uuid::try_parse(given).ok().map(|_| given.to_owned()))
    }
}
