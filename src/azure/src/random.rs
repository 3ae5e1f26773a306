//! Numbers that look random and come from one seed.
//!
//! Jitter and request ids need no cryptography; they need to be the same again when the same seed runs again, so that
//! a simulation can be replayed call by call. Never used for anything secret.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A seeded source, shared by all clones (source of the constants: the published SplitMix64 generator).
#[derive(Debug, Clone)]
pub(crate) struct Random(Arc<AtomicU64>);

impl Random {
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    fn next(&self) -> u64 {
        let mut z = self.0.fetch_add(Self::STEP, Ordering::Relaxed).wrapping_add(Self::STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1.
    pub(crate) fn chance(&self) -> f64 {
        // Sixteen bits are exact in an f64 and finer than any timer.
        (self.next() >> 48) as f64 / 65_536.0
    }

    /// A factor from 0.75 to 1.25: retries of many callers must not stay in step.
    pub(crate) fn jitter(&self) -> f64 {
        0.75 + self.chance() / 2.0
    }

    /// A version 4 UUID.
    pub(crate) fn uuid(&self) -> uuid::Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_and_clones_share_it() {
        let (a, b) = (Random::seeded(7), Random::seeded(7));
        let shared = a.clone();
        assert_eq!([a.uuid(), shared.uuid(), a.uuid()], [b.uuid(), b.uuid(), b.uuid()]);
        assert_ne!(a.uuid(), a.uuid());
        assert_eq!(a.uuid().get_version_num(), 4);
        for _ in 0..1000 {
            assert!((0.75..=1.25).contains(&a.jitter()));
        }
    }
}
