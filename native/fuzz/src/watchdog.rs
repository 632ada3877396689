//! Notices a decode that does not end, or that was stopped in the allocator.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::alloc::RUNAWAY;
use crate::attempt::{Failure, Kind};

/// Longest that one iteration may take. Inputs are at most some 100 KiB, which every decoder is
/// through with in milliseconds: this leaves room for a machine that is busy with other things.
pub const LIMIT: Duration = Duration::from_secs(20);

/// How often the watchdog looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// Nothing is being decoded.
const IDLE: u64 = u64::MAX;

struct Beat {
    born: Instant,
    iteration: AtomicU64,
    /// Milliseconds after `born`, or [`IDLE`].
    begun: AtomicU64,
    stop: AtomicBool,
}

/// A thread that watches another one.
pub struct Watchdog {
    beat: Arc<Beat>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    /// Watch; call `stuck` once, with the iteration, when one takes longer than `limit`.
    pub fn start(limit: Duration, stuck: impl FnOnce(u64, Failure) + Send + 'static) -> Self {
        let beat = Arc::new(Beat {
            born: Instant::now(),
            iteration: AtomicU64::new(0),
            begun: AtomicU64::new(IDLE),
            stop: AtomicBool::new(false),
        });
        let watched = Arc::clone(&beat);
        let thread = std::thread::spawn(move || {
            while !watched.stop.load(Ordering::Acquire) {
                if let Some((iteration, failure)) = watched.look(limit) {
                    return stuck(iteration, failure);
                }
                std::thread::park_timeout(INTERVAL);
            }
        });
        Self {
            beat,
            thread: Some(thread),
        }
    }

    /// An iteration begins.
    pub fn begin(&self, iteration: u64) {
        self.beat.iteration.store(iteration, Ordering::Release);
        let now = self.beat.born.elapsed().as_millis() as u64;
        self.beat.begun.store(now, Ordering::Release);
    }

    /// It ended.
    pub fn end(&self) {
        self.beat.begun.store(IDLE, Ordering::Release);
    }
}

impl Beat {
    fn look(&self, limit: Duration) -> Option<(u64, Failure)> {
        let iteration = self.iteration.load(Ordering::Acquire);
        let held = RUNAWAY.load(Ordering::Acquire);
        if held > 0 {
            let message = format!("stopped at {held} bytes held");
            let kind = Kind::Memory;
            return Some((iteration, Failure { kind, message }));
        }
        let begun = self.begun.load(Ordering::Acquire);
        let now = self.born.elapsed().as_millis() as u64;
        if begun == IDLE || u128::from(now.saturating_sub(begun)) <= limit.as_millis() {
            return None;
        }
        let message = format!("not done after {} ms", limit.as_millis());
        let kind = Kind::Hang;
        Some((iteration, Failure { kind, message }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.beat.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
