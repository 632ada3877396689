//! Reads every segment and remembers what there is.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::index::CommitRun;
use crate::vfs::Vfs;
use crate::wal::format::frame::{Frame, Kind};
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::tools::inspect::{
    Bad, Coverage, Ending, Fold, Found, Lap, Scan, Survey, commit_runs,
};
use crate::wal::tools::verify::{Progress, cancelled};

/// Bytes between two calls of the progress callback.
const PROGRESS_BYTES: u32 = 8 << 20;

/// A place that is damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Segment.
    pub segment: u64,
    /// Slot file.
    pub path: PathBuf,
    /// The damage.
    pub bad: Bad,
}

/// Everything that was found.
pub struct Collected {
    /// The state at the end of the log.
    pub fold: Fold,
    /// Where the records are.
    pub coverage: Coverage,
    /// Commit runs by stream, in log order, repeated where the cleaner copied them.
    pub runs: BTreeMap<u32, Vec<CommitRun>>,
    /// Damaged places.
    pub places: Vec<Place>,
    /// Bytes to look at.
    pub bytes: u64,
}

impl Collected {
    /// Read all segments.
    pub fn read(vfs: &Arc<dyn Vfs>, survey: &Survey, progress: Progress<'_>) -> Result<Self> {
        let ending = survey.ending(&**vfs).ok().flatten();
        // What stands behind a torn tail was never acknowledged, and frames before it may be missing.
        let torn = ending.and_then(|(end, ending)| match ending {
            Ending::Torn { .. } => Some(end),
            _ => None,
        });
        let limit = |lap: &Lap| {
            let newest = survey.newest() == Some(lap);
            torn.filter(|_| newest).unwrap_or_else(|| survey.limit(lap))
        };
        let length = |lap: &Lap| u64::from(limit(lap).saturating_sub(FIRST_FRAME));
        let mut collected = Self {
            fold: Fold::new(survey.node),
            coverage: Coverage::default(),
            runs: BTreeMap::new(),
            places: Vec::new(),
            bytes: survey.laps.iter().map(length).sum::<u64>().max(1),
        };
        let mut done = 0;
        for (at, lap) in survey.laps.iter().enumerate() {
            let durable = survey.mark(lap).map_or(0, |mark| mark.durable);
            collected.segment(&**vfs, at, lap, (limit(lap), durable), &mut |within| {
                progress(done + within, collected_total(survey, &length))
            })?;
            done += length(lap);
        }
        Ok(collected)
    }

    fn segment(
        &mut self,
        vfs: &dyn Vfs,
        at: usize,
        lap: &Lap,
        (limit, durable): (u32, u32),
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        self.fold.begin();
        let file = match lap.open(vfs) {
            Ok(file) => file,
            Err(error) => {
                // All of the segment is lost. The others are still read.
                self.note(lap, whole(limit, error.to_string()));
                return Ok(());
            }
        };
        let mut scan = Scan::new(file, lap.seed, limit);
        let mut told = FIRST_FRAME;
        while let Some(found) = scan.next_found() {
            match found {
                Found::Frame(frame) => self.frame(at, &frame, scan.payload(&frame)),
                Found::Bad(bad) => {
                    match &bad.frame {
                        // The header is whole: it tells which records are lost.
                        Some(frame) => self.fold.lost(frame),
                        None => self.fold.damage(),
                    }
                    self.note(lap, bad);
                }
            }
            if scan.offset - told >= PROGRESS_BYTES {
                told = scan.offset;
                if !progress(u64::from(told - FIRST_FRAME)) {
                    return Err(cancelled());
                }
            }
        }
        // A sealed segment has frames up to its end. The newest certainly had them up to the watermark.
        let end = match lap.sealed {
            Some(_) => limit,
            None => durable,
        };
        if scan.offset < end {
            let bad = Bad {
                offset: scan.offset,
                ..whole(end, scan.ended.clone())
            };
            self.note(lap, bad);
        }
        if progress(u64::from(limit.saturating_sub(FIRST_FRAME))) {
            Ok(())
        } else {
            Err(cancelled())
        }
    }

    fn frame(&mut self, at: usize, frame: &Frame, payload: &[u8]) {
        self.fold.frame(frame, payload);
        let header = &frame.header;
        if header.kind.is_data() {
            self.coverage.note(at, frame);
        }
        // Records that were taken back must not come back because an older segment still has them.
        if header.kind == Kind::Rollback {
            self.coverage.cut(header.stream, header.llsn);
        }
        let runs = commit_runs(frame, payload);
        if !runs.is_empty() {
            self.runs.entry(header.stream).or_default().extend(runs);
        }
    }

    fn note(&mut self, lap: &Lap, bad: Bad) {
        let (segment, path) = (lap.number, lap.path.clone());
        self.places.push(Place { segment, path, bad });
    }
}

fn collected_total(survey: &Survey, length: &dyn Fn(&Lap) -> u64) -> u64 {
    survey.laps.iter().map(length).sum::<u64>().max(1)
}

fn whole(limit: u32, reason: String) -> Bad {
    Bad {
        offset: 0,
        end: limit,
        reason,
        frame: None,
        frames: 0,
    }
}
