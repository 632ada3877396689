//! One segment: its file, header block, frames, preamble and side file.

use std::path::Path;
use std::sync::Arc;

use super::{Finding, Severity, Verifier};
use crate::batch::parse_head;
use crate::error::{Error, Result};
use crate::index::{SegmentIndex, decode};
use crate::vfs::{Access, VfsFile};
use crate::wal::format::frame::{FLAG_MORE, Frame, Kind};
use crate::wal::format::header::{FIRST_FRAME, SegmentHeader};
use crate::wal::format::producer::Producers;
use crate::wal::format::state::State;
use crate::wal::format::stream::Stream;
use crate::wal::segments::checkpoint::{CHECKPOINT, Checkpoint};
use crate::wal::segments::frames::{frame_change, index_frame};
use crate::wal::segments::growing::GrowingFile;
use crate::wal::segments::segment::side_path;
use crate::wal::tools::inspect::{Found, Lap, Scan, commit_runs, read_header};

/// Bytes between two calls of the progress callback.
const PROGRESS_BYTES: u32 = 8 << 20;

/// What the frames of a segment add up to.
#[derive(Default)]
struct Sum {
    preamble: Option<Vec<u8>>,
    state: Option<State>,
    index: SegmentIndex,
    /// Damage was met: what follows need not fit what came before.
    broken: bool,
}

impl Verifier<'_> {
    /// Check one segment, of which `done` bytes lie before.
    pub(crate) fn segment(&mut self, at: usize, lap: &Lap, done: u64) -> Result<()> {
        let before = self.state.take();
        let Some(file) = self.open(lap) else {
            return Ok(());
        };
        self.header(lap);
        let limit = self.limit(lap);
        let mut scan = Scan::new(file, lap.seed, limit);
        let mut sum = Sum {
            preamble: Some(Vec::new()),
            ..Sum::default()
        };
        let mut told = FIRST_FRAME;
        while let Some(found) = scan.next_found() {
            match found {
                Found::Bad(bad) => {
                    sum.broken = true;
                    let what = match bad.frames {
                        0 | 1 => bad.reason,
                        frames => format!("{} ({frames} frames stood here)", bad.reason),
                    };
                    // How the newest segment ends was judged before.
                    if lap.sealed.is_some() {
                        self.damage(lap, bad.offset, what);
                    }
                }
                Found::Frame(frame) => {
                    self.frame(
                        at,
                        lap,
                        &frame,
                        scan.payload(&frame),
                        &mut sum,
                        before.as_ref(),
                    );
                }
            }
            if scan.offset - told >= PROGRESS_BYTES {
                told = scan.offset;
                self.tell(done + u64::from(told - FIRST_FRAME))?;
            }
        }
        self.report.bytes += u64::from(scan.offset - FIRST_FRAME);
        self.end(lap, &scan);
        if sum.preamble.is_some() && !sum.broken {
            let what = "the state at the head of the segment is not complete";
            self.find(Finding::corruption(&lap.path, u64::from(FIRST_FRAME), what));
        }
        self.side_file(lap, &sum);
        self.state = sum
            .state
            .filter(|_| !sum.broken)
            .map(|state| (lap.number, state));
        Ok(())
    }

    fn open(&mut self, lap: &Lap) -> Option<Arc<dyn VfsFile>> {
        let opened = self.vfs.open(&lap.path, Access::Read).and_then(|file| {
            let len = file.len()?;
            Ok((file, len))
        });
        match opened {
            Err(error) => {
                self.find(Finding::of(&error, &lap.path));
                None
            }
            Ok((file, len)) => {
                if len < u64::from(lap.filled) || len > u64::from(lap.bytes) {
                    let what = format!("{len} bytes long instead of {}", lap.filled);
                    self.find(Finding::corruption(&lap.path, None, what));
                    return Some(file);
                }
                Some(GrowingFile::wrap(
                    file,
                    lap.filled.into(),
                    len,
                    lap.bytes.into(),
                ))
            }
        }
    }

    fn header(&mut self, lap: &Lap) {
        let expected = SegmentHeader {
            node: self.survey.node,
            number: lap.number,
            salt: lap.seed.salt,
            bytes: lap.bytes.into(),
        };
        match read_header(&**self.vfs, &lap.path) {
            Ok(Some(found)) if found == expected => {}
            Ok(_) => {
                let what = "the header block belongs to another segment";
                self.find(Finding::corruption(&lap.path, 0, what));
            }
            Err(error) => self.find(Finding::of(&error, &lap.path)),
        }
    }

    fn frame(
        &mut self,
        at: usize,
        lap: &Lap,
        frame: &Frame,
        payload: &[u8],
        sum: &mut Sum,
        before: Option<&(u64, State)>,
    ) {
        self.report.frames += 1;
        if frame.header.kind.is_data() {
            self.report.records += u64::from(frame.header.count);
            if parse_head(payload).is_ok_and(|head| head.is_hole()) {
                let begin = frame.header.llsn;
                let lost = begin..begin.saturating_add(frame.header.count.into());
                self.holes
                    .entry(frame.header.stream)
                    .or_default()
                    .push(lost);
            }
            self.coverage.note(at, frame);
        }
        if frame.header.kind == Kind::Rollback {
            self.coverage.cut(frame.header.stream, frame.header.llsn);
        }
        for run in commit_runs(frame, payload) {
            let places = self.places.entry(frame.header.stream).or_default();
            match places.last_mut() {
                Some(last) if last.end == run.llsn_begin => last.end = run.llsn_end(),
                _ => places.push(run.llsn_begin..run.llsn_end()),
            }
        }
        if sum.broken {
            return;
        }
        let applied = if let Some(preamble) = sum.preamble.as_mut() {
            preamble.extend_from_slice(payload);
            if frame.header.flags & FLAG_MORE == 0 {
                self.preamble(lap, frame, sum, before)
            } else {
                Ok(())
            }
        } else {
            apply(sum, frame, payload)
        };
        if let Err(error) = applied {
            sum.broken = true;
            let what = format!("{} frame does not apply: {error}", frame.header.kind.name());
            let offset = u64::from(frame.offset);
            self.find(Finding::corruption(&lap.path, offset, what));
        } else {
            self.checkpoint(lap, frame, sum);
        }
    }

    /// A checkpoint says what the frames before it add up to.
    fn checkpoint(&mut self, lap: &Lap, frame: &Frame, sum: &Sum) {
        let here = |found: &Checkpoint| {
            found.mark.seed == lap.seed && found.mark.offset == frame.end() && lap.sealed.is_none()
        };
        let (Some(found), Some(state)) = (self.checkpoint.take_if(|found| here(found)), &sum.state)
        else {
            return;
        };
        let what = match difference(&found.state, state) {
            Some(difference) => difference,
            None if found.index != sum.index => "the indexes differ".to_owned(),
            None => return,
        };
        let path = self.survey.dir.join(CHECKPOINT);
        let what = format!("differs from the state that the frames of the log add up to: {what}");
        self.find(Finding {
            next: "close the log and remove the file: the next open reads the segment",
            ..Finding::corruption(&path, None, what)
        });
    }

    /// The preamble is whole: it must be what the segment before added up to.
    fn preamble(
        &mut self,
        lap: &Lap,
        frame: &Frame,
        sum: &mut Sum,
        before: Option<&(u64, State)>,
    ) -> Result<()> {
        if frame.header.kind != Kind::Preamble {
            let reason = "the segment does not begin with its state";
            return Err(Error::malformed("segment", frame.offset.into(), reason));
        }
        let state = State::decode(&sum.preamble.take().unwrap_or_default())?;
        if let Some((number, folded)) = before
            && number + 1 == lap.number
            && let Some(difference) = difference(folded, &state)
        {
            let what = format!(
                "the state at its head differs from what the frames of segment {number} add up to: "
            );
            self.find(Finding::corruption(
                &lap.path,
                u64::from(FIRST_FRAME),
                what + &difference,
            ));
        }
        sum.state = Some(state);
        Ok(())
    }

    /// A sealed segment ends where the manifest says.
    fn end(&mut self, lap: &Lap, scan: &Scan) {
        let Some(sealed) = lap.sealed else { return };
        if scan.offset < sealed.end {
            let what = format!("{}; it was sealed at {}", scan.ended, sealed.end);
            self.damage(lap, scan.offset, what);
        }
    }

    /// Bytes of a sealed segment that are no frames: what they cost is known in the end.
    fn damage(&mut self, lap: &Lap, offset: u32, what: String) {
        self.damaged.push((self.report.findings.len(), lap.number));
        self.find(Finding::corruption(&lap.path, u64::from(offset), what));
    }

    /// The side file says exactly what the frames say.
    fn side_file(&mut self, lap: &Lap, sum: &Sum) {
        // On a full disk a segment is sealed without one.
        let Some(sealed) = lap.sealed.filter(|sealed| sealed.side_bytes > 0) else {
            return;
        };
        let path = side_path(&self.survey.dir, lap.number);
        let what = match self.vfs.read(&path, u64::from(sealed.side_bytes) + 1) {
            Err(error) => error.to_string(),
            Ok(bytes)
                if bytes.len() != sealed.side_bytes as usize
                    || crc32c::crc32c(&bytes) != sealed.side_crc =>
            {
                "does not match the checksum in the manifest".to_owned()
            }
            Ok(bytes) => {
                let (number, salt) = (lap.number, lap.seed.salt);
                let rebuilt = sum.index.encode(number, salt, sealed.end.into());
                if sum.broken || bytes == rebuilt {
                    return;
                }
                match decode(&bytes) {
                    Ok(_) => "differs from the segment that it indexes".to_owned(),
                    // Such as one of another version, which counts as none.
                    Err(error) => error.to_string(),
                }
            }
        };
        self.degraded(&path, what);
    }

    fn degraded(&mut self, path: &Path, what: String) {
        self.find(Finding {
            severity: Severity::Degraded,
            next: "nothing to do: the index is rebuilt from the segment when it is needed",
            ..Finding::corruption(path, None, what)
        });
    }
}

/// Fold and index a frame as recovery does.
fn apply(sum: &mut Sum, frame: &Frame, payload: &[u8]) -> Result<()> {
    let (change, timestamps) = frame_change(frame, payload)?;
    if let Some(state) = sum.state.as_mut() {
        state.apply(&frame.header, &change)?;
    }
    index_frame(&mut sum.index, frame, &change, timestamps, payload)
}

/// Where two states differ. Writers used to forget producers that had unwritten records.
fn difference(folded: &State, preamble: &State) -> Option<String> {
    if folded.next_stream != preamble.next_stream || folded.logs != preamble.logs {
        return Some("the catalogs differ".into());
    }
    for (number, stream) in &folded.streams {
        let bare = |stream: &Stream| Stream {
            producers: Producers::default(),
            ..stream.clone()
        };
        let Some(other) = preamble.streams.get(number) else {
            return Some(format!("stream {number} is not in it"));
        };
        if bare(stream) != bare(other) {
            return Some(format!("stream {number} differs"));
        }
        for (id, epoch, _, next) in other.producers.iter() {
            let known = stream.producers.epoch(id) == Some(epoch);
            if known && stream.producers.next_sequence(id) != next {
                return Some(format!("stream {number} differs in producer {id}"));
            }
        }
    }
    None
}
