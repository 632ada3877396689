//! A durable list of numbered entries in a directory of its own, for things that Python lists.

use std::path::PathBuf;
use std::sync::Arc;

use braidlog_core::manifest::{Identity, Listing as Entries, ListingOperation, Manifest, Options};
use braidlog_core::vfs::{RealVfs, Vfs, VfsLock};
use braidlog_core::{Error, Result as CoreResult};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::to_py;
use crate::exit::detach;
use crate::number::Unsigned;

/// The writer of a list.
#[pyclass(frozen, module = "braidlog._native")]
pub struct Listing {
    open: Mutex<Option<Open>>,
}

struct Open {
    // Dropped before the lock is.
    manifest: Manifest<Entries>,
    _lock: Box<dyn VfsLock>,
}

fn id(bytes: [u8; 16]) -> u128 {
    u128::from_be_bytes(bytes)
}

impl Listing {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Manifest<Entries>) -> CoreResult<R> + Send,
    ) -> PyResult<R> {
        detach(py, || match self.open.lock().as_mut() {
            Some(open) => work(&mut open.manifest),
            None => Err(Error::Closed),
        })
        .map_err(to_py)
    }
}

#[pymethods]
impl Listing {
    #[new]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        owner: [u8; 16],
        holder: [u8; 16],
        process: String,
    ) -> PyResult<Self> {
        let identity = Identity {
            object: id(owner),
            node: id(holder),
        };
        let open = detach(py, || -> CoreResult<Open> {
            let vfs: Arc<dyn Vfs> = Arc::new(RealVfs);
            vfs.create_dir_all(&path)?;
            let lock = vfs.lock(&path.join("LOCK"), &process)?;
            let options = Options::default();
            let manifest = Manifest::open_or_create(vfs, &path, identity, options)?;
            Ok(Open {
                manifest,
                _lock: lock,
            })
        });
        let open = Mutex::new(Some(open.map_err(to_py)?));
        Ok(Self { open })
    }

    /// Number and bytes of each entry.
    fn entries<'py>(&self, py: Python<'py>) -> PyResult<Vec<(u64, Bound<'py, PyBytes>)>> {
        let version = self.with(py, |manifest| Ok(manifest.version().clone()))?;
        let entries = version.entries();
        Ok(entries
            .map(|(number, entry)| (number, PyBytes::new(py, entry)))
            .collect())
    }

    /// The lowest number that was never given.
    fn next_number(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |manifest| Ok(manifest.version().next()))
    }

    fn commit(
        &self,
        py: Python<'_>,
        add: Vec<(Unsigned, Vec<u8>)>,
        remove: Vec<Unsigned>,
    ) -> PyResult<()> {
        let mut operations: Vec<_> = add
            .into_iter()
            .map(|(number, entry)| ListingOperation::Add {
                number: number.0,
                entry: entry.into(),
            })
            .collect();
        operations.extend(
            remove
                .into_iter()
                .map(|number| ListingOperation::Remove { number: number.0 }),
        );
        self.with(py, |manifest| manifest.commit(&operations).map(|_| ()))
    }

    /// Know again what the disk has after a commit whose outcome is unknown: not that edit.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Manifest::settle)
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let close = || match self.open.lock().take() {
            Some(open) => open.manifest.close(),
            None => Ok(()),
        };
        detach(py, close).map_err(to_py)
    }
}
