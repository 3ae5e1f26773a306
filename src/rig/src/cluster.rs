//! A cluster for the cloud controllers: an Azure and an API server, both behind sockets, and the files that lead a process
//! to them.

use std::{
    io::{ErrorKind, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use axum::{
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use lazuli_apiserver::{ApiServer, Refused};
use lazuli_assembly::clients::{self, Azure};
use lazuli_azure::{
    Until,
    arm::Write,
    network::{NetworkType, NetworkWrite},
    transport::Routes,
};
use lazuli_config::{Config, Document, Environment};
use lazuli_emulator::{Emulator, access::Gate, scenario};
use lazuli_model::ArmId;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::{AnyError, Folder, SECURITY_GROUP, azure_json};

/// The folder of the certificates of Azure, in that of the processes.
const TLS_FOLDER: &str = "tls";
/// The certificate of its authority there.
const AUTHORITY: &str = "tls/ca.pem";

/// How long the set-up may take.
const SET_UP: Duration = Duration::from_secs(600);

/// What a cluster is made of.
#[derive(Debug)]
pub struct Layout<'a> {
    /// The Azure. Its scenario has the security group that the cloud configuration names.
    pub azure: lazuli_emulator::Options,
    /// Written over the keys of the cloud configuration.
    pub keys: &'a [(&'a str, Value)],
    /// The API server. Its clock runs since its start.
    pub server: ApiServer,
    /// Where the API server listens, in plain HTTP. Port 0: one that is free.
    pub listen: SocketAddr,
    /// Where the files of the processes go.
    pub folder: Folder,
}

/// An Azure with the security group of a cluster, an API server, and the files of a process.
#[derive(Debug)]
pub struct Cluster {
    /// The Azure.
    pub azure: Emulator,
    /// The API server.
    pub server: ApiServer,
    /// Where the API server listens.
    pub address: SocketAddr,
    folder: Folder,
}

impl Cluster {
    /// Starts both, with two Nodes. `keys` are written over those of the cloud configuration.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn start(options: lazuli_emulator::Options, keys: &[(&str, Value)]) -> Result<Self, AnyError> {
        let layout = Layout {
            azure: options,
            keys,
            server: ApiServer::start(lazuli_apiserver::Options::default()),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder: Folder::make("cluster")?,
        };
        let cluster = Self::assemble(layout).await?;
        // Its installer makes it.
        let group = scenario::RESOURCE_GROUP;
        let kind = (NetworkType::SecurityGroup, "networkSecurityGroups");
        make(&cluster.config()?, group, kind, SECURITY_GROUP, json!({})).await?;
        for at in 0..2 {
            cluster.node(at)?;
        }
        Ok(cluster)
    }

    /// Starts both, without a Node.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn assemble(layout: Layout<'_>) -> Result<Self, AnyError> {
        // Any TLS library in this process takes this provider; a test may have installed it before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let Layout { mut azure, keys, server, listen, folder } = layout;
        // The blob services of accounts take https alone.
        azure.listen_tls = azure.listen_tls.or(Some((Ipv4Addr::LOCALHOST, 0).into()));
        azure.tls_folder = Some(folder.path().join(TLS_FOLDER));
        let listener = tokio::net::TcpListener::bind(listen).await.map_err(|source| Unserved { listen, source })?;
        let address = listener.local_addr()?;
        let scenario = azure.scenario.clone();
        let azure = Emulator::start(azure).await?;
        let mut config = azure_json(&scenario, &azure.url());
        config["subnetName"] = "nodes".into();
        config["securityGroupName"] = SECURITY_GROUP.into();
        for (key, value) in keys {
            config[*key] = value.clone();
        }
        let router = server.router().layer(middleware::from_fn_with_state(Gate::new(address), guard));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let cluster = Self { azure, server, address, folder };
        cluster.write("azure.json", &config)?;
        cluster.write("kubeconfig", &kubeconfig(address))?;
        Ok(cluster)
    }

    /// The folder of the files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops the Azure, and removes the folder unless it is kept.
    pub async fn stop(self) {
        self.azure.shutdown().await;
    }

    /// Writes a file of the process, in one step: one that waits for it, or reads it again, never sees half of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, value: &Value) -> std::io::Result<()> {
        let (new, place) = (self.folder.path().join(format!(".{name}.new")), self.folder.path().join(name));
        // That of a process which was killed.
        match std::fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        std::fs::File::create_new(&new)?.write_all(value.to_string().as_bytes())?;
        std::fs::rename(&new, &place)
    }

    /// Reads the cloud configuration.
    ///
    /// # Errors
    /// When the file is gone or no JSON.
    pub fn config(&self) -> Result<Value, AnyError> {
        Ok(serde_json::from_slice(&std::fs::read(self.folder.path().join("azure.json"))?)?)
    }

    /// The arguments that lead a process to both.
    pub fn arguments(&self) -> Vec<String> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            format!("--cloud-config={}", path("azure.json")),
            format!("--azure-ca-file={}", path(AUTHORITY)),
            format!("--kubeconfig={}", path("kubeconfig")),
            "--cloud-config-secret-name=".to_owned(),
        ]
    }

    /// Puts the Node of this number, whose machine is the emulator's of the same name.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn node(&self, at: u8) -> Result<(), AnyError> {
        let id = format!(
            "/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/node-{at}",
            scenario::SUBSCRIPTION,
            scenario::RESOURCE_GROUP
        );
        let address = format!("10.240.0.{}", 4 + u16::from(at));
        let node = json!({"metadata": {"name": format!("node-{at}")}, "spec": {"providerID": format!("azure://{id}")},
            "status": {"addresses": [{"type": "InternalIP", "address": address}],
                "conditions": [{"type": "Ready", "status": "True"}]}});
        self.server.put("nodes", node)?;
        Ok(())
    }

    /// Makes a public IP in a resource group of the scenario.
    ///
    /// # Errors
    /// When Azure refuses it.
    pub async fn make_public_ip(&self, group: &str, name: &str) -> Result<(), AnyError> {
        let body = json!({"sku": {"name": "Standard"},
            "properties": {"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"}});
        make(&self.config()?, group, (NetworkType::PublicIp, "publicIPAddresses"), name, body).await
    }

    /// Makes a route table with these routes.
    ///
    /// # Errors
    /// When Azure refuses it.
    pub async fn make_route_table(&self, name: &str, routes: &Value) -> Result<(), AnyError> {
        let (group, body) = (scenario::RESOURCE_GROUP, json!({"properties": {"routes": routes}}));
        make(&self.config()?, group, (NetworkType::RouteTable, "routeTables"), name, body).await
    }

    /// Sends a write to Azure and waits until it has ended.
    ///
    /// # Errors
    /// When Azure refuses it.
    pub async fn write_azure(&self, write: Write) -> Result<(), AnyError> {
        write_azure(&parsed(&self.config()?)?, write).await
    }

    /// Puts a Service of type LoadBalancer with one port. `annotations` and `class` may be null.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn service(&self, name: &str, annotations: Value, class: Value) -> Result<(), AnyError> {
        let mut spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
        if !class.is_null() {
            spec["loadBalancerClass"] = class;
        }
        let metadata = json!({"name": name, "annotations": annotations});
        self.server.put("services", json!({"metadata": metadata, "spec": spec}))?;
        Ok(())
    }

    /// How many addresses a Service has.
    pub fn addresses(&self, name: &str) -> usize {
        let service = self.server.get("services", "default", name).unwrap_or_default();
        service["status"]["loadBalancer"]["ingress"].as_array().map_or(0, Vec::len)
    }

    /// Who holds the Lease of the cloud controllers.
    pub fn holder(&self) -> Option<String> {
        let lease = self.server.get("leases", "kube-system", "cloud-controller-manager")?;
        lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
    }

    /// Another replica has taken the Lease.
    ///
    /// # Errors
    /// When there is no Lease.
    pub fn take_lease(&self, holder: &str) -> Result<(), AnyError> {
        let lease = self.server.get("leases", "kube-system", "cloud-controller-manager");
        let mut lease = lease.ok_or("there is no Lease")?;
        lease["spec"]["holderIdentity"] = holder.into();
        self.server.put("leases", lease)?;
        Ok(())
    }

    /// What was asked of Azure so far that changes something.
    pub fn writes(&self) -> Vec<String> {
        let calls = self.azure.control().call_log();
        let writes = calls.iter().filter(|call| call.plane == "arm" && call.method != "GET");
        writes.map(|call| format!("{} {} {}", call.method, call.path, call.status)).collect()
    }
}

/// Lets a request through to the API server, which authorizes every request, or says why not in the form that clients of
/// Kubernetes read.
async fn guard(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match gate.admit(&parts) {
        Ok(()) => Gate::protected(next.run(Request::from_parts(parts, body)).await),
        Err(refused) => Gate::protected(
            Refused { code: refused.code.as_u16(), reason: "Forbidden", message: refused.why }.into_response(),
        ),
    }
}

/// The API server cannot listen.
#[derive(Debug)]
struct Unserved {
    listen: SocketAddr,
    source: std::io::Error,
}

impl std::fmt::Display for Unserved {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the API server cannot listen on {}", self.listen)
    }
}

impl std::error::Error for Unserved {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// A kubeconfig for an API server at this address.
fn kubeconfig(address: SocketAddr) -> Value {
    json!({"apiVersion": "v1", "kind": "Config", "current-context": "lazuli",
        "clusters": [{"name": "lazuli", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "lazuli", "context": {"cluster": "lazuli", "user": "anyone"}}],
        "users": [{"name": "anyone", "user": {}}]})
}

fn parsed(config: &Value) -> Result<Config, AnyError> {
    let document = Document::parse("azure.json", config.to_string().as_bytes())?;
    Ok(Config::from_documents(Some(&document), None, &Environment::new(&Default::default()))?)
}

/// Sends a write to Azure and waits until it has ended.
pub(crate) async fn write_azure(config: &Config, write: Write) -> Result<(), AnyError> {
    let until = Until::within(SET_UP);
    let azure = connect(config, &until).await?;
    azure.storage.arm().write(write, &until).await?.settle(&until).await?;
    Ok(())
}

/// The clients of Azure. Reads bring the token that a write needs.
async fn connect(config: &Config, until: &Until) -> Result<Azure, AnyError> {
    let azure = clients::connect(config, Routes::none(), &mut Registry::default(), 1).await?;
    azure.network.list(NetworkType::PublicIp, scenario::SUBSCRIPTION, scenario::RESOURCE_GROUP, until).await?;
    Ok(azure)
}

/// Makes an object of the network in Azure.
async fn make(
    config: &Value,
    group: &str,
    (kind, path): (NetworkType, &str),
    name: &str,
    mut body: Value,
) -> Result<(), AnyError> {
    let until = Until::within(SET_UP);
    let azure = connect(&parsed(config)?, &until).await?;
    let id = ArmId::resource(scenario::SUBSCRIPTION, group, &format!("Microsoft.Network/{path}"), name)?;
    body["location"] = scenario::LOCATION.into();
    if body["properties"].is_null() {
        body["properties"] = json!({});
    }
    let put = NetworkWrite::Put { body, etag: None };
    azure.network.write(kind, &id, put, None, &until).await?.settle(&until).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// The code of an answer to a POST of a Service with these headers.
    async fn posted(address: SocketAddr, headers: &str) -> String {
        let body = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}}).to_string();
        let request = format!(
            "POST /api/v1/namespaces/default/services HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n{headers}\r\n\
             {body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.contains("x-content-type-options: nosniff") && answer.contains("\"kind\":"), "{answer}");
        answer.split(' ').nth(1).unwrap().to_owned()
    }

    #[tokio::test]
    async fn the_api_server_answers_programs_and_no_web_page_of_another_site() {
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
        let (host, json) = (format!("Host: {}\r\n", cluster.address), "Content-Type: application/json\r\n");
        for (headers, code) in [
            (format!("Host: evil.example\r\n{json}"), "421"),
            (format!("{host}Content-Type: text/plain\r\n"), "415"),
            (host.clone(), "415"),
            (format!("{host}{json}Origin: https://evil.example\r\n"), "403"),
            (format!("{host}{json}Sec-Fetch-Site: cross-site\r\n"), "403"),
        ] {
            assert_eq!(posted(cluster.address, &headers).await, code, "{headers}");
        }
        assert!(cluster.server.list("services").is_empty());
        assert_eq!(posted(cluster.address, &format!("{host}{json}")).await, "201");
        cluster.stop().await;
    }

    #[tokio::test]
    async fn a_file_is_replaced_in_one_step() {
        let cluster = Cluster::start(lazuli_emulator::Options::default(), &[]).await.unwrap();
        let mut old = std::fs::File::open(cluster.folder().join("azure.json")).unwrap();
        std::fs::write(cluster.folder().join(".azure.json.new"), "of one that was killed").unwrap();
        cluster.write("azure.json", &json!({"new": true})).unwrap();
        assert_eq!(cluster.config().unwrap(), json!({"new": true}));
        // What was open is the old file, whole.
        let mut text = String::new();
        old.read_to_string(&mut text).unwrap();
        assert!(serde_json::from_str::<Value>(&text).unwrap()["tenantId"].is_string());
        assert!(!cluster.folder().join(".azure.json.new").exists());
        cluster.stop().await;
    }
}
