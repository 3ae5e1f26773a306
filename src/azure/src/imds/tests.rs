use serde_json::json;

use super::*;
use crate::testing::{Fake, Reply};

const VM: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v";
const DISK: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/disks/d";

fn document() -> Value {
    json!({"compute": {
        "name": "v", "location": "westeurope", "zone": "", "vmSize": "Standard_D4s_v3", "resourceId": VM,
        "subscriptionId": "s", "resourceGroupName": "g", "vmScaleSetName": "", "platformFaultDomain": "0",
        "platformSubFaultDomain": "3", "tagsList": [{"name": "Platform_Interconnect_Group", "value": "ig-1"}],
        "storageProfile": {"dataDisks": [
            {"lun": "3", "name": "d", "diskSizeGB": "10", "diskCapacityBytes": "10737418240",
             "managedDisk": {"id": DISK}, "vhd": {"uri": ""}},
            {"lun": "4", "name": "b", "diskSizeGB": "1", "managedDisk": {"id": ""}, "vhd": {"uri": "https://a/b.vhd"}},
            {"lun": "5"}
        ]}
    }})
}

#[tokio::test(start_paused = true)]
async fn a_machine_learns_who_it_is_and_which_disk_sits_where() {
    let fake = Fake::new([Reply::json(200, document())]);
    let instance = Imds::new(fake.in_process()).instance().await.unwrap();
    assert_eq!((instance.name.as_str(), instance.zone.as_deref()), ("v", None));
    assert_eq!((instance.resource_id.as_str(), instance.scale_set.as_deref()), (VM, None));
    let place = (instance.platform_sub_fault_domain.as_deref(), instance.interconnect_group.as_deref());
    assert_eq!(place, (Some("3"), Some("ig-1")));
    let disks: Vec<(u8, InstanceDiskSource)> =
        instance.data_disks.iter().map(|disk| (disk.lun.get(), disk.source.clone())).collect();
    assert_eq!(
        disks,
        [
            (3, InstanceDiskSource::Managed(DISK.parse().unwrap())),
            (4, InstanceDiskSource::Vhd("https://a/b.vhd".into())),
            (5, InstanceDiskSource::Unknown),
        ]
    );
    assert_eq!((instance.data_disks[0].size, instance.data_disks[0].bytes), (Some(Gib::new(10)), Some(10 << 30)));
    assert_eq!(fake.log()[0].line, "GET 169.254.169.254/metadata/instance?api-version=2021-10-01&format=json");
    assert_eq!(fake.log()[0].authorization, None);
}

#[tokio::test(start_paused = true)]
async fn however_many_ask_at_most_five_requests_go_out_in_a_second() {
    let fake = Fake::new((0..20).map(|_| Reply::json(200, document())));
    let imds = Imds::new(fake.in_process());
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let askers = (0..10).map(|_| imds.refresh());
        for answer in futures::future::join_all(askers).await {
            answer.unwrap();
        }
        imds.instance().await.unwrap();
    }
    let at: Vec<u128> = fake.log().iter().map(|seen| seen.at.as_millis()).collect();
    assert!(at.windows(2).all(|pair| pair[1] - pair[0] >= 200), "{at:?}");
    assert!(at.len() <= 7, "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_refresh_is_never_answered_with_what_was_asked_before_it() {
    let mut later = document();
    later["compute"]["vmSize"] = json!("later");
    let fake = Fake::new([Reply::json(200, document()).after(Duration::from_secs(1)), Reply::json(200, later)]);
    let imds = Imds::new(fake.in_process());
    let first = tokio::spawn({
        let imds = imds.clone();
        async move { imds.refresh().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(imds.refresh().await.unwrap().vm_size, "later");
    assert_eq!(first.await.unwrap().vm_size, "Standard_D4s_v3");
    // And an older answer that comes late does not replace a newer one.
    assert_eq!(imds.instance().await.unwrap().vm_size, "later");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_names_the_field_and_what_was_known_is_kept() {
    let mut broken = document();
    broken["compute"]["storageProfile"]["dataDisks"][0]["lun"] = json!("64");
    let fake = Fake::new([
        Reply::json(200, document()),
        Reply::json(200, broken),
        Reply::empty(429),
        Reply::json(400, json!({"error": "Bad request"})),
        Reply::Lost,
    ]);
    let imds = Imds::new(fake.in_process());
    imds.instance().await.unwrap();
    let error = imds.refresh().await.unwrap_err();
    assert!(error.to_string().contains("dataDisks[].lun is no LUN"), "{error}");
    assert!(matches!(imds.refresh().await, Err(ImdsError::Throttled)));
    assert!(matches!(imds.refresh().await, Err(ImdsError::Refused { status: 400, .. })));
    assert!(matches!(imds.refresh().await, Err(ImdsError::Unreachable(_))));
    assert_eq!(imds.instance().await.unwrap().name, "v");
}
