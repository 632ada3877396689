//! CRC-32 as zlib computes it: what says to which stream of a log a key belongs.
//!
//! Not for damage: checksums of files are CRC-32C, which processors compute themselves.

/// Reflected polynomial of IEEE 802.3.
const POLYNOMIAL: u32 = 0xEDB8_8320;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ ((value & 1) * POLYNOMIAL);
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

/// The CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |value, &byte| {
        (value >> 8) ^ TABLE[usize::from(value as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_values_of_zlib() {
        for (bytes, value) in [
            (&b""[..], 0),
            (b"a", 0xE8B7_BE43),
            (b"123456789", 0xCBF4_3926),
            (b"\x00\xff\x80", 0x81DD_A740),
        ] {
            assert_eq!(crc32(bytes), value, "{bytes:?}");
        }
    }
}
