//! What is to be written to a socket, in order.

use crate::error::Result;
use crate::wire::{HEADER_BYTES, frame_header};

/// A payload of at least so many bytes is written from where it is; a smaller one is copied, which costs
/// less than one buffer more in the system call.
const LENT_BYTES_MIN: usize = 8 << 10;

/// Bytes to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Segment<P> {
    /// Frames, or parts of them, one behind the other.
    Own(Vec<u8>),
    /// A payload that its owner keeps as it is until it was written.
    Lent(P),
}

/// The frames that nobody took to write them yet.
pub struct Outgoing<P> {
    segments: Vec<Segment<P>>,
    bytes: usize,
}

impl<P> Default for Outgoing<P> {
    fn default() -> Self {
        Self {
            segments: Vec::new(),
            bytes: 0,
        }
    }
}

impl<P> Outgoing<P> {
    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Put a frame behind the others. `lend(n)` gives what owns payload `n`.
    pub fn push(
        &mut self,
        kind: u8,
        request: u32,
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) -> Result<()> {
        let header = frame_header(kind, request, head, payloads)?;
        self.push_framed(&header, head, payloads, lend);
        Ok(())
    }

    /// Put a frame behind the others whose header was made before, for several connections.
    pub fn push_framed(
        &mut self,
        header: &[u8; HEADER_BYTES],
        head: &[u8],
        payloads: &[&[u8]],
        lend: impl Fn(usize) -> P,
    ) {
        self.own(header);
        self.own(head);
        for (index, payload) in payloads.iter().enumerate() {
            if payload.len() < LENT_BYTES_MIN {
                self.own(payload);
            } else {
                self.segments.push(Segment::Lent(lend(index)));
                self.bytes += payload.len();
            }
        }
    }

    /// Put a frame without a payload behind the others.
    pub fn push_head(&mut self, kind: u8, request: u32, head: &[u8]) -> Result<()> {
        let header = frame_header(kind, request, head, &[])?;
        self.own(&header);
        self.own(head);
        Ok(())
    }

    /// Take all, to write them.
    pub fn take(&mut self) -> Vec<Segment<P>> {
        self.bytes = 0;
        std::mem::take(&mut self.segments)
    }

    fn own(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len();
        if let Some(Segment::Own(tail)) = self.segments.last_mut() {
            tail.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            self.segments.push(Segment::Own(bytes.to_vec()));
        }
    }
}

/// Bytes of a frame.
pub fn frame_bytes(head: &[u8], payloads: &[&[u8]]) -> usize {
    let payload: usize = payloads.iter().map(|payload| payload.len()).sum();
    HEADER_BYTES + head.len() + payload
}
