use std::collections::BTreeMap;

use lazuli_model::{AccountKind, StorageSku};

use super::*;

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault, Effect, &'static str);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        self.1
    }

    fn code(&self) -> &str {
        self.2
    }
}

fn error(fault: Fault) -> Error {
    Error(fault, Effect::None, "")
}

fn course() -> Account<Error> {
    let spec = AccountSpec {
        location: "local".into(),
        sku: StorageSku::StandardLrs,
        kind: AccountKind::StorageV2,
        tags: BTreeMap::new(),
        access_tier: None,
        https_only: true,
        minimum_tls_version: "TLS1_2",
        allow_blob_public_access: Some(false),
        allow_shared_key_access: Some(true),
        allow_cross_tenant_replication: None,
        require_infrastructure_encryption: None,
        large_file_shares: None,
        public_network_access: None,
        network_rules: None,
    };
    Account::of(&Request { spec, limits: Limits { tries: 3, longest_wait: Duration::from_secs(60) } })
}

fn account(provisioning_state: ProvisioningState) -> Box<StorageAccount> {
    Box::new(StorageAccount { provisioning_state, ..StorageAccount::general_purpose("ds1") })
}

/// Gives the course its inputs. The words of what it wants, and how it ends.
fn run(inputs: Vec<Input<Account<Error>>>) -> (Vec<&'static str>, Option<Result<Done, Failure<Error>>>) {
    let mut course = course();
    let mut words = Vec::new();
    for input in inputs {
        match course.next(&(), Duration::ZERO, input) {
            Next::Permit(()) => words.push("permit"),
            Next::Read(()) => words.push("read"),
            Next::Write(_) => words.push("write"),
            Next::Rest(_) => words.push("rest"),
            Next::End(end) => return (words, Some(end)),
        }
    }
    (words, None)
}

fn to_put() -> Vec<Input<Account<Error>>> {
    vec![Input::Begin, Input::Permitted, Input::Read(Err(error(Fault::NotFound)))]
}

#[test]
fn an_account_is_put_only_where_a_read_behind_the_permit_finds_none() {
    let (words, _) = run(to_put());
    assert_eq!(words, ["permit", "read", "write"]);
    let (words, end) =
        run(vec![Input::Begin, Input::Permitted, Input::Read(Ok(account(ProvisioningState::Succeeded)))]);
    assert_eq!(words, ["permit", "read"]);
    assert!(matches!(end, Some(Ok(Done::Exists(_)))));
    for fault in [Fault::Unavailable, Fault::ScopeNotFound, Fault::Malformed] {
        let (words, end) = run(vec![Input::Begin, Input::Permitted, Input::Read(Err(error(fault.clone())))]);
        assert_eq!(words, ["permit", "read"], "{fault:?}");
        assert_eq!(end.unwrap().unwrap_err().why, Why::Unreadable);
    }
}

#[test]
fn an_account_that_is_being_made_is_waited_for_whoever_makes_it() {
    for mut inputs in [
        [to_put(), vec![Input::Written(Some(account(ProvisioningState::InProgress)))]].concat(),
        vec![Input::Begin, Input::Permitted, Input::Read(Ok(account(ProvisioningState::InProgress)))],
    ] {
        let begun = inputs.len();
        inputs.extend([Input::Rested, Input::Read(Ok(account(ProvisioningState::InProgress))), Input::Rested]);
        inputs.push(Input::Read(Ok(account(ProvisioningState::Succeeded))));
        let (words, end) = run(inputs);
        assert_eq!(words[begun - 1..], ["rest", "read", "rest", "read"]);
        assert!(matches!(end, Some(Ok(Done::Made(_) | Done::Exists(_)))));
    }
}

#[test]
fn a_name_of_somebody_else_is_taken_and_a_creation_in_progress_is_looked_at_again() {
    for code in TAKEN {
        let taken = Error(Fault::Invalid, Effect::None, code);
        for input in [Input::Refused(taken.clone()), Input::Failed(taken.clone())] {
            let (_, end) = run([to_put(), vec![input]].concat());
            assert!(matches!(end, Some(Ok(Done::Taken))), "{code}");
        }
    }
    let conflict = Input::Refused(error(Fault::Conflict));
    let (words, end) = run([to_put(), vec![conflict, Input::Rested, Input::Permitted]].concat());
    assert_eq!(words, ["permit", "read", "write", "rest", "permit", "read"]);
    assert!(end.is_none());
}

#[test]
fn a_lost_answer_is_looked_after_and_said() {
    let lost = Error(Fault::OutcomeUnknown, Effect::Possible, "");
    let again = |lost: &Error| [Input::Refused(lost.clone()), Input::Rested, Input::Permitted];
    let (words, _) = run([to_put(), again(&lost).to_vec()].concat());
    assert_eq!(words, ["permit", "read", "write", "rest", "permit", "read"]);
    let unreadable = Input::Read(Err(error(Fault::Unavailable)));
    let (_, end) = run([to_put(), again(&lost).to_vec(), vec![unreadable]].concat());
    assert_eq!(end.unwrap().unwrap_err().effect, Effect::Possible);
    let (_, end) = run([to_put(), vec![Input::Failed(error(Fault::Exhausted))]].concat());
    let failure = end.unwrap().unwrap_err();
    assert_eq!((failure.fault, failure.effect, failure.why), (Fault::Exhausted, Effect::None, Why::Creation));
}

#[test]
fn an_account_that_was_accepted_and_cannot_be_read_may_be_there() {
    let (_, end) = run([to_put(), vec![Input::Written(None), Input::Read(Err(error(Fault::Forbidden)))]].concat());
    let failure = end.unwrap().unwrap_err();
    assert_eq!((failure.fault, failure.effect, failure.why), (Fault::Forbidden, Effect::Possible, Why::Unreadable));
}
