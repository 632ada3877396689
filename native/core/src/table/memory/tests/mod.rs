//! The memory level against sorted lists.

mod model;
mod pieces;
mod speed;

use std::sync::Arc;

use super::{Chunk, Level, Piece};
use crate::error::Error;
use crate::table::entry::{Direction, Entries, Entry};

/// An entry that owns its bytes.
type Owned = (Vec<u8>, u64, Option<Vec<u8>>);

fn owned(entry: &Entry<'_>) -> Owned {
    let payload = entry.payload.map(<[u8]>::to_vec);
    (entry.key.to_vec(), entry.position, payload)
}

fn entry(of: &Owned) -> Entry<'_> {
    Entry {
        key: &of.0,
        position: of.1,
        payload: of.2.as_deref(),
    }
}

fn piece(entries: &[Owned]) -> Piece {
    let mut piece = Piece::new();
    for each in entries {
        piece.push(&entry(each)).unwrap();
    }
    piece
}

fn chunk(entries: &[Owned]) -> Arc<Chunk> {
    Arc::new(piece(entries).sort().unwrap())
}

fn collect(mut entries: impl Entries) -> Vec<Owned> {
    let mut found = Vec::new();
    while entries.advance().unwrap() {
        found.push(owned(&entries.entry()));
    }
    assert!(!entries.advance().unwrap(), "stays at the end");
    found
}

/// The order of entries in a tree.
fn sorted(mut entries: Vec<Owned>) -> Vec<Owned> {
    entries.sort_by(|a, b| entry(a).order(&entry(b)));
    entries
}
