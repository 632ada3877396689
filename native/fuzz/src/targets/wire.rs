//! Frames of a connection: [`Decoder`] and [`Grouping`].
//!
//! The input is what a socket gave. Accepted means that it ends with a whole frame; then its frames
//! encode to the same bytes. Cut into small pieces it gives the same frames and the same verdict.
//! Every group has a stream and an epoch, and only frames of that stream join it.

use braidlog_core::error::Result;
use braidlog_core::wire::{
    Decoder, Frame, Grouping, HEADER_BYTES, Place, append_target, frame_header,
};

use super::batch::malformed;
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// Limit of the decoder, greater than most inputs.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// The target.
pub struct Wire;

impl Target for Wire {
    fn name(&self) -> &'static str {
        "wire"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let mut bytes = Vec::new();
        for _ in 0..rng.within(1..=8) {
            let append = rng.one_in(2);
            let kind = if append { 16 } else { rng.within(1..=40) };
            let head = if append {
                vec![0x92, rng.below(3) as u8, rng.below(3) as u8]
            } else {
                let len = rng.within(1..=40);
                rng.bytes(len)
            };
            let len = rng.below(200);
            let payload = rng.bytes(len);
            if let Ok(header) = frame_header(kind as u8, rng.u32(), &head, &[&payload]) {
                bytes.extend([&header, head.as_slice(), &payload].concat());
            }
        }
        Input::single(bytes)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let mut fields: Vec<Field> = Vec::new();
        for start in starts(input.bytes()) {
            fields.extend([(start, 4), (start + 8, 1), (start + 9, 1), (start + 10, 2)]);
            fields.extend([(start + 12, 4), (start + 16, 4), (start + 20, 1)]);
        }
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        let bytes = input.bytes_mut();
        for start in starts(bytes) {
            let end = start + HEADER_BYTES + u32_at(bytes, start) as usize;
            if let Some(checked) = bytes.get(start + 8..end) {
                let checksum = crc32c::crc32c(checked);
                put_u32(bytes, start + 4, checksum);
            }
        }
    }

    fn check(&self, input: &Input) -> std::result::Result<Verdict, Broken> {
        let bytes = input.bytes();
        let (whole, result) = decode(std::iter::once(bytes));
        let (pieces, again) = decode(bytes.chunks(bytes.len() % 31 + 1));
        hold(pieces.starts_with(&whole), || {
            format!("{} frames, in pieces {}", whole.len(), pieces.len())
        })?;
        hold(result.is_ok() == again.is_ok(), || {
            format!("{result:?}, in pieces {again:?}")
        })?;
        groups(&whole)?;
        match result {
            Ok(0) => {
                hold(encode(&whole) == bytes, || "other bytes".into())?;
                Ok(Verdict::Accepted)
            }
            Ok(_) => Ok(Verdict::Refused),
            Err(error) => {
                malformed("wire::Decoder", &error)?;
                Ok(Verdict::Refused)
            }
        }
    }
}

type Owned = (u8, u32, Vec<u8>, Vec<u8>);

/// The frames, and how many bytes wait for more.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Owned>, Result<usize>) {
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    let mut frames = Vec::new();
    for piece in pieces {
        let fed = decoder.feed(piece, |frame| {
            let (head, payload) = (frame.head.to_vec(), frame.payload.to_vec());
            frames.push((frame.kind, frame.request, head, payload));
        });
        if let Err(error) = fed {
            return (frames, Err(error));
        }
    }
    (frames, Ok(decoder.buffered()))
}

fn encode(frames: &[Owned]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, request, head, payload) in frames {
        if let Ok(header) = frame_header(*kind, *request, head, &[payload]) {
            bytes.extend([&header, head.as_slice(), payload].concat());
        }
    }
    bytes
}

fn groups(frames: &[Owned]) -> std::result::Result<(), Broken> {
    let mut grouping = Grouping::default();
    let mut events = Vec::new();
    for (kind, request, head, payload) in frames {
        let frame = Frame {
            kind: *kind,
            request: *request,
            head,
            payload,
        };
        let target = append_target(&frame);
        match grouping.place(&frame) {
            Place::Single => events.push(None),
            Place::First { stream, epoch } => events.push(Some((stream, epoch))),
            Place::Join(event) => hold(events.get(event) == Some(&target), || {
                format!("{target:?} joins event {event} of {events:?}")
            })?,
        }
    }
    Ok(())
}

/// Where frames begin, as far as the lengths say.
fn starts(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = 0;
    while at + HEADER_BYTES <= bytes.len() {
        starts.push(at);
        at += HEADER_BYTES + u32_at(bytes, at) as usize;
    }
    starts
}
