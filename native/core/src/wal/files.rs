//! The files of the log: slots, segments, side files, kept by the manifest.
//!
//! # Invariants
//!
//! - A segment exists once the edit that opens it is durable; its header, preamble and first frames
//!   were durable before that, and the segment before it is sealed by the same edit.
//! - A side file goes only after the edit that drops its segment is durable. Slots are never removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::error::{Error, Result};
use crate::manifest::{Manifest, WalFiles, WalOperation};
use crate::vfs::{Access, Vfs};
use crate::wal::segments::{Sealed, Segment, open_slot, side_path, slot_path};
use crate::wal::view::View;

/// The writer's hold on the files.
pub struct Files {
    vfs: Arc<dyn Vfs>,
    dir: PathBuf,
    manifest: Option<Manifest<WalFiles>>,
}

impl Files {
    /// Files listed by `manifest`.
    pub fn new(vfs: Arc<dyn Vfs>, dir: PathBuf, manifest: Manifest<WalFiles>) -> Self {
        Self {
            vfs,
            dir,
            manifest: Some(manifest),
        }
    }

    fn manifest(&mut self) -> Result<&mut Manifest<WalFiles>> {
        self.manifest.as_mut().ok_or(Error::Closed)
    }

    /// Slots ready for a segment.
    pub fn free_slots(&self) -> usize {
        self.manifest
            .as_ref()
            .map_or(0, |manifest| manifest.version().free_slots().len())
    }

    /// A free slot, made on the spot if there is none.
    pub fn take_slot(&mut self, bytes: u64) -> Result<u32> {
        let free = self.manifest()?.version().free_slots().next();
        match free {
            Some(slot) => self.check_slot(slot, bytes).map(|()| slot),
            None => self.make_slot(bytes),
        }
    }

    /// Make a free slot anew if its file has another length than recorded; it holds nothing.
    fn check_slot(&self, slot: u32, bytes: u64) -> Result<()> {
        let path = slot_path(&self.dir, slot);
        match open_slot(&*self.vfs, &path, bytes) {
            Err(Error::Missing { .. }) => self.make_file(&path, bytes),
            other => other.map(|_| ()),
        }
    }

    fn make_file(&self, path: &Path, bytes: u64) -> Result<()> {
        if self.vfs.exists(path)? {
            self.vfs.remove(path)?;
        }
        self.vfs.create_zeroed(path, bytes)?;
        self.vfs.sync_dir(&self.dir.join("wal"))
    }

    /// Make one more free slot.
    pub fn prepare(files: &Mutex<Self>, bytes: u64) -> Result<()> {
        files.lock().make_slot(bytes).map(|_| ())
    }

    fn make_slot(&mut self, bytes: u64) -> Result<u32> {
        let slot = self.manifest()?.version().next_slot();
        let path = slot_path(&self.dir, slot);
        self.make_file(&path, bytes)?;
        self.manifest()?
            .commit(&[WalOperation::AddSlot { slot, bytes }])?;
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
        self.manifest()?.commit(&edit)?;
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
        write_new(&*self.vfs, &side_path(&self.dir, number), &bytes)?;
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
        self.manifest()?.commit(&edit)?;
        for number in numbers {
            let path = side_path(&self.dir, *number);
            if self.vfs.exists(&path)? {
                self.vfs.remove(&path)?;
            }
        }
        self.vfs.sync_dir(&self.dir.join("wal"))
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
