//! What to do to which operation.

use std::io;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

/// The kinds of operations that rules match and counters count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OpKind {
    /// Opening an existing file, durably or not.
    Open,
    /// Creating a file, empty or of zeros.
    Create,
    /// Creating a directory.
    CreateDir,
    /// Reading from an open file, or a whole file.
    Read,
    /// Writing, not durably.
    Write,
    /// Writing durably.
    WriteDurable,
    /// Syncing a file.
    Sync,
    /// Renaming; the path is the old one.
    Rename,
    /// Removing a file.
    Remove,
    /// Syncing a directory.
    SyncDir,
    /// Listing a directory.
    List,
    /// Taking a lock.
    Lock,
}

impl OpKind {
    /// The name that errors give the operation, the same as those of the other implementations.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Create | Self::CreateDir => "create",
            Self::Read => "read",
            Self::Write | Self::WriteDurable => "write",
            Self::Sync | Self::SyncDir => "sync",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::List => "list",
            Self::Lock => "lock",
        }
    }
}

/// An error that a system may give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// `EIO`: the device failed.
    Io,
    /// `ENOSPC`: the file system is full.
    NoSpace,
    /// `EROFS`: the file system was remounted read-only, as ext4 does after an error.
    ReadOnly,
    /// `EACCES`: not permitted.
    Denied,
    /// `EMFILE`: the process has no descriptor left.
    NoDescriptor,
}

impl Fault {
    pub(super) fn error(self) -> io::Error {
        match self {
            Self::Io => Errno::IO,
            Self::NoSpace => Errno::NOSPC,
            Self::ReadOnly => Errno::ROFS,
            Self::Denied => Errno::ACCESS,
            Self::NoDescriptor => Errno::MFILE,
        }
        .into()
    }
}

/// What a failed operation did all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// Nothing.
    Nothing,
    /// The first so many bytes of a write, not durable; of any other operation nothing.
    Prefix(usize),
    /// Everything: only the answer was lost.
    All,
}

/// A place where operations wait until the test lets them go.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    shared: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    is_open: bool,
    waiting: usize,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Let everyone through, now and from now on.
    pub fn open(&self) {
        self.shared.0.lock().is_open = true;
        self.shared.1.notify_all();
    }

    /// Operations waiting at the gate.
    pub fn waiting(&self) -> usize {
        self.shared.0.lock().waiting
    }

    /// Block until `count` operations wait at the gate.
    pub fn wait_for(&self, count: usize) {
        let (state, changed) = &*self.shared;
        changed.wait_while(&mut state.lock(), |state| state.waiting < count);
    }

    pub(super) fn pass(&self) {
        let (state, changed) = &*self.shared;
        let mut state = state.lock();
        state.waiting += 1;
        changed.notify_all();
        changed.wait_while(&mut state, |state| !state.is_open);
        state.waiting -= 1;
    }
}

/// What a rule does.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    Fail(Fault),
    Hang(Gate),
}

/// Which operations to disturb, and how. Without more words: every operation of the kind, from now
/// on, and nothing lands.
#[derive(Clone, Debug)]
pub struct Rule {
    kind: OpKind,
    path: Option<String>,
    skip: u64,
    times: u64,
    pub(super) effect: Effect,
    pub(super) landed: Landed,
}

impl Rule {
    fn new(kind: OpKind, effect: Effect) -> Self {
        Self {
            kind,
            path: None,
            skip: 0,
            times: u64::MAX,
            effect,
            landed: Landed::Nothing,
        }
    }

    /// Fail operations of `kind`.
    pub fn fail(kind: OpKind, fault: Fault) -> Self {
        Self::new(kind, Effect::Fail(fault))
    }

    /// Make operations of `kind` wait at `gate` before they are done.
    pub fn hang(kind: OpKind, gate: &Gate) -> Self {
        Self::new(kind, Effect::Hang(gate.clone()))
    }

    /// Only operations on a path that contains `part`.
    #[must_use]
    pub fn on(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Let the first `count` matching operations pass.
    #[must_use]
    pub fn after(mut self, count: u64) -> Self {
        self.skip = count;
        self
    }

    /// Apply to one operation only.
    #[must_use]
    pub fn once(mut self) -> Self {
        self.times = 1;
        self
    }

    /// What the failed operation does all the same.
    #[must_use]
    pub fn landing(mut self, landed: Landed) -> Self {
        self.landed = landed;
        self
    }

    /// Count an operation; whether the rule applies to it.
    pub(super) fn applies(&mut self, kind: OpKind, path: &Path) -> bool {
        let matches = self.kind == kind
            && self
                .path
                .as_ref()
                .is_none_or(|part| path.to_string_lossy().contains(part));
        if !matches {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let applies = self.times > 0;
        self.times = self.times.saturating_sub(1);
        applies
    }
}
