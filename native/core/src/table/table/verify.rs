//! Whether indexes and primary tree agree.

use super::read::{TableSnapshot, record_position};
use super::table::{Index, Table};
use crate::error::{Error, Result};
use crate::table::entry::{Direction, Entries};
use crate::table::order::{Extractor, Outcome};
use crate::table::tree::{Snapshot, Tombstones};

/// What [`Table::verify`] found in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Records of the table.
    pub records: u64,
    /// Entries of its indexes that lead to a record.
    pub entries: u64,
}

impl Table {
    /// Read every record and every entry of the indexes, which checks their pages, and compare them: each record is in each index under the
    /// fields that it has, and nowhere else. `progress` is told the records and entries read so far.
    ///
    /// # Errors
    /// [`Error::Corruption`] for the first page that is damaged, or index that does not agree.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<Verified> {
        self.verify_while(&mut |read| {
            progress(read);
            true
        })
    }

    /// As [`Table::verify`], as long as `progress` says to go on.
    ///
    /// # Errors
    /// [`Error::Closed`] if it said not to.
    pub fn verify_while(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified> {
        self.snapshot()?.verify(progress)
    }
}

/// Say how far it is.
pub(super) fn tell(progress: &mut dyn FnMut(u64) -> bool, read: u64) -> Result<()> {
    if progress(read) {
        Ok(())
    } else {
        Err(Error::Closed)
    }
}

impl TableSnapshot {
    /// As [`Table::verify_while`].
    pub(super) fn verify(&self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified> {
        let snapshot = self;
        let mut verified = Verified::default();
        let indexes = snapshot.indexes();
        let specs = indexes
            .iter()
            .map(|(index, _)| index.spec.clone())
            .collect();
        let mut extractor = Extractor::new(specs);
        let mut expected = vec![0_u64; indexes.len()];
        // What a scan does not look at: filters, counts, and entries that newer ones hide.
        snapshot.verify_runs(progress)?;
        let mut rows = snapshot.scan(None, None, Direction::Forward)?;
        while rows.advance()? {
            verified.records += 1;
            let payload = rows.payload()?;
            let Some(value) = payload.value else { continue };
            let mut missing = None;
            let position = rows.position();
            extractor.extract(rows.key(), value, &payload.headers, |at, outcome| {
                let Outcome::Key(key) = outcome else { return };
                if indexes[at].0.base > snapshot.position() {
                    return;
                }
                expected[at] += 1;
                let (index, tree) = &indexes[at];
                let found = tree.get(key, snapshot.position());
                let is_it = found.map(|hit| {
                    hit.is_some_and(|hit| {
                        record_position(hit.position(), hit.payload()) == Some(position)
                    })
                });
                match is_it {
                    Ok(true) => {}
                    Ok(false) => {
                        let reason = format!("no entry for the record at position {position}");
                        missing = Some(Error::corrupt(index.tree.dir(), 0, reason));
                    }
                    Err(error) => missing = Some(error),
                }
            });
            if let Some(error) = missing {
                return Err(error);
            }
            if verified.records.is_multiple_of(4096) {
                tell(progress, verified.records)?;
            }
        }
        for ((index, tree), expected) in indexes.iter().zip(expected) {
            if index.base > snapshot.position() {
                continue;
            }
            let found = verify_index(index, tree, snapshot)?;
            if found != expected {
                let reason = format!("{found} entries lead to records, and {expected} should");
                return Err(Error::corrupt(index.tree.dir(), 0, reason));
            }
            verified.entries += found;
            tell(progress, verified.records + verified.entries)?;
        }
        Ok(verified)
    }
}

fn verify_index(index: &Index, tree: &Snapshot, snapshot: &TableSnapshot) -> Result<u64> {
    let hidden = Tombstones::Hidden;
    let at = snapshot.position();
    let mut entries = tree.entries(None, None, Direction::Forward, at, hidden)?;
    let mut found = 0;
    while entries.advance()? {
        let entry = entries.entry();
        if entry.key.is_empty() {
            continue;
        }
        let key_at = index.spec.record_key_at(entry.key)?;
        let row = snapshot.get(&entry.key[key_at..])?;
        let position = record_position(entry.position, entry.payload);
        found += u64::from(row.is_some_and(|row| Some(row.position()) == position));
    }
    Ok(found)
}
