//! Applying the log.

use std::ops::Range;
use std::sync::Arc;

use super::counters::{Counters, IndexCounters, Refusals};
use super::origin::digest_of;
use super::payload;
use super::table::{Deletes, Index, Table};
use crate::batch::{BatchView, Headers, RecordRef};
use crate::error::{Error, Result};
use crate::limits::{TABLE_KEY_BYTES_MAX, TABLE_MEMORY_BYTES_DEFAULT};
use crate::table::entry::Entry;
use crate::table::memory::Piece;
use crate::table::order::{Extractor, Outcome};
use crate::table::tree::Tree;
use crate::wal::StreamView;
use crate::wal::View;
use crate::wal::{BatchRef, Position};

/// Bytes of the log that are applied at a time. More sort better; fewer are seen sooner.
const PIECE_BYTES: usize = 4 << 20;

/// Where following stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    /// Everything up to this position is applied.
    pub position: u64,
    /// Memory is full: flush before more can be applied.
    pub is_full: bool,
}

/// Entries of one tree that are to be applied together.
pub(super) struct Pending {
    tree: Arc<Tree>,
    /// What the tree has already.
    applied: u64,
    piece: Piece,
}

impl Pending {
    pub(super) fn new(tree: &Arc<Tree>) -> Self {
        Self {
            tree: Arc::clone(tree),
            applied: tree.applied(),
            piece: Piece::new(),
        }
    }

    fn push(&mut self, entry: &Entry<'_>) -> Result<()> {
        if entry.position > self.applied {
            self.piece.push(entry)?;
        }
        Ok(())
    }

    fn apply(self, position: u64) -> Result<()> {
        if position > self.applied {
            self.tree.apply(self.piece, position)?;
        }
        Ok(())
    }
}

/// Applies records to some of a table's trees.
pub(super) struct Applier<'a> {
    deletes: &'a Deletes,
    /// The primary tree and the counters; none for an index that catches up alone.
    primary: Option<(Pending, &'a mut Counters)>,
    /// Position and digest of the last record that was taken in.
    last: (u64, u64),
    indexes: Vec<(&'a Index, Pending, Refusals)>,
    extractor: &'a mut Extractor,
    payload: Vec<u8>,
}

impl<'a> Applier<'a> {
    pub(super) fn new(
        deletes: &'a Deletes,
        primary: Option<(&Arc<Tree>, &'a mut Counters)>,
        indexes: impl Iterator<Item = &'a Index>,
        extractor: &'a mut Extractor,
    ) -> Self {
        Self {
            deletes,
            primary: primary.map(|(tree, counters)| (Pending::new(tree), counters)),
            last: (0, 0),
            indexes: indexes
                .map(|index| (index, Pending::new(&index.tree), index.refused()))
                .collect(),
            extractor,
            payload: Vec::new(),
        }
    }

    /// Take in the records of a batch.
    pub(super) fn batch(&mut self, batch: &BatchRef) -> Result<()> {
        let view =
            BatchView::parse_verified(batch.bytes()).map_err(|error| damaged(batch, error))?;
        self.records(&view, batch.begin..batch.end, batch.first())
    }

    /// Take in some records of a batch, of which the first is at a position.
    pub(super) fn records(
        &mut self,
        view: &BatchView<'_>,
        records: Range<u32>,
        first: u64,
    ) -> Result<()> {
        let is_lost = view.head().is_hole();
        if !is_lost {
            self.know(view, &records, first)?;
        }
        for (position, index) in (first..).zip(records) {
            let Some(record) = view.record(index) else {
                continue;
            };
            if is_lost {
                self.count(position, |counters| {
                    counters
                        .lost
                        .note(position, "a repair could not save the record");
                });
            } else {
                self.record(position, &record)?;
            }
        }
        Ok(())
    }

    /// Know the last of some records again, and check the one at which the table counted last.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the log has another one there.
    fn know(&mut self, view: &BatchView<'_>, records: &Range<u32>, first: u64) -> Result<()> {
        let Some((primary, counters)) = &self.primary else {
            return Ok(());
        };
        let end = first + u64::from(records.end.saturating_sub(records.start));
        let at = |position: u64| view.record(records.start + (position - first) as u32);
        if (first..end).contains(&counters.position)
            && let Some(record) = at(counters.position)
        {
            let dir = primary.tree.dir();
            counters.check_last(&record, dir.parent().unwrap_or(dir))?;
        }
        if first < end
            && let Some(record) = at(end - 1)
        {
            self.last = (end - 1, digest_of(&record));
        }
        Ok(())
    }

    fn count(&mut self, position: u64, note: impl FnOnce(&mut Counters)) {
        if let Some((_, counters)) = &mut self.primary
            && position > counters.position
        {
            note(counters);
        }
    }

    fn record(&mut self, position: u64, record: &RecordRef<'_>) -> Result<()> {
        self.count(position, |counters| counters.records += 1);
        let Some(key) = record.key else {
            self.count(position, |counters| {
                counters.without_key.note(position, "the record has no key");
            });
            return Ok(());
        };
        if key.len() > TABLE_KEY_BYTES_MAX {
            self.count(position, |counters| {
                counters
                    .long_keys
                    .note(position, "the key is longer than a table's may be");
            });
            return Ok(());
        }
        let is_deletion = self.deletes.applies(record);
        if let Some((primary, _)) = &mut self.primary
            && position > primary.applied
        {
            self.payload.clear();
            let (value, headers) = (record.value, record.headers.clone());
            payload::encode(record.timestamp, value, headers, &mut self.payload);
            primary.push(&Entry {
                key,
                position,
                payload: (!is_deletion).then_some(&self.payload),
            })?;
        }
        // A null value has no fields.
        match record.value {
            Some(value) if !is_deletion && !self.indexes.is_empty() => {
                self.index(position, key, value, &record.headers)
            }
            _ => Ok(()),
        }
    }

    fn index(
        &mut self,
        position: u64,
        key: &[u8],
        value: &[u8],
        headers: &Headers<'_>,
    ) -> Result<()> {
        let indexes = &mut self.indexes;
        let mut result = Ok(());
        self.extractor.extract(key, value, headers, |at, outcome| {
            let (index, pending, refused) = &mut indexes[at];
            match outcome {
                Outcome::Key(key) => {
                    let payload = Some(&[][..]);
                    let pushed = pending.push(&Entry {
                        key,
                        position,
                        payload,
                    });
                    if let Err(error) = pushed {
                        result = Err(error);
                    }
                }
                Outcome::Absent => {}
                Outcome::Refused(reason) => {
                    if position > index.counted.lock().position {
                        refused.note(position, reason);
                    }
                }
            }
        });
        result
    }

    /// Make everything up to a position visible.
    pub(super) fn apply(self, position: u64) -> Result<()> {
        if let Some((primary, counters)) = self.primary {
            primary.apply(position)?;
            if position > counters.position {
                let (at, last) = self.last;
                counters.position = position;
                counters.last = if at == position { last } else { 0 };
            }
        }
        for (index, pending, refused) in self.indexes {
            pending.apply(position)?;
            let mut counted = index.counted.lock();
            if position > counted.position {
                *counted = IndexCounters { position, refused };
            }
        }
        Ok(())
    }
}

impl Deletes {
    fn applies(&self, record: &RecordRef<'_>) -> bool {
        match self {
            Self::Nothing => false,
            Self::Null => record.value.is_none(),
            Self::Empty => record.value.is_none_or(<[u8]>::is_empty),
            Self::Header(name) => {
                record.value.is_none() || record.headers.clone().any(|(found, _)| found == name)
            }
            Self::Pattern(pattern) => record.value.is_none_or(|value| pattern.is_match(value)),
        }
    }
}

/// What was verified when it was read, and still is no batch.
fn damaged(batch: &BatchRef, error: Error) -> Error {
    match batch.place() {
        Some((path, offset)) => Error::corrupt(path, offset.into(), error.to_string()),
        None => error,
    }
}

impl Table {
    /// Bytes of all memory levels that are too many.
    pub(super) fn memory_bytes_max(&self) -> usize {
        match self.options.memory_bytes {
            0 => TABLE_MEMORY_BYTES_DEFAULT,
            bytes => bytes,
        }
    }

    /// Apply some of what the log has behind the table's position, up to `end` (exclusive), a few MiB. Waits for another thread that is doing so.
    ///
    /// # Errors
    /// Those of reading the log. Nothing of it is applied then, or what is applied is not applied again.
    pub fn follow(&self, view: &View, stream: &StreamView, end: u64) -> Result<Followed> {
        self.primary.check_wanted()?;
        self.follow_by(&mut self.following.lock(), view, stream, end)
    }

    /// Apply everything up to `end` (exclusive), and flush as memory needs it.
    pub fn catch_up(&self, view: &View, stream: &StreamView, end: u64) -> Result<u64> {
        loop {
            let Followed { position, is_full } = self.follow(view, stream, end)?;
            if position + 1 >= end.min(stream.range().end) {
                return Ok(position);
            }
            if is_full {
                self.flush()?;
            }
        }
    }

    /// Up to where everything is counted: of that nothing may be left out either.
    pub(super) fn counted(&self, indexes: &[Arc<Index>]) -> u64 {
        let of_indexes = indexes.iter().map(|index| index.counted.lock().position);
        of_indexes.fold(self.counters.lock().position, u64::min)
    }

    /// As [`Table::follow`], for one who holds `following`.
    pub(super) fn follow_by(
        &self,
        following: &mut Following,
        view: &View,
        stream: &StreamView,
        end: u64,
    ) -> Result<Followed> {
        let position = self.position();
        let indexes = self.indexes.load_full();
        let counted = self.counted(&indexes);
        // An index that was not saved may have counted what the log does not have any more.
        let range = stream.range();
        let from = (position.min(counted) + 1).max(range.first.min(position + 1));
        let end = end.min(range.end);
        let is_full = from < end && self.memory_bytes() >= self.memory_bytes_max();
        if from >= end || is_full {
            return Ok(Followed { position, is_full });
        }
        let batches = view.read(stream, from, end, PIECE_BYTES, &mut following.place)?;
        let extractor = following.extractor(&indexes);
        // After an error these records are read and counted again.
        let mut counted = self.counters();
        let mut applier = Applier::new(
            &self.options.deletes,
            Some((&self.primary, &mut counted)),
            indexes.iter().map(Arc::as_ref),
            extractor,
        );
        let mut last = from - 1;
        for batch in &batches {
            applier.batch(batch)?;
            last = batch.next() - 1;
        }
        applier.apply(last)?;
        *self.counters.lock() = counted;
        Ok(Followed {
            position: self.position(),
            is_full: false,
        })
    }
}

/// What following keeps from one piece to the next.
#[derive(Default)]
pub(super) struct Following {
    place: Position,
    extractor: Option<Extractor>,
}

impl Following {
    /// For these indexes, made anew only if they are others than the last time.
    pub(super) fn extractor(&mut self, indexes: &[Arc<Index>]) -> &mut Extractor {
        let is_same = |extractor: &Extractor| {
            let specs = indexes.iter().map(|index| &index.spec);
            specs.eq(extractor.specs())
        };
        if self.extractor.as_ref().is_some_and(|known| !is_same(known)) {
            self.extractor = None;
        }
        self.extractor.get_or_insert_with(|| {
            Extractor::new(indexes.iter().map(|index| index.spec.clone()).collect())
        })
    }
}
