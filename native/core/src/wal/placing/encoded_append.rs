//! Frames that arrive whole: encoded batches, copies of the cleaner, changes of the state.

use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::wal::format::change::Change;
use crate::wal::format::frame::{FrameHeader, Kind, frame_len};
use crate::wal::format::producer::ProducerId;
use crate::wal::placing::appender::{Appender, Ticket};
use crate::wal::placing::bound::{CATALOG_RESERVE, RESERVE_SEGMENTS};

impl Appender {
    /// Append an encoded, verified batch as it is (replication, salvage). `llsn` must be the next one.
    pub fn append_encoded(
        &mut self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        batch: &[u8],
    ) -> Result<Ticket> {
        let head = parse_head(batch)?;
        Self::check_batch_len(batch.len(), self.batch_bytes_max())?;
        self.reserve(Kind::Batch, frame_len(batch.len()), RESERVE_SEGMENTS)?;
        self.close_batch(stream)?;
        let producer = head.producer();
        let id = (producer.id != 0).then_some((
            ProducerId {
                id: producer.id,
                epoch: producer.epoch,
            },
            producer.base_sequence,
        ));
        let header = Self::header(Kind::Batch, stream, head.count(), epoch, llsn);
        let change = Change::Batch {
            count: head.count(),
            producer: id,
        };
        // The caller chose the LLSN and the epoch: the stream must be exactly there.
        self.state.check(&header, &change)?;
        self.reserve_state(self.state.growth(&header, &change))?;
        let timestamps = (head.min_timestamp(), head.max_timestamp());
        let head_len = head.head_len();
        let placed = self.place(header, batch.len(), |out| {
            out.extend_from_slice(batch);
            Ok(head_len)
        });
        let frame = self.must(placed)?;
        self.fold(&header, &frame, &change, timestamps)?;
        Ok(Ticket {
            llsn,
            count: head.count().into(),
            group: self.group,
        })
    }

    /// Copy a batch forward for the cleaner, with `count` records that count.
    pub fn append_moved(
        &mut self,
        stream: u32,
        epoch: u64,
        llsn: u64,
        count: u32,
        batch: &[u8],
    ) -> Result<u64> {
        let head = parse_head(batch)?;
        let header = Self::header(Kind::Moved, stream, count, epoch, llsn);
        let (head_len, timestamps) = (
            head.head_len(),
            (head.min_timestamp(), head.max_timestamp()),
        );
        Self::check_batch_len(batch.len(), self.batch_bytes_max())?;
        // The reserve is for copies too: they free the segment that they come from.
        self.reserve(Kind::Moved, frame_len(batch.len()), 0)?;
        let placed = self.place(header, batch.len(), |out| {
            out.extend_from_slice(batch);
            Ok(head_len)
        });
        let frame = self.must(placed)?;
        // The records have had their numbers since they were written first: the state does not change.
        self.fold(&header, &frame, &Change::Nothing, timestamps)?;
        Ok(self.group)
    }

    /// Copy commit runs forward for the cleaner.
    pub fn append_moved_runs(&mut self, stream: u32, payload: &[u8]) -> Result<u64> {
        let header = Self::header(Kind::MovedRuns, stream, 0, 0, 0);
        self.place_payload(&header, &Change::Nothing, payload, 0)
    }

    /// Place a change that is not a batch. `llsn` and `epoch` as the kind needs them.
    pub fn change(&mut self, stream: u32, epoch: u64, llsn: u64, change: &Change) -> Result<u64> {
        let kept = if change.takes_reserve() {
            0
        } else {
            CATALOG_RESERVE
        };
        // Records that were appended before the change have their frame before it.
        if stream != 0 {
            self.close_batch(stream)?;
        }
        let header = Self::header(change.kind(), stream, 0, epoch, llsn);
        self.state.check(&header, change)?;
        self.reserve_state(self.state.growth(&header, change))?;
        let replaced = match change {
            Change::Restart(id, ..) => self.state.logs.get(id).map(|log| log.stream),
            _ => None,
        };
        // The stream that is replaced goes, but its last records have numbers and are placed before that.
        if let Some(old) = replaced {
            self.close_batch(old)?;
        }
        let group = self.place_payload(&header, change, &change.payload(), kept)?;
        // Readers lose the old stream with the same group that gives them the new one.
        self.touched.extend(replaced);
        // Those who read or copy without the lock look at this: a rollback in between may have cut what they
        // read.
        self.rollbacks += u64::from(matches!(change, Change::Rollback));
        // A commit may have brought the stream as far as all others in order.
        if matches!(change, Change::Commit(_)) {
            self.join_order(stream)?;
        }
        Ok(group)
    }

    fn place_payload(
        &mut self,
        header: &FrameHeader,
        change: &Change,
        payload: &[u8],
        reserve: u64,
    ) -> Result<u64> {
        let (size, max) = (payload.len(), self.batch_bytes_max());
        if size > max {
            let (what, size, max) = (header.kind.name(), size as u64, max as u64);
            return Err(Error::TooLarge { what, size, max });
        }
        self.reserve(header.kind, frame_len(size), reserve)?;
        let placed = self.place(*header, size, |out| {
            out.extend_from_slice(payload);
            Ok(size)
        });
        let frame = self.must(placed)?;
        self.fold(header, &frame, change, (0, 0))?;
        Ok(self.group)
    }
}
