//! What a node and the broker say to each other: JSON over HTTP/1.1 by TLS. A member that is not known is not read, so that
//! a newer node can ask an older controller and the other way round.

use http::StatusCode;
use lazuli_model::{Secret, fault::Code};
use lazuli_shares::secret::Credentials;
use serde::{Deserialize, Serialize};

use crate::{KeyError, fingerprint::Fingerprint};

/// Where the broker is asked.
pub(crate) const PATH: &str = "/v1/account-key";

/// The longest request, in bytes: a volume id of the greatest length, each byte of it escaped, and some space.
pub(crate) const LONGEST_QUESTION: usize = 16 * 1024;
/// The longest answer, in bytes. A key has 88.
pub(crate) const LONGEST_ANSWER: usize = 16 * 1024;

/// What a node asks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Question {
    /// As CSI names the volume.
    pub(crate) volume_id: String,
    /// The key that the file server has refused, where it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<Fingerprint>,
}

/// A key. No `Debug`.
#[derive(Serialize, Deserialize)]
struct Key {
    account: String,
    key: String,
}

/// A refusal.
#[derive(Serialize, Deserialize)]
struct Refused {
    /// The number of the gRPC code.
    code: i32,
    message: String,
}

/// The codes with which a request is refused, and their status in HTTP.
const CODES: [(Code, StatusCode); 10] = [
    (Code::InvalidArgument, StatusCode::BAD_REQUEST),
    (Code::Unauthenticated, StatusCode::UNAUTHORIZED),
    (Code::PermissionDenied, StatusCode::FORBIDDEN),
    (Code::NotFound, StatusCode::NOT_FOUND),
    (Code::FailedPrecondition, StatusCode::CONFLICT),
    (Code::Aborted, StatusCode::CONFLICT),
    (Code::ResourceExhausted, StatusCode::TOO_MANY_REQUESTS),
    (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR),
    (Code::Unavailable, StatusCode::SERVICE_UNAVAILABLE),
    (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT),
];

/// The answer of the broker.
pub(crate) fn written(answer: &Result<Credentials, KeyError>) -> (StatusCode, Vec<u8>) {
    let (status, body) = match answer {
        Ok(Credentials { account, key }) => {
            let body = Key { account: account.clone(), key: key.expose().to_owned() };
            (StatusCode::OK, serde_json::to_vec(&body))
        }
        Err(error) => {
            let known = CODES.iter().find(|(code, _)| *code == error.code);
            let (code, status) = known.copied().unwrap_or((Code::Internal, StatusCode::INTERNAL_SERVER_ERROR));
            (status, serde_json::to_vec(&Refused { code: code as i32, message: error.message.clone() }))
        }
    };
    (status, body.expect("texts and numbers can be written"))
}

/// Reads an answer; `None` where it is not one of the broker. Without the decoder's words: they may quote a key.
pub(crate) fn read(status: StatusCode, body: &[u8]) -> Option<Result<Credentials, KeyError>> {
    if status == StatusCode::OK {
        let Key { account, key } = serde_json::from_slice(body).ok()?;
        let key = Secret::new(key);
        let is_whole = !account.is_empty() && !key.expose().is_empty();
        return is_whole.then_some(Ok(Credentials { account, key }));
    }
    let Refused { code, message } = serde_json::from_slice(body).ok()?;
    let code = CODES.iter().map(|(known, _)| *known).find(|known| *known as i32 == code).unwrap_or(Code::Internal);
    Some(Err(KeyError { code, message }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        let key = Ok(Credentials { account: "f1".into(), key: Secret::new("a2V5") });
        for answer in std::iter::once(key).chain(CODES.map(|(code, _)| Err(KeyError::new(code, "why")))) {
            let (status, body) = written(&answer);
            assert_eq!(read(status, &body), Some(answer));
        }
        let (status, body) = written(&Err(KeyError::new(Code::DataLoss, "why")));
        assert_eq!(read(status, &body), Some(Err(KeyError::new(Code::Internal, "why"))));
    }

    #[test]
    fn a_question_of_an_older_or_a_newer_node_is_understood() {
        for (text, has_refused) in [
            (r#"{"volumeId":"a"}"#, false),
            (r#"{"volumeId":"a","refused":null,"more":1}"#, false),
            (r#"{"volumeId":"a","refused":{"salt":"00","digest":"11","more":1}}"#, true),
        ] {
            let question: Question = serde_json::from_str(text).unwrap();
            assert_eq!((question.volume_id.as_str(), question.refused.is_some()), ("a", has_refused));
        }
        let first = serde_json::to_string(&Question { volume_id: "a".to_owned(), refused: None }).unwrap();
        assert_eq!(first, r#"{"volumeId":"a"}"#);
    }

    #[test]
    fn what_is_no_answer_is_not_taken_for_one() {
        for (status, body) in [
            (StatusCode::OK, "{}"),
            (StatusCode::OK, r#"{"account":"f1","key":""}"#),
            (StatusCode::OK, r#"{"account":"","key":"a2V5"}"#),
            (StatusCode::OK, "<html>"),
            (StatusCode::BAD_GATEWAY, "<html>"),
            (StatusCode::FOUND, ""),
        ] {
            assert_eq!(read(status, body.as_bytes()), None, "{status} {body}");
        }
    }
}
