//! What the gateway itself answers or refuses, whatever the provider.

use super::*;

const RESOURCES_VERSION: &str = "2021-04-01";

fn tagged(tags: Value) -> Value {
    let mut body = premium(10);
    body["tags"] = tags;
    body
}

#[tokio::test(start_paused = true)]
async fn a_member_that_no_resource_has_at_its_top_is_refused_by_the_gateway() {
    let rig = Rig::new(options()).await;
    let mut body = premium(4);
    body["resources"] = json!([]);
    let got = rig.put_disk("d", body).await.refused(400, "InvalidRequestContent");
    assert_eq!(got.header("x-ms-failure-cause"), "gateway");
    assert_eq!(
        got.message(),
        "The request content was invalid and could not be deserialized: 'Could not find member 'resources' on object of type 'ResourceDefinition'. Path 'resources', line 1, position 136.'."
    );
    rig.call("PATCH", &vm_uri("plain-0"), Some(json!({"odd": 1}))).await.refused(400, "InvalidRequestContent");
    // Known at the top of resources, but not of disks: the provider refuses it.
    rig.call("PATCH", &disk_uri("d"), Some(json!({"kind": "x"}))).await.expect(404);
    rig.disk("d").await;
    rig.call("PATCH", &disk_uri("d"), Some(json!({"kind": "x"}))).await.refused(400, "BadRequest");
}

#[tokio::test(start_paused = true)]
async fn tags_keep_to_their_limits_on_every_way_in() {
    let rig = Rig::new(Options { throttling: false, ..options() }).await;
    rig.disk("d").await;
    let many = |count: usize| -> Value { (0..count).map(|at| (format!("tag-{at}"), json!("v"))).collect() };
    let cases = [
        (many(51), "InvalidTagCount"),
        (json!({"n".repeat(513): "v"}), "InvalidTagName"),
        (json!({"n": "v".repeat(257)}), "InvalidTagValueLength"),
        (json!({"kubernetes.io/cluster": "v"}), "InvalidTagNameCharacters"),
        (json!({"tab\there": "v"}), "InvalidTagNameCharacters"),
    ];
    let group_uri = format!("{SUB}/resourceGroups/lazuli?api-version={RESOURCES_VERSION}");
    for (tags, code) in cases {
        rig.put_disk("d", tagged(tags.clone())).await.refused(400, code);
        let only = json!({ "tags": tags });
        for uri in [disk_uri("d"), vm_uri("plain-0"), group_uri.clone()] {
            rig.call("PATCH", &uri, Some(only.clone())).await.refused(400, code);
        }
    }
    let got = rig.put_disk("d", tagged(json!({"a/b": "", "c": "d"}))).await;
    assert_eq!(got.message(), "The tag names 'a/b' have reserved characters '<,>,%,&,\\,?,/' or control characters.");
    let got = rig.put_disk("d", tagged(many(50))).await.expect(202);
    rig.finish(&got).await;
    // Values may hold what names may not.
    rig.put_disk("d", tagged(json!({"n".repeat(512): "/<>%".repeat(64)}))).await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_patch_of_tags_alone_replaces_them_and_nothing_else() {
    let rig = Rig::new(options()).await;
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/lazuli-vnet?api-version=2025-05-01", group());
    let set = format!("{}/providers/Microsoft.Compute/availabilitySets/set?api-version={COMPUTE_VERSION}", group());
    for uri in [network.clone(), set, format!("{}?api-version={RESOURCES_VERSION}", group())] {
        let before = rig.get(&uri).await.expect(200).body;
        rig.call("PATCH", &uri, Some(json!({"tags": {"a": "1"}}))).await.expect(200);
        let after = rig.call("PATCH", &uri, Some(json!({"Tags": {"b": "2"}}))).await.expect(200).body;
        assert_eq!(after["tags"], json!({"b": "2"}), "{uri}");
        assert_eq!((&after["id"], &after["location"]), (&before["id"], &before["location"]));
        rig.call("PATCH", &uri, Some(json!({"tags": {"b": 2}}))).await.refused(400, "BadRequest");
    }
    let got = rig.call("PATCH", &network, Some(json!({"location": "westeurope"}))).await.refused(400, "BadRequest");
    assert!(got.message().starts_with("Could not find member 'location' on object of type 'TagsObject'."));
}

#[tokio::test(start_paused = true)]
async fn groups_are_found_by_tag_and_other_filters_are_refused() {
    let rig = Rig::new(options()).await;
    let uri = |name: &str| format!("{SUB}/resourcegroups/{name}?api-version={RESOURCES_VERSION}");
    for (name, tags) in [("a", json!({"Team": "x"})), ("b", json!({"team": "y"})), ("c", json!({"other": "it's"}))] {
        rig.call("PUT", &uri(name), Some(json!({"location": "westeurope", "tags": tags}))).await.expect(201);
    }
    let names = async |filter: &str| -> Vec<String> {
        let list = format!("{SUB}/resourcegroups?api-version={RESOURCES_VERSION}&$filter={filter}");
        let found = rig.get(&list).await.expect(200).body["value"].as_array().unwrap().clone();
        found.iter().map(|group| group["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("tagName%20eq%20'team'").await, ["a", "b"]);
    assert_eq!(names("tagName+eq+'TEAM'+and+tagValue+eq+'y'").await, ["b"]);
    assert_eq!(names("tagname%20eq%20'other'%20and%20tagvalue%20eq%20'it''s'").await, ["c"]);
    for wrong in ["name%20eq%20'a'", "tagName%20ne%20'a'", "tagName", "tagName%20eq%20a", "tagName%20eq%20'a'%20or%20x"]
    {
        let list = format!("{SUB}/resourcegroups?api-version={RESOURCES_VERSION}&$filter={wrong}");
        rig.get(&list).await.refused(400, "InvalidFilterInQueryString");
    }
}

#[tokio::test(start_paused = true)]
async fn resources_of_every_type_are_in_one_list_without_their_properties() {
    let rig = Rig::new(options()).await;
    rig.disk_with("d", json!({"tags": {"Team": "x"}, "zones": ["1"]})).await;
    let list =
        |scope: &str, filter: &str| format!("{scope}/resources?api-version={RESOURCES_VERSION}&$filter={filter}");
    let found = rig.get(&list(SUB, "tagName%20eq%20'team'")).await.expect(200).body;
    assert_eq!(
        found["value"],
        json!([{
            "id": disk_id("d"), "name": "d", "type": "Microsoft.Compute/disks", "location": "westeurope",
            "sku": {"name": "Premium_LRS", "tier": "Premium"}, "zones": ["1"],
        }])
    );
    let found = rig.get(&list(SUB, "name%20eq%20'd'")).await.expect(200).body;
    assert_eq!(found["value"][0]["tags"], json!({"Team": "x"}));
    let kinds = async |uri: &str| -> Vec<String> {
        let found = rig.get(uri).await.expect(200).body["value"].as_array().unwrap().clone();
        found.iter().map(|resource| resource["type"].as_str().unwrap().to_owned()).collect()
    };
    let machines = kinds(&list(&group(), "resourceType%20eq%20'microsoft.compute/virtualmachines'")).await;
    assert_eq!(machines, ["Microsoft.Compute/virtualMachines"; 8]);
    let all = kinds(&format!("{}/resources?api-version={RESOURCES_VERSION}", group())).await;
    assert!(all.iter().any(|kind| kind == "Microsoft.Network/virtualNetworks"));
    assert!(!all.iter().any(|kind| kind.ends_with("resourceGroups")), "a group is no resource in a group");
}

#[tokio::test(start_paused = true)]
async fn the_providers_that_are_emulated_are_registered_and_say_what_they_have() {
    let rig = Rig::new(options()).await;
    let uri = |rest: &str| format!("{SUB}/providers{rest}?api-version={RESOURCES_VERSION}");
    let all = rig.get(&uri("")).await.expect(200).body;
    let names: Vec<&str> = all["value"].as_array().unwrap().iter().map(|p| p["namespace"].as_str().unwrap()).collect();
    let emulated = ["Authorization", "Compute", "Network", "Resources", "Storage"];
    assert_eq!(names, emulated.map(|name| format!("Microsoft.{name}")));
    let compute = rig.get(&uri("/microsoft.compute")).await.expect(200).body;
    assert_eq!(compute["registrationState"], "Registered");
    let kinds = compute["resourceTypes"].as_array().unwrap();
    let of = |kind: &str| kinds.iter().find(|shown| shown["resourceType"] == kind).unwrap();
    for zonal in ["disks", "virtualMachines"] {
        let mappings = of(zonal)["zoneMappings"].as_array().unwrap();
        let zones = |region: &str| mappings.iter().find(|mapping| mapping["location"] == region).map(|m| &m["zones"]);
        assert_eq!((zones("westeurope"), zones("westus")), (Some(&json!(["1", "2", "3"])), None), "{zonal}");
    }
    assert!(of("availabilitySets").get("zoneMappings").is_none());
    rig.call("POST", &uri("/Microsoft.Compute/register"), None).await.expect(200);
    rig.get(&uri("/Microsoft.KeyVault")).await.refused(404, "InvalidResourceNamespace");
    rig.call("DELETE", &uri("/Microsoft.Compute"), None).await.refused(405, "MethodNotAllowed");
}

#[tokio::test(start_paused = true)]
async fn the_tenant_is_listed_with_its_subscriptions_apart() {
    let rig = Rig::new(options()).await;
    let tenants = rig.get("/tenants?api-version=2022-12-01").await.expect(200).body;
    let subscriptions = rig.get("/subscriptions?api-version=2022-12-01").await.expect(200).body;
    assert_eq!(tenants["value"][0]["tenantId"], subscriptions["value"][0]["tenantId"]);
    assert_eq!(tenants["value"].as_array().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_emulated_is_a_type_that_this_cloud_does_not_have_and_says_so() {
    let rig = Rig::new(options()).await;
    let version = format!("?api-version={COMPUTE_VERSION}");
    for (method, path, kind) in [
        ("GET", "images", "images"),
        ("PUT", "images/i", "images"),
        ("GET", "galleries", "galleries"),
        ("GET", "galleries/g/images/0", "galleries/images"),
        ("GET", "virtualMachines/plain-0/runCommands", "virtualMachines/runCommands"),
        ("POST", "virtualMachines/plain-0/runCommand", "virtualMachines/runCommand"),
    ] {
        let body = (method == "PUT").then(|| json!({"location": "westeurope"}));
        let uri = format!("{}/providers/Microsoft.Compute/{path}{version}", group());
        let got = rig.call(method, &uri, body).await.refused(404, "InvalidResourceType");
        assert_eq!(got.header("x-ms-failure-cause"), "gateway");
        assert!(got.message().starts_with(&format!("The resource type '{kind}' could not be found in the namespace")));
        assert!(got.message().ends_with("This cloud is an emulator, and the type is not emulated."));
    }
    // A path that is emulated, with a method that it does not take.
    for path in ["virtualMachines/plain-0/deallocate", "disks/d/beginGetAccess"] {
        let uri = format!("{}/providers/Microsoft.Compute/{path}{version}", group());
        rig.get(&uri).await.refused(405, "MethodNotAllowed");
    }
}

#[tokio::test(start_paused = true)]
async fn machines_of_a_location_are_listed() {
    let rig = Rig::new(options()).await;
    let uri = |location: &str| {
        format!("{SUB}/providers/Microsoft.Compute/locations/{location}/virtualMachines?api-version={COMPUTE_VERSION}")
    };
    assert_eq!(rig.get(&uri("WestEurope")).await.expect(200).body["value"].as_array().unwrap().len(), 8);
    assert_eq!(rig.get(&uri("eastus")).await.expect(200).body["value"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_is_no_large_body() {
    let rig = Rig::new(options()).await;
    let broken = futures::stream::once(async { Err::<bytes::Bytes, _>(std::io::Error::other("gone")) });
    let request = Request::builder()
        .method("PUT")
        .uri(disk_uri("d"))
        .header("authorization", format!("Bearer {}", rig.token))
        .header("content-type", "application/json")
        .body(Body::from_stream(broken))
        .unwrap();
    rig.send(request).await.refused(400, "InvalidRequestContent");
}
