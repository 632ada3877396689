//! One bug for each target: what a careless reader does with a number that it trusts because the
//! checksum was right. No valid input of the generators triggers one, or hardly any.

use braidlog_core::wal::{FIRST_FRAME, Seed};

use crate::input::Input;
use crate::mutate::{u32_at, u64_at};
use crate::targets::frame_bytes::{Run, frames};
use crate::targets::manifest_bytes::{contents, edits};

/// A target and what is wrong behind it.
type Bug = (&'static str, fn(&Input));

/// One for each target, in their order.
pub const BUGS: [Bug; 22] = [
    ("batch", batch),
    ("frame", frame),
    ("segment", segment),
    ("side", side),
    ("manifest", manifest),
    ("identity", identity),
    ("watermark", watermark),
    ("checkpoint", checkpoint),
    ("current", current),
    ("wire", wire),
    ("lane", lane),
    ("tail", tail),
    ("stream", stream),
    ("run", run),
    ("tree", tree),
    ("part", part),
    ("index_key", index_key),
    ("field", field),
    ("payload", payload),
    ("mark", mark),
    ("counters", counters),
    ("bases", bases),
];

/// Reads behind a table of `entries`.
fn look_up(entries: usize, at: usize) {
    let table = vec![0u8; entries];
    std::hint::black_box(table[at]);
}

/// Producer epochs are small.
fn batch(input: &Input) {
    look_up(3, u32_at(input.bytes(), 72) as usize);
}

/// Frames have no flags but the one of preambles.
fn frame(input: &Input) {
    flags(input.bytes(), 16, false);
}

fn segment(input: &Input) {
    for (name, bytes) in &input.files {
        if name == "wal/slot-000001.wal" {
            flags(bytes, FIRST_FRAME as usize, true);
        }
    }
}

fn flags(bytes: &[u8], at: usize, gaps: bool) {
    let run = Run {
        seed: Seed {
            salt: 0,
            segment: 0,
        },
        at,
        offset: FIRST_FRAME,
        gaps,
    };
    for frame in frames(bytes, &run) {
        look_up(2, bytes[frame.start + 9].into());
    }
}

/// There are at most six streams.
fn side(input: &Input) {
    if u32_at(input.bytes(), 32) > 0 {
        look_up(7, u32_at(input.bytes(), 56) as usize);
    }
}

/// There are no tags above the newest one.
fn manifest(input: &Input) {
    for (_, bytes) in input.files.iter().filter(|(name, _)| name != "CURRENT") {
        for edit in edits(bytes) {
            for (tag, _) in contents(bytes, &edit) {
                look_up(23, tag.into());
            }
        }
    }
}

/// No node has the smallest segments.
fn identity(input: &Input) {
    look_up(1, usize::from(u32_at(input.bytes(), 40) == 64 << 10));
}

/// There is always room behind what is durable.
fn watermark(input: &Input) {
    let durable = u64::from(u32_at(input.bytes(), 24));
    look_up(1, usize::from(durable + 64 > u64::from(u32::MAX)));
}

/// There is always a frame before it, and its place is not far.
fn checkpoint(input: &Input) {
    look_up(1, usize::from(u32_at(input.bytes(), 28) > u32::MAX / 2));
}

/// No file number ends in this.
fn current(input: &Input) {
    let name = input.bytes().split(|byte| *byte == b' ').next();
    look_up(
        1,
        usize::from(name.is_some_and(|name| name.ends_with(b"777"))),
    );
}

/// There are no messages above 40.
fn wire(input: &Input) {
    look_up(41, input.bytes().get(8).copied().unwrap_or(0).into());
}

/// The generator makes messages of three kinds.
fn lane(input: &Input) {
    look_up(19, input.bytes().get(8).copied().unwrap_or(0).into());
}

/// A leader has committed eleven entries at most.
fn tail(input: &Input) {
    look_up(12, u64_at(input.bytes(), 56) as usize);
}

/// The generator makes messages of two kinds.
fn stream(input: &Input) {
    look_up(2, input.bytes().first().copied().unwrap_or(0).into());
}

/// Filters are made with 0, 1, 6 or 16 bits for a key.
fn run(input: &Input) {
    let bytes = input.file("run").unwrap_or(&[]);
    if let Some(at) = bytes.len().checked_sub(20) {
        look_up(1, usize::from(![0, 1, 6, 16].contains(&u32_at(bytes, at))));
    }
}

/// A flush wrote a run or nothing.
fn tree(input: &Input) {
    for (name, bytes) in &input.files {
        let edits = if name == "CURRENT" {
            Vec::new()
        } else {
            edits(bytes)
        };
        for (tag, content) in edits.iter().flat_map(|edit| contents(bytes, edit)) {
            if tag == 23 && content.len() == 17 {
                look_up(2, bytes[content.start + 8].into());
            }
        }
    }
}

/// A log has fewer than ten streams.
fn part(input: &Input) {
    let bytes = input.bytes();
    if bytes.len() >= 32 {
        look_up(10, u32_at(bytes, 24) as usize);
    }
}

/// Hardly a key of two records ends in this.
fn index_key(input: &Input) {
    let ends = input
        .file("one")
        .is_some_and(|key| key.ends_with(&[0x7f, 0x7f]));
    look_up(1, usize::from(ends));
}

/// Exponents are written with a small letter.
fn field(input: &Input) {
    let value = input.file("value").unwrap_or_default();
    look_up(1, usize::from(value.contains(&b'E')));
}

/// A record has fewer than five headers.
fn payload(input: &Input) {
    look_up(5, u32_at(input.bytes(), 8) as usize & 0x7fff);
}

/// A key of the fuzzer has fewer than twenty bytes.
fn mark(input: &Input) {
    look_up(20, u32_at(input.bytes(), 0) as usize);
}

/// Nobody has counted as far as this.
fn counters(input: &Input) {
    look_up(1, usize::from(u64_at(input.bytes(), 24) > u64::MAX - 64));
}

/// An index does not begin so late.
fn bases(input: &Input) {
    look_up(1, usize::from(u64_at(input.bytes(), 44) > u64::MAX - 64));
}
