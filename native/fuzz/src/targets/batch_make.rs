//! Valid record batches with random parameters.

use braidlog_core::batch::{BatchBuilder, BatchView, Compression};

use super::batch_bytes::{Lz4, around, lz4};
use crate::rng::Rng;

/// How large a batch may get.
#[derive(Clone, Copy)]
pub enum Size {
    /// A few records: for frames that hold many batches.
    Small,
    /// Some of them over several pages.
    Any,
}

/// A valid batch.
pub fn batch(size: Size, rng: &mut Rng) -> Vec<u8> {
    let (records, value_max) = match size {
        Size::Small => (rng.within(1..=12), 40),
        // Several pages, and more than a point read fetches at once.
        Size::Any if rng.one_in(12) => (rng.within(1..=80), 4000),
        Size::Any if rng.one_in(12) => (rng.within(500..=3000), 8),
        Size::Any => (rng.within(1..=40), 100),
    };
    let compression = *rng.pick(&[
        Compression::None,
        Compression::None,
        Compression::Zstd,
        Compression::Lz4,
    ]);
    let mut out = Vec::new();
    let builder = records_of(records, value_max, rng);
    if builder.encode_into(compression, &mut out).is_err() {
        return Vec::new();
    }
    if compression == Compression::Lz4 && rng.one_in(2) {
        foreign(&out, rng).unwrap_or(out)
    } else {
        out
    }
}

fn records_of(count: usize, value_max: usize, rng: &mut Rng) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    let (keys, headers) = (rng.below(3), rng.one_in(3));
    // Most batches have none, as most logs do; nearly all or some of a batch otherwise.
    let nulls = *rng.pick(&[0, 0, 0, 2, 9]);
    let (start, step) = (rng.u64().cast_signed() >> rng.below(64), rng.below(3));
    for index in 0..count as u32 {
        let len = rng.below(value_max + 1);
        let value = rng.bytes(len);
        let value = Some(value.as_slice()).filter(|_| nulls == 0 || !rng.one_in(nulls));
        // No keys, keys, or keys some of which are null; few different ones.
        let len = rng.below(9);
        let key = (keys == 1 || (keys == 2 && !rng.one_in(3))).then(|| rng.bytes(len));
        let timestamp = match step {
            0 => start,
            1 => start.saturating_add(index.into()),
            _ => start.saturating_add(rng.time_below(1000)),
        };
        let entries = if headers { rng.below(4) } else { 0 };
        let owned: Vec<(&str, Option<Vec<u8>>)> = (0..entries)
            .map(|_| {
                let name = *rng.pick(&["", "a", "zwölf", "trace-id", "Ω"]);
                let len = rng.below(20);
                let present = nulls == 0 || !rng.one_in(nulls);
                (name, present.then(|| vec![len as u8; len]))
            })
            .collect();
        let headers: Vec<(&str, Option<&[u8]>)> = owned
            .iter()
            .map(|(name, value)| (*name, value.as_deref()))
            .collect();
        let pushed = builder.push(value, key.as_deref(), timestamp, &headers);
        if pushed.is_err() {
            break;
        }
    }
    if rng.one_in(3) {
        let (id, epoch) = (1 + rng.below(4) as u64, rng.below(3) as u32);
        builder.set_producer(id, epoch, 1 + rng.below(50) as u64);
    }
    builder
}

/// The same batch as another lz4 encoder might have written it.
fn foreign(batch: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let view = BatchView::parse(batch).ok()?;
    let stored = lz4(view.body(), Lz4::Allowed, rng)?;
    around(batch, view.body(), Compression::Lz4, &stored)
}
