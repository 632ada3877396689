//! A pool of aligned buffers: memory that was touched once is not faulted in again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::Mutex;

use super::AlignedBuf;

/// A bounded pool of [`AlignedBuf`]; clones share it. Its bounds limit what is *kept*, not what
/// is handed out: taking a buffer never waits.
#[derive(Clone, Debug)]
pub struct BufPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    buffers_max: usize,
    bytes_max: usize,
    /// Idle buffers, the one used last (the warmest in cache) at the end.
    idle: Mutex<Vec<AlignedBuf>>,
}

/// A buffer that goes back to its pool when dropped.
pub struct PooledBuf {
    /// `None` only while dropping.
    buffer: Option<AlignedBuf>,
    pool: Arc<Shared>,
}

impl BufPool {
    /// A pool that keeps at most `buffers_max` idle buffers of `bytes_max` bytes together.
    pub fn new(buffers_max: usize, bytes_max: usize) -> Self {
        let idle = Mutex::new(Vec::with_capacity(buffers_max.min(64)));
        Self {
            shared: Arc::new(Shared {
                buffers_max,
                bytes_max,
                idle,
            }),
        }
    }

    /// An empty buffer with room for `capacity` bytes: an idle one that is large enough, or else
    /// a new one.
    pub fn take(&self, capacity: usize) -> PooledBuf {
        let mut idle = self.shared.idle.lock();
        let found = idle
            .iter()
            .rposition(|buffer| buffer.capacity() >= capacity);
        let buffer = found.map(|position| idle.remove(position));
        drop(idle);
        let buffer = buffer.unwrap_or_else(|| AlignedBuf::new(capacity));
        PooledBuf {
            buffer: Some(buffer),
            pool: Arc::clone(&self.shared),
        }
    }

    /// Idle buffers and their bytes.
    pub fn idle(&self) -> (usize, usize) {
        let idle = self.shared.idle.lock();
        (idle.len(), idle.iter().map(AlignedBuf::capacity).sum())
    }
}

impl Shared {
    /// Keep `buffer`. Over a bound, let the smallest go first, so that a pool does not fill up
    /// with buffers that are too small for its present use; but never more than is needed.
    fn put(&self, mut buffer: AlignedBuf) {
        if buffer.capacity() > self.bytes_max {
            return;
        }
        buffer.clear();
        // Freed after the lock: returning memory to the system is slow.
        let mut freed = Vec::new();
        let mut idle = self.idle.lock();
        idle.push(buffer);
        let mut bytes: usize = idle.iter().map(AlignedBuf::capacity).sum();
        while idle.len() > self.buffers_max || bytes > self.bytes_max {
            let smallest = (0..idle.len()).min_by_key(|&i| idle[i].capacity());
            let Some(smallest) = smallest else { break };
            let buffer = idle.remove(smallest);
            bytes -= buffer.capacity();
            freed.push(buffer);
        }
        drop(idle);
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.put(buffer);
        }
    }
}

impl Deref for PooledBuf {
    type Target = AlignedBuf;

    fn deref(&self) -> &AlignedBuf {
        self.buffer
            .as_ref()
            .expect("a pooled buffer is there until dropped")
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut AlignedBuf {
        self.buffer
            .as_mut()
            .expect("a pooled buffer is there until dropped")
    }
}

impl fmt::Debug for PooledBuf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1 << 10;

    #[test]
    fn a_returned_buffer_is_used_again_and_empty() {
        let pool = BufPool::new(2, 64 * KIB);
        let mut first = pool.take(16 * KIB);
        first.extend_from_slice(b"old");
        let address = first.as_ptr();
        drop(first);
        let again = pool.take(10 * KIB);
        assert_eq!(again.as_ptr(), address);
        assert!(again.is_empty());
        assert_eq!(pool.idle(), (0, 0));
        assert!(pool.take(17 * KIB).capacity() >= 17 * KIB);
    }

    #[test]
    fn what_is_kept_is_bounded_and_prefers_large_buffers() {
        let pool = BufPool::new(2, 64 * KIB);
        let taken: Vec<_> = [4, 8, 16, 128]
            .iter()
            .map(|kib| pool.take(kib * KIB))
            .collect();
        drop(taken);
        assert_eq!(pool.idle(), (2, 24 * KIB));
        drop(pool.take(60 * KIB));
        assert_eq!(pool.idle(), (1, 60 * KIB));
    }

    #[test]
    fn threads_share_one_pool() {
        let pool = BufPool::new(4, 64 * KIB);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let pool = &pool;
                scope.spawn(move || {
                    for _ in 0..200 {
                        let mut buffer = pool.take(4 * KIB);
                        assert!(buffer.is_empty());
                        buffer.extend_from_slice(&[thread; 4 * KIB]);
                        assert!(buffer.iter().all(|&byte| byte == thread));
                    }
                });
            }
        });
        assert!(pool.idle().0 <= 4);
    }
}
