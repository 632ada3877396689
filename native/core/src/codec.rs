//! Little-endian fields in and out of byte buffers, with bounds checked once.
//!
//! Decoding takes untrusted bytes: every read that would pass the end is
//! [`Error::Malformed`] with the offset, and lengths are checked against what is left before
//! anything is allocated.

use crate::error::{Error, Result};

/// Append fixed-width fields to a buffer.
pub trait Put {
    /// One byte.
    fn put_u8(&mut self, value: u8);
    /// Two bytes.
    fn put_u16(&mut self, value: u16);
    /// Four bytes.
    fn put_u32(&mut self, value: u32);
    /// Eight bytes.
    fn put_u64(&mut self, value: u64);
    /// Sixteen bytes.
    fn put_u128(&mut self, value: u128);
    /// A `u32` length, then the bytes.
    fn put_bytes(&mut self, value: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_u128(&mut self, value: u128) {
        self.extend_from_slice(&value.to_le_bytes());
    }
    fn put_bytes(&mut self, value: &[u8]) {
        self.put_u32(value.len() as u32);
        self.extend_from_slice(value);
    }
}

/// Takes fixed-width fields from the front of a buffer.
pub struct Take<'a> {
    what: &'static str,
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Take<'a> {
    /// Read `bytes`; `what` names the structure in errors.
    pub fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            what,
            bytes,
            offset: 0,
        }
    }

    /// Bytes not taken yet.
    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.offset
    }

    /// An error at the current offset.
    pub fn error(&self, reason: impl Into<String>) -> Error {
        Error::malformed(self.what, self.offset as u64, reason)
    }

    /// The next `len` bytes.
    pub fn slice(&mut self, len: usize) -> Result<&'a [u8]> {
        if len > self.remaining() {
            return Err(self.error(format!("{len} bytes wanted, {} left", self.remaining())));
        }
        let slice = &self.bytes[self.offset..self.offset + len];
        self.offset += len;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(N)?);
        Ok(array)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }
    /// Two bytes.
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }
    /// Four bytes.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    /// Eight bytes.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    /// Sixteen bytes.
    pub fn u128(&mut self) -> Result<u128> {
        Ok(u128::from_le_bytes(self.array()?))
    }
    /// A `u32` length, then that many bytes.
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.u32()? as usize;
        self.slice(len)
    }
    /// A `u32` length, then that many bytes of UTF-8.
    pub fn string(&mut self) -> Result<String> {
        let at = self.offset as u64;
        let bytes = self.bytes()?;
        String::from_utf8(bytes.to_vec())
            .map_err(|_| Error::malformed(self.what, at, "not valid UTF-8"))
    }
    /// A `u32` count of elements of at least `size` bytes each: refused if they cannot be there.
    pub fn count(&mut self, size: usize) -> Result<usize> {
        let count = self.u32()? as usize;
        if count.saturating_mul(size) > self.remaining() {
            return Err(self.error(format!("{count} elements cannot fit")));
        }
        Ok(count)
    }
    /// Refuse trailing bytes.
    pub fn finish(self) -> Result<()> {
        if self.remaining() > 0 {
            return Err(self.error(format!("{} bytes too many", self.remaining())));
        }
        Ok(())
    }
}
