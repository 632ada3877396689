//! The lock of a directory: `flock` on a file in it.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::super::VfsLock;

/// How often, and how long, a lock attempt steps aside for [`Vfs::is_locked`] probes. Each of those
/// holds the lock for two system calls only, but its thread may be off the processor in between.
///
/// [`Vfs::is_locked`]: super::super::Vfs::is_locked
const LOCK_ATTEMPTS_MAX: u32 = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// A held lock.
pub(super) struct RealLock {
    file: File,
    process: u32,
}

impl RealLock {
    /// `file` is locked exclusively by this process.
    pub(super) fn new(file: File) -> Self {
        let process = std::process::id();
        Self { file, process }
    }
}

impl VfsLock for RealLock {}

impl Drop for RealLock {
    /// Closing releases the lock only with the last copy of the descriptor, and a forked child
    /// has one: release it by name. The child itself must not: the lock is its parent's.
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
    }
}

/// Try a lock without waiting; whether it was had.
fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    match rustix::io::retry_on_intr(|| rustix::fs::flock(file, operation)) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Take the exclusive lock; false when another holds it. A shared lock is only a probe of
/// `is_locked` and gone in a moment, so it is not taken for a holder.
pub(super) fn lock_exclusive(file: &File) -> io::Result<bool> {
    for _ in 0..LOCK_ATTEMPTS_MAX {
        if try_flock(file, FlockOperation::NonBlockingLockExclusive)? {
            return Ok(true);
        }
        if !try_flock(file, FlockOperation::NonBlockingLockShared)? {
            return Ok(false);
        }
        rustix::fs::flock(file, FlockOperation::Unlock)?;
        #[expect(
            clippy::disallowed_methods,
            reason = "flock tells nobody that a probe is gone; there is no condition to wait for"
        )]
        std::thread::sleep(LOCK_PAUSE);
    }
    Ok(false)
}

/// Take a shared lock, held until `file` is closed; false when another holds the exclusive one.
pub(super) fn lock_shared(file: &File) -> io::Result<bool> {
    try_flock(file, FlockOperation::NonBlockingLockShared)
}
