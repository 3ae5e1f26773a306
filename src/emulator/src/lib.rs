//! (empty)
pub mod incident;
pub mod latency;
pub mod scenario;
pub mod sizes;
pub mod tiers;
