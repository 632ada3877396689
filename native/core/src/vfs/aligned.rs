//! A growable byte buffer whose memory begins on a block boundary, as direct I/O needs.

use std::alloc::{self, Layout};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::limits::BLOCK_BYTES;

/// From this capacity on the memory is aligned to, and asked for in, huge pages: a first touch
/// then costs one fault for 2 MiB instead of 512.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// A growable byte buffer in block-aligned memory.
///
/// # Invariants
///
/// - `memory` is an allocation of the global allocator made with `layout(capacity)`, owned by
///   this value alone; `capacity` is a positive multiple of [`BLOCK_BYTES`].
/// - `len <= initialized <= capacity`, and the first `initialized` bytes are initialized. The rest
///   may not be, and no reference to it is ever made.
pub struct AlignedBuf {
    memory: NonNull<u8>,
    len: usize,
    initialized: usize,
    capacity: usize,
}

// SAFETY: the value owns its allocation alone (first invariant), so moving it to another
// thread moves plain bytes.
unsafe impl Send for AlignedBuf {}

// SAFETY: a shared reference only gives `&[u8]`; there is no interior mutability.
unsafe impl Sync for AlignedBuf {}

/// The layout of a buffer of `capacity` bytes; a pure function of it, so that deallocation
/// uses the layout of the allocation.
fn layout(capacity: usize) -> Layout {
    let alignment = if capacity >= HUGE_PAGE_BYTES {
        HUGE_PAGE_BYTES
    } else {
        BLOCK_BYTES
    };
    Layout::from_size_align(capacity, alignment).expect("buffer capacity fits the address space")
}

/// Allocate `capacity` uninitialized bytes; aborts when there is no memory, as `Vec` does.
fn allocate(capacity: usize) -> NonNull<u8> {
    let layout = layout(capacity);
    // SAFETY: the size is not zero: every caller passes a result of `round_up`.
    let memory = unsafe { alloc::alloc(layout) };
    let Some(memory) = NonNull::new(memory) else {
        alloc::handle_alloc_error(layout)
    };
    #[cfg(target_os = "linux")]
    if capacity >= HUGE_PAGE_BYTES {
        // SAFETY: the range is exactly our own allocation, and this advice changes how pages
        // are backed, never what they contain. A refusal costs speed only, so it is ignored.
        let _ = unsafe {
            rustix::mm::madvise(
                memory.as_ptr().cast(),
                capacity,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
    memory
}

/// The smallest capacity that holds `bytes`.
fn round_up(bytes: usize) -> usize {
    bytes
        .max(1)
        .checked_next_multiple_of(BLOCK_BYTES)
        .expect("buffer capacity does not overflow")
}

impl AlignedBuf {
    /// An empty buffer with room for `capacity` bytes, rounded up to whole blocks.
    pub fn new(capacity: usize) -> Self {
        let capacity = round_up(capacity);
        Self {
            memory: allocate(capacity),
            len: 0,
            initialized: 0,
            capacity,
        }
    }

    /// A buffer of `len` zeros.
    pub fn zeroed(len: usize) -> Self {
        let mut buffer = Self::new(len);
        buffer.resize(len);
        buffer
    }

    /// Bytes held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no bytes are held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes that fit without another allocation.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the first `len` bytes are initialized and inside the allocation; the borrow of
        // `self` keeps them from being changed or freed.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// The bytes, for changing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the exclusive borrow makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.len) }
    }

    /// Append `data`.
    pub fn extend_from_slice(&mut self, data: &[u8]) {
        self.reserve(data.len());
        // SAFETY: `reserve` made room for `data.len()` bytes behind `len`; `data` cannot overlap
        // them, since `self` is borrowed exclusively.
        unsafe {
            self.memory
                .as_ptr()
                .add(self.len)
                .copy_from_nonoverlapping(data.as_ptr(), data.len());
        }
        self.set_len(self.len + data.len());
    }

    /// Make the length `len`: cut, or append zeros. Only the new bytes are touched.
    pub fn resize(&mut self, len: usize) {
        if let Some(new) = len.checked_sub(self.len) {
            self.reserve(new);
            // SAFETY: `reserve` made room for `new` bytes behind `self.len`.
            unsafe { self.memory.as_ptr().add(self.len).write_bytes(0, new) };
        }
        self.set_len(len);
    }

    /// Make the length `len` for bytes that are overwritten next: new bytes are whatever this buffer
    /// held there before, or zeros. A buffer that is used again touches nothing.
    pub fn resize_stale(&mut self, len: usize) {
        self.reserve(len.saturating_sub(self.len));
        if let Some(new) = len.checked_sub(self.initialized) {
            // SAFETY: `reserve` made room for `len` bytes, and these begin behind the initialized.
            unsafe {
                self.memory
                    .as_ptr()
                    .add(self.initialized)
                    .write_bytes(0, new);
            }
        }
        self.set_len(len);
    }

    /// Only for a `len` up to which the bytes are initialized.
    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.initialized = self.initialized.max(len);
    }

    /// Drop all bytes, keep the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Cut to `len` bytes; no effect when shorter already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Make room for `additional` bytes more, at least doubling when it must grow.
    pub fn reserve(&mut self, additional: usize) {
        let needed = self
            .len
            .checked_add(additional)
            .expect("buffer length does not overflow");
        if needed > self.capacity {
            self.grow(round_up(needed.max(self.capacity.saturating_mul(2))));
        }
    }

    /// Move to an allocation of `capacity`, which is larger than the present one.
    fn grow(&mut self, capacity: usize) {
        let memory = allocate(capacity);
        // SAFETY: two distinct allocations, both at least `len` bytes; only initialized bytes
        // are copied. The old one is freed once, with its own layout, and replaced at once.
        unsafe {
            memory.copy_from_nonoverlapping(self.memory, self.len);
            alloc::dealloc(self.memory.as_ptr(), layout(self.capacity));
        }
        self.memory = memory;
        self.initialized = self.len;
        self.capacity = capacity;
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated with this very layout (first invariant) and never used again.
        unsafe { alloc::dealloc(self.memory.as_ptr(), layout(self.capacity)) };
    }
}

impl Default for AlignedBuf {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.as_mut_slice()
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("AlignedBuf")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(buffer: &AlignedBuf) -> bool {
        buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
    }

    #[test]
    fn grows_aligned_and_keeps_its_bytes() {
        let mut buffer = AlignedBuf::new(0);
        let mut model = Vec::new();
        for round in 0..300_u32 {
            let piece: Vec<u8> = (0..round * 7).map(|i| (i ^ round) as u8).collect();
            buffer.extend_from_slice(&piece);
            model.extend_from_slice(&piece);
            assert!(is_aligned(&buffer));
            assert_eq!(buffer.as_slice(), model);
        }
    }

    #[test]
    fn resize_zeroes_bytes_that_were_cut_off_before() {
        let mut buffer = AlignedBuf::new(16);
        buffer.extend_from_slice(&[0xff; 16]);
        buffer.truncate(4);
        buffer.truncate(10);
        assert_eq!(buffer.len(), 4);
        buffer.resize(8);
        assert_eq!(buffer.as_slice(), [255, 255, 255, 255, 0, 0, 0, 0]);
        buffer.resize(2);
        assert_eq!(buffer.as_slice(), [255, 255]);
        buffer.clear();
        assert!(buffer.is_empty());
        assert_eq!(buffer.capacity(), BLOCK_BYTES);
    }

    #[test]
    fn reserve_doubles() {
        let mut buffer = AlignedBuf::new(8 * BLOCK_BYTES);
        buffer.resize(8 * BLOCK_BYTES);
        buffer.reserve(1);
        assert_eq!(buffer.capacity(), 16 * BLOCK_BYTES);
    }

    #[test]
    fn large_buffers_are_whole_and_writable() {
        let mut buffer = AlignedBuf::zeroed(BLOCK_BYTES);
        buffer.as_mut_slice()[17] = 9;
        buffer.resize(3 * HUGE_PAGE_BYTES + 5);
        assert!(buffer.as_ptr().addr().is_multiple_of(HUGE_PAGE_BYTES));
        assert_eq!(buffer[17], 9);
        assert_eq!(buffer.iter().map(|&byte| u64::from(byte)).sum::<u64>(), 9);
        let moved = std::thread::spawn(move || buffer.len()).join().unwrap();
        assert_eq!(moved, 3 * HUGE_PAGE_BYTES + 5);
    }
}
