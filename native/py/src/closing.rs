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

/// The one close of a store. A thread of its own does it: whoever waits may turn away, but what was
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
        self.begin(store)?;
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
                return Err(timed_out(py, "a write has not returned yet")?);
            }
        }
    }

    fn begin(self: &Arc<Self>, store: &Arc<wal::Store>) -> PyResult<()> {
        let mut progress = self.progress.lock();
        if !matches!(*progress, Progress::Open) {
            return Ok(());
        }
        let (closing, store) = (Arc::clone(self), Arc::clone(store));
        let run = move || {
            let result = store.close();
            *closing.progress.lock() = Progress::Done(Some(result));
            closing.changed.notify_all();
        };
        thread::Builder::new()
            .name("braidlog-close".into())
            .spawn(run)?;
        *progress = Progress::Closing;
        Ok(())
    }
}
