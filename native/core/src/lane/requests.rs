//! The open requests of a connection, and what they take from its window.

use std::collections::HashMap;

/// What a small request counts at least: it also takes memory that is no byte of it, so the window
/// bounds the number of open requests as well.
pub const REQUEST_COST_MIN: u64 = 256;

/// What a request with a frame of `size` bytes takes from the window.
pub fn cost(size: usize) -> u64 {
    (size as u64).max(REQUEST_COST_MIN)
}

/// Why a request was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no number.
    Unnumbered,
    /// A request of that number is open.
    Open,
    /// The window has no room for it.
    Window,
}

#[derive(Clone, Copy)]
struct Open {
    kind: u8,
    cost: u64,
    /// How many were opened before it.
    serial: u64,
}

/// Requests that are open: which kind each is, and what it takes from the window.
///
/// The side that answers opens them under the numbers that came ([`Requests::open`]); the side that
/// asks gives the numbers ([`Requests::ask`]).
pub struct Requests {
    open: HashMap<u32, Open>,
    window: u64,
    used: u64,
    last: u32,
    serial: u64,
}

impl Requests {
    /// None is open. The first number that is given follows `last`.
    pub fn new(window: u64, last: u32) -> Self {
        Self {
            open: HashMap::new(),
            window,
            used: 0,
            last,
            serial: 0,
        }
    }

    /// How many are open.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What the open ones take.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// What all open ones may take.
    pub fn window(&self) -> u64 {
        self.window
    }

    /// Another window, for those that are opened from here on.
    pub fn set_window(&mut self, window: u64) {
        self.window = window;
    }

    /// The kind of an open request.
    pub fn kind(&self, request: u32) -> Option<u8> {
        self.open.get(&request).map(|open| open.kind)
    }

    /// The numbers of the open ones, in the order in which they were opened.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<(u64, u32)> = self
            .open
            .iter()
            .map(|(request, open)| (open.serial, *request))
            .collect();
        numbers.sort_unstable();
        numbers.into_iter().map(|(_, request)| request).collect()
    }

    /// Open a request of the other side.
    pub fn open(&mut self, request: u32, kind: u8, size: usize) -> Result<(), Refusal> {
        if request == 0 {
            return Err(Refusal::Unnumbered);
        }
        if self.open.contains_key(&request) {
            return Err(Refusal::Open);
        }
        if !self.has_room(size) {
            return Err(Refusal::Window);
        }
        self.insert(request, kind, size);
        Ok(())
    }

    /// Open a request of this side under the next number that is free; `None` without room for it.
    pub fn ask(&mut self, kind: u8, size: usize) -> Option<u32> {
        if !self.has_room(size) {
            return None;
        }
        let mut number = following(self.last);
        // It ends: each open one takes some of the window, which is far smaller than all numbers take.
        while self.open.contains_key(&number) {
            number = following(number);
        }
        self.last = number;
        self.insert(number, kind, size);
        Some(number)
    }

    /// Close a request and give back what it took; its kind, `None` if it is not open.
    pub fn settle(&mut self, request: u32) -> Option<u8> {
        let open = self.open.remove(&request)?;
        self.used -= open.cost;
        Some(open.kind)
    }

    /// Close all.
    pub fn clear(&mut self) {
        self.open = HashMap::new();
        self.used = 0;
    }

    fn has_room(&self, size: usize) -> bool {
        self.used.saturating_add(cost(size)) <= self.window
    }

    fn insert(&mut self, request: u32, kind: u8, size: usize) {
        let cost = cost(size);
        let serial = self.serial;
        self.serial += 1;
        self.used += cost;
        self.open.insert(request, Open { kind, cost, serial });
    }
}

/// The number behind another one; 0 is none.
fn following(number: u32) -> u32 {
    number % u32::MAX + 1
}
