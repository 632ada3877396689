//! One end of a connection: [`Conn::feed`], on both sides.
//!
//! The input is what a socket gave. Whoever feeds it answers nothing and handles what is cold by
//! passing over it. Accepted means that it ends with a whole frame. Then every frame was taken or
//! returned, in order; cut into small pieces it gives the same, but for the groups. What the open
//! requests take is what their frames take, and never more than the window. Answers that were taken encode to
//! the same numbers.

use braidlog_core::error::Result;
use braidlog_core::lane::{Conn, Event, Side, cost, decode_appended, encode_appended};
use braidlog_core::wire::{Decoder, frame_header};

use super::batch::malformed;
use super::wire::Wire;
use crate::input::Input;
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, hold};

/// Limit of the decoder, greater than most inputs.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// Small, so that some requests find no room.
const WINDOW: u64 = 1500;

/// Appends that the client has asked for.
const ASKED: u32 = 4;

/// The target.
pub struct Lane;

impl Target for Lane {
    fn name(&self) -> &'static str {
        "lane"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let mut bytes = Vec::new();
        for _ in 0..rng.within(1..=8) {
            let kind = rng.within(16..=18) as u8;
            let number = |rng: &mut Rng| rng.below(100) as u8;
            let head = match kind {
                16 => vec![0x92, number(rng) % 3, number(rng) % 2],
                17 => vec![0x94, number(rng), number(rng), number(rng), number(rng)],
                _ => rng.bytes(4),
            };
            let len = if kind == 16 { rng.within(1..=400) } else { 0 };
            let payload = rng.bytes(len);
            let request = rng.below(7) as u32;
            if let Ok(header) = frame_header(kind, request, &head, &[&payload]) {
                bytes.extend([&header, head.as_slice(), &payload].concat());
            }
        }
        Input::single(bytes)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        Wire.mutate(input, other, rng);
    }

    fn reseal(&self, input: &mut Input, rng: &mut Rng) {
        Wire.reseal(input, rng);
    }

    fn check(&self, input: &Input) -> std::result::Result<Verdict, Broken> {
        let mut verdict = Verdict::Accepted;
        for side in [Side::Client, Side::Server] {
            if check(side, input.bytes())? == Verdict::Refused {
                verdict = Verdict::Refused;
            }
        }
        Ok(verdict)
    }
}

/// What came of one frame: its kind and number, and whether it was taken.
type Seen = (u8, u32, bool);

fn check(side: Side, bytes: &[u8]) -> std::result::Result<Verdict, Broken> {
    let (mut conn, mut again) = (opened(side), opened(side));
    let (whole, result) = feed(&mut conn, std::iter::once(bytes))?;
    let (pieces, cut) = feed(&mut again, bytes.chunks(bytes.len() % 31 + 1))?;
    hold(pieces.starts_with(&whole), || {
        format!("{whole:?}, in pieces {pieces:?}")
    })?;
    hold(result.is_ok() == cut.is_ok(), || {
        format!("{result:?}, in pieces {cut:?}")
    })?;
    if let Err(error) = result {
        malformed("lane::Conn", &error)?;
        return Ok(Verdict::Refused);
    }
    hold(whole == pieces && ledger(&conn) == ledger(&again), || {
        format!("{:?}, in pieces {:?}", ledger(&conn), ledger(&again))
    })?;
    let mut expected = Vec::new();
    let mut decoder = Decoder::new(FRAME_BYTES_MAX);
    let fed = decoder.feed(bytes, |frame| {
        expected.push((frame.kind, frame.request, cost(frame.size())));
    });
    let same = expected.len() == whole.len()
        && expected
            .iter()
            .zip(&whole)
            .all(|(frame, seen)| (frame.0, frame.1) == (seen.0, seen.1));
    hold(fed.is_ok() && same, || format!("{whole:?} of {expected:?}"))?;
    if side == Side::Server {
        let opened = expected.iter().zip(&whole).filter(|(_, seen)| seen.2);
        let used: u64 = opened.map(|(frame, _)| frame.2).sum();
        hold(used == conn.requests().used(), || {
            format!(
                "{used} bytes were opened, {} are used",
                conn.requests().used()
            )
        })?;
    }
    Ok(if decoder.buffered() == 0 {
        Verdict::Accepted
    } else {
        Verdict::Refused
    })
}

fn opened(side: Side) -> Conn<()> {
    let mut conn = Conn::new(side, WINDOW, FRAME_BYTES_MAX, FRAME_BYTES_MAX, 0);
    conn.set_hot(true);
    if side == Side::Client {
        for _ in 0..ASKED {
            // There is room for all of them.
            let _ = conn.requests_mut().ask(16, 1);
        }
    }
    conn
}

fn ledger(conn: &Conn<()>) -> (Vec<u32>, u64) {
    (conn.requests().numbers(), conn.requests().used())
}

/// Feed all pieces, passing over what is cold.
fn feed<'a>(
    conn: &mut Conn<()>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> std::result::Result<(Vec<Seen>, Result<()>), Broken> {
    let mut seen = Vec::new();
    for piece in pieces {
        let mut rest = piece;
        while !rest.is_empty() {
            let (mut ended, mut broken) = (false, None);
            let fed = conn.feed(
                rest,
                |_| false,
                |event| {
                    if ended {
                        broken = Some("something follows a cold frame".to_owned());
                    }
                    match event {
                        Event::Append { request, .. } => seen.push((16, request, true)),
                        Event::Appended { request, appended } => {
                            let head = encode_appended(&appended);
                            if decode_appended(&head) != Some(appended) {
                                broken = Some(format!("{appended:?} is encoded as {head:?}"));
                            }
                            seen.push((17, request, true));
                        }
                        Event::Cold(frame) => {
                            ended = true;
                            seen.push((frame.kind, frame.request, false));
                        }
                    }
                },
            );
            if let Some(broken) = broken {
                return Err(broken);
            }
            let taken = match fed {
                Ok(taken) => taken,
                Err(error) => return Ok((seen, Err(error))),
            };
            hold(taken == rest.len() || ended, || {
                "it stopped too early".into()
            })?;
            hold(conn.requests().used() <= WINDOW, || {
                "over the window".into()
            })?;
            rest = &rest[taken..];
        }
    }
    Ok((seen, Ok(())))
}
