//! Rows about the frames of one segment, the bad ones too.

use std::path::Path;
use std::sync::Arc;

use super::listing::{Names, names, no_segment, wanted};
use super::scan::{Bad, Found, Scan};
use super::survey::Survey;
use crate::batch::{Compression, parse_head};
use crate::error::Result;
use crate::vfs::Vfs;
use crate::wal::format::frame::Frame;

/// What the head of a batch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchDetails {
    /// How the body is stored.
    pub compression: &'static str,
    /// Records stored; a rollback may have left fewer that count.
    pub records: u32,
    /// Bytes of the body when decompressed.
    pub raw_bytes: u64,
    /// Smallest timestamp.
    pub timestamp_min: i64,
    /// Largest timestamp.
    pub timestamp_max: i64,
    /// Producer, 0 for none.
    pub producer: u64,
    /// Its epoch.
    pub producer_epoch: u32,
    /// Sequence of the first record.
    pub sequence: u64,
}

/// One frame, or bytes that are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRow {
    /// Offset in the segment.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// What the checks found, `None` if all is well.
    pub problem: Option<String>,
    /// The header; `None` if it is not valid.
    pub frame: Option<Frame>,
    /// Name of the log.
    pub log: Option<String>,
    /// Of a valid batch.
    pub batch: Option<BatchDetails>,
}

/// The frames of one segment, as they are read.
pub struct Frames {
    scan: Scan,
    names: Names,
    stream: Option<u32>,
    offset: u32,
    /// Reads up to here; what is no frame before it is damage.
    sealed: Option<u32>,
    done: bool,
}

impl Frames {
    /// Frames of `segment` that end behind `offset`; only those of `log`, if it is given.
    pub fn open(
        vfs: &Arc<dyn Vfs>,
        dir: &Path,
        segment: u64,
        log: Option<&str>,
        offset: u32,
    ) -> Result<Self> {
        let survey = Survey::take(vfs, dir)?;
        let names = names(vfs, &survey)?;
        let stream = wanted(&names, log)?;
        let lap = survey.laps.iter().find(|lap| lap.number == segment);
        let lap = lap.ok_or_else(|| no_segment(segment))?;
        let limit = survey.limit(lap);
        let known = lap.sealed.is_some() || survey.mark(lap).is_some_and(|_| survey.alive);
        Ok(Self {
            scan: Scan::new(lap.open(&**vfs)?, lap.seed, limit),
            names,
            stream,
            offset,
            sealed: known.then_some(limit),
            done: false,
        })
    }

    fn wants(&self, end: u32, frame: Option<&Frame>) -> bool {
        let mine = frame.is_none_or(|frame| {
            self.stream
                .is_none_or(|stream| stream == frame.header.stream)
        });
        mine && end > self.offset
    }

    fn bad(&self, bad: Bad) -> FrameRow {
        let missing = match bad.frames {
            0 | 1 => String::new(),
            frames => format!(" ({frames} frames stood here)"),
        };
        FrameRow {
            offset: bad.offset.into(),
            length: (bad.end - bad.offset).into(),
            problem: Some(bad.reason + &missing),
            log: bad.frame.and_then(|frame| self.log(&frame)),
            frame: bad.frame,
            batch: None,
        }
    }

    fn log(&self, frame: &Frame) -> Option<String> {
        let named = self.names.get(&frame.header.stream)?;
        Some(named.0.clone())
    }

    fn good(&mut self, frame: Frame) -> FrameRow {
        let log = self.log(&frame);
        let batch = frame
            .header
            .kind
            .is_data()
            .then(|| details(self.scan.payload(&frame)));
        FrameRow {
            offset: frame.offset.into(),
            length: frame.length.into(),
            problem: None,
            frame: Some(frame),
            log,
            batch: batch.flatten(),
        }
    }

    /// What stands at the end although frames were there once.
    fn last(&mut self) -> Option<FrameRow> {
        self.done = true;
        let end = self.sealed.filter(|end| *end > self.scan.offset)?;
        Some(self.bad(Bad {
            offset: self.scan.offset,
            end,
            reason: self.scan.ended.clone(),
            frame: None,
            frames: 0,
        }))
    }
}

impl Iterator for Frames {
    type Item = FrameRow;

    fn next(&mut self) -> Option<FrameRow> {
        while !self.done {
            match self.scan.next_found() {
                Some(Found::Frame(frame)) if self.wants(frame.end(), Some(&frame)) => {
                    return Some(self.good(frame));
                }
                Some(Found::Bad(bad)) if self.wants(bad.end.max(1), bad.frame.as_ref()) => {
                    return Some(self.bad(bad));
                }
                Some(_) => {}
                None => return self.last(),
            }
        }
        None
    }
}

fn details(payload: &[u8]) -> Option<BatchDetails> {
    let head = parse_head(payload).ok()?;
    let producer = head.producer();
    Some(BatchDetails {
        compression: match head.compression() {
            Compression::None => "none",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        },
        records: head.count(),
        raw_bytes: head.raw_len() as u64,
        timestamp_min: head.min_timestamp(),
        timestamp_max: head.max_timestamp(),
        producer: producer.id,
        producer_epoch: producer.epoch,
        sequence: producer.base_sequence,
    })
}
