//! Whether a handle may still be used, for everything that was made from it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use braidlog_core::wal::{Follower, Store, StreamView, View};
use braidlog_core::{Error, Result};
use parking_lot::Mutex;

const OPEN: u8 = 0;
const CLOSED: u8 = 1;
const FORKED: u8 = 2;

/// Shared by a node and the views, iterators and pending appends that came from it.
#[derive(Default)]
pub struct Gate {
    state: AtomicU8,
}

impl Gate {
    /// The node was closed: other processes may write and recycle its files from now on.
    pub fn close(&self) {
        let _ = self
            .state
            .compare_exchange(OPEN, CLOSED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// This process is the child of a fork: locks may be held for ever by threads that are not here.
    pub fn fork(&self) {
        self.state.store(FORKED, Ordering::Release);
    }

    /// Refuse unless open.
    pub fn check(&self) -> Result<()> {
        match self.state.load(Ordering::Acquire) {
            CLOSED => Err(Error::Closed),
            _ => self.check_forked(),
        }
    }

    /// Refuse only in the child of a fork.
    pub fn check_forked(&self) -> Result<()> {
        if self.state.load(Ordering::Acquire) == FORKED {
            let text = "this was opened before this process was forked; open it again in the child";
            return Err(Error::InvalidArgument(text.into()));
        }
        Ok(())
    }
}

/// What follows a writer, until it is closed.
pub struct Following(Mutex<Option<Follower>>);

impl Following {
    /// Follow with `follower`.
    pub fn new(follower: Follower) -> Self {
        Self(Mutex::new(Some(follower)))
    }

    /// Run `f` on the follower, or refuse.
    pub fn with<T>(&self, f: impl FnOnce(&mut Follower) -> Result<T>) -> Result<T> {
        self.0.lock().as_mut().map_or(Err(Error::Closed), f)
    }

    /// Let go of all files.
    pub fn close(&self) {
        if let Some(follower) = self.0.lock().take() {
            follower.view().close_files();
        }
    }
}

/// One log as readers hold it.
#[derive(Clone)]
pub struct Reader {
    /// The node.
    pub view: Arc<View>,
    /// The log's stream.
    pub stream: Arc<StreamView>,
    /// Name of the log, where it is known.
    pub log: Option<Arc<str>>,
    /// Of the node.
    pub gate: Arc<Gate>,
    /// The writer, if this process is it.
    pub store: Option<Arc<Store>>,
    /// What follows the writer, if it is another process.
    pub follower: Option<Arc<Following>>,
}

impl Reader {
    /// Refuse once the node is closed or the log deleted: its segments may hold something else.
    pub fn check(&self) -> Result<()> {
        self.gate.check()?;
        if self.stream.is_gone() && self.view.stream(self.stream.number).is_err() {
            let what = match &self.log {
                Some(name) => format!("log {name:?} (it was deleted)"),
                None => format!("stream {} (its log was deleted)", self.stream.number),
            };
            return Err(Error::NotFound { what });
        }
        Ok(())
    }

    /// Make what became durable elsewhere visible, if another process writes.
    pub fn refresh(&self) -> Result<()> {
        match &self.follower {
            Some(follower) => {
                self.gate.check()?;
                follower.with(Follower::refresh).map(|_| ())
            }
            None => Ok(()),
        }
    }

    /// Read; what fails because of a close or a delete meanwhile says that.
    ///
    /// What looks like damage to a follower may be a segment that the writer trimmed or moved and used
    /// again since the last refresh, so it looks once more after a fresh one.
    pub fn read<T>(&self, mut f: impl FnMut(&View, &StreamView) -> Result<T>) -> Result<T> {
        self.check()?;
        let mut found = f(&self.view, &self.stream);
        if let (Err(Error::Corruption { .. }), Some(follower)) = (&found, &self.follower) {
            follower.with(Follower::refresh)?;
            found = f(&self.view, &self.stream);
        }
        found.map_err(|error| self.check().err().unwrap_or(error))
    }

    /// Why a wait ended before its time.
    pub fn ended(&self) -> Error {
        let failed = || match &self.store {
            Some(store) => store.is_durable(u64::MAX).map(|_| ()),
            None => Ok(()),
        };
        self.check()
            .and_then(|()| failed())
            .err()
            .unwrap_or(Error::Closed)
    }
}
