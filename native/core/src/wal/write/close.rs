//! Closing a store.

use crate::error::{Error, Result};
use crate::wal::format::change::Change;
use crate::wal::write::store::Store;

/// A rest of a segment that a close leaves to the next open is smaller than this part of it.
const CLOSE_STEPS: u32 = 512;

impl Store {
    /// Give up this process's copy of the lock, in the child of a fork: the lock stays its parent's, and
    /// does not outlive it in the child.
    pub fn abandon_lock(&self) {
        // Held only by a close in the parent, which will not go on here.
        if let Some(mut lock) = self.lock.try_lock() {
            *lock = None;
        }
    }

    /// Close in good order: everything appended is durable, and a later open knows that nothing is missing.
    /// Idempotent. After a failure the directory is released as it is, but not before every write that
    /// is under way has returned: what lands later would hit the next writer's log.
    pub fn close(&self) -> Result<()> {
        let result = self.close_log();
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.wake_all(&inner);
        self.slot_wanted.notify_all();
        self.view.shut();
        while inner.writing > 0 {
            self.flushed.wait(&mut inner);
        }
        // Whoever still holds a log of this node must not keep its file system busy.
        inner.appender.active.segment.close_files();
        drop(inner);
        self.view.close_files();
        self.progress.close();
        self.files.lock().release();
        *self.lock.lock() = None;
        result
    }

    /// Before a close: leave the next open next to nothing to fold.
    fn checkpoint_rest(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        let active = &inner.appender.active;
        let rest = active.offset - active.checkpoint;
        // Somebody may still be appending.
        let quiet = active.durable == active.offset
            && !inner.appender.has_unsealed()
            && inner.appender.orders.is_idle();
        if !quiet || rest < active.segment.bytes / CLOSE_STEPS {
            return Ok(());
        }
        let checkpoint = inner.appender.checkpoint()?;
        self.progress.checkpoint(&checkpoint)
    }

    fn close_log(&self) -> Result<()> {
        {
            let inner = self.inner.lock();
            if inner.closed || inner.failed.is_some() {
                return Ok(());
            }
        }
        self.sync_last()?;
        if self.files.lock().is_untouched() {
            return Ok(());
        }
        self.checkpoint_rest()?;
        match self.change(0, None, 0, &Change::Close) {
            Ok(_) => self.sync_last()?,
            // No room for the mark: the next open looks for a torn tail, and finds none.
            Err(Error::LogFull { .. }) => {}
            Err(error) => return Err(error),
        }
        self.files.lock().close()
    }
}
