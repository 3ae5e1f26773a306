//! Recorded traffic of Azure, replayed against the emulator.
//!
//! A cassette holds the requests a Go client once sent to Azure and the answers it got (go-vcr,
//! version 2). Each is sent again, in order, to an emulator that knows only the subscription; its
//! answer must have the same status, the same headers and a body of the same shape and values. The
//! recorder replaced GUIDs and times and dropped a few headers, so the same is done to the
//! emulator's answers before they are compared. Operation URLs differ by nature: the emulator's own
//! are followed, until the operation is over.
//!
//! The cassettes are not part of this repository. `LAZULI_AZURE_DATA` names the folder that holds
//! `recordings/`; without it `../shared/azure-data` is tried. Where neither is there the test says so
//! and does nothing, except under `CI=true`, where that is a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lazuli_emulator::{Emulator, Options};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Where the recorded client believed Azure to be.
const AZURE: &str = "https://management.azure.com";
/// What the recorder put in place of every GUID.
const GUID: &str = "00000000-0000-0000-0000-000000000000";
/// What the recorder put in place of every time.
const TIME: &str = "2001-02-03T04:05:06Z";

/// Headers whose absence or presence says nothing: they belong to the connection, or the recorder
/// removed them from what it stored.
const UNCOMPARED_HEADERS: &[&str] = &[
    "connection",
    "content-length",
    "date",
    "retry-after",
    "server",
    "transfer-encoding",
    "vary",
    "x-ms-client-request-id",
    "x-ms-correlation-request-id",
    "x-ms-ratelimit-remaining-resource",
    "x-ms-request-id",
    "x-ms-routing-request-id",
    "x-msedge-ref",
];

/// Headers that are compared where they were recorded and allowed where they were not: front ends of
/// the earlier recordings did not name the operation yet, and the last three are the documented names
/// of what the recorded front ends call `…-subscription-global-…`.
const NOT_EVERYWHERE: &[&str] = &[
    "x-ms-operation-identifier",
    "x-ms-ratelimit-remaining-subscription-deletes",
    "x-ms-ratelimit-remaining-subscription-reads",
    "x-ms-ratelimit-remaining-subscription-writes",
];

/// Members that the recorder's own subscription put into a body: a policy there stamps each new
/// resource group with the time of its creation.
const OF_THE_RECORDERS_SUBSCRIPTION: &[&str] = &["/tags/createdAt"];

/// Members whose value Azure makes up; that they are there and of which type is compared.
const FREE_VALUES: &[&str] = &["exactVersion", "internalDomainNameSuffix", "ipAddress"];

#[derive(Deserialize)]
struct Cassette {
    interactions: Vec<Interaction>,
}

#[derive(Deserialize)]
struct Interaction {
    id: u32,
    request: Recorded,
    response: Answered,
}

#[derive(Deserialize)]
struct Recorded {
    method: String,
    url: String,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
struct Answered {
    code: u16,
    body: String,
    headers: BTreeMap<String, Vec<String>>,
}

/// An answer of the emulator. Header names are in lower case.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    /// Whether it says that an operation still runs.
    fn is_pending(&self) -> bool {
        let says_so = serde_json::from_str::<Value>(&self.body)
            .ok()
            .and_then(|body| body.get("status")?.as_str().map(|status| status == "InProgress"))
            .unwrap_or(false);
        self.status == 202 || says_so
    }
}

/// One request over a connection of its own: the client under test is Azure's recorded one, so no
/// library may add to or tidy up what goes over the wire.
pub(crate) async fn exchange(
    url: &str,
    method: &str,
    headers: &[(String, String)],
    body: &str,
) -> std::io::Result<Answer> {
    let without_scheme = url.strip_prefix("http://").unwrap_or(url);
    let (authority, target) = without_scheme.split_at(without_scheme.find('/').unwrap_or(without_scheme.len()));
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n");
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    let _ = write!(request, "Content-Length: {}\r\n\r\n{body}", body.len());

    let mut stream = TcpStream::connect(authority).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut raw = Vec::new();
    stream.read_to_end(&mut raw).await?;
    parse_answer(&raw).ok_or_else(|| std::io::Error::other(format!("{method} {url}: not an HTTP answer")))
}

/// Reads an HTTP/1.1 answer, chunked or not.
fn parse_answer(raw: &[u8]) -> Option<Answer> {
    let text = String::from_utf8_lossy(raw);
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: BTreeMap<String, String> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let chunked = headers.get("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    let mut body = String::new();
    if chunked {
        let mut rest = rest;
        while let Some((size, after)) = rest.split_once("\r\n") {
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            if size == 0 {
                break;
            }
            body.push_str(after.get(..size)?);
            rest = after.get(size..)?.trim_start_matches("\r\n");
        }
    } else {
        body.push_str(rest);
    }
    Some(Answer { status, headers, body })
}

/// Puts the recorder's GUID in place of every other.
fn without_guids(text: &str) -> String {
    const GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
    let bytes = text.as_bytes();
    let is_guid_at = |start: usize| {
        let mut at = start;
        for (group, length) in GROUPS.into_iter().enumerate() {
            if group > 0 {
                if bytes.get(at) != Some(&b'-') {
                    return false;
                }
                at += 1;
            }
            match bytes.get(at..at + length) {
                Some(part) if part.iter().all(u8::is_ascii_hexdigit) => at += length,
                _ => return false,
            }
        }
        true
    };
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        if is_guid_at(at) {
            out.push_str(GUID);
            at += GUID.len();
        } else {
            let character = text[at..].chars().next().unwrap_or_default();
            out.push(character);
            at += character.len_utf8().max(1);
        }
    }
    out
}

/// Whether the text is a moment in RFC 3339.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[..19].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            10 => *byte == b'T',
            13 | 16 => *byte == b':',
            _ => byte.is_ascii_digit(),
        })
}

/// A value as the recorder would have stored it. The base is the emulator's own address.
fn normalised(text: &str, base: &str) -> String {
    if is_time(text) { TIME.to_owned() } else { without_guids(&text.replace(base, AZURE)) }
}

/// An operation URL without what is drawn at random: its path, and the names of its parameters. The
/// id of a resource group's deletion is not a GUID, hence the last segment goes too.
fn url_shape(url: &str) -> String {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let path = match path.rsplit_once("/operationresults/") {
        Some((before, _)) => format!("{before}/operationresults/*"),
        None => path.to_owned(),
    };
    let names: BTreeSet<&str> = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default()).collect();
    format!("{path} {names:?}")
}

/// What of a header's value can be expected to be the same.
fn header_shape(name: &str, value: &str, base: &str) -> String {
    let value = normalised(value, base);
    match name {
        "azure-asyncoperation" | "location" => url_shape(&value),
        // How much is left depends on who else uses the subscription.
        _ if name.starts_with("x-ms-ratelimit-remaining-") => "a number".to_owned(),
        // `tenantId=…,objectId=…/REGION/…`: the region is that of the front end.
        "x-ms-operation-identifier" => {
            let mut parts: Vec<&str> = value.split('/').collect();
            if parts.len() == 3 {
                parts[1] = "*";
            }
            parts.join("/")
        }
        _ => value,
    }
}

/// Writes down where two bodies differ, by JSON pointer.
fn compare_bodies(expected: &Value, actual: &Value, base: &str, at: &str, found: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, value) in expected {
                let here = format!("{at}/{name}");
                match actual.get(name) {
                    Some(actual) => compare_bodies(value, actual, base, &here, found),
                    None => found.push(format!("body {here}: missing, recorded {value}")),
                }
            }
            for (name, value) in actual.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                found.push(format!("body {at}/{name}: not recorded, got {value}"));
            }
        }
        (Value::Array(expected), Value::Array(actual)) => {
            if expected.len() != actual.len() {
                found.push(format!("body {at}: recorded {} elements, got {}", expected.len(), actual.len()));
            }
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                compare_bodies(expected, actual, base, &format!("{at}/{index}"), found);
            }
        }
        (Value::String(expected), Value::String(actual)) => {
            let free = at.rsplit('/').next().is_some_and(|name| FREE_VALUES.contains(&name));
            let (expected, actual) = (normalised(expected, AZURE), normalised(actual, base));
            if !free && expected != actual {
                found.push(format!("body {at}: recorded {expected:?}, got {actual:?}"));
            }
        }
        _ if expected == actual => {}
        _ => found.push(format!("body {at}: recorded {expected}, got {actual}")),
    }
}

/// Takes out of a recorded body what does not come from Azure itself.
fn without_the_recorders_policy(mut body: Value) -> Value {
    for pointer in OF_THE_RECORDERS_SUBSCRIPTION {
        let Some((parent, name)) = pointer.rsplit_once('/') else {
            continue;
        };
        let Some(object) = body.pointer_mut(parent).and_then(Value::as_object_mut) else {
            continue;
        };
        if object.remove(name).is_some() && object.is_empty() {
            // The policy made the object too.
            if let Some((above, own)) = parent.rsplit_once('/')
                && let Some(object) = body.pointer_mut(above).and_then(Value::as_object_mut)
            {
                object.remove(own);
            }
        }
    }
    body
}

/// Writes down where an answer differs from the recorded one.
fn compare(recorded: &Answered, answer: &Answer, base: &str) -> Vec<String> {
    let mut found = Vec::new();
    if recorded.code != answer.status {
        found.push(format!("status: recorded {}, got {} {}", recorded.code, answer.status, answer.body));
        return found;
    }
    let expected: BTreeMap<String, &str> = recorded
        .headers
        .iter()
        .filter_map(|(name, values)| Some((name.to_ascii_lowercase(), values.first()?.as_str())))
        .filter(|(name, _)| !UNCOMPARED_HEADERS.contains(&name.as_str()))
        .collect();
    for (name, value) in &expected {
        let shape = header_shape(name, value, AZURE);
        match answer.headers.get(name) {
            None => found.push(format!("header {name}: missing, recorded {shape:?}")),
            Some(actual) => {
                let actual = header_shape(name, actual, base);
                if actual != shape {
                    found.push(format!("header {name}: recorded {shape:?}, got {actual:?}"));
                }
            }
        }
    }
    for (name, value) in &answer.headers {
        let allowed = [UNCOMPARED_HEADERS, NOT_EVERYWHERE].concat().contains(&name.as_str());
        if !expected.contains_key(name) && !allowed {
            found.push(format!("header {name}: not recorded, got {value:?}"));
        }
    }
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    match (parsed(&recorded.body), parsed(&answer.body)) {
        (Some(expected), Some(actual)) => {
            compare_bodies(&without_the_recorders_policy(expected), &actual, base, "", &mut found);
        }
        (None, None) if recorded.body.trim() == answer.body.trim() => {}
        _ => found.push(format!("body: recorded {:?}, got {:?}", recorded.body, answer.body)),
    }
    found
}

/// Where published data of Azure is, if anywhere.
pub(crate) fn azure_data() -> PathBuf {
    std::env::var_os("LAZULI_AZURE_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/azure-data"), PathBuf::from)
}

/// Where the cassettes are, if anywhere.
fn cassette_folder() -> Option<PathBuf> {
    let folder = azure_data().join("recordings/cloud-provider-azure");
    folder.is_dir().then_some(folder)
}

/// The cassettes, or `None` where there are none and that is allowed.
fn cassette(name: &str) -> Option<Cassette> {
    let Some(folder) = cassette_folder() else {
        assert!(
            std::env::var("CI").as_deref() != Ok("true"),
            "the recorded traffic is not there: set LAZULI_AZURE_DATA to the folder that holds recordings/"
        );
        println!("skipped: no recorded traffic (LAZULI_AZURE_DATA names no folder that holds recordings/)");
        return None;
    };
    let path = folder.join(format!("{name}.AZURECLOUD.yaml"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Some(serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

/// Replays a cassette and returns every difference.
async fn replay(cassette: &Cassette) -> Vec<String> {
    let mut options = Options { accept_any_token: true, ..Options::default() };
    options.scenario.subscriptions = vec![GUID.to_owned()];
    let emulator = Emulator::start(options).await.expect("the emulator starts");
    let base = emulator.url().trim_end_matches('/').to_owned();

    // Recorded operation URL -> the emulator's, as the last answer gave it.
    let mut operations: BTreeMap<String, String> = BTreeMap::new();
    let mut found = Vec::new();
    for Interaction { id, request, response } in &cassette.interactions {
        let url = match operations.get(&request.url) {
            Some(operation) => operation.clone(),
            None => request.url.replace(AZURE, &base),
        };
        let mut headers: Vec<(String, String)> = request
            .headers
            .iter()
            .filter(|(name, _)| !name.eq_ignore_ascii_case("content-length"))
            .filter_map(|(name, values)| Some((name.clone(), values.first()?.clone())))
            .collect();
        headers.push(("Authorization".to_owned(), "Bearer any".to_owned()));

        let mut answer = exchange(&url, &request.method, &headers, &request.body).await.expect("the emulator answers");
        // The recorder kept only the last poll of an operation.
        if operations.contains_key(&request.url) {
            for _ in 0..100 {
                if !answer.is_pending() {
                    break;
                }
                let seconds = answer.headers.get("retry-after").and_then(|value| value.parse().ok()).unwrap_or(1);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                answer = exchange(&url, "GET", &headers, "").await.expect("the emulator answers");
            }
        }
        for name in ["Azure-Asyncoperation", "Location"] {
            if let Some(recorded) = response.headers.get(name).and_then(|values| values.first())
                && let Some(actual) = answer.headers.get(&name.to_ascii_lowercase())
            {
                operations.insert(recorded.clone(), actual.clone());
            }
        }
        let path = request.url.trim_start_matches(AZURE);
        found.extend(
            compare(response, &answer, &base)
                .into_iter()
                .map(|difference| format!("#{id} {} {path}\n    {difference}", request.method)),
        );
    }
    emulator.shutdown().await;
    found
}

async fn replays_without_a_difference(name: &str) {
    let Some(cassette) = cassette(name) else {
        return;
    };
    assert!(cassette.interactions.len() > 5, "{name}: the cassette was not understood");
    let found = replay(&cassette).await;
    assert!(found.is_empty(), "{name}: {} differences\n{}", found.len(), found.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn recorded_resource_groups_replay_alike() {
    replays_without_a_difference("resourcegroupclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_disks_replay_alike() {
    replays_without_a_difference("diskclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_virtual_machines_with_network_and_interface_replay_alike() {
    replays_without_a_difference("virtualmachineclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_availability_sets_replay_alike() {
    replays_without_a_difference("availabilitysetclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_virtual_networks_replay_alike() {
    replays_without_a_difference("virtualnetworkclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_public_ip_addresses_replay_alike() {
    replays_without_a_difference("publicipaddressclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_load_balancers_replay_alike() {
    replays_without_a_difference("loadbalancerclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_security_groups_replay_alike() {
    replays_without_a_difference("securitygroupclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_route_tables_replay_alike() {
    replays_without_a_difference("routetableclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_scale_sets_replay_alike() {
    replays_without_a_difference("virtualmachinescalesetclient").await;
}

#[tokio::test(start_paused = true)]
async fn recorded_private_links_replay_alike() {
    replays_without_a_difference("privateendpointclient").await;
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    Answer {
        status,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.to_owned(),
    }
}

fn recorded(code: u16, headers: &[(&str, &str)], body: &str) -> Answered {
    Answered {
        code,
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), vec![(*value).to_owned()])).collect(),
        body: body.to_owned(),
    }
}

const EMULATOR: &str = "http://127.0.0.1:4321";

#[test]
fn what_the_recorder_changed_makes_no_difference() {
    let recorded = recorded(
        202,
        &[
            ("Azure-Asyncoperation", &format!("{AZURE}/subscriptions/{GUID}/x/{GUID}?api-version=1&c=c&t=t")),
            ("X-Ms-Operation-Identifier", &format!("tenantId={GUID},objectId={GUID}/eastus2/{GUID}")),
            ("X-Ms-Ratelimit-Remaining-Subscription-Global-Writes", "2999"),
            ("Content-Length", "1"),
        ],
        &format!("{{\"uniqueId\":\"{GUID}\",\"timeCreated\":\"{TIME}\",\"tags\":{{\"createdAt\":\"{TIME}\"}}}}"),
    );
    let given = "12345678-abcd-4321-9876-0123456789ab";
    let answer = answer(
        202,
        &[
            ("azure-asyncoperation", &format!("{EMULATOR}/subscriptions/{given}/x/{given}?t=9&api-version=1&c=8")),
            ("x-ms-operation-identifier", &format!("tenantId={given},objectId={given}/westeurope/{given}")),
            ("x-ms-ratelimit-remaining-subscription-global-writes", "17"),
            ("retry-after", "10"),
        ],
        &format!("{{\"uniqueId\":\"{given}\",\"timeCreated\":\"2026-01-01T00:00:00.1234567+00:00\"}}"),
    );
    assert_eq!(compare(&recorded, &answer, EMULATOR), Vec::<String>::new());
}

#[test]
fn each_kind_of_difference_is_found() {
    let body = r#"{"a":{"b":1},"list":[1,2],"name":"x"}"#;
    let recorded = recorded(200, &[("Etag", "\"1\""), ("Location", &format!("{AZURE}/a?b=c"))], body);
    let same = [("etag", "\"1\""), ("location", "http://127.0.0.1:4321/a?b=d")];
    assert_eq!(compare(&recorded, &answer(200, &same, body), EMULATOR), Vec::<String>::new());

    let differs = |status, headers: &[(&str, &str)], body: &str| {
        compare(&recorded, &answer(status, headers, body), EMULATOR).join("; ")
    };
    assert!(differs(201, &same, body).contains("status: recorded 200, got 201"));
    assert!(differs(200, &same[..1], body).contains("header location: missing"));
    assert!(differs(200, &[same[0], ("location", "http://127.0.0.1:4321/a?q=d")], body).contains("header location"));
    assert!(differs(200, &[("etag", "\"2\""), same[1]], body).contains("header etag: recorded"));
    assert!(differs(200, &[same[0], same[1], ("x-new", "1")], body).contains("header x-new: not recorded"));
    for (changed, difference) in [
        (r#"{"a":{"b":"1"},"list":[1,2],"name":"x"}"#, "body /a/b"),
        (r#"{"a":{},"list":[1,2],"name":"x"}"#, "body /a/b: missing"),
        (r#"{"a":{"b":1},"list":[1],"name":"x"}"#, "body /list: recorded 2"),
        (r#"{"a":{"b":1},"list":[1,2],"name":"y"}"#, "body /name"),
        (r#"{"a":{"b":1},"list":[1,2],"name":"x","z":0}"#, "body /z: not recorded"),
        ("", "body: recorded"),
    ] {
        assert!(differs(200, &same, changed).contains(difference), "{changed}");
    }
}

#[test]
fn chunked_and_whole_answers_read_alike() {
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nabcde";
    for raw in [chunked.as_slice(), whole] {
        let answer = parse_answer(raw).expect("an answer");
        assert_eq!((answer.status, answer.body.as_str()), (200, "abcde"));
        assert_eq!(answer.headers["x-a"], "b");
    }
}
