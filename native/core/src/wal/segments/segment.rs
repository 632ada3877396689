//! A segment as readers and the writer see it, and the table of all segments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::error::{Error, Result};
use crate::index::{
    HEADER_BYTES, SegmentIndex, SideHeader, StreamSummary, decode, decode_summary, summary_bytes,
};
use crate::limits::BLOCK_BYTES;
use crate::vfs::{Access, SyncMethod, Vfs, VfsFile};
use crate::wal::format::change::Change;
use crate::wal::format::frame::{Frame, Seed};
use crate::wal::format::header::{FIRST_FRAME, SegmentHeader};
use crate::wal::segments::frames::{frame_change, index_frame};
use crate::wal::segments::growing::GrowingFile;
use crate::wal::segments::walk::Walk;

/// Path of a slot file.
pub fn slot_path(dir: &Path, slot: u32) -> PathBuf {
    dir.join("wal").join(format!("slot-{slot:06}.wal"))
}

/// Path of a segment's side file.
pub fn side_path(dir: &Path, number: u64) -> PathBuf {
    dir.join("wal").join(format!("{number:012}.idx"))
}

/// What the manifest says of a sealed segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    /// Offset behind the last frame.
    pub end: u32,
    /// Bytes of the side file.
    pub side_bytes: u32,
    /// CRC32C of the side file.
    pub side_crc: u32,
}

/// One segment.
pub struct Segment {
    /// Segment number, from 1.
    pub number: u64,
    /// Checksum seed.
    pub seed: Seed,
    /// Length of its slot: of the file once that is whole.
    pub bytes: u32,
    /// Bytes that the file has at least: all that is placed is within them.
    filled: AtomicU32,
    /// Slot file, once it has one.
    slot: OnceLock<(u32, PathBuf)>,
    sealed: OnceLock<Sealed>,
    reader: RwLock<Option<Arc<dyn VfsFile>>>,
    /// Idle write handles; each worker takes one of its own.
    writers: Mutex<Vec<Arc<dyn VfsFile>>>,
    index: RwLock<Option<Arc<SegmentIndex>>>,
    summary: OnceLock<Arc<Vec<StreamSummary>>>,
}

impl Segment {
    /// A segment that is being written; its index grows with it.
    pub fn active(number: u64, salt: u64, bytes: u32) -> Self {
        let index = RwLock::new(Some(Arc::new(SegmentIndex::default())));
        Self {
            index,
            ..Self::unloaded(number, salt, bytes)
        }
    }

    /// A segment whose index is on disk.
    pub fn unloaded(number: u64, salt: u64, bytes: u32) -> Self {
        Self {
            number,
            seed: Seed {
                salt,
                segment: number,
            },
            bytes,
            filled: AtomicU32::new(bytes),
            slot: OnceLock::new(),
            sealed: OnceLock::new(),
            reader: RwLock::new(None),
            writers: Mutex::new(Vec::new()),
            index: RwLock::new(None),
            summary: OnceLock::new(),
        }
    }

    /// Bytes that the file has at least.
    pub fn filled(&self) -> u32 {
        self.filled.load(Ordering::Acquire)
    }

    /// Set the bytes that the file has.
    pub fn set_filled(&self, bytes: u32) {
        self.filled.store(bytes, Ordering::Release);
    }

    /// Whether the file has not its whole length yet.
    pub fn is_short(&self) -> bool {
        self.filled() < self.bytes
    }

    /// Give the segment its slot; once.
    pub fn set_slot(&self, dir: &Path, slot: u32) {
        let _ = self.slot.set((slot, slot_path(dir, slot)));
    }

    /// The slot number, if it has one.
    pub fn slot(&self) -> Option<u32> {
        self.slot.get().map(|(slot, _)| *slot)
    }

    /// The slot file's path.
    pub fn path(&self) -> &Path {
        self.slot
            .get()
            .map_or(Path::new("(no slot yet)"), |(_, path)| path)
    }

    /// Record that the segment is sealed; once.
    pub fn set_sealed(&self, sealed: Sealed) {
        let _ = self.sealed.set(sealed);
    }

    /// How the segment was sealed, if it is.
    pub fn sealed(&self) -> Option<Sealed> {
        self.sealed.get().copied()
    }

    /// The read handle, opened once.
    pub fn reader(&self, vfs: &dyn Vfs) -> Result<Arc<dyn VfsFile>> {
        if let Some(file) = &*self.reader.read() {
            return Ok(Arc::clone(file));
        }
        let file = open_slot(vfs, self.path(), self.bytes.into(), self.filled().into())?;
        Ok(Arc::clone(self.reader.write().get_or_insert(file)))
    }

    /// Whether the read handle is open.
    pub fn is_open(&self) -> bool {
        self.reader.read().is_some()
    }

    /// Drop the read handle; a read that is under way keeps its own.
    pub fn close_reader(&self) {
        *self.reader.write() = None;
    }

    /// Take a write handle of one's own.
    pub fn take_writer(&self, vfs: &dyn Vfs, method: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        match self.writers.lock().pop() {
            Some(file) => Ok(file),
            None => vfs.open_durable(self.path(), method),
        }
    }

    /// Give a write handle back.
    pub fn return_writer(&self, file: Arc<dyn VfsFile>) {
        self.writers.lock().push(file);
    }

    /// Drop the write handles of a sealed segment.
    pub fn close_writers(&self) {
        self.writers.lock().clear();
    }

    /// Drop all handles; a read that is under way keeps its own.
    pub fn close_files(&self) {
        self.close_writers();
        self.close_reader();
    }

    /// Check the header block against what the manifest says.
    pub fn check_header(&self, vfs: &dyn Vfs, node: u128) -> Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        self.reader(vfs)?.read_exact_at(&mut block, 0)?;
        self.check_block(&block, node)
    }

    /// Check a header block that was read.
    pub fn check_block(&self, block: &[u8], node: u128) -> Result<()> {
        let found = SegmentHeader::decode(block, self.path())?;
        let (number, salt, bytes) = (self.number, self.seed.salt, u64::from(self.bytes));
        if found
            != (SegmentHeader {
                node,
                number,
                salt,
                bytes,
            })
        {
            let reason = format!(
                "header says node {:032x}, segment {} of {} bytes, salt {:016x}; the manifest says \
                 node {node:032x}, segment {number} of {bytes} bytes, salt {salt:016x}",
                found.node, found.number, found.bytes, found.salt
            );
            return Err(Error::corrupt(self.path(), 0, reason));
        }
        Ok(())
    }

    /// Index a frame of the active segment.
    pub fn note(
        &self,
        frame: &Frame,
        change: &Change,
        timestamps: (i64, i64),
        payload: &[u8],
    ) -> Result<()> {
        let mut slot = self.index.write();
        let index = slot.get_or_insert_default();
        index_frame(Arc::make_mut(index), frame, change, timestamps, payload)
    }

    /// Run `f` on the index, loading it if need be.
    pub fn with_index<R>(
        &self,
        vfs: &dyn Vfs,
        dir: &Path,
        f: impl FnOnce(&SegmentIndex) -> R,
    ) -> Result<R> {
        if let Some(index) = self.index.read().as_ref() {
            return Ok(f(index));
        }
        let loaded = Arc::new(self.load_index(vfs, dir)?);
        let result = f(&loaded);
        *self.index.write() = Some(loaded);
        Ok(result)
    }

    /// The index of the active segment as a side file that ends at `end`.
    pub fn encode_index(&self, end: u32) -> Result<Vec<u8>> {
        match &*self.index.read() {
            Some(index) => Ok(index.encode(self.number, self.seed.salt, end.into())),
            None => Err(self.no_index()),
        }
    }

    fn no_index(&self) -> Error {
        Error::Missing {
            path: self.path().into(),
            reason: "no index in memory".into(),
        }
    }

    /// Replace the index (a rebuilt or recovered one).
    pub fn set_index(&self, index: SegmentIndex) {
        *self.index.write() = Some(Arc::new(index));
    }

    /// Drop a sealed segment's index from memory; it is read again when needed.
    pub fn unload(&self) {
        if self.sealed().is_some() {
            *self.index.write() = None;
        }
    }

    /// Samples in the loaded index.
    pub fn samples(&self) -> u64 {
        let index = self.index.read();
        index.as_ref().map_or(0, |index| {
            index
                .iter()
                .map(|(_, lane)| lane.samples().len() as u64)
                .sum()
        })
    }

    /// Bytes the loaded index takes.
    pub fn index_memory(&self) -> usize {
        self.index
            .read()
            .as_ref()
            .map_or(0, |index| index.memory_bytes())
    }

    /// Per-stream ranges. For a sealed segment they are read once and kept.
    pub fn summary(&self, vfs: &dyn Vfs, dir: &Path) -> Result<Arc<Vec<StreamSummary>>> {
        if let Some(summary) = self.summary.get() {
            return Ok(Arc::clone(summary));
        }
        let Some(sealed) = self.sealed() else {
            return Ok(Arc::new(self.with_index(
                vfs,
                dir,
                SegmentIndex::summaries,
            )?));
        };
        let loaded = self.index.read().as_ref().map(|index| index.summaries());
        let fresh = match loaded {
            Some(summaries) => summaries,
            None => match self
                .read_head(vfs, dir, sealed)
                .and_then(|bytes| decode_summary(&bytes))
            {
                Ok((header, summaries)) if self.is_mine(&header) => summaries,
                // A rebuild would need a descriptor as well.
                Err(error) if error.is_exhausted() => return Err(error),
                Ok(_) | Err(_) => self.with_index(vfs, dir, SegmentIndex::summaries)?,
            },
        };
        Ok(Arc::clone(self.summary.get_or_init(|| Arc::new(fresh))))
    }

    /// Whether a side file indexes this segment, and ends where it ends: readers go by its offsets.
    fn is_mine(&self, header: &SideHeader) -> bool {
        let ends = |sealed: Sealed| header.sealed_bytes == u64::from(sealed.end);
        header.segment == self.number
            && header.salt == self.seed.salt
            && self.sealed().is_some_and(ends)
    }

    /// The head of the side file, which has a checksum of its own.
    fn read_head(&self, vfs: &dyn Vfs, dir: &Path, sealed: Sealed) -> Result<Vec<u8>> {
        let path = side_path(dir, self.number);
        let file = vfs.open(&path, Access::Read)?;
        let mut bytes = vec![0; HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let len = summary_bytes(&bytes)?;
        if file.len()? != u64::from(sealed.side_bytes) || len > u64::from(sealed.side_bytes) {
            return Err(Error::corrupt(
                path,
                0,
                "side file does not match the manifest",
            ));
        }
        bytes.resize(len as usize, 0);
        file.read_exact_at(&mut bytes[HEADER_BYTES..], HEADER_BYTES as u64)?;
        Ok(bytes)
    }

    fn read_side(&self, vfs: &dyn Vfs, dir: &Path, sealed: Sealed) -> Result<Vec<u8>> {
        let path = side_path(dir, self.number);
        let bytes = vfs.read(&path, u64::from(sealed.side_bytes))?;
        if bytes.len() != sealed.side_bytes as usize || crc32c::crc32c(&bytes) != sealed.side_crc {
            return Err(Error::corrupt(
                path,
                0,
                "side file does not match the manifest",
            ));
        }
        Ok(bytes)
    }

    /// Whether the side file is whole and says the same as the segment.
    pub fn verify_side(&self, vfs: &dyn Vfs, dir: &Path) -> Result<()> {
        let Some(sealed) = self.sealed() else {
            return Ok(());
        };
        let (_, index) = decode(&self.read_side(vfs, dir, sealed)?)?;
        if index != self.rebuild(vfs)? {
            let path = side_path(dir, self.number);
            return Err(Error::corrupt(
                path,
                0,
                "side file differs from the segment it indexes",
            ));
        }
        Ok(())
    }

    /// The index of a sealed segment: its side file, or rebuilt from the frames.
    fn load_index(&self, vfs: &dyn Vfs, dir: &Path) -> Result<SegmentIndex> {
        let Some(sealed) = self.sealed() else {
            return Err(self.no_index());
        };
        match self
            .read_side(vfs, dir, sealed)
            .and_then(|bytes| decode(&bytes))
        {
            Ok((header, index)) if self.is_mine(&header) => Ok(index),
            Err(error) if error.is_exhausted() => Err(error),
            Ok(_) | Err(_) => self.rebuild(vfs),
        }
    }

    /// Walk the whole segment and index it anew.
    pub fn rebuild(&self, vfs: &dyn Vfs) -> Result<SegmentIndex> {
        let limit = self.sealed().map_or(self.bytes, |sealed| sealed.end);
        let mut index = SegmentIndex::default();
        let mut walk = Walk::new(self.reader(vfs)?, self.seed, FIRST_FRAME, 0, limit);
        while let Some(frame) = walk.next_frame()? {
            let payload = walk.payload(&frame)?;
            frame_change(&frame, payload)
                .and_then(|(change, timestamps)| {
                    index_frame(&mut index, &frame, &change, timestamps, payload)
                })
                .map_err(|error| {
                    let kind = frame.header.kind.name();
                    let reason = format!("{kind} frame cannot be indexed: {error}");
                    Error::corrupt(self.path(), frame.offset.into(), reason)
                })?;
        }
        if self.sealed().is_some() && walk.offset < limit {
            let reason = walk.ended.unwrap_or_default();
            return Err(Error::corrupt(self.path(), walk.offset.into(), reason));
        }
        Ok(index)
    }
}

/// Read what was written at `offset`.
pub(crate) fn read_written(file: &dyn VfsFile, buf: &mut [u8], offset: u64) -> Result<()> {
    let read = file.read_exact_at(buf, offset);
    read.map_err(|error| error.of_written(offset))
}

/// Open a slot of `bytes` for reading and check that the file has at least the first `filled` of them. What it has
/// not yet reads as zeros.
pub fn open_slot(vfs: &dyn Vfs, path: &Path, bytes: u64, filled: u64) -> Result<Arc<dyn VfsFile>> {
    let missing = |reason: String| Error::Missing {
        path: path.into(),
        reason,
    };
    if !vfs.exists(path)? {
        return Err(missing(
            "the manifest lists this segment file; restore it or run `braidlog repair`".into(),
        ));
    }
    let file = vfs.open(path, Access::Read)?;
    let len = file.len()?;
    // It may be longer than listed: a kill between making it longer and listing that leaves it so.
    if len < filled || len > bytes {
        return Err(missing(format!("{len} bytes instead of {filled}")));
    }
    Ok(GrowingFile::wrap(file, filled, len, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_side_file_of_another_segment_or_length_is_not_taken() {
        let segment = Segment::unloaded(7, 9, 65536);
        let mine = SideHeader {
            segment: 7,
            salt: 9,
            sealed_bytes: 8192,
            streams: 0,
            file_bytes: 56,
        };
        assert!(!segment.is_mine(&mine), "not sealed");
        segment.set_sealed(Sealed {
            end: 8192,
            side_bytes: 56,
            side_crc: 0,
        });
        assert!(segment.is_mine(&mine));
        for other in [
            SideHeader {
                segment: 8,
                ..mine.clone()
            },
            SideHeader {
                salt: 8,
                ..mine.clone()
            },
            SideHeader {
                sealed_bytes: 8200,
                ..mine.clone()
            },
        ] {
            assert!(!segment.is_mine(&other), "{other:?}");
        }
    }
}
