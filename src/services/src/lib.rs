//! Services of type LoadBalancer, as pure functions over values: what a Service asks of Azure, and what the objects of
//! Azure's network need for all of them.
//!
//! | module | decides |
//! |---|---|
//! | [`ask`] | nothing: what a valid Service asks, and the names of what it owns |
//! | [`network`] | which edits a load balancer, a security group, a public IP and their kin need for all Services |
//! | [`service`] | what a Service asks of Azure, and what is wrong with it |
//!
//! `ask` is imported by both others, and `network` by `service` alone.

pub mod ask;
pub mod network;
pub mod service;
