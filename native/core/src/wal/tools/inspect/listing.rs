//! Rows about segments and their indexes, for people and programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::newest::newest_state;
use super::survey::{Lap, Survey};
use crate::error::{Error, Result};
use crate::index::{SegmentIndex, decode};
use crate::vfs::Vfs;
use crate::wal::segments::frames::{frame_change, index_frame};
use crate::wal::segments::segment::{side_path, slot_path};
use crate::wal::tools::inspect::{Found, Scan};

/// What a slot is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// The newest segment.
    Active,
    /// A segment that nothing is written to any more.
    Sealed,
    /// No segment.
    Free,
}

/// How the side file of a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SideState {
    /// There is none.
    None,
    /// Whole.
    Ok,
    /// Not there; the index is rebuilt at need.
    Missing,
    /// Not what the manifest says; the index is rebuilt at need.
    Bad,
}

/// Records of one stream in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRange {
    /// Name of the log, if it still exists.
    pub log: Option<String>,
    /// Stream.
    pub stream: u32,
    /// 0, or the number of a lane of copies that the cleaner made.
    pub lane: u32,
    /// First LLSN.
    pub first: u64,
    /// One past the last.
    pub end: u64,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Segment number, unless the slot is free.
    pub number: Option<u64>,
    /// Slot.
    pub slot: u32,
    /// Slot file.
    pub path: PathBuf,
    /// Use.
    pub state: SegmentState,
    /// Length of the file.
    pub bytes: u64,
    /// Offset behind the last frame.
    pub end: u64,
    /// Checksum salt of the lap.
    pub salt: u64,
    /// Streams with records.
    pub streams: u64,
    /// Records.
    pub records: u64,
    /// Whether some record can still be read.
    pub live: bool,
    /// The side file.
    pub side: SideState,
    /// Records by stream and lane.
    pub logs: Vec<LogRange>,
    /// Damage.
    pub problem: Option<String>,
}

/// Totals of one stream and lane in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexRow {
    /// Segment.
    pub segment: u64,
    /// The records.
    pub range: LogRange,
    /// Frames.
    pub frames: u64,
    /// Bytes of the frames.
    pub bytes: u64,
    /// Samples.
    pub samples: u64,
    /// Commit runs.
    pub runs: u64,
    /// Rollbacks.
    pub cuts: u64,
    /// Smallest and largest timestamp.
    pub timestamps: Option<(i64, i64)>,
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleRow {
    /// Segment.
    pub segment: u64,
    /// Name of the log, if it still exists.
    pub log: Option<String>,
    /// Stream.
    pub stream: u32,
    /// Lane.
    pub lane: u32,
    /// First LLSN of the frame.
    pub llsn: u64,
    /// Offset of the frame.
    pub offset: u32,
}

/// Log names by stream, and the first readable LLSN of each.
pub(crate) type Names = BTreeMap<u32, (String, u64)>;

/// The names as of the end of the log.
pub(crate) fn names(vfs: &Arc<dyn Vfs>, survey: &Survey) -> Result<Names> {
    let end = survey.ending(&**vfs).ok().flatten().map(|(end, _)| end);
    let state = newest_state(vfs, survey, end)?.state;
    let named = state.logs.values().filter_map(|log| {
        let low = state.streams.get(&log.stream)?.low;
        Some((log.stream, (log.log.name.clone(), low)))
    });
    Ok(named.collect())
}

/// All slots: segments from the oldest on, then those that are free.
pub fn segments(vfs: &Arc<dyn Vfs>, dir: &Path) -> Result<Vec<SegmentRow>> {
    let survey = Survey::take(vfs, dir)?;
    let names = names(vfs, &survey)?;
    let mut rows: Vec<_> = survey
        .laps
        .iter()
        .map(|lap| segment_row(vfs, &survey, lap, &names))
        .collect();
    if let Ok(files) = &survey.files {
        rows.extend(files.free_slots().map(|slot| {
            let bytes = files.filled_bytes(slot).unwrap_or(0);
            free_row(slot, slot_path(dir, slot), bytes)
        }));
    }
    Ok(rows)
}

fn free_row(slot: u32, path: PathBuf, bytes: u64) -> SegmentRow {
    SegmentRow {
        number: None,
        slot,
        path,
        state: SegmentState::Free,
        bytes,
        end: 0,
        salt: 0,
        streams: 0,
        records: 0,
        live: false,
        side: SideState::None,
        logs: Vec::new(),
        problem: None,
    }
}

fn segment_row(vfs: &Arc<dyn Vfs>, survey: &Survey, lap: &Lap, names: &Names) -> SegmentRow {
    let (index, side) = side(&**vfs, survey, lap);
    let (index, end, problem) = match index {
        Some(index) => (index, survey.limit(lap), None),
        None => match rebuild(&**vfs, survey, lap) {
            Ok(found) => found,
            Err(error) => (SegmentIndex::default(), 0, Some(error.to_string())),
        },
    };
    let logs = ranges(&index, names);
    let mut streams: Vec<u32> = logs.iter().map(|range| range.stream).collect();
    streams.dedup();
    let is_newest = survey.newest() == Some(lap);
    SegmentRow {
        number: Some(lap.number),
        state: if is_newest {
            SegmentState::Active
        } else {
            SegmentState::Sealed
        },
        end: end.into(),
        salt: lap.seed.salt,
        streams: streams.len() as u64,
        records: logs.iter().map(|range| range.end - range.first).sum(),
        live: is_newest
            || logs
                .iter()
                .any(|range| names.get(&range.stream).is_some_and(|n| n.1 < range.end)),
        side,
        logs,
        problem,
        ..free_row(lap.slot, lap.path.clone(), lap.filled.into())
    }
}

fn ranges(index: &SegmentIndex, names: &Names) -> Vec<LogRange> {
    index
        .summaries()
        .into_iter()
        .filter_map(|summary| {
            let range = summary.range.filter(|range| !range.is_empty())?;
            Some(LogRange {
                log: names.get(&summary.stream).map(|named| named.0.clone()),
                stream: summary.stream,
                lane: summary.lane,
                first: range.start,
                end: range.end,
            })
        })
        .collect()
}

/// The side file's index, if it is whole.
pub fn side(vfs: &dyn Vfs, survey: &Survey, lap: &Lap) -> (Option<SegmentIndex>, SideState) {
    // On a full disk a segment is sealed without one.
    let Some(sealed) = lap.sealed.filter(|sealed| sealed.side_bytes > 0) else {
        return (None, SideState::None);
    };
    let path = side_path(&survey.dir, lap.number);
    match vfs.exists(&path) {
        Ok(true) => {}
        _ => return (None, SideState::Missing),
    }
    let whole = vfs
        .read(&path, sealed.side_bytes.into())
        .ok()
        .filter(|bytes| {
            bytes.len() == sealed.side_bytes as usize && crc32c::crc32c(bytes) == sealed.side_crc
        })
        .and_then(|bytes| decode(&bytes).ok())
        .filter(|(header, _)| header.segment == lap.number && header.salt == lap.seed.salt);
    match whole {
        Some((_, index)) => (Some(index), SideState::Ok),
        None => (None, SideState::Bad),
    }
}

/// An index of the valid frames, where they end, and the first damage.
pub(crate) fn rebuild(
    vfs: &dyn Vfs,
    survey: &Survey,
    lap: &Lap,
) -> Result<(SegmentIndex, u32, Option<String>)> {
    let mut scan = Scan::new(lap.open(vfs)?, lap.seed, survey.limit(lap));
    let mut index = SegmentIndex::default();
    while let Some(found) = scan.next_found() {
        let Found::Frame(frame) = found else { continue };
        let payload = scan.payload(&frame);
        // Behind damage the index may refuse; what it holds by then is shown.
        let _ = frame_change(&frame, payload).and_then(|(change, timestamps)| {
            index_frame(&mut index, &frame, &change, timestamps, payload)
        });
    }
    let problem = scan
        .first_bad
        .map(|(offset, reason)| format!("offset {offset}: {reason}"));
    Ok((index, scan.offset, problem))
}

/// Indexes of the wanted segments.
fn indexes(
    vfs: &Arc<dyn Vfs>,
    survey: &Survey,
    segment: Option<u64>,
) -> Result<Vec<(u64, SegmentIndex)>> {
    let wanted: Vec<_> = survey
        .laps
        .iter()
        .filter(|lap| segment.is_none_or(|number| number == lap.number))
        .collect();
    if let (Some(number), true) = (segment, wanted.is_empty()) {
        return Err(no_segment(number));
    }
    wanted
        .into_iter()
        .map(|lap| {
            let index = match side(&**vfs, survey, lap).0 {
                Some(index) => index,
                None => rebuild(&**vfs, survey, lap)?.0,
            };
            Ok((lap.number, index))
        })
        .collect()
}

pub(crate) fn no_segment(number: u64) -> Error {
    Error::NotFound {
        what: format!("segment {number}"),
    }
}

/// Stream of the log to show; `None` for all.
pub(crate) fn wanted(names: &Names, log: Option<&str>) -> Result<Option<u32>> {
    let Some(log) = log else { return Ok(None) };
    let found = names.iter().find(|(_, named)| named.0 == log);
    found
        .map(|(stream, _)| Some(*stream))
        .ok_or_else(|| Error::NotFound {
            what: format!("log {log:?}"),
        })
}

/// Totals by segment, stream and lane.
pub fn index(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    segment: Option<u64>,
    log: Option<&str>,
) -> Result<Vec<IndexRow>> {
    let survey = Survey::take(vfs, dir)?;
    let names = names(vfs, &survey)?;
    let wanted = wanted(&names, log)?;
    let mut rows = Vec::new();
    for (segment, index) in indexes(vfs, &survey, segment)? {
        for range in ranges(&index, &names) {
            let stream = index.stream(range.stream, range.lane);
            let Some(found) = stream.filter(|_| wanted.is_none_or(|w| w == range.stream)) else {
                continue;
            };
            rows.push(IndexRow {
                segment,
                frames: found.frames(),
                bytes: found.bytes(),
                samples: found.samples().len() as u64,
                runs: found.runs().len() as u64,
                cuts: found.cuts().len() as u64,
                timestamps: found.timestamps(),
                range,
            });
        }
    }
    Ok(rows)
}

/// Every sample.
pub fn samples(
    vfs: &Arc<dyn Vfs>,
    dir: &Path,
    segment: Option<u64>,
    log: Option<&str>,
) -> Result<Vec<SampleRow>> {
    let survey = Survey::take(vfs, dir)?;
    let names = names(vfs, &survey)?;
    let wanted = wanted(&names, log)?;
    let mut rows = Vec::new();
    for (segment, index) in indexes(vfs, &survey, segment)? {
        for range in ranges(&index, &names) {
            let stream = index.stream(range.stream, range.lane);
            let Some(found) = stream.filter(|_| wanted.is_none_or(|w| w == range.stream)) else {
                continue;
            };
            rows.extend(found.samples().iter().map(|sample| SampleRow {
                segment,
                log: range.log.clone(),
                stream: range.stream,
                lane: range.lane,
                llsn: range.first + u64::from(sample.delta),
                offset: sample.offset,
            }));
        }
    }
    Ok(rows)
}
