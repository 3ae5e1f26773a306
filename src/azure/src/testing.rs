//! A scripted Azure for this crate's own tests: in process, or over loopback TCP in the same runtime.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::{
    Until,
    arm::{Arm, Retry},
    auth::{Credential, Secret, Tokens},
    metrics::Metrics,
    transport::{Routes, Tls, Transport},
};

pub(crate) const ARM: &str = "https://management.azure.com";
pub(crate) const LOGIN: &str = "https://login.microsoftonline.com";
pub(crate) const CLIENT_SECRET: &str = "pa55word-of-the-principal";

/// One request as the fake saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Duration,
    /// `GET management.azure.com/subscriptions/s?api-version=1`
    pub(crate) line: String,
    pub(crate) authorization: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) client_request_id: Option<String>,
    pub(crate) user_agent: Option<String>,
    pub(crate) body: String,
}

/// One scripted answer.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, String)>,
        body: String,
        after: Duration,
    },
    /// The request is taken and the connection ends without an answer.
    Lost,
    /// The request is taken and nothing ever comes.
    Silence,
}

impl Reply {
    pub(crate) fn json(status: u16, body: Value) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.to_string(), after: Duration::ZERO }
    }

    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self::Answer { status, headers: Vec::new(), body: body.to_owned(), after: Duration::ZERO }
    }

    pub(crate) fn empty(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: String::new(), after: Duration::ZERO }
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.push((name, value.into()));
        }
        self
    }

    pub(crate) fn after(mut self, time: Duration) -> Self {
        if let Self::Answer { after, .. } = &mut self {
            *after = time;
        }
        self
    }
}

/// The fake: every request for a token gets one, the rest is answered from the script, in order.
#[derive(Debug, Clone)]
pub(crate) struct Fake(Arc<FakeInner>);

#[derive(Debug)]
struct FakeInner {
    start: Instant,
    script: Mutex<VecDeque<Reply>>,
    tokens: Mutex<VecDeque<Reply>>,
    seen: Mutex<Vec<Seen>>,
    issued: Mutex<u32>,
}

#[derive(Debug)]
pub(crate) struct ConnectionLost;

impl std::fmt::Display for ConnectionLost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("connection lost")
    }
}

impl std::error::Error for ConnectionLost {}

impl Fake {
    pub(crate) fn new(script: impl IntoIterator<Item = Reply>) -> Self {
        Self(Arc::new(FakeInner {
            start: Instant::now(),
            script: Mutex::new(script.into_iter().collect()),
            tokens: Mutex::default(),
            seen: Mutex::default(),
            issued: Mutex::default(),
        }))
    }

    /// Answers for the next token requests; after them tokens are given again.
    pub(crate) fn tokens(self, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.0.tokens.lock().unwrap().extend(replies);
        self
    }

    pub(crate) fn push(&self, reply: Reply) {
        self.0.script.lock().unwrap().push_back(reply);
    }

    /// Everything seen, tokens and all.
    pub(crate) fn log(&self) -> Vec<Seen> {
        self.0.seen.lock().unwrap().clone()
    }

    /// What was seen except for tokens.
    pub(crate) fn calls(&self) -> Vec<Seen> {
        self.log().into_iter().filter(|seen| !seen.line.contains("/token")).collect()
    }

    /// The calls as `seconds method path`, with the api-version left out.
    pub(crate) fn timeline(&self) -> Vec<String> {
        self.calls()
            .iter()
            .map(|seen| {
                let line = seen.line.replace("management.azure.com", "");
                let line = line.split("?").next().unwrap().to_owned();
                format!("{:.3} {line}", seen.at.as_secs_f64())
            })
            .collect()
    }

    pub(crate) fn script_is_used_up(&self) -> bool {
        self.0.script.lock().unwrap().is_empty()
    }

    async fn answer(self, request: Request<Bytes>) -> Result<Response<Full<Bytes>>, ConnectionLost> {
        let host = request.headers()["host"].to_str().unwrap().to_owned();
        let header = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let line = format!("{} {host}{}", request.method(), request.uri());
        self.0.seen.lock().unwrap().push(Seen {
            at: self.0.start.elapsed(),
            line: line.clone(),
            authorization: header("authorization"),
            if_match: header("if-match"),
            client_request_id: header("x-ms-client-request-id"),
            user_agent: header("user-agent"),
            body: String::from_utf8(request.body().to_vec()).unwrap(),
        });
        let reply = if line.contains("/token") {
            let next = self.0.tokens.lock().unwrap().pop_front();
            next.unwrap_or_else(|| {
                let mut issued = self.0.issued.lock().unwrap();
                *issued += 1;
                Reply::json(
                    200,
                    json!({"token_type": "Bearer", "expires_in": 3599, "ext_expires_in": 3599,
                        "access_token": format!("token-{issued}"),
                        "resource": "r", "expires_on": "1506484173"}),
                )
            })
        } else {
            let next = self.0.script.lock().unwrap().pop_front();
            next.unwrap_or_else(|| panic!("the script has no answer to {line}"))
        };
        match reply {
            Reply::Answer { status, headers, body, after } => {
                if !after.is_zero() {
                    tokio::time::sleep(after).await;
                }
                let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
                for (name, value) in headers {
                    response = response.header(name, value);
                }
                Ok(response.body(Full::new(body.into())).unwrap())
            }
            Reply::Lost => Err(ConnectionLost),
            Reply::Silence => std::future::pending().await,
        }
    }

    /// A transport that hands requests to the fake without a socket.
    pub(crate) fn in_process(&self) -> Transport {
        let fake = self.clone();
        Transport::in_process(
            Routes::none(),
            tower::service_fn(move |request: Request<Full<Bytes>>| {
                let fake = fake.clone();
                async move {
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.unwrap().to_bytes();
                    fake.answer(Request::from_parts(head, body)).await
                }
            }),
        )
    }

    /// A transport that speaks real HTTP to the fake, served on this runtime.
    pub(crate) async fn over_tcp(&self) -> Transport {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let fake = self.clone();
        let app = axum::Router::new().fallback(move |request: axum::extract::Request| {
            let fake = fake.clone();
            async move {
                let (mut head, body) = request.into_parts();
                // What the route put in front says which host was meant.
                let path = head.uri.path_and_query().unwrap().as_str().to_owned();
                let (host, rest) = path[1..].split_once('/').unwrap();
                head.headers.insert("host", host.parse().unwrap());
                head.uri = format!("/{rest}").parse().unwrap();
                let body = body.collect().await.unwrap().to_bytes();
                fake.answer(Request::from_parts(head, body)).await.unwrap()
            }
        });
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let mut routes = Routes::none();
        for origin in [ARM, LOGIN] {
            let logical = url(origin);
            let physical = url(&format!("{base}/{}", logical.host_str().unwrap()));
            routes = routes.with(&logical, &physical).unwrap();
        }
        Transport::new(routes, &Tls::default()).unwrap()
    }

    /// A resource manager client over a transport.
    pub(crate) fn arm(&self, transport: Transport) -> Arm {
        self.arm_with(transport, Metrics::unregistered(), 7)
    }

    pub(crate) fn arm_with(&self, transport: Transport, metrics: Metrics, seed: u64) -> Arm {
        let tokens = Tokens::new(transport.clone(), client_secret(), ARM, seed);
        Arm::new(url(ARM), transport, tokens, metrics, Retry::default(), seed)
    }
}

pub(crate) fn client_secret() -> Credential {
    Credential::ClientSecret {
        tenant_id: "tenant".into(),
        client_id: "app".into(),
        secret: Secret::new(CLIENT_SECRET),
        authority: url(LOGIN),
    }
}

pub(crate) fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

pub(crate) fn a_minute() -> Until {
    Until::within(Duration::from_secs(60))
}

pub(crate) fn an_hour() -> Until {
    Until::within(Duration::from_secs(3_600))
}
