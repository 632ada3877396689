//! A file system that fails, fills up or hangs when a test says so, around any other.

mod rule;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;

pub use rule::{Fault, Gate, Landed, OpKind, Rule};

use super::{Access, SyncMethod, Vfs, VfsFile, VfsLock, check_blocks};
use crate::error::{Error, Result};
use rule::Effect;

/// A file system with faults; clones share rules, counters and space. Without rules it does what
/// the wrapped one does.
#[derive(Clone)]
pub struct FaultVfs {
    inner: Arc<dyn Vfs>,
    plan: Arc<Plan>,
}

#[derive(Default)]
struct Plan {
    rules: Mutex<Vec<Rule>>,
    counts: Mutex<BTreeMap<OpKind, u64>>,
    /// Bytes that files may still grow by; held over an operation that takes or frees space, so
    /// that two cannot take the same.
    free: Mutex<Option<u64>>,
}

/// How an operation is to fail.
struct Failure {
    error: Error,
    landed: Landed,
}

impl Plan {
    /// Count an operation, let it wait where a rule says so, and tell how it fails, if it does.
    fn meet(&self, kind: OpKind, path: &Path) -> Option<Failure> {
        *self.counts.lock().entry(kind).or_default() += 1;
        let mut gates = Vec::new();
        let mut failure = None;
        for rule in self.rules.lock().iter_mut() {
            if !rule.applies(kind, path) {
                continue;
            }
            match &rule.effect {
                Effect::Hang(gate) => gates.push(gate.clone()),
                Effect::Fail(fault) => {
                    let error = Error::io(kind.name(), path, fault.error());
                    failure.get_or_insert(Failure {
                        error,
                        landed: rule.landed,
                    });
                }
            }
        }
        // Outside the lock: other operations go on.
        gates.iter().for_each(Gate::pass);
        failure
    }

    /// Do `act`, or fail it.
    fn run<T>(&self, kind: OpKind, path: &Path, act: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.meet(kind, path) {
            None => act(),
            Some(Failure { error, landed }) => {
                if landed == Landed::All {
                    // Whether it landed or failed by itself, the caller learns the injected error.
                    let _ = act();
                }
                Err(error)
            }
        }
    }

    /// Do `act`, which grows files by `growth` bytes, when there is space for them.
    fn grow<T>(
        &self,
        kind: OpKind,
        path: &Path,
        growth: impl FnOnce() -> Result<u64>,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let mut free = self.free.lock();
        let Some(bytes) = *free else {
            drop(free);
            return act();
        };
        let Some(left) = bytes.checked_sub(growth()?) else {
            return Err(Error::io(kind.name(), path, Fault::NoSpace.error()));
        };
        let result = act()?;
        *free = Some(left);
        Ok(result)
    }
}

impl FaultVfs {
    /// Wrap `inner`; no rules, no bound on space.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
        }
    }

    /// Add a rule. Several may match one operation: it waits at all their gates, and fails as the
    /// first failing one says.
    pub fn add(&self, rule: Rule) {
        self.plan.rules.lock().push(rule);
    }

    /// Remove all rules. Operations that wait at a gate stay there.
    pub fn clear(&self) {
        self.plan.rules.lock().clear();
    }

    /// How often an operation of this kind was called, failed calls included.
    pub fn count(&self, kind: OpKind) -> u64 {
        self.plan.counts.lock().get(&kind).copied().unwrap_or(0)
    }

    /// Begin counting anew.
    pub fn reset_counts(&self) {
        self.plan.counts.lock().clear();
    }

    /// Let files grow by so many bytes together, beyond which there is `ENOSPC`; removing and
    /// replacing files gives their bytes back. `None` is no bound.
    pub fn set_free_bytes(&self, bytes: Option<u64>) {
        *self.plan.free.lock() = bytes;
    }

    /// Bytes left, when there is a bound.
    pub fn free_bytes(&self) -> Option<u64> {
        *self.plan.free.lock()
    }

    fn wrap(&self, file: Arc<dyn VfsFile>) -> Arc<dyn VfsFile> {
        Arc::new(FaultFile {
            inner: file,
            plan: Arc::clone(&self.plan),
        })
    }

    /// Do `act`, which frees the bytes of the file at `path`, if there is one.
    fn free(&self, path: &Path, act: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut free = self.plan.free.lock();
        let Some(bytes) = *free else {
            drop(free);
            return act();
        };
        let len = self
            .inner
            .open(path, Access::Read)
            .and_then(|file| file.len())
            .unwrap_or(0);
        act()?;
        *free = Some(bytes.saturating_add(len));
        Ok(())
    }
}

impl fmt::Debug for FaultVfs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FaultVfs")
            .field("rules", &*self.plan.rules.lock())
            .field("counts", &*self.plan.counts.lock())
            .finish_non_exhaustive()
    }
}

struct FaultFile {
    inner: Arc<dyn VfsFile>,
    plan: Arc<Plan>,
}

impl FaultFile {
    fn write(&self, kind: OpKind, data: &[u8], offset: u64) -> Result<()> {
        let growth =
            |len: usize| move || Ok((offset + len as u64).saturating_sub(self.inner.len()?));
        let write = || match kind {
            OpKind::WriteDurable => self.inner.write_durable_at(data, offset),
            _ => self.inner.write_all_at(data, offset),
        };
        match self.plan.meet(kind, self.path()) {
            None => self.plan.grow(kind, self.path(), growth(data.len()), write),
            Some(Failure { error, landed }) => {
                // What lands does so as far as the wrapped file lets it.
                let _ = match landed {
                    Landed::Nothing => Ok(()),
                    Landed::All => self.plan.grow(kind, self.path(), growth(data.len()), write),
                    Landed::Prefix(bytes) => {
                        let part = &data[..bytes.min(data.len())];
                        self.plan.grow(kind, self.path(), growth(part.len()), || {
                            self.inner.write_all_at(part, offset)
                        })
                    }
                };
                Err(error)
            }
        }
    }
}

impl VfsFile for FaultFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.plan.run(OpKind::Read, self.path(), || {
            self.inner.read_exact_at(buf, offset)
        })
    }

    fn write_all_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.write(OpKind::Write, data, offset)
    }

    fn write_durable_at(&self, data: &[u8], offset: u64) -> Result<()> {
        check_blocks(data, offset)?;
        self.write(OpKind::WriteDurable, data, offset)
    }

    fn sync(&self) -> Result<()> {
        self.plan
            .run(OpKind::Sync, self.path(), || self.inner.sync())
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }
}

impl Vfs for FaultVfs {
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn VfsFile>> {
        let kind = if access == Access::CreateNew {
            OpKind::Create
        } else {
            OpKind::Open
        };
        self.plan
            .run(kind, path, || Ok(self.wrap(self.inner.open(path, access)?)))
    }

    fn open_durable(&self, path: &Path, method: SyncMethod) -> Result<Arc<dyn VfsFile>> {
        self.plan.run(OpKind::Open, path, || {
            Ok(self.wrap(self.inner.open_durable(path, method)?))
        })
    }

    /// A rule that fails this while it lands leaves the file behind, as a crash would.
    fn create_zeroed(&self, path: &Path, len: u64) -> Result<()> {
        self.plan.run(OpKind::Create, path, || {
            let create = || self.inner.create_zeroed(path, len);
            self.plan.grow(OpKind::Create, path, || Ok(len), create)
        })
    }

    fn extend_zeroed(&self, path: &Path, begin: u64, end: u64) -> Result<()> {
        self.plan.run(OpKind::Create, path, || {
            let len = || self.inner.open(path, Access::Read)?.len();
            let growth = || Ok(end.saturating_sub(len()?));
            let extend = || self.inner.extend_zeroed(path, begin, end);
            self.plan.grow(OpKind::Create, path, growth, extend)
        })
    }

    fn read(&self, path: &Path, max: u64) -> Result<Vec<u8>> {
        self.plan
            .run(OpKind::Read, path, || self.inner.read(path, max))
    }

    fn list(&self, dir: &Path) -> Result<Vec<String>> {
        self.plan.run(OpKind::List, dir, || self.inner.list(dir))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }

    fn create_dir_all(&self, dir: &Path) -> Result<()> {
        self.plan
            .run(OpKind::CreateDir, dir, || self.inner.create_dir_all(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.plan.run(OpKind::Rename, from, || {
            let rename = || self.inner.rename(from, to);
            if from == to {
                rename()
            } else {
                self.free(to, rename)
            }
        })
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.plan.run(OpKind::Remove, path, || {
            self.free(path, || self.inner.remove(path))
        })
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.plan
            .run(OpKind::Remove, dir, || self.inner.remove_dir(dir))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.plan
            .run(OpKind::SyncDir, dir, || self.inner.sync_dir(dir))
    }

    fn lock(&self, path: &Path, note: &str) -> Result<Box<dyn VfsLock>> {
        self.plan
            .run(OpKind::Lock, path, || self.inner.lock(path, note))
    }

    fn is_locked(&self, path: &Path) -> Result<bool> {
        self.inner.is_locked(path)
    }
}
