//! The members of a pool of addresses. Membership of NICs is the NICs' own ([`crate::network::nic`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{PoolMembers, edit::Edit, limits, model::Pool};
use crate::network::settings::PoolKind;

/// At least so many members may leave with one write.
const LEAVE_AT_LEAST: usize = 10;

/// The most members that may leave a pool of this size with one write: a tenth, and no fewer than ten. A list of nodes that
/// is wrong does then not empty a pool at once.
pub fn most_that_leave(size: usize) -> usize {
    (size / 10).max(LEAVE_AT_LEAST)
}

/// The change of members, and whether it leaves some for a further write. A pool whose members are NICs stays one.
pub(super) fn change(name: &str, there: Option<&Pool>, members: &PoolMembers) -> Option<(Edit, bool)> {
    let is_listed = match there {
        Some(pool) if pool.has_addresses() => true,
        Some(pool) if pool.has_nics() => false,
        _ => members.kind != PoolKind::Nic,
    };
    if !is_listed || members.addresses.is_empty() && !members.may_be_empty {
        return None;
    }
    let current: BTreeSet<IpAddr> =
        there.into_iter().flat_map(|pool| &pool.addresses).filter_map(|member| member.address).collect();
    let add: BTreeMap<IpAddr, String> = members
        .addresses
        .iter()
        .filter(|(address, _)| !current.contains(address))
        .map(|(address, node)| (*address, node.clone()))
        .collect();
    let mut remove: Vec<IpAddr> =
        current.iter().filter(|address| !members.addresses.contains_key(address)).copied().collect();
    if members.keeps {
        remove.clear();
    }
    let stays = current.len() - remove.len();
    let is_last_kept = add.is_empty() && stays == 0 && !remove.is_empty() && !members.may_be_empty;
    let most = most_that_leave(current.len());
    let is_limited = remove.len() > most;
    remove.truncate(most);
    if is_last_kept && !is_limited {
        remove.pop();
    }
    let room = limits::POOL_MEMBERS.saturating_sub(current.len() - remove.len());
    let add: BTreeMap<IpAddr, String> = add.into_iter().take(room).collect();
    if add.is_empty() && remove.is_empty() {
        return None;
    }
    let vnet = (!add.is_empty() && there.is_none_or(|pool| pool.vnet.is_none())).then(|| members.vnet.clone());
    Some((Edit::Members { pool: there.map_or(name, |pool| &pool.name).to_owned(), vnet, add, remove }, is_limited))
}

/// Whether a pool has a member to serve with, as far as this load balancer lists them.
pub(super) fn has_some(pool: &Pool, members: &PoolMembers) -> bool {
    members.kind == PoolKind::Nic
        || pool.nic_members > 0
        || members.addresses.is_empty()
        || pool.addresses.iter().any(|member| member.address.is_some())
}
