//! Raw directories of a log, merged into its order.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use braidlog_core::batch::{BatchBuilder, BatchView, Compression, parse_head};
use braidlog_core::replay::{Damage, Directory, Merge, OnHole, Options, Piece};
use braidlog_core::vfs::RealVfs;
use braidlog_core::{Error, Result};
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::arrow::{Checks, Owner, Projection, export_batch};
use crate::error::to_py;
use crate::exit::detach;
use crate::number::Unsigned;
use crate::replicas::{Context, Standing, context_of, standing_of};
use crate::scan::ArrowBatch;

/// Smaller batches are gathered, up to this size.
const GATHERED_BYTES: usize = 1 << 20;

/// Batches from this size on leave as they are.
const LARGE_BYTES: usize = 256 << 10;

/// A log: (name, stream, options, whether commits are frames).
type Log<'py> = (String, u32, Bound<'py, PyBytes>, bool);

/// Records of an encoded batch: (position, stream, LLSN, first record, records, batch).
type Row<'py> = (u64, u64, u64, u32, u32, Bound<'py, PyBytes>);

/// Damage: (path, begin, end where it is known, reason).
type DamageRow = (String, u64, Option<u64>, String);

fn damage_rows(damages: &[Damage]) -> Vec<DamageRow> {
    let row = |each: &Damage| {
        let (path, reason) = (each.path.display().to_string(), each.reason.clone());
        (path, each.begin, each.end, reason)
    };
    damages.iter().map(row).collect()
}

/// One node's directory, which no node runs on.
#[pyclass(frozen, module = "braidlog._native")]
pub struct RawDirectory {
    directory: Mutex<Option<Arc<Directory>>>,
}

impl RawDirectory {
    fn get(&self) -> PyResult<Arc<Directory>> {
        let directory = self.directory.lock();
        directory.clone().ok_or_else(|| to_py(Error::Closed))
    }
}

#[pymethods]
impl RawDirectory {
    #[staticmethod]
    #[pyo3(signature = (path, *, order_bytes_max=None, holder="replay".to_owned()))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        order_bytes_max: Option<Unsigned>,
        holder: String,
    ) -> PyResult<Self> {
        let options = Options {
            order_bytes_max: order_bytes_max.map(|bytes| bytes.0),
            holder,
            ..Options::default()
        };
        let opened = detach(py, || Directory::open(Arc::new(RealVfs), &path, options));
        let directory = Arc::new(opened.map_err(to_py)?);
        Ok(Self {
            directory: Mutex::new(Some(directory)),
        })
    }

    /// (name, stream, options, whether commits are frames) of each log.
    fn logs<'py>(&self, py: Python<'py>) -> PyResult<Vec<Log<'py>>> {
        let logs = self.get()?.logs().into_iter();
        let rows = logs.map(|(name, (stream, options, explicit))| {
            (name, stream, PyBytes::new(py, &options), explicit)
        });
        Ok(rows.collect())
    }

    /// As `Replicas.state`; all that is in the files is durable.
    fn state(&self, stream: u32) -> PyResult<Standing> {
        let directory = self.get()?;
        let stream = directory.stream(stream).map_err(to_py)?;
        Ok(standing_of(stream, stream.next))
    }

    /// What cannot be read of the end of its log.
    fn damages(&self) -> PyResult<Vec<DamageRow>> {
        Ok(damage_rows(&self.get()?.damages))
    }

    /// The streams of which it is not known for that reason where they end.
    fn doubtful(&self) -> PyResult<Vec<u32>> {
        Ok(self.get()?.doubtful.iter().copied().collect())
    }

    /// Take over a commit that no file tells of; before anything reads the directory.
    fn commit(&self, stream: u32, epoch: u64, context: Context) -> PyResult<()> {
        let mut directory = self.directory.lock();
        let directory = directory.as_mut().ok_or_else(|| to_py(Error::Closed))?;
        let Some(directory) = Arc::get_mut(directory) else {
            let reason = "a directory that is being read takes no commits".into();
            return Err(to_py(Error::InvalidArgument(reason)));
        };
        directory
            .commit(stream, epoch, context_of(context))
            .map_err(to_py)
    }

    /// Let go of the directory; what was made from it fails or goes on with what it has.
    fn close(&self) {
        *self.directory.lock() = None;
    }
}

struct Reader {
    merge: Merge,
    /// What did not go into the last batch.
    next: Option<Piece>,
    /// What ended it behind the last batch: what comes before is given out first.
    failure: Option<Error>,
}

/// The records of a log, once, in order: an iterator of [`ArrowBatch`].
#[pyclass(module = "braidlog._native")]
pub struct RawMerge {
    reader: AssertUnwindSafe<Mutex<Option<Reader>>>,
    projection: Projection,
}

struct Held(AssertUnwindSafe<Piece>);

// SAFETY: the bytes belong to a batch behind an `Arc`, which nobody changes.
unsafe impl Owner for Held {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl Reader {
    fn take(&mut self) -> Result<Option<Piece>> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let found = match self.next.take() {
            None => self.merge.next()?,
            found => found,
        };
        if let Some(piece) = &found {
            parse_head(piece.bytes())?.check_there(piece.glsn - u64::from(piece.first))?;
        }
        Ok(found)
    }

    /// The next piece for a batch that was begun; a failure is kept for the next one.
    fn take_more(&mut self) -> Option<Piece> {
        match self.take() {
            Ok(found) => found,
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    fn batch(&mut self, projection: &Projection) -> Result<Option<RecordBatch>> {
        let Some(piece) = self.take()? else {
            return Ok(None);
        };
        if piece.bytes().len() >= LARGE_BYTES && piece.glsn >= u64::from(piece.first) {
            return export(piece, projection).map(Some);
        }
        let (first, mut end) = (piece.glsn, piece.glsn);
        let (mut builder, mut piece) = (BatchBuilder::new(), piece);
        loop {
            end += u64::from(piece.count);
            let view = BatchView::parse_verified(piece.bytes())?;
            for at in piece.first..piece.first + piece.count {
                if let Some(record) = view.record(at) {
                    let headers: Vec<_> = record.headers.collect();
                    builder.push(record.value, record.key, record.timestamp, &headers)?;
                }
            }
            let Some(next) = self.take_more() else {
                break;
            };
            let fits = builder.encoded_len_max() + next.bytes().len() < GATHERED_BYTES;
            if !fits || next.glsn != end {
                self.next = Some(next);
                break;
            }
            piece = next;
        }
        let count = builder.len() as u32;
        let mut bytes = Vec::with_capacity(builder.encoded_len_max());
        builder.encode_into(Compression::None, &mut bytes)?;
        let range = 0..bytes.len();
        let owner: Arc<dyn Owner> = Arc::new(bytes);
        export_batch(&owner, range, first, 0..count, projection, Checks::Verified).map(Some)
    }

    fn pieces(&mut self, bytes_max: usize) -> Result<Vec<Piece>> {
        let Some(first) = self.take()? else {
            return Ok(Vec::new());
        };
        let mut bytes = first.bytes().len();
        let mut found = vec![first];
        while bytes < bytes_max {
            let Some(piece) = self.take_more() else { break };
            bytes += piece.bytes().len();
            found.push(piece);
        }
        Ok(found)
    }
}

fn export(piece: Piece, projection: &Projection) -> Result<RecordBatch> {
    let first = piece.glsn - u64::from(piece.first);
    let (range, clip) = (
        0..piece.bytes().len(),
        piece.first..piece.first + piece.count,
    );
    let owner: Arc<dyn Owner> = Arc::new(Held(AssertUnwindSafe(piece)));
    export_batch(&owner, range, first, clip, projection, Checks::Verified)
}

impl RawMerge {
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Reader) -> Result<R> + Send,
    ) -> PyResult<R> {
        let reader = &self.reader.0;
        detach(py, || match reader.lock().as_mut() {
            Some(reader) => f(reader),
            None => Err(Error::Closed),
        })
        .map_err(to_py)
    }
}

#[pymethods]
impl RawMerge {
    /// Merge streams of directories; each mapping gives the caller's number of a directory's stream.
    #[new]
    #[pyo3(signature = (sources, *, begin=None, end=None, on_hole="stop"))]
    fn new(
        py: Python<'_>,
        sources: Vec<(Py<RawDirectory>, BTreeMap<u32, u64>)>,
        begin: Option<Unsigned>,
        end: Option<Unsigned>,
        on_hole: &str,
    ) -> PyResult<Self> {
        let on_hole = match on_hole {
            "stop" => OnHole::Stop,
            "fail" => OnHole::Fail,
            "skip" => OnHole::Skip,
            other => {
                let reason = format!("on_hole {other:?} is not stop, fail or skip");
                return Err(to_py(Error::InvalidArgument(reason)));
            }
        };
        let mut opened = Vec::with_capacity(sources.len());
        for (directory, streams) in sources {
            opened.push((directory.get().get()?, streams));
        }
        let (begin, end) = (begin.map(|begin| begin.0), end.map(|end| end.0));
        let merge = detach(py, || Merge::new(&opened, begin, end, on_hole));
        let merge = merge.map_err(to_py)?;
        let reader = Reader {
            merge,
            next: None,
            failure: None,
        };
        Ok(Self {
            reader: AssertUnwindSafe(Mutex::new(Some(reader))),
            projection: Projection::all(),
        })
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<ArrowBatch>> {
        let found = self.with(py, |reader| reader.batch(&self.projection))?;
        Ok(found.map(ArrowBatch::new))
    }

    /// The next encoded batches, about `bytes_max` bytes; none at the end.
    fn encoded<'py>(&self, py: Python<'py>, bytes_max: usize) -> PyResult<Vec<Row<'py>>> {
        let found = self.with(py, |reader| reader.pieces(bytes_max))?;
        let row = |piece: &Piece| {
            let bytes = PyBytes::new(py, piece.bytes());
            (
                piece.glsn,
                piece.stream,
                piece.llsn,
                piece.first,
                piece.count,
                bytes,
            )
        };
        Ok(found.iter().map(row).collect())
    }

    /// Read up to `records` records and give none out: (records, bytes). To measure, or to check copies.
    fn drain(&self, py: Python<'_>, records: Unsigned) -> PyResult<(u64, u64)> {
        self.with(py, |reader| {
            let (mut read, mut bytes) = (0, 0);
            while read < records.0 {
                let Some(piece) = reader.take()? else { break };
                read += u64::from(piece.count);
                bytes += piece.bytes().len() as u64;
            }
            Ok((read, bytes))
        })
    }

    /// What was done so far.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let figures = self.with(py, |reader| Ok(reader.merge.figures()))?;
        let dict = PyDict::new(py);
        dict.set_item("next", figures.next)?;
        dict.set_item("records", figures.records)?;
        dict.set_item("bytes", figures.bytes)?;
        dict.set_item("duplicates", figures.duplicates)?;
        dict.set_item("holes", figures.holes)?;
        dict.set_item("unproven", figures.unproven)?;
        let mut sources = Vec::new();
        for source in figures.sources {
            let row = PyDict::new(py);
            row.set_item("path", source.path.display().to_string())?;
            row.set_item("bytes", source.bytes)?;
            row.set_item("late_bytes", source.late_bytes)?;
            row.set_item("pending_bytes_peak", source.pending_bytes_peak)?;
            row.set_item("damages", damage_rows(&source.damages))?;
            sources.push(row);
        }
        dict.set_item("sources", sources)?;
        Ok(dict)
    }

    /// End it.
    fn close(&self) {
        *self.reader.0.lock() = None;
    }
}
