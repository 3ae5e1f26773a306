use lazuli_model::{AccessMode, StorageSku};

use super::*;
use crate::{
    parameters::Defaults,
    share::{Access, Capability, Request, plan_create},
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

fn plan(name: &str, gib: i64, pairs: &[(&str, &str)]) -> Arc<SharePlan> {
    let defaults = Defaults {
        subscription: "s".into(),
        resource_group: "g".into(),
        location: "local".into(),
        ..Defaults::default()
    };
    let request = Request {
        name: name.into(),
        parameters: pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        mutable_parameters: BTreeMap::new(),
        required_bytes: gib << 30,
        limit_bytes: 0,
        capabilities: vec![Capability { access: Access::Mount, mode: AccessMode::MultiNodeMultiWriter }],
    };
    Arc::new(plan_create(&request, &defaults).unwrap())
}

const FIFTY: &[(&str, &str)] = &[("skuName", "StandardV2_LRS")];
const MULTICHANNEL: &[(&str, &str)] = &[("skuName", "PremiumV2_LRS"), ("enableMultichannel", "true")];
const GIVEN: &[(&str, &str)] = &[("storageAccount", "given")];

fn account(name: &str, sku: StorageSku) -> StorageAccount {
    let kind = if sku == StorageSku::StandardLrs {
        lazuli_model::AccountKind::StorageV2
    } else {
        lazuli_model::AccountKind::FileStorage
    };
    StorageAccount { sku: Some(sku), kind: Some(kind), ..StorageAccount::general_purpose(name) }
}

fn shares(of: &StorageAccount, count: usize) -> Vec<FileShare> {
    (0..count).map(|number| FileShare::smb(of.name(), &format!("old-{number}"), 32)).collect()
}

struct Pool {
    state: State<Error>,
    now: Duration,
}

impl Pool {
    fn new() -> Self {
        Self { state: State::default(), now: Duration::ZERO }
    }

    fn step(&mut self, event: Event<Error>) -> Vec<Action<Error>> {
        self.state.step(self.now, event)
    }

    fn ask(&mut self, caller: Caller, plan: &Arc<SharePlan>) -> Vec<Action<Error>> {
        self.step(Event::Requested(caller, plan.clone()))
    }

    fn pass(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

/// The one action, in short, and its id.
fn one(actions: &[Action<Error>]) -> (String, Id) {
    let [action] = actions else { panic!("{actions:?}") };
    match action {
        Action::List(id) => ("list".into(), *id),
        Action::ListShares(id, account) => (format!("shares of {}", account.name()), *id),
        Action::ReadFileService(id, account) => (format!("service of {}", account.name()), *id),
        Action::Make(id, _) => ("make".into(), *id),
        Action::Finish(id, account, _) => (format!("finish {}", account.name()), *id),
        Action::Look(id, account, _) => (format!("look at {}", account.name()), *id),
        Action::Leave(id) => ("leave".into(), *id),
        Action::Answer(..) => panic!("{action:?}"),
    }
}

fn answers(actions: &[Action<Error>]) -> Vec<(Caller, String)> {
    let of = |action: &Action<Error>| match action {
        Action::Answer(caller, Ok(account)) => Some((*caller, account.name().to_owned())),
        Action::Answer(caller, Err(Refused::Azure(_, error))) => Some((*caller, format!("{:?}", error.0))),
        Action::Answer(caller, Err(refused)) => Some((*caller, format!("{refused:?}"))),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn claims_share_what_is_read_and_what_is_made() {
    let mut pool = Pool::new();
    let (first, second) = (plan("pvc-1", 40, &[]), plan("pvc-2", 40, &[]));
    let (what, list) = one(&pool.ask(1, &first));
    assert_eq!(what, "list");
    assert!(pool.ask(2, &second).is_empty());
    let (what, make) = one(&pool.step(Event::Listed(list, Ok(Vec::new()))));
    assert_eq!(what, "make");
    let made = Made::There(Box::new(account("f1", StorageSku::StandardLrs)));
    assert_eq!(answers(&pool.step(Event::Made(make, Ok(made)))), [(1, "f1".into()), (2, "f1".into())]);
    assert!(pool.state.is_idle());
    // What is known answers the next claims, and not those that come much later.
    pool.pass(60);
    assert_eq!(answers(&pool.ask(3, &plan("pvc-3", 40, &[]))), [(3, "f1".into())]);
    pool.pass(1);
    assert_eq!(one(&pool.ask(4, &plan("pvc-4", 40, &[]))).0, "list");
}

#[test]
fn a_creation_that_fails_is_the_answer_and_is_not_sent_again_for_the_same_claims() {
    let mut pool = Pool::new();
    let (_, list) = one(&pool.ask(1, &plan("pvc-1", 40, &[])));
    let (_, make) = one(&pool.step(Event::Listed(list, Ok(Vec::new()))));
    let actions = pool.step(Event::Made(make, Err(Error(Fault::Forbidden))));
    assert_eq!((answers(&actions), actions.len()), (vec![(1, "Forbidden".into())], 1));
    assert!(pool.state.is_idle());
    // Another may have made it since.
    assert_eq!(one(&pool.ask(2, &plan("pvc-2", 40, &[]))).0, "list");
}

#[test]
fn a_file_service_that_cannot_be_changed_is_the_answer() {
    let mut pool = Pool::new();
    let ask = plan("pvc-1", 40, MULTICHANNEL);
    let name = account::candidate_name(&ask.account_request(), 0);
    let ours = account(&name, StorageSku::PremiumV2Lrs);
    let (_, list) = one(&pool.ask(1, &ask));
    let (what, read) = one(&pool.step(Event::Listed(list, Ok(vec![ours]))));
    assert_eq!(what, format!("service of {name}"));
    let (_, shares) = one(&pool.step(Event::FileServiceRead(read, Ok(FileService::default()))));
    let (what, finish) = one(&pool.step(Event::SharesListed(shares, Ok(Vec::new()))));
    assert_eq!(what, format!("finish {name}"));
    let actions = pool.step(Event::Finished(finish, Err(Error(Fault::Busy))));
    assert_eq!((answers(&actions), actions.len()), (vec![(1, "Busy".into())], 1));
}

#[test]
fn an_account_that_refuses_a_share_is_not_chosen_again_for_it() {
    let mut pool = Pool::new();
    let (ask, there) = (plan("pvc-1", 40, FIFTY), account("f1", StorageSku::StandardV2Lrs));
    let (_, list) = one(&pool.ask(1, &ask));
    let (_, read) = one(&pool.step(Event::Listed(list, Ok(vec![there.clone()]))));
    assert_eq!(answers(&pool.step(Event::SharesListed(read, Ok(Vec::new())))), [(1, "f1".into())]);
    assert!(pool.step(Event::Full(there.id.clone(), "pvc-1".into())).is_empty());
    // An earlier try of a claim may have made its share there all the same.
    let (what, read) = one(&pool.ask(1, &ask));
    assert_eq!(what, "shares of f1");
    assert_eq!(one(&pool.step(Event::SharesListed(read, Ok(Vec::new())))).0, "make");
    // It is not full for ever.
    pool.step(Event::Abandoned(1));
    pool.pass(601);
    let (_, list) = one(&pool.ask(2, &ask));
    let (_, read) = one(&pool.step(Event::Listed(list, Ok(vec![there]))));
    assert_eq!(answers(&pool.step(Event::SharesListed(read, Ok(Vec::new())))), [(2, "f1".into())]);
}

#[test]
fn a_share_that_was_given_a_place_counts_until_a_list_shows_it_or_lacks_it_for_long() {
    let mut pool = Pool::new();
    let there = account("f1", StorageSku::StandardV2Lrs);
    let (_, list) = one(&pool.ask(1, &plan("pvc-1", 40, FIFTY)));
    let (_, read) = one(&pool.step(Event::Listed(list, Ok(vec![there.clone()]))));
    assert_eq!(answers(&pool.step(Event::SharesListed(read, Ok(shares(&there, 49))))), [(1, "f1".into())]);
    // A deletion does not make it forgotten.
    pool.step(Event::Freed(there.id.clone()));
    let (_, read) = one(&pool.ask(2, &plan("pvc-2", 40, FIFTY)));
    let actions = pool.step(Event::SharesListed(read, Ok(shares(&there, 49))));
    assert_eq!(one(&actions).0, "make");
    pool.step(Event::Abandoned(2));
    // After two minutes it was made, or was not: a list says which.
    pool.pass(121);
    let (_, list) = one(&pool.ask(3, &plan("pvc-3", 40, FIFTY)));
    let (what, read) = one(&pool.step(Event::Listed(list, Ok(vec![there.clone()]))));
    assert_eq!(what, "shares of f1");
    assert_eq!(answers(&pool.step(Event::SharesListed(read, Ok(shares(&there, 49))))), [(3, "f1".into())]);
}

#[test]
fn a_share_counts_with_the_size_that_its_account_gives_it() {
    let mut pool = Pool::new();
    let there = account("f1", StorageSku::PremiumV2Lrs);
    let class = &[("skuName", "PremiumV2_LRS")][..];
    let (_, list) = one(&pool.ask(1, &plan("pvc-1", 1, class)));
    let (_, read) = one(&pool.step(Event::Listed(list, Ok(vec![there.clone()]))));
    let large = FileShare::smb("f1", "old", 262_144 - 63);
    assert_eq!(answers(&pool.step(Event::SharesListed(read, Ok(vec![large])))), [(1, "f1".into())]);
    assert_eq!(one(&pool.ask(2, &plan("pvc-2", 1, class))).0, "make");
}

#[test]
fn an_account_that_a_read_does_not_find_is_chosen_no_more_though_a_list_still_shows_it() {
    for gone in [Fault::NotFound, Fault::ScopeNotFound] {
        let mut pool = Pool::new();
        let there = account("f1", StorageSku::StandardV2Lrs);
        let (_, list) = one(&pool.ask(1, &plan("pvc-1", 40, FIFTY)));
        let (_, read) = one(&pool.step(Event::Listed(list, Ok(vec![there.clone()]))));
        let (what, list) = one(&pool.step(Event::SharesListed(read, Err(Error(gone)))));
        assert_eq!(what, "list");
        assert_eq!(one(&pool.step(Event::Listed(list, Ok(vec![there])))).0, "make");
    }
}

#[test]
fn a_named_account_is_looked_at_anew_for_a_claim_that_comes_later() {
    let mut pool = Pool::new();
    let ask = plan("pvc-1", 40, GIVEN);
    let (what, look) = one(&pool.ask(1, &ask));
    assert_eq!(what, "look at given");
    let there = account("given", StorageSku::StandardLrs);
    assert_eq!(answers(&pool.step(Event::Looked(look, Ok(there)))), [(1, "given".into())]);
    pool.pass(60);
    assert_eq!(answers(&pool.ask(2, &ask)), [(2, "given".into())]);
    pool.pass(1);
    let (what, look) = one(&pool.ask(3, &ask));
    assert_eq!(what, "look at given");
    assert_eq!(answers(&pool.step(Event::Looked(look, Err(Error(Fault::NotFound))))), [(3, "NotFound".into())]);
}

#[test]
fn a_name_that_was_taken_is_tried_again_later() {
    let mut pool = Pool::new();
    let ask = plan("pvc-1", 40, &[("storageAccount", "given"), ("createAccount", "true")]);
    let (_, list) = one(&pool.ask(1, &ask));
    let (_, make) = one(&pool.step(Event::Listed(list, Ok(Vec::new()))));
    let refused = answers(&pool.step(Event::Made(make, Ok(Made::Taken))));
    assert!(refused[0].1.contains("NameTaken"), "{refused:?}");
    pool.pass(601);
    let (_, list) = one(&pool.ask(2, &ask));
    assert_eq!(one(&pool.step(Event::Listed(list, Ok(Vec::new())))).0, "make");
}

#[test]
fn an_account_that_is_being_made_is_looked_at_and_not_for_ever() {
    let mut pool = Pool::new();
    let busy =
        StorageAccount { provisioning_state: ProvisioningState::InProgress, ..account("f1", StorageSku::StandardLrs) };
    let (_, list) = one(&pool.ask(1, &plan("pvc-1", 40, &[])));
    let mut actions = pool.step(Event::Listed(list, Ok(vec![busy.clone()])));
    let mut looks = 0;
    while answers(&actions).is_empty() {
        let (what, look) = one(&actions);
        assert_eq!(what, "look at f1");
        looks += 1;
        actions = pool.step(Event::Looked(look, Ok(busy.clone())));
    }
    assert_eq!((looks, answers(&actions)), (MOST_LOOKS, vec![(1, "Unsettled".into())]));
}

#[test]
fn the_work_on_an_account_that_this_process_makes_is_left_to_its_creation() {
    let mut pool = Pool::new();
    let ask = plan("pvc-1", 40, MULTICHANNEL);
    let (_, list) = one(&pool.ask(1, &ask));
    let (_, make) = one(&pool.step(Event::Listed(list, Ok(Vec::new()))));
    pool.pass(61);
    let name = account::candidate_name(&ask.account_request(), 0);
    let ours = account(&name, StorageSku::PremiumV2Lrs);
    let (_, list) = one(&pool.ask(2, &plan("pvc-2", 40, MULTICHANNEL)));
    let actions = pool.step(Event::Listed(list, Ok(vec![ours.clone()])));
    let (_, read) = one(&actions);
    let (_, shares) = one(&pool.step(Event::FileServiceRead(read, Ok(FileService::default()))));
    assert!(pool.step(Event::SharesListed(shares, Ok(Vec::new()))).iter().all(|a| !matches!(a, Action::Finish(..))));
    let actions = pool.step(Event::Made(make, Ok(Made::There(Box::new(ours)))));
    assert!(answers(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_share_that_may_still_come_is_made_nowhere_else() {
    let ask = plan("pvc-1", 40, &[]);
    let named = plan("pvc-1", 40, GIVEN);
    for (fault, effect, plan, tries, expected) in [
        (Fault::AccountFull, Effect::None, &ask, 0, Elsewhere::Full),
        (Fault::ScopeNotFound, Effect::None, &ask, 9, Elsewhere::Gone),
        (Fault::AccountFull, Effect::Possible, &ask, 0, Elsewhere::No),
        (Fault::ScopeNotFound, Effect::None, &ask, 10, Elsewhere::No),
        (Fault::AccountFull, Effect::None, &named, 0, Elsewhere::No),
        (Fault::Forbidden, Effect::None, &ask, 0, Elsewhere::No),
    ] {
        assert_eq!(elsewhere(&fault, effect, plan, tries), expected, "{fault:?} {effect:?} {tries}");
    }
}

#[test]
fn a_creation_that_no_claim_needs_is_left_and_another_claim_asks_for_it_anew() {
    let mut pool = Pool::new();
    let (first, second) = (plan("pvc-1", 5, &[]), plan("pvc-2", 5, &[]));
    let (_, list) = one(&pool.ask(1, &first));
    pool.ask(2, &second);
    let (what, creation) = one(&pool.step(Event::Listed(list, Ok(Vec::new()))));
    assert_eq!(what, "make");
    assert!(pool.step(Event::Abandoned(1)).is_empty(), "another claim needs it");
    assert_eq!(one(&pool.step(Event::Abandoned(2))), ("leave".into(), creation));
    assert!(pool.state.is_idle());
    let (again, other) = one(&pool.ask(3, &first));
    assert_eq!(again, "make");
    assert_ne!(other, creation);
}
