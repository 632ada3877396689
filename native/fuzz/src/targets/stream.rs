//! What replicas of a log stream are sent, and what they report: heads of batches and of cuts, and what a settled replica
//! takes of them, and heads of reports.
//!
//! The input is one head, behind a byte that says of which message. Accepted means that a replica took it. Batches that were
//! taken are the next ones of its epoch; a cut that was taken goes on where the stream is committed, with records that
//! are durable, and numbers rise with it.

use braidlog_core::lane::leader::{Node, Told};
use braidlog_core::lane::report::Report;
use braidlog_core::lane::stream::{Part, Standing, Stream, Taken, commits, replicate};
use braidlog_core::wal::CommitContext;

use crate::input::Input;
use crate::mutate::{Field, damage};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

const STREAM: u64 = 7;
const EPOCH: u64 = 3;
const COMMITTED: u64 = 100;
const NEXT: u64 = 110;
const VERSION: u64 = 20;
const MARK: u64 = 200;
const LOG: [u8; 16] = *b"0123456789abcdef";

/// The target.
pub struct Streams;

impl Target for Streams {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let mut bytes = vec![rng.below(3) as u8];
        if bytes[0] == 2 {
            bytes.extend(reported(rng).encode());
            return Input::single(bytes);
        }
        if bytes[0] == 0 {
            bytes.push(0x94);
            for value in [STREAM, EPOCH, NEXT] {
                number(&mut bytes, value);
            }
            let count = 1 + rng.below(4);
            bytes.push(0x90 | count as u8);
            for _ in 0..count {
                number(&mut bytes, rng.below(70_000) as u64);
            }
            return Input::single(bytes);
        }
        let cuts = 1 + rng.below(2) as u8;
        bytes.extend([0x91, 0x90 | cuts]);
        let (mut committed, mut mark) = (COMMITTED, MARK);
        for cut in 1..=u64::from(cuts) {
            let (length, others) = (1 + rng.below(4) as u64, rng.below(3) as u64);
            bytes.extend([0x94, 0xc4, 16]);
            bytes.extend(LOG);
            number(&mut bytes, VERSION + cut);
            number(&mut bytes, mark + length + others);
            bytes.push(0x90 | (1 + u8::from(others > 0)));
            let mine = [STREAM, committed, mark + 1, length, EPOCH];
            let theirs = [STREAM + 1, 1, mark + 1 + length, others, EPOCH];
            for run in [Some(mine), (others > 0).then_some(theirs)]
                .into_iter()
                .flatten()
            {
                bytes.push(0x95);
                for value in run {
                    number(&mut bytes, value);
                }
            }
            committed += length;
            mark += length + others;
        }
        Input::single(bytes)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let fields: Vec<Field> = (0..input.bytes().len()).map(|at| (at, 1)).collect();
        damage(input.bytes_mut(), &fields, other.bytes(), rng);
    }

    fn reseal(&self, _: &mut Input, _: &mut Rng) {}

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let Some((kind, head)) = input.bytes().split_first() else {
            return Ok(Verdict::Refused);
        };
        let taken = match kind {
            0 => batches(head)?,
            1 => cuts(head)?,
            _ => report(head)?,
        };
        Ok(if taken {
            Verdict::Accepted
        } else {
            Verdict::Refused
        })
    }
}

/// What a node with a few replicas says.
fn reported(rng: &mut Rng) -> Report {
    let told = |rng: &mut Rng| Told {
        epoch: EPOCH,
        version: rng.below(300) as u64,
        committed: COMMITTED,
        end: rng.below(70_000) as u64,
        state: rng.below(8) as u64,
        damaged: rng.one_in(4),
    };
    Report {
        node: rng.below(200) as u64,
        head: Node {
            incarnation: rng.below(70_000) as u64,
            number: rng.below(300) as u64,
            full: rng.one_in(2),
            features: rng.below(256) as u64,
        },
        streams: (0..rng.below(20)).map(|_| (STREAM, told(rng))).collect(),
        syncs: (rng.below(300) as u64, 0),
    }
}

/// A report that is understood says the same again, in no more bytes.
fn report(head: &[u8]) -> Result<bool, Broken> {
    let Some(report) = Report::decode(head) else {
        return Ok(false);
    };
    let again = report.encode();
    hold(again.len() <= head.len(), || format!("{report:?} grows"))?;
    let same = Report::decode(&again).as_ref() == Some(&report);
    hold(same, || format!("{report:?} is another one"))?;
    Ok(true)
}

fn batches(head: &[u8]) -> Result<bool, Broken> {
    let Some(batches) = replicate(head) else {
        return Ok(false);
    };
    let primary = stream(Part::Primary);
    hold(!primary.takes(&batches), || {
        "a primary takes batches".into()
    })?;
    if !stream(Part::Backup).takes(&batches) {
        return Ok(false);
    }
    let next = (batches.stream, batches.epoch, batches.llsn);
    hold(next == (STREAM, EPOCH, NEXT), || format!("{batches:?}"))?;
    // A payload of other sizes is none of these.
    let size: usize = batches
        .sizes
        .iter()
        .fold(0, |sum, size| sum.saturating_add(*size));
    if size < 1 << 20 {
        let payload = vec![0; size + 1];
        hold(batches.split(&payload[..size]).is_some(), || {
            "no parts".into()
        })?;
        hold(batches.split(&payload).is_none(), || {
            "parts and more".into()
        })?;
    }
    Ok(true)
}

fn cuts(head: &[u8]) -> Result<bool, Broken> {
    let Some(cuts) = commits(head) else {
        return Ok(false);
    };
    let mut replica = stream(Part::Backup);
    let mut taken = false;
    for cut in &cuts {
        let before = *replica.standing();
        let context = match replica.cut(cut) {
            None => break,
            Some(Taken::Known) => {
                hold(cut.version <= before.context.version, || format!("{cut:?}"))?;
                continue;
            }
            Some(Taken::Commit(context)) => context,
        };
        let was = before.context;
        let goes_on = context.version > was.version
            && context.llsn_begin == before.committed
            && context.llsn_begin + context.length <= NEXT
            && context.glsn_begin >= was.glsn_begin + was.length
            && context.high_watermark >= was.high_watermark;
        hold(goes_on, || format!("{context:?} behind {was:?}"))?;
        let committed = context.llsn_begin + context.length;
        let after = Standing {
            committed,
            context,
            ..before
        };
        let wrote = replica.wrote(after, 1);
        wrote.map_err(|broken| broken.0.to_owned())?;
        taken = true;
    }
    Ok(taken)
}

/// A settled replica.
fn stream(part: Part) -> Stream<()> {
    let standing = Standing {
        low: 1,
        committed: COMMITTED,
        next: NEXT,
        epoch: EPOCH,
        context: CommitContext {
            version: VERSION,
            glsn_begin: MARK - 1,
            llsn_begin: COMMITTED - 2,
            length: 2,
            high_watermark: MARK,
        },
    };
    let mut stream = Stream::new(STREAM, standing);
    stream.settle(Some(part));
    stream
}

/// A `MessagePack` number in its shortest form.
fn number(bytes: &mut Vec<u8>, value: u64) {
    let digits = value.to_be_bytes();
    match value {
        0..=0x7f => bytes.push(digits[7]),
        0x80..=0xff => bytes.extend([0xcc, digits[7]]),
        0x100..=0xffff => bytes.extend([0xcd, digits[6], digits[7]]),
        _ => {
            bytes.push(0xce);
            bytes.extend(&digits[4..]);
        }
    }
}
