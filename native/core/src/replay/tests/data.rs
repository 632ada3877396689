//! Chance, and batches whose values say where they belong.

#![allow(clippy::unwrap_used)]

use super::Row;
use crate::batch::{BatchBuilder, BatchView, Compression};
use crate::replay::Piece;

/// A small generator with a seed.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Records that say what they are.
pub fn batch(stream: u32, llsn: u64, count: u64, len: u64) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for at in llsn..llsn + count {
        let mut value = format!("{stream}/{at}/").into_bytes();
        value.resize(value.len() + len as usize, at as u8);
        builder.push(Some(&value), None, 5, &[]).unwrap();
    }
    let mut out = Vec::new();
    builder.encode_into(Compression::None, &mut out).unwrap();
    out
}

/// Check the values of a piece, and add its records.
pub fn records(piece: &Piece, found: &mut Vec<Row>) {
    let view = BatchView::parse(piece.bytes()).unwrap();
    for at in 0..piece.count {
        let record = view.record(piece.first + at).unwrap();
        let llsn = piece.llsn + u64::from(at);
        let expected = format!("{}/{llsn}/", piece.stream);
        assert!(
            record.value.unwrap().starts_with(expected.as_bytes()),
            "{expected}"
        );
        found.push((piece.glsn + u64::from(at), piece.stream as u32, llsn));
    }
}
