//! A credential that changes while the process runs.
//!
//! File and Secret are read again twice a minute, so that a rotated password counts within a minute and without a
//! restart. Nothing else of the configuration is taken over: clients and endpoints are made once. A new credential is
//! for the endpoints that stand beside it, so one that came with other endpoints waits for a restart too.

use std::time::Duration;

use lazuli_azure::auth::Tokens;
use lazuli_config::Config;
use lazuli_csi::server::chain;
use tokio::time::sleep;
use url::Url;

use crate::clients::{self, CloudOptions, WireError};

/// How often file and Secret are read again.
const EVERY: Duration = Duration::from_secs(30);

/// The credential in use.
#[derive(Debug, Clone)]
pub struct LiveCredential {
    tokens: Tokens,
    authority: Url,
    config: Config,
}

/// What reading the configuration again came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    None,
    /// Another credential is used from now on.
    Credential,
    /// Endpoints changed: nothing is taken over.
    Endpoints,
    /// Settings changed that count after a restart. The credential was replaced where it changed too.
    Settings,
    /// It cannot be read, or cannot be used.
    Unusable(String),
}

impl LiveCredential {
    pub(crate) fn new(tokens: Tokens, authority: Url, config: &Config) -> Self {
        Self { tokens, authority, config: config.clone() }
    }

    /// Keeps the credential true to file and Secret, until dropped.
    pub async fn keep(&self, options: &CloudOptions, client: Option<&kube::Client>) {
        let mut last = Change::None;
        loop {
            sleep(EVERY).await;
            // On the heap, for it is large and seldom.
            let change = self.apply(Box::pin(clients::configuration_now(options, client)).await);
            match &change {
                Change::Credential => {
                    tracing::info!("the cloud configuration has another credential, which is used from now on");
                }
                change if *change == last => {}
                Change::None => {}
                Change::Endpoints => tracing::warn!(
                    "the cloud configuration names another cloud or identity system; nothing of it counts until a restart"
                ),
                Change::Settings => tracing::warn!(
                    "the cloud configuration has another subscription, resource group, location or user agent; they \
                     count after a restart"
                ),
                Change::Unusable(error) => {
                    tracing::warn!(error, "the cloud configuration cannot be read again; the credential in use stays")
                }
            }
            last = change;
        }
    }

    fn apply(&self, read: Result<Config, WireError>) -> Change {
        let now = match read {
            Ok(now) => now,
            Err(error) => return Change::Unusable(chain(&error)),
        };
        let before = &self.config;
        if now.cloud != before.cloud || now.identity_system != before.identity_system {
            return Change::Endpoints;
        }
        let replaced = match clients::credential(&now, &self.authority) {
            Ok(credential) => self.tokens.replace(credential),
            Err(error) => return Change::Unusable(chain(&error)),
        };
        let settings = |config: &Config| {
            let cluster = &config.cluster;
            let places = (cluster.subscription_id.clone(), cluster.resource_group.clone(), cluster.location.clone());
            (places, config.user_agent.clone(), config.is_stack_cloud)
        };
        match (settings(&now) != settings(before), replaced) {
            (true, _) => Change::Settings,
            (false, true) => Change::Credential,
            (false, false) => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use lazuli_azure::transport::{Routes, Tls, Transport};
    use lazuli_config::{ConfigError, Document, Environment};
    use serde_json::{Value, json};

    use super::*;

    fn config(changes: Value) -> Result<Config, ConfigError> {
        let mut value = json!({"tenantId": "t", "subscriptionId": "s", "resourceGroup": "g", "location": "l",
            "aadClientId": "c", "aadClientSecret": "first"});
        value.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let document = Document::parse("azure.json", value.to_string().as_bytes())?;
        Config::from_documents(Some(&document), None, &Environment::new(&BTreeMap::new()))
    }

    fn read(changes: Value) -> Result<Config, WireError> {
        config(changes).map_err(WireError::Config)
    }

    #[test]
    fn only_a_credential_for_the_same_endpoints_is_taken_over() {
        let authority: Url = "https://login.microsoftonline.com/".parse().unwrap();
        let first = config(json!({})).unwrap();
        let transport = Transport::new(Routes::none(), &Tls::default()).unwrap();
        let tokens = Tokens::new(transport, clients::credential(&first, &authority).unwrap(), "https://a/", 1);
        let live = LiveCredential::new(tokens, authority, &first);
        assert_eq!(live.apply(read(json!({}))), Change::None);
        assert_eq!(live.apply(read(json!({"vnetName": "other", "nonsense": 1}))), Change::None);
        let endpoint = json!({"aadClientSecret": "x", "resourceManagerEndpoint": "https://rm.example"});
        for other in [json!({"aadClientSecret": "x", "cloud": "AzureChinaCloud"}), endpoint] {
            assert_eq!(live.apply(read(other)), Change::Endpoints);
        }
        // Nothing of them was taken over.
        assert_eq!(live.apply(read(json!({}))), Change::None);
        assert_eq!(live.apply(read(json!({"location": "elsewhere"}))), Change::Settings);
        assert_eq!(live.apply(read(json!({"aadClientSecret": "second"}))), Change::Credential);
        assert_eq!(live.apply(read(json!({"aadClientSecret": "second"}))), Change::None);
        assert_eq!(live.apply(read(json!({"useManagedIdentityExtension": true}))), Change::Credential);
        let Change::Unusable(why) = live.apply(read(json!({"subscriptionId": ""}))) else { panic!("is unusable") };
        assert!(why.contains("subscriptionId"), "{why}");
        let node = json!({"aadClientId": "", "aadClientSecret": "", "useInstanceMetadata": true});
        assert!(matches!(live.apply(read(node)), Change::Unusable(_)));
    }
}
