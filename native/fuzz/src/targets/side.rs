//! Side files: [`decode`] and [`decode_summary`].
//!
//! A side file has one encoding, so accepted means that the index encodes to the same bytes. Then
//! the summary agrees with the index, and every lookup answers within what the index says.

use braidlog_core::index::{
    HEADER_BYTES, SegmentIndex, StreamIndex, decode, decode_summary, summary_bytes,
};

use super::batch::malformed;
use super::side_make::side_file;
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// Bytes of one stream's entry.
const ENTRY_BYTES: usize = 112;

/// The numbers of the header.
const HEADER: [Field; 9] = [
    (4, 4),
    (8, 8),
    (16, 8),
    (24, 8),
    (32, 4),
    (36, 4),
    (40, 4),
    (44, 4),
    (52, 4),
];

/// The numbers of an entry.
const ENTRY: [Field; 18] = [
    (0, 4),
    (4, 1),
    (5, 1),
    (6, 2),
    (8, 8),
    (16, 8),
    (24, 4),
    (28, 4),
    (32, 8),
    (40, 8),
    (48, 8),
    (56, 8),
    (64, 8),
    (80, 8),
    (96, 4),
    (100, 4),
    (104, 4),
    (108, 4),
];

/// The target.
pub struct Side;

impl Target for Side {
    fn name(&self) -> &'static str {
        "side"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        Input::single(side_file(rng))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        mutate(input.bytes_mut(), other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        reseal(input.bytes_mut(), rng);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let summary = decode_summary(bytes);
        if let Err(error) = &summary {
            malformed("decode_summary", error)?;
        }
        let (header, index) = match decode(bytes) {
            Ok(decoded) => decoded,
            Err(error) => return malformed("decode", &error).map(|()| Verdict::Refused),
        };
        let again = index.encode(header.segment, header.salt, header.sealed_bytes);
        hold(again == bytes, || "encodes to other bytes".into())?;
        let prefix = summary_bytes(bytes).map_err(|error| format!("summary_bytes: {error}"))?;
        let (found, summaries) = summary.map_err(|error| format!("without summary: {error}"))?;
        let same = found == header && summaries == index.summaries();
        hold(same, || "the summary differs from the index".into())?;
        let cut = bytes
            .get(..prefix as usize)
            .and_then(|head| decode_summary(head).ok());
        hold(cut == Some((found, summaries)), || {
            "the summary needs more than its prefix".into()
        })?;
        lookups(&index)?;
        Ok(Verdict::Accepted)
    }
}

/// Damage a side file.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let entries = u32_at(bytes, 32) as usize;
    let mut fields = HEADER.to_vec();
    for entry in 0..entries.min(8) {
        let begin = HEADER_BYTES + entry * ENTRY_BYTES;
        fields.extend(ENTRY.iter().map(|(at, width)| (begin + at, *width)));
    }
    let body = HEADER_BYTES.saturating_add(entries.saturating_mul(ENTRY_BYTES));
    let arrays = body.saturating_add(u32_at(bytes, 36) as usize);
    let samples = (body..arrays.min(bytes.len())).take(128);
    fields.extend(samples.map(|at| (at, 1)));
    let words = (arrays..bytes.len()).step_by(4).take(128);
    fields.extend(words.map(|at| (at, if rng.one_in(2) { 4 } else { 8 })));
    damage(bytes, &fields, other, rng);
}

/// Make the totals fit the entries, sometimes, and the checksums right, always.
pub fn reseal(bytes: &mut [u8], rng: &mut Rng) {
    let entries = u32_at(bytes, 32) as usize;
    let head = HEADER_BYTES.saturating_add(entries.saturating_mul(ENTRY_BYTES));
    if bytes.len() < HEADER_BYTES || head > bytes.len() {
        return;
    }
    if !rng.one_in(4) {
        let mut samples = bytes.len() - head;
        for (total, count, size) in [(40, 104, 24), (44, 108, 16)] {
            let sum = (HEADER_BYTES..head)
                .step_by(ENTRY_BYTES)
                .fold(0u32, |sum, entry| {
                    sum.wrapping_add(u32_at(bytes, entry + count))
                });
            put_u32(bytes, total, sum);
            samples = samples.saturating_sub(sum as usize * size);
        }
        put_u32(bytes, 36, samples as u32);
    }
    let body = crc32c::crc32c(&bytes[head..]);
    put_u32(bytes, 48, body);
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..52]), &bytes[HEADER_BYTES..head]);
    put_u32(bytes, 52, crc);
}

fn lookups(index: &SegmentIndex) -> Result<(), Broken> {
    for (_, stream) in index.iter() {
        ranges(stream)?;
        runs(stream)?;
        let _ = (stream.memory_bytes(), stream.timestamps(), stream.bytes());
        for cut in stream.cuts() {
            let clipped = stream.clip(cut.from.saturating_sub(1), 9, cut.offset.saturating_sub(1));
            hold(clipped <= 9, || format!("9 records clipped to {clipped}"))?;
        }
    }
    Ok(())
}

fn ranges(stream: &StreamIndex) -> Result<(), Broken> {
    let Some(range) = stream.range() else {
        return Ok(());
    };
    let samples = stream.samples().iter();
    let starts = samples.map(|sample| range.start + u64::from(sample.delta));
    let probes = [
        range.start,
        range.start.saturating_add(1),
        range.start.midpoint(range.end),
        range.end.saturating_sub(1),
        range.end,
        u64::MAX,
        0,
    ];
    for llsn in starts.chain(probes) {
        let (floor, ceil) = (stream.floor(llsn), stream.ceil(llsn));
        let there = range.contains(&llsn);
        hold(floor.is_some() == there && ceil.is_some() == there, || {
            format!("{llsn} in {range:?}: {floor:?}, {ceil:?}")
        })?;
        if let (Some(floor), Some(ceil)) = (floor, ceil) {
            hold(floor.llsn <= llsn && floor.offset <= ceil.offset, || {
                format!("{llsn} between {floor:?} and {ceil:?}")
            })?;
        }
    }
    Ok(())
}

fn runs(stream: &StreamIndex) -> Result<(), Broken> {
    for run in stream.runs() {
        for (llsn, glsn) in [
            (run.llsn_begin, run.glsn_begin),
            (run.llsn_end() - 1, run.glsn_end() - 1),
        ] {
            let found = (stream.glsn_of(llsn), stream.llsn_of(glsn));
            hold(found == (Some(glsn), Some(llsn)), || {
                format!("LLSN {llsn} and GLSN {glsn}: {found:?}")
            })?;
        }
        for glsn in [0, run.glsn_begin, run.glsn_end(), u64::MAX] {
            let (floor, ceil) = (stream.glsn_floor(glsn), stream.glsn_ceil(glsn));
            let below = floor.is_none_or(|point| point.glsn <= glsn);
            let above = ceil.is_none_or(|point| point.glsn >= glsn);
            hold(below && above, || {
                format!("GLSN {glsn} between {floor:?} and {ceil:?}")
            })?;
        }
    }
    Ok(())
}
