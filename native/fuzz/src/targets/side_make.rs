//! Valid side files with random parameters.

use braidlog_core::index::{CommitRun, FrameEntry, NATIVE, SegmentIndex};

use crate::rng::Rng;

/// A side file of a segment with some streams.
pub fn side_file(rng: &mut Rng) -> Vec<u8> {
    let mut index = SegmentIndex::new();
    let mut streams: Vec<Stream> = (0..rng.below(5))
        .map(|_| Stream {
            number: rng.below(6) as u32 + 1,
            next: 1 + rng.u64() % (1 << rng.within(1..=61)),
            committed: 0,
            glsn: 1 + rng.below(1000) as u64,
        })
        .collect();
    for stream in &mut streams {
        stream.committed = stream.next;
    }
    let mut offset = 4096;
    if !streams.is_empty() {
        for _ in 0..rng.below(60) {
            let at = rng.below(streams.len());
            offset += act(&mut index, &mut streams[at], offset, rng);
        }
    }
    let sealed = u64::from(offset) + rng.below(100) as u64;
    index.encode(rng.u64() >> rng.below(64), rng.u64(), sealed)
}

struct Stream {
    number: u32,
    next: u64,
    committed: u64,
    glsn: u64,
}

/// Something that may apply; returns the bytes it took in the segment.
fn act(index: &mut SegmentIndex, stream: &mut Stream, offset: u32, rng: &mut Rng) -> u32 {
    let bytes = 8 * rng.within(10..=600) as u32;
    match rng.below(8) {
        0 => {
            let length = 1 + rng.below(8) as u64;
            let run = CommitRun {
                glsn_begin: stream.glsn,
                llsn_begin: stream.committed,
                length,
            };
            if index.commit(stream.number, NATIVE, run).is_ok() {
                stream.committed += length;
                stream.glsn += length + rng.below(2) as u64;
            }
        }
        1 => {
            let from = stream.next.saturating_sub(rng.below(12) as u64);
            if index.cut(stream.number, from, offset).is_ok() {
                stream.next = from;
            }
        }
        2 => {
            let frame = frame(rng.below(500) as u64, offset, bytes, rng);
            let _ = index.note_moved(stream.number, frame);
        }
        _ => {
            let frame = frame(stream.next, offset, bytes, rng);
            if index.note(stream.number, NATIVE, frame).is_ok() {
                stream.next += u64::from(frame.count);
            }
        }
    }
    bytes
}

fn frame(llsn: u64, offset: u32, bytes: u32, rng: &mut Rng) -> FrameEntry {
    let timestamp_min = rng.time_below(1000);
    FrameEntry {
        llsn,
        count: 1 + rng.below(30) as u32,
        offset,
        bytes,
        timestamp_min,
        timestamp_max: timestamp_min + rng.time_below(1000),
    }
}
