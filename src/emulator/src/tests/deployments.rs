//! Templates as the Azure CLI sends them: a machine with all that it needs, and a load balancer with its address.

use super::*;
use crate::scenario::Role;

const VERSION: &str = "2024-11-01";

fn deployment(name: &str) -> String {
    format!("{}/providers/Microsoft.Resources/deployments/{name}", group())
}

fn uri(name: &str) -> String {
    format!("{}?api-version={VERSION}", deployment(name))
}

fn network(kind: &str, name: &str) -> String {
    format!("{}/providers/Microsoft.Network/{kind}/{name}", group())
}

fn resource(kind: &str, name: &str, version: &str, after: &[&str], properties: Value) -> Value {
    json!({
        "type": kind, "name": name, "apiVersion": version, "location": "westeurope", "tags": {}, "dependsOn": after,
        "properties": properties,
    })
}

/// What `az vm create` sends, in its order, with the members that it sends as null.
fn machine(name: &str, sku: &str) -> Value {
    let subnet = json!({"id": network("virtualNetworks", "lazuli-vnet/subnets/nodes")});
    let configuration = json!({"name": "ipconfig", "properties": {
        "privateIPAllocationMethod": "Dynamic", "subnet": subnet, "publicIPAddress": {"id": network("publicIPAddresses", "ip")},
    }});
    let interface = json!({"ipConfigurations": [configuration], "networkSecurityGroup": {"id": network("networkSecurityGroups", "nsg")}});
    let mut address = resource(
        "Microsoft.Network/publicIPAddresses",
        "ip",
        "2022-01-01",
        &[],
        json!({"publicIPAllocationMethod": "Static"}),
    );
    address["sku"] = json!({"name": sku});
    let rule = json!({"name": "default-allow-ssh", "properties": {
        "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "22", "sourceAddressPrefix": "*",
        "destinationAddressPrefix": "*", "access": "Allow", "priority": 1000, "direction": "Inbound",
    }});
    let vm = json!({
        "hardwareProfile": {"vmSize": "Standard_D4s_v3"},
        "networkProfile": {"networkInterfaces": [{"id": network("networkInterfaces", "nic"), "properties": {"deleteOption": null}}]},
        "storageProfile": {
            "osDisk": {"createOption": "fromImage", "name": null, "caching": "ReadWrite", "managedDisk": {"storageAccountType": null}},
            "imageReference": {"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": "server", "version": "latest"},
        },
        "osProfile": {"computerName": name, "adminUsername": "u", "adminPassword": "[parameters('pass')]"},
    });
    json!({
        "$schema": "https://schema.management.azure.com/schemas/2015-01-01/deploymentTemplate.json#",
        "contentVersion": "1.0.0.0",
        "parameters": {"pass": {"type": "securestring"}},
        "variables": {},
        "resources": [
            resource("Microsoft.Compute/virtualMachines", name, "2025-04-01", &["Microsoft.Network/networkInterfaces/nic"], vm),
            resource("Microsoft.Network/networkSecurityGroups", "nsg", "2015-06-15", &[], json!({"securityRules": [rule]})),
            address,
            resource("Microsoft.Network/networkInterfaces", "nic", "2015-06-15", &[
                "Microsoft.Network/networkSecurityGroups/nsg", "Microsoft.Network/publicIpAddresses/ip",
            ], interface),
        ],
        "outputs": {"where": {"type": "string", "value": "[reference('ip').ipAddress]"}},
    })
}

fn body(template: Value) -> Option<Value> {
    let parameters =
        if template["parameters"].is_object() { json!({"pass": {"value": "Hidden-Password-1"}}) } else { json!({}) };
    Some(json!({"properties": {"template": template, "parameters": parameters, "mode": "incremental"}}))
}

impl Rig {
    /// Polls a deployment to its end.
    async fn deployed(&self, got: &Got) -> Value {
        let url = got.header("azure-asyncoperation").to_owned();
        for _ in 0..300 {
            let polled = self.get(path_of(&url)).await.expect(200);
            if polled.body["status"] != "Running" {
                return polled.body;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        panic!("the deployment never ended");
    }
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_made_with_all_that_it_needs_in_the_order_of_what_depends_on_what() {
    let rig = Rig::new(slow()).await;
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(201);
    assert_eq!(got.body["properties"]["provisioningState"], "Accepted");
    assert_eq!(got.body["properties"]["parameters"], json!({"pass": {"type": "securestring"}}));
    // The machine is not there before its interface, and that not before its address.
    rig.get(&vm_uri("azvm")).await.expect(404);
    rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.refused(409, "DeploymentActive");
    assert_eq!(rig.deployed(&got).await, json!({"status": "Succeeded"}));
    let vm = rig.vm("azvm").await;
    assert_eq!(vm["properties"]["provisioningState"], "Succeeded");
    let shown = rig.get(&uri("vm")).await.expect(200).body;
    let ip = rig.get(&format!("{}?api-version=2025-05-01", network("publicIPAddresses", "ip"))).await.expect(200).body;
    assert_eq!(shown["properties"]["outputs"]["where"]["value"], ip["properties"]["ipAddress"]);
    assert_eq!(shown["properties"]["outputResources"].as_array().unwrap().len(), 4);
    rig.call("HEAD", &uri("vm"), None).await.expect(204);
    let all = rig
        .get(&format!("{}/providers/Microsoft.Resources/deployments?api-version={VERSION}", group()))
        .await
        .expect(200)
        .body;
    assert_eq!(all["value"][0]["name"], "vm");
    // What it wrote are no calls of the client, and it is no resource itself.
    assert!(rig.control().call_log().iter().all(|call| call.operation != "virtualMachines.createOrUpdate"));
    let resources = rig.get(&format!("{}/resources?api-version=2021-04-01", group())).await.expect(200).body;
    assert!(resources["value"].as_array().unwrap().iter().all(|one| one["type"] != "Microsoft.Resources/deployments"));
    // The same again changes what is there; then the record goes, and nothing else.
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(200);
    assert_eq!(rig.deployed(&got).await["status"], "Succeeded");
    rig.call("DELETE", &uri("vm"), None).await.expect(202);
    rig.get(&uri("vm")).await.refused(404, "DeploymentNotFound");
    rig.get(&vm_uri("azvm")).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_load_balancer_comes_after_its_address_and_is_told_whole() {
    let rig = Rig::new(options()).await;
    let mut address = resource(
        "Microsoft.Network/publicIPAddresses",
        "pip",
        "2022-05-01",
        &[],
        json!({"publicIPAllocationMethod": "Static"}),
    );
    address["sku"] = json!({"name": "Standard"});
    let frontend = json!({"name": "f", "properties": {"publicIPAddress": {"id": network("publicIPAddresses", "pip")}, "privateIPAddressVersion": "IPv4"}});
    let properties = json!({"backendAddressPools": [{"name": "pool"}], "frontendIPConfigurations": [frontend]});
    let mut balancer = resource(
        "Microsoft.Network/loadBalancers",
        "lb",
        "2023-04-01",
        &["Microsoft.Network/publicIpAddresses/pip"],
        properties,
    );
    balancer["sku"] = json!({"name": "Standard"});
    let outputs = json!({"loadBalancer": {"type": "object", "value": "[reference('lb')]"}});
    let template = json!({"resources": [balancer, address], "outputs": outputs});
    let validated = rig
        .call("POST", &format!("{}/validate?api-version={VERSION}", deployment("lb")), body(template.clone()))
        .await
        .expect(200);
    assert_eq!(validated.body["properties"]["validatedResources"].as_array().unwrap().len(), 2);
    rig.get(&format!("{}?api-version=2025-05-01", network("loadBalancers", "lb"))).await.expect(404);
    let got = rig.call("PUT", &uri("lb"), body(template)).await.expect(201);
    assert_eq!(rig.deployed(&got).await["status"], "Succeeded");
    let output = rig.get(&uri("lb")).await.expect(200).body["properties"]["outputs"]["loadBalancer"]["value"].take();
    assert_eq!(output["backendAddressPools"][0]["name"], "pool");
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_is_refused_fails_the_deployment_with_its_refusal_and_nothing_after_it_begins() {
    let rig = Rig::new(slow()).await;
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Golden"))).await.expect(201);
    let failed = rig.deployed(&got).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("Failed"), &json!("DeploymentFailed")));
    let detail = failed["error"]["details"][0]["message"].as_str().unwrap();
    assert!(detail.contains("Golden"), "{detail}");
    let shown = rig.get(&uri("vm")).await.expect(200).body;
    assert_eq!(
        (&shown["properties"]["provisioningState"], &shown["properties"]["error"]["code"]),
        (&json!("Failed"), &json!("DeploymentFailed"))
    );
    rig.get(&vm_uri("azvm")).await.expect(404);
    // What did not depend on it is there.
    rig.get(&format!("{}?api-version=2025-05-01", network("networkSecurityGroups", "nsg"))).await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_writes_by_the_roles_of_its_caller() {
    let mut options = options();
    options.scenario.clients[0].roles =
        Some(vec![Role::of(&["Microsoft.Resources/*", "*/read", "Microsoft.Network/*"])]);
    let rig = Rig::new(options).await;
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(201);
    let failed = rig.deployed(&got).await;
    assert_eq!(failed["error"]["details"][0]["code"], "AuthorizationFailed");
}

#[tokio::test(start_paused = true)]
async fn no_parameter_of_a_deployment_is_shown_by_page_control_or_deployment() {
    let rig = Rig::new(options()).await;
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(201);
    rig.deployed(&got).await;
    for path in ["state", "calls", "overview"] {
        let shown = rig.get(&format!("/_emulator/{path}")).await.expect(200).body.to_string();
        assert!(shown.contains("deployments/vm") && !shown.contains("Hidden-Password-1"), "{path}");
    }
    assert!(!rig.get(&uri("vm")).await.expect(200).body.to_string().contains("Hidden-Password-1"));
}

#[tokio::test(start_paused = true)]
async fn a_template_that_is_not_understood_is_refused_at_once_and_makes_nothing() {
    let rig = Rig::new(options()).await;
    let loops = json!({"resources": [{"type": "Microsoft.Compute/disks", "name": "d", "apiVersion": DISKS_VERSION, "copy": {"name": "c", "count": 3}}]});
    let refused = rig.call("PUT", &uri("loops"), body(loops)).await.refused(400, "InvalidTemplate");
    assert!(refused.message().contains("this cloud is an emulator, and copy is not emulated"), "{}", refused.message());
    let complete = Some(json!({"properties": {"template": {"resources": []}, "mode": "Complete"}}));
    rig.call("PUT", &uri("complete"), complete).await.refused(400, "InvalidTemplate");
    rig.get(&uri("loops")).await.refused(404, "DeploymentNotFound");
    let none = format!("{SUB}/resourceGroups/none/providers/Microsoft.Resources/deployments/d?api-version={VERSION}");
    rig.call("PUT", &none, body(json!({"resources": []}))).await.refused(404, "ResourceGroupNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_is_cut_off_has_failed() {
    let rig = Rig::new(slow()).await;
    rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(201);
    let control = rig.control();
    // By a shutdown, which takes operations to their end.
    control.shared.state().settle_all();
    assert_eq!(rig.get(&uri("vm")).await.expect(200).body["properties"]["provisioningState"], "Failed");
    // By a kill.
    let mut state = control.shared.state();
    state.store.change(&deployment("vm"), Duration::ZERO, |resource| resource.set_provisioning("Running"));
    state.recover();
    drop(state);
    assert_eq!(rig.get(&uri("vm")).await.expect(200).body["properties"]["provisioningState"], "Failed");
    let got = rig.call("PUT", &uri("vm"), body(machine("azvm", "Standard"))).await.expect(200);
    assert_eq!(rig.deployed(&got).await["status"], "Succeeded");
}
