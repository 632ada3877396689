//! The tree itself: applying, and exchanging what readers see.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::commit::Committer;
use super::floor::{Floor, Hold};
use super::numbers::Numbers;
use super::pick::ShapeOptions;
use super::snapshot::Snapshot;
use super::view::{Place, Sealed, State, View};
use crate::error::{Error, Result};
use crate::manifest;
use crate::table::memory::{Level, Piece};
use crate::table::run::RunOptions;

/// How a tree is kept.
#[derive(Clone, Copy, Debug)]
pub struct TreeOptions {
    /// How runs are written.
    pub run: RunOptions,
    /// What is merged, split and coalesced.
    pub shape: ShapeOptions,
    /// Bytes of the memory level above which nothing more is applied before a flush.
    pub memory_bytes_max: usize,
    /// When manifest files are replaced.
    pub manifest: manifest::Options,
}

impl Default for TreeOptions {
    fn default() -> Self {
        Self {
            run: RunOptions::default(),
            shape: ShapeOptions::default(),
            memory_bytes_max: 1 << 30,
            manifest: manifest::Options::default(),
        }
    }
}

/// What a tree holds, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Everything up to this position is applied.
    pub applied: u64,
    /// Everything up to this position is in runs.
    pub flushed: u64,
    /// Lowest position that it can be read at.
    pub floor: u64,
    /// Bytes of the memory level.
    pub memory_bytes: u64,
    /// Files.
    pub runs: u64,
    /// Bytes of all files.
    pub run_bytes: u64,
    /// Entries of all files.
    pub run_entries: u64,
    /// Ranges.
    pub ranges: u64,
    /// Slices of all ranges.
    pub slices: u64,
    /// Most slices of a range.
    pub slices_max: u64,
    /// Files that were merged and are still read.
    pub obsolete: u64,
}

/// A tree that is open for writing. All methods may be called from any thread; readers never wait.
pub struct Tree {
    pub(super) place: Place,
    pub(super) options: TreeOptions,
    state: ArcSwap<State>,
    /// Held while something is applied or sealed: only then `active` changes.
    applying: Mutex<()>,
    /// Held while `state` is exchanged.
    publishing: Mutex<()>,
    /// Held for a whole flush.
    pub(super) flushing: Mutex<()>,
    pub(super) committer: Mutex<Committer>,
    /// First keys of the ranges that a task works on.
    pub(super) busy: Mutex<BTreeSet<Vec<u8>>>,
    pub(super) floor: Arc<Floor>,
    pub(super) numbers: Arc<Numbers>,
    is_abandoned: AtomicBool,
}

impl Tree {
    pub(super) fn assemble(
        place: Place,
        options: TreeOptions,
        committer: Committer,
        view: View,
    ) -> Arc<Self> {
        let version = &view.version;
        Arc::new(Self {
            floor: Floor::new(version.floor()),
            numbers: Numbers::new(version.next_number()),
            state: ArcSwap::from_pointee(State::of(view)),
            place,
            options,
            applying: Mutex::new(()),
            publishing: Mutex::new(()),
            flushing: Mutex::new(()),
            committer: Mutex::new(committer),
            busy: Mutex::default(),
            is_abandoned: AtomicBool::new(false),
        })
    }

    /// Apply the entries of the log behind what is applied, up to a position. They are all there, or
    /// on an error none.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for entries outside these positions or two of one key and position;
    /// [`Error::TooLarge`] where the memory level is full: flush, and apply them again.
    pub fn apply(&self, piece: Piece, position: u64) -> Result<()> {
        let _alone = self.applying.lock();
        let state = self.state.load_full();
        let applied = state.applied;
        let (first, last) = piece.positions().unwrap_or((u64::MAX, 0));
        // An empty piece is within any positions.
        if first <= applied || last > position || position < applied {
            return Err(Error::InvalidArgument(format!(
                "entries of positions {first} to {last} up to {position}: everything up to {applied} is applied"
            )));
        }
        let (size, max) = (
            state.memory_bytes() + piece.bytes(),
            self.options.memory_bytes_max,
        );
        if size > max && state.memory_bytes() > 0 {
            let (size, max) = (size as u64, max as u64);
            let what = "memory level of a table";
            return Err(Error::TooLarge { what, size, max });
        }
        let chunk = piece.sort()?;
        let active = state.active.push(chunk);
        self.publish(|state| State {
            view: Arc::clone(&state.view),
            active,
            sealed: state.sealed.clone(),
            applied: position,
        });
        Ok(())
    }

    /// What is to be flushed: what was sealed before, or what is in memory now. `None` where nothing
    /// was applied since the last flush.
    pub(super) fn seal(&self) -> Option<Arc<Sealed>> {
        let _alone = self.applying.lock();
        let state = self.state.load_full();
        if let Some(sealed) = &state.sealed {
            return Some(Arc::clone(sealed));
        }
        if state.applied == state.view.version.flushed() {
            return None;
        }
        let sealed = Arc::new(Sealed {
            level: state.active.clone(),
            position: state.applied,
        });
        self.publish(|state| State {
            view: Arc::clone(&state.view),
            active: Level::default(),
            sealed: Some(Arc::clone(&sealed)),
            applied: state.applied,
        });
        Some(sealed)
    }

    /// Exchange what readers see.
    pub(super) fn publish(&self, change: impl FnOnce(&State) -> State) {
        let _alone = self.publishing.lock();
        let state = change(&self.state.load());
        self.state.store(Arc::new(state));
    }

    pub(super) fn state(&self) -> Arc<State> {
        self.state.load_full()
    }

    /// The tree as of what is applied now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.state())
    }

    /// Everything up to this position is applied.
    pub fn applied(&self) -> u64 {
        self.state.load().applied
    }

    /// Everything up to this position is in runs, and need not be applied after an open.
    pub fn flushed(&self) -> u64 {
        self.state.load().view.version.flushed()
    }

    /// Lowest position that can be held.
    pub fn floor(&self) -> u64 {
        self.floor.position()
    }

    /// Bytes of the memory level, with what is being flushed.
    pub fn memory_bytes(&self) -> usize {
        self.state.load().memory_bytes()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// What it holds.
    pub fn stats(&self) -> TreeStats {
        let obsolete = self.committer.lock().obsolete() as u64;
        let state = self.state.load();
        let version = &state.view.version;
        let infos = || version.runs().values().map(|run| &run.info);
        let slices = || {
            version
                .ranges()
                .values()
                .map(|range| range.slices.len() as u64)
        };
        TreeStats {
            applied: state.applied,
            flushed: version.flushed(),
            floor: version.floor(),
            memory_bytes: state.memory_bytes() as u64,
            runs: version.runs().len() as u64,
            run_bytes: infos().map(|info| info.bytes).sum(),
            run_entries: infos().map(|info| info.entries).sum(),
            ranges: version.ranges().len() as u64,
            slices: slices().sum(),
            slices_max: slices().max().unwrap_or(0),
            obsolete,
        }
    }

    /// Say that no snapshot will be asked for versions that only positions below this one see. They go
    /// when they are flushed or merged the next time, but for those that are held.
    pub fn raise_floor(&self, position: u64) {
        self.floor.raise(position);
    }

    /// Keep what is visible at a position.
    ///
    /// # Errors
    /// [`Error::Trimmed`] where that may be gone, [`Error::BeyondEnd`] where it is not applied,
    /// [`Error::TooLarge`] where too many are held.
    pub fn hold(&self, position: u64) -> Result<Hold> {
        let applied = self.applied();
        if position > applied {
            let next = applied + 1;
            return Err(Error::BeyondEnd { position, next });
        }
        self.floor.hold(position)
    }

    /// Keep what is visible at a position from when it is applied on, as [`Tree::hold`] does.
    pub(in crate::table) fn hold_ahead(&self, position: u64) -> Result<Hold> {
        self.floor.hold(position)
    }

    /// Whether a snapshot, or something that reads, has a part of the tree. Once it was abandoned nobody who has none can get one.
    pub fn is_read(&self) -> bool {
        let state = self.state();
        // The tree has the state, and this does.
        let has_state = Arc::strong_count(&state) > 2 || Arc::strong_count(&state.view) > 1;
        let view = &state.view;
        let slices = || view.ranges.iter().flat_map(|range| &range.slices);
        has_state
            || view.runs.values().any(|run| {
                let ours = 1 + slices()
                    .filter(|slice| Arc::ptr_eq(&slice.run, run))
                    .count();
                Arc::strong_count(run) > ours
            })
            || self.committer.lock().is_read()
    }

    /// Say that the tree was dropped: nothing is committed any more, and running tasks discard what
    /// they wrote.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::SeqCst);
    }

    pub(in crate::table) fn check_wanted(&self) -> Result<()> {
        if self.is_abandoned.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        Ok(())
    }
}
