//! The heads of hot messages: the same bytes that Python's codec makes of them.

use crate::wire::number;

/// Number of the answer to an append.
pub const APPENDED: u8 = 17;

/// Longer heads are cold.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// An array of four elements.
const FOUR: u8 = 0x94;

/// Where an append was placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Position of its first record in the stream.
    pub llsn: u64,
    /// Position of its first record in the log.
    pub glsn: u64,
    /// Its records.
    pub count: u64,
    /// The cut that committed it.
    pub version: u64,
}

/// The head of an answer.
pub fn encode_appended(appended: &Appended) -> Vec<u8> {
    let mut head = vec![FOUR];
    for value in [
        appended.llsn,
        appended.glsn,
        appended.count,
        appended.version,
    ] {
        put_number(&mut head, value);
    }
    head
}

/// The answer of a head, if it is encoded as our encoder does it.
///
/// `None` is no verdict: the frame goes the way of all other messages, which accepts or refuses it.
pub fn decode_appended(head: &[u8]) -> Option<Appended> {
    let (array, fields) = head.split_first()?;
    let (llsn, fields) = number(fields)?;
    let (glsn, fields) = number(fields)?;
    let (count, fields) = number(fields)?;
    let (version, fields) = number(fields)?;
    (*array == FOUR && fields.is_empty()).then_some(Appended {
        llsn,
        glsn,
        count,
        version,
    })
}

/// Append the begin of a `MessagePack` array.
pub(super) fn put_array(bytes: &mut Vec<u8>, count: usize) {
    match count {
        0..=0xf => bytes.push(0x90 | count as u8),
        0x10..=0xffff => {
            bytes.push(0xdc);
            bytes.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0xdd);
            bytes.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
}

/// Append `MessagePack` bytes.
pub(super) fn put_bytes(bytes: &mut Vec<u8>, value: &[u8]) {
    let count = value.len();
    match count {
        0..=0xff => bytes.extend_from_slice(&[0xc4, count as u8]),
        0x100..=0xffff => {
            bytes.push(0xc5);
            bytes.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => {
            bytes.push(0xc6);
            bytes.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
    bytes.extend_from_slice(value);
}

/// Append a `MessagePack` number in its shortest form.
pub(super) fn put_number(bytes: &mut Vec<u8>, value: u64) {
    let digits = value.to_be_bytes();
    let (mark, width) = match value {
        0..=0x7f => (None, 1),
        0x80..=0xff => (Some(0xcc), 1),
        0x100..=0xffff => (Some(0xcd), 2),
        0x1_0000..=0xffff_ffff => (Some(0xce), 4),
        _ => (Some(0xcf), 8),
    };
    bytes.extend(mark);
    bytes.extend_from_slice(&digits[8 - width..]);
}

/// Append a truth of `MessagePack`.
pub(super) fn put_truth(bytes: &mut Vec<u8>, value: bool) {
    bytes.push(0xc2 | u8::from(value));
}

/// Takes `MessagePack` values off the front.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// A head that is short: what is decoded takes many times its bytes.
    pub(super) fn of(head: &'a [u8]) -> Option<Self> {
        (head.len() <= HEAD_BYTES_MAX).then_some(Self(head))
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let (value, rest) = number(self.0)?;
        self.0 = rest;
        Some(value)
    }

    pub(super) fn array(&mut self) -> Option<usize> {
        let (first, rest) = self.0.split_first()?;
        let (count, rest) = match first {
            0x90..=0x9f => (u32::from(first & 0xf), rest),
            0xdc => {
                let (digits, rest) = rest.split_first_chunk()?;
                (u32::from(u16::from_be_bytes(*digits)), rest)
            }
            0xdd => {
                let (digits, rest) = rest.split_first_chunk()?;
                (u32::from_be_bytes(*digits), rest)
            }
            _ => return None,
        };
        self.0 = rest;
        usize::try_from(count).ok()
    }

    pub(super) fn is_array_of(&mut self, count: usize) -> Option<()> {
        (self.array()? == count).then_some(())
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        // Identities are short.
        let (mark, rest) = self.0.split_first_chunk::<2>()?;
        let (value, rest) = rest.split_at_checked(usize::from(mark[1]))?;
        self.0 = rest;
        (mark[0] == 0xc4).then_some(value)
    }

    pub(super) fn truth(&mut self) -> Option<bool> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        match first {
            0xc2 => Some(false),
            0xc3 => Some(true),
            _ => None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
