//! Rows of the core as dictionaries: the field names are those of the dataclasses in Python.

use braidlog_core::wal::salvage::{Loss, Plan};
use braidlog_core::wal::verify::Report;
use braidlog_core::wal::{inspect as core, verify};
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

#[derive(IntoPyObject)]
pub struct StateRow {
    recovery: &'static str,
    fault: Option<String>,
    guesses: Vec<String>,
    node: Option<String>,
    segment_bytes: Option<u32>,
    segments: u64,
    end_segment: Option<u64>,
    end_offset: Option<u32>,
    watermark: Option<WatermarkRow>,
    holder: Option<String>,
    orphans: Vec<String>,
    foreign: Vec<String>,
    salvaged: Option<String>,
    logs: Vec<LogRow>,
}

#[derive(IntoPyObject)]
pub struct WatermarkRow {
    segment: u64,
    salt: String,
    durable: u32,
}

#[derive(IntoPyObject)]
pub struct LogRow {
    name: String,
    id: String,
    stream: u32,
    created: i64,
    options: Vec<u8>,
    first: u64,
    committed: u64,
    end: u64,
    epoch: u64,
    epochs: Vec<(u64, u64)>,
    commit: CommitRow,
    producers: Vec<ProducerRow>,
    cursors: Vec<CursorRow>,
}

#[derive(IntoPyObject)]
pub struct CommitRow {
    explicit: bool,
    version: u64,
    glsn_begin: u64,
    llsn_begin: u64,
    length: u64,
    high_watermark: u64,
}

#[derive(IntoPyObject)]
pub struct ProducerRow {
    id: u64,
    epoch: u32,
    first_sequence: u64,
    next_sequence: u64,
}

#[derive(IntoPyObject)]
pub struct CursorRow {
    name: String,
    position: u64,
    pin: bool,
    touched: i64,
    lease: u64,
}

impl From<core::Condition> for StateRow {
    fn from(seen: core::Condition) -> Self {
        let names = |paths: &[std::path::PathBuf]| paths.iter().map(|path| text(path)).collect();
        Self {
            recovery: seen.recovery,
            fault: seen.fault,
            guesses: seen.guesses,
            node: seen
                .identity
                .map(|identity| format!("{:032x}", identity.node)),
            segment_bytes: seen.identity.map(|identity| identity.segment_bytes),
            segments: seen.segments,
            end_segment: seen.end.map(|(segment, _)| segment),
            end_offset: seen.end.map(|(_, offset)| offset),
            watermark: seen.watermark.map(|mark| WatermarkRow {
                segment: mark.segment,
                salt: format!("{:016x}", mark.salt),
                durable: mark.durable,
            }),
            holder: seen.holder,
            orphans: names(&seen.orphans),
            foreign: names(&seen.foreign),
            salvaged: seen.salvaged,
            logs: seen.logs.into_iter().map(LogRow::from).collect(),
        }
    }
}

impl From<core::LogCondition> for LogRow {
    fn from(log: core::LogCondition) -> Self {
        let stream = log.stream;
        let producers = stream.producers.iter();
        let producers = producers.map(|(id, epoch, first_sequence, next_sequence)| ProducerRow {
            id,
            epoch,
            first_sequence,
            next_sequence,
        });
        let cursors = stream.cursors.iter().map(|(name, cursor)| CursorRow {
            name: name.clone(),
            position: cursor.position,
            pin: cursor.pin,
            touched: cursor.touched,
            lease: cursor.lease,
        });
        Self {
            name: log.name,
            id: format!("{:032x}", log.id),
            stream: log.number,
            created: log.created,
            options: log.options,
            first: stream.low,
            committed: stream.committed,
            end: stream.next,
            epoch: stream.epoch,
            commit: CommitRow {
                explicit: stream.explicit_commit,
                version: stream.context.version,
                glsn_begin: stream.context.glsn_begin,
                llsn_begin: stream.context.llsn_begin,
                length: stream.context.length,
                high_watermark: stream.context.high_watermark,
            },
            producers: producers.collect(),
            cursors: cursors.collect(),
            epochs: stream.epochs,
        }
    }
}

#[derive(IntoPyObject)]
pub struct FindingRow {
    severity: &'static str,
    path: String,
    offset: Option<u64>,
    problem: String,
    next_step: &'static str,
}

impl From<verify::Finding> for FindingRow {
    fn from(finding: verify::Finding) -> Self {
        Self {
            severity: finding.severity.name(),
            path: text(&finding.path),
            offset: finding.offset,
            problem: finding.what,
            next_step: finding.next,
        }
    }
}

#[derive(IntoPyObject)]
pub struct ReportRow {
    segments: u64,
    frames: u64,
    records: u64,
    bytes: u64,
    findings: Vec<FindingRow>,
}

impl From<Report> for ReportRow {
    fn from(report: Report) -> Self {
        Self {
            segments: report.segments,
            frames: report.frames,
            records: report.records,
            bytes: report.bytes,
            findings: report.findings.into_iter().map(FindingRow::from).collect(),
        }
    }
}

#[derive(IntoPyObject)]
pub struct LossRow {
    log: Option<String>,
    first: u64,
    end: u64,
    records: u64,
    reason: String,
}

#[derive(IntoPyObject)]
pub struct KeptRow {
    log: String,
    first: u64,
    end: u64,
    kept_first: u64,
    kept_end: u64,
}

#[derive(IntoPyObject)]
pub struct DamageRow {
    path: String,
    offset: u64,
    end: u64,
    problem: String,
}

#[derive(IntoPyObject)]
pub struct PlanRow {
    logs: Vec<KeptRow>,
    losses: Vec<LossRow>,
    guesses: Vec<String>,
    damage: Vec<DamageRow>,
}

impl From<&Plan> for PlanRow {
    fn from(plan: &Plan) -> Self {
        let kept = plan.logs.iter().map(|log| KeptRow {
            log: log.name.clone(),
            first: log.range.start,
            end: log.range.end,
            kept_first: log.kept.start,
            kept_end: log.kept.end,
        });
        let losses = plan.losses.iter().map(|loss: &Loss| LossRow {
            log: loss.log.clone(),
            first: loss.first,
            end: loss.end,
            records: loss.records,
            reason: loss.reason.clone(),
        });
        let damage = plan.damage.iter().map(|place| DamageRow {
            path: text(&place.path),
            offset: place.offset,
            end: place.end,
            problem: place.what.clone(),
        });
        Self {
            logs: kept.collect(),
            losses: losses.collect(),
            guesses: plan.guesses.clone(),
            damage: damage.collect(),
        }
    }
}

#[derive(IntoPyObject)]
pub struct RepairRow {
    pub plan: PlanRow,
    pub report: ReportRow,
}
