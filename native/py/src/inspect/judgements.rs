//! What is said of a whole directory as dictionaries: its state, a verification, a repair.

use std::path::{Path, PathBuf};

use braidlog_core::wal::inspect as core;
use braidlog_core::wal::salvage::{Loss, Plan};
use braidlog_core::wal::verify::{self, Report};
use pyo3::prelude::*;

use crate::ddl::TableRow;

fn text(path: &Path) -> String {
    path.display().to_string()
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
    tables: Vec<TableRow>,
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
        let names = |paths: &[PathBuf]| paths.iter().map(|path| text(path)).collect();
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
            tables: TableRow::all(&seen.state),
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
