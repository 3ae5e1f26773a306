use lazuli_model::StorageSku;
use proptest::prelude::*;

use super::*;
use crate::{accounts::CREATED_BY, class::Place};

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

type Answered = Result<Vec<StorageAccount>, Unplaced<Error>>;

fn blob(number: u64) -> String {
    format!("pvc-{number}.vhd")
}

fn placing(number: u64, place: Place) -> Asked {
    Asked::Place(Request { blob: blob(number), place, sku: Some(StorageSku::StandardLrs), location: "local".into() })
}

fn made(new: &NewAccount) -> StorageAccount {
    StorageAccount {
        sku: Some(new.spec.sku),
        kind: Some(new.spec.kind),
        location: new.spec.location.clone(),
        tags: new.spec.tags.clone(),
        ..StorageAccount::general_purpose(&new.name)
    }
}

fn old(name: &str) -> StorageAccount {
    let tags = BTreeMap::from([(CREATED_BY.0.to_owned(), CREATED_BY.1.to_owned())]);
    StorageAccount { tags, ..StorageAccount::general_purpose(name) }
}

/// The pool of a cluster in a world that does at once what it wants.
struct World {
    state: State<Error>,
    now: Duration,
    accounts: BTreeMap<String, (StorageAccount, BTreeSet<String>)>,
    others: Vec<StorageAccount>,
    taken: BTreeSet<String>,
    unreadable: BTreeSet<String>,
    /// What was asked of Azure.
    asked: Vec<String>,
    answers: BTreeMap<Caller, Answered>,
    pending: Vec<Action<Error>>,
}

impl World {
    fn new(accounts: Vec<(StorageAccount, Vec<u64>)>) -> Self {
        let cluster = Cluster { name: "s/g/kubernetes".into(), is_stack_hub: false };
        let with = |(account, blobs): (StorageAccount, Vec<u64>)| {
            (account.name().to_owned(), (account, blobs.into_iter().map(blob).collect()))
        };
        Self {
            state: State::new(cluster),
            now: Duration::ZERO,
            accounts: accounts.into_iter().map(with).collect(),
            others: Vec::new(),
            taken: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            asked: Vec::new(),
            answers: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    fn event(&mut self, event: Event<Error>) {
        let actions = self.state.step(self.now, event);
        self.pending.extend(actions);
    }

    fn ask(&mut self, caller: Caller, asked: Asked) {
        self.event(Event::Asked(caller, asked));
    }

    /// What Azure does about an action.
    fn carry_out(&mut self, action: Action<Error>) -> Option<Event<Error>> {
        Some(match action {
            Action::List(id, scope, after) => {
                self.now += after;
                self.asked.push(format!("list {scope:?}"));
                let own = self.accounts.values().map(|(account, _)| account.clone());
                let others = self.others.iter().filter(|_| scope == Scope::Subscription).cloned();
                Event::Listed(id, Ok(own.chain(others).collect()))
            }
            Action::ListBlobs(id, account) => {
                self.asked.push(format!("blobs {}", account.name()));
                let listed = match self.accounts.get(account.name()) {
                    _ if self.unreadable.contains(account.name()) => Err(Error(Fault::Forbidden)),
                    Some((_, blobs)) => Ok(Some(blobs.clone()).filter(|blobs| !blobs.is_empty())),
                    None => Err(Error(Fault::NotFound)),
                };
                Event::BlobsListed(id, listed)
            }
            Action::Make(id, new) => {
                self.asked.push(format!("make {}", new.name));
                if self.taken.contains(&new.name) {
                    return Some(Event::Made(id, Ok(Made::Taken)));
                }
                let account = made(&new);
                self.accounts.insert(new.name.clone(), (account.clone(), BTreeSet::new()));
                Event::Made(id, Ok(Made::New(Box::new(account))))
            }
            Action::Look(id, account, _) => {
                self.asked.push(format!("look {}", account.name()));
                let (shown, _) = self.accounts.get_mut(account.name()).unwrap();
                shown.provisioning_state = ProvisioningState::Succeeded;
                Event::Looked(id, Ok(Box::new(shown.clone())))
            }
            Action::Leave(_) => {
                self.asked.push("leave".into());
                return None;
            }
            Action::Answer(caller, answer) => {
                assert!(self.answers.insert(caller, answer).is_none(), "one answer each");
                return None;
            }
        })
    }

    /// Goes on until nothing is to be done.
    fn settle(&mut self) {
        while !self.pending.is_empty() {
            let action = self.pending.remove(0);
            if let Some(event) = self.carry_out(action) {
                self.event(event);
            }
        }
        assert!(self.state.is_idle(), "{:?}", self.state.callers);
    }

    fn answer(&mut self, caller: Caller, asked: Asked) -> Answered {
        self.ask(caller, asked);
        self.settle();
        self.answers.remove(&caller).unwrap()
    }

    fn place(&mut self, number: u64) -> String {
        self.answer(number, placing(number, Place::Shared)).unwrap()[0].name().to_owned()
    }

    /// The disk is made.
    fn make(&mut self, account: &str, number: u64) {
        let (shown, blobs) = self.accounts.get_mut(account).unwrap();
        blobs.insert(blob(number));
        let account = shown.id.clone();
        self.event(Event::Ended { account, blob: Some(blob(number)), ending: Ending::There });
    }

    fn count(&self, what: &str) -> usize {
        self.asked.iter().filter(|asked| asked.starts_with(what)).count()
    }
}

#[test]
fn many_requests_at_once_share_one_list_and_grow_the_pool_once() {
    let mut world = World::new(Vec::new());
    (0..160).for_each(|number| world.ask(number, placing(number, Place::Shared)));
    world.settle();
    assert_eq!((world.count("list"), world.count("make"), world.count("blobs")), (1, 6, 0), "{:?}", world.asked);
    let mut disks: BTreeMap<String, usize> = BTreeMap::new();
    for answer in world.answers.values() {
        *disks.entry(answer.as_ref().unwrap()[0].name().to_owned()).or_default() += 1;
    }
    assert!(disks.values().all(|disks| (26..=27).contains(disks)), "{disks:?}");
    // A later one needs nothing of Azure.
    world.asked.clear();
    world.place(160);
    assert_eq!(world.asked, [""; 0]);
}

#[test]
fn the_blobs_of_each_account_of_the_pool_are_listed_before_a_disk_has_a_place() {
    let mut world = World::new(vec![(old("ds1"), vec![1, 2]), (old("ds2"), vec![3])]);
    assert_eq!(world.place(1), "ds1", "an earlier try made it");
    assert_eq!(world.place(4), "ds2");
    assert_eq!(world.asked, ["list Group", "blobs ds1", "blobs ds2"]);
    world.unreadable.insert("ds2".into());
    let mut world = World { state: State::new(world.state.cluster.clone()), ..world };
    let refused = world.answer(9, placing(9, Place::Shared)).unwrap_err();
    let why = Refusal::Unreadable("ds2".into());
    assert_eq!(refused, Unplaced::Refused(why, Some(Error(Fault::Forbidden))));
    assert_eq!(refused.fault(), Fault::Unavailable);
    // It is tried again for the next one.
    world.unreadable.clear();
    assert_eq!(world.place(9), "ds2");
}

fn earlier_of(number: u64, place: Place) -> Asked {
    let Asked::Place(request) = placing(number, place) else { unreachable!() };
    Asked::Earlier(request)
}

#[test]
fn what_an_earlier_try_has_begun_is_found_by_another_process_too() {
    let in_mine = || Place::Account("mine".into());
    let name = |answer: Answered| answer.unwrap().first().map(|account| account.name().to_owned());
    let mine = || StorageAccount::general_purpose("mine");
    let mut world = World::new(vec![(old("ds1"), vec![1, 2]), (old("ds2"), vec![3]), (mine(), vec![4])]);
    assert_eq!(name(world.answer(1, earlier_of(3, Place::Shared))), Some("ds2".into()));
    assert_eq!(world.asked, ["list Group", "blobs ds1", "blobs ds2"]);
    assert_eq!(name(world.answer(2, earlier_of(4, Place::Shared))), None, "it is in no account of the pool");
    assert_eq!(name(world.answer(3, earlier_of(4, in_mine()))), Some("mine".into()));
    assert_eq!(name(world.answer(4, earlier_of(9, in_mine()))), None);
    assert_eq!(name(world.answer(5, earlier_of(9, Place::Account("none".into())))), None);
    // What has a place may be in the making.
    assert_eq!(world.place(5), "ds2");
    assert_eq!(name(world.answer(6, earlier_of(5, Place::Shared))), Some("ds2".into()));
    // The account of one disk is begun with the disk.
    assert_eq!(name(world.answer(7, earlier_of(6, Place::Dedicated))), None);
    let own = world.answer(8, placing(6, Place::Dedicated)).unwrap()[0].name().to_owned();
    let mut world = World { state: State::new(world.state.cluster.clone()), ..world };
    assert_eq!(name(world.answer(9, earlier_of(6, Place::Dedicated))), Some(own));
    assert_eq!(name(world.answer(10, earlier_of(7, Place::Dedicated))), None);
}

#[test]
fn an_account_that_may_not_be_read_has_no_earlier_disk_and_one_that_does_not_answer_may() {
    let accounts = || vec![(old("ds1"), vec![1]), (old("ds2"), vec![2]), (old("ds3"), vec![3])];
    let mut world = World::new(accounts());
    world.unreadable = ["ds1", "ds2"].map(str::to_owned).into();
    assert_eq!(world.answer(1, earlier_of(9, Place::Shared)), Ok(Vec::new()));
    assert_eq!(world.answer(2, earlier_of(3, Place::Shared)).unwrap()[0].name(), "ds3");
    // A list of the accounts that may not be read, either.
    let failed = |fault: Fault| {
        let mut world = World::new(accounts());
        world.ask(1, earlier_of(9, Place::Shared));
        let Action::List(id, Scope::Group, _) = world.pending.remove(0) else { panic!("{:?}", world.pending) };
        world.event(Event::Listed(id, Err(Error(fault))));
        world.settle();
        world.answers.remove(&1).unwrap()
    };
    assert_eq!(failed(Fault::Forbidden), Ok(Vec::new()));
    assert_eq!(failed(Fault::Unavailable), Err(Unplaced::Azure(What::List(Scope::Group), Error(Fault::Unavailable))));
    let mut world = World::new(accounts());
    world.ask(1, earlier_of(9, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.event(listed);
    let Action::ListBlobs(id, _) = world.pending.remove(0) else { panic!("{:?}", world.pending) };
    world.event(Event::BlobsListed(id, Err(Error(Fault::Unavailable))));
    world.settle();
    assert_eq!(world.answers.remove(&1).unwrap().unwrap_err().fault(), Fault::Unavailable);
}

#[test]
fn a_name_of_somebody_else_gives_the_next_one() {
    let mut world = World::new(Vec::new());
    let name = world.place(1);
    let mut world = World { taken: BTreeSet::from([name.clone()]), ..World::new(Vec::new()) };
    assert_ne!(world.place(1), name);
    assert_eq!(world.count("make"), 2);
}

#[test]
fn a_place_is_kept_while_the_disk_may_be_made() {
    let mut world = World::new(vec![(old("ds1"), vec![1]), (old("ds2"), vec![])]);
    assert_eq!(world.place(5), "ds2");
    world.event(Event::Ended { account: old("ds2").id, blob: Some(blob(5)), ending: Ending::Unknown });
    (6..12).for_each(|number| drop(world.place(number)));
    assert_eq!(world.place(5), "ds2");
    // After a long time a list says what became of it.
    world.now += BLOBS_LAST + Duration::from_secs(1);
    world.asked.clear();
    world.place(20);
    assert_eq!(world.asked, ["list Group", "blobs ds1", "blobs ds2"]);
    assert!(!world.state.placed.contains_key(&blob(5)));
}

#[test]
fn a_disk_that_is_deleted_makes_room() {
    let mut world = World::new(Vec::new());
    let account = world.place(1);
    world.make(&account, 1);
    assert_eq!(world.state.blobs[&account].1.len(), 1);
    let id = world.accounts[&account].0.id.clone();
    world.event(Event::Ended { account: id, blob: Some(blob(1)), ending: Ending::NotThere });
    assert!(world.state.blobs[&account].1.is_empty() && world.state.placed.is_empty());
}

#[test]
fn an_account_that_is_gone_is_made_again() {
    let mut world = World::new(Vec::new());
    let account = world.place(1);
    world.make(&account, 1);
    let (shown, _) = world.accounts.remove(&account).unwrap();
    world.event(Event::Ended { account: shown.id.clone(), blob: Some(blob(2)), ending: Ending::NoAccount });
    assert_eq!(world.answer(7, Asked::Account(account.clone())), Err(Unplaced::NoAccount(account.clone())));
    // Lists may show it for a while.
    world.accounts.insert(account.clone(), (shown, BTreeSet::new()));
    assert_eq!(world.answer(8, Asked::Account(account.clone())), Err(Unplaced::NoAccount(account.clone())));
    world.accounts.clear();
    assert_eq!(world.place(3), account, "its name follows from the cluster");
    assert_eq!(world.count("make"), 2);
    // The list of blobs finds that it is gone.
    let mut world = World::new(vec![(old("ds1"), vec![1])]);
    world.ask(5, placing(5, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.accounts.clear();
    world.event(listed);
    world.settle();
    assert_ne!(world.answers[&5].as_ref().unwrap()[0].name(), "ds1");
}

/// Azure allows a hundred lists in five minutes, and a disk with an account of its own takes its account along.
#[test]
fn the_end_of_an_account_costs_the_next_request_no_list() {
    let mut world = World::new(vec![(old("ds1"), vec![])]);
    let account = world.place(1);
    let id = world.accounts[&account].0.id.clone();
    let asked = world.asked.len();
    world.accounts.remove(&account);
    world.event(Event::Ended { account: id, blob: Some(blob(1)), ending: Ending::NoAccount });
    assert_ne!(world.place(2), account);
    assert!(!world.asked[asked..].iter().any(|asked| asked.starts_with("list")), "{:?}", world.asked);
}

#[test]
fn that_there_is_no_account_is_said_by_a_list_that_is_hardly_older_than_the_request() {
    let mut world = World::new(vec![(old("ds1"), vec![])]);
    world.others.push(StorageAccount { id: ArmId::storage_account("s", "other", "far").unwrap(), ..old("far") });
    let find = |name: &str| Asked::Account(name.to_owned());
    assert_eq!(world.answer(1, find("ds1")).unwrap()[0].name(), "ds1");
    assert_eq!(world.asked, ["list Group"]);
    assert_eq!(world.answer(2, find("far")).unwrap()[0].id.resource_group(), "other");
    assert_eq!(world.asked, ["list Group", "list Subscription"]);
    // Both are known for a minute.
    world.now += Duration::from_secs(30);
    assert!(world.answer(3, find("far")).is_ok() && world.answer(4, find("ds1")).is_ok());
    assert_eq!(world.asked.len(), 2);
    assert_eq!(world.answer(5, find("none")), Err(Unplaced::NoAccount("none".into())));
    assert_eq!(world.asked.len(), 3, "the known list was sent before the request came");
    world.now += NONE_LASTS;
    assert!(world.answer(6, find("none")).is_err());
    assert_eq!(world.asked.len(), 3);
    world.now += Duration::from_secs(1);
    assert!(world.answer(7, find("none")).is_err());
    assert_eq!(world.asked.len(), 4, "the known list is too old");
    world.asked.clear();
    world.now += LIST_LASTS + Duration::from_secs(1);
    assert_eq!(world.answer(8, Asked::All).unwrap().len(), 2);
    world.now += LIST_LASTS;
    assert_eq!(world.answer(9, Asked::All).unwrap().len(), 2);
    assert_eq!(world.asked, ["list Subscription"]);
}

#[test]
fn a_refusal_rests_on_a_list_that_was_sent_after_the_request() {
    let mut world = World::new(vec![(old("ds1"), vec![])]);
    let named = |number| placing(number, Place::Account("mine".into()));
    world.answer(1, Asked::Account("ds1".into())).unwrap();
    world.now += Duration::from_secs(10);
    let account = StorageAccount::general_purpose("mine");
    world.accounts.insert("mine".into(), (account, BTreeSet::new()));
    assert_eq!(world.answer(2, named(2)).unwrap()[0].name(), "mine");
    world.accounts.clear();
    world.now += Duration::from_secs(70);
    let refused = world.answer(3, named(3)).unwrap_err();
    assert_eq!(refused, Unplaced::Refused(Refusal::NoAccount("mine".into()), None));
    assert_eq!(world.count("list"), 3);
}

#[test]
fn a_creation_that_nobody_waits_for_is_left_and_a_failed_one_is_the_answer() {
    let mut world = World::new(Vec::new());
    world.ask(1, placing(1, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.event(listed);
    let [Action::Make(id, _)] = &world.pending[..] else { panic!("{:?}", world.pending) };
    let id = *id;
    world.pending.clear();
    world.event(Event::Abandoned(1));
    assert!(matches!(world.pending[..], [Action::Leave(left)] if left == id));
    assert!(world.state.making.is_empty() && world.state.placed.is_empty());
    world.pending.clear();
    world.ask(2, placing(2, Place::Shared));
    world.ask(3, placing(3, Place::Shared));
    let [Action::Make(id, _)] = &world.pending[..] else { panic!("{:?}", world.pending) };
    let id = *id;
    world.pending.clear();
    world.event(Event::Made(id, Err(Error(Fault::Exhausted))));
    world.settle();
    for caller in [2, 3] {
        let Err(Unplaced::Azure(What::Creation(_), error)) = &world.answers[&caller] else { panic!() };
        assert_eq!(*error, Error(Fault::Exhausted));
    }
    assert!(world.state.making.is_empty());
    world.place(4);
}

#[test]
fn an_account_that_another_makes_is_looked_at_until_it_is_there() {
    let making = StorageAccount { provisioning_state: ProvisioningState::InProgress, ..old("ds1") };
    let mut world = World::new(vec![(making, vec![])]);
    assert_eq!(world.place(1), "ds1");
    assert_eq!(world.asked, ["list Group", "look ds1", "blobs ds1"], "it has no keys before");
}

/// What happens in a random world.
#[derive(Debug, Clone)]
enum Happening {
    Ask(u64),
    Abandon(u64),
    /// Azure answers the action at this place of those that wait.
    Answer(usize),
    /// The caller at this place of those that were answered has its disk made.
    Make(usize),
    Delete(u64),
    Pass(u64),
    /// Somebody deletes an account.
    Remove(usize),
    /// This process ends, and another one begins.
    Restart,
    /// Another process leads, which has led before.
    Lead,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        6 => (0..12_u64).prop_map(Happening::Ask),
        1 => (0..60_u64).prop_map(Happening::Abandon),
        8 => any::<usize>().prop_map(Happening::Answer),
        4 => any::<usize>().prop_map(Happening::Make),
        1 => (0..12_u64).prop_map(Happening::Delete),
        1 => (1..400_u64).prop_map(Happening::Pass),
        1 => any::<usize>().prop_map(Happening::Remove),
        1 => Just(Happening::Restart),
        2 => Just(Happening::Lead),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever comes in which order: each request is answered once, no name is being made twice at once, no disk is
    /// given two accounts that live, and at the end nothing waits.
    #[test]
    fn no_disk_has_two_homes(happenings in prop::collection::vec(happening(), 1..120)) {
        let mut world = World::new(vec![(old("ds1"), vec![100]), (old("ds2"), vec![])]);
        let mut caller = 0;
        let mut asked: BTreeMap<Caller, u64> = BTreeMap::new();
        let mut other = State::new(world.state.cluster.clone());
        for happening in happenings {
            match happening {
                Happening::Ask(number) => {
                    caller += 1;
                    // The class of a request does not change.
                    let dedicated = number > 9;
                    let place = if dedicated { Place::Dedicated } else { Place::Shared };
                    asked.insert(caller, number);
                    world.ask(caller, placing(number, place));
                }
                Happening::Abandon(left) => world.event(Event::Abandoned(left)),
                Happening::Answer(at) if !world.pending.is_empty() => {
                    let at = at % world.pending.len();
                    let action = world.pending.remove(at);
                    if let Some(event) = world.carry_out(action) {
                        world.event(event);
                    }
                }
                Happening::Make(at) if !world.answers.is_empty() => {
                    let of = *world.answers.keys().nth(at % world.answers.len()).unwrap();
                    if let (Some(Ok(account)), Some(number)) = (world.answers.get(&of), asked.get(&of)) {
                        let name = account[0].name().to_owned();
                        if world.accounts.contains_key(&name) {
                            world.make(&name, *number);
                        } else {
                            let id = account[0].id.clone();
                            let blob = Some(blob(*number));
                            world.event(Event::Ended { account: id, blob, ending: Ending::NoAccount });
                        }
                        // The caller's request is over.
                        world.answers.remove(&of);
                    }
                }
                Happening::Delete(number) => {
                    // No creation of it is under way.
                    let is_asked = asked.iter().any(|(caller, other)| {
                        let state = &world.state;
                        *other == number && (state.callers.contains_key(caller) || world.answers.contains_key(caller))
                    });
                    let home = world.accounts.iter().find(|(_, (_, blobs))| blobs.contains(&blob(number)));
                    if let (false, Some((name, (account, _)))) = (is_asked, home) {
                        let (name, id) = (name.clone(), account.id.clone());
                        world.accounts.get_mut(&name).unwrap().1.remove(&blob(number));
                        world.event(Event::Ended { account: id, blob: Some(blob(number)), ending: Ending::NotThere });
                    }
                }
                Happening::Pass(seconds) => world.now += Duration::from_secs(seconds),
                Happening::Remove(at) => {
                    let empty = world.accounts.iter().filter(|(_, (_, blobs))| blobs.is_empty());
                    let names: Vec<String> = empty.map(|(name, _)| name.clone()).collect();
                    if !names.is_empty() {
                        world.accounts.remove(&names[at % names.len()]);
                    }
                }
                Happening::Restart => {
                    world.state = State::new(world.state.cluster.clone());
                    world.pending.clear();
                    world.answers.clear();
                }
                Happening::Lead => {
                    let callers: Vec<Caller> = world.state.callers.keys().copied().collect();
                    callers.into_iter().for_each(|caller| world.event(Event::Abandoned(caller)));
                    world.settle();
                    world.answers.clear();
                    std::mem::swap(&mut world.state, &mut other);
                    world.now += Duration::from_secs(1);
                }
                Happening::Answer(_) | Happening::Make(_) => {}
            }
            let making: Vec<&What> = world.state.running.values().map(|(what, _)| what).collect();
            prop_assert_eq!(making.iter().collect::<BTreeSet<_>>().len(), making.len(), "asked twice at once");
            let mut homes: BTreeMap<&str, usize> = BTreeMap::new();
            for (_, blobs) in world.accounts.values() {
                blobs.iter().for_each(|blob| *homes.entry(blob).or_default() += 1);
            }
            prop_assert!(homes.values().all(|count| *count == 1), "{:?}", homes);
        }
        world.now += Duration::from_secs(1);
        world.settle();
        prop_assert!(world.state.making.is_empty());
    }
}

/// The controller's container outlives a leadership: what this process knew of an account's blobs is older than what
/// another one has made since.
#[test]
fn a_disk_that_another_replica_made_meanwhile_is_found_by_the_first_one() {
    let mut world = World::new(vec![(old("ds1"), vec![]), (old("ds2"), vec![])]);
    let account = world.place(1);
    world.make(&account, 1);
    // Another replica leads for a while.
    let first =
        std::mem::replace(&mut world.state, State::new(Cluster { name: "s/g/kubernetes".into(), is_stack_hub: false }));
    let account = world.place(2);
    world.make(&account, 2);
    let home = world.place(3);
    world.make(&home, 3);
    // The first one leads again, and the claim comes again: its answer was lost.
    world.state = first;
    world.now += Duration::from_secs(120);
    world.asked.clear();
    let again = world.place(3);
    assert_eq!(again, home, "the disk has a second home; asked: {:?}", world.asked);
}

/// The same where the machines of the Nodes have changed: what the other replica began is not seen.
#[test]
fn what_another_replica_began_meanwhile_is_seen_by_the_first_one() {
    let mut world = World::new(vec![(old("ds1"), vec![])]);
    let account = world.place(1);
    world.make(&account, 1);
    let first =
        std::mem::replace(&mut world.state, State::new(Cluster { name: "s/g/kubernetes".into(), is_stack_hub: false }));
    let account = world.place(2);
    world.make(&account, 2);
    world.state = first;
    world.now += Duration::from_secs(120);
    let earlier = world.answer(9, earlier_of(2, Place::Shared)).unwrap();
    assert_eq!(earlier.first().map(|account| account.name().to_owned()), Some(account));
}

/// The refusal names a way out: the tag. It must help.
#[test]
fn the_way_out_of_an_account_that_does_not_answer_is_one() {
    let mut account = old("ds1");
    account.tags.insert("skip-matching".into(), "true".into());
    let mut world = World::new(vec![(account, vec![1])]);
    world.ask(1, earlier_of(9, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.event(listed);
    if let Some(Action::ListBlobs(id, _)) = world.pending.first().cloned() {
        world.pending.clear();
        // The network does not let the controller reach the account.
        world.event(Event::BlobsListed(id, Err(Error(Fault::Unavailable))));
    }
    world.settle();
    let answer = world.answers.remove(&1).unwrap();
    assert_eq!(answer, Ok(Vec::new()));
}

#[test]
fn who_may_list_the_resource_group_alone_is_shown_its_accounts() {
    let mut world = World::new(vec![(old("ds1"), vec![1])]);
    world.ask(1, Asked::All);
    let Some(Action::List(id, Scope::Subscription, _)) = world.pending.pop() else {
        panic!("the subscription is first")
    };
    world.event(Event::Listed(id, Err(Error(Fault::Forbidden))));
    world.settle();
    assert_eq!(world.answers[&1].as_ref().unwrap()[0].name(), "ds1");
    // Any other failure is the answer.
    world.ask(2, Asked::All);
    let Some(Action::List(id, Scope::Subscription, _)) = world.pending.pop() else {
        panic!("the subscription is first")
    };
    world.event(Event::Listed(id, Err(Error(Fault::Unavailable))));
    world.settle();
    assert!(matches!(world.answers[&2], Err(Unplaced::Azure(What::List(Scope::Subscription), _))));
}

/// What the first process has given a place, and has perhaps not made, the second one may have made elsewhere.
#[test]
fn a_place_that_was_given_gives_way_to_the_disk_that_another_replica_made() {
    let mut world = World::new(vec![(old("ds1"), vec![1]), (old("ds2"), vec![])]);
    assert_eq!(world.place(5), "ds2");
    world.event(Event::Ended { account: old("ds2").id, blob: Some(blob(5)), ending: Ending::Unknown });
    // Another replica leads, for which ds2 has more disks.
    world.accounts.get_mut("ds1").unwrap().1.insert(blob(5));
    world.now += Duration::from_secs(120);
    assert_eq!(world.place(5), "ds1");
}

/// A list of accounts is known for a minute. Another replica has made an account within it, with the disk of a claim.
#[test]
fn an_account_that_another_replica_made_a_moment_ago_is_looked_at() {
    let mut world = World::new(vec![(old("ds1"), (100..129).collect())]);
    world.answer(1, Asked::Account("ds1".into())).unwrap();
    let other = State::new(world.state.cluster.clone());
    let first = std::mem::replace(&mut world.state, other);
    world.now += Duration::from_secs(1);
    (2..4).for_each(|number| world.ask(number, placing(number, Place::Shared)));
    world.settle();
    let homes: Vec<String> =
        (2..4).map(|caller| world.answers.remove(&caller).unwrap().unwrap()[0].name().to_owned()).collect();
    assert!(homes.iter().any(|home| home != "ds1"), "the pool has grown: {homes:?}");
    for (number, home) in (2..4).zip(&homes) {
        world.accounts.get_mut(home).unwrap().1.insert(blob(number));
    }
    // The first one leads again, and the claims come again, one after the other.
    world.state = first;
    world.now += Duration::from_secs(40);
    let again: Vec<String> = (2..4).map(|number| world.place(number)).collect();
    assert_eq!(again, homes);
}

/// Two replicas may make the same account, and the slower one learns only that it is there.
#[test]
fn a_new_account_was_empty_when_it_was_asked_for() {
    let mut world = World::new(Vec::new());
    world.ask(1, placing(1, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.event(listed);
    let make = world.pending.remove(0);
    world.now += Duration::from_secs(5);
    let made = world.carry_out(make).unwrap();
    let name = world.accounts.keys().next().unwrap().clone();
    world.ask(2, placing(2, Place::Shared));
    world.event(made);
    world.settle();
    assert_eq!(world.asked.last(), Some(&format!("blobs {name}")), "{:?}", world.asked);
}

#[test]
fn a_list_that_lacks_an_account_which_was_just_made_is_not_believed() {
    let mut world = World::new(vec![(old("ds1"), (100..130).collect())]);
    let account = world.place(1);
    assert_ne!(account, "ds1");
    // The creation of the disk goes on, and its caller comes again. Lists lag.
    let made = world.accounts.remove(&account).unwrap();
    world.now += Duration::from_secs(5);
    world.ask(2, placing(1, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.accounts.insert(account.clone(), made);
    world.accounts.get_mut("ds1").unwrap().1.clear();
    world.event(listed);
    world.settle();
    assert_eq!(world.answers[&2].as_ref().unwrap()[0].name(), account);
}

/// The resource manager sometimes does not find a resource group or a subscription that is there.
#[test]
fn an_account_whose_surroundings_are_missing_may_hold_the_disk() {
    let mut world = World::new(vec![(old("ds1"), vec![1]), (old("ds2"), vec![])]);
    world.ask(1, placing(1, Place::Shared));
    let list = world.pending.remove(0);
    let listed = world.carry_out(list).unwrap();
    world.event(listed);
    let Action::ListBlobs(id, account) = world.pending.remove(0) else { panic!("{:?}", world.pending) };
    assert_eq!(account.name(), "ds1");
    world.event(Event::BlobsListed(id, Err(Error(Fault::ScopeNotFound))));
    world.settle();
    let refused = world.answers.remove(&1).unwrap().unwrap_err();
    assert_eq!(refused.fault(), Fault::Unavailable, "{refused:?}");
    assert_eq!(world.place(1), "ds1");
}

/// Azure takes a hundred lists in five minutes, and a storm of claims comes one by one.
#[test]
fn requests_that_come_close_together_share_a_list_that_is_sent_after_them() {
    let mut world = World::new(vec![(old("ds1"), vec![1])]);
    world.place(2);
    let lists = |world: &World| world.asked.iter().filter(|asked| *asked == "list Group").count();
    assert_eq!(lists(&world), 1);
    let begun = world.now;
    for number in 3..9 {
        world.now += Duration::from_millis(100);
        world.ask(number, placing(number, Place::Shared));
    }
    assert!(matches!(world.pending[..], [Action::List(_, Scope::Group, after)] if after == Duration::from_millis(900)));
    world.now = begun;
    world.settle();
    assert_eq!((world.answers.len(), lists(&world)), (6, 2));
}

/// A VolumeAttachment whose account somebody deleted is tried again and again.
#[test]
fn for_a_lost_account_few_lists_are_sent_and_one_that_comes_is_found() {
    let mut world = World::new(vec![(old("ds1"), vec![])]);
    for caller in 0..120 {
        world.now += Duration::from_secs(1);
        let lost = world.answer(caller, Asked::Account("lost".into()));
        assert_eq!(lost, Err(Unplaced::NoAccount("lost".into())));
    }
    assert!(world.asked.len() <= 16, "{:?}", world.asked);
    world.others.push(old("lost"));
    let found = (200..211).find(|caller| {
        world.now += Duration::from_secs(1);
        world.answer(*caller, Asked::Account("lost".into())).is_ok()
    });
    assert!(found.is_some());
}

/// Another replica has made an account a moment ago, and has begun a disk in it.
#[test]
fn what_another_replica_has_begun_in_a_new_account_is_seen() {
    let mut world = World::new(vec![(old("ds1"), vec![1])]);
    world.answer(1, earlier_of(9, Place::Shared)).unwrap();
    world.accounts.insert("ds2".into(), (old("ds2"), BTreeSet::from([blob(9)])));
    world.now += Duration::from_secs(5);
    assert_eq!(world.answer(2, earlier_of(9, Place::Shared)).unwrap()[0].name(), "ds2");
}
