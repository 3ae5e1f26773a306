//! What follows from a text alone, the same in every run: hashes and GUIDs.

use uuid::Uuid;

use crate::path;

/// FNV-1a: stable over versions of the compiler and of this crate.
pub(crate) fn hash(text: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in text.as_bytes() {
        hash ^= u64::from(*byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    // A final mix, since FNV leaves short texts similar.
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

/// A number that follows from a seed and a text in any letter case.
pub(crate) fn drawn(seed: u64, text: &str) -> u64 {
    hash(&format!("{seed}/{}", path::key(text)))
}

/// A GUID that follows from a text alone.
pub(crate) fn guid_of(text: &str) -> String {
    let high = u128::from(hash(text)) << 64;
    let low = u128::from(hash(&format!("{text}/low")));
    Uuid::from_u128(high | low).to_string()
}
