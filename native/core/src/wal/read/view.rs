//! What readers see: the segment table and each stream's range, replaced whole and read without locks.
//!
//! The writer (or a follower's refresh) publishes; readers load a snapshot and never wait for it.
//!
//! # Invariants
//!
//! - Everything below a published `end` is durable and committed, and its segments are in the table.
//! - `first` and `end` never fall while a stream lives.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::index::NATIVE;
use crate::limits::READERS_MAX;
use crate::vfs::{BufPool, Vfs, VfsFile};
use crate::wal::read::cache::LookupCache;
use crate::wal::read::stream::{Extent, Range, StreamView, TableVersion, UNKNOWN};
use crate::wal::segments::head::begins;
use crate::wal::segments::part::Part;
use crate::wal::segments::segment::Segment;

/// Groups kept in memory for readers that have caught up, oldest first.
#[derive(Default)]
struct Recent {
    parts: VecDeque<Arc<Part>>,
    bytes: usize,
}

/// The segment table and its version, replaced together.
#[derive(Default)]
struct Table {
    version: u64,
    segments: Arc<Vec<Arc<Segment>>>,
}

/// Published state of a node's log.
pub struct View {
    /// File system.
    pub vfs: Arc<dyn Vfs>,
    /// Node directory.
    pub dir: PathBuf,
    /// Read buffers.
    pub pool: BufPool,
    table: ArcSwap<Table>,
    streams: ArcSwap<HashMap<u32, Arc<StreamView>>>,
    recent: Mutex<Recent>,
    recent_bytes_max: usize,
    index_bytes_max: usize,
    /// Heads and pages that lookups come back to.
    pub(super) cache: LookupCache,
}

impl View {
    /// An empty view.
    pub fn new(
        vfs: Arc<dyn Vfs>,
        dir: PathBuf,
        pool: BufPool,
        recent_bytes_max: usize,
        index_bytes_max: usize,
        lookup_bytes_max: usize,
    ) -> Self {
        Self {
            vfs,
            dir,
            pool,
            table: ArcSwap::default(),
            streams: ArcSwap::default(),
            recent: Mutex::default(),
            recent_bytes_max,
            index_bytes_max,
            cache: LookupCache::new(lookup_bytes_max),
        }
    }

    /// All segments, oldest first.
    pub fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        Arc::clone(&self.table.load().segments)
    }

    /// Replace the segment table.
    pub fn set_segments(&self, segments: Vec<Arc<Segment>>) {
        let segments = Arc::new(segments);
        self.table.rcu(|old| Table {
            version: old.version + 1,
            segments: Arc::clone(&segments),
        });
    }

    /// Changes whenever the table or what is sealed in it does: the newest segment is sealed shortly
    /// before the next one is in the table.
    pub fn version(&self) -> TableVersion {
        let table = self.table.load();
        let sealed = |newest: &Arc<Segment>| newest.sealed().is_some();
        (table.version, table.segments.last().is_some_and(sealed))
    }

    /// A stream, or [`Error::NotFound`].
    pub fn stream(&self, number: u32) -> Result<Arc<StreamView>> {
        let streams = self.streams.load();
        streams
            .get(&number)
            .cloned()
            .ok_or_else(|| Error::NotFound {
                what: format!("stream {number}"),
            })
    }

    /// All streams by number.
    pub fn streams(&self) -> BTreeMap<u32, Arc<StreamView>> {
        self.streams
            .load()
            .iter()
            .map(|(number, stream)| (*number, Arc::clone(stream)))
            .collect()
    }

    /// Publish a stream's range, creating its view at need.
    pub fn publish(&self, number: u32, range: Range) {
        let known = self.streams.load().get(&number).cloned();
        if let Some(stream) = known {
            return stream.publish(range);
        }
        let mut streams = HashMap::clone(&self.streams.load());
        streams.insert(number, Arc::new(StreamView::new(number, range)));
        self.streams.store(Arc::new(streams));
    }

    /// Take a stream out of the view.
    pub fn remove(&self, number: u32) {
        let mut streams = HashMap::clone(&self.streams.load());
        let removed = streams.remove(&number);
        self.streams.store(Arc::new(streams));
        // Woken last: who is woken looks whether the stream is still listed.
        if let Some(stream) = removed {
            stream.set_gone();
        }
    }

    /// The file of a segment, open for reading. Those that are kept open are bounded; a read under way keeps its own.
    pub(crate) fn reader(&self, segment: &Segment) -> Result<Arc<dyn VfsFile>> {
        if segment.is_open() {
            return segment.reader(&*self.vfs);
        }
        let segments = self.segments();
        let others = || segments.iter().filter(|each| each.is_open());
        let over = (others().count() + 1).saturating_sub(READERS_MAX);
        others().take(over).for_each(|each| each.close_reader());
        segment.reader(&*self.vfs)
    }

    /// Drop the handles of all segments and what lookups keep: nobody reads any more.
    pub fn close_files(&self) {
        self.cache.clear();
        for segment in self.segments().iter() {
            segment.close_files();
        }
    }

    /// Wake all waiters for good (close or failure).
    pub fn shut(&self) {
        for stream in self.streams.load().values() {
            stream.set_gone();
        }
    }

    /// Keep a durable part in memory for readers that have caught up.
    pub fn remember(&self, part: &Arc<Part>) {
        if part.batches.is_empty() || self.recent_bytes_max == 0 {
            return;
        }
        let mut recent = self.recent.lock();
        recent.bytes += part.buf.capacity();
        recent.parts.push_back(Arc::clone(part));
        let streams = self.streams.load();
        for placed in &part.batches {
            if let Some(stream) = streams.get(&placed.stream) {
                stream.remember(*placed, part);
            }
        }
        while recent.bytes > self.recent_bytes_max {
            let Some(oldest) = recent.parts.pop_front() else {
                break;
            };
            recent.bytes -= oldest.buf.capacity();
            for placed in &oldest.batches {
                if let Some(stream) = streams.get(&placed.stream) {
                    stream.forget(&oldest);
                }
            }
        }
    }

    /// Where the stream's LLSNs are, rising and disjoint; sealed segments only, the active one changes.
    pub fn extents(&self, stream: &StreamView) -> Result<Arc<Vec<Extent>>> {
        let version = self.version();
        let mut cached = stream.extents.lock();
        if cached.0 != version {
            let segments = self.segments();
            let mut extents = Vec::new();
            for segment in segments.iter().filter(|segment| segment.sealed().is_some()) {
                let summaries = match segment.summary(&*self.vfs, &self.dir) {
                    // What others hold stays readable; who reads in here is told of the damage.
                    Err(Error::Corruption { .. }) => {
                        let unknown = Extent {
                            begin: begins(&*self.vfs, segment, stream.number)?,
                            end: u64::MAX,
                            segment: Arc::clone(segment),
                            lane: UNKNOWN,
                        };
                        overlay(&mut extents, unknown);
                        continue;
                    }
                    found => found?,
                };
                for summary in summaries.iter() {
                    if summary.stream != stream.number {
                        continue;
                    }
                    if let Some(std::ops::Range { start: begin, end }) = summary.range {
                        let extent = Extent {
                            begin,
                            end,
                            segment: Arc::clone(segment),
                            lane: summary.lane,
                        };
                        overlay(&mut extents, extent);
                    }
                }
            }
            *cached = (version, Arc::new(extents));
        }
        Ok(Arc::clone(&cached.1))
    }

    /// The sealed segment that owns `llsn`, and which LLSNs it owns.
    pub fn owner(&self, stream: &StreamView, llsn: u64) -> Result<Option<Extent>> {
        let (extents, cut) = self.owned(stream)?;
        let at = extents.partition_point(|extent| extent.begin <= llsn);
        let Some(extent) = at.checked_sub(1).map(|at| &extents[at]) else {
            return Ok(None);
        };
        let end = extent.end.min(cut);
        Ok((llsn < end).then(|| Extent {
            end,
            ..extent.clone()
        }))
    }

    /// The extents of sealed segments, and where they end: at what the active segment holds, where a
    /// rollback may have cut them.
    pub fn owned(&self, stream: &StreamView) -> Result<(Arc<Vec<Extent>>, u64)> {
        loop {
            // Both as of one moment: a roll in between would take the cut from another segment.
            let version = self.version();
            let both = (self.extents(stream)?, self.native_begin(stream)?);
            if self.version() == version {
                return Ok(both);
            }
        }
    }

    /// First LLSN written to the active segment itself; everything from there on is in there.
    fn native_begin(&self, stream: &StreamView) -> Result<u64> {
        let segments = self.segments();
        let Some(active) = segments.last().filter(|newest| newest.sealed().is_none()) else {
            return Ok(u64::MAX);
        };
        active.with_index(&*self.vfs, &self.dir, |index| {
            let native = index.stream(stream.number, NATIVE);
            native
                .and_then(crate::index::StreamIndex::range)
                .map_or(u64::MAX, |range| range.start)
        })
    }

    /// Keep the loaded indexes of sealed segments within their memory bound.
    pub fn bound_index_memory(&self) {
        let segments = self.segments();
        let mut total: usize = segments.iter().map(|segment| segment.index_memory()).sum();
        for segment in segments.iter() {
            if total <= self.index_bytes_max {
                break;
            }
            total -= segment.index_memory();
            segment.unload();
        }
    }
}

/// Lay `extent` over what is there: newer frames win. A native extent also ends everything behind it
/// (a rollback cut it); a moved one replaces just what it covers.
fn overlay(extents: &mut Vec<Extent>, extent: Extent) {
    // The usual case, without which the work grows with the square of the segments.
    if extents.last().is_none_or(|last| last.end <= extent.begin) {
        if extent.begin < extent.end {
            extents.push(extent);
        }
        return;
    }
    let mut kept: Vec<Extent> = Vec::with_capacity(extents.len() + 2);
    for old in extents.drain(..) {
        if old.begin < extent.begin {
            kept.push(Extent {
                end: old.end.min(extent.begin),
                ..old.clone()
            });
        }
        if extent.lane > NATIVE && old.end > extent.end {
            kept.push(Extent {
                begin: old.begin.max(extent.end),
                ..old
            });
        }
    }
    if extent.begin < extent.end {
        kept.push(extent);
    }
    kept.sort_by_key(|extent| extent.begin);
    *extents = kept;
}

/// Buffers for parts and reads.
pub fn new_pool() -> BufPool {
    BufPool::new(64, 64 << 20)
}
