//! Users of this crate on paused time: a route table, which shows what another object costs, and the data disks of VMs,
//! whose callers wait, abandon and join.

mod callers;
mod route_table;
mod vm;
