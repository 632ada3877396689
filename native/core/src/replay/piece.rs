//! Records that are contiguous in their log: what is merged and given out.

use std::path::PathBuf;
use std::sync::Arc;

use crate::batch::BatchView;
use crate::error::{Error, Result};
use crate::wal::BatchRef;

/// Who keeps the bytes of a batch.
#[derive(Clone)]
enum Bytes {
    Own(Arc<[u8]>),
    Read(Arc<BatchRef>),
}

/// Where a batch stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The segment file.
    pub path: PathBuf,
    /// Offset of the frame in it.
    pub offset: u64,
}

/// Records `first..first + count` of an encoded batch.
#[derive(Clone)]
pub struct Piece {
    /// Position of the first record in the log.
    pub glsn: u64,
    /// The caller's number of the stream.
    pub stream: u64,
    /// Position of the first record in the stream.
    pub llsn: u64,
    /// Index of the first record in the batch.
    pub first: u32,
    /// Records.
    pub count: u32,
    bytes: Bytes,
    place: Arc<Place>,
}

impl Piece {
    /// All records of a batch that the pass met.
    pub(super) fn whole(
        stream: u64,
        llsn: u64,
        count: u32,
        bytes: Arc<[u8]>,
        place: Arc<Place>,
    ) -> Self {
        let bytes = Bytes::Own(bytes);
        Self {
            glsn: 0,
            stream,
            llsn,
            first: 0,
            count,
            bytes,
            place,
        }
    }

    /// The records of a batch that the index found.
    pub(super) fn found(stream: u64, batch: BatchRef) -> Self {
        let place = batch.place().map(|(path, offset)| Place {
            path: path.into(),
            offset: offset.into(),
        });
        Self {
            glsn: 0,
            stream,
            llsn: batch.first(),
            first: batch.begin,
            count: batch.end - batch.begin,
            bytes: Bytes::Read(Arc::new(batch)),
            place: Arc::new(place.unwrap_or_default()),
        }
    }

    /// The encoded batch; it may hold more records than are meant.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Read(batch) => batch.bytes(),
        }
    }

    /// One past the position of the last record.
    pub fn glsn_end(&self) -> u64 {
        self.glsn + u64::from(self.count)
    }

    /// One past the stream's number of the last record.
    pub fn llsn_end(&self) -> u64 {
        self.llsn + u64::from(self.count)
    }

    /// Where the batch stands.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// The first `count` records; the rest stays in `self`.
    pub(super) fn split(&mut self, count: u32) -> Self {
        let head = Self {
            count,
            ..self.clone()
        };
        self.skip(count);
        head
    }

    /// Drop the first `count` records.
    pub(super) fn skip(&mut self, count: u32) {
        self.first += count;
        self.glsn += u64::from(count);
        self.llsn += u64::from(count);
        self.count -= count;
    }

    /// Refuse a copy that is not the same records, naming both places.
    pub(super) fn check_same(&self, copy: &Self) -> Result<()> {
        let same = (self.stream, self.llsn, self.count) == (copy.stream, copy.llsn, copy.count)
            && ((self.first == copy.first && self.bytes() == copy.bytes())
                || self.same_records(copy)?);
        if same {
            return Ok(());
        }
        Err(Error::Differs {
            position: self.glsn,
            path: self.place.path.clone(),
            offset: self.place.offset,
            other_path: copy.place.path.clone(),
            other_offset: copy.place.offset,
        })
    }

    /// A batch that a rollback cut is encoded again where it is copied to another node.
    fn same_records(&self, copy: &Self) -> Result<bool> {
        let (mine, other) = (
            BatchView::parse_verified(self.bytes())?,
            BatchView::parse_verified(copy.bytes())?,
        );
        for at in 0..self.count {
            let pair = (mine.record(self.first + at), other.record(copy.first + at));
            let (Some(one), Some(two)) = pair else {
                return Ok(false);
            };
            let plain = (one.value, one.key, one.timestamp) == (two.value, two.key, two.timestamp);
            if !plain || !one.headers.eq(two.headers) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
