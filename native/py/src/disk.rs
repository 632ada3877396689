//! A disk in memory that crashes, fails and fills up when a simulation says so.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use braidlog_core::Error;
use braidlog_core::vfs::{
    Access, CrashPolicy, Fault, FaultVfs, Landed, MemoryVfs, OpKind, Rule, Vfs,
};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::to_py;
use crate::exit::detach;
use crate::number::Unsigned;

/// What a sync is made of.
const SYNCS: [OpKind; 3] = [OpKind::WriteDurable, OpKind::Sync, OpKind::SyncDir];

/// The disk in memory among the keywords of an open, taken out of them.
pub fn take_disk(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Option<Arc<dyn Vfs>>> {
    let Some(keywords) = keywords else {
        return Ok(None);
    };
    let Some(disk) = keywords.get_item("disk")? else {
        return Ok(None);
    };
    keywords.del_item("disk")?;
    if disk.is_none() {
        return Ok(None);
    }
    Ok(Some(disk.cast::<MemoryDisk>()?.get().vfs()))
}

/// What a crash leaves of what was not synced, with the next seed.
fn crash_policy(name: &str, seed: &mut u64) -> PyResult<CrashPolicy> {
    *seed = seed.wrapping_add(1);
    match name {
        "drop" => Ok(CrashPolicy::DropUnsynced),
        "keep" => Ok(CrashPolicy::KeepAll),
        "subset" => Ok(CrashPolicy::Subset { seed: *seed }),
        "torn" => Ok(CrashPolicy::Torn { seed: *seed }),
        other => Err(to_py(Error::InvalidArgument(format!(
            "policy must be drop, keep, subset or torn, got {other:?}"
        )))),
    }
}

/// What is in a directory: paths, and whether each is one itself.
fn inside(vfs: &FaultVfs, dir: &Path) -> braidlog_core::Result<Vec<(PathBuf, bool)>> {
    let paths = vfs.list(dir)?.into_iter().map(|name| dir.join(name));
    // A file says that it is no directory when it is listed.
    Ok(paths
        .map(|path| {
            let is_dir = vfs.list(&path).is_ok();
            (path, is_dir)
        })
        .collect())
}

fn sync_tree(vfs: &FaultVfs, dir: &Path) -> braidlog_core::Result<()> {
    for (path, is_dir) in inside(vfs, dir)? {
        if is_dir {
            sync_tree(vfs, &path)?;
        } else {
            vfs.open(&path, Access::Write)?.sync()?;
        }
    }
    vfs.sync_dir(dir)
}

fn remove_tree(vfs: &FaultVfs, path: &Path) -> braidlog_core::Result<()> {
    if vfs.list(path).is_err() {
        return vfs.remove(path);
    }
    for (inner, _) in inside(vfs, path)? {
        remove_tree(vfs, &inner)?;
    }
    vfs.remove_dir(path)
}

/// Files in memory. What was not synced may be lost in a crash; which, the seed decides.
#[pyclass(frozen, module = "braidlog._native")]
pub struct MemoryDisk {
    memory: MemoryVfs,
    faults: FaultVfs,
    seed: Mutex<u64>,
    /// Whether all operations are kept, so that it can crash behind any of them.
    records: bool,
}

impl MemoryDisk {
    fn over(memory: MemoryVfs, seed: u64, records: bool) -> Self {
        Self {
            faults: FaultVfs::new(Arc::new(memory.clone())),
            memory,
            seed: Mutex::new(seed),
            records,
        }
    }

    /// As the store takes it.
    pub fn vfs(&self) -> Arc<dyn Vfs> {
        Arc::new(self.faults.clone())
    }
}

#[pymethods]
impl MemoryDisk {
    /// With `record` it keeps everything that is done to it, for `crashes`.
    #[new]
    #[pyo3(signature = (seed=0, record=false))]
    fn new(seed: u64, record: bool) -> Self {
        let memory = if record {
            MemoryVfs::new()
        } else {
            MemoryVfs::folding()
        };
        Self::over(memory, seed, record)
    }

    /// Operations so far, of a disk that records them.
    #[getter]
    fn operations(&self) -> usize {
        self.memory.operations()
    }

    /// The disk as it would be after a crash behind so many operations, for each of `cuts`. It has to record them.
    fn crashes(&self, py: Python<'_>, cuts: Vec<usize>, policy: &str) -> PyResult<Vec<Self>> {
        let invalid = |reason: String| to_py(Error::InvalidArgument(reason));
        if !self.records {
            return Err(invalid("the disk does not record its operations".into()));
        }
        let mut seed = self.seed.lock();
        let policies = cuts.iter().map(|_| crash_policy(policy, &mut seed));
        let policies = policies.collect::<PyResult<Vec<_>>>()?;
        let trace = detach(py, || self.memory.trace());
        if let Some(cut) = cuts.iter().find(|cut| **cut > trace.len()) {
            let done = trace.len();
            return Err(invalid(format!("cut {cut} of {done} operations")));
        }
        let images = cuts.iter().zip(policies).map(|(cut, policy)| {
            let image = trace.crash(*cut, policy).into_folding();
            Self::over(image, *seed, false)
        });
        Ok(images.collect())
    }

    /// The disk after a crash now: without what was not synced ("drop"), with some of it ("subset"), some of it
    /// torn at sectors ("torn"), or with all of it ("keep": the process died, the machine did not). This one
    /// stays what it is, for those who do not know that they are dead.
    #[pyo3(signature = (policy="torn"))]
    fn crash(&self, py: Python<'_>, policy: &str) -> PyResult<Self> {
        let mut seed = self.seed.lock();
        let policy = crash_policy(policy, &mut seed)?;
        let image = detach(py, || {
            let trace = self.memory.trace();
            trace.crash(trace.len(), policy)
        });
        Ok(Self::over(image.into_folding(), *seed, false))
    }

    /// Fail the next synchronous write; with `landed` it is on the disk all the same.
    #[pyo3(signature = (landed=false))]
    fn fail_next_sync(&self, landed: bool) {
        let landed = if landed { Landed::All } else { Landed::Nothing };
        let rule = Rule::fail(OpKind::WriteDurable, Fault::Io).once();
        self.faults.add(rule.landing(landed));
    }

    /// Fail every sync from now on, or no operation any more.
    fn fail_syncs(&self, on: bool) {
        if on {
            for kind in SYNCS {
                self.faults.add(Rule::fail(kind, Fault::Io));
            }
        } else {
            self.faults.clear();
        }
    }

    /// Let files grow by so many bytes together; `None` is no bound.
    fn set_free(&self, size: Option<Unsigned>) {
        self.faults.set_free_bytes(size.map(|size| size.0));
    }

    /// Damage one bit, 0 is the lowest, of the byte at `offset`.
    #[pyo3(signature = (path, offset, bit=0))]
    fn flip_bit(&self, path: PathBuf, offset: Unsigned, bit: u8) -> PyResult<()> {
        if bit > 7 {
            return Err(to_py(Error::InvalidArgument(format!(
                "bit must be from 0 to 7, got {bit}"
            ))));
        }
        self.memory.flip_bit(&path, offset.0, bit).map_err(to_py)
    }

    /// Path and size of each file.
    fn files(&self) -> PyResult<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for path in self.memory.paths() {
            if !path.ends_with('/') {
                let file = self.memory.open(Path::new(&path), Access::Read);
                let size = file.and_then(|file| file.len()).map_err(to_py)?;
                found.push((path, size));
            }
        }
        Ok(found)
    }

    /// Names in a directory, sorted; none where there is no such directory.
    fn names(&self, directory: PathBuf) -> PyResult<Vec<String>> {
        if !self.faults.exists(&directory).map_err(to_py)? {
            return Ok(Vec::new());
        }
        self.faults.list(&directory).map_err(to_py)
    }

    /// Write a part of a file, which is made with its directories if it is not there. At 0 it begins anew.
    fn write(&self, path: PathBuf, offset: u64, data: Vec<u8>) -> PyResult<()> {
        let write = || {
            let vfs = &self.faults;
            vfs.create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            if offset == 0 && vfs.exists(&path)? {
                vfs.remove(&path)?;
            }
            let access = if vfs.exists(&path)? {
                Access::Write
            } else {
                Access::CreateNew
            };
            vfs.open(&path, access)?.write_all_at(&data, offset)
        };
        write().map_err(to_py)
    }

    /// Make a directory durable, with all that is in it.
    fn sync_tree(&self, directory: PathBuf) -> PyResult<()> {
        sync_tree(&self.faults, &directory).map_err(to_py)
    }

    /// Give a file or directory another name, durably.
    #[pyo3(signature = (from_, to))]
    fn rename(&self, from_: PathBuf, to: PathBuf) -> PyResult<()> {
        let rename = || {
            self.faults.rename(&from_, &to)?;
            self.faults.sync_dir(to.parent().unwrap_or(Path::new("/")))
        };
        rename().map_err(to_py)
    }

    /// Remove a file, or a directory with all that is in it.
    fn remove_tree(&self, path: PathBuf) -> PyResult<()> {
        let remove = || {
            remove_tree(&self.faults, &path)?;
            self.faults
                .sync_dir(path.parent().unwrap_or(Path::new("/")))
        };
        remove().map_err(to_py)
    }

    /// The content of a file.
    fn read(&self, path: PathBuf) -> PyResult<Vec<u8>> {
        self.memory.read(&path, u64::MAX).map_err(to_py)
    }
}
