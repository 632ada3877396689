//! One end of a connection.

use std::ops::ControlFlow;

use super::head::{APPENDED, Appended, decode_appended, encode_appended};
use super::outgoing::{Outgoing, Segment, frame_bytes};
use super::requests::Requests;
use crate::error::{Error, Result};
use crate::wire::{APPEND, Decoder, Frame, Grouping, HEADER_BYTES, Place, append_target};

/// Which end of the connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connected, and asks.
    Client,
    /// The one that was connected to, and answers.
    Server,
}

/// What one call of [`Conn::feed`] found, in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An append, which is open from here on.
    Append {
        /// The event that it joins or begins.
        place: Place,
        /// Number of the request.
        request: u32,
        /// Its record batch.
        batch: &'a [u8],
    },
    /// The answer to an append, which is settled.
    Appended {
        /// Number of the request.
        request: u32,
        /// Where it was placed.
        appended: Appended,
    },
    /// A frame that Python has to look at; the last event of a call.
    Cold(Frame<'a>),
}

/// One end of a connection: frames in, frames out, and the requests that are open between.
pub struct Conn<P> {
    side: Side,
    decoder: Decoder,
    requests: Requests,
    outgoing: Outgoing<P>,
    frame_bytes_max: usize,
    hot: bool,
}

impl<P> Conn<P> {
    /// An end on which everything is cold until [`Conn::set_hot`]. Frames that come may have
    /// `incoming_bytes_max`, those that go `frame_bytes_max`; the first number of a request is behind `last`.
    pub fn new(
        side: Side,
        window: u64,
        incoming_bytes_max: usize,
        frame_bytes_max: usize,
        last: u32,
    ) -> Self {
        Self {
            side,
            decoder: Decoder::new(incoming_bytes_max),
            requests: Requests::new(window, last),
            outgoing: Outgoing::default(),
            frame_bytes_max,
            hot: false,
        }
    }

    /// Whether the frames of appends are taken here, as far as the connection allows it.
    pub fn set_hot(&mut self, hot: bool) {
        self.hot = hot;
    }

    /// Whether they are.
    pub fn is_hot(&self) -> bool {
        self.hot
    }

    /// The open requests.
    pub fn requests(&self) -> &Requests {
        &self.requests
    }

    /// The open requests, to open and to settle what is cold.
    pub fn requests_mut(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// What is being read.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Other limits: for the frames that come and whose header has not been seen, and for those that go.
    pub fn limit(&mut self, incoming_bytes_max: usize, frame_bytes_max: usize) {
        self.decoder.set_frame_bytes_max(incoming_bytes_max);
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Bytes that are outgoing and were not taken.
    pub fn queued_bytes(&self) -> usize {
        self.outgoing.bytes()
    }

    /// Take what is to be written.
    pub fn take(&mut self) -> Vec<Segment<P>> {
        self.outgoing.take()
    }

    /// Let go of the bytes of a frame that is not whole; what comes later is refused or begins anew.
    pub fn release(&mut self, incoming_bytes_max: usize) {
        self.decoder = Decoder::new(incoming_bytes_max);
        self.hot = false;
    }

    /// Take what came, up to the first cold frame; return how many bytes of it were taken. `peer` takes what
    /// peers say to one another, and says whether it did.
    pub fn feed(
        &mut self,
        data: &[u8],
        mut peer: impl FnMut(&Frame<'_>) -> bool,
        mut each: impl FnMut(Event<'_>),
    ) -> Result<usize> {
        let (side, hot, requests) = (self.side, self.hot, &mut self.requests);
        let mut grouping = Grouping::default();
        self.decoder.feed_until(data, |frame| {
            let taken = match side {
                _ if !hot => None,
                Side::Server => append(&frame, requests, &mut grouping),
                Side::Client => appended(&frame, requests),
            };
            if let Some(event) = taken {
                each(event);
                ControlFlow::Continue(())
            } else if hot && frame.request == 0 && peer(&frame) {
                ControlFlow::Continue(())
            } else {
                each(Event::Cold(frame));
                ControlFlow::Break(())
            }
        })
    }

    /// Queue a frame that is no request and answers none.
    pub fn queue(
        &mut self,
        kind: u8,
        request: u32,
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) -> Result<()> {
        self.check_size(head, payloads)?;
        self.outgoing.push(kind, request, head, payloads, lend)
    }

    /// Queue a frame that is no request and answers none, whose header was made before, for several connections: so its
    /// payload is checksummed once.
    pub fn queue_framed(
        &mut self,
        header: &[u8; HEADER_BYTES],
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) -> Result<()> {
        self.check_size(head, payloads)?;
        self.outgoing.push_framed(header, head, payloads, lend);
        Ok(())
    }

    /// Queue a request and return its number; `None` while the window has no room for it.
    pub fn ask(
        &mut self,
        kind: u8,
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) -> Result<Option<u32>> {
        self.check_size(head, payloads)?;
        let Some(request) = self.requests.ask(kind, frame_bytes(head, payloads)) else {
            return Ok(None);
        };
        let pushed = self.outgoing.push(kind, request, head, payloads, lend);
        if pushed.is_err() {
            self.requests.settle(request);
        }
        pushed.map(|()| Some(request))
    }

    /// Queue the answer to an open request, which is settled by it.
    pub fn answer(
        &mut self,
        request: u32,
        kind: u8,
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) -> Result<()> {
        self.queue(kind, request, head, payloads, lend)?;
        self.requests.settle(request);
        Ok(())
    }

    /// Answer an append; `false` if no append of that number is open.
    pub fn answer_append(&mut self, request: u32, appended: &Appended) -> Result<bool> {
        if self.requests.kind(request) != Some(APPEND) {
            return Ok(false);
        }
        let head = encode_appended(appended);
        // Without a payload there is nothing to lend.
        self.check_size(&head, &[])?;
        self.outgoing
            .push_head(APPENDED, request, &head)
            .map(|()| self.requests.settle(request).is_some())
    }

    fn check_size(&self, head: &[u8], payloads: &[&[u8]]) -> Result<()> {
        let size = frame_bytes(head, payloads);
        if size > self.frame_bytes_max {
            return Err(Error::TooLarge {
                what: "frame",
                size: size as u64,
                max: self.frame_bytes_max as u64,
            });
        }
        Ok(())
    }
}

/// Open an append, if it is hot.
fn append<'a>(
    frame: &Frame<'a>,
    requests: &mut Requests,
    grouping: &mut Grouping,
) -> Option<Event<'a>> {
    append_target(frame)?;
    requests.open(frame.request, APPEND, frame.size()).ok()?;
    Some(Event::Append {
        place: grouping.place(frame),
        request: frame.request,
        batch: frame.payload,
    })
}

/// Settle the append that is answered, if that is hot.
fn appended<'a>(frame: &Frame<'a>, requests: &mut Requests) -> Option<Event<'a>> {
    if frame.kind != APPENDED || !frame.payload.is_empty() {
        return None;
    }
    if requests.kind(frame.request) != Some(APPEND) {
        return None;
    }
    let appended = decode_appended(frame.head)?;
    requests.settle(frame.request)?;
    Some(Event::Appended {
        request: frame.request,
        appended,
    })
}
