//! The settings of a disk's device and its queue.

use super::*;

#[tokio::test]
async fn device_settings_are_written_below_the_device() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
    request.volume_context.extend([
        ("perfProfile".to_owned(), "advanced".to_owned()),
        ("device-setting/queue/read_ahead_kb".to_owned(), "64".to_owned()),
    ]);
    machine.stage(request.clone()).await.unwrap();
    let setting = format!("/sys/class/block/{}/queue/read_ahead_kb", machine.disk(place).name());
    assert_eq!(fs::read_to_string(setting).unwrap().trim(), "64");
    // A setting outside the device's own folder, which the Go driver accepts, is not written.
    request.volume_context.insert("device-setting/../../x".to_owned(), "1".to_owned());
    machine.stage(request).await.unwrap();
}

#[tokio::test]
async fn perf_profile_basic_tunes_the_queue_and_never_fails_the_volume() {
    if !able() {
        return;
    }
    let mut machine = Machine::new().await;
    let place = machine.attach(3, "a");
    let queue = format!("/sys/class/block/{}/queue", machine.disk(place).name());
    let read = |setting: &str| fs::read_to_string(format!("{queue}/{setting}")).unwrap();
    fs::write(format!("{queue}/read_ahead_kb"), "128").unwrap();
    let mut request = machine.stage_request(3, "a", mounted_as("ext4"));
    request
        .volume_context
        .extend([("perfProfile".to_owned(), "Basic".to_owned()), ("skuName".to_owned(), "Premium_LRS".to_owned())]);
    // A loop device has no device/queue_depth: the rest is set all the same.
    machine.stage(request.clone()).await.unwrap();
    assert_eq!(read("read_ahead_kb").trim(), "8");
    machine.unstage("a").await.unwrap();

    // A hard disk is left as it is.
    fs::write(format!("{queue}/read_ahead_kb"), "128").unwrap();
    request.volume_context.insert("skuName".to_owned(), "Standard_LRS".to_owned());
    machine.stage(request).await.unwrap();
    assert_eq!(read("read_ahead_kb").trim(), "128");
}
