//! A small API server: what users ask for, and what the controller writes on it. It knows nothing of the engine.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{Address, Owner, SOURCES, VIRTUAL_NETWORK};

/// What a user asks for of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) address: AskAddress,
    pub(super) ports: BTreeSet<u16>,
    pub(super) sources: BTreeSet<u8>,
    pub(super) deny: bool,
    /// Whether it asks for a private link service; an internal one may.
    pub(super) link: bool,
    /// Whether one with a public IP of its own is on the second public load balancer.
    pub(super) second: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AskAddress {
    /// The public IP that several Services share.
    Shared,
    /// One of two public IPs of its own.
    Own(bool),
    /// A private address of one of two subnets.
    Internal(bool),
}

impl Ask {
    pub(super) fn is_internal(&self) -> bool {
        matches!(self.address, AskAddress::Internal(_))
    }

    /// The load balancer that it is placed on.
    pub(super) fn load_balancer(&self) -> u8 {
        match self.address {
            AskAddress::Internal(_) => 1,
            AskAddress::Own(_) if self.second => 2,
            AskAddress::Shared | AskAddress::Own(_) => 0,
        }
    }

    /// The ports and sources that it admits.
    pub(super) fn promises(&self) -> BTreeSet<(u16, u8)> {
        let of_port = |port: u16| SOURCES.map(|source| (port, source)).into_iter();
        let all = self.ports.iter().flat_map(|port| of_port(*port));
        all.filter(|(port, source)| self.admits(*port, *source)).collect()
    }

    pub(super) fn admits(&self, port: u16, source: u8) -> bool {
        let open = self.is_internal() && !self.deny && source == VIRTUAL_NETWORK;
        self.ports.contains(&port) && (open || self.sources.contains(&source))
    }
}

/// The public IP of a Service's own.
pub(super) fn own_public_ip(owner: Owner, second: bool) -> u8 {
    1 + 2 * owner + u8::from(second)
}

/// A Service in the API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiService {
    pub(super) version: u64,
    /// `None` is a mistake that only the controller finds.
    pub(super) ask: Option<Ask>,
    pub(super) claimed: bool,
    pub(super) deleting: bool,
    pub(super) finalizer: bool,
    pub(super) status: Option<Address>,
}

#[derive(Debug, Default)]
pub(super) struct Api {
    pub(super) services: BTreeMap<Owner, ApiService>,
    version: u64,
}

impl Api {
    pub(super) fn put(&mut self, owner: Owner, change: impl FnOnce(&mut ApiService)) {
        self.version += 1;
        let new = ApiService { version: 0, ask: None, claimed: true, deleting: false, finalizer: false, status: None };
        let service = self.services.entry(owner).or_insert(new);
        change(service);
        service.version = self.version;
        if service.deleting && !service.finalizer {
            self.services.remove(&owner);
        }
    }

    /// A patch on a version.
    pub(super) fn patch(
        &mut self,
        owner: Owner,
        version: u64,
        change: impl FnOnce(&mut ApiService),
    ) -> Result<u64, bool> {
        let Some(service) = self.services.get(&owner) else { return Err(true) };
        if service.version != version {
            return Err(false);
        }
        self.put(owner, change);
        Ok(self.version)
    }
}
