//! What Azure holds, and what it does with a request.

use lazuli_engine::single::Written;
use lazuli_model::file_share::CREATED_BY;

use super::*;

/// An account, with what is in it.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub number: u64,
    pub account: StorageAccount,
    pub made_at: Duration,
    /// Whether a replica has made it.
    pub is_ours: bool,
    pub has_multichannel: bool,
    pub shares: BTreeMap<String, Share>,
    /// Deleted shares, which count.
    pub soft_deleted: BTreeMap<String, (Duration, u32)>,
    /// The shares with which a person has filled it.
    pub filled: u32,
    /// Since when it takes no more shares because of their number.
    pub full_since: Option<Duration>,
    /// Its shares have all the performance that it has.
    pub is_sealed: bool,
    /// A person has changed it, or Azure has refused a share in it.
    pub is_touched: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Share {
    pub gib: u32,
    /// The course whose PUT made it; `None` where a person did.
    pub by: Option<u64>,
    pub made_at: Duration,
    pub snapshots: u32,
}

impl Row {
    pub(super) fn is_busy(&self) -> bool {
        self.account.provisioning_state == ProvisioningState::InProgress
    }

    fn used(&self) -> u32 {
        self.filled + u32::try_from(self.shares.len() + self.soft_deleted.len()).expect("they are few")
    }

    /// How many more shares it takes; `None` where no number is the limit.
    pub(super) fn room(&self) -> Option<u32> {
        match self.account.sku {
            Some(StorageSku::StandardLrs) | None => None,
            Some(_) => Some(50u32.saturating_sub(self.used())),
        }
    }

    /// Whether claims of a class may be made in it, and more of them than there are.
    pub(super) fn is_good_for(&self, class: usize) -> bool {
        let sku = [StorageSku::StandardLrs, StorageSku::StandardV2Lrs, StorageSku::PremiumV2Lrs][kind_of(class)];
        self.account.sku == Some(sku)
            && !self.account.tags.contains_key("skip-matching")
            && self.account.provisioning_state == ProvisioningState::Succeeded
            && (kind_of(class) != 2 || self.has_multichannel)
            && !self.is_sealed
            && self.room().is_none_or(|room| room > 2 * CLAIMS as u32)
    }
}

/// A write's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Served { fails: bool },
    Lost,
    Refused(u8),
    NotDone,
}

/// A request.
#[derive(Debug)]
pub(super) enum Call {
    List(Id),
    ListShares(Id, ArmId),
    FileService(Id, ArmId),
    Look(Id, ArmId),
    ReadAccount(ArmId, Id, account::Query),
    ReadShare(ArmId, Id, share::Query),
    Account(ArmId, Id, account::Op<FileService>, Fate, Option<Duration>),
    Share { share: ArmId, id: Id, op: share::Op, fate: Fate, course: u64, began: Duration },
}

impl World {
    pub(super) fn row(&mut self, account: StorageAccount) -> Row {
        Row {
            number: self.number(),
            account,
            made_at: self.now,
            is_ours: false,
            has_multichannel: false,
            shares: BTreeMap::new(),
            soft_deleted: BTreeMap::new(),
            filled: 0,
            full_since: None,
            is_sealed: false,
            is_touched: false,
        }
    }

    pub(super) fn find(&self, account: &ArmId) -> Option<usize> {
        self.rows.iter().position(|row| row.account.id == *account)
    }

    /// What lists show has changed.
    pub(super) fn changed(&mut self) {
        let list = Arc::new(self.rows.iter().map(|row| row.account.clone()).collect::<Vec<_>>());
        let short: Vec<_> = list.iter().map(|row| (row.name().to_owned(), row.provisioning_state)).collect();
        self.tell_story(|| format!("azure: {short:?}"));
        self.lists.push((self.now, list));
    }

    pub(super) fn logged(&mut self, account: &ArmId, name: &str, gib: Option<u32>) {
        self.tell_story(|| format!("azure: {}/{name}: {gib:?} GiB", account.name()));
        self.log.push((self.now, ArmId::file_share(account, name).expect("it is a name"), gib));
    }

    pub(super) fn counted(&mut self, row: usize) {
        let row = &mut self.rows[row];
        row.full_since = if row.room() == Some(0) { row.full_since.or(Some(self.now)) } else { None };
    }

    pub(super) fn put_share(&mut self, row: usize, name: &str, gib: u32, by: Option<u64>) {
        let made_at = self.now;
        self.rows[row].shares.insert(name.to_owned(), Share { gib, by, made_at, snapshots: 0 });
        self.counted(row);
        self.logged(&self.rows[row].account.id.clone(), name, Some(gib));
    }

    pub(super) fn drop_share(&mut self, row: usize, name: &str) {
        if let Some(share) = self.rows[row].shares.remove(name) {
            self.rows[row].soft_deleted.insert(name.to_owned(), (self.now, share.gib));
            self.counted(row);
            self.logged(&self.rows[row].account.id.clone(), name, None);
        }
    }

    fn shown(&self, row: usize, name: &str) -> Option<FileShare> {
        let share = self.rows[row].shares.get(name)?;
        let mut shown = FileShare::smb(self.rows[row].account.name(), name, share.gib);
        if share.by.is_some() || self.mutant == Some(Mutant::OurMark) {
            shown.metadata.insert(CREATED_BY.into(), "file.csi.azure.com".into());
        }
        Some(shown)
    }

    fn listed(&mut self) -> Vec<StorageAccount> {
        let lags = self.numbers.one_in(3);
        let lag = if lags { self.numbers.ms(LAG) } else { Duration::ZERO };
        let shown_at = self.now.saturating_sub(lag);
        let list = self.lists.iter().rev().find(|(at, _)| *at <= shown_at).map(|(_, list)| list.clone());
        let mut list = list.map_or_else(Vec::new, |list| list.to_vec());
        if lags && self.lists.last().is_some_and(|(_, last)| **last != list) {
            self.count("list lags");
        }
        match self.mutant {
            Some(Mutant::BlindList) if !list.is_empty() => drop(list.remove(0)),
            Some(Mutant::EmptyList) => list.clear(),
            _ => {}
        }
        list
    }

    /// A request reaches Azure.
    pub(super) fn serve(&mut self, replica: usize, life: u64, call: Call) {
        let fails = self.numbers.one_in(60);
        let answer = |world: &mut Self, told: Told| world.after_ms(150, Then::Tell(replica, life, Box::new(told)));
        if fails && !matches!(call, Call::Account(..) | Call::Share { .. }) {
            self.count("read failed");
        }
        let failure = || failed(Fault::Unavailable);
        let told = match call {
            Call::List(id) => {
                let list = if fails { Err(failure()) } else { Ok(self.listed()) };
                Told::Pool(pool::Event::Listed(id, list))
            }
            Call::ListShares(id, account) => {
                let listed = if fails { Err(failure()) } else { self.list_shares(&account) };
                if listed.is_ok() {
                    self.replicas[replica].listed.insert(account, self.now);
                }
                Told::Pool(pool::Event::SharesListed(id, listed))
            }
            Call::FileService(id, account) => {
                let read = if fails { Err(failure()) } else { self.file_service(&account) };
                Told::Pool(pool::Event::FileServiceRead(id, read))
            }
            Call::Look(id, account) => {
                let read = if fails { Err(failure()) } else { self.read_account(&account) };
                Told::Pool(pool::Event::Looked(id, read))
            }
            Call::ReadAccount(account, id, query) => {
                let found = !fails && self.find(&account).is_some();
                self.read_shows(replica, &account, found);
                let blind = self.mutant == Some(Mutant::BlindRead) && query == account::Query::Account;
                let read = match query {
                    _ if fails => Err(failure()),
                    _ if blind => Err(failed(Fault::NotFound)),
                    account::Query::Account => {
                        self.read_account(&account).map(|account| account::Seen::Account(Box::new(account)))
                    }
                    account::Query::FileService => self.file_service(&account).map(account::Seen::FileService),
                };
                Told::Account(account, single::Event::Read(id, read))
            }
            Call::ReadShare(share, id, query) => {
                let read = if fails { Err(failure()) } else { self.read_share(&share, query) };
                self.share_read_shows(replica, &share);
                Told::Share(share, single::Event::Read(id, read))
            }
            Call::Account(account, id, op, fate, read_at) => {
                let is_left = self.replicas[replica].left.contains(&(account.clone(), id));
                let written = if is_left && fate != Fate::Lost && self.numbers.one_in(2) {
                    self.count("account left unsent");
                    Some(Written::Refused(failed(Fault::Deadline)))
                } else {
                    self.write_account(replica, life, &account, id, op, fate, read_at)
                };
                if let Some(written) = written {
                    answer(self, Told::Account(account, single::Event::Ended(id, written)));
                }
                return;
            }
            Call::Share { share, id, op, fate, course, began } => {
                let is_left = self.replicas[replica].left.contains(&(share.clone(), id));
                let written = if is_left && fate != Fate::Lost && self.numbers.one_in(2) {
                    self.count("left unsent");
                    Written::Refused(failed(Fault::Deadline))
                } else {
                    self.write_share(&share, op, fate, course, began)
                };
                if fate != Fate::Lost {
                    answer(self, Told::Share(share, single::Event::Ended(id, written)));
                }
                return;
            }
        };
        answer(self, told);
    }

    fn missing(&mut self) -> Error {
        self.count("read of an account that is gone");
        failed(Fault::NotFound)
    }

    fn read_account(&mut self, account: &ArmId) -> Result<StorageAccount, Error> {
        match self.find(account) {
            Some(row) => Ok(self.rows[row].account.clone()),
            None => Err(self.missing()),
        }
    }

    fn file_service(&mut self, account: &ArmId) -> Result<FileService, Error> {
        match self.find(account) {
            Some(row) => {
                Ok(FileService { smb_multichannel: Some(self.rows[row].has_multichannel), ..FileService::default() })
            }
            None => Err(self.missing()),
        }
    }

    fn list_shares(&mut self, account: &ArmId) -> Result<Vec<FileShare>, Error> {
        let Some(row) = self.find(account) else { return Err(self.missing()) };
        if self.mutant == Some(Mutant::BlindShares) {
            return Ok(Vec::new());
        }
        let names: Vec<String> = self.rows[row].shares.keys().cloned().collect();
        let mut shares: Vec<FileShare> = names.iter().filter_map(|name| self.shown(row, name)).collect();
        let deleted =
            lazuli_model::file_share::DeletedShare { version: "1".into(), deleted: None, remaining_days: None };
        let of = account.name();
        for (name, (_, gib)) in &self.rows[row].soft_deleted {
            shares.push(FileShare { deleted: Some(deleted.clone()), ..FileShare::smb(of, name, *gib) });
        }
        let filler = FileShare::smb(of, "filler", 32);
        shares.extend(std::iter::repeat_n(filler, usize::try_from(self.rows[row].filled).expect("they are few")));
        Ok(shares)
    }

    fn read_share(&mut self, share: &ArmId, query: share::Query) -> Result<share::Seen, Error> {
        let account = share.account_of_share().expect("it is a share");
        let Some(row) = self.find(&account) else { return Err(failed(Fault::ScopeNotFound)) };
        match (query, self.shown(row, share.name())) {
            (share::Query::Share, Some(share)) => Ok(share::Seen::Share { share, is_new: false }),
            (share::Query::Share, None) => Err(failed(Fault::NotFound)),
            (share::Query::Snapshots, _) => {
                let count = self.rows[row].shares.get(share.name()).map_or(0, |share| share.snapshots);
                Ok(share::Seen::Snapshots((0..count).map(|number| format!("t{number}")).collect()))
            }
        }
    }

    fn refusal(&mut self, which: u8) -> Error {
        self.count("refused");
        let throttled = |seconds| Fault::Throttled { retry_after: Some(Duration::from_secs(seconds)) };
        let faults = [
            throttled(2),
            throttled(90),
            Fault::Throttled { retry_after: None },
            Fault::Unavailable,
            Fault::Unavailable,
            Fault::Forbidden,
            Fault::Conflict,
        ];
        failed(faults[usize::from(which)].clone())
    }

    #[expect(clippy::too_many_arguments, reason = "a request is all of it")]
    fn write_account(
        &mut self,
        replica: usize,
        life: u64,
        id: &ArmId,
        write: Id,
        op: account::Op<FileService>,
        fate: Fate,
        read_at: Option<Duration>,
    ) -> Option<Written<Account>> {
        let is_lost = fate == Fate::Lost;
        let fails = fate == Fate::Served { fails: true };
        match fate {
            Fate::NotDone => {
                self.count("lost, and not done");
                return Some(Written::Refused(lost()));
            }
            Fate::Refused(which) => return Some(Written::Refused(self.refusal(which))),
            Fate::Lost | Fate::Served { .. } => {}
        }
        let written = match (op, self.find(id)) {
            (account::Op::Put(spec), None) => {
                let has_made = self.rows.iter().any(|row| row.is_ours);
                let numbers = &mut self.numbers;
                let is_stranger =
                    *self.strangers.entry(id.name().to_owned()).or_insert_with(|| !has_made && numbers.one_in(15));
                if is_stranger {
                    self.count("name taken");
                    let taken = Error { code: "StorageAccountAlreadyTaken", ..failed(Fault::Invalid) };
                    return (!is_lost).then_some(Written::Refused(taken));
                }
                let is_shared = self.economy(id, spec.sku);
                let account = StorageAccount {
                    id: id.clone(),
                    sku: Some(spec.sku),
                    kind: Some(spec.kind),
                    tags: spec.tags.clone(),
                    provisioning_state: ProvisioningState::InProgress,
                    ..StorageAccount::general_purpose("x")
                };
                let row = Row { is_ours: true, is_touched: !is_shared, ..self.row(account) };
                let number = row.number;
                if !is_shared {
                    self.excuse_all("an account was made for another class, and fits");
                }
                self.rows.push(row);
                self.changed();
                let ends = self.now + Duration::from_secs(15) + self.numbers.ms(10_000);
                let to = (!is_lost).then_some((replica, life, write));
                self.at(ends, Then::Ends { number, fails, to });
                return None;
            }
            (account::Op::Put(_), Some(row)) => {
                self.count("PUT meets another one");
                if self.rows[row].is_busy() {
                    Written::Refused(failed(Fault::Conflict))
                } else {
                    if read_at.is_none_or(|read_at| self.rows[row].made_at <= read_at) {
                        self.breaks(format!("a PUT changes the account {}", id.name()));
                    }
                    Written::Done(Some(account::Seen::Account(Box::new(self.rows[row].account.clone()))))
                }
            }
            (_, None) => Written::Refused(failed(Fault::NotFound)),
            (account::Op::FileService(spec, _), Some(row)) => {
                self.count("file service changed");
                if !self.rows[row].is_ours {
                    self.breaks("the file service of a person's account is changed");
                }
                self.rows[row].has_multichannel = spec.smb_multichannel == Some(true);
                Written::Done(None)
            }
            (account::Op::Tags(_), Some(row)) => {
                self.count("account's tags cleared");
                self.rows[row].account.tags.remove("skip-matching");
                self.changed();
                Written::Done(None)
            }
        };
        (!is_lost).then_some(written)
    }

    pub(super) fn ends(&mut self, number: u64, fails: bool, to: Option<(usize, u64, Id)>) {
        let Some(row) = self.rows.iter().position(|row| row.number == number) else { return };
        let id = self.rows[row].account.id.clone();
        if fails {
            self.count("account failed to be made");
            self.rows[row].is_touched = true;
            self.excuse_all("an account has failed to be made");
            if self.numbers.one_in(2) {
                self.rows[row].account.provisioning_state = ProvisioningState::Failed;
                self.rows[row].is_touched = true;
            } else {
                self.rows.remove(row);
            }
        } else {
            self.count("account made");
            self.rows[row].account.provisioning_state = ProvisioningState::Succeeded;
        }
        self.changed();
        let Some((replica, life, write)) = to else { return };
        let written = if fails {
            Written::Failed(Error { effect: Effect::Possible, ..failed(Fault::OperationFailed) })
        } else if self.numbers.one_in(4) {
            Written::Done(None)
        } else {
            Written::Done(self.find(&id).map(|row| account::Seen::Account(Box::new(self.rows[row].account.clone()))))
        };
        self.after_ms(
            2_000,
            Then::Tell(replica, life, Box::new(Told::Account(id, single::Event::Ended(write, written)))),
        );
    }

    fn write_share(
        &mut self,
        share: &ArmId,
        op: share::Op,
        fate: Fate,
        course: u64,
        began: Duration,
    ) -> Written<share::Share<Error>> {
        if fate == Fate::Lost && matches!(op, share::Op::Put(_)) {
            *self.late.entry(course).or_default() -= 1;
        }
        match fate {
            Fate::NotDone => {
                self.count("lost, and not done");
                return Written::Refused(lost());
            }
            Fate::Refused(which) => return Written::Refused(self.refusal(which)),
            Fate::Lost | Fate::Served { .. } => {}
        }
        let account = share.account_of_share().expect("it is a share");
        let name = share.name().to_owned();
        let Some(row) = self.find(&account) else {
            self.count("share in no account");
            return Written::Refused(failed(Fault::ScopeNotFound));
        };
        let busy_deletion =
            self.rows[row].soft_deleted.get(&name).is_some_and(|(at, _)| self.now <= *at + Duration::from_secs(20));
        let there = self.rows[row].shares.get(&name).cloned();
        match (op, there) {
            _ if self.rows[row].is_busy() => return Written::Refused(failed(Fault::Conflict)),
            (share::Op::Put(_), None) if busy_deletion => {
                self.count("share being deleted");
                return Written::Refused(failed(Fault::Conflict));
            }
            (share::Op::Put(spec), None) => {
                if self.rows[row].is_sealed || self.rows[row].room() == Some(0) {
                    self.count("account full");
                    self.rows[row].is_touched = true;
                    return Written::Refused(failed(Fault::AccountFull));
                }
                self.put_share(row, &name, spec.quota.get(), Some(course));
                self.only_one(row, &name);
            }
            (share::Op::Put(spec), Some(there)) => {
                self.count("share met");
                self.resize(row, &name, spec.quota.get(), there.gib, began);
            }
            (share::Op::Change(change), Some(there)) => {
                let to = change.quota.map_or(there.gib, Gib::get);
                self.resize(row, &name, to, there.gib, began);
            }
            (share::Op::Change(_) | share::Op::Delete, None) => return Written::Refused(failed(Fault::NotFound)),
            (share::Op::Delete, Some(there)) => {
                if there.snapshots > 0 && self.mutant != Some(Mutant::DeletesSnapshots) {
                    self.count("snapshots in the way");
                    return Written::Refused(failed(Fault::InUse));
                }
                self.deletes(row, &name, &there, began);
                self.drop_share(row, &name);
                return Written::Done(None);
            }
        }
        let is_new = self.rows[row].shares[&name].made_at == self.now;
        Written::Done(self.shown(row, &name).map(|share| share::Seen::Share { share, is_new }))
    }

    fn resize(&mut self, row: usize, name: &str, to: u32, from: u32, began: Duration) {
        self.shrinks(row, name, to, from, began);
        self.rows[row].shares.get_mut(name).expect("it is there").gib = to;
        if to != from {
            self.logged(&self.rows[row].account.id.clone(), name, Some(to));
        }
    }
}
