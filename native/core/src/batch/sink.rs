//! Where an encoder appends: any growable buffer of bytes.

/// A growable, contiguous buffer. The write-ahead log's aligned buffer implements it, so that
/// a batch is built in the memory it is written from.
pub trait Sink {
    /// Bytes held.
    fn len(&self) -> usize;

    /// Whether no bytes are held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Append a copy of `bytes`.
    fn extend_from_slice(&mut self, bytes: &[u8]);

    /// Grow to `len` with zeros, or cut to `len`.
    fn resize_zeroed(&mut self, len: usize);

    /// Everything held.
    fn as_mut_slice(&mut self) -> &mut [u8];
}

impl Sink for Vec<u8> {
    fn len(&self) -> usize {
        Vec::len(self)
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        Vec::extend_from_slice(self, bytes);
    }

    fn resize_zeroed(&mut self, len: usize) {
        self.resize(len, 0);
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        Vec::as_mut_slice(self)
    }
}

impl Sink for crate::vfs::PooledBuf {
    fn len(&self) -> usize {
        self.as_slice().len()
    }

    fn extend_from_slice(&mut self, bytes: &[u8]) {
        crate::vfs::AlignedBuf::extend_from_slice(self, bytes);
    }

    fn resize_zeroed(&mut self, len: usize) {
        self.resize(len);
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        crate::vfs::AlignedBuf::as_mut_slice(self)
    }
}
