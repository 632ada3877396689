//! Frames of a connection: `docs/protocol.md` has every byte.
//!
//! *Theory of operation.* A [`Decoder`] is fed what a socket gave, cut anywhere, and calls back with
//! each whole frame. A frame that lies whole in what was fed is not copied; only the rest of the
//! last one is kept for the next call. A header is judged as soon as its 20 bytes are there, so a
//! length over the limit is refused before anything of the frame is kept.
//!
//! [`Grouping`] says which frames belong together: appends of one socket read to one stream, so
//! that Python handles one event for each stream and read.
//!
//! *Invariants.* What is kept never exceeds what was fed, nor the limit. The frames do not depend
//! on where the input was cut. After an error the decoder gives nothing more.

mod group;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

pub use group::{Grouping, Place, append_target};

pub(crate) use group::{APPEND, number};

use crate::codec::{Put, Take};
use crate::error::{Error, Result};

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 20;

/// What the checksum does not cover: the length, which decides what it covers, and itself.
const CHECKED_FROM: usize = 8;

/// One frame, in the bytes it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Number of the message.
    pub kind: u8,
    /// Number of the request; 0 if no answer is expected.
    pub request: u32,
    /// The fields, as a `MessagePack` array.
    pub head: &'a [u8],
    /// Record batches, or the bytes of a command.
    pub payload: &'a [u8],
}

impl Frame<'_> {
    /// Bytes of the whole frame.
    pub fn size(&self) -> usize {
        HEADER_BYTES + self.head.len() + self.payload.len()
    }
}

/// What the header of a frame says, judged.
#[derive(Clone, Copy)]
struct Header {
    /// Bytes of the whole frame.
    size: usize,
    checksum: u32,
    kind: u8,
    request: u32,
    head: usize,
}

/// The header of a frame around a head and payloads, which follow it as they are.
pub fn frame_header(
    kind: u8,
    request: u32,
    head: &[u8],
    payloads: &[&[u8]],
) -> Result<[u8; HEADER_BYTES]> {
    let payload: usize = payloads.iter().map(|payload| payload.len()).sum();
    let length =
        u32::try_from(head.len().saturating_add(payload)).map_err(|_| Error::TooLarge {
            what: "frame",
            size: head.len() as u64 + payload as u64,
            max: u32::MAX.into(),
        })?;
    if kind == 0 || head.is_empty() {
        return Err(Error::InvalidArgument(
            "a frame has a kind and a head".into(),
        ));
    }
    let mut checked = Vec::with_capacity(HEADER_BYTES - CHECKED_FROM);
    checked.put_u8(kind);
    checked.put_u8(0);
    checked.put_u16(0);
    checked.put_u32(request);
    checked.put_u32(head.len() as u32);
    let mut checksum = crc32c::crc32c_append(crc32c::crc32c(&checked), head);
    for payload in payloads {
        checksum = crc32c::crc32c_append(checksum, payload);
    }
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&length.to_le_bytes());
    header[4..8].copy_from_slice(&checksum.to_le_bytes());
    header[CHECKED_FROM..].copy_from_slice(&checked);
    Ok(header)
}

/// Cuts what comes over a connection into frames.
pub struct Decoder {
    frame_bytes_max: usize,
    /// The beginning of a frame that is not whole.
    partial: Vec<u8>,
    /// Its header, once that is there.
    header: Option<Header>,
    /// Where the frame that is being read begins in all that was ever fed.
    offset: u64,
    failed: bool,
}

impl Decoder {
    /// Refuses frames of more than `frame_bytes_max` bytes with their header.
    pub fn new(frame_bytes_max: usize) -> Self {
        Self {
            frame_bytes_max,
            partial: Vec::new(),
            header: None,
            offset: 0,
            failed: false,
        }
    }

    /// Another limit for the frames whose header has not been seen.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Bytes of a frame that is not whole.
    pub fn buffered(&self) -> usize {
        self.partial.len()
    }

    /// Bytes that are missing for the header or, once that is there, for the frame.
    pub fn missing(&self) -> usize {
        let wanted = self.header.map_or(HEADER_BYTES, |header| header.size);
        wanted - self.partial.len()
    }

    /// Take what came, and call `each` with every frame that is whole now.
    pub fn feed(&mut self, data: &[u8], mut each: impl FnMut(Frame<'_>)) -> Result<()> {
        let every = |frame: Frame<'_>| {
            each(frame);
            ControlFlow::Continue(())
        };
        self.feed_until(data, every).map(|_| ())
    }

    /// Take what came up to the frame at which `each` breaks; return how many bytes were taken.
    ///
    /// The caller feeds the others again, at a time of its choice.
    pub fn feed_until(
        &mut self,
        data: &[u8],
        mut each: impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<usize> {
        if self.failed {
            return Err(self.malformed("an earlier frame was malformed"));
        }
        let result = self.take(data, &mut each);
        if result.is_err() {
            self.failed = true;
            self.partial = Vec::new();
        }
        result.map(|rest| data.len() - rest)
    }

    /// The bytes at the end of `data` that were not taken.
    fn take(
        &mut self,
        data: &[u8],
        each: &mut impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<usize> {
        let (mut rest, flow) = self.complete(data, each)?;
        if flow.is_break() {
            return Ok(rest.len());
        }
        while rest.len() >= HEADER_BYTES {
            let header = self.judge(rest)?;
            if rest.len() < header.size {
                self.header = Some(header);
                break;
            }
            let (frame, behind) = rest.split_at(header.size);
            let flow = each(self.open(&header, frame)?);
            self.offset += header.size as u64;
            rest = behind;
            if flow.is_break() {
                return Ok(rest.len());
            }
        }
        self.partial.extend_from_slice(rest);
        Ok(0)
    }

    /// Finish the frame that earlier calls began; what is left of `data` begins a new one.
    fn complete<'a>(
        &mut self,
        data: &'a [u8],
        each: &mut impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<(&'a [u8], ControlFlow<()>)> {
        let mut flow = ControlFlow::Continue(());
        if self.partial.is_empty() {
            return Ok((data, flow));
        }
        let rest = self.fill(data, HEADER_BYTES);
        if self.header.is_none() && self.partial.len() >= HEADER_BYTES {
            self.header = Some(self.judge(&self.partial)?);
        }
        let Some(header) = self.header else {
            return Ok((rest, flow));
        };
        let rest = self.fill(rest, header.size);
        if self.partial.len() == header.size {
            flow = each(self.open(&header, &self.partial)?);
            self.offset += header.size as u64;
            // A large one is not held on to: connections are many.
            self.partial = Vec::new();
            self.header = None;
        }
        Ok((rest, flow))
    }

    /// Move bytes of `data` behind the partial frame until it has `wanted`.
    fn fill<'a>(&mut self, data: &'a [u8], wanted: usize) -> &'a [u8] {
        let missing = wanted.saturating_sub(self.partial.len()).min(data.len());
        let (taken, rest) = data.split_at(missing);
        self.partial.extend_from_slice(taken);
        rest
    }

    /// Read a header and refuse what cannot be one.
    fn judge(&self, bytes: &[u8]) -> Result<Header> {
        let mut take = Take::new("frame", bytes);
        let (length, checksum) = (take.u32()? as usize, take.u32()?);
        let (kind, flags, reserved) = (take.u8()?, take.u8()?, take.u16()?);
        let (request, head) = (take.u32()?, take.u32()? as usize);
        let size = length.saturating_add(HEADER_BYTES);
        if size > self.frame_bytes_max {
            let max = self.frame_bytes_max;
            return Err(self.malformed(format!("{size} bytes, the limit is {max}")));
        }
        if kind == 0 || flags != 0 || reserved != 0 {
            let reason = format!("kind {kind}, flags {flags}, reserved {reserved}");
            return Err(self.malformed(reason));
        }
        if head == 0 || head > length {
            return Err(self.malformed(format!("a head of {head} in {length} bytes")));
        }
        Ok(Header {
            size,
            checksum,
            kind,
            request,
            head,
        })
    }

    fn open<'a>(&self, header: &Header, frame: &'a [u8]) -> Result<Frame<'a>> {
        let found = crc32c::crc32c(&frame[CHECKED_FROM..]);
        if found != header.checksum {
            let stated = header.checksum;
            return Err(self.malformed(format!("checksum {found:08x}, not {stated:08x}")));
        }
        let (head, payload) = frame[HEADER_BYTES..].split_at(header.head);
        Ok(Frame {
            kind: header.kind,
            request: header.request,
            head,
            payload,
        })
    }

    fn malformed(&self, reason: impl Into<String>) -> Error {
        Error::malformed("frame", self.offset, reason)
    }
}
