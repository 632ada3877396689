//! Record batches: [`parse_head`], [`BatchView`], point reads, filters.
//!
//! Accepted means that the whole batch parsed. Then all of its records are there, a point read of
//! any gives the same, filters find what a plain loop finds, and encoding the records again gives
//! a batch of the same records. Point reads are tried on refused batches too: they verify less.

use braidlog_core::batch::{
    BatchBuilder, BatchHead, BatchView, Compression, OwnedRecord, PointPlan, RecordRef, filter_key,
    first_at_or_after, parse_head,
};
use braidlog_core::error::Error;
use braidlog_core::limits::BATCH_BYTES_MAX;

use super::batch_bytes::{FIELDS, assemble, counts, offset_fields, reseal};
use super::batch_make::{self, Size};
use crate::input::Input;
use crate::mutate::{self, damage};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, general_bound, hold};

/// Point reads tried on one batch.
const POINTS: usize = 12;

/// Most records of a batch that is compared in full.
const COMPARED_MAX: u32 = 16 << 10;

/// Rounds a point read may take: what its documentation promises.
const ROUNDS: usize = 13;

/// The target.
pub struct Batch;

impl Target for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        Input::single(batch_make::batch(Size::Any, rng))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let bytes = input.bytes_mut();
        if rng.one_in(3)
            && let Some(changed) = with_damaged_body(bytes, other.bytes(), rng)
        {
            *bytes = changed;
            return;
        }
        damage(bytes, &FIELDS, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        reseal(input.bytes_mut(), rng);
    }

    /// A compressed batch says how long its body is, up to the limit of a batch.
    fn bound(&self, input: &Input) -> usize {
        let compressed = mutate::read(input.bytes(), (5, 1)).is_some_and(|code| code != 0);
        general_bound(input) + if compressed { BATCH_BYTES_MAX } else { 0 }
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        check(input.bytes())
    }
}

/// Damage behind the checksums, and behind the compression.
fn with_damaged_body(bytes: &[u8], other: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let view = BatchView::parse(bytes).ok()?;
    let mut raw = view.body().to_vec();
    let fields = offset_fields(&counts(bytes), raw.len());
    damage(&mut raw, &fields, other, rng);
    let compression = *rng.pick(&[Compression::None, Compression::Zstd, Compression::Lz4]);
    assemble(bytes, &raw, compression, rng)
}

/// What one batch must hold to; also used for the batches inside frames.
pub fn check(bytes: &[u8]) -> Result<Verdict, Broken> {
    let head = match parse_head(bytes) {
        Ok(head) => head,
        Err(error) => {
            malformed("parse_head", &error)?;
            let whole = BatchView::parse(bytes).is_ok();
            hold(!whole, || "parsed without its head".into())?;
            return Ok(Verdict::Refused);
        }
    };
    let len = BatchHead::len_of(bytes).map_err(|error| format!("len_of: {error}"))?;
    hold(len == head.head_len(), || "len_of differs".into())?;
    let mut rng = Rng::new(u64::from(crc32c::crc32c(bytes)), "points", 0);
    let points = points(&head, &mut rng);
    let body = bytes.get(head.head_len()..).unwrap_or_default();
    let found = points
        .iter()
        .map(|index| point(&head, *index, body))
        .collect::<Result<Vec<_>, Broken>>()?;
    let view = match BatchView::parse(bytes) {
        Ok(view) => view,
        Err(error) => {
            malformed("parse", &error)?;
            return Ok(Verdict::Refused);
        }
    };
    for (index, found) in points.into_iter().zip(found) {
        let whole = view.record(index).map(OwnedRecord::from);
        hold(whole.is_some() && found == whole, || {
            format!("point read of record {index}: {found:?}, decoded {whole:?}")
        })?;
    }
    // Holding every record costs the fuzzer more than the decoder, so not for too many.
    if view.count() <= COMPARED_MAX {
        consistent(&view, bytes, &mut rng)?;
    }
    Ok(Verdict::Accepted)
}

/// Decoders of bytes refuse with `Malformed` and nothing else.
pub fn malformed(what: &str, error: &Error) -> Result<(), Broken> {
    hold(matches!(error, Error::Malformed { .. }), || {
        format!("{what} refused with {error:?}")
    })
}

fn points(head: &BatchHead<'_>, rng: &mut Rng) -> Vec<u32> {
    let count = head.count() as usize;
    // A compressed body is decompressed for each.
    let most = if head.compression() == Compression::None {
        POINTS
    } else {
        3
    };
    if count <= most {
        return (0..head.count()).collect();
    }
    let mut points: Vec<u32> = (0..most - 2).map(|_| rng.below(count) as u32).collect();
    points.extend([0, head.count() - 1]);
    points
}

/// Read one record by its pages; `None` if it is refused.
fn point(head: &BatchHead<'_>, index: u32, body: &[u8]) -> Result<Option<OwnedRecord>, Broken> {
    let refused = |error: &Error| malformed("point read", error).map(|()| None);
    let mut plan = match PointPlan::new(head, index) {
        Ok(plan) => plan,
        Err(error) => return refused(&error),
    };
    for _ in 0..ROUNDS {
        let range = match plan.need() {
            Ok(Some(range)) => range,
            Err(error) => return refused(&error),
            Ok(None) => {
                let record = plan.record();
                return match record {
                    Ok(Some(record)) => Ok(Some(record.into())),
                    Ok(None) => Err("a point read needs nothing and has no record".into()),
                    Err(error) => refused(&error),
                };
            }
        };
        hold(range.end <= head.stored_len(), || {
            format!("pages {range:?} asked for in {} bytes", head.stored_len())
        })?;
        let Some(pages) = body.get(range.clone()) else {
            return Ok(None);
        };
        if let Err(error) = plan.supply(range.start, pages) {
            return refused(&error);
        }
    }
    Err(format!("a point read takes more than {ROUNDS} rounds"))
}

fn consistent(view: &BatchView<'_>, bytes: &[u8], rng: &mut Rng) -> Result<(), Broken> {
    let head = view.head();
    let records: Vec<RecordRef<'_>> = view.iter().collect();
    let count = view.count() as usize;
    hold(records.len() == count, || {
        format!("{} of {count} records are there", records.len())
    })?;
    let verified = BatchView::parse_verified(bytes).map_err(|error| format!("again: {error}"))?;
    hold(verified.body() == view.body(), || {
        "parsed twice, two bodies".into()
    })?;
    let timestamps = records.iter().map(|record| record.timestamp);
    let bounds = (timestamps.clone().min(), timestamps.clone().max());
    let stated = (Some(head.min_timestamp()), Some(head.max_timestamp()));
    hold(bounds == stated, || {
        format!("timestamps {bounds:?}, head {stated:?}")
    })?;
    for _ in 0..3 {
        let probe = rng.pick(&records);
        let key = probe.key.unwrap_or_default();
        let plain: Vec<u32> = (0..)
            .zip(&records)
            .filter(|(_, record)| record.key == Some(key))
            .map(|(index, _)| index)
            .collect();
        let found = filter_key(view, key);
        hold(found == plain, || {
            format!("key {key:?} is in {plain:?}, found {found:?}")
        })?;
        let wanted = probe.timestamp.saturating_add(rng.time_below(3) - 1);
        let plain = timestamps.clone().position(|timestamp| timestamp >= wanted);
        let found = first_at_or_after(view, wanted);
        hold(found == plain.map(|index| index as u32), || {
            format!("timestamp {wanted} is first in {plain:?}, found {found:?}")
        })?;
    }
    again(view, &records)
}

/// The records, encoded again, are the same records.
fn again(view: &BatchView<'_>, records: &[RecordRef<'_>]) -> Result<(), Broken> {
    let head = view.head();
    let mut builder = BatchBuilder::new();
    for record in records {
        let headers: Vec<(&str, Option<&[u8]>)> = record.headers.clone().collect();
        hold(headers.len() == record.headers.len(), || {
            "headers get lost".into()
        })?;
        builder
            .push(record.value, record.key, record.timestamp, &headers)
            .map_err(|error| format!("push again: {error}"))?;
    }
    let producer = head.producer();
    builder.set_producer(producer.id, producer.epoch, producer.base_sequence);
    let mut bytes = Vec::new();
    builder
        .encode_into(head.compression(), &mut bytes)
        .map_err(|error| format!("encode again: {error}"))?;
    let second = BatchView::parse(&bytes).map_err(|error| format!("parse again: {error}"))?;
    let equal = second.head().producer() == producer
        && second
            .iter()
            .map(OwnedRecord::from)
            .eq(records.iter().cloned().map(OwnedRecord::from));
    hold(equal, || "encoded again, other records".into())
}
