//! A client on an emulated Azure, for the tests of this crate and of those that use it.

use url::Url;

use crate::{
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    metrics::Metrics,
    transport::{Routes, Transport},
};

/// Where the resource manager of the public cloud is.
pub const ARM: &str = "https://management.azure.com/";
/// Where one signs in to it.
pub const LOGIN: &str = "https://login.microsoftonline.com/";

/// Sends what is meant for the public cloud to a server.
///
/// # Panics
/// When no route can lead there.
pub fn routes(server: &Url) -> Routes {
    let route = |routes: Routes, origin: &str| routes.with(&url(origin), server).expect("this is an origin");
    [ARM, LOGIN].into_iter().fold(Routes::none(), route)
}

/// A service principal with a secret.
pub fn principal(tenant_id: &str, client_id: &str, secret: &str) -> Credential {
    Credential::ClientSecret {
        tenant_id: tenant_id.into(),
        client_id: client_id.into(),
        secret: Secret::new(secret),
        authority: url(LOGIN),
    }
}

/// A client of the resource manager that signs in so. `seed` spreads its pauses.
pub fn client(transport: Transport, credential: Credential, seed: u64) -> Arm {
    let tokens = Tokens::new(transport.clone(), credential, ARM, seed);
    Arm::new(url(ARM), transport, tokens, Metrics::unregistered(), Retry::default(), seed)
}

fn url(text: &str) -> Url {
    text.parse().expect("this is a URL")
}
