//! What producers have stored in a log whose batches are entries of a Raft group.

use braidlog_core::Result;
use braidlog_core::wal::{Admission, Producers, Verified};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::append::with_bytes;
use crate::error::to_py;

/// Every entry that is noted is committed, or the windows are dropped with the lead.
const SETTLED: u64 = u64::MAX;

/// The windows of all producers of one log; copied when a leader begins.
#[pyclass(module = "braidlog._native")]
pub struct ProducerWindows {
    windows: Producers,
}

#[pymethods]
impl ProducerWindows {
    #[new]
    #[pyo3(signature = (data=None))]
    fn new(data: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let windows = match data {
            Some(data) => {
                with_bytes(data, "data", |bytes| Producers::parse(bytes).map_err(to_py))??
            }
            None => Producers::default(),
        };
        Ok(Self { windows })
    }

    fn __len__(&self) -> usize {
        self.windows.len()
    }

    #[pyo3(signature = (batch, position, *, repeat=false))]
    fn admit(
        &self,
        batch: &Bound<'_, PyAny>,
        position: u64,
        repeat: bool,
    ) -> PyResult<(u32, Option<u64>)> {
        let decide = |bytes: &[u8]| -> Result<(u32, Option<u64>)> {
            let batch = Verified::check(bytes)?;
            let stored = match batch.admit(&self.windows, position, repeat)? {
                Admission::New => None,
                Admission::Repeat(before) => Some(before),
            };
            Ok((batch.count(), stored))
        };
        with_bytes(batch, "batch", |bytes| decide(bytes).map_err(to_py))?
    }

    fn note(&mut self, batch: &Bound<'_, PyAny>, position: u64) -> PyResult<u32> {
        let windows = &mut self.windows;
        let mut note = |bytes: &[u8]| -> Result<u32> {
            let batch = Verified::check(bytes)?;
            batch.note(windows, position, SETTLED);
            Ok(batch.count())
        };
        with_bytes(batch, "batch", |bytes| note(bytes).map_err(to_py))?
    }

    fn next_sequence(&self, producer_id: u64) -> (u64, Option<u32>) {
        let windows = &self.windows;
        (
            windows.next_sequence(producer_id),
            windows.epoch(producer_id),
        )
    }

    fn copy(&self) -> Self {
        Self {
            windows: self.windows.clone(),
        }
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let mut out = Vec::with_capacity(self.windows.encoded_len());
        self.windows.encode(&mut out);
        PyBytes::new(py, &out)
    }
}
