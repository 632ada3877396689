//! How the log of a directory ends: the state at the head of its newest segment and what follows, as far as
//! it can be read.
//!
//! # Theory of operation
//!
//! Undamaged, this is what recovery does. Where durable bytes are damaged, the fold goes on at the next whole
//! frame, and takes over what that says of its stream: records and commits carry their numbers, so that what
//! went with the damage is known by its numbers too. Where the head itself is damaged, the fold begins at an
//! older one. The end of a stream of which no frame comes behind the last damage is not known: it is *doubtful*.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::damage::{Damage, is_damage, note};
use super::forward::Held;
use crate::error::{Error, Result};
use crate::manifest::WalFiles;
use crate::vfs::{Access, Vfs, VfsFile};
use crate::wal::{
    Change, FIRST_FRAME, Folded, Frame, FrameHeader, Orders, Segment, State, Walk, Watermark,
    check_newest, durable_end, fold, frame_change, open_slot, reach, read_preamble,
};

/// What the end of a directory adds up to.
#[derive(Default)]
pub(super) struct Ending {
    pub(super) state: State,
    pub(super) orders: Orders,
    /// The newest segment; zeros where the file has nothing.
    pub(super) newest: Option<Arc<Held>>,
    /// How far the newest segment is known to have been durable, if something before that is damaged.
    pub(super) durable: u32,
    pub(super) damages: Vec<Damage>,
    pub(super) doubtful: BTreeSet<u32>,
    /// Bytes that were read of the newest segment.
    pub(super) bytes: u64,
}

/// What is read.
pub(super) struct Files<'a> {
    pub(super) vfs: &'a dyn Vfs,
    pub(super) dir: &'a Path,
    pub(super) node: u128,
    pub(super) listed: &'a WalFiles,
    pub(super) segments: &'a [Arc<Segment>],
    pub(super) mark: Option<Watermark>,
    /// The manifest says that the writer closed in good order.
    pub(super) closed: bool,
}

impl Files<'_> {
    /// Read the newest segment, and older ones if that cannot be understood.
    ///
    /// Fails with [`Error::Corruption`] or [`Error::Missing`] if no head of a segment can be read.
    pub(super) fn ending(&self) -> Result<Ending> {
        let mut ending = Ending::default();
        let Some((newest, older)) = self.segments.split_last() else {
            return match self.mark {
                Some(mark) => check_newest(self.dir, self.listed, mark).map(|()| ending),
                None => Ok(ending),
            };
        };
        let held = self.hold(newest, &mut ending)?;
        let file = Arc::clone(&held) as Arc<dyn VfsFile>;
        match self.head(&held, newest) {
            Ok((state, mut walk)) => {
                ending.state = state;
                let folded = fold(&mut walk, newest, &mut ending.state, &mut ending.orders)?;
                self.go_on(&mut ending, newest, &file, walk, &folded)?;
            }
            Err(error) if is_damage(&error) => {
                self.fall_back(&mut ending, older, &error)?;
                let walk = Walk::new(file, newest.seed, FIRST_FRAME, 0, newest.bytes);
                self.behind_head(&mut ending, newest, walk, &error)?;
            }
            Err(error) => return Err(error),
        }
        if let Some(mark) = self.mark
            && let Err(error) = check_newest(self.dir, self.listed, mark)
        {
            ending.damage(Damage::of(&error, self.dir));
        }
        ending.newest = Some(held);
        Ok(ending)
    }

    fn hold(&self, newest: &Segment, ending: &mut Ending) -> Result<Arc<Held>> {
        let opened = open_segment(self.vfs, newest);
        let held = match opened {
            Ok(file) => Held::read(&*file)?,
            Err(error @ Error::Missing { .. }) => {
                let there = self.vfs.exists(newest.path())?;
                let file = there.then(|| self.vfs.open(newest.path(), Access::Read));
                let held = Held::read_part(file.transpose()?, newest.path(), newest.bytes.into())?;
                let mut damage = Damage::of(&error, self.dir);
                damage.begin = held.there;
                ending.damage(Damage {
                    end: Some(newest.bytes.into()),
                    ..damage
                });
                held
            }
            Err(error) => return Err(error),
        };
        ending.bytes = held.there;
        Ok(Arc::new(held))
    }

    fn head(&self, held: &Arc<Held>, newest: &Segment) -> Result<(State, Walk)> {
        let mut block = vec![0; FIRST_FRAME as usize];
        held.read_exact_at(&mut block, 0)?;
        newest.check_block(&block, self.node)?;
        let file = Arc::clone(held) as Arc<dyn VfsFile>;
        read_preamble(file, newest, newest.bytes)
    }

    /// Behind the end of a fold: nothing, or damage and what follows it.
    fn go_on(
        &self,
        ending: &mut Ending,
        newest: &Arc<Segment>,
        file: &Arc<dyn VfsFile>,
        mut walk: Walk,
        folded: &Folded,
    ) -> Result<()> {
        let reason = walk.ended.clone().unwrap_or_default();
        if self.closed && folded.closed {
            return Ok(());
        }
        let (offset, ordinal) = (walk.offset, walk.ordinal);
        let durable = self.durable(&mut walk, newest)?;
        if durable > offset {
            ending.durable = durable;
            let walk = Walk::new(Arc::clone(file), newest.seed, offset, ordinal, newest.bytes);
            ending.pass_over(walk, newest, durable, &reason, true)?;
        } else if self.closed {
            // It ended with a frame that says so.
            let mut damage = Damage::of(&Error::Closed, newest.path());
            (damage.begin, damage.reason) = (offset.into(), format!("{reason}; it was closed"));
            ending.damage(damage);
        }
        Ok(())
    }

    fn durable(&self, walk: &mut Walk, newest: &Segment) -> Result<u32> {
        let ghosts = walk.ghosts(reach(newest, self.mark))?;
        let (by_frame, by_file) = durable_end(newest, &ghosts, self.mark);
        Ok(by_frame.max(by_file))
    }

    /// Fold the newest one of `older` whose head can be read, and what follows it.
    fn fall_back(&self, ending: &mut Ending, older: &[Arc<Segment>], error: &Error) -> Result<()> {
        for (at, segment) in older.iter().enumerate().rev() {
            let Ok(file) = open_segment(self.vfs, segment) else {
                continue;
            };
            let limit = segment.sealed().map_or(segment.bytes, |sealed| sealed.end);
            let Ok((state, walk)) = read_preamble(file, segment, limit) else {
                continue;
            };
            ending.state = state;
            ending.pass_over(walk, segment, limit, "", false)?;
            for following in &older[at + 1..] {
                // The pass names what is damaged there.
                let limit = following
                    .sealed()
                    .map_or(following.bytes, |sealed| sealed.end);
                ending.doubt();
                let opened = open_segment(self.vfs, following);
                if let Ok(file) = opened {
                    let walk = Walk::new(file, following.seed, FIRST_FRAME, 0, limit);
                    ending.pass_over(walk, following, limit, "no head", false)?;
                }
            }
            return Ok(());
        }
        let damage = Damage::of(error, self.dir);
        Err(Error::corrupt(damage.path, damage.begin, damage.reason))
    }

    fn behind_head(
        &self,
        ending: &mut Ending,
        newest: &Arc<Segment>,
        mut walk: Walk,
        error: &Error,
    ) -> Result<()> {
        let mut damage = Damage::of(error, newest.path());
        damage
            .end
            .get_or_insert(damage.begin.max(FIRST_FRAME.into()));
        ending.damage(damage);
        ending.durable = self.durable(&mut walk, newest)?.max(FIRST_FRAME);
        let file = walk.into_file();
        let walk = Walk::new(file, newest.seed, FIRST_FRAME, 0, newest.bytes);
        ending.pass_over(walk, newest, ending.durable, "no head", true)
    }
}

fn open_segment(vfs: &dyn Vfs, segment: &Segment) -> Result<Arc<dyn VfsFile>> {
    let (bytes, filled) = (segment.bytes.into(), segment.filled().into());
    open_slot(vfs, segment.path(), bytes, filled)
}

impl Ending {
    fn damage(&mut self, damage: Damage) {
        self.doubt();
        note(&mut self.damages, damage);
    }

    /// From here on the end of no stream is known.
    fn doubt(&mut self) {
        self.doubtful = self.state.streams.keys().copied().collect();
    }

    /// Fold what can be read of a segment that was durable up to `durable`, from where the walk stands.
    fn pass_over(
        &mut self,
        mut walk: Walk,
        segment: &Segment,
        durable: u32,
        reason: &str,
        newest: bool,
    ) -> Result<()> {
        loop {
            while let Some(frame) = walk.next_frame()? {
                let payload = walk.payload(&frame)?;
                self.frame(segment, &frame, payload, newest);
            }
            let begin = walk.offset;
            if begin >= durable {
                return Ok(());
            }
            let reason = walk.ended.clone().unwrap_or_else(|| reason.into());
            let found = walk.resync(durable)?;
            let end = if found { walk.offset } else { durable };
            self.damage(Damage {
                path: segment.path().into(),
                begin: begin.into(),
                end: Some(end.into()),
                reason,
            });
            if !found {
                return Ok(());
            }
        }
    }

    /// Take over a frame as far as it applies: what it needs may have gone with the damage.
    fn frame(&mut self, segment: &Segment, frame: &Frame, payload: &[u8], newest: bool) {
        let Ok((change, timestamps)) = frame_change(frame, payload) else {
            return;
        };
        leap(&mut self.state, &frame.header, &change);
        if self.state.apply(&frame.header, &change).is_ok() {
            let header = &frame.header;
            self.orders.fold(&self.state, header, frame.length, &change);
            self.settle(header, &change);
        }
        if newest {
            // An index without a part of the numbers is one that lacks them: a read of them fails.
            let _ = segment.note(frame, &change, timestamps, payload);
        }
    }

    fn settle(&mut self, header: &FrameHeader, change: &Change) {
        let explicit = |stream| self.state.streams.get(&stream).map(|s| s.explicit_commit);
        let ends = match change {
            Change::Commit(_) => true,
            Change::Batch { .. } => explicit(header.stream) == Some(false),
            _ => false,
        };
        if ends {
            self.doubtful.remove(&header.stream);
        }
    }
}

/// Bring a stream to where a frame behind the damage says that it stands.
fn leap(state: &mut State, header: &FrameHeader, change: &Change) {
    let Some(stream) = state.streams.get_mut(&header.stream) else {
        return;
    };
    match change {
        Change::Batch { .. } if header.llsn >= stream.committed => {
            stream.next = header.llsn;
            if !stream.explicit_commit {
                stream.committed = header.llsn;
            }
        }
        Change::Commit(context) if context.llsn_begin >= stream.committed => {
            stream.committed = context.llsn_begin;
            stream.next = stream.next.max(context.llsn_begin + context.length);
        }
        Change::Rollback => stream.next = stream.next.max(header.llsn),
        Change::Trim => {
            stream.committed = stream.committed.max(header.llsn);
            stream.next = stream.next.max(header.llsn);
        }
        _ => {}
    }
}
