//! Bytes of Python objects that the core reads while other threads run Python code.

use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::append::with_bytes;

/// Bytes that nobody changes while they are held.
pub enum Held {
    /// All of a `bytes`.
    Bytes(PyBackedBytes),
    /// Part of a `bytes`, contiguous.
    View(PyBuffer<u8>),
    /// A copy of something that may change.
    Copied(Vec<u8>),
}

impl Held {
    /// Hold an object; `what` names it if it has no bytes.
    pub fn of(object: &Bound<'_, PyAny>, what: &'static str) -> PyResult<Self> {
        if let Ok(bytes) = object.cast_exact::<PyBytes>() {
            return Ok(Self::Bytes(bytes.clone().into()));
        }
        if let Ok(view) = object.cast::<PyMemoryView>()
            && view.getattr("obj")?.is_exact_instance_of::<PyBytes>()
            && let Ok(buffer) = PyBuffer::<u8>::get(object)
            && buffer.is_c_contiguous()
        {
            return Ok(Self::View(buffer));
        }
        with_bytes(object, what, <[u8]>::to_vec).map(Self::Copied)
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::View(buffer) if buffer.item_count() == 0 => &[],
            // SAFETY: the buffer is contiguous and not null (it has bytes), it is exported for as
            // long as it is borrowed, and it is of a `bytes`, which never changes.
            Self::View(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes())
            },
            Self::Copied(bytes) => bytes,
        }
    }
}
