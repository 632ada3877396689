//! Reading a node directory that another process may be writing.
//!
//! A follower takes no lock and writes nothing. While a writer lives it shows what the watermark file says
//! is durable; without one it shows what the next writer would recover, made durable first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::manifest::{self, Identity, Manifest, WalFiles};
use crate::vfs::Vfs;
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::format::identity::NodeIdentity;
use crate::wal::format::order::Orders;
use crate::wal::format::state::State;
use crate::wal::format::watermark::Watermark;
use crate::wal::read::stream::range_of;
use crate::wal::read::view::{View, new_pool};
use crate::wal::recover::directory::{LOCK, check_no_remains};
use crate::wal::recover::evidence::{check_durable, check_newest, reach};
use crate::wal::recover::fold::{begin, fold};
use crate::wal::recover::tables::tables;
use crate::wal::segments::segment::Segment;
use crate::wal::segments::walk::Walk;
use crate::wal::write::options::Options;

/// Attempts to get a consistent picture while the writer rolls and recycles.
const ATTEMPTS: usize = 16;

struct Tail {
    segment: Arc<Segment>,
    walk: Walk,
    state: State,
    /// Whether the last frame is a close.
    closed: bool,
    /// Where the log was found to end in good order, without a writer.
    checked: Option<u32>,
    /// Up to where it was made durable here.
    synced: Option<u32>,
}

/// A node's log, open for reading only.
pub struct Follower {
    view: Arc<View>,
    identity: NodeIdentity,
    manifest: manifest::Follower<WalFiles>,
    tail: Option<Tail>,
    /// The tail failed half-way: it is read again from its preamble, or it would go on behind the
    /// frame that it failed at.
    broken: bool,
    /// Whether the caller holds the lock, so that a lock is no sign of a writer.
    locked: bool,
    dir: PathBuf,
}

impl Follower {
    /// Open a directory.
    pub fn open(vfs: Arc<dyn Vfs>, dir: &Path, options: &Options) -> Result<Self> {
        Self::new(vfs, dir, options, false)
    }

    /// Open a directory whose lock the caller holds: nobody writes.
    pub fn open_locked(vfs: Arc<dyn Vfs>, dir: &Path, options: &Options) -> Result<Self> {
        Self::new(vfs, dir, options, true)
    }

    fn new(vfs: Arc<dyn Vfs>, dir: &Path, options: &Options, locked: bool) -> Result<Self> {
        let Some(identity) = NodeIdentity::read(&*vfs, dir)? else {
            check_no_remains(&*vfs, dir)?;
            return Err(Error::NotFound {
                what: format!("a Braidlog directory at {}", dir.display()),
            });
        };
        let who = Identity {
            object: identity.wal,
            node: identity.node,
        };
        let manifest = Manifest::open_read_only(Arc::clone(&vfs), dir, who)?;
        let view = Arc::new(View::new(
            vfs,
            dir.to_owned(),
            new_pool(),
            0,
            options.index_bytes_max,
            options.lookup_bytes_max,
        ));
        let mut follower = Self {
            view,
            identity,
            manifest,
            tail: None,
            broken: false,
            locked,
            dir: dir.to_owned(),
        };
        follower.refresh()?;
        Ok(follower)
    }

    /// What readers use.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// Run `f` on the state as of the last refresh.
    pub fn with_state<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        match &self.tail {
            Some(tail) => f(&tail.state),
            None => f(&State::default()),
        }
    }

    /// Whose directory it is: files of tables name it.
    pub fn node(&self) -> u128 {
        self.identity.node
    }

    /// Whose directory it is, its bound where it says, and the place of the state: segment (0: none) and offset.
    pub(crate) fn described(&self) -> (NodeIdentity, Option<u64>, (u64, u32)) {
        let tail = self.tail.as_ref();
        let place = tail.map_or((0, 0), |tail| (tail.segment.number, tail.walk.offset));
        (self.identity, self.manifest.version().bound(), place)
    }

    /// A copy of the state as of the last refresh.
    pub fn state(&self) -> State {
        self.tail
            .as_ref()
            .map_or_else(State::default, |tail| tail.state.clone())
    }

    /// Show what has become durable since. Returns whether anything changed.
    pub fn refresh(&mut self) -> Result<bool> {
        let mut attempt = 0;
        loop {
            let result = self.try_refresh();
            self.broken = result.is_err();
            match result {
                // The writer may have rolled or recycled between two of our reads.
                Err(Error::Corruption { .. } | Error::Missing { .. }) if attempt < ATTEMPTS => {
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    fn try_refresh(&mut self) -> Result<bool> {
        let vfs = Arc::clone(&self.view.vfs);
        // While a writer holds the lock only what it marks as durable is shown. Without a writer all that the
        // next one would recover is.
        let alive = !self.locked && vfs.is_locked(&self.dir.join(LOCK))?;
        let mark = Watermark::read(&*vfs, &self.dir)?;
        let unchanged = |tail: &Tail| {
            mark.is_some_and(|mark| {
                mark.segment == tail.segment.number && mark.durable <= tail.walk.offset
            })
        };
        // The usual call while nothing is appended: one small read.
        if alive && !self.broken && self.tail.as_ref().is_some_and(unchanged) {
            return Ok(false);
        }
        self.manifest.refresh()?;
        let files = Arc::clone(self.manifest.version());
        if let Some(mark) = mark {
            check_newest(&self.dir, &files, mark)?;
        }
        let newest = files.active().map(|segment| segment.number);
        let mut table = None;
        if self.broken || newest != self.tail.as_ref().map(|tail| tail.segment.number) {
            table = Some(self.retable(&files)?);
        }
        let Some(tail) = self.tail.as_mut() else {
            self.view.set_segments(table.unwrap_or_default());
            return Ok(false);
        };
        let segment = &tail.segment;
        // Frames behind the mark may be written and not durable: a crash would take them back.
        let limit = if alive {
            let mine = mark
                .filter(|mark| mark.segment == segment.number && mark.salt == segment.seed.salt);
            mine.map_or(tail.walk.offset, |mark| mark.durable)
        } else {
            segment.bytes
        };
        let before = tail.walk.offset;
        tail.walk.extend(limit.max(before));
        let mut orders = Orders::default();
        let folded = fold(&mut tail.walk, segment, &mut tail.state, &mut orders)?;
        if !alive && tail.synced != Some(tail.walk.offset) {
            // Without a writer, what is served must survive: make it durable as a writer's open would. Behind the
            // reads, for one may have come since, and what it writes is not durable when it can be read. Once is
            // enough, as long as nothing else is served.
            segment.reader(&*vfs)?.sync()?;
            tail.synced = Some(tail.walk.offset);
        }
        if folded.frames > 0 {
            tail.closed = folded.closed;
        }
        if !alive && tail.checked != Some(tail.walk.offset) {
            // As a writer's open would, so that damage does not pass for the end.
            let reason = tail.walk.ended.clone().unwrap_or_default();
            let ghosts = if tail.closed && self.manifest.closed() {
                Vec::new()
            } else {
                tail.walk.ghosts(reach(segment, mark))?
            };
            check_durable(segment, &tail.walk, &ghosts, mark, &reason)?;
            tail.checked = Some(tail.walk.offset);
        }
        if alive && tail.walk.offset < limit {
            let reason = tail.walk.ended.clone().unwrap_or_default();
            return Err(Error::corrupt(
                segment.path(),
                tail.walk.offset.into(),
                reason,
            ));
        }
        let changed = tail.walk.offset != before;
        // Only now: before, readers would meet a segment whose index is not filled yet.
        if let Some(table) = table {
            self.view.set_segments(table);
        }
        self.publish();
        Ok(changed)
    }

    /// Read the segment table anew, and the state at the head of the newest segment.
    fn retable(&mut self, files: &WalFiles) -> Result<Vec<Arc<Segment>>> {
        let vfs = Arc::clone(&self.view.vfs);
        let fresh = tables(&self.dir, files, self.identity.segment_bytes)?;
        let known = self.view.segments();
        let same = |segment: &Arc<Segment>| {
            known.iter().find(|old| {
                old.number == segment.number
                    && old.seed == segment.seed
                    && old.sealed() == segment.sealed()
            })
        };
        let Some(newest) = fresh.last().cloned() else {
            self.tail = None;
            return Ok(fresh);
        };
        // The newest one is always a fresh one, with an empty index.
        let sealed = fresh[..fresh.len() - 1].iter();
        let segments = sealed
            // Those that are as before keep their handles and their loaded indexes.
            .map(|segment| same(segment).unwrap_or(segment).clone())
            .chain([Arc::clone(&newest)])
            .collect();
        newest.check_header(&*vfs, self.identity.node)?;
        let (state, walk) = begin(&*vfs, &self.dir, newest.reader(&*vfs)?, &newest)?;
        debug_assert!(walk.offset >= FIRST_FRAME);
        self.tail = Some(Tail {
            segment: newest,
            walk,
            state,
            closed: false,
            checked: None,
            synced: None,
        });
        Ok(segments)
    }

    fn publish(&self) {
        let Some(tail) = &self.tail else { return };
        for number in self.view.streams().keys() {
            if !tail.state.streams.contains_key(number) {
                self.view.remove(*number);
            }
        }
        for (number, stream) in &tail.state.streams {
            self.view.publish(*number, range_of(stream));
        }
        self.view.bound_index_memory();
    }
}
