//! Whole node directories in memory: [`Walk`], [`Follower::open`], [`open`].
//!
//! Accepted means that the log opens for writing. Then a follower, if it opens, sees the same
//! state; what can be read before is read again after a record was appended, the log was closed
//! and opened once more; and a point read gives what a scan gives. Old segments are not looked at
//! by an open, so a read may still find corruption, and then says so.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use braidlog_core::batch::{BatchView, OwnedRecord};
use braidlog_core::error::{Error, Result as Core};
use braidlog_core::vfs::{MemoryVfs, Vfs};
use braidlog_core::wal::{
    CHECKPOINT, FIRST_FRAME, Follower, NewRecord, OpenReport, Position, State, Store, View, Walk,
    open, open_tables,
};

use super::manifest_make::{DIR, mount};
use super::segment_bytes;
use super::segment_make::{node, options};
use crate::input::Input;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// Point reads and searches tried on one stream.
const POINTS: usize = 4;

/// Bytes asked for by one read after the other.
const BYTES: [usize; 4] = [8192, 0, 1 << 20, 100];

/// The target.
pub struct Segment;

impl Target for Segment {
    fn name(&self) -> &'static str {
        "segment"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        node(rng).unwrap_or_default()
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        segment_bytes::mutate(input, other, rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        segment_bytes::reseal(input, rng);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let vfs = mount(input).map_err(|error| format!("mount: {error}"))?;
        let plain = without_checkpoint(input)?;
        // With a checkpoint nobody has looked at the frames before it yet.
        let folded = !vfs.exists(&Path::new(DIR).join(CHECKPOINT)).unwrap_or(true);
        let whole = walk(&vfs.snapshot())? && plain.is_some() && folded;
        let follower = follow(&vfs.snapshot(), whole)?;
        let (store, _) = match reopen(&vfs) {
            Ok(opened) => opened,
            Err(error) => {
                let skipped = follower.is_some() && error.to_string().contains("does not apply");
                hold(!skipped, || format!("a follower goes on behind {error}"))?;
                return proper("open", &error).map(|()| Verdict::Refused);
            }
        };
        let before = contents(store.view(), whole)?;
        if let Some((state, seen)) = follower {
            hold(state == store.state() && seen == before, || {
                format!("a follower sees {state:?}, a writer {:?}", store.state())
            })?;
        }
        // An open takes the word of a checkpoint for the frames before it. If it or they were changed together
        // with their checksums, verification finds it, and nothing else need.
        if plain.is_none_or(|(state, seen)| state != store.state() || seen != before) {
            return Ok(Verdict::Refused);
        }
        let added = append(&store)?;
        let state = store.state();
        store.close().map_err(|error| format!("close: {error}"))?;
        drop(store);
        let (store, report) = reopen(&vfs).map_err(|error| format!("opened once: {error}"))?;
        hold(report.clean && report.torn.is_none(), || {
            format!("closed, then opened with {report:?}")
        })?;
        hold(store.state() == state, || {
            format!("closed with {state:?}, opened with {:?}", store.state())
        })?;
        let after = contents(store.view(), whole)?;
        for (stream, old) in &before {
            let kept = match (old, after.get(stream)) {
                (Ok(old), Some(Ok(new))) => new.starts_with(old),
                (old, new) => new == Some(old),
            };
            hold(kept, || {
                let old = outline(Some(old));
                format!(
                    "stream {stream} was {old}, is {}",
                    outline(after.get(stream))
                )
            })?;
        }
        if let Some((stream, llsn)) = added {
            let there = matches!(after.get(&stream), Some(Ok(records))
                if records.last().is_some_and(|(last, record)| *last == llsn && record.value.as_deref() == Some(PROBE)));
            let readable = matches!(after.get(&stream), Some(Ok(_)));
            hold(there || !readable, || {
                format!("record {llsn} of stream {stream} is gone")
            })?;
        }
        Ok(Verdict::Accepted)
    }
}

/// What the log is without its checkpoint; `None` if it is refused.
fn without_checkpoint(input: &Input) -> Result<Option<(State, Contents)>, Broken> {
    let vfs = mount(input).map_err(|error| format!("mount: {error}"))?;
    let path = Path::new(DIR).join(CHECKPOINT);
    if vfs.exists(&path).is_ok_and(|there| there) {
        vfs.remove(&path)
            .map_err(|error| format!("remove: {error}"))?;
    }
    let whole = walk(&vfs.snapshot())?;
    match reopen(&vfs) {
        Ok((store, _)) => Ok(Some((store.state(), contents(store.view(), whole)?))),
        Err(error) => proper("open", &error).map(|()| None),
    }
}

const PROBE: &[u8] = b"appended by the fuzzer";

fn reopen(vfs: &MemoryVfs) -> Core<(Store, OpenReport)> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    open(shared, Path::new(DIR), options())
}

/// Walk every segment, and search behind its end. Whether nothing is wrong with any.
fn walk(vfs: &MemoryVfs) -> Result<bool, Broken> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    let dir = Path::new(DIR);
    let segments = match open_tables(&shared, dir) {
        Ok((_, _, segments)) => segments,
        Err(error) => return proper("open_tables", &error).map(|()| false),
    };
    let mut whole = true;
    for segment in segments {
        for result in [
            segment.rebuild(vfs).map(|_| ()),
            segment.verify_side(vfs, dir),
            segment.summary(vfs, dir).map(|_| ()),
        ] {
            whole &= result.is_ok();
            result.or_else(|error| proper_or_data("segment", &error))?;
        }
        let Ok(file) = segment.reader(vfs) else {
            continue;
        };
        let mut walk = Walk::new(file, segment.seed, FIRST_FRAME, 0, segment.bytes);
        let mut end = FIRST_FRAME;
        while let Some(frame) = walk
            .next_frame()
            .map_err(|error| format!("walk: {error}"))?
        {
            hold(frame.offset >= end && frame.end() <= segment.bytes, || {
                format!("{frame:?} behind {end} in {} bytes", segment.bytes)
            })?;
            end = frame.end();
        }
        walk.ghosts(segment.bytes)
            .map_err(|error| format!("ghosts: {error}"))?;
    }
    Ok(whole)
}

type Records = Vec<(u64, OwnedRecord)>;

/// Per stream its records, or that reading them was refused.
type Contents = BTreeMap<u32, Result<Records, ()>>;

fn follow(vfs: &MemoryVfs, whole: bool) -> Result<Option<(State, Contents)>, Broken> {
    let shared: Arc<dyn Vfs> = Arc::new(vfs.clone());
    match Follower::open(shared, Path::new(DIR), &options()) {
        Ok(follower) => Ok(Some((follower.state(), contents(follower.view(), whole)?))),
        Err(error) => proper("Follower::open", &error).map(|()| None),
    }
}

fn contents(view: &View, whole: bool) -> Result<Contents, Broken> {
    let mut found = Contents::new();
    for number in view.streams().into_keys() {
        let records = match stream(view, number) {
            Ok(records) => Ok(records),
            Err(error) => proper("read", &error).map(|()| Err(()))?,
        };
        if let Ok(records) = &records {
            points(view, number, records, whole)?;
        }
        found.insert(number, records);
    }
    Ok(found)
}

fn stream(view: &View, number: u32) -> Core<Records> {
    let stream = view.stream(number)?;
    let range = stream.range();
    let mut position = Position::default();
    let (mut next, mut found) = (range.first, Vec::new());
    let mut sizes = BYTES.iter().cycle();
    while next < range.end {
        let bytes = sizes.next().copied().unwrap_or(1);
        let batches = view.read(&stream, next, u64::MAX, bytes, &mut position)?;
        for batch in &batches {
            let decoded = BatchView::parse(batch.bytes())
                .map_err(|error| Error::corrupt(DIR, 0, error.to_string()))?;
            for index in batch.begin..batch.end {
                let record = decoded.record(index).map(OwnedRecord::from);
                found.extend(record.map(|record| (batch.llsn + u64::from(index), record)));
            }
            next = batch.next();
        }
    }
    Ok(found)
}

/// Point reads and searches by time agree with the scan. They read other frames on their way, so
/// unless all is `whole` they may meet damage that the scan did not.
fn points(view: &View, number: u32, records: &Records, whole: bool) -> Result<(), Broken> {
    let stream = view.stream(number).map_err(|error| error.to_string())?;
    let step = (records.len() / POINTS).max(1);
    for (llsn, record) in records.iter().step_by(step) {
        let found = view.get(&stream, *llsn);
        let same = match &found {
            Ok(found) => found == record,
            Err(error) => !whole && proper("get", error).is_ok(),
        };
        hold(same, || {
            let found = found.as_ref().map(brief);
            let scanned = brief(record);
            format!("record {llsn} of stream {number}: {found:?}, scanned {scanned}")
        })?;
        let wanted = record.timestamp;
        let plain = records
            .iter()
            .find(|(_, record)| record.timestamp >= wanted);
        let plain = plain.map(|(llsn, _)| *llsn);
        let found = view.find(&stream, wanted);
        let same = match &found {
            // A side file may be wrong about times and still be one.
            Ok(found) => !whole || *found == plain,
            Err(error) => !whole && proper("find", error).is_ok(),
        };
        hold(same, || {
            format!("timestamp {wanted} of stream {number}: {found:?}, scanned {plain:?}")
        })?;
    }
    Ok(())
}

/// What was read of a stream in few words.
fn outline(records: Option<&Result<Records, ()>>) -> String {
    match records {
        None => "gone".into(),
        Some(Err(())) => "damaged".into(),
        Some(Ok(records)) => {
            let each = records.iter();
            let each: Vec<_> = each
                .map(|(llsn, record)| format!("{llsn}: {}", brief(record)))
                .collect();
            each.join(", ")
        }
    }
}

/// A record in few words.
fn brief(record: &OwnedRecord) -> String {
    let Some(value) = &record.value else {
        return format!("null at {}", record.timestamp);
    };
    let (len, crc) = (value.len(), crc32c::crc32c(value));
    format!("{len} bytes {crc:08x} at {}", record.timestamp)
}

/// Append a record to some stream whose records need no commit.
fn append(store: &Store) -> Result<Option<(u32, u64)>, Broken> {
    let state = store.state();
    let mut streams = state.streams.iter();
    let Some((stream, _)) = streams.find(|(_, stream)| !stream.explicit_commit) else {
        return Ok(None);
    };
    let record = NewRecord {
        value: Some(PROBE),
        key: None,
        timestamp: 5,
        headers: &[],
    };
    let ticket = match store.append(*stream, record, None) {
        Ok(ticket) => ticket,
        // The log, or its numbers, may be used up.
        Err(error) => return proper("append", &error).map(|()| None),
    };
    match store.wait(ticket.group) {
        Ok(()) => Ok(Some((*stream, ticket.llsn))),
        Err(error) => Err(format!("an admitted record failed: {error}")),
    }
}

/// Refusals name file and place; an I/O error would mean that the file system was to blame.
fn proper(what: &str, error: &Error) -> Result<(), Broken> {
    let proper = !matches!(error, Error::Io { .. } | Error::Malformed { .. });
    hold(proper, || format!("{what} refused with {error:?}"))
}

/// As [`proper`], where the caller adds the place. A side file need not be there.
fn proper_or_data(what: &str, error: &Error) -> Result<(), Broken> {
    let io = match error {
        Error::Io { source, .. } => source.kind() != std::io::ErrorKind::NotFound,
        _ => false,
    };
    hold(!io, || format!("{what} refused with {error:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::segment_make::unfinished;
    use super::*;

    /// What once broke an invariant: the error was the system's, when a slot was to be made.
    #[test]
    fn free_slots_without_their_directory_are_refused_properly() {
        let Ok(inputs) = unfinished() else {
            panic!("a node cannot be made")
        };
        for mut input in inputs {
            input.files.retain(|(name, _)| !name.starts_with("wal/"));
            let found = Segment.check(&input);
            assert!(found.is_ok(), "{found:?}");
        }
    }
}
