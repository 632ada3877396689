//! Building an index of a table that has records already.

use std::sync::Arc;

use super::counters::{IndexCounters, Refusals};
use super::follow::Applier;
use super::open::{IndexDefinition, TableDefinition, create_index};
use super::table::{Index, OnRefusal, Table};
use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::limits::TABLE_PAYLOAD_BYTES_MAX;
use crate::table::entry::{Direction, Entries, Entry};
use crate::table::memory::Piece;
use crate::table::order::{Extractor, Outcome};
use crate::table::run::RunCache;
use crate::table::tree::{Tombstones, Tree};
use crate::wal::Position;
use crate::wal::StreamView;
use crate::wal::View;

use super::payload::Payload;

/// Bytes of index entries that become one run.
const CHUNK_BYTES: usize = 32 << 20;

/// Fewest records of a chunk, so that chunks never use up the positions below the base.
const CHUNK_RECORDS_MIN: u64 = 2;

/// Records between two looks at whether the index was dropped, or the table is being closed.
const LOOK_RECORDS: u64 = 4096;

/// Bytes of the log that a built index applies by itself at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Positions of which a built index gets what the primary tree has at a time.
const OWN_POSITIONS: u64 = 64 << 10;

/// What stands beside the chunks of a building: everything up to a key is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The last key that was read.
    pub key: Vec<u8>,
    /// What had to be refused of it.
    pub refused: Refusals,
}

impl Mark {
    /// As the payload of an entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_bytes(&self.key);
        self.refused.encode(&mut out);
        out
    }

    /// Decode the payload of an entry.
    ///
    /// # Errors
    /// [`Error::Malformed`] for what [`Mark::encode`] did not write.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut take = Take::new("mark of an index building", bytes);
        let mark = Self {
            key: take.bytes()?.to_vec(),
            refused: Refusals::decode(&mut take)?,
        };
        take.finish()?;
        Ok(mark)
    }
}

impl Table {
    /// Begin to build an index, and keep what its building needs. Its base is the position of the primary tree now, whatever the definition says.
    ///
    /// This comes before the catalog has the index: a base that nobody holds may be gone when the building begins.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] for a tree that the table has.
    pub fn begin_index(
        &self,
        table: &TableDefinition,
        definition: &IndexDefinition,
        cache: &Arc<RunCache>,
    ) -> Result<Arc<Index>> {
        // The position of the primary tree stays while this is held, and its floor is not above it.
        let _alone = self.following.lock();
        let mut building = self.building.lock();
        let indexes = self.indexes.load();
        let mut all = indexes.iter().chain(building.iter());
        // One of the same name may be there, which the change that begins this one drops.
        if all.any(|index| index.id == definition.tree) {
            return Err(Error::AlreadyExists {
                what: format!("index {:?} with this tree", definition.name),
            });
        }
        // Not that of the table: after an open an index may have less, and the primary tree has no such position any more.
        let base = self.primary.applied();
        let hold = self.primary.hold_ahead(base)?;
        let definition = IndexDefinition {
            base,
            ..definition.clone()
        };
        let tree = create_index(
            &self.vfs,
            &self.dir,
            table,
            &definition,
            &self.options,
            cache,
        )?;
        let index = Index::new(&definition, tree);
        *index.hold.lock() = Some(hold);
        let index = Arc::new(index);
        building.push(Arc::clone(&index));
        Ok(index)
    }

    /// Give an index up, or drop it: it is not followed any more. Its files are left to whoever collects orphans.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it has no index with this tree.
    pub fn drop_index(&self, tree: u128) -> Result<()> {
        // Nothing is applied meanwhile.
        let _alone = self.following.lock();
        let mut building = self.building.lock();
        let mut indexes = Vec::clone(&self.indexes.load());
        let before = building.len() + indexes.len();
        for list in [&mut *building, &mut indexes] {
            for index in list.iter().filter(|index| index.id == tree) {
                index.tree.abandon();
                index.hold.lock().take();
                self.dropped.lock().push(Arc::clone(index));
            }
            list.retain(|index| index.id != tree);
        }
        if building.len() + indexes.len() == before {
            return Err(missing(tree));
        }
        self.indexes.store(Arc::new(indexes));
        Ok(())
    }

    /// Build an index: read what the table had at its base, then what the log has behind it. When this returns it can be read.
    /// `progress` is told how many records were read, and says whether to go on; an interrupted building goes on where it was.
    ///
    /// # Errors
    /// [`Error::Closed`] if `progress` said to stop; [`Error::InvalidArgument`] if a record cannot be in an index that must
    /// not be incomplete; those of reading and writing.
    pub fn build_index(
        &self,
        tree: u128,
        view: &View,
        stream: &StreamView,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let Some(index) = self.to_be_built(tree)? else {
            return Ok(());
        };
        if !index.is_built() {
            // After a crash the primary tree may have less than it had when the base was chosen.
            self.catch_up(view, stream, index.base.saturating_add(1))?;
            self.backfill(&index, progress)?;
        }
        let mut place = Position::default();
        self.catch_up_index(&index, |from, end| {
            let mut extractor = Extractor::new(vec![index.spec.clone()]);
            let batches = view.read(stream, from, end, PIECE_BYTES, &mut place)?;
            let only = std::iter::once(index.as_ref());
            let mut applier = Applier::new(&self.options.deletes, None, only, &mut extractor);
            let mut last = from - 1;
            for batch in &batches {
                applier.batch(batch)?;
                last = batch.next() - 1;
            }
            applier.apply(last)
        })?;
        self.save_counters(true)
    }

    /// As [`Table::build_index`], without a log: what came behind the base is read from the primary tree, which keeps all of it for
    /// the index. The base has to be flushed.
    pub(super) fn build_index_of_itself(
        &self,
        tree: u128,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let Some(index) = self.to_be_built(tree)? else {
            return Ok(());
        };
        if !index.is_built() {
            self.backfill(&index, progress)?;
        }
        self.catch_up_index(&index, |from, end| {
            if !progress(0) {
                return Err(Error::Closed);
            }
            self.apply_own(&index, from, end)
        })?;
        self.save_counters(true)
    }

    /// An index that is being built; none if it is built already.
    fn to_be_built(&self, tree: u128) -> Result<Option<Arc<Index>>> {
        let building = self.building.lock();
        let found = building.iter().find(|index| index.id == tree).cloned();
        if found.is_none() && !self.indexes.load().iter().any(|index| index.id == tree) {
            return Err(missing(tree));
        }
        Ok(found)
    }

    /// Give an index what the primary tree has of positions `from..end`, or of the first of them.
    fn apply_own(&self, index: &Index, from: u64, end: u64) -> Result<()> {
        let last = (end - 1).min(from.saturating_add(OWN_POSITIONS - 1));
        let mut extractor = Extractor::new(vec![index.spec.clone()]);
        let (mut piece, mut refused) = (Piece::new(), Vec::new());
        let mut versions = self.primary.snapshot().versions_from(from);
        while versions.advance()? {
            let entry = versions.entry();
            let position = entry.position;
            let payload = entry.payload.filter(|_| (from..=last).contains(&position));
            let Some(payload) = payload.map(Payload::decode).transpose()? else {
                continue;
            };
            let Some(value) = payload.value else { continue };
            let mut result = Ok(());
            let take = |_, outcome: Outcome<'_>| match outcome {
                Outcome::Key(key) => {
                    let payload = Some(&[][..]);
                    result = piece.push(&Entry {
                        key,
                        position,
                        payload,
                    });
                }
                Outcome::Absent => {}
                Outcome::Refused(reason) => refused.push((position, reason)),
            };
            extractor.extract(entry.key, value, &payload.headers, take);
            result?;
        }
        index.tree.apply(piece, last)?;
        let mut counted = index.counted.lock();
        if last > counted.position {
            refused.sort_unstable();
            refused.retain(|(position, _)| *position > counted.position);
            for (position, reason) in &refused {
                counted.refused.note(*position, reason);
            }
            counted.position = last;
        }
        Ok(())
    }

    /// Apply what the table had at the base of the index.
    fn backfill(&self, index: &Index, progress: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        let base = index.base;
        let mut mark = read_mark(index)?;
        let mut extractor = Extractor::new(vec![index.spec.clone()]);
        let begin = mark.as_ref().map(|mark| [&mark.key[..], &[0]].concat());
        let primary = self.primary.snapshot();
        let mut entries = primary.entries(
            begin.as_deref(),
            None,
            Direction::Forward,
            base,
            Tombstones::Hidden,
        )?;
        let mut refused = mark.take().map(|mark| mark.refused).unwrap_or_default();
        let mut number = index.tree.applied();
        let (mut piece, mut in_chunk, mut read) = (Piece::new(), 0, 0_u64);
        let mut last = Vec::new();
        while entries.advance()? {
            if read.is_multiple_of(LOOK_RECORDS) {
                index.tree.check_wanted()?;
            }
            let entry = entries.entry();
            let payload = Payload::decode(entry.payload.unwrap_or_default())?;
            put(
                &mut extractor,
                &entry,
                &payload,
                number + 1,
                &mut piece,
                &mut refused,
            )?;
            (in_chunk, read) = (in_chunk + 1, read + 1);
            last.clear();
            last.extend_from_slice(entry.key);
            refuse(index, &refused)?;
            if piece.bytes() >= CHUNK_BYTES && in_chunk >= CHUNK_RECORDS_MIN {
                number += 1;
                let key = entry.key.to_vec();
                flush_chunk(
                    index,
                    std::mem::take(&mut piece),
                    number,
                    &Mark {
                        key,
                        refused: refused.clone(),
                    },
                )?;
                in_chunk = 0;
                if !progress(read) {
                    return Err(Error::Closed);
                }
            }
        }
        // The last chunk takes the tree to the base, which says that all is there. There is room for its number, and
        // none is needed where nothing was there.
        if number < base {
            let mark = Mark {
                key: last,
                refused: refused.clone(),
            };
            piece.push(&Entry {
                key: &[],
                position: number + 1,
                payload: Some(&mark.encode()),
            })?;
            index.tree.apply(piece, base)?;
            index.tree.flush()?;
        }
        *index.counted.lock() = IndexCounters {
            position: base,
            refused,
        };
        progress(read);
        Ok(())
    }

    /// Let a built index have what came behind its base, and then follow the log with the table. `apply` gives it some of the
    /// positions from one on, up to another (exclusive).
    fn catch_up_index(
        &self,
        index: &Arc<Index>,
        mut apply: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        loop {
            index.tree.check_wanted()?;
            let end = self.position() + 1;
            let from = index.tree.applied() + 1;
            if from >= end {
                let _alone = self.following.lock();
                if index.tree.applied() < self.position() {
                    continue;
                }
                let mut building = self.building.lock();
                if !building.iter().any(|other| other.id == index.id) {
                    // It was dropped meanwhile.
                    return Err(Error::Closed);
                }
                building.retain(|other| other.id != index.id);
                index.hold.lock().take();
                let mut indexes = Vec::clone(&self.indexes.load());
                indexes.push(Arc::clone(index));
                self.indexes.store(Arc::new(indexes));
                return Ok(());
            }
            apply(from, end)?;
            refuse(index, &index.refused())?;
            if index.tree.memory_bytes() >= CHUNK_BYTES {
                index.tree.flush()?;
            }
        }
    }
}

fn missing(tree: u128) -> Error {
    Error::NotFound {
        what: format!("index with the tree {tree:032x}"),
    }
}

/// Up to where a building was flushed that was interrupted.
fn read_mark(index: &Index) -> Result<Option<Mark>> {
    let applied = index.tree.applied();
    let hit = index.tree.snapshot().get(&[], applied)?;
    hit.and_then(|hit| hit.payload().map(Mark::decode))
        .transpose()
}

/// What a building had to refuse, as far as it was flushed.
pub(super) fn refused_at_base(tree: &Tree) -> Result<Refusals> {
    let hit = tree.snapshot().get(&[], tree.applied())?;
    let mark = hit.and_then(|hit| hit.payload().map(Mark::decode));
    Ok(mark
        .transpose()?
        .map(|mark| mark.refused)
        .unwrap_or_default())
}

/// Put the entry of one record into a chunk.
fn put(
    extractor: &mut Extractor,
    entry: &Entry<'_>,
    payload: &Payload<'_>,
    number: u64,
    piece: &mut Piece,
    refused: &mut Refusals,
) -> Result<()> {
    let Some(value) = payload.value else {
        return Ok(());
    };
    let position = entry.position;
    let mut result = Ok(());
    extractor.extract(
        entry.key,
        value,
        &payload.headers,
        |_, outcome| match outcome {
            Outcome::Key(key) => {
                result = piece.push(&Entry {
                    key,
                    position: number,
                    payload: Some(&position.to_le_bytes()),
                });
            }
            Outcome::Absent => {}
            Outcome::Refused(reason) => refused.note(position, reason),
        },
    );
    result
}

fn refuse(index: &Index, refused: &Refusals) -> Result<()> {
    match (index.on_refusal, refused.first.first()) {
        (OnRefusal::Refuse, Some((position, reason))) => Err(Error::InvalidArgument(format!(
            "index {:?} cannot be built: position {position}: {reason}. Correct the record, then make it again",
            index.name
        ))),
        _ => Ok(()),
    }
}

fn flush_chunk(index: &Index, mut piece: Piece, number: u64, mark: &Mark) -> Result<()> {
    let mark = mark.encode();
    debug_assert!(
        mark.len() <= TABLE_PAYLOAD_BYTES_MAX,
        "a key and a bounded list"
    );
    piece.push(&Entry {
        key: &[],
        position: number,
        payload: Some(&mark),
    })?;
    index.tree.apply(piece, number)?;
    index.tree.flush()?;
    Ok(())
}
