//! Checks every checksum and every invariant of a node directory, and changes nothing.
//!
//! # Theory of operation
//!
//! One pass over each segment checks its frames (the salted checksum, the pages and the structure of
//! every batch), folds them as recovery would, and builds the index anew, which must be the side file
//! byte for byte. What one segment's frames add up to must be the preamble of the next. In the end
//! each log's readable records must all have been seen.
//!
//! The directory may be in use. The newest segment is then checked up to the watermark, and damage in a
//! segment that the manifest no longer lists is not damage: it was recycled meanwhile.

mod files;
mod segment;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::limits::SEGMENT_BYTES_MAX;
use crate::vfs::Vfs;
use crate::wal::format::header::FIRST_FRAME;
use crate::wal::format::state::State;
use crate::wal::recover::follow::Follower;
use crate::wal::segments::checkpoint::Checkpoint;
use crate::wal::tools::inspect::{Coverage, Ending, Lap, Survey};
use crate::wal::write::options::Options;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is wrong; worth knowing.
    Note,
    /// Derived data is damaged; it is rebuilt when it is needed.
    Degraded,
    /// Durable data is damaged or missing.
    Corruption,
}

impl Severity {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Degraded => "degraded",
            Self::Corruption => "corruption",
        }
    }
}

const REPAIR: &str = "restore the file from a copy, or see `braidlog repair --dry-run`";

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// File or directory.
    pub path: PathBuf,
    /// Where in it.
    pub offset: Option<u64>,
    /// What it is.
    pub what: String,
    /// What to do.
    pub next: &'static str,
}

impl Finding {
    fn corruption(path: &Path, offset: impl Into<Option<u64>>, what: impl Into<String>) -> Self {
        Self {
            severity: Severity::Corruption,
            path: path.to_owned(),
            offset: offset.into(),
            what: what.into(),
            next: REPAIR,
        }
    }

    fn note(
        path: &Path,
        offset: impl Into<Option<u64>>,
        what: impl Into<String>,
        next: &'static str,
    ) -> Self {
        Self {
            severity: Severity::Note,
            next,
            ..Self::corruption(path, offset, what)
        }
    }

    /// Something that is made again when it is needed.
    fn degraded(path: &Path, what: impl Into<String>, next: &'static str) -> Self {
        Self {
            severity: Severity::Degraded,
            ..Self::note(path, None, what, next)
        }
    }

    /// What an error says; `path` where it names none.
    fn of(error: &Error, path: &Path) -> Self {
        match error {
            Error::Corruption {
                path,
                offset,
                reason,
            } => Self::corruption(path, *offset, reason.clone()),
            Error::Missing { path, reason } => {
                Self::corruption(path, None, format!("missing or too short: {reason}"))
            }
            Error::Io { path, .. } | Error::WrongIdentity { path, .. } => {
                Self::corruption(path, None, error.to_string())
            }
            Error::Newer { path, .. } => Self {
                next: "upgrade Braidlog",
                ..Self::corruption(path, None, error.to_string())
            },
            other => Self::corruption(path, None, other.to_string()),
        }
    }
}

/// What a verification saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Segments checked.
    pub segments: u64,
    /// Frames checked.
    pub frames: u64,
    /// Records checked, copies included.
    pub records: u64,
    /// Bytes checked.
    pub bytes: u64,
    /// Everything found, in the order in which it was met.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Findings that are more than notes.
    pub fn damage(&self) -> impl Iterator<Item = &Finding> {
        let mut findings = self.findings.iter();
        std::iter::from_fn(move || findings.by_ref().find(|f| f.severity > Severity::Note))
    }
}

/// Called with (bytes done, bytes in all) a few times a segment; false ends the work.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// The error of work that its progress callback ended.
pub fn cancelled() -> Error {
    Error::Failed {
        reason: "cancelled".into(),
    }
}

/// Verify a directory. Fails only if there is none or `progress` ends the work.
pub fn verify(vfs: &Arc<dyn Vfs>, dir: &Path, progress: Progress<'_>) -> Result<Report> {
    let survey = Survey::take(vfs, dir)?;
    if let Err(error @ Error::NotFound { .. }) = survey.files {
        return Err(error);
    }
    let bytes_max = SEGMENT_BYTES_MAX;
    let mut verifier = Verifier {
        vfs,
        checkpoint: Checkpoint::read(&**vfs, dir, bytes_max),
        newest_end: None,
        coverage: Coverage::default(),
        places: BTreeMap::new(),
        holes: BTreeMap::new(),
        damaged: Vec::new(),
        state: None,
        recycled: false,
        report: Report::default(),
        total: 0,
        progress,
        survey,
    };
    verifier.files();
    verifier.newest();
    verifier.all_segments()?;
    verifier.check_records();
    Ok(verifier.report)
}

struct Verifier<'a> {
    vfs: &'a Arc<dyn Vfs>,
    survey: Survey,
    /// What an open would go by.
    checkpoint: Option<Checkpoint>,
    /// Where the newest segment ends, unless that is damage.
    newest_end: Option<u32>,
    coverage: Coverage,
    /// LLSNs by stream that a repair declared lost.
    holes: BTreeMap<u32, Vec<Range<u64>>>,
    /// LLSNs by stream that frames give a place in the order of their log.
    places: BTreeMap<u32, Vec<Range<u64>>>,
    /// Findings of bytes of sealed segments that are no frames, with the number of the segment.
    damaged: Vec<(usize, u64)>,
    /// Number of the last segment and the state behind it, if nothing was damaged.
    state: Option<(u64, State)>,
    /// Whether a writer recycled a segment meanwhile.
    recycled: bool,
    report: Report,
    total: u64,
    progress: Progress<'a>,
}

impl Verifier<'_> {
    fn find(&mut self, finding: Finding) {
        self.report.findings.push(finding);
    }

    /// How the newest segment ends.
    fn newest(&mut self) {
        let Some(path) = self.survey.newest().map(|lap| lap.path.clone()) else {
            return;
        };
        match self.survey.ending(&**self.vfs) {
            Ok(Some((end, Ending::Torn { reason }))) => {
                self.newest_end = Some(end);
                let what = format!("torn tail: {reason}; what follows was never acknowledged");
                let next = "nothing to do: the next open cuts it off";
                self.find(Finding::note(&path, u64::from(end), what, next));
            }
            Ok(Some((end, Ending::Corrupt { reason }))) => {
                self.find(Finding::corruption(&path, u64::from(end), reason));
            }
            Ok(Some((end, _))) => self.newest_end = Some(end),
            // A file that cannot be read is found with its frames.
            Ok(None) | Err(_) => {}
        }
    }

    /// Where to stop reading a segment.
    fn limit(&self, lap: &Lap) -> u32 {
        let newest = self.survey.newest() == Some(lap);
        let limit = self.survey.limit(lap);
        self.newest_end.filter(|_| newest).unwrap_or(limit)
    }

    fn all_segments(&mut self) -> Result<()> {
        let laps = self.survey.laps.clone();
        let bytes = |lap: &Lap| u64::from(self.limit(lap).saturating_sub(FIRST_FRAME));
        self.total = laps.iter().map(bytes).sum();
        let mut done = 0;
        for (at, lap) in laps.iter().enumerate() {
            let before = self.report.findings.len();
            self.segment(at, lap, done)?;
            if self.report.findings.len() > before && self.survey.alive && self.is_gone(lap) {
                self.report.findings.truncate(before);
                self.damaged.retain(|(at, _)| *at < before);
                self.recycled = true;
            }
            done += u64::from(self.limit(lap).saturating_sub(FIRST_FRAME));
            self.report.segments += 1;
            self.tell(done)?;
        }
        Ok(())
    }

    fn tell(&mut self, done: u64) -> Result<()> {
        if (self.progress)(done, self.total) {
            Ok(())
        } else {
            Err(cancelled())
        }
    }

    /// Whether the manifest no longer lists the segment.
    fn is_gone(&self, lap: &Lap) -> bool {
        let now = Survey::take(self.vfs, &self.survey.dir);
        now.is_ok_and(|now| {
            let same = |other: &Lap| other.number == lap.number && other.seed == lap.seed;
            now.files.is_ok() && !now.laps.iter().any(same)
        })
    }

    /// Whether every record that can be read was seen, and what gives it its position.
    fn nothing_is_missing(&self, state: &State) -> bool {
        state.streams.iter().all(|(number, stream)| {
            let known = self.places.get(number).map_or(&[][..], Vec::as_slice);
            let placed = !stream.explicit_commit || covers(known, &(stream.low..stream.committed));
            let records = stream.low..stream.next;
            placed && self.coverage.holes(*number, &records).is_empty()
        })
    }

    /// Damage in which no reader of any log comes by is no reason to repair anything.
    fn spare_the_dead(&mut self) {
        let options = Options::default();
        let opened = Follower::open(Arc::clone(self.vfs), &self.survey.dir, &options);
        // What an open is refused for was found already.
        let Ok(follower) = opened else { return };
        let segments = follower.view().segments();
        for (at, number) in std::mem::take(&mut self.damaged) {
            let segment = segments.iter().find(|segment| segment.number == number);
            let lost = segment.map(|segment| follower.view().lost_in(segment));
            if matches!(lost, Some(Ok(lost)) if lost.is_empty()) {
                let finding = &mut self.report.findings[at];
                finding.severity = Severity::Note;
                finding.what += "; dead bytes: no record that can be read is there";
                finding.next =
                    "nothing to do: the file is used again once all of its records are trimmed";
            }
        }
    }

    /// Every record that can be read was seen.
    fn check_records(&mut self) {
        // Records of a segment that is gone were trimmed, or moved to where this did not look.
        let Some((_, state)) = self.state.take().filter(|_| !self.recycled) else {
            return;
        };
        if !self.damaged.is_empty() && self.nothing_is_missing(&state) {
            self.spare_the_dead();
        }
        for log in state.logs.values() {
            let Some(stream) = state.streams.get(&log.stream) else {
                continue;
            };
            let name = &log.log.name;
            for Range { start, end } in self.coverage.holes(log.stream, &(stream.low..stream.next))
            {
                let what = format!("log {name:?}: records {start}..{end} are in no segment");
                self.find(Finding::corruption(&self.survey.dir.clone(), None, what));
            }
            let holes = self.holes.remove(&log.stream).unwrap_or_default();
            for Range { start, end } in joined(holes, &(stream.low..stream.next)) {
                let what = format!("log {name:?}: positions {start}..{end} are a declared hole");
                let next = "nothing to do: an earlier repair could not save their records";
                self.find(Finding::note(&self.survey.dir.clone(), None, what, next));
            }
            for (cursor, at) in &stream.cursors {
                if at.position > stream.next {
                    let what = format!(
                        "log {name:?}: cursor {cursor:?} at {} is beyond the end {}",
                        at.position, stream.next
                    );
                    let next = "nothing to do, unless records were lost";
                    self.find(Finding::note(&self.survey.dir.clone(), None, what, next));
                }
            }
        }
    }
}

/// Ranges in any order as few rising ones, within `all`.
fn joined(mut ranges: Vec<Range<u64>>, all: &Range<u64>) -> Vec<Range<u64>> {
    ranges.sort_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let range = range.start.max(all.start)..range.end.min(all.end);
        match out.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Whether ranges in any order have all of another one.
fn covers(ranges: &[Range<u64>], all: &Range<u64>) -> bool {
    let mut sorted = ranges.to_vec();
    sorted.sort_by_key(|range| range.start);
    let mut next = all.start;
    for range in sorted {
        if range.start > next {
            break;
        }
        next = next.max(range.end);
    }
    next >= all.end
}
