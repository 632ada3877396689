//! A version with its runs open, and what readers see.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::merge::{Merge, Source};
use super::pick::{RangeShape, SliceShape};
use super::version::{Slice, TreeVersion, has_keys, lower};
use crate::error::Result;
use crate::manifest::Identity;
use crate::table::entry::Direction;
use crate::table::memory::Level;
use crate::table::run::{Run, RunCache, RunIdentity, RunInfo};
use crate::vfs::Vfs;

/// A slice whose run is open.
#[derive(Clone)]
pub(super) struct OpenSlice {
    pub begin: Vec<u8>,
    pub end: Option<Vec<u8>>,
    pub run: Arc<Run>,
    pub oldest: u64,
    pub newest: u64,
}

impl OpenSlice {
    fn has(&self, key: &[u8]) -> bool {
        *self.begin <= *key && has_keys(key, self.end.as_deref())
    }

    /// Its entries with keys in `begin..end`; none if there are no such keys.
    fn source(&self, begin: &[u8], end: Option<&[u8]>, direction: Direction) -> Option<Source> {
        let (begin, end) = (begin.max(&self.begin), lower(end, self.end.as_deref()));
        let entries = || self.run.entries(Some(begin), end, direction);
        has_keys(begin, end).then(|| Source::Run(Box::new(entries())))
    }

    /// About how many bytes of its file have keys of `begin..end`.
    pub fn bytes_between(&self, begin: &[u8], end: Option<&[u8]>) -> u64 {
        let (begin, end) = (begin.max(&self.begin), lower(end, self.end.as_deref()));
        if has_keys(begin, end) {
            self.run.bytes_between(Some(begin), end)
        } else {
            0
        }
    }

    /// All of its entries, read once.
    pub fn source_once(&self) -> Source {
        let entries = self
            .run
            .entries_once(Some(&self.begin), self.end.as_deref());
        Source::Run(Box::new(entries))
    }
}

/// A range whose runs are open.
pub(super) struct OpenRange {
    pub begin: Vec<u8>,
    pub end: Option<Vec<u8>>,
    /// Newest first.
    pub slices: Vec<OpenSlice>,
}

/// A version with its runs open.
pub(super) struct View {
    pub version: Arc<TreeVersion>,
    pub runs: BTreeMap<u64, Arc<Run>>,
    /// By their first keys.
    pub ranges: Vec<OpenRange>,
}

/// Where runs are and whose they are.
#[derive(Clone)]
pub(super) struct Place {
    pub vfs: Arc<dyn Vfs>,
    pub dir: Arc<Path>,
    pub identity: Identity,
    pub cache: Arc<RunCache>,
    /// Whether another process may remove the files: those that are open are kept so.
    pub is_followed: bool,
}

impl Place {
    pub fn run_identity(&self, number: u64) -> RunIdentity {
        RunIdentity {
            node: self.identity.node,
            tree: self.identity.object,
            number,
        }
    }

    pub fn open_run(&self, info: &RunInfo) -> Result<Arc<Run>> {
        let vfs = Arc::clone(&self.vfs);
        let identity = self.run_identity(info.number);
        let open = if self.is_followed {
            Run::open_kept
        } else {
            Run::open
        };
        open(vfs, &self.dir, identity, info, &self.cache)
    }
}

impl View {
    /// Open all runs of a version that are not among those that are `open` already.
    pub fn open(
        place: &Place,
        version: Arc<TreeVersion>,
        open: &BTreeMap<u64, Arc<Run>>,
    ) -> Result<Self> {
        let mut runs = BTreeMap::new();
        for (&number, listed) in version.runs() {
            let run = match open.get(&number) {
                Some(run) => Arc::clone(run),
                None => place.open_run(&listed.info)?,
            };
            runs.insert(number, run);
        }
        Ok(Self::new(version, runs))
    }

    /// A version with its runs; others among them are let go of.
    pub fn new(version: Arc<TreeVersion>, mut runs: BTreeMap<u64, Arc<Run>>) -> Self {
        runs.retain(|number, _| version.runs().contains_key(number));
        let open = |slice: &Slice| {
            let listed = &version.runs()[&slice.run];
            OpenSlice {
                begin: slice.begin.clone(),
                end: slice.end.clone(),
                run: Arc::clone(&runs[&slice.run]),
                oldest: listed.oldest,
                newest: listed.newest,
            }
        };
        let ranges = version.ranges().iter().map(|(begin, range)| OpenRange {
            begin: begin.clone(),
            end: range.end.clone(),
            slices: range.slices.iter().map(open).collect(),
        });
        Self {
            ranges: ranges.collect(),
            version,
            runs,
        }
    }

    /// Index of the range that has a key.
    pub fn range_of(&self, key: &[u8]) -> usize {
        // The first range begins at the lowest key, so one is always found.
        let behind = self.ranges.partition_point(|range| *range.begin <= *key);
        behind - 1
    }

    /// What the choice of merges depends on; `busy` are the first keys of ranges in work.
    pub fn shapes(&self, floor: u64, is_busy: impl Fn(&[u8]) -> bool) -> Vec<RangeShape> {
        let mut used: BTreeMap<u64, u64> = BTreeMap::new();
        let bytes_of = |slice: &OpenSlice| {
            slice
                .run
                .bytes_between(Some(&slice.begin), slice.end.as_deref())
        };
        for slice in self.ranges.iter().flat_map(|range| &range.slices) {
            *used.entry(slice.run.info().number).or_default() += bytes_of(slice);
        }
        let shape = |slice: &OpenSlice| {
            let info = slice.run.info();
            // Versions above the floor are no garbage yet, and how many these are is not known.
            let is_below = info.position_max <= floor;
            let garbage = info.entries - info.keys + info.tombstones;
            SliceShape {
                bytes: bytes_of(slice),
                oldest: slice.oldest,
                newest: slice.newest,
                entries: info.entries,
                garbage: if is_below { garbage } else { 0 },
                is_rest: used[&info.number] < slice.run.bytes_between(None, None) / 2,
            }
        };
        let ranges = self.ranges.iter().map(|range| RangeShape {
            slices: range.slices.iter().map(shape).collect(),
            is_busy: is_busy(&range.begin),
        });
        ranges.collect()
    }
}

/// A generation of the memory level that is being flushed.
pub(super) struct Sealed {
    pub level: Level,
    /// Everything up to here is in it, or in runs.
    pub position: u64,
}

/// What readers see at one moment.
pub(super) struct State {
    pub view: Arc<View>,
    pub active: Level,
    pub sealed: Option<Arc<Sealed>>,
    pub applied: u64,
}

impl State {
    /// A state whose memory level is empty.
    pub fn of(view: View) -> Self {
        Self {
            applied: view.version.flushed(),
            view: Arc::new(view),
            active: Level::default(),
            sealed: None,
        }
    }

    pub fn memory_bytes(&self) -> usize {
        let sealed = self
            .sealed
            .as_ref()
            .map_or(0, |sealed| sealed.level.bytes());
        self.active.bytes() + sealed
    }

    /// All entries of a range with keys in `begin..end`, from memory and from runs that have positions from `from` on.
    pub fn merge(
        &self,
        range: usize,
        begin: &[u8],
        end: Option<&[u8]>,
        direction: Direction,
        from: u64,
    ) -> Merge<Source> {
        let range = &self.view.ranges[range];
        let (begin, end) = (begin.max(&range.begin), lower(end, range.end.as_deref()));
        let sealed = self.sealed.iter().map(|sealed| &sealed.level);
        let levels = [&self.active].into_iter().chain(sealed);
        let memory = levels.flat_map(|level| level.sources(begin, end, direction));
        let has_some = |slice: &&OpenSlice| slice.run.info().position_max >= from;
        let slices = range.slices.iter().filter(has_some);
        let runs = slices.filter_map(|slice| slice.source(begin, end, direction));
        Merge::new(memory.map(Source::Memory).chain(runs).collect(), direction)
    }

    /// The slices that may have a key, newest first.
    pub fn slices_of<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a OpenSlice> {
        let range = &self.view.ranges[self.view.range_of(key)];
        range.slices.iter().filter(|slice| slice.has(key))
    }
}
