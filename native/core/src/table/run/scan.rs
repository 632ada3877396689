//! Going through a run, with read-ahead.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::page::{Page, Stretch};
use super::read::{Found, Run};
use crate::error::Result;
use crate::limits::RUN_READ_AHEAD_BYTES;
use crate::table::entry::{Direction, Entries, Entry, Stretches};

/// Pages that are read at once and still kept in the cache. A short scan may well be repeated; one that
/// reads further ahead would only displace what others need.
const KEPT_PAGES: usize = 4;

/// Goes through entries of a run. Each time that it has to read, it reads twice as many pages as before.
pub struct RunEntries {
    run: Arc<Run>,
    begin: Option<Vec<u8>>,
    end: Option<Vec<u8>>,
    direction: Direction,
    /// First and last page that may have keys of the range: only there the bounds are looked for.
    outer: Range<usize>,
    /// Pages to come, and how many of them to read next.
    pages: Range<usize>,
    ahead: usize,
    /// Stored bytes that were read ahead: the page, and where it is in them.
    read: Vec<u8>,
    waiting: VecDeque<(usize, Range<usize>)>,
    /// Memory of a page that nobody needs any more.
    spare: Vec<u8>,
    /// The page that it goes through, and the entries of it to come.
    page: Option<(usize, Arc<Page>)>,
    entries: Range<usize>,
    at: usize,
}

impl RunEntries {
    pub(super) fn new(
        run: &Arc<Run>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        direction: Direction,
        ahead: usize,
    ) -> Self {
        let pages = run.pages_between(begin, end);
        Self {
            run: Arc::clone(run),
            begin: begin.map(Into::into),
            end: end.map(Into::into),
            direction,
            outer: pages.clone(),
            pages,
            ahead,
            read: Vec::new(),
            waiting: VecDeque::new(),
            spare: Vec::new(),
            page: None,
            entries: 0..0,
            at: 0,
        }
    }

    /// The entry it stands on, which stays valid.
    ///
    /// # Panics
    /// Panics before the first step.
    pub fn found(&self) -> Found {
        let (_, page) = self.page.as_ref().expect("stands on an entry");
        Found::new(Arc::clone(page), self.at)
    }

    fn standing(&self) -> &Page {
        let (_, page) = self.page.as_ref().expect("stands on an entry");
        page
    }

    /// Page and number within it of the entry it stands on.
    pub(super) fn place(&self) -> (usize, usize) {
        (self.page.as_ref().map_or(0, |(number, _)| *number), self.at)
    }

    /// Go to the next page; false behind the last.
    fn next_page(&mut self) -> Result<bool> {
        let coming = self.pages.clone();
        let Some(number) = self.take_number() else {
            return Ok(false);
        };
        // After an error it stands where it stood: a repeated step must not leave the page out.
        let page = match self.load(number) {
            Ok(page) => page,
            Err(error) => {
                self.pages = coming;
                return Err(error);
            }
        };
        if let Some((_, before)) = self.page.take() {
            let last = before.entry(before.len() - 1);
            if self.direction == Direction::Forward && last.order(&page.entry(0)).is_ge() {
                return Err(self.run.damaged(number, "a page that is out of order"));
            }
            // The cache may have it, or somebody who found an entry in it.
            if let Some(page) = Arc::into_inner(before) {
                self.spare = page.into_memory();
            }
        }
        let begin = match &self.begin {
            Some(begin) if number == self.outer.start => page.seek(begin, u64::MAX),
            _ => 0,
        };
        let end = match &self.end {
            Some(end) if number + 1 == self.outer.end => page.seek(end, u64::MAX),
            _ => page.len(),
        };
        self.page = Some((number, page));
        self.entries = begin..end;
        Ok(true)
    }

    fn take_number(&mut self) -> Option<usize> {
        match self.direction {
            Direction::Forward => self.pages.next(),
            Direction::Reverse => self.pages.next_back(),
        }
    }

    fn load(&mut self, number: usize) -> Result<Arc<Page>> {
        let is_waiting = self
            .waiting
            .front()
            .is_some_and(|(waiting, _)| *waiting == number);
        if !is_waiting && let Some(page) = self.run.cached(number) {
            return Ok(page);
        }
        if !is_waiting {
            self.read_ahead(number)?;
        }
        let Some((_, range)) = self.waiting.pop_front() else {
            return Err(self.run.damaged(number, "a page without bytes"));
        };
        let memory = std::mem::take(&mut self.spare);
        let page = self.run.load(number, &self.read[range], memory)?;
        if self.ahead <= 2 * KEPT_PAGES {
            self.run.keep(number, &page);
        }
        Ok(page)
    }

    /// Read `number` and some of the pages that come behind it.
    fn read_ahead(&mut self, number: usize) -> Result<()> {
        let mut pages = number..number + 1;
        let mut bytes = 0;
        let mut coming = self.pages.clone();
        while pages.len() < self.ahead {
            let next = match self.direction {
                Direction::Forward => coming.next(),
                Direction::Reverse => coming.next_back(),
            };
            let Some(next) = next else { break };
            bytes += self.run.index.place(next).stored_bytes as usize;
            if bytes > RUN_READ_AHEAD_BYTES {
                break;
            }
            pages = pages.start.min(next)..pages.end.max(next + 1);
        }
        self.waiting.clear();
        self.run.read_pages(pages.clone(), &mut self.read)?;
        self.ahead = self.ahead.saturating_mul(2);
        let mut begin = 0;
        for page in pages {
            let end = begin + self.run.index.place(page).stored_bytes as usize;
            match self.direction {
                Direction::Forward => self.waiting.push_back((page, begin..end)),
                Direction::Reverse => self.waiting.push_front((page, begin..end)),
            }
            begin = end;
        }
        Ok(())
    }
}

impl Entries for RunEntries {
    fn advance(&mut self) -> Result<bool> {
        loop {
            let next = match self.direction {
                Direction::Forward => self.entries.next(),
                Direction::Reverse => self.entries.next_back(),
            };
            if let Some(at) = next {
                self.at = at;
                return Ok(true);
            }
            if !self.next_page()? {
                return Ok(false);
            }
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        self.standing().entry(self.at)
    }

    #[inline]
    fn rank(&self) -> (&[u8], Reverse<u64>) {
        let page = self.standing();
        (page.key(self.at), Reverse(page.position(self.at)))
    }
}

impl Stretches for RunEntries {
    fn ahead(&self) -> Option<Stretch<'_>> {
        let ahead = self.at..self.entries.end;
        (self.direction == Direction::Forward).then(|| self.standing().stretch(ahead))
    }

    fn pass(&mut self, count: usize) {
        self.at += count;
        self.entries.start = self.at + 1;
    }
}
