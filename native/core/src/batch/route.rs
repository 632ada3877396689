//! Which stream of a log each record goes to, by its key.
//!
//! The hash is the CRC-32 of zlib, modulo the number of streams: that of the clients, so that
//! records of one key meet in one stream whoever appends them.

use super::columns::ColumnsRef;
use super::encode::check_columns;
use crate::error::{Error, Result};

/// Polynomial of zlib's CRC-32, reflected.
const POLYNOMIAL: u32 = 0xEDB8_8320;

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            let carry = if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            crc = (crc >> 1) ^ carry;
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// CRC-32 as zlib computes it.
pub fn key_hash(key: &[u8]) -> u32 {
    let update =
        |crc: u32, byte: &u8| TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8);
    !key.iter().fold(u32::MAX, update)
}

/// Numbers of records, by where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routed {
    /// For each stream the records whose keys go there, ascending.
    pub streams: Vec<Vec<u32>>,
    /// Records without a key, ascending.
    pub keyless: Vec<u32>,
    /// Bytes that a batch of the largest record takes, at most.
    pub largest: usize,
}

/// Route records to `streams` streams. What could not be encoded is refused as it would be then.
pub fn route(columns: &ColumnsRef<'_>, streams: usize) -> Result<Routed> {
    if streams == 0 || u32::try_from(columns.len).is_err() {
        let reason = format!("{} records to {streams} streams", columns.len);
        return Err(Error::InvalidArgument(reason));
    }
    check_columns(columns, &(0..columns.len))?;
    let mut routed = Routed {
        streams: vec![Vec::new(); streams],
        ..Routed::default()
    };
    for row in 0..columns.len {
        routed.largest = routed.largest.max(columns.encoded_len_max(&(row..row + 1)));
        let number = row as u32;
        match columns.keys.as_ref().filter(|keys| !keys.is_null(row)) {
            Some(keys) => {
                let hash = key_hash(keys.bytes.get(row).unwrap_or_default());
                routed.streams[hash as usize % streams].push(number);
            }
            None => routed.keyless.push(number),
        }
    }
    Ok(routed)
}

#[cfg(test)]
mod tests {
    use super::super::{BytesRef, NullableRef, Offsets, Timestamps};
    use super::*;

    fn bytes<'a>(offsets: &'a [u32], data: &'a [u8]) -> BytesRef<'a> {
        BytesRef {
            offsets: Offsets::U32(offsets),
            data,
        }
    }

    #[test]
    fn the_hash_is_that_of_zlib() {
        assert_eq!(key_hash(b"123456789"), 0xCBF4_3926);
        assert_eq!(key_hash(b""), 0);
    }

    #[test]
    fn each_record_goes_somewhere_once() {
        let keys = b"aabbcc";
        let columns = ColumnsRef {
            len: 4,
            values: bytes(&[0, 0, 0, 0, 9], b"the value").into(),
            keys: Some(NullableRef {
                bytes: bytes(&[0, 2, 4, 4, 6], keys),
                validity: Some(super::super::Bitmap {
                    bytes: &[0b1011],
                    offset: 0,
                }),
            }),
            timestamps: Timestamps::All(7),
            headers: None,
        };
        let routed = route(&columns, 3).unwrap();
        assert_eq!(routed.keyless, [2]);
        for (row, key) in [(0, b"aa"), (1, b"bb"), (3, b"cc")] {
            assert!(routed.streams[key_hash(key) as usize % 3].contains(&row));
        }
        assert_eq!(routed.streams.iter().map(Vec::len).sum::<usize>(), 3);
        assert_eq!(routed.largest, columns.encoded_len_max(&(3..4)));
        assert!(route(&columns, 0).is_err());
    }
}
