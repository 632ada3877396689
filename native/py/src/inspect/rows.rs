//! Rows of the core as dictionaries: the field names are those of the dataclasses in Python.

use braidlog_core::wal::inspect as core;
use pyo3::prelude::*;

fn text(path: &std::path::Path) -> String {
    path.display().to_string()
}

#[derive(IntoPyObject)]
pub struct RangeRow {
    log: Option<String>,
    stream: u32,
    lane: u32,
    first: u64,
    end: u64,
}

impl From<core::LogRange> for RangeRow {
    fn from(row: core::LogRange) -> Self {
        let core::LogRange {
            log,
            stream,
            lane,
            first,
            end,
        } = row;
        Self {
            log,
            stream,
            lane,
            first,
            end,
        }
    }
}

#[derive(IntoPyObject)]
pub struct SegmentRow {
    number: Option<u64>,
    slot: u32,
    path: String,
    state: &'static str,
    bytes: u64,
    end: u64,
    salt: String,
    streams: u64,
    records: u64,
    live: bool,
    side: Option<&'static str>,
    problem: Option<String>,
    logs: Vec<RangeRow>,
}

impl From<core::SegmentRow> for SegmentRow {
    fn from(row: core::SegmentRow) -> Self {
        Self {
            number: row.number,
            slot: row.slot,
            path: text(&row.path),
            state: match row.state {
                core::SegmentState::Active => "active",
                core::SegmentState::Sealed => "sealed",
                core::SegmentState::Free => "free",
            },
            bytes: row.bytes,
            end: row.end,
            salt: format!("{:016x}", row.salt),
            streams: row.streams,
            records: row.records,
            live: row.live,
            side: match row.side {
                core::SideState::None => None,
                core::SideState::Ok => Some("ok"),
                core::SideState::Missing => Some("missing"),
                core::SideState::Bad => Some("bad"),
            },
            problem: row.problem,
            logs: row.logs.into_iter().map(RangeRow::from).collect(),
        }
    }
}

#[derive(IntoPyObject)]
pub struct FrameRow {
    offset: u64,
    length: u64,
    ok: bool,
    problem: Option<String>,
    log: Option<String>,
    header: Option<HeaderRow>,
    batch: Option<BatchRow>,
}

#[derive(IntoPyObject)]
pub struct HeaderRow {
    kind: &'static str,
    stream: u32,
    epoch: u64,
    first: u64,
    count: u32,
    durable: u32,
    ordinal: u32,
    head: u32,
}

#[derive(IntoPyObject)]
pub struct BatchRow {
    compression: &'static str,
    records: u32,
    raw_bytes: u64,
    timestamp_min: i64,
    timestamp_max: i64,
    producer: u64,
    producer_epoch: u32,
    sequence: u64,
}

impl From<core::FrameRow> for FrameRow {
    fn from(row: core::FrameRow) -> Self {
        Self {
            offset: row.offset,
            length: row.length,
            ok: row.problem.is_none(),
            problem: row.problem,
            log: row.log,
            header: row.frame.map(|frame| HeaderRow {
                kind: frame.header.kind.name(),
                stream: frame.header.stream,
                epoch: frame.header.epoch,
                first: frame.header.llsn,
                count: frame.header.count,
                durable: frame.header.durable,
                ordinal: frame.header.ordinal,
                head: frame.head,
            }),
            batch: row.batch.map(|batch| BatchRow {
                compression: batch.compression,
                records: batch.records,
                raw_bytes: batch.raw_bytes,
                timestamp_min: batch.timestamp_min,
                timestamp_max: batch.timestamp_max,
                producer: batch.producer,
                producer_epoch: batch.producer_epoch,
                sequence: batch.sequence,
            }),
        }
    }
}

#[derive(IntoPyObject)]
pub struct IndexRow {
    segment: u64,
    log: Option<String>,
    stream: u32,
    lane: u32,
    first: u64,
    end: u64,
    frames: u64,
    bytes: u64,
    samples: u64,
    runs: u64,
    cuts: u64,
    timestamp_min: Option<i64>,
    timestamp_max: Option<i64>,
}

impl From<core::IndexRow> for IndexRow {
    fn from(row: core::IndexRow) -> Self {
        Self {
            segment: row.segment,
            log: row.range.log,
            stream: row.range.stream,
            lane: row.range.lane,
            first: row.range.first,
            end: row.range.end,
            frames: row.frames,
            bytes: row.bytes,
            samples: row.samples,
            runs: row.runs,
            cuts: row.cuts,
            timestamp_min: row.timestamps.map(|(min, _)| min),
            timestamp_max: row.timestamps.map(|(_, max)| max),
        }
    }
}

#[derive(IntoPyObject)]
pub struct SampleRow {
    segment: u64,
    log: Option<String>,
    stream: u32,
    lane: u32,
    first: u64,
    offset: u32,
}

impl From<core::SampleRow> for SampleRow {
    fn from(row: core::SampleRow) -> Self {
        Self {
            segment: row.segment,
            log: row.log,
            stream: row.stream,
            lane: row.lane,
            first: row.llsn,
            offset: row.offset,
        }
    }
}

#[derive(IntoPyObject)]
pub struct EditRow {
    number: Option<u64>,
    file: String,
    offset: u64,
    operation: &'static str,
    details: String,
    problem: Option<String>,
}

impl From<core::EditRow> for EditRow {
    fn from(row: core::EditRow) -> Self {
        Self {
            number: row.number,
            file: row.file,
            offset: row.offset,
            operation: row.operation,
            details: row.details,
            problem: row.problem,
        }
    }
}
