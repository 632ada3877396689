//! Frames of a connection: one call for each socket read, one for each frame to send.

use braidlog_core::Error;
use braidlog_core::wire::{Decoder, Frame, Grouping, Place, frame_header as core_header};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::error::to_py;
use crate::exit::with_python;

/// Cuts what comes over a connection into frames, and groups appends.
#[pyclass(module = "braidlog._native")]
pub struct FrameDecoder {
    decoder: Decoder,
}

#[pymethods]
impl FrameDecoder {
    #[new]
    fn new(frame_bytes_max: usize) -> Self {
        Self {
            decoder: Decoder::new(frame_bytes_max),
        }
    }

    /// Frames as (kind, request, head, payload); appends of one stream and epoch together, as
    /// (stream, epoch, requests, payloads, bytes of each frame).
    fn feed<'py>(&mut self, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let py = data.py();
        let mut events = Events::new(py);
        let decoder = &mut self.decoder;
        let fed = with_buffer(data, |bytes| {
            decoder.feed(bytes, |frame| events.add(&frame))
        })?;
        fed.map_err(|error| refused(py, &error))?;
        events.list()
    }

    /// Another limit for the frames whose header has not been seen.
    fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.decoder.set_frame_bytes_max(frame_bytes_max);
    }

    /// Bytes that are missing for the header or, once that is there, for the frame.
    #[getter]
    fn missing(&self) -> usize {
        self.decoder.missing()
    }

    /// Bytes of a frame that is not whole.
    #[getter]
    fn buffered(&self) -> usize {
        self.decoder.buffered()
    }
}

/// Header and head of a frame; the payloads are only looked at.
#[pyfunction]
pub fn frame_header<'py>(
    py: Python<'py>,
    kind: u8,
    request: u32,
    head: &[u8],
    payloads: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let buffers = payloads
        .iter()
        .map(PyBuffer::<u8>::get)
        .collect::<PyResult<Vec<_>>>()?;
    let slices = buffers
        .iter()
        .map(|buffer| contiguous(buffer))
        .collect::<PyResult<Vec<_>>>()?;
    let header = core_header(kind, request, head, &slices).map_err(to_py)?;
    PyBytes::new_with(py, header.len() + head.len(), |bytes| {
        let (front, back) = bytes.split_at_mut(header.len());
        front.copy_from_slice(&header);
        back.copy_from_slice(head);
        Ok(())
    })
}

/// The events of one socket read.
struct Events<'py> {
    py: Python<'py>,
    grouping: Grouping,
    found: Vec<Event<'py>>,
}

enum Event<'py> {
    Single(u8, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>),
    Appends(Appends<'py>),
}

struct Appends<'py> {
    stream: u64,
    epoch: u64,
    requests: Vec<u32>,
    payloads: Vec<Bound<'py, PyBytes>>,
    sizes: Vec<usize>,
}

impl<'py> Events<'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            py,
            grouping: Grouping::default(),
            found: Vec::new(),
        }
    }

    fn add(&mut self, frame: &Frame<'_>) {
        let payload = PyBytes::new(self.py, frame.payload);
        match self.grouping.place(frame) {
            Place::Single => {
                let head = PyBytes::new(self.py, frame.head);
                let event = Event::Single(frame.kind, frame.request, head, payload);
                self.found.push(event);
            }
            Place::First { stream, epoch } => {
                let mut appends = Appends {
                    stream,
                    epoch,
                    requests: Vec::new(),
                    payloads: Vec::new(),
                    sizes: Vec::new(),
                };
                appends.add(frame, payload);
                self.found.push(Event::Appends(appends));
            }
            Place::Join(index) => {
                if let Some(Event::Appends(appends)) = self.found.get_mut(index) {
                    appends.add(frame, payload);
                }
            }
        }
    }

    fn list(self) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(self.py);
        for event in self.found {
            match event {
                Event::Single(kind, request, head, payload) => {
                    list.append((kind, request, head, payload))?;
                }
                Event::Appends(appends) => list.append((
                    appends.stream,
                    appends.epoch,
                    appends.requests,
                    appends.payloads,
                    appends.sizes,
                ))?,
            }
        }
        Ok(list)
    }
}

impl<'py> Appends<'py> {
    fn add(&mut self, frame: &Frame<'_>, payload: Bound<'py, PyBytes>) {
        self.requests.push(frame.request);
        self.sizes.push(frame.size());
        self.payloads.push(payload);
    }
}

fn with_buffer<R>(object: &Bound<'_, PyAny>, f: impl FnOnce(&[u8]) -> R) -> PyResult<R> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(f(bytes.as_bytes()));
    }
    let buffer = PyBuffer::<u8>::get(object)?;
    Ok(f(contiguous(&buffer)?))
}

/// The bytes of a buffer while it is held, by a caller that is attached to the interpreter.
fn contiguous(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        let reason = "the buffer is not contiguous".to_owned();
        return Err(to_py(Error::InvalidArgument(reason)));
    }
    if buffer.item_count() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer is contiguous and not null (it has bytes), it stays exported while it is
    // borrowed, and no Python code runs before the slice is dropped: we hold the GIL throughout.
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) })
}

fn refused(py: Python<'_>, error: &Error) -> PyErr {
    let build = || {
        let class = py
            .import("braidlog.errors")?
            .getattr("RemoteProtocolError")?;
        class.call1((error.to_string(),))
    };
    with_python(py, build).map_or_else(|failure| failure, PyErr::from_value)
}
