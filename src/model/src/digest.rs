//! A digest for names, not for secrets: whoever chooses a text can choose its digest.

/// FNV-1a, 128 bits (source: the FNV draft's parameters), as 32 hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    let digest = bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME));
    format!("{digest:032x}")
}

/// Bytes, such as those of another digest, as lower-case hexadecimal digits.
pub fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The digest in the form of a UUID, for names in which others put a random one.
pub fn uuid_like(bytes: &[u8]) -> String {
    let hex = hex(bytes);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_that_of_the_draft_and_is_the_same_every_time() {
        assert_eq!(hex(b""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(hex(b"a"), "d228cb696f1a8caf78912b704e4a8964");
        assert_eq!(digits(&[0, 0x0a, 0xff]), "000aff");
        assert_eq!(uuid_like(b"a"), "d228cb69-6f1a-8caf-7891-2b704e4a8964");
    }
}
