//! The demonstration's second part: a Service of type LoadBalancer, with the cloud controllers, an Azure and a small API
//! server in this process.

use std::time::{Duration, Instant};

use lazuli_emulator::latency::Profile;
use lazuli_rig::cluster::Cluster;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{AnyError, Steps};
use crate::cli::cloud_controllers;

const NAME: &str = "web";
/// How often the cluster is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// The longest wait of a step: on Azure's slowest day a Service takes minutes.
const LONGEST: Duration = Duration::from_secs(900);

/// Shows a Service from its creation to its deletion. `number` is that of the last step before.
pub(super) async fn show(latency: Profile, number: u32) -> Result<(), AnyError> {
    let azure =
        lazuli_emulator::Options { latency, start_time: jiff::Timestamp::now(), ..lazuli_emulator::Options::default() };
    let keys = [("loadBalancerSku", "standard".into()), ("loadBalancerBackendPoolConfigurationType", "nodeIP".into())];
    let cluster = Cluster::start(azure, &keys).await?;
    let steps = Steps::after(cluster.azure.control(), number);
    println!("\nA cluster of two nodes, with an Azure of its own at {}.", cluster.azure.url());
    let mut arguments = cluster.arguments();
    arguments.push("--controllers=service-lb".to_owned());
    let stop = CancellationToken::new();
    let mut controllers = tokio::spawn(Box::pin(cloud_controllers::run_with(arguments, stop.clone())));
    let told = tokio::select! {
        told = Story { cluster: &cluster, steps }.tell() => told,
        ended = &mut controllers => return ended?.and(Err("the cloud controllers ended".into())),
    };
    stop.cancel();
    controllers.await??;
    told
}

struct Story<'a> {
    cluster: &'a Cluster,
    steps: Steps,
}

impl Story<'_> {
    async fn tell(mut self) -> Result<(), AnyError> {
        let watch = self.steps.begin("cloud-controllers: take the Lease");
        self.until("the Lease is taken", |story| story.cluster.holder().is_some()).await?;
        self.steps.end(&watch);

        let watch = self.steps.begin("create Service web of type LoadBalancer, port 80");
        self.cluster.service(NAME, Value::Null, Value::Null)?;
        self.until("the Service has an address", |story| story.address().is_some()).await?;
        self.steps.end(&watch);
        println!("     status: {}", self.address().unwrap_or_default());
        self.load_balancer();
        self.admitted();

        let watch = self.steps.begin("kubectl patch: admit 203.0.113.0/24 alone");
        let mut service = self.service().ok_or("the Service is gone")?;
        service["spec"]["loadBalancerSourceRanges"] = json!(["203.0.113.0/24"]);
        self.cluster.server.put("services", service)?;
        self.until("the security group admits the range", |story| {
            story.rules().iter().any(|rule| rule.contains("203.0.113.0/24")) && story.is_written()
        })
        .await?;
        self.steps.end(&watch);
        self.admitted();

        let watch = self.steps.begin("delete the Service");
        self.cluster.server.delete("services", "default", NAME)?;
        self.until("the Service is gone", |story| story.service().is_none()).await?;
        self.steps.end(&watch);
        let left = [self.of_type("loadBalancers"), self.of_type("publicIPAddresses")].concat();
        if !left.is_empty() || !self.rules().is_empty() {
            return Err(
                format!("of the Service {} resources and {} rules are left", left.len(), self.rules().len()).into()
            );
        }
        Ok(())
    }

    async fn until(&self, what: &str, is: impl Fn(&Self) -> bool) -> Result<(), AnyError> {
        let began = Instant::now();
        while !is(self) {
            if began.elapsed() > LONGEST {
                return Err(format!("not within {} s: {what}", LONGEST.as_secs()).into());
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    fn service(&self) -> Option<Value> {
        self.cluster.server.get("services", "default", NAME)
    }

    fn address(&self) -> Option<String> {
        let service = self.service()?;
        service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().map(str::to_owned)
    }

    /// The documents of Azure's resources of a type.
    fn of_type(&self, name: &str) -> Vec<Value> {
        let resources = self.steps.control.dump().resources;
        let is_type = |id: &str| id.rsplit('/').nth(1).is_some_and(|found| found.eq_ignore_ascii_case(name));
        resources.into_iter().filter(|(id, _)| is_type(id)).map(|(_, document)| document).collect()
    }

    fn load_balancer(&self) {
        for balancer in self.of_type("loadBalancers") {
            let count = |member: &str| balancer["properties"][member].as_array().map_or(0, Vec::len);
            let pools = balancer["properties"]["backendAddressPools"].as_array().into_iter().flatten();
            let backends: usize = pools
                .map(|pool| pool["properties"]["loadBalancerBackendAddresses"].as_array().map_or(0, Vec::len))
                .sum();
            println!(
                "     load balancer {}: frontends {}, rules {}, probes {}, backends {backends}",
                balancer["name"].as_str().unwrap_or_default(),
                count("frontendIPConfigurations"),
                count("loadBalancingRules"),
                count("probes"),
            );
        }
    }

    /// The rules of the security group: who may reach what.
    fn rules(&self) -> Vec<String> {
        let listed = |properties: &Value, one: &str, many: &str| match properties[many].as_array() {
            Some(all) if !all.is_empty() => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
            _ => properties[one].as_str().unwrap_or_default().to_owned(),
        };
        let groups = self.of_type("networkSecurityGroups");
        let rules = groups.iter().filter_map(|group| group["properties"]["securityRules"].as_array()).flatten();
        rules
            .map(|rule| {
                let properties = &rule["properties"];
                format!(
                    "{} from {} to {} port {}",
                    properties["access"].as_str().unwrap_or_default(),
                    listed(properties, "sourceAddressPrefix", "sourceAddressPrefixes"),
                    listed(properties, "destinationAddressPrefix", "destinationAddressPrefixes"),
                    listed(properties, "destinationPortRange", "destinationPortRanges"),
                )
            })
            .collect()
    }

    /// Whether no write of the security group is under way.
    fn is_written(&self) -> bool {
        self.of_type("networkSecurityGroups")
            .iter()
            .all(|group| group["properties"]["provisioningState"] == "Succeeded")
    }

    fn admitted(&self) {
        self.rules().iter().for_each(|rule| println!("     security group: {rule}"));
    }
}
