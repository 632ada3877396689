//! An allocator that counts what each thread holds, so that a decoder's appetite can be measured.
//!
//! A thread that goes far beyond any bound while it is measured is stopped where it stands: it
//! raises a flag and sleeps, and the [watchdog](crate::watchdog) reports the input and ends the
//! process. Unwinding out of an allocator is not allowed, and an abort would lose the input.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes at which a measured thread is stopped: far above every bound, far below what hurts.
pub const RUNAWAY_BYTES: isize = 1 << 30;

/// What the stopped thread held, 0 if none was.
pub static RUNAWAY: AtomicUsize = AtomicUsize::new(0);

/// The counting allocator.
pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
    static MEASURED: Cell<bool> = const { Cell::new(false) };
}

fn grow(size: usize) {
    // A size is at most isize::MAX: `Layout` sees to it.
    let live = LIVE.get().saturating_add(size.cast_signed());
    LIVE.set(live);
    if live > PEAK.get() {
        PEAK.set(live);
        if live > RUNAWAY_BYTES && MEASURED.get() {
            RUNAWAY.store(live.unsigned_abs(), Ordering::Release);
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
    }
}

fn shrink(size: usize) {
    LIVE.set(LIVE.get().saturating_sub(size.cast_signed()));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting neither allocates
// (the thread locals are initialised at compile time and have no destructor) nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may be held while the bytes move, but a decoder cannot do anything about that.
        shrink(layout.size());
        grow(new_size);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(ptr, layout, new_size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// Run `work`; also the most bytes this thread held meanwhile beyond what it held before.
pub fn measure<R>(work: impl FnOnce() -> R) -> (R, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    MEASURED.set(true);
    let result = work();
    MEASURED.set(false);
    let peak = usize::try_from(PEAK.get() - before).unwrap_or(0);
    (result, peak)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_counts_what_is_held_at_once() {
        let ((), peak) = measure(|| {
            for _ in 0..10 {
                std::hint::black_box(vec![1u8; 1 << 20]);
            }
        });
        assert!((1 << 20..2 << 20).contains(&peak), "{peak}");
        let (held, peak) = measure(|| [vec![1u8; 1 << 20], vec![2u8; 1 << 20]]);
        assert!(peak >= 2 << 20, "{peak}");
        drop(held);
    }
}
