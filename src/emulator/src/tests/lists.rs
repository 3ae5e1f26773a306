//! Lists: pages that hide nothing, and `list-lag`.

use std::collections::BTreeSet;

use super::*;
use crate::options::{LIST_LAG, Switches};

fn lagging() -> Options {
    Options { unverified: Switches { list_lag: true, ..Switches::default() }, throttling: false, ..options() }
}

fn disks_uri() -> String {
    format!("{}/providers/Microsoft.Compute/disks?api-version={DISKS_VERSION}", group())
}

fn names(page: &Value) -> Vec<String> {
    let items = page["value"].as_array().unwrap().iter();
    items.map(|item| item["name"].as_str().unwrap().to_owned()).filter(|name| !name.contains("_OsDisk_")).collect()
}

impl Rig {
    /// The disks of a list, page by page; `between` runs between two pages.
    async fn listed(&self, mut between: impl AsyncFnMut(usize)) -> Vec<String> {
        let (mut next, mut found, mut page) = (Some(disks_uri()), Vec::new(), 0);
        while let Some(uri) = next {
            let got = self.get(&uri).await.expect(200).body;
            found.extend(names(&got));
            next = got["nextLink"].as_str().map(|next| path_of(next).to_owned());
            page += 1;
            between(page).await;
        }
        found
    }

    async fn listed_disk(&self, name: &str) -> Option<Value> {
        let got = self.get(&disks_uri()).await.expect(200).body;
        got["value"].as_array().unwrap().iter().find(|disk| disk["name"] == name).cloned()
    }

    async fn delete_disk(&self, name: &str) {
        let got = self.call("DELETE", &disk_uri(name), None).await.expect(202);
        self.finish(&got).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_comes_and_goes_between_pages_hides_nothing_and_shows_nothing_twice() {
    // The OS disks of the scenario's machines are in the list too.
    let rig = Rig::new(Options { page_size: 3, throttling: false, ..options() }).await;
    for n in 0..12 {
        rig.disk(&format!("d{n:02}")).await;
    }
    let found = rig
        .listed(async |page| match page {
            // Those that were shown first, last, and are to come; and one among the shown.
            2 => {
                for name in ["d00", "d01", "d02", "d06"] {
                    rig.delete_disk(name).await;
                }
                rig.disk("d01-a").await;
            }
            3 => drop(rig.disk("d11-a").await),
            _ => {}
        })
        .await;
    let unique: BTreeSet<&String> = found.iter().collect();
    assert_eq!(unique.len(), found.len(), "{found:?}");
    for stayed in ["d03", "d04", "d05", "d07", "d08", "d09", "d10", "d11", "d11-a"] {
        assert!(unique.contains(&stayed.to_owned()), "{stayed}: {found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_next_link_goes_on_after_its_item_also_when_that_has_gone() {
    let rig = Rig::new(Options { page_size: 1, ..options() }).await;
    let groups = || format!("{SUB}/resourcegroups?api-version=2021-04-01");
    for name in ["aa", "bb", "cc"] {
        let uri = format!("{SUB}/resourcegroups/{name}?api-version=2021-04-01");
        rig.call("PUT", &uri, Some(json!({"location": "westeurope"}))).await.expect(201);
    }
    let first = rig.get(&groups()).await.expect(200).body;
    assert_eq!(names(&first), ["aa"]);
    let gone = format!("{SUB}/resourcegroups/aa?api-version=2021-04-01");
    rig.call("DELETE", &gone, None).await.expect(202);
    let second = rig.get(path_of(first["nextLink"].as_str().unwrap())).await.expect(200).body;
    assert_eq!(names(&second), ["bb"]);
    // Subnets have an order of their own: where the last one has gone, all come again.
    let network = format!("{}/providers/Microsoft.Network/virtualNetworks/net", group());
    let subnets = |names: &[&str]| -> Vec<Value> {
        let subnet = |(at, name): (usize, &&str)| json!({"name": name, "properties": {"addressPrefix": format!("10.0.{at}.0/24")}});
        names.iter().enumerate().map(subnet).collect()
    };
    let body = |names: &[&str]| json!({"location": "westeurope", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}, "subnets": subnets(names)}});
    let uri = format!("{network}?api-version=2024-05-01");
    let got = rig.call("PUT", &uri, Some(body(&["z", "a", "m"]))).await.expect(201);
    rig.finish(&got).await;
    let first = rig.get(&format!("{network}/subnets?api-version=2024-05-01")).await.expect(200).body;
    let next = path_of(first["nextLink"].as_str().unwrap()).to_owned();
    assert_eq!((names(&first), names(&rig.get(&next).await.body)), (vec!["z".to_owned()], vec!["a".to_owned()]));
    let gone = format!("{network}/subnets/z?api-version=2024-05-01");
    let got = rig.call("DELETE", &gone, None).await.expect(202);
    rig.finish(&got).await;
    assert_eq!(names(&rig.get(&next).await.expect(200).body), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_no_list_gave_is_refused() {
    let rig = Rig::new(options()).await;
    for token in ["12!", "_w"] {
        rig.get(&format!("{}&$skiptoken={token}", disks_uri())).await.refused(400, "BadRequest");
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_shows_each_item_as_it_was_within_the_lag_and_a_get_shows_the_present() {
    let rig = Rig::new(lagging()).await;
    // What exists at the start has always existed.
    let machines = format!("{}/providers/Microsoft.Compute/virtualMachines?api-version={COMPUTE_VERSION}", group());
    assert_eq!(rig.get(&machines).await.expect(200).body["value"].as_array().unwrap().len(), 8);
    let step = Duration::from_millis(100);
    let mut seen = BTreeSet::new();
    rig.disk("d").await;
    for _ in 0..LIST_LAG.as_millis() / step.as_millis() {
        rig.disk_doc("d").await;
        let shown = rig.listed_disk("d").await;
        seen.insert(shown.map_or("none".to_owned(), |doc| doc["properties"]["provisioningState"].to_string()));
        tokio::time::sleep(step).await;
    }
    assert!(seen.contains("none") && seen.contains("\"Succeeded\""), "{seen:?}");
    assert_eq!(rig.listed_disk("d").await.unwrap(), rig.disk_doc("d").await);

    let mut seen = BTreeSet::new();
    rig.attached("plain-0", &[("d", 0)]).await;
    for _ in 0..LIST_LAG.as_millis() / step.as_millis() {
        assert_eq!(rig.disk_doc("d").await["managedBy"], vm_id("plain-0"));
        assert_eq!(rig.vm("plain-0").await["properties"]["storageProfile"]["dataDisks"].as_array().unwrap().len(), 1);
        let list = rig.get(&machines).await.body;
        let vm = list["value"].as_array().unwrap().iter().find(|vm| vm["name"] == "plain-0").cloned().unwrap();
        let disks = vm["properties"]["storageProfile"]["dataDisks"].as_array().unwrap().len();
        seen.insert((rig.listed_disk("d").await.unwrap()["managedBy"].is_string(), disks));
        tokio::time::sleep(step).await;
    }
    // Each item is as old as it happens to be: a machine that has the disk, and a disk that has no machine.
    assert_eq!(seen, [(false, 0), (false, 1), (true, 0), (true, 1)].into());

    let (mut seen, uri) = (BTreeSet::new(), disk_uri("e"));
    rig.disk("e").await;
    tokio::time::sleep(LIST_LAG).await;
    rig.delete_disk("e").await;
    for _ in 0..LIST_LAG.as_millis() / step.as_millis() {
        rig.get(&uri).await.refused(404, "ResourceNotFound");
        seen.insert(rig.listed_disk("e").await.is_some());
        tokio::time::sleep(step).await;
    }
    assert_eq!(seen, [false, true].into());
    assert_eq!(rig.listed_disk("e").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_lags_hides_nothing_that_is_there_throughout() {
    let rig = Rig::new(Options { page_size: 2, ..lagging() }).await;
    for n in 0..9 {
        rig.disk(&format!("d{n}")).await;
    }
    tokio::time::sleep(LIST_LAG).await;
    let found = rig
        .listed(async |page| {
            // One goes that is in the part to come, and one comes behind.
            rig.delete_disk(["d8", "d7", "d6", "d5"][page % 4]).await;
            rig.disk(["d8", "d7", "d6", "d5"][page % 4]).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        })
        .await;
    for n in 0..5 {
        assert_eq!(found.iter().filter(|name| **name == format!("d{n}")).count(), 1, "{found:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_seed_gives_one_lag_and_another_seed_another() {
    async fn story(seed: u64) -> Vec<bool> {
        let rig = Rig::new(Options { seed, ..lagging() }).await;
        rig.disk("d").await;
        let mut story = Vec::new();
        for _ in 0..64 {
            story.push(rig.listed_disk("d").await.is_some());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        story
    }
    let first = story(7).await;
    assert_eq!(first, story(7).await);
    assert_ne!(first, story(8).await);
}
