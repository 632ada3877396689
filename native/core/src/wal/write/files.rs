//! The files of the log: slots, segments, side files, kept by the manifest.
//!
//! # Invariants
//!
//! - A segment exists once the edit that opens it is durable; its header, preamble and first frames
//!   were durable before that, and the segment before it is sealed by the same edit.
//! - A side file goes only after the edit that drops its segment is durable. Slots are never removed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::manifest::{
    Manifest, Orphans, WalFiles, WalOperation, collect, parse_side_name, parse_slot_name,
    slot_name, wal_orphans,
};
use crate::vfs::{Access, Vfs};
use crate::wal::read::view::View;
use crate::wal::segments::segment::{Sealed, Segment, open_slot, side_path, slot_path};

/// Name of the file that gives space back when the disk is full.
pub const BALLAST: &str = "BALLAST";

/// Enough for a manifest file of many thousand segments.
const BALLAST_BYTES: u64 = 1 << 20;

/// The writer's hold on the files.
pub struct Files {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    manifest: Option<Manifest<WalFiles>>,
    /// Slots that a writer was making when it was killed.
    leftover_slots: Vec<u32>,
    /// Segments that are dropped and whose side file could not be removed yet.
    leftover_sides: BTreeSet<u64>,
}

impl Files {
    /// Files listed by `manifest`.
    pub fn new(vfs: Arc<dyn Vfs>, dir: PathBuf, manifest: Manifest<WalFiles>) -> Self {
        Self {
            vfs,
            dir,
            manifest: Some(manifest),
            leftover_slots: Vec::new(),
            leftover_sides: BTreeSet::new(),
        }
    }

    fn manifest(&mut self) -> Result<&mut Manifest<WalFiles>> {
        self.manifest.as_mut().ok_or(Error::Closed)
    }

    /// Whether the log is closed in good order, and nothing was changed since.
    pub fn is_untouched(&self) -> bool {
        let manifest = self.manifest.as_ref();
        manifest.is_some_and(Manifest::is_untouched)
    }

    /// Before anything is written to a segment: the log is no longer closed.
    pub fn begin(&mut self) -> Result<()> {
        match self.manifest()?.begin() {
            Err(error) if error.is_disk_full() && self.drop_ballast()? => self.manifest()?.begin(),
            other => other,
        }
    }

    /// Remove files that nothing names, but for slots. Only after a full recovery.
    ///
    /// A kill leaves a slot in most cases, and removing one takes longer than the rest of an open:
    /// they wait for [`Files::collect_slots`].
    pub fn collect_orphans(&mut self) -> Result<Orphans> {
        let found = wal_orphans(self.manifest()?, &BTreeSet::new())?;
        let files = || found.files.iter();
        self.leftover_slots = files().filter_map(|path| slot_of(path)).collect();
        self.leftover_sides = files().filter_map(|path| side_of(path)).collect();
        let others = files().filter(|path| slot_of(path).is_none() && side_of(path).is_none());
        let others: Vec<_> = others.cloned().collect();
        collect(&*self.vfs, &self.dir, &others)?;
        self.collect_sides()?;
        Ok(found)
    }

    /// Remove the slots that [`Files::collect_orphans`] left, but those made anew since.
    pub fn collect_slots(&mut self) -> Result<()> {
        if self.leftover_slots.is_empty() {
            return Ok(());
        }
        let manifest = self.manifest.as_ref().ok_or(Error::Closed)?;
        manifest.check_settled()?;
        let unlisted = |slot: &&u32| manifest.version().slot_bytes(**slot).is_none();
        let slots = self.leftover_slots.iter().filter(unlisted);
        let paths: Vec<_> = slots
            .map(|slot| Path::new("wal").join(slot_name(*slot)))
            .collect();
        collect(&*self.vfs, &self.dir, &paths)?;
        self.leftover_slots.clear();
        Ok(())
    }

    /// Keep a little space that a full disk gives back when the manifest needs it.
    pub fn make_ballast(&self) -> Result<()> {
        let path = self.dir.join(BALLAST);
        if self.vfs.exists(&path)? {
            return Ok(());
        }
        match self.vfs.create_zeroed(&path, BALLAST_BYTES) {
            Err(error) if error.is_disk_full() => Ok(()),
            other => other,
        }
    }

    /// Commit an edit. On a full disk the ballast makes room for it: the manifest starts a new file,
    /// from which on the failed edit is known not to have happened, and tries once more.
    fn commit(&mut self, edit: &[WalOperation]) -> Result<()> {
        match self.manifest()?.commit(edit) {
            Err(error) if error.is_disk_full() && self.drop_ballast()? => {
                self.manifest()?.settle()?;
                self.manifest()?.commit(edit).map(|_| ())
            }
            other => other.map(|_| ()),
        }
    }

    /// Keep the bound on the log's size for opens that are given none.
    pub fn set_bound(&mut self, bytes: u64) -> Result<()> {
        if self.manifest()?.version().bound() == Some(bytes) {
            return Ok(());
        }
        self.commit(&[WalOperation::SetBound { bytes }])
    }

    /// List that batches with null values may follow, before the first one is written.
    pub fn allow_nulls(&mut self) -> Result<()> {
        if self.nulls() {
            return Ok(());
        }
        self.commit(&[WalOperation::AllowNulls])
    }

    /// Whether that is listed.
    pub fn nulls(&self) -> bool {
        let manifest = self.manifest.as_ref();
        manifest.is_some_and(|manifest| manifest.version().nulls())
    }

    fn drop_ballast(&self) -> Result<bool> {
        let path = self.dir.join(BALLAST);
        let held = self.vfs.exists(&path)?;
        if held {
            self.vfs.remove(&path)?;
        }
        Ok(held)
    }

    /// Free slots whose files are there with their whole length: ready for a segment.
    pub fn ready_slots(&self) -> u64 {
        let Some(manifest) = &self.manifest else {
            return 0;
        };
        let version = manifest.version();
        let ready = |slot: &u32| {
            let bytes = version.slot_bytes(*slot).unwrap_or_default();
            let whole = version.filled_bytes(*slot) == Some(bytes);
            whole && open_slot(&*self.vfs, &slot_path(&self.dir, *slot), bytes, bytes).is_ok()
        };
        version.free_slots().filter(ready).count() as u64
    }

    /// A free slot of `bytes` whose file has at least the first `filled` of them, made on the spot if there is none.
    /// Returns it, and how many its file has.
    pub fn take_slot(&mut self, bytes: u64, filled: u64) -> Result<(u32, u64)> {
        let version = self.manifest()?.version();
        let listed = |slot| (slot, version.filled_bytes(slot).unwrap_or(bytes));
        let free: Vec<(u32, u64)> = version.free_slots().map(listed).collect();
        // One whose file is long enough needs no write.
        for &(slot, there) in free.iter().filter(|(_, there)| *there >= filled) {
            match open_slot(&*self.vfs, &slot_path(&self.dir, slot), bytes, there) {
                Ok(_) => return Ok((slot, there)),
                // Without a descriptor nothing is known of the file: it must not be made anew for that.
                Err(error) if error.is_exhausted() => return Err(error),
                Err(_) => {}
            }
        }
        let Some(&(slot, there)) = free.first() else {
            return Ok((self.make_slot(bytes, filled)?, filled));
        };
        // A free slot holds nothing. So one that is missing or has another length is made anew, under its number.
        let filled = filled.max(there);
        self.make_file(&slot_path(&self.dir, slot), filled)?;
        if filled > there {
            self.commit(&[WalOperation::FillSlot {
                slot,
                bytes: filled,
            }])?;
        }
        Ok((slot, filled))
    }

    /// Make the file of the active segment's slot longer: `filled` bytes. What fails changes nothing.
    pub fn fill_slot(&mut self, segment: &Segment, filled: u32) -> Result<()> {
        let slot = segment.slot().ok_or(Error::Closed)?;
        let listed = self.manifest()?.version().filled_bytes(slot);
        let begin = listed.unwrap_or_else(|| segment.filled().into());
        let bytes = u64::from(filled);
        self.vfs.extend_zeroed(segment.path(), begin, bytes)?;
        // Listed before anything is written there: an open refuses a file that is shorter than listed, and so
        // notices if bytes were lost.
        self.commit(&[WalOperation::FillSlot { slot, bytes }])?;
        segment.set_filled(filled);
        Ok(())
    }

    fn make_file(&self, path: &Path, bytes: u64) -> Result<()> {
        if self.vfs.exists(path)? {
            self.vfs.remove(path)?;
        }
        // Zeros that are really written: later writes change no metadata of the file, so that they need no
        // journal.
        self.vfs.create_zeroed(path, bytes)?;
        self.vfs.sync_dir(&self.dir.join("wal"))
    }

    /// Make one more free slot of `bytes`, the first `filled` of which are really written with zeros. On failure nothing
    /// is left behind.
    pub fn make_slot(&mut self, bytes: u64, filled: u64) -> Result<u32> {
        let slot = self.manifest()?.version().next_slot();
        self.make_file(&slot_path(&self.dir, slot), filled)?;
        // The file is durable with its whole length before the manifest names it.
        let mut edit = vec![WalOperation::AddSlot { slot, bytes }];
        if filled < bytes {
            let bytes = filled;
            edit.push(WalOperation::FillSlot { slot, bytes });
        }
        self.commit(&edit)?;
        Ok(slot)
    }

    /// List a segment whose first part is durable, and seal the one before it.
    pub fn open_segment(
        &mut self,
        view: &View,
        segment: &Segment,
        seals: Option<&(Arc<Segment>, u32)>,
    ) -> Result<()> {
        let mut edit = Vec::new();
        let mut sealed = None;
        if let Some((old, end)) = seals {
            let seal = self.write_side(view, old, *end)?;
            edit.push(WalOperation::SealSegment {
                number: old.number,
                sealed_bytes: u64::from(seal.end),
                side_bytes: seal.side_bytes,
                side_crc: seal.side_crc,
            });
            sealed = Some((old, seal));
        }
        let slot = segment.slot().unwrap_or(0);
        let (number, salt) = (segment.number, segment.seed.salt);
        edit.push(WalOperation::OpenSegment { number, slot, salt });
        // One edit: after a crash the log has either the old segment to write to, or the new one.
        self.commit(&edit)?;
        if let Some((old, seal)) = sealed {
            old.set_sealed(seal);
            old.close_writers();
        }
        Ok(())
    }

    fn write_side(&self, view: &View, segment: &Segment, end: u32) -> Result<Sealed> {
        let (number, salt) = (segment.number, segment.seed.salt);
        let bytes = segment.with_index(&*self.vfs, &view.dir, |index| {
            index.encode(number, salt, u64::from(end))
        })?;
        match write_new(&*self.vfs, &side_path(&self.dir, number), &bytes) {
            // Derived data: without it the index is rebuilt from the segment when it is needed.
            Err(error) if error.is_disk_full() => {
                return Ok(Sealed {
                    end,
                    side_bytes: 0,
                    side_crc: 0,
                });
            }
            other => other?,
        }
        Ok(Sealed {
            end,
            side_bytes: bytes.len() as u32,
            side_crc: crc32c::crc32c(&bytes),
        })
    }

    /// Drop segments whose every record is dead; their slots become free, then their side files go.
    pub fn drop_segments(&mut self, numbers: &[u64]) -> Result<()> {
        if numbers.is_empty() {
            return Ok(());
        }
        let edit: Vec<_> = numbers
            .iter()
            .map(|number| WalOperation::DropSegment { number: *number })
            .collect();
        self.commit(&edit)?;
        // Only now: before the edit is durable, a crash would bring the segments back, and with them the need
        // for these.
        self.leftover_sides.extend(numbers);
        self.collect_sides()
    }

    /// Remove the side files of dropped segments. Nothing reads one any more, so one that cannot be removed
    /// stops nothing: it stays, is counted, and goes the next time, or at an open after a kill.
    pub fn collect_sides(&mut self) -> Result<()> {
        let (vfs, dir) = (&*self.vfs, &self.dir);
        let before = self.leftover_sides.len();
        self.leftover_sides.retain(|number| {
            let path = side_path(dir, *number);
            match vfs.exists(&path) {
                Ok(true) => vfs.remove(&path).is_err(),
                there => there.is_err(),
            }
        });
        if self.leftover_sides.len() == before {
            return Ok(());
        }
        match vfs.sync_dir(&dir.join("wal")) {
            // One that is there again after a crash is found by the open.
            Err(error) if error.is_exhausted() => Ok(()),
            other => other,
        }
    }

    /// How many side files of dropped segments are still there.
    pub fn sides_left(&self) -> u64 {
        self.leftover_sides.len() as u64
    }

    /// Change no file any more.
    pub fn release(&mut self) {
        self.manifest = None;
    }

    /// Close the manifest in good order; idempotent.
    pub fn close(&mut self) -> Result<()> {
        self.manifest.take().map_or(Ok(()), Manifest::close)
    }
}

/// The slot of a path, if it is one.
fn slot_of(path: &Path) -> Option<u32> {
    parse_slot_name(path.file_name()?.to_str()?)
}

/// The segment of a path, if it is a side file.
fn side_of(path: &Path) -> Option<u64> {
    parse_side_name(path.file_name()?.to_str()?)
}

/// Write a file that must be whole once it is named anywhere: sync it and its directory.
fn write_new(vfs: &dyn Vfs, path: &Path, bytes: &[u8]) -> Result<()> {
    if vfs.exists(path)? {
        vfs.remove(path)?;
    }
    let file = vfs.open(path, Access::CreateNew)?;
    file.write_all_at(bytes, 0)?;
    file.sync()?;
    vfs.sync_dir(path.parent().unwrap_or(Path::new(".")))
}
