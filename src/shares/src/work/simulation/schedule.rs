//! What happens to the processes and to Azure from outside.

use super::*;

/// What happens. A number picks one of what is there.
#[derive(Debug, Clone, Copy)]
pub(super) enum Incident {
    Create {
        replica: usize,
        claim: usize,
        patience: u64,
    },
    Delete {
        replica: usize,
        claim: usize,
        patience: u64,
    },
    Grow {
        replica: usize,
        claim: usize,
        patience: u64,
    },
    Kill(usize),
    /// A person makes an account of a kind, the first of lists or the last.
    Account {
        kind: usize,
        is_first: bool,
    },
    /// A person deletes an account.
    DropAccount(usize),
    /// A person keeps an account from being matched, or no longer.
    Tag(usize),
    /// A person fills an account up to so many places.
    Fill {
        account: usize,
        left: u32,
    },
    /// The shares with which a person has filled an account are gone for good.
    Empty(usize),
    /// An account takes no more shares, because of their performance.
    Seal(usize),
    /// A person makes the share that a class names.
    Share,
    /// A person deletes the share of a claim, or takes a snapshot of it.
    DropShare(usize),
    Snapshot(usize),
    /// A person makes a PersistentVolume of the share of a claim, or deletes all of them.
    Volume(usize),
    DropVolumes,
}

impl seeded::Incident for Incident {
    fn of(seed: u64) -> Vec<(u64, Self)> {
        let mut numbers = Numbers::new(seed);
        let count = 1 + numbers.below(12);
        let first = numbers.below(INCIDENTS / 2);
        let small = |numbers: &mut Numbers, below: u64| usize::try_from(numbers.below(below)).expect("it is small");
        let class = small(&mut numbers, CLASSES.len() as u64);
        let mut incidents: Vec<(u64, Incident)> = (0..count)
            .map(|_| {
                let at = if numbers.one_in(2) { numbers.below(INCIDENTS) } else { first + numbers.below(40_000) };
                let class = if numbers.one_in(5) { small(&mut numbers, CLASSES.len() as u64) } else { class };
                let few = if numbers.one_in(2) { 1 } else { CLAIMS as u64 };
                let claim = class * CLAIMS + small(&mut numbers, few);
                let patience = if numbers.one_in(4) { numbers.below(40_000) } else { u64::MAX };
                let replica = usize::from(numbers.one_in(3));
                let pick = small(&mut numbers, 3);
                let incident = match numbers.below(30) {
                    0..11 => Incident::Create { replica, claim, patience },
                    11..14 => Incident::Delete { replica, claim, patience },
                    14..16 => Incident::Grow { replica, claim, patience },
                    16 => Incident::Kill(replica),
                    17 | 18 => Incident::Account { kind: kind_of(class), is_first: numbers.one_in(2) },
                    19 => Incident::DropAccount(pick),
                    20 => Incident::Tag(pick),
                    21 | 22 => {
                        Incident::Fill { account: pick, left: u32::try_from(numbers.below(3)).expect("it is small") }
                    }
                    23 => Incident::Empty(pick),
                    24 => Incident::Seal(pick),
                    25 => Incident::Share,
                    26 => Incident::Snapshot(claim),
                    27 => Incident::Volume(claim),
                    28 => Incident::DropShare(claim),
                    _ => Incident::DropVolumes,
                };
                (at, incident)
            })
            .collect();
        // A named account has to be there, most often. And claims come in bursts, and are repeated.
        if numbers.one_in(2) {
            incidents.push((0, Incident::Account { kind: kind_of(class), is_first: true }));
        }
        if numbers.one_in(2)
            && let Some((at, Incident::Create { replica, claim, .. })) = incidents.first().copied()
        {
            for number in 0..=small(&mut numbers, CLAIMS as u64) {
                let claim = if numbers.one_in(3) { claim } else { claim - claim % CLAIMS + number };
                let replica = if numbers.one_in(3) { 1 - replica } else { replica };
                incidents.push((at + numbers.below(4_000), Incident::Create { replica, claim, patience: u64::MAX }));
            }
            if numbers.one_in(2) {
                incidents.push((
                    at + 30_000 + numbers.below(60_000),
                    Incident::Create { replica, claim, patience: u64::MAX },
                ));
            }
        }
        if class == NAMED_SHARE && numbers.one_in(2) {
            incidents.extend(one_goes_while_another_comes(&mut numbers, first));
        }
        incidents.sort_by_key(|(at, _)| *at);
        incidents
    }
}

/// Two claims of the named share: one is deleted when the other has just got it, perhaps by a process that has just begun.
fn one_goes_while_another_comes(numbers: &mut Numbers, at: u64) -> Vec<(u64, Incident)> {
    let (one, other) = (NAMED_SHARE * CLAIMS, NAMED_SHARE * CLAIMS + 1);
    let replica = usize::from(numbers.one_in(3));
    let elsewhere = if numbers.one_in(4) { 1 - replica } else { replica };
    let comes = at + 1_000 + numbers.below(20_000);
    let mut incidents = vec![
        (at, Incident::Create { replica, claim: one, patience: u64::MAX }),
        (comes, Incident::Create { replica, claim: other, patience: u64::MAX }),
        (comes + numbers.below(30_000), Incident::Delete { replica: elsewhere, claim: one, patience: u64::MAX }),
    ];
    if numbers.one_in(3) {
        incidents.push((comes + 1_000 + numbers.below(10_000), Incident::Kill(replica)));
    }
    incidents
}

impl World {
    fn picked(&self, number: usize) -> Option<usize> {
        (!self.rows.is_empty()).then(|| number % self.rows.len())
    }

    /// The account and the name of a claim's share, where one is.
    fn share_of(&self, claim: usize) -> Option<(usize, String)> {
        let name = &plans()[claim].share;
        let row = self.rows.iter().position(|row| row.shares.contains_key(name))?;
        Some((row, name.clone()))
    }

    /// A person has changed what accounts fit: an earlier try of a claim may have used another.
    pub(super) fn excuse_all(&mut self, why: &'static str) {
        for claim in 0..plans().len() {
            self.excused.entry(claim).or_insert(why);
        }
    }

    pub(super) fn incident(&mut self, incident: Incident) {
        self.tell_story(|| format!("{incident:?}"));
        match incident {
            Incident::Create { .. } | Incident::Delete { .. } | Incident::Grow { .. } => self.ask(incident),
            Incident::Kill(replica) => self.kill(replica),
            Incident::Account { kind, is_first } => self.foreign_account(kind, is_first),
            Incident::DropAccount(pick) => {
                if let Some(row) = self.picked(pick).filter(|row| !self.rows[*row].is_busy()) {
                    self.count("foreign account deleted");
                    self.excuse_all("an account was deleted");
                    self.has_dropped = true;
                    let row = self.rows.remove(row);
                    for name in row.shares.keys() {
                        self.logged(&row.account.id, name, None);
                    }
                    self.changed();
                }
            }
            Incident::Tag(pick) => self.tag(pick),
            Incident::Fill { account, left } => {
                if let Some(row) = self.picked(account).filter(|row| !self.rows[*row].is_busy())
                    && let Some(room) = self.rows[row].room()
                {
                    self.count("foreign fill");
                    self.rows[row].filled += room.saturating_sub(left);
                    self.rows[row].is_touched = true;
                    self.counted(row);
                    self.excuse_all("an account was filled");
                }
            }
            Incident::Empty(pick) => {
                if let Some(row) = self.picked(pick) {
                    self.excuse_all("an account was emptied");
                    (self.rows[row].filled, self.rows[row].is_sealed) = (0, false);
                    self.counted(row);
                }
            }
            Incident::Seal(pick) => {
                if let Some(row) = self.picked(pick) {
                    self.excuse_all("an account was sealed");
                    (self.rows[row].is_sealed, self.rows[row].is_touched) = (true, true);
                }
            }
            Incident::Share => {
                if let Some(row) = self.rows.iter().position(|row| row.account.name() == "given" && !row.is_busy())
                    && !self.rows[row].shares.contains_key("data")
                {
                    self.count("foreign share");
                    self.put_share(row, "data", 100, None);
                }
            }
            Incident::DropShare(claim) => {
                if let Some((row, name)) =
                    self.share_of(claim).filter(|(row, name)| self.rows[*row].shares[name].snapshots == 0)
                {
                    self.drop_share(row, &name);
                }
            }
            Incident::Snapshot(claim) => {
                if let Some((row, name)) = self.share_of(claim) {
                    self.count("foreign snapshot");
                    self.rows[row].shares.get_mut(&name).expect("it was found").snapshots += 1;
                }
            }
            Incident::Volume(claim) => self.foreign_volume(claim),
            Incident::DropVolumes => {
                self.volumes.retain(|volume| volume.claim.is_some());
                self.volumes_changed();
            }
        }
    }

    fn tag(&mut self, pick: usize) {
        if let Some(row) = self.picked(pick).filter(|row| !self.rows[*row].is_busy()) {
            self.count("foreign tags");
            self.excuse_all("an account was tagged");
            let tags = &mut self.rows[row].account.tags;
            if tags.remove("skip-matching").is_none() {
                tags.insert("skip-matching".into(), "true".into());
            }
            self.rows[row].is_touched = true;
            self.changed();
        }
    }

    fn foreign_account(&mut self, kind: usize, is_first: bool) {
        let has_given = self.rows.iter().any(|row| row.account.name() == "given");
        let name = if has_given || kind != 0 { format!("person{}", self.number()) } else { "given".to_owned() };
        self.count("foreign account");
        self.excuse_all("a person made an account");
        let sku = [StorageSku::StandardLrs, StorageSku::StandardV2Lrs, StorageSku::PremiumV2Lrs][kind];
        let account = StorageAccount {
            sku: Some(sku),
            kind: Some(if kind == 0 { AccountKind::StorageV2 } else { AccountKind::FileStorage }),
            ..StorageAccount::general_purpose(&name)
        };
        let row = Row { has_multichannel: self.numbers.one_in(2), ..self.row(account) };
        if is_first {
            self.rows.insert(0, row)
        } else {
            self.rows.push(row)
        }
        self.changed();
    }

    fn foreign_volume(&mut self, claim: usize) {
        if let Some(volume) = self.volumes.iter().find(|volume| volume.claim == Some(claim)).cloned() {
            self.count("foreign volume");
            let name = format!("pv-{}", self.number());
            let of_person =
                Volume { name, claim: None, is_released: false, is_seen: true, answered_by: None, ..volume };
            self.volumes.push(of_person);
            self.volumes_changed();
        }
    }

    pub(super) fn volumes_changed(&mut self) {
        let blind = self.mutant == Some(Mutant::BlindVolumes);
        let seen = self.volumes.iter().filter(|volume| volume.is_seen && (!blind || volume.is_released));
        let refs = seen
            .map(|volume| VolumeRef::of_driver(&volume.name, &volume.id, &BTreeMap::new(), volume.is_released))
            .collect();
        self.refs = Arc::new(refs);
    }
}
