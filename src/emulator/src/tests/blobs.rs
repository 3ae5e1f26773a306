//! The blob service: who may use it, containers, page blobs, leases, snapshots, copies, lists, and what outlives a start.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use super::state_file::Folder;
use super::storage_accounts::{account, account_uri, action};
use super::*;

const VERSION: &str = "2020-10-02";
const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";

/// An emulator with an account and a client that signs by itself.
pub(super) struct Blobs {
    pub(super) rig: Rig,
    pub(super) key: String,
}

pub(super) struct Told {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Told {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.body
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{} {}", self.header("x-ms-error-code"), self.text());
        self
    }

    #[track_caller]
    pub(super) fn refused(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status, self.header("x-ms-error-code")), (status, code), "{}", self.text());
        self
    }

    /// The texts of an element of the body.
    fn all(&self, element: &str) -> Vec<String> {
        let (text, start) = (self.text(), format!("<{element}>"));
        let parts = text.split(&start).skip(1);
        parts.map(|part| part.split("</").next().unwrap().to_owned()).collect()
    }
}

pub(super) fn plain() -> Value {
    let mut body = account("Standard_LRS", "StorageV2");
    body["properties"] = json!({"supportsHttpsTrafficOnly": false});
    body
}

/// The signature of a request, as the description of Shared Key says.
fn signature(key: &str, method: &str, uri: &str, headers: &[(String, String)], length: usize) -> String {
    let get = |name: &str| headers.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value.as_str());
    let length = if length == 0 { String::new() } else { length.to_string() };
    let mut own: Vec<String> = headers
        .iter()
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    own.sort();
    let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
    let mut pairs: Vec<String> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| format!("\n{}", pair.replacen('=', ":", 1)))
        .collect();
    pairs.sort();
    let text = format!(
        "{method}\n\n\n{length}\n\n{}\n\n{}\n{}\n{}\n{}\n{}\n{}/vhds1{path}{}",
        get("content-type"),
        get("if-modified-since"),
        get("if-match"),
        get("if-none-match"),
        get("if-unmodified-since"),
        get("range"),
        own.concat(),
        pairs.concat()
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(key).unwrap());
    STANDARD.encode(hmac::sign(&key, text.as_bytes()))
}

impl Blobs {
    async fn new() -> Self {
        Self::of(Rig::new(options()).await, plain()).await
    }

    pub(super) async fn of(rig: Rig, account: Value) -> Self {
        rig.account("vhds1", account).await;
        let key = rig.keys("vhds1").await.remove(0);
        Self { rig, key }
    }

    /// A request to the account by its host, signed.
    pub(super) async fn send(&self, method: &str, uri: &str, extra: &[(&str, &str)], body: &[u8]) -> Told {
        let headers = self.signed(method, uri, extra, body);
        self.raw("vhds1.blob.core.windows.net", method, uri, &headers, body).await
    }

    /// The headers of such a request.
    pub(super) fn signed(&self, method: &str, uri: &str, extra: &[(&str, &str)], body: &[u8]) -> Vec<(String, String)> {
        let mut headers: Vec<(String, String)> =
            extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        for (name, value) in [("x-ms-date", DATE), ("x-ms-version", VERSION)] {
            if !headers.iter().any(|(own, _)| own == name) {
                headers.push((name.to_owned(), value.to_owned()));
            }
        }
        let signature = signature(&self.key, method, uri, &headers, body.len());
        headers.push(("authorization".to_owned(), format!("SharedKey vhds1:{signature}")));
        headers
    }

    async fn raw(&self, host: &str, method: &str, uri: &str, headers: &[(String, String)], body: &[u8]) -> Told {
        let mut request = Request::builder().method(method).uri(uri).header("host", host);
        if !body.is_empty() {
            request = request.header("content-length", body.len());
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body.to_vec())).unwrap();
        let response = self.rig.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes().to_vec();
        Told { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(super) async fn container(&self) {
        self.send("PUT", "/vhds?restype=container", &[], b"").await.expect(201);
    }

    pub(super) async fn page_blob(&self, name: &str, length: u64) -> Told {
        self.put(name, length, &[]).await.expect(201)
    }

    async fn put(&self, name: &str, length: u64, extra: &[(&str, &str)]) -> Told {
        let length = length.to_string();
        let mut headers = vec![("x-ms-blob-type", "PageBlob"), ("x-ms-blob-content-length", length.as_str())];
        headers.extend(extra);
        self.send("PUT", &format!("/vhds/{name}"), &headers, b"").await
    }

    pub(super) async fn put_page(&self, name: &str, start: u64, bytes: &[u8], extra: &[(&str, &str)]) -> Told {
        let range = format!("bytes={start}-{}", start + bytes.len() as u64 - 1);
        let mut headers = vec![("x-ms-page-write", "update"), ("x-ms-range", range.as_str())];
        headers.extend(extra);
        self.send("PUT", &format!("/vhds/{name}?comp=page"), &headers, bytes).await
    }

    async fn clear(&self, name: &str, range: &str) -> Told {
        let headers = [("x-ms-page-write", "clear"), ("x-ms-range", range)];
        self.send("PUT", &format!("/vhds/{name}?comp=page"), &headers, b"").await
    }

    pub(super) async fn ranges(&self, name: &str) -> Vec<(u64, u64)> {
        let told = self.send("GET", &format!("/vhds/{name}?comp=pagelist"), &[], b"").await.expect(200);
        let (starts, ends) = (told.all("Start"), told.all("End"));
        starts.iter().zip(&ends).map(|(start, end)| (start.parse().unwrap(), end.parse().unwrap())).collect()
    }

    pub(super) async fn read(&self, name: &str, range: &str) -> Vec<u8> {
        self.send("GET", &format!("/vhds/{name}"), &[("x-ms-range", range)], b"").await.expect(206).body
    }

    pub(super) async fn head(&self, name: &str) -> Told {
        self.send("HEAD", &format!("/vhds/{name}"), &[], b"").await.expect(200)
    }

    pub(super) async fn lease(&self, name: &str, action: &str, extra: &[(&str, &str)]) -> Told {
        let mut headers = vec![("x-ms-lease-action", action)];
        headers.extend(extra);
        self.send("PUT", &format!("/vhds/{name}?comp=lease"), &headers, b"").await
    }

    async fn change_account(&self, properties: Value) {
        let change = json!({ "properties": properties });
        self.rig.call("PATCH", &account_uri("vhds1"), Some(change)).await.expect(200);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_signed_with_a_key_that_the_account_has_now() {
    let mut blobs = Blobs::new().await;
    blobs.container().await;
    let list = "/?comp=list";
    let told = blobs.send("GET", list, &[("x-ms-client-request-id", "mine")], b"").await.expect(200);
    assert_eq!(told.all("Name"), ["vhds"]);
    assert!(told.text().starts_with("\u{feff}<?xml"), "{}", told.text());
    assert_eq!((told.header("x-ms-version"), told.header("x-ms-client-request-id")), (VERSION, "mine"));
    assert!(!told.header("x-ms-request-id").is_empty() && !told.header("date").is_empty());
    let new = blobs.rig.call("POST", &action("vhds1", "regenerateKey"), Some(json!({"keyName": "key1"}))).await;
    let old = blobs.key.clone();
    let told = blobs.send("GET", list, &[], b"").await.refused(403, "AuthenticationFailed");
    let detail = told.all("AuthenticationErrorDetail").concat();
    assert!(detail.contains("x-ms-version:2020-10-02\n/vhds1/\ncomp:list"), "{detail}");
    blobs.key = new.expect(200).body["keys"][0]["value"].as_str().unwrap().to_owned();
    assert_ne!(blobs.key, old);
    blobs.send("GET", list, &[], b"").await.expect(200);
    blobs.key = blobs.rig.keys("vhds1").await.remove(1);
    blobs.send("GET", list, &[], b"").await.expect(200);
}

#[tokio::test(start_paused = true)]
async fn an_account_may_refuse_http_keys_and_strangers() {
    let blobs = Blobs::new().await;
    let version = [("x-ms-version".to_owned(), VERSION.to_owned())];
    let host = "vhds1.blob.core.windows.net";
    blobs.raw(host, "GET", "/?comp=list", &version, b"").await.refused(409, "PublicAccessNotPermitted");
    let other = "vhds2.blob.localhost:7";
    blobs.raw(other, "GET", "/?comp=list", &version, b"").await.refused(404, "ResourceNotFound");
    let signed = |scheme: &str| {
        let authorization = format!("{scheme} vhds1:eA==");
        [version[0].clone(), ("authorization".to_owned(), authorization), ("x-ms-date".to_owned(), DATE.to_owned())]
    };
    for scheme in ["SharedKey", "SharedKeyLite", "Bearer"] {
        let told = blobs.raw(host, "GET", "/?comp=list", &signed(scheme), b"").await;
        told.refused(403, "AuthenticationFailed");
    }
    blobs.send("GET", "/?comp=list", &[("x-ms-version", "2020-10-03")], b"").await.refused(400, "InvalidHeaderValue");
    blobs.change_account(json!({"allowSharedKeyAccess": false})).await;
    let told = blobs.send("GET", "/?comp=list", &[], b"").await;
    told.refused(403, "KeyBasedAuthenticationNotPermitted");
    blobs.change_account(json!({"allowSharedKeyAccess": true, "supportsHttpsTrafficOnly": true})).await;
    blobs.send("GET", "/?comp=list", &[], b"").await.refused(400, "AccountRequiresHttps");
}

#[tokio::test(start_paused = true)]
async fn a_container_is_made_read_changed_and_its_name_is_free_30_seconds_after_it() {
    let blobs = Blobs::new().await;
    let uri = "/vhds?restype=container";
    blobs.send("PUT", uri, &[("x-ms-meta-a", "1")], b"").await.expect(201);
    blobs.send("PUT", uri, &[], b"").await.refused(409, "ContainerAlreadyExists");
    blobs.send("PUT", "/Vhds?restype=container", &[], b"").await.refused(400, "InvalidResourceName");
    let public = [("x-ms-blob-public-access", "blob")];
    blobs.send("PUT", "/open?restype=container", &public, b"").await.refused(409, "PublicAccessNotPermitted");
    let told = blobs.send("HEAD", uri, &[], b"").await.expect(200);
    assert_eq!((told.header("x-ms-meta-a"), told.header("x-ms-lease-state")), ("1", "available"));
    let before = told.header("etag").to_owned();
    blobs.send("PUT", "/vhds?restype=container&comp=metadata", &[("x-ms-meta-b", "2")], b"").await.expect(200);
    let told = blobs.send("GET", uri, &[], b"").await.expect(200);
    assert_eq!((told.header("x-ms-meta-a"), told.header("x-ms-meta-b")), ("", "2"));
    assert_ne!(told.header("etag"), before);
    blobs.page_blob("x", 512).await;
    blobs.send("DELETE", uri, &[("if-match", &before)], b"").await.refused(412, "ConditionNotMet");
    blobs.send("DELETE", uri, &[], b"").await.expect(202);
    blobs.send("PUT", uri, &[], b"").await.refused(409, "ContainerBeingDeleted");
    blobs.send("GET", uri, &[], b"").await.refused(404, "ContainerNotFound");
    blobs.put("x", 512, &[]).await.refused(404, "ContainerNotFound");
    assert!(blobs.send("GET", "/?comp=list", &[], b"").await.all("Name").is_empty());
    tokio::time::sleep(Duration::from_secs(31)).await;
    blobs.container().await;
    blobs.send("HEAD", "/vhds/x", &[], b"").await.refused(404, "BlobNotFound");
}

#[tokio::test(start_paused = true)]
async fn a_page_blob_is_zero_until_its_pages_are_written() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    let gib = 1_u64 << 30;
    let made = blobs.put("Disk.vhd", gib + 512, &[("x-ms-meta-createdby", "me")]).await.expect(201);
    let footer = [7_u8; 512];
    let written = blobs.put_page("Disk.vhd", gib, &footer, &[]).await.expect(201);
    assert_ne!(written.header("etag"), made.header("etag"));
    assert_eq!(written.header("x-ms-blob-sequence-number"), "0");
    let head = blobs.head("Disk.vhd").await;
    assert_eq!((head.header("content-length"), head.header("x-ms-blob-type")), ("1073742336", "PageBlob"));
    assert_eq!((head.header("x-ms-meta-createdby"), head.header("x-ms-lease-status")), ("me", "unlocked"));
    assert_eq!(head.header("etag"), written.header("etag"));
    assert_eq!(head.header("last-modified"), DATE);
    blobs.send("HEAD", "/vhds/disk.vhd", &[], b"").await.refused(404, "BlobNotFound");
    assert_eq!(blobs.read("Disk.vhd", "bytes=1073741823-1073741824").await, [0, 7]);
    assert_eq!(blobs.read("Disk.vhd", "bytes=1073742335-").await, [7]);
    let told = blobs.send("GET", "/vhds/Disk.vhd", &[("range", "bytes=1073742336-")], b"").await;
    told.refused(416, "InvalidRange");
    blobs.put_page("Disk.vhd", 0, &[1; 2048], &[]).await.expect(201);
    blobs.clear("Disk.vhd", "bytes=512-1023").await.expect(201);
    assert_eq!(blobs.ranges("Disk.vhd").await, [(0, 511), (1024, 2047), (gib, gib + 511)]);
    assert_eq!(blobs.read("Disk.vhd", "bytes=511-1024").await.iter().filter(|byte| **byte == 1).count(), 2);
    blobs.put_page("Disk.vhd", gib + 512, &footer, &[]).await.refused(416, "InvalidPageRange");
    blobs.put_page("Disk.vhd", 1, &footer, &[]).await.refused(416, "InvalidPageRange");
    let short = [("x-ms-page-write", "update"), ("x-ms-range", "bytes=0-1023")];
    let told = blobs.send("PUT", "/vhds/Disk.vhd?comp=page", &short, &footer).await;
    told.refused(400, "InvalidHeaderValue");
    blobs.put_page("Disk.vhd", 0, &vec![1; 4 << 20], &[]).await.expect(201);
    blobs.put_page("Disk.vhd", 0, &vec![1; (4 << 20) + 512], &[]).await.refused(413, "RequestBodyTooLarge");
    blobs.put("odd", 513, &[]).await.refused(400, "InvalidHeaderValue");
    blobs.put("huge", (8 << 40) + 512, &[]).await.refused(400, "InvalidHeaderValue");
    blobs.put("largest", 8 << 40, &[]).await.expect(201);
    let told = blobs.send("GET", "/vhds/Disk.vhd?comp=pagelist&prevsnapshot=x", &[], b"").await;
    told.refused(400, "InvalidQueryParameterValue");
}

#[tokio::test(start_paused = true)]
async fn a_page_blob_grows_with_zeros_and_shrinks_for_good() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    blobs.page_blob("x", 1024).await;
    blobs.put_page("x", 0, &[1; 1024], &[]).await.expect(201);
    let resize = async |length: &str| {
        blobs.send("PUT", "/vhds/x?comp=properties", &[("x-ms-blob-content-length", length)], b"").await
    };
    for length in ["512", "2048"] {
        resize(length).await.expect(200);
        assert_eq!(blobs.head("x").await.header("content-length"), length);
    }
    assert_eq!(blobs.ranges("x").await, [(0, 511)]);
    assert_eq!(blobs.read("x", "bytes=511-1024").await.iter().filter(|byte| **byte != 0).count(), 1);
    resize("513").await.refused(400, "InvalidHeaderValue");
    let kind = [("x-ms-blob-content-type", "text/plain")];
    blobs.send("PUT", "/vhds/x?comp=properties", &kind, b"").await.expect(200);
    assert_eq!(blobs.head("x").await.header("content-type"), "text/plain");
    resize("4096").await.expect(200);
    assert_eq!(blobs.head("x").await.header("content-type"), "text/plain");
}

#[tokio::test(start_paused = true)]
async fn conditions_keep_a_write_from_what_it_does_not_expect() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    let nothing = [("if-none-match", "*")];
    let first = blobs.put("x", 1024, &nothing).await.expect(201).header("etag").to_owned();
    blobs.put("x", 1024, &nothing).await.refused(409, "BlobAlreadyExists");
    blobs.put("y", 1024, &[("if-match", "*")]).await.refused(412, "ConditionNotMet");
    let second = blobs.put_page("x", 0, &[1; 512], &[("if-match", &first)]).await.expect(201);
    blobs.put_page("x", 0, &[2; 512], &[("if-match", &first)]).await.refused(412, "ConditionNotMet");
    blobs.put_page("x", 0, &[2; 512], &nothing).await.refused(412, "ConditionNotMet");
    let known = [("if-none-match", second.header("etag"))];
    let told = blobs.send("GET", "/vhds/x", &known, b"").await.refused(304, "ConditionNotMet");
    assert!(told.body.is_empty());
    let number = |action: &'static str, number: &'static str| {
        [("x-ms-sequence-number-action", action), ("x-ms-blob-sequence-number", number)]
    };
    let set = blobs.send("PUT", "/vhds/x?comp=properties", &number("update", "7"), b"").await.expect(200);
    assert_eq!(set.header("x-ms-blob-sequence-number"), "7");
    blobs.send("PUT", "/vhds/x?comp=properties", &number("max", "5"), b"").await.expect(200);
    let increment = [("x-ms-sequence-number-action", "increment")];
    let told = blobs.send("PUT", "/vhds/x?comp=properties", &increment, b"").await.expect(200);
    assert_eq!(told.header("x-ms-blob-sequence-number"), "8");
    for (condition, holds) in [("le", true), ("lt", false), ("eq", true)] {
        let header = format!("x-ms-if-sequence-number-{condition}");
        let told = blobs.put_page("x", 0, &[3; 512], &[(&header, "8")]).await;
        match holds {
            true => drop(told.expect(201)),
            false => drop(told.refused(412, "SequenceNumberConditionNotMet")),
        }
    }
    // An etag never comes back, even where a blob is made anew at the same moment.
    blobs.send("DELETE", "/vhds/x", &[], b"").await.expect(202);
    let anew = blobs.page_blob("x", 1024).await;
    assert_ne!(anew.header("etag"), first);
}

#[tokio::test(start_paused = true)]
async fn a_lease_keeps_all_writes_off_but_its_own() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    blobs.page_blob("x", 1024).await;
    let etag = blobs.head("x").await.header("etag").to_owned();
    let infinite = [("x-ms-lease-duration", "-1")];
    let id = blobs.lease("x", "acquire", &infinite).await.expect(201).header("x-ms-lease-id").to_owned();
    blobs.lease("x", "acquire", &infinite).await.refused(409, "LeaseAlreadyPresent");
    let head = blobs.head("x").await;
    assert_eq!((head.header("x-ms-lease-status"), head.header("x-ms-lease-state")), ("locked", "leased"));
    assert_eq!((head.header("x-ms-lease-duration"), head.header("etag")), ("infinite", etag.as_str()));
    let (own, other) = ([("x-ms-lease-id", id.as_str())], [("x-ms-lease-id", "6d5d5d5d-0000-4000-8000-000000000001")]);
    for (lease, code) in [(&[][..], "LeaseIdMissing"), (&other[..], "LeaseIdMismatchWithBlobOperation")] {
        blobs.put_page("x", 0, &[1; 512], lease).await.refused(412, code);
        blobs.put("x", 512, lease).await.refused(412, code);
        blobs.send("DELETE", "/vhds/x", lease, b"").await.refused(412, code);
        blobs.send("PUT", "/vhds/x?comp=metadata", lease, b"").await.refused(412, code);
        let resize = [&[("x-ms-blob-content-length", "512")], lease].concat();
        blobs.send("PUT", "/vhds/x?comp=properties", &resize, b"").await.refused(412, code);
    }
    blobs.put_page("x", 0, &[1; 512], &own).await.expect(201);
    assert_eq!(blobs.read("x", "bytes=0-0").await, [1]);
    blobs.lease("x", "renew", &other).await.refused(409, "LeaseIdMismatchWithLeaseOperation");
    blobs.lease("x", "break", &[("x-ms-lease-break-period", "20")]).await.expect(202);
    assert_eq!(blobs.head("x").await.header("x-ms-lease-state"), "breaking");
    blobs.put_page("x", 0, &[1; 512], &[]).await.refused(412, "LeaseIdMissing");
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(blobs.head("x").await.header("x-ms-lease-state"), "broken");
    blobs.put_page("x", 0, &[1; 512], &own).await.refused(412, "LeaseLost");
    blobs.put_page("x", 0, &[1; 512], &[]).await.expect(201);
    assert_eq!(blobs.head("x").await.header("x-ms-lease-state"), "available");
    blobs.put_page("x", 0, &[1; 512], &own).await.refused(412, "LeaseNotPresentWithBlobOperation");
    let id = blobs.lease("x", "acquire", &infinite).await.expect(201).header("x-ms-lease-id").to_owned();
    let changed = blobs.lease("x", "change", &[("x-ms-lease-id", &id), ("x-ms-proposed-lease-id", other[0].1)]).await;
    assert_eq!(changed.expect(200).header("x-ms-lease-id"), other[0].1);
    blobs.lease("x", "release", &other).await.expect(200);
    blobs.lease("x", "release", &other).await.refused(409, "LeaseIdMismatchWithLeaseOperation");
    blobs.send("DELETE", "/vhds/x", &[], b"").await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn a_leased_container_is_not_deleted() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    let acquire = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "15")];
    let leased = blobs.send("PUT", "/vhds?restype=container&comp=lease", &acquire, b"").await.expect(201);
    blobs.send("DELETE", "/vhds?restype=container", &[], b"").await.refused(412, "LeaseIdMissing");
    blobs.page_blob("x", 512).await;
    let own = [("x-ms-lease-id", leased.header("x-ms-lease-id"))];
    blobs.send("DELETE", "/vhds?restype=container", &own, b"").await.expect(202);
}

#[tokio::test(start_paused = true)]
async fn snapshots_stay_as_they_are_and_keep_their_blob() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    blobs.page_blob("x", 1 << 20).await;
    blobs.put_page("x", 512, &[1; 512], &[]).await.expect(201);
    let take = async || {
        let told = blobs.send("PUT", "/vhds/x?comp=snapshot", &[], b"").await.expect(201);
        told.header("x-ms-snapshot").to_owned()
    };
    let first = take().await;
    let second = take().await;
    assert_eq!((first.as_str(), second.as_str()), ("2026-01-01T00:00:00.0000000Z", "2026-01-01T00:00:00.0000001Z"));
    blobs.put_page("x", 512, &[2; 512], &[]).await.expect(201);
    let of_first = format!("/vhds/x?snapshot={first}");
    let told = blobs.send("GET", &of_first, &[("x-ms-range", "bytes=512-512")], b"").await.expect(206);
    assert_eq!((told.body.as_slice(), told.header("x-ms-lease-state")), (&[1_u8][..], ""));
    let told = blobs.send("PUT", &format!("/vhds/x?comp=metadata&snapshot={first}"), &[], b"").await;
    told.refused(400, "InvalidQueryParameterValue");
    blobs.send("DELETE", "/vhds/x", &[], b"").await.refused(409, "SnapshotsPresent");
    blobs.send("DELETE", &of_first, &[], b"").await.expect(202);
    blobs.send("HEAD", &of_first, &[], b"").await.refused(404, "BlobNotFound");
    blobs.send("DELETE", "/vhds/x", &[("x-ms-delete-snapshots", "only")], b"").await.expect(202);
    blobs.head("x").await;
    take().await;
    blobs.send("DELETE", "/vhds/x", &[("x-ms-delete-snapshots", "include")], b"").await.expect(202);
    let told = blobs.send("GET", "/vhds?restype=container&comp=list&include=snapshots", &[], b"").await;
    assert!(told.all("Name").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_blob_is_copied_within_its_account() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    blobs.put("x", 4096, &[("x-ms-meta-a", "1")]).await.expect(201);
    blobs.put_page("x", 512, &[1; 512], &[]).await.expect(201);
    let snapshot = blobs.send("PUT", "/vhds/x?comp=snapshot", &[], b"").await.header("x-ms-snapshot").to_owned();
    blobs.put_page("x", 0, &[2; 512], &[]).await.expect(201);
    let source = format!("https://vhds1.blob.core.windows.net/vhds/x?snapshot={snapshot}");
    let told = blobs.send("PUT", "/vhds/y", &[("x-ms-copy-source", &source)], b"").await.expect(202);
    assert_eq!(told.header("x-ms-copy-status"), "success");
    let head = blobs.head("y").await;
    assert_eq!((head.header("x-ms-copy-id"), head.header("x-ms-meta-a")), (told.header("x-ms-copy-id"), "1"));
    assert_eq!(head.header("x-ms-copy-progress"), "4096/4096");
    assert_eq!(blobs.ranges("y").await, [(512, 1023)]);
    for source in ["https://vhds1.blob.core.windows.net/vhds/z", "https://other.blob.core.windows.net/vhds/x"] {
        let told = blobs.send("PUT", "/vhds/y", &[("x-ms-copy-source", source)], b"").await;
        told.refused(404, "CannotVerifyCopySource");
    }
    let abort = [("x-ms-copy-action", "abort")];
    blobs.send("PUT", "/vhds/y?comp=copy&copyid=x", &abort, b"").await.refused(409, "NoPendingCopyOperation");
}

#[tokio::test(start_paused = true)]
async fn blobs_are_listed_by_prefix_page_and_folder() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    for name in ["B", "a/1", "a/2", "b", "c<&"] {
        let name = name.replace('<', "%3C");
        blobs.put(&name, 512, &[("x-ms-meta-k", "v&")]).await.expect(201);
    }
    let snapshot = blobs.send("PUT", "/vhds/b?comp=snapshot", &[], b"").await.header("x-ms-snapshot").to_owned();
    let list = async |query: &str| {
        blobs.send("GET", &format!("/vhds?restype=container&comp=list{query}"), &[], b"").await.expect(200)
    };
    let all = list("&include=metadata").await;
    assert_eq!(all.all("Name"), ["B", "a/1", "a/2", "b", "c&lt;&amp;"]);
    assert_eq!((all.all("k").len(), all.all("BlobType").concat().len()), (5, 40));
    assert_eq!(all.all("Content-Length"), ["512"; 5]);
    assert!(all.text().contains("<NextMarker />"), "{}", all.text());
    assert_eq!(list("&prefix=a/").await.all("Name"), ["a/1", "a/2"]);
    let folders = list("&delimiter=/").await;
    assert_eq!(folders.all("Name"), ["B", "a/", "b", "c&lt;&amp;"]);
    assert_eq!(folders.text().matches("<BlobPrefix>").count(), 1);
    let with_snapshots = list("&include=snapshots&prefix=b").await;
    assert_eq!((with_snapshots.all("Name"), with_snapshots.all("Snapshot")), (vec!["b".to_owned(); 2], vec![snapshot]));
    let (mut names, mut marker) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = list(&format!("&marker={marker}&maxresults=2")).await;
        names.extend(page.all("Name"));
        marker = page.all("NextMarker").concat();
    }
    assert_eq!((names, marker.as_str()), (all.all("Name"), ""));
    let wrong = "/vhds?restype=container&comp=list&maxresults=0";
    blobs.send("GET", wrong, &[], b"").await.refused(400, "OutOfRangeQueryParameterValue");
}

#[tokio::test(start_paused = true)]
async fn blobs_outlive_the_emulator_with_its_state_and_go_with_their_account() {
    let folder = Folder::new("blobs");
    let blobs = Blobs::of(Rig::new(folder.options()).await, plain()).await;
    blobs.container().await;
    let list = format!("{}/resources?api-version=2021-04-01", group());
    let before = blobs.rig.get(&list).await.expect(200).body;
    for name in ["x", "lost"] {
        blobs.page_blob(name, 2 << 20).await;
        blobs.put_page(name, 1 << 20, &[1; 512], &[]).await.expect(201);
    }
    assert_eq!(blobs.rig.get(&list).await.expect(200).body, before, "the resource manager shows no blobs");
    let overview = blobs.rig.get("/_emulator/overview").await.expect(200).body.to_string();
    assert!(!overview.contains("lazuli/blob"), "the page shows no blobs");
    let infinite = [("x-ms-lease-duration", "-1")];
    let id = blobs.lease("x", "acquire", &infinite).await.expect(201).header("x-ms-lease-id").to_owned();
    let etag = blobs.head("x").await.header("etag").to_owned();
    let Blobs { rig, key } = blobs;
    rig.emulator.shutdown().await;
    let files = folder.options().state_file.unwrap().with_extension("new.blobs");
    // A kill came between the removal of a file and the state file, and between a new file and the state file.
    std::fs::remove_file(files.join("00000002.blob")).unwrap();
    std::fs::write(files.join("00000009.blob"), "x").unwrap();
    std::fs::File::options().write(true).open(files.join("00000001.blob")).unwrap().set_len(3 << 20).unwrap();
    let blobs = Blobs { rig: Rig::new(folder.options()).await, key };
    let head = blobs.head("x").await;
    assert_eq!((head.header("etag"), head.header("content-length")), (etag.as_str(), "2097152"));
    assert_eq!(blobs.read("x", "bytes=1048575-1048576").await, [0, 1]);
    assert_eq!(blobs.ranges("x").await, [(1 << 20, (1 << 20) + 511)]);
    blobs.send("HEAD", "/vhds/lost", &[], b"").await.refused(404, "BlobNotFound");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&files).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert_eq!(names(), ["00000001.blob"]);
    blobs.put_page("x", 0, &[1; 512], &[]).await.refused(412, "LeaseIdMissing");
    let written = blobs.put_page("x", 0, &[1; 512], &[("x-ms-lease-id", &id)]).await.expect(201);
    assert_ne!(written.header("etag"), etag);
    blobs.rig.call("DELETE", &account_uri("vhds1"), None).await.expect(200);
    assert!(names().is_empty());
    blobs.send("HEAD", "/vhds/x", &[], b"").await.refused(404, "ResourceNotFound");
}

#[tokio::test(start_paused = true)]
async fn incidents_strike_the_blob_service_and_calls_are_logged() {
    let blobs = Blobs::new().await;
    blobs.container().await;
    let control = blobs.rig.control();
    let incident = |text: &str| serde_json::from_value(serde_json::from_str(text).unwrap()).unwrap();
    control
        .add_incident(incident(
            r#"{"match": {"operation": "blob.put"}, "then": {"status": 503, "code": "ServerBusy"}}"#,
        ))
        .unwrap();
    let told = blobs.put("x", 512, &[]).await.refused(503, "ServerBusy");
    assert_eq!(told.all("Code"), ["ServerBusy"]);
    blobs.send("HEAD", "/vhds/x", &[], b"").await.refused(404, "BlobNotFound");
    blobs.page_blob("x", 512).await;
    let last = control.call_log().pop().unwrap();
    assert_eq!((last.plane.as_str(), last.operation.as_str(), last.status), ("blob", "blob.put", 201));
    assert_eq!((last.path.as_str(), last.api_version.as_deref()), ("/vhds/x", Some(VERSION)));
    blobs.put_page("x", 512, &[1; 512], &[]).await.refused(416, "InvalidPageRange");
    assert_eq!(control.call_log().pop().unwrap().code.as_deref(), Some("InvalidPageRange"));
    blobs.send("PUT", "/vhds/x?comp=tier", &[], b"").await.refused(501, "NotImplemented");
    blobs.send("POST", "/vhds/x", &[], b"").await.refused(405, "UnsupportedHttpVerb");
}
