//! Frames: [`parse_frame`], [`Change::decode`], [`State::decode`], and the fold of all.
//!
//! The input is the salt, the segment number, and a run of frames as they stand behind a segment's
//! header: a preamble, then changes. Accepted means that every byte belongs to a frame that
//! applied. A change encodes to what it was decoded from; and whatever was accepted, the state it
//! adds up to can be written as a preamble and read again: otherwise the next segment could not
//! be opened. What is pending in the orders of logs is added up from any frames.

use braidlog_core::wal::{
    Change, FIRST_FRAME, FLAG_MORE, FRAME_HEADER, Frame, Kind, Orders, Seed, State, frame_change,
    parse_frame,
};

use super::batch::malformed;
use super::frame_bytes::{self, Run};
use super::frame_make::Maker;
use crate::input::Input;
use crate::mutate::u64_at;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// Bytes of salt and segment number in front of the frames.
const PREFIX: usize = 16;

/// The target.
pub struct Frames;

impl Target for Frames {
    fn name(&self) -> &'static str {
        "frame"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let seed = Seed {
            salt: rng.u64(),
            segment: 1 + rng.below(9) as u64,
        };
        let (before, after) = (rng.below(30), rng.within(1..=24));
        let mut maker = Maker::new(seed, FIRST_FRAME, rng);
        maker.changes(before);
        maker.restart();
        maker.changes(after);
        let mut bytes = seed.salt.to_le_bytes().to_vec();
        bytes.extend_from_slice(&seed.segment.to_le_bytes());
        bytes.extend_from_slice(&maker.bytes);
        Input::single(bytes)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let run = run_of(input.bytes());
        frame_bytes::mutate(input.bytes_mut(), &run, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        let run = run_of(input.bytes());
        frame_bytes::reseal(input.bytes_mut(), &run, rng);
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let Some(frames) = bytes.get(PREFIX..) else {
            return Ok(Verdict::Refused);
        };
        let mut fold = Fold::default();
        let mut at = 0;
        while at < frames.len() {
            let offset = FIRST_FRAME + at as u32;
            let frame = match parse_frame(&frames[at..], run_of(bytes).seed, offset) {
                Ok(frame) => frame,
                Err(error) => {
                    malformed("parse_frame", &error)?;
                    return fold.end(Verdict::Refused);
                }
            };
            let end = at + frame.length as usize;
            hold(frame.end() as usize == FIRST_FRAME as usize + end, || {
                format!("{frame:?} ends elsewhere")
            })?;
            let payload = at + FRAME_HEADER..at + FRAME_HEADER + frame.payload as usize;
            // Only the head is vouched for; the rest may not be there.
            let Some(payload) = frames.get(payload).filter(|_| end <= frames.len()) else {
                return fold.end(Verdict::Refused);
            };
            if !fold.frame(&frame, payload)? {
                return fold.end(Verdict::Refused);
            }
            at = end;
        }
        let verdict = if fold.state.is_some() {
            Verdict::Accepted
        } else {
            Verdict::Refused
        };
        fold.end(verdict)
    }
}

fn run_of(bytes: &[u8]) -> Run {
    Run {
        seed: Seed {
            salt: u64_at(bytes, 0),
            segment: u64_at(bytes, 8),
        },
        at: PREFIX,
        offset: FIRST_FRAME,
        gaps: false,
    }
}

#[derive(Default)]
struct Fold {
    preamble: Vec<u8>,
    /// There once the preamble is complete.
    state: Option<State>,
    orders: Orders,
}

impl Fold {
    /// Take one frame; whether it was accepted.
    fn frame(&mut self, frame: &Frame, payload: &[u8]) -> Result<bool, Broken> {
        let header = &frame.header;
        let change = match frame_change(frame, payload) {
            Ok((change, (min, max))) => {
                hold(min <= max, || format!("timestamps {min} and {max}"))?;
                change
            }
            Err(error) => return malformed("frame_change", &error).map(|()| false),
        };
        if !matches!(header.kind, Kind::Batch | Kind::Moved) {
            let again = Change::decode(header, &change.payload());
            let same = matches!(&again, Ok(again) if *again == change);
            hold(same, || {
                format!("{change:?} encodes to what decodes to {again:?}")
            })?;
        }
        let Some(state) = &mut self.state else {
            self.preamble.extend_from_slice(payload);
            if header.kind != Kind::Preamble {
                return Ok(false);
            }
            if header.flags & FLAG_MORE == 0 {
                match State::decode(&self.preamble) {
                    Ok(state) => self.state = Some(state),
                    Err(error) => return malformed("State::decode", &error).map(|()| false),
                }
                return self.written_and_read().map(|()| true);
            }
            return Ok(true);
        };
        if state.apply(header, &change).is_err() {
            return Ok(false);
        }
        self.orders.fold(state, header, frame.length, &change);
        Ok(true)
    }

    fn end(&self, verdict: Verdict) -> Result<Verdict, Broken> {
        self.written_and_read().map(|()| verdict)
    }

    /// The state survives being written as a preamble.
    fn written_and_read(&self) -> Result<(), Broken> {
        let Some(state) = &self.state else {
            return Ok(());
        };
        let bytes = state.encode();
        let again = State::decode(&bytes)
            .map_err(|error| format!("a state that was built is refused: {error}; {state:?}"))?;
        hold(again == *state, || {
            format!("a state changes when it is written and read: {state:?}, then {again:?}")
        })?;
        for stream in state.streams.values() {
            let ordered = stream.low <= stream.committed && stream.committed <= stream.next;
            hold(ordered, || format!("stream out of order: {stream:?}"))?;
        }
        Ok(())
    }
}
