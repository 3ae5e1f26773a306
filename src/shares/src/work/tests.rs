//! What the courses send, where the random lives do not say it by name.

use std::{sync::Arc, time::Duration};

use lazuli_engine::single::{Course as _, Input, Next};
use lazuli_model::{AccessMode, FileShare, Gib, StorageAccount, StorageSku};

use super::*;
use crate::{
    parameters::Defaults,
    share::{Access, Capability, Request, SharePlan, plan_create},
};

#[derive(Debug, Clone, PartialEq)]
struct Error(Fault);

impl AzureFailure for Error {
    fn fault(&self) -> &Fault {
        &self.0
    }

    fn effect(&self) -> Effect {
        Effect::None
    }

    fn code(&self) -> &str {
        ""
    }
}

type Account = account::Account<Error, ()>;

const LIMITS: Limits = Limits { tries: 4, longest_wait: Duration::from_secs(60) };

fn plan() -> Arc<SharePlan> {
    let defaults = Defaults {
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "local".into(),
        ..Defaults::default()
    };
    let request = Request {
        name: "pvc-1".into(),
        required_bytes: 5 << 30,
        capabilities: vec![Capability { access: Access::Mount, mode: AccessMode::MultiNodeMultiWriter }],
        ..Request::default()
    };
    Arc::new(plan_create(&request, &defaults).unwrap())
}

fn course(volume: Option<u32>) -> share::Share<Error> {
    let plan = plan();
    let spec = plan.spec(StorageSku::StandardLrs).unwrap();
    let wanted = share::Wanted::Made { plan, spec, persistent_volume: volume.map(Gib::new) };
    share::Share::of(&share::Request { wanted, limits: LIMITS })
}

#[test]
fn the_share_of_a_persistent_volume_is_read_before_it_is_put_and_never_put_smaller() {
    let env = share::Env::default();
    let next = |course: &mut share::Share<Error>, input| course.next(&env, Duration::ZERO, input);
    // Without a PersistentVolume there is nothing to lose.
    let mut unread = course(None);
    assert!(
        matches!(next(&mut unread, Input::Permitted), Next::Write(share::Op::Put(spec)) if spec.quota == Gib::new(5))
    );
    for (there, expected) in [(7, "done"), (9, "done"), (5, "grows")] {
        let mut course = course(Some(7));
        assert!(matches!(next(&mut course, Input::Permitted), Next::Read(share::Query::Share)));
        let seen = share::Seen::Share { share: FileShare::smb("f1", "pvc-1", there), is_new: false };
        match (next(&mut course, Input::Read(Ok(seen))), expected) {
            (Next::End(Ok(share::Done::Size(size))), "done") => assert_eq!(size, Gib::new(there)),
            (Next::Permit(Verb::Patch), "grows") => {}
            (next, _) => panic!("{there}: {next:?}"),
        }
    }
    let mut gone = course(Some(7));
    next(&mut gone, Input::Permitted);
    let put = next(&mut gone, Input::Read(Err(Error(Fault::NotFound))));
    assert!(matches!(&put, Next::Write(share::Op::Put(spec)) if spec.quota == Gib::new(7)), "{put:?}");
}

#[test]
fn a_put_that_meets_another_one_looks_again_and_not_for_ever() {
    let spec = plan().account_request().spec();
    let wanted =
        account::Wanted::Made { spec: Box::new(spec), file_service: lazuli_model::op::FileServiceSpec::default() };
    let of = || Account::of(&account::Request { wanted: wanted.clone(), limits: LIMITS });
    let next = |course: &mut Account, input| course.next(&(), Duration::ZERO, input);
    let meets = |course: &mut Account| {
        next(course, Input::Permitted);
        next(course, Input::Read(Err(Error(Fault::NotFound))));
        next(course, Input::Refused(Error(Fault::Conflict)))
    };
    let mut course = of();
    assert!(matches!(meets(&mut course), Next::Rest(Rest::For(_))));
    assert!(matches!(next(&mut course, Input::Rested), Next::Permit(Verb::Put)));
    next(&mut course, Input::Permitted);
    let there = account::Seen::Account(Box::new(StorageAccount::general_purpose("f1")));
    assert!(matches!(next(&mut course, Input::Read(Ok(there))), Next::End(Ok(account::Done::Exists(_)))));
    let mut course = of();
    let rests = (0..).take_while(|_| matches!(meets(&mut course), Next::Rest(_))).count();
    assert_eq!(rests, 5);
}

#[test]
fn a_share_that_is_as_a_class_says_is_not_written_and_what_it_cannot_have_is_named() {
    let env = share::Env::default();
    let next = |course: &mut share::Share<Error>, input| course.next(&env, Duration::ZERO, input);
    let course = |iops: &str| {
        let parameters = Arc::new([("provisionedIOPS".to_owned(), iops.to_owned())].into());
        let wanted = share::Wanted::Modified { parameters, sku: Some(StorageSku::PremiumV2Lrs) };
        share::Share::of(&share::Request { wanted, limits: LIMITS })
    };
    let there = FileShare { provisioned_iops: Some(4_000), ..FileShare::smb("f1", "pvc-1", 64) };
    let seen = || Input::Read(Ok(share::Seen::Share { share: there.clone(), is_new: false }));
    let looked = |iops: &str| {
        let mut course = course(iops);
        assert!(matches!(next(&mut course, Input::Begin), Next::Permit(Verb::Patch)));
        assert!(matches!(next(&mut course, Input::Permitted), Next::Read(share::Query::Share)));
        (next(&mut course, seen()), course)
    };
    assert!(matches!(looked("4000").0, Next::End(Ok(share::Done::Size(size))) if size == Gib::new(64)));
    let (write, mut other) = looked("5000");
    assert!(
        matches!(&write, Next::Write(share::Op::Change(change)) if change.provisioned_iops == Some(5_000) && change.quota.is_none()),
        "{write:?}"
    );
    assert!(matches!(next(&mut other, Input::Written(None)), Next::End(Ok(share::Done::Size(_)))));
    let refused = looked("7").0;
    assert!(
        matches!(&refused, Next::End(Err(share::Failure { fault: Fault::Invalid, why: share::Why::Parameter(_), .. }))),
        "{refused:?}"
    );
}
