//! Frames of a Raft group: `Tail::take_append` of a follower and `Tail::take_answer` of its leader.
//!
//! The input is one frame. Accepted means that one of them took it. An append that was taken encodes to the same
//! bytes, but for the epoch of its sender, which counts for nothing; an answer says no more than the leader has. Whoever
//! did not take it is as before.

use std::convert::Infallible;

use braidlog_core::crc32;
use braidlog_core::lane::tail::{
    Answer, Entry, Heading, PLAIN, Steady, Tail as Log, encode_answer, encode_append,
};

use crate::input::Input;
use crate::mutate::{Field, damage, put_u32};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// The end of both logs, and the term of the entry there.
const LAST: u64 = 7;
const LAST_TERM: u64 = 4;

const LEADER: u64 = 1;
const FOLLOWER: u64 = 2;
const TERM: u64 = 5;

/// The target.
pub struct Tail;

impl Target for Tail {
    fn name(&self) -> &'static str {
        "tail"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let epoch = rng.below(9) as u64;
        if rng.one_in(4) {
            return Input::single(encode_answer(&Answer {
                sender: FOLLOWER,
                receiver: LEADER,
                term: TERM,
                epoch,
                index: rng.below(8) as u64,
            }));
        }
        let count = rng.below(4);
        let entries: Vec<_> = (0..count)
            .map(|_| {
                let len = rng.below(60);
                entry(&rng.bytes(len))
            })
            .collect();
        Input::single(append(epoch, rng.below(12) as u64, &entries))
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let mut fields: Vec<Field> = (8..64).step_by(8).map(|at| (at, 8)).collect();
        fields.extend([(0, 1), (1, 1), (2, 2), (40, 1), (64, 4), (68, 8), (76, 8)]);
        fields.extend([(84, 1), (85, 4)]);
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        let bytes = input.bytes_mut();
        if bytes.len() >= 8 {
            let sum = crc32::extend(crc32::crc32(&bytes[..4]), &bytes[8..]);
            put_u32(bytes, 4, sum);
        }
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let (mut follower, mut leader) = (log(), log());
        leader.track(&[FOLLOWER]);
        let keep = |_, _, data: &[u8]| Ok::<_, Infallible>(data.to_vec());
        let Ok(taken) = follower.take_append(bytes, &steady(FOLLOWER), keep);
        if let Some(answer) = taken {
            let added = (follower.last() - LAST) as usize;
            let entries: Vec<_> = (0..added)
                .map(|at| entry(&follower.entry(at).data))
                .collect();
            let number = |at: usize| {
                let field = bytes.get(at..at + 8).and_then(|it| it.try_into().ok());
                field.map_or(0, u64::from_le_bytes)
            };
            hold(append(number(32), number(56), &entries) == bytes, || {
                format!("{added} entries encode to other bytes")
            })?;
            hold(answer.index == follower.last(), || format!("{answer:?}"))?;
        } else {
            let end = (follower.last(), follower.commit());
            hold(end == (LAST, LAST), || format!("{end:?} by a cold frame"))?;
        }
        follower.check().map_err(|broken| broken.to_string())?;
        let answered = leader.take_answer(bytes, &steady(LEADER));
        let matched = leader.peer(FOLLOWER).map_or(0, |peer| peer.matched);
        hold(answered.is_some() || matched == 0, || {
            format!("{matched} by a cold frame")
        })?;
        leader.check().map_err(|broken| broken.to_string())?;
        if taken.is_some() || answered.is_some() {
            Ok(Verdict::Accepted)
        } else {
            Ok(Verdict::Refused)
        }
    }
}

/// A log that ends at [`LAST`], all of it committed and applied.
fn log() -> Log<Vec<u8>, ()> {
    Log::new(LAST, LAST_TERM, None)
}

fn steady(id: u64) -> Steady {
    Steady {
        id,
        leader: LEADER,
        term: TERM,
        epoch: 3,
    }
}

fn entry(data: &[u8]) -> Entry<Vec<u8>> {
    Entry {
        term: TERM,
        kind: PLAIN,
        size: data.len() as u64,
        data: data.to_vec(),
    }
}

fn append(epoch: u64, commit: u64, entries: &[Entry<Vec<u8>>]) -> Vec<u8> {
    let heading = Heading {
        sender: LEADER,
        receiver: FOLLOWER,
        term: TERM,
        epoch,
        previous: LAST,
        previous_term: LAST_TERM,
        commit,
    };
    encode_append(&heading, entries.iter(), |data| data.as_slice())
}
