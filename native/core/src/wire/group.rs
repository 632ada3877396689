//! Which frames of one socket read are one event: appends to the same stream in the same epoch.

use std::collections::HashMap;

use super::Frame;

/// Number of the append message.
pub(crate) const APPEND: u8 = 16;

/// Arrays of two and of three elements, and the third that is encoded where it says nothing.
const TWO: u8 = 0x92;
const THREE: u8 = 0x93;
const FALSE: u8 = 0xc2;

/// Where a frame goes in the list of events of one socket read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is an event of its own.
    Single,
    /// It begins a group: a new event.
    First {
        /// The stream.
        stream: u64,
        /// The epoch that the client knows.
        epoch: u64,
    },
    /// It joins the event of that index.
    Join(usize),
}

/// Groups the appends of one socket read.
///
/// Any other frame ends all groups, so an event holds nothing that came after a later event that
/// is no append; appends to one stream stay in their order.
#[derive(Default)]
pub struct Grouping {
    open: HashMap<(u64, u64), usize>,
    events: usize,
}

impl Grouping {
    /// The place of the next frame.
    pub fn place(&mut self, frame: &Frame<'_>) -> Place {
        let target = append_target(frame);
        let Some((stream, epoch)) = target else {
            self.open.clear();
            self.events += 1;
            return Place::Single;
        };
        if let Some(event) = self.open.get(&(stream, epoch)) {
            return Place::Join(*event);
        }
        self.open.insert((stream, epoch), self.events);
        self.events += 1;
        Place::First { stream, epoch }
    }
}

/// Stream and epoch of an append that is encoded as our encoder does it, or one before there were repeats.
///
/// `None` is no verdict: the frame goes the way of all other messages, which accepts or refuses it.
pub fn append_target(frame: &Frame<'_>) -> Option<(u64, u64)> {
    if frame.kind != APPEND || frame.request == 0 || frame.payload.is_empty() {
        return None;
    }
    let (array, fields) = frame.head.split_first()?;
    let (stream, fields) = number(fields)?;
    let (epoch, fields) = number(fields)?;
    // A repeat is decided on alone.
    matches!((*array, fields), (TWO, []) | (THREE, [FALSE])).then_some((stream, epoch))
}

/// A `MessagePack` number from 0 to 2^63 - 1.
pub(crate) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let width = match first {
        0..=0x7f => return Some((u64::from(*first), rest)),
        0xcc => 1,
        0xcd => 2,
        0xce => 4,
        0xcf => 8,
        _ => return None,
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    let value = digits
        .iter()
        .fold(0, |value, digit| value << 8 | u64::from(*digit));
    i64::try_from(value).is_ok().then_some((value, rest))
}
