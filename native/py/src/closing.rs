//! Closing with a way out: a write that hangs in the device holds up a close for as long as it hangs.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use braidlog_core::Result;
use braidlog_core::wal;
use parking_lot::{Condvar, Mutex};
use pyo3::prelude::*;

use crate::error::to_py;
use crate::number::Seconds;
use crate::pending::{SIGNAL_INTERVAL, timed_out};

#[derive(Default)]
enum Progress {
    #[default]
    Open,
    Closing,
    /// What came of it, until somebody has taken it.
    Done(Option<Result<()>>),
}

/// The one close of a store. A thread of its own does it, if the system has one: whoever waits may turn away, but what was
/// begun cannot be left half-way, and the directory is not free before it is done.
#[derive(Default)]
pub struct Closing {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Closing {
    /// Begin to close, or go on waiting for that; minds signals.
    pub fn close(
        self: &Arc<Self>,
        py: Python<'_>,
        store: &Arc<wal::Store>,
        timeout: Option<Seconds>,
    ) -> PyResult<()> {
        let deadline = timeout.map(|Seconds(time)| Instant::now() + time);
        self.begin(py, store);
        loop {
            let left = deadline.map_or(SIGNAL_INTERVAL, |deadline| {
                SIGNAL_INTERVAL.min(deadline.saturating_duration_since(Instant::now()))
            });
            let done = py.detach(|| {
                let mut progress = self.progress.lock();
                let closing = |progress: &mut Progress| matches!(progress, Progress::Closing);
                self.changed.wait_while_for(&mut progress, closing, left);
                match &mut *progress {
                    Progress::Done(result) => Some(result.take().unwrap_or(Ok(()))),
                    _ => None,
                }
            });
            if let Some(result) = done {
                return result.map_err(to_py);
            }
            py.check_signals()?;
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(timed_out(
                    py,
                    "the store is still closing: a write has not returned yet",
                )?);
            }
        }
    }

    fn begin(self: &Arc<Self>, py: Python<'_>, store: &Arc<wal::Store>) {
        {
            let mut progress = self.progress.lock();
            if !matches!(*progress, Progress::Open) {
                return;
            }
            *progress = Progress::Closing;
        }
        let (closing, closed) = (Arc::clone(self), Arc::clone(store));
        let started = thread::Builder::new()
            .name("braidlog-close".into())
            .spawn(move || closing.finish(&closed));
        // The directory must become free, also where there is no thread for it: then who closes waits,
        // however long a write takes.
        if started.is_err() {
            py.detach(|| self.finish(store));
        }
    }

    fn finish(&self, store: &wal::Store) {
        let result = store.close();
        *self.progress.lock() = Progress::Done(Some(result));
        self.changed.notify_all();
    }
}
