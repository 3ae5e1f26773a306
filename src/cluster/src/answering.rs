//! Whether the API server answers this process, for `/readyz` of one that waits for a Lease and watches nothing meanwhile.

use std::time::Duration;

use http::Request;
use kube::Client;
use lazuli_telemetry::Condition;
use tokio::time::{sleep, timeout};

use super::server::ApiError;

/// How often it is asked.
const EVERY: Duration = Duration::from_secs(60);
/// How soon after a failure it is asked again.
const AGAIN: Duration = Duration::from_secs(15);
/// How long one answer may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(30);

/// Keeps the condition true to whether the API server answers, until dropped. It is asked for its version, which needs no
/// right beyond that of every account.
pub async fn keep_asking(client: &Client, condition: &Condition) {
    loop {
        let pause = match answers(client).await {
            Ok(()) => {
                condition.ready("the API server answers");
                EVERY
            }
            Err(why) => {
                condition.not_ready(why);
                AGAIN
            }
        };
        sleep(pause).await;
    }
}

async fn answers(client: &Client) -> Result<(), String> {
    let request = Request::get("/version").body(Vec::new()).expect("the request is well formed");
    match timeout(LONGEST_ANSWER, client.request_text(request)).await {
        Ok(Ok(_)) => Ok(()),
        // It does answer; which requests it refuses is told where they are made.
        Ok(Err(kube::Error::Api(status))) if status.code < 500 => Ok(()),
        Ok(Err(source)) => {
            let (error, mut words) = (ApiError::boxed(source), String::new());
            let mut next: Option<&dyn std::error::Error> = Some(&*error);
            while let Some(one) = next {
                words.push_str(": ");
                words.push_str(&one.to_string());
                next = one.source();
            }
            Err(format!("the API server cannot be reached{words}"))
        }
        Err(_) => Err(format!("the API server has not answered in {} s", LONGEST_ANSWER.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use axum::body::Body;
    use http::Response;
    use lazuli_telemetry::Readiness;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_not_ready_before_the_api_server_has_answered_and_after_five_minutes_without() {
        let is_dead = Arc::new(AtomicBool::new(true));
        let dead = Arc::clone(&is_dead);
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let is_dead = dead.load(Ordering::Relaxed);
            async move {
                assert_eq!(request.uri().path(), "/version");
                match is_dead {
                    true => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                    false => Ok(Response::new(Body::from("{}"))),
                }
            }
        });
        let client = Client::new(service, "default");
        let readiness = Readiness::new();
        let condition = readiness.tolerant_condition("cluster", Duration::from_secs(300));
        let asking = tokio::spawn(async move { keep_asking(&client, &condition).await });
        let pass = async |seconds| sleep(Duration::from_secs(seconds)).await;
        pass(600).await;
        let (is_ready, words) = readiness.describe();
        assert!(!is_ready && words.contains("the API server cannot be reached"), "{words}");
        is_dead.store(false, Ordering::Relaxed);
        pass(61).await;
        assert!(readiness.is_ready(), "{}", readiness.describe().1);
        is_dead.store(true, Ordering::Relaxed);
        pass(240).await;
        assert!(readiness.is_ready(), "a short outage is daily life: {}", readiness.describe().1);
        pass(200).await;
        assert!(!readiness.is_ready(), "{}", readiness.describe().1);
        asking.abort();
    }
}
