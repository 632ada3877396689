//! Which segments a directory holds, from its manifest or, without one, from their header blocks.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::fold::Fold;
use super::scan::{Found, Scan};
use crate::error::{Error, Result};
use crate::limits::BLOCK_BYTES;
use crate::manifest::{Identity, Manifest, WalFiles, parse_slot_name};
use crate::vfs::{Access, Vfs, VfsFile};
use crate::wal::format::frame::{Kind, Seed};
use crate::wal::format::header::SegmentHeader;
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::watermark::Watermark;
use crate::wal::recover::directory::LOCK;
use crate::wal::recover::evidence::check_newest;
use crate::wal::recover::tail::is_torn;
use crate::wal::segments::growing::GrowingFile;
use crate::wal::segments::segment::{Sealed, slot_path};

/// Attempts to read a manifest that a writer may be replacing.
const ATTEMPTS: usize = 16;

/// One segment: what a lap of the log wrote into a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lap {
    /// Segment number.
    pub number: u64,
    /// Slot.
    pub slot: u32,
    /// Slot file.
    pub path: PathBuf,
    /// Checksum seed.
    pub seed: Seed,
    /// Length of the slot: of the file once that is whole.
    pub bytes: u32,
    /// Length the file has at least.
    pub filled: u32,
    /// How it was sealed; `None` for the newest, or where only the header block tells of it.
    pub sealed: Option<Sealed>,
}

/// How the newest segment ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The last writer closed the log.
    Closed,
    /// Nothing stands behind the last frame.
    Open,
    /// Something stands behind it that nobody was promised.
    Torn {
        /// What it is instead of a frame.
        reason: String,
    },
    /// Something behind it was durable once.
    Corrupt {
        /// What it is instead of a frame, and who says that it was durable.
        reason: String,
    },
}

impl Lap {
    /// Open the slot for reading. What a file that may be short does not have reads as zeros.
    pub fn open(&self, vfs: &dyn Vfs) -> Result<Arc<dyn VfsFile>> {
        let file = vfs.open(&self.path, Access::Read)?;
        if self.filled == self.bytes {
            return Ok(file);
        }
        let len = file.len()?;
        Ok(GrowingFile::wrap(
            file,
            self.filled.into(),
            len,
            self.bytes.into(),
        ))
    }
}

/// What a directory says of itself.
pub struct Survey {
    /// Node directory.
    pub dir: PathBuf,
    /// Whose it is; `Ok(None)` without the file.
    pub identity: Result<Option<NodeIdentity>>,
    /// The manifest's file list.
    pub files: Result<Arc<WalFiles>>,
    /// Whether the manifest says that the last writer closed it.
    pub closed: bool,
    /// Segments, oldest first.
    pub laps: Vec<Lap>,
    /// Node id, from the identity or the segments.
    pub node: u128,
    /// Slots that hold no readable segment though the manifest is lost.
    pub unknown_slots: Vec<PathBuf>,
    /// Whether a writer is running.
    pub alive: bool,
    /// How far the log is durable.
    pub watermark: Option<Watermark>,
}

impl Survey {
    /// Look at a directory. Changes nothing. Fails only if there is no directory.
    pub fn take(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            let survey = Self::attempt(vfs, dir)?;
            if !survey.is_rolling() {
                return Ok(survey);
            }
        }
        // What the newest segment holds was not promised yet.
        let mut survey = Self::attempt(vfs, dir)?;
        if survey.is_rolling() {
            survey.laps.pop();
        }
        Ok(survey)
    }

    /// Whether a writer began a segment and has not told yet how far it is durable.
    fn is_rolling(&self) -> bool {
        let newest = self.newest();
        self.alive && self.laps.len() > 1 && newest.is_some_and(|lap| self.mark(lap).is_none())
    }

    fn attempt(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Self> {
        let names = vfs.list(dir)?;
        let lock = dir.join(LOCK);
        let alive = vfs.exists(&lock)? && vfs.is_locked(&lock)?;
        // Before the manifest: then its segment is in the manifest, or is a later one.
        let watermark = Watermark::read(&**vfs, dir).ok().flatten();
        let identity = NodeIdentity::read(&**vfs, dir);
        let (files, closed) = match &identity {
            Ok(Some(identity)) => match read_manifest(vfs, dir, identity) {
                // Of a list that ends early the segments behind it are known by their header blocks.
                Ok((files, closed)) => {
                    match watermark.map(|mark| check_newest(dir, &files, mark)) {
                        Some(Err(error)) => (Err(error), false),
                        _ => (Ok(files), closed),
                    }
                }
                Err(error) => (Err(error), false),
            },
            _ => (Err(lost(dir, &names)), false),
        };
        let mut survey = Self {
            dir: dir.to_owned(),
            identity,
            files,
            closed,
            laps: Vec::new(),
            node: 0,
            unknown_slots: Vec::new(),
            alive,
            watermark,
        };
        if let Ok(Some(identity)) = &survey.identity {
            survey.node = identity.node;
        }
        match (&survey.files, &survey.identity) {
            (Ok(files), Ok(Some(identity))) => survey.laps = listed(dir, files, identity),
            _ => survey.recognise(&**vfs)?,
        }
        Ok(survey)
    }

    /// Fail unless identity and manifest are whole.
    pub fn whole(self) -> Result<(Self, NodeIdentity, Arc<WalFiles>)> {
        let missing = Error::NotFound {
            what: format!("a Braidlog directory at {}", self.dir.display()),
        };
        let Self {
            identity, files, ..
        } = self;
        let (identity, files) = (identity?.ok_or(missing)?, files?);
        let survey = Self {
            identity: Ok(Some(identity)),
            files: Ok(Arc::clone(&files)),
            ..self
        };
        Ok((survey, identity, files))
    }

    /// The newest segment.
    pub fn newest(&self) -> Option<&Lap> {
        self.laps.last()
    }

    /// Where the frames of a segment end for sure: nothing at or behind it is looked at.
    ///
    /// Beside a running writer the newest one ends at the watermark.
    pub fn limit(&self, lap: &Lap) -> u32 {
        match (lap.sealed, self.mark(lap)) {
            (Some(sealed), _) => sealed.end.min(lap.bytes),
            (None, Some(mark)) if self.alive => mark.durable.min(lap.bytes),
            (None, _) => lap.bytes,
        }
    }

    /// The watermark, if it speaks of this segment.
    pub fn mark(&self, lap: &Lap) -> Option<Watermark> {
        self.watermark
            .filter(|mark| mark.segment == lap.number && mark.salt == lap.seed.salt)
    }

    /// How the newest segment ends, and the offset: what the next open would say.
    pub fn ending(&self, vfs: &dyn Vfs) -> Result<Option<(u32, Ending)>> {
        let Some(newest) = self.newest() else {
            return Ok(None);
        };
        let file = newest.open(vfs)?;
        let limit = self.limit(newest);
        let mut scan = Scan::new(Arc::clone(&file), newest.seed, limit);
        let mut last = None;
        let mut fold = Fold::new(self.node);
        fold.begin();
        while let Some(found) = scan.next_found() {
            match found {
                Found::Frame(frame) if scan.first_bad.is_none() => {
                    last = Some(frame.header.kind);
                    fold.frame(&frame, scan.payload(&frame));
                }
                _ => {}
            }
        }
        let torn = |offset, ordinal| is_torn(&*file, offset, ordinal, limit, &fold.state);
        let (end, reason) = scan
            .first_bad
            .clone()
            .unwrap_or((scan.offset, scan.ended.clone()));
        // A close frame alone is not the end: what a later writer had in flight may stand behind it.
        let closed = self.closed && last == Some(Kind::Close) && scan.first_bad.is_none();
        let by_file = self.mark(newest).map_or(0, |mark| mark.durable);
        let by_frame = scan.durable;
        let ending = if by_frame.max(by_file) > end {
            let witness = if by_frame > end {
                "a later frame"
            } else {
                "the watermark file"
            };
            let durable = by_frame.max(by_file);
            let reason = format!("{reason}; {witness} shows that it was durable up to {durable}");
            Ending::Corrupt { reason }
        } else if closed {
            Ending::Closed
        } else if scan.first_bad.is_some() || torn(scan.offset, scan.ordinal) {
            Ending::Torn { reason }
        } else {
            Ending::Open
        };
        Ok(Some((end, ending)))
    }

    /// Find the segments by the header blocks of the slots.
    fn recognise(&mut self, vfs: &dyn Vfs) -> Result<()> {
        let wal = self.dir.join("wal");
        if !vfs.exists(&wal)? {
            return Ok(());
        }
        let mut headers = Vec::new();
        for slot in vfs.list(&wal)?.iter().filter_map(|n| parse_slot_name(n)) {
            let path = slot_path(&self.dir, slot);
            match read_header(vfs, &path) {
                Ok(Some(header)) => headers.push((slot, path, header)),
                Ok(None) => {}
                Err(_) => self.unknown_slots.push(path),
            }
        }
        if !matches!(self.identity, Ok(Some(_))) {
            self.node = most_common(headers.iter().map(|(_, _, header)| header.node));
        }
        let mut laps: BTreeMap<u64, Lap> = BTreeMap::new();
        for (slot, path, header) in headers {
            if header.node != self.node {
                self.unknown_slots.push(path);
                continue;
            }
            let bytes = u32::try_from(header.bytes).unwrap_or(u32::MAX);
            let len = vfs.open(&path, Access::Read)?.len()?;
            let lap = Lap {
                number: header.number,
                slot,
                path,
                seed: Seed {
                    salt: header.salt,
                    segment: header.number,
                },
                bytes,
                // How long it was is in the manifest, which is lost.
                filled: u32::try_from(len).unwrap_or(bytes).min(bytes),
                sealed: None,
            };
            // A lap that was begun and never listed has its number given again.
            let other = laps.remove(&lap.number);
            let better = other.filter(|other| reach(vfs, other) > reach(vfs, &lap));
            laps.insert(lap.number, better.unwrap_or(lap));
        }
        self.laps = laps.into_values().collect();
        Ok(())
    }
}

/// The state of a directory whose identity is lost.
fn lost(dir: &Path, names: &[String]) -> Error {
    if names.iter().any(|name| name == "wal" || name == "CURRENT") {
        return Error::Missing {
            path: dir.join(IDENTITY),
            reason: "other files of the node are there; restore it from a copy".into(),
        };
    }
    Error::NotFound {
        what: format!("a Braidlog directory at {}", dir.display()),
    }
}

fn read_manifest(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    identity: &NodeIdentity,
) -> Result<(Arc<WalFiles>, bool)> {
    let who = Identity {
        object: identity.wal,
        node: identity.node,
    };
    let mut attempt = 0;
    loop {
        match Manifest::<WalFiles>::open_read_only(Arc::clone(vfs), dir, who) {
            Ok(follower) => return Ok((Arc::clone(follower.version()), follower.closed())),
            Err(_) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error),
        }
    }
}

fn listed(dir: &Path, files: &WalFiles, identity: &NodeIdentity) -> Vec<Lap> {
    files
        .segments()
        .map(|segment| Lap {
            number: segment.number,
            slot: segment.slot,
            path: slot_path(dir, segment.slot),
            seed: Seed {
                salt: segment.salt,
                segment: segment.number,
            },
            bytes: identity.segment_bytes,
            filled: files
                .filled_bytes(segment.slot)
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(identity.segment_bytes),
            sealed: segment.sealed.map(|sealed| Sealed {
                end: u32::try_from(sealed.bytes).unwrap_or(u32::MAX),
                side_bytes: sealed.side_bytes,
                side_crc: sealed.side_crc,
            }),
        })
        .collect()
}

/// The header block of a slot; `None` for a slot that was never used.
pub fn read_header(vfs: &dyn Vfs, path: &Path) -> Result<Option<SegmentHeader>> {
    let mut block = vec![0; BLOCK_BYTES];
    vfs.open(path, Access::Read)?.read_exact_at(&mut block, 0)?;
    if block.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    SegmentHeader::decode(&block, path).map(Some)
}

fn most_common(ids: impl Iterator<Item = u128>) -> u128 {
    let mut counts: HashMap<u128, usize> = HashMap::new();
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
    let most = counts.into_iter().max_by_key(|(id, count)| (*count, *id));
    most.map_or(0, |(id, _)| id)
}

/// How far a lap's frames go.
fn reach(vfs: &dyn Vfs, lap: &Lap) -> u32 {
    let Ok(file) = lap.open(vfs) else {
        return 0;
    };
    let mut scan = Scan::new(file, lap.seed, lap.bytes);
    while scan.next_found().is_some() {}
    scan.offset
}
