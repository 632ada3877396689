//! CRC-32 as zlib computes it: what says to which stream of a log a key belongs.
//!
//! Not for damage: checksums of files are CRC-32C, which processors compute themselves.

/// Reflected polynomial of IEEE 802.3.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// Tables for eight bytes at a time: the n-th is of a byte with n bytes of zero behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ ((value & 1) * POLYNOMIAL);
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let value = tables[behind - 1][byte];
            tables[behind][byte] = (value >> 8) ^ tables[0][(value & 0xff) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// The CRC-32 of `bytes`.
pub fn crc32(bytes: &[u8]) -> u32 {
    extend(0, bytes)
}

/// The CRC-32 of bytes that have `value`, and of `bytes` behind them.
pub fn extend(value: u32, bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut value = !value;
    for chunk in chunks {
        let whole = u64::from_le_bytes(*chunk) ^ u64::from(value);
        value = 0;
        for (table, byte) in TABLES.iter().rev().zip(whole.to_le_bytes()) {
            value ^= table[usize::from(byte)];
        }
    }
    !rest.iter().fold(value, |value, &byte| {
        (value >> 8) ^ TABLES[0][usize::from(value as u8 ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::{crc32, extend};

    #[test]
    fn the_values_of_zlib() {
        for (bytes, value) in [
            (&b""[..], 0),
            (b"a", 0xE8B7_BE43),
            (b"123456789", 0xCBF4_3926),
            (b"\x00\xff\x80", 0x81DD_A740),
            (b"123456789123456789123456789", 0x4DDF_6E59),
        ] {
            assert_eq!(crc32(bytes), value, "{bytes:?}");
        }
    }

    #[test]
    fn bytes_behind_others_count_as_if_they_were_one() {
        let bytes: Vec<u8> = (0..100u32).map(|n| (n * n) as u8).collect();
        for at in 0..bytes.len() {
            let (front, back) = bytes.split_at(at);
            assert_eq!(extend(crc32(front), back), crc32(&bytes), "{at}");
        }
    }
}
