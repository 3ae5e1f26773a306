//! The small API server of the other tests answers as the real one does: both pass the same cases.

use super::{super::process::Folder, able_with_tools, kubernetes};
use crate::api_server::conforms;

#[tokio::test]
async fn the_real_api_server_conforms() {
    let Some(tools) = able_with_tools() else { return };
    let folder = Folder::make();
    kubernetes::enter_own_network();
    let server = kubernetes::ApiServer::start(&tools, folder.path(), "").await;
    conforms(server.client()).await;
}
