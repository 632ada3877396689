//! One end of a connection: one call for each socket read, one for each frame to send.
// One file: the calls of one Python class, and what they take and give.

use std::sync::Arc;

use braidlog_core::Error;
use braidlog_core::lane::stream::{COMMIT, REPLICATE};
use braidlog_core::lane::{Appended, Conn as CoreConn, Event, Refusal, Segment, Side};
use braidlog_core::wire::{Frame, HEADER_BYTES, Place};
use pyo3::buffer::PyBuffer;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::to_py;
use crate::exit::with_python;
use crate::group::CONSENSUS;
use crate::lane::Lane;
use crate::socket::Socket;

/// Whether a request was opened, or why not; `braidlog.wire.server` has the words.
const OPENED: u8 = 0;
const UNNUMBERED: u8 = 1;
const OPEN_ALREADY: u8 = 2;
const NO_ROOM: u8 = 3;

/// One end of a connection: frames in, frames out, and the requests that are open between.
#[pyclass(module = "braidlog._native")]
pub struct Conn {
    pub core: CoreConn<Py<PyAny>>,
    /// Takes what peers say to one another, as far as it is what is next.
    #[pyo3(get, set)]
    lane: Option<Py<Lane>>,
    /// Whether the lane may send something; `braidlog.wire.connection` says so.
    #[pyo3(get, set)]
    pub writable: bool,
    /// How many whole frames came.
    #[pyo3(get)]
    frames: u64,
    /// Whether a frame was not whole when Python looked last.
    #[pyo3(get, set)]
    pub unfinished: bool,
    /// What the core reads and writes itself.
    pub socket: Option<Arc<Socket>>,
}

#[pymethods]
impl Conn {
    #[new]
    #[pyo3(signature = (*, server, window, incoming_bytes_max, frame_bytes_max, last=0))]
    fn new(
        server: bool,
        window: u64,
        incoming_bytes_max: usize,
        frame_bytes_max: usize,
        last: u32,
    ) -> Self {
        let side = if server { Side::Server } else { Side::Client };
        Self {
            core: CoreConn::new(side, window, incoming_bytes_max, frame_bytes_max, last),
            lane: None,
            writable: false,
            frames: 0,
            unfinished: false,
            socket: None,
        }
    }

    /// Take what came from `begin` on, up to the first cold frame.
    ///
    /// Returns the appends as (stream, epoch, requests, batches), what is answered as (request, llsn,
    /// glsn, count, version), the cold frame as (kind, request, head, payload), where the
    /// rest begins, and how many frames the lane has taken, of which how many are commits, and how many of the
    /// Raft group; and whether the turn has to end with a look at what they did.
    fn feed<'py>(&mut self, data: &Bound<'py, PyAny>, begin: usize) -> PyResult<FedRow<'py>> {
        let buffer = View::of(data)?;
        Ok(self.take_in(data.py(), buffer.bytes()?, begin)?.into_row())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.lane)
    }

    fn __clear__(&mut self) {
        self.lane = None;
    }

    /// Whether the frames of appends are taken here.
    #[getter]
    fn hot(&self) -> bool {
        self.core.is_hot()
    }

    #[setter]
    fn set_hot(&mut self, hot: bool) {
        self.core.set_hot(hot);
    }

    /// Other limits: for the frames that come and whose header has not been seen, and for those that go.
    fn limit(&mut self, incoming_bytes_max: usize, frame_bytes_max: usize) {
        self.core.limit(incoming_bytes_max, frame_bytes_max);
    }

    /// What the open requests may take.
    #[getter]
    fn window(&self) -> u64 {
        self.core.requests().window()
    }

    #[setter]
    fn set_window(&mut self, window: u64) {
        self.core.requests_mut().set_window(window);
    }

    /// Bytes that are missing for the header or, once that is there, for the frame.
    #[getter]
    fn missing(&self) -> usize {
        self.core.decoder().missing()
    }

    /// Bytes of a frame that is not whole.
    #[getter]
    fn buffered(&self) -> usize {
        self.core.decoder().buffered()
    }

    /// What the open requests take.
    #[getter]
    fn used(&self) -> u64 {
        self.core.requests().used()
    }

    /// How many requests are open.
    #[getter]
    fn open_count(&self) -> usize {
        self.core.requests().len()
    }

    /// The numbers of the open requests, in the order in which they were opened.
    #[getter]
    fn open_numbers(&self) -> Vec<u32> {
        self.core.requests().numbers()
    }

    /// Bytes that are outgoing and were not taken.
    #[getter]
    fn queued_bytes(&self) -> usize {
        self.core.queued_bytes()
    }

    /// The kind of an open request; 0 if it is not open.
    fn kind(&self, request: u32) -> u8 {
        self.core.requests().kind(request).unwrap_or(0)
    }

    /// Open a cold request of the other side: 0, or a number that says why not.
    fn open(&mut self, request: u32, kind: u8, size: usize) -> u8 {
        match self.core.requests_mut().open(request, kind, size) {
            Ok(()) => OPENED,
            Err(Refusal::Unnumbered) => UNNUMBERED,
            Err(Refusal::Open) => OPEN_ALREADY,
            Err(Refusal::Window) => NO_ROOM,
        }
    }

    /// Close a request; its kind, 0 if it is not open.
    fn settle(&mut self, request: u32) -> u8 {
        self.core.requests_mut().settle(request).unwrap_or(0)
    }

    /// Close all requests.
    fn clear(&mut self) {
        self.core.requests_mut().clear();
    }

    /// Let go of the bytes of a frame that is not whole.
    fn release(&mut self, incoming_bytes_max: usize) {
        self.core.release(incoming_bytes_max);
    }

    /// Queue a frame; its size if it is too large, and else 0.
    fn queue(
        &mut self,
        kind: u8,
        request: u32,
        head: &[u8],
        payload: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<i64> {
        let views = Views::of(&payload)?;
        let slices = views.slices()?;
        let queued = self
            .core
            .queue(kind, request, head, &slices, |n| lent(&payload, n));
        too_large(queued.map(|()| 0), |size| size)
    }

    /// Queue the answer to an open request and settle it; its size if it is too large, and else 0.
    fn answer(
        &mut self,
        request: u32,
        kind: u8,
        head: &[u8],
        payload: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<i64> {
        let views = Views::of(&payload)?;
        let slices = views.slices()?;
        let queued = self
            .core
            .answer(request, kind, head, &slices, |n| lent(&payload, n));
        too_large(queued.map(|()| 0), |size| size)
    }

    /// Queue a request: its number, 0 without room for it, or its negative size if it is too large.
    fn ask(&mut self, kind: u8, head: &[u8], payload: Vec<Bound<'_, PyAny>>) -> PyResult<i64> {
        let views = Views::of(&payload)?;
        let slices = views.slices()?;
        let asked = self
            .core
            .ask(kind, head, &slices, |n| lent(&payload, n))
            .map(|number| number.map_or(0, i64::from));
        too_large(asked, |size| -size)
    }

    /// Answer appends, as (request, llsn, glsn, count, version); those that are not open are returned.
    pub fn answer_appends(&mut self, answers: Vec<Answered>) -> PyResult<Vec<u32>> {
        let mut others = Vec::new();
        for (request, llsn, glsn, count, version) in answers {
            let appended = Appended {
                llsn,
                glsn,
                count,
                version,
            };
            if !self.core.answer_append(request, &appended).map_err(to_py)? {
                others.push(request);
            }
        }
        Ok(others)
    }

    /// Write what is outgoing; what the socket does not take now is returned, and all if its transport writes.
    fn flush<'py>(&mut self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.write(py)
    }

    /// Take what is to be written, in order.
    pub fn take<'py>(&mut self, py: Python<'py>) -> Vec<Bound<'py, PyAny>> {
        let segments = self.core.take().into_iter();
        segments.map(|each| buffer(py, each)).collect()
    }
}

/// What Python writes of it.
pub fn buffer(py: Python<'_>, segment: Segment<Py<PyAny>>) -> Bound<'_, PyAny> {
    match segment {
        Segment::Own(bytes) => PyBytes::new(py, &bytes).into_any(),
        Segment::Lent(object) => object.into_bound(py),
    }
}

impl Conn {
    /// Take what came from `begin` on, up to the first cold frame.
    pub fn take_in<'py>(
        &mut self,
        py: Python<'py>,
        bytes: &[u8],
        begin: usize,
    ) -> PyResult<Fed<'py>> {
        let mut found = Found::new(py);
        let rest = bytes.get(begin..).unwrap_or_default();
        let (mut hot, mut commits, mut consensus) = (0, 0, 0);
        let mut stirs = false;
        let mut lane = self.lane.as_ref().map(|lane| lane.bind(py).borrow_mut());
        let peer = |frame: &Frame<'_>| {
            let taken = lane.as_mut().is_some_and(|lane| lane.take(py, frame));
            hot += usize::from(taken);
            commits += usize::from(taken && frame.kind == COMMIT);
            consensus += usize::from(taken && frame.kind == CONSENSUS);
            // What is written has to be synced.
            stirs |= taken && matches!(frame.kind, REPLICATE | COMMIT);
            taken
        };
        let fed = self.core.feed(rest, peer, |event| found.add(&event));
        let end = begin + fed.map_err(|error| refused(py, &error))?;
        stirs |= lane.is_some_and(|lane| lane.is_stirred());
        let others = found.appends.len() + found.appended.len() + usize::from(found.cold.is_some());
        self.frames += (hot + others) as u64;
        Ok(Fed {
            appends: found.appends,
            appended: found.appended,
            cold: found.cold,
            end,
            hot,
            commits,
            consensus,
            stirs,
        })
    }

    /// Whether the core reads and writes the socket, and nothing waits for it.
    pub fn is_plain(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| socket.is_plain())
    }

    /// Whether a frame is not whole, or was not when Python looked last.
    pub fn has_part(&self) -> bool {
        self.unfinished || self.core.decoder().buffered() > 0
    }

    /// Whether the frames of appends are taken here.
    pub fn takes_appends(&self) -> bool {
        self.core.is_hot()
    }

    /// Whether anything is to be written.
    pub fn has_queued(&self) -> bool {
        self.core.queued_bytes() > 0
    }

    /// Bytes that are outgoing.
    pub fn queued(&self) -> usize {
        self.core.queued_bytes()
    }

    /// Queue a message that expects no answer, whose header was made before; false if it is too large.
    pub fn send(
        &mut self,
        header: &[u8; HEADER_BYTES],
        head: &[u8],
        payload: &[Bound<'_, PyAny>],
    ) -> PyResult<bool> {
        let views = Views::of(payload)?;
        let slices = views.slices()?;
        let queued = self
            .core
            .queue_framed(header, head, &slices, |n| lent(payload, n));
        Ok(queued.is_ok())
    }
}

/// Appends of one read to one stream: stream, epoch, requests, batches.
pub type Appends<'py> = (u64, u64, Vec<u32>, Vec<Bound<'py, PyBytes>>);

/// What one read of a socket brought.
pub struct Fed<'py> {
    pub appends: Vec<Appends<'py>>,
    pub appended: Vec<Answered>,
    pub cold: Option<Cold<'py>>,
    /// Where the rest begins.
    pub end: usize,
    /// How many frames the lane has taken, of which how many are commits, and how many of the Raft group.
    pub hot: usize,
    pub commits: usize,
    pub consensus: usize,
    /// Whether the turn has to end with a look at what they did.
    pub stirs: bool,
}

impl<'py> Fed<'py> {
    /// What Python takes.
    pub fn into_row(self) -> FedRow<'py> {
        let said = (self.hot, self.commits, self.consensus, self.stirs);
        (self.appends, self.appended, self.cold, self.end, said)
    }
}

pub type FedRow<'py> = (
    Vec<Appends<'py>>,
    Vec<Answered>,
    Option<Cold<'py>>,
    usize,
    (usize, usize, usize, bool),
);
pub type Answered = (u32, u64, u64, u64, u64);
pub type Cold<'py> = (u8, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// What one call found.
struct Found<'py> {
    py: Python<'py>,
    appends: Vec<Appends<'py>>,
    appended: Vec<Answered>,
    cold: Option<Cold<'py>>,
}

impl<'py> Found<'py> {
    fn new(py: Python<'py>) -> Self {
        Self {
            py,
            appends: Vec::new(),
            appended: Vec::new(),
            cold: None,
        }
    }

    fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::Append {
                place,
                request,
                batch,
            } => self.append(*place, *request, PyBytes::new(self.py, batch)),
            Event::Appended { request, appended } => self.appended.push((
                *request,
                appended.llsn,
                appended.glsn,
                appended.count,
                appended.version,
            )),
            Event::Cold(frame) => self.cold = Some(self.cold(frame)),
        }
    }

    fn append(&mut self, place: Place, request: u32, batch: Bound<'py, PyBytes>) {
        match place {
            Place::First { stream, epoch } => {
                self.appends
                    .push((stream, epoch, vec![request], vec![batch]));
            }
            Place::Join(index) => {
                if let Some((_, _, requests, batches)) = self.appends.get_mut(index) {
                    requests.push(request);
                    batches.push(batch);
                }
            }
            Place::Single => {}
        }
    }

    fn cold(&self, frame: &Frame<'_>) -> Cold<'py> {
        let head = PyBytes::new(self.py, frame.head);
        let payload = PyBytes::new(self.py, frame.payload);
        (frame.kind, frame.request, head, payload)
    }
}

/// The bytes of an object, while a caller that is attached to the interpreter holds them.
pub enum View<'a> {
    Bytes(&'a [u8]),
    Buffer(PyBuffer<u8>),
}

impl<'a> View<'a> {
    pub fn of(object: &'a Bound<'_, PyAny>) -> PyResult<Self> {
        Ok(match object.cast::<PyBytes>() {
            Ok(bytes) => Self::Bytes(bytes.as_bytes()),
            Err(_) => Self::Buffer(PyBuffer::get(object)?),
        })
    }

    pub fn bytes(&self) -> PyResult<&[u8]> {
        let buffer = match self {
            Self::Bytes(bytes) => return Ok(bytes),
            Self::Buffer(buffer) => buffer,
        };
        if !buffer.is_c_contiguous() {
            let reason = "the buffer is not contiguous".to_owned();
            return Err(to_py(Error::InvalidArgument(reason)));
        }
        if buffer.item_count() == 0 {
            return Ok(&[]);
        }
        let start = buffer.buf_ptr().cast::<u8>();
        // SAFETY: the buffer is contiguous and not null (it has bytes), it stays exported while it is
        // borrowed, and no Python code runs before the slice is dropped: we hold the GIL throughout.
        Ok(unsafe { std::slice::from_raw_parts(start, buffer.len_bytes()) })
    }
}

/// The bytes of the payloads of a frame.
pub struct Views<'a>(Vec<View<'a>>);

impl<'a> Views<'a> {
    pub fn of(payload: &'a [Bound<'_, PyAny>]) -> PyResult<Self> {
        payload
            .iter()
            .map(View::of)
            .collect::<PyResult<_>>()
            .map(Self)
    }

    pub fn slices(&self) -> PyResult<Vec<&[u8]>> {
        self.0.iter().map(View::bytes).collect()
    }
}

fn lent(payload: &[Bound<'_, PyAny>], index: usize) -> Py<PyAny> {
    payload[index].clone().unbind()
}

/// A result of which only that a frame is too large is said by a number.
fn too_large(result: braidlog_core::Result<i64>, said: impl Fn(i64) -> i64) -> PyResult<i64> {
    match result {
        Err(Error::TooLarge { size, .. }) => Ok(said(i64::try_from(size).unwrap_or(i64::MAX))),
        other => other.map_err(to_py),
    }
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
