//! What the number index costs: nanoseconds per call, bytes per sample.
//!
//! `cargo run --release -p braidlog-core --example index_speed`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::hint::black_box;
use std::time::Instant;

use braidlog_core::Result;
use braidlog_core::index::{FrameEntry, NATIVE, SegmentIndex, StreamIndex, decode, decode_summary};

const SEGMENT_BYTES: u32 = 64 << 20;
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;
const LOOKUPS: u32 = 4_000_000;

fn main() -> Result<()> {
    println!(
        "{} / {}; seed {SEED:#x}",
        std::env::consts::ARCH,
        std::env::consts::OS
    );
    for bytes in [64, 1024, 4096] {
        one_stream(bytes)?;
    }
    many_streams(1000, 512)
}

fn frame(llsn: u64, offset: u32, bytes: u32) -> FrameEntry {
    FrameEntry {
        llsn,
        count: 4,
        offset,
        bytes,
        timestamp_min: 0,
        timestamp_max: 0,
    }
}

/// One stream fills a segment with frames of `bytes`.
fn one_stream(bytes: u32) -> Result<()> {
    let frames = SEGMENT_BYTES / bytes;
    let mut index = StreamIndex::new(false);
    let start = Instant::now();
    for i in 0..frames {
        index.note(frame(u64::from(i) * 4, i * bytes, bytes))?;
    }
    let note = per_call(start, frames);
    let end = u64::from(frames) * 4;
    let floor = random(end, |llsn| {
        u64::from(index.floor(llsn).map_or(0, |p| p.offset))
    });
    let ceil = random(end, |llsn| {
        u64::from(index.ceil(llsn).map_or(0, |p| p.offset))
    });
    println!(
        "1 stream, frames of {bytes}: {frames} frames, {} samples; note {note:.1} ns, \
         floor {floor:.1} ns, ceil {ceil:.1} ns",
        index.samples().len()
    );
    Ok(())
}

/// `streams` take turns; then the side file.
fn many_streams(streams: u32, bytes: u32) -> Result<()> {
    let frames = SEGMENT_BYTES / bytes;
    let mut index = SegmentIndex::new();
    let start = Instant::now();
    for i in 0..frames {
        index.note(
            i % streams,
            NATIVE,
            frame(u64::from(i / streams) * 4, i * bytes, bytes),
        )?;
    }
    let note = per_call(start, frames);
    let end = u64::from(frames / streams) * 4;
    let floor = random(end, |llsn| {
        u64::from(
            index
                .floor((llsn as u32).wrapping_mul(31) % streams, NATIVE, llsn)
                .map_or(0, |p| p.offset),
        )
    });
    println!("{streams} streams, frames of {bytes}: note {note:.1} ns, floor {floor:.1} ns");
    println!("  memory {} bytes", index.memory_bytes());

    let start = Instant::now();
    let file = index.encode(1, 2, u64::from(SEGMENT_BYTES));
    println!(
        "  side file {} bytes, encode {:.0} us",
        file.len(),
        micros(start)
    );
    let start = Instant::now();
    black_box(decode(&file)?);
    println!("  decode {:.0} us", micros(start));
    let start = Instant::now();
    black_box(decode_summary(&file)?);
    println!("  decode_summary {:.0} us", micros(start));
    Ok(())
}

/// Nanoseconds per call of `look` over random numbers below `end`.
fn random(end: u64, look: impl Fn(u64) -> u64) -> f64 {
    let mut state = SEED;
    let mut sum = 0_u64;
    let start = Instant::now();
    for _ in 0..LOOKUPS {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        sum = sum.wrapping_add(look((state >> 33) % end));
    }
    let nanos = per_call(start, LOOKUPS);
    black_box(sum);
    nanos
}

fn per_call(start: Instant, calls: u32) -> f64 {
    start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}
