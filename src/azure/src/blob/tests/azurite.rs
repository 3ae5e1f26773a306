//! The same client against Azurite, Microsoft's own emulator of the storage services. It skips what it cannot do: there
//! must be Azurite, whose program `LAZULI_AZURITE` names.

use std::process::{Child, Command, Stdio};

use super::*;

/// Ends with the test.
struct Azurite(Child);

impl Drop for Azurite {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client whose account's keys come from our emulator, and whose blobs are in Azurite under those keys.
async fn rig_on_azurite(program: &std::ffi::OsStr, folder: &std::path::Path) -> (Rig, Azurite) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let rig =
        rig_of(Way::Tcp, ServiceVersion::Newest, Some(&format!("http://127.0.0.1:{port}")), Profile::none()).await;
    let region = Storage::new(rig.arm.clone()).in_region(Some(scenario::LOCATION));
    let keys = region.list_keys(&vhds1().id, Priority::Read, &an_hour()).await.unwrap();
    // The version that the crate names is newer than Azurite.
    let azurite = Command::new(program)
        .args(["--blobPort", &port.to_string(), "--skipApiVersionCheck", "--disableTelemetry", "--silent"])
        .arg("--location")
        .arg(folder)
        .env("AZURITE_ACCOUNTS", format!("vhds1:{}", keys[0].value.expose()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn();
    let azurite = Azurite(azurite.unwrap());
    for _ in 0..300 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            return (rig, azurite);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("Azurite does not listen");
}

#[tokio::test]
async fn azurite_answers_every_call_as_our_emulator_does() {
    let Some(program) = std::env::var_os("LAZULI_AZURITE") else {
        eprintln!("skipped: LAZULI_AZURITE names no program");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (mut rig, _azurite) = rig_on_azurite(&program, folder.path()).await;
    assert_eq!(rig.problem("d.vhd", Call::ReadContainer).await, Problem::NoContainer);
    assert_eq!(create(&rig, "pvc-1").await.unwrap(), MIB);
    assert_eq!(create(&rig, "pvc-1").await.unwrap(), MIB);
    assert_eq!(create(&rig, "pvc-2").await.unwrap_err().why, Why::Stranger);
    assert_eq!(rig.call("d.vhd", Call::ReadContainer).await, Answer::Container { is_public: false });
    assert_eq!(rig.problem("d.vhd", Call::MakeContainer).await, Problem::Exists);
    assert_eq!(rig.problem("e.vhd", Call::ReadBlob).await, Problem::NoBlob);
    assert_eq!(expand(&rig, 3 * MIB).await.unwrap(), 3 * MIB);
    let blob = rig.blob("d.vhd").await;
    assert_eq!((blob.length, blob.lease, blob.is_page_blob), (3 * MIB + LENGTH, Lease::Free, true));
    assert_eq!(blob.metadata.get(VOLUME_KEY), Some(&mark("cluster", "pvc-1")));
    let read = Call::ReadPage { offset: 3 * MIB, if_match: blob.etag.clone() };
    let Answer::Page(page) = rig.call("d.vhd", read).await else { panic!() };
    assert!(Footer::of_blob(&page, blob.length).is_ok());
    for call in bound(&tag("\"0x1\"")) {
        assert_eq!(rig.problem("d.vhd", call.clone()).await, Problem::OtherVersion, "{call:?}");
    }

    rig.lease("d.vhd").await;
    assert_eq!(rig.blob("d.vhd").await.lease, Lease::Held);
    let [_, writes @ ..] = bound(&blob.etag);
    for call in writes {
        assert_eq!(rig.problem("d.vhd", call.clone()).await, Problem::Leased, "{call:?}");
    }

    let names = ["0+a.vhd", "d.vhd", "d.vhd-2", "f/g.vhd", "x&y=z.vhd"];
    for name in names.into_iter().filter(|name| *name != "d.vhd") {
        rig.make(name, MIB + LENGTH).await;
    }
    rig.blobs.page = 2;
    let listed = rig.blobs.list(&vhds1(), "vhds", Show::Disks, &an_hour()).await.unwrap().unwrap();
    assert_eq!(listed.iter().map(|blob| blob.name.as_str()).collect::<Vec<_>>(), names);
    for entry in &listed {
        assert_eq!(entry.blob, rig.blob(&entry.name).await, "{}", entry.name);
    }
    assert_eq!(rig.blobs.list(&vhds1(), "none", Show::Disks, &an_hour()).await.unwrap(), None);
    for with_deleted in [false, true] {
        assert_eq!(rig.blobs.containers(&vhds1(), with_deleted, &an_hour()).await.unwrap(), ["vhds"]);
    }

    rig.snapshot("f/g.vhd").await;
    let Answer::Snapshots(times) = rig.call("f/g.vhd", Call::ListSnapshots).await else { panic!() };
    assert_eq!(times.len(), 1, "{times:?}");
    // Azurite forgets what has the name with which a page ends.
    rig.blobs.page = wire::PAGE;
    let all = rig.blobs.list(&vhds1(), "vhds", Show::Everything, &an_hour()).await.unwrap().unwrap();
    assert_eq!(all.iter().filter(|entry| entry.snapshot.is_some()).count(), 1);
    let delete = Call::DeleteBlob { if_match: rig.etag("f/g.vhd").await };
    assert_eq!(rig.problem("f/g.vhd", delete).await, Problem::HasSnapshots);
    let delete = Call::DeleteBlob { if_match: rig.etag("x&y=z.vhd").await };
    assert_eq!(rig.done("x&y=z.vhd", delete).await, None);

    // A key that is none of Azurite's. Azure calls that `AuthenticationFailed`.
    rig.draw_key().await;
    rig.blobs.keys.forget(&vhds1());
    let (problem, error) = rig.refused("d.vhd", Call::ReadContainer).await;
    assert_eq!((problem, error.code()), (Problem::Other(Fault::Forbidden), "AuthorizationFailure"));
}
