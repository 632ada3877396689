//! The bytes of one file in memory, shared between its versions page by page.

use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

/// Largest file: its page list alone takes 32 MiB.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 30;

type Page = [u8; PAGE_BYTES];

/// The bytes of one file. A clone costs one reference count; a write then copies the page list
/// and the pages it touches.
///
/// # Invariants
///
/// - There is one entry for each page up to `len`; a page of zeros may be `None`.
/// - Bytes of the last page behind `len` are zero.
#[derive(Clone, Debug, Default)]
pub(super) struct Content {
    pages: Arc<Vec<Option<Arc<Page>>>>,
    len: u64,
}

/// The pages that `begin..end` touches: (page number, range inside it).
fn pieces(begin: u64, end: u64) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let page = PAGE_BYTES as u64;
    (begin / page..end.div_ceil(page)).map(move |number| {
        let start = number * page;
        let from = begin.saturating_sub(start) as usize;
        let to = (end - start).min(page) as usize;
        (number as usize, from..to)
    })
}

impl Content {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Fill `buffer` from `offset`; false when the file ends before.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> bool {
        let Some(end) = offset.checked_add(buffer.len() as u64) else {
            return false;
        };
        if end > self.len {
            return false;
        }
        let mut rest = buffer;
        for (number, range) in pieces(offset, end) {
            let (part, behind) = rest.split_at_mut(range.len());
            match &self.pages[number] {
                Some(page) => part.copy_from_slice(&page[range]),
                None => part.fill(0),
            }
            rest = behind;
        }
        true
    }

    /// Overwrite from `offset`, growing the file when needed; a gap is zeros.
    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.set_len(self.len.max(end));
        let pages = Arc::make_mut(&mut self.pages);
        let mut rest = data;
        for (number, range) in pieces(offset, end) {
            let (part, behind) = rest.split_at(range.len());
            let slot = &mut pages[number];
            if let Ok(whole) = Page::try_from(part) {
                *slot = Some(Arc::new(whole));
            } else {
                let page = slot.get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                Arc::make_mut(page)[range].copy_from_slice(part);
            }
            rest = behind;
        }
    }

    /// Cut, or append zeros.
    pub(super) fn set_len(&mut self, len: u64) {
        let count = len.div_ceil(PAGE_BYTES as u64) as usize;
        if count != self.pages.len() {
            Arc::make_mut(&mut self.pages).resize(count, None);
        }
        let kept = (len % PAGE_BYTES as u64) as usize;
        if len < self.len
            && kept > 0
            && let Some(Some(page)) = Arc::make_mut(&mut self.pages).last_mut()
        {
            Arc::make_mut(page)[kept..].fill(0);
        }
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_plain_vector() {
        let mut content = Content::default();
        let mut model: Vec<u8> = Vec::new();
        let mut seed = 7_u64;
        for step in 0..600_u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (seed >> 33) as usize % 20_000;
            let len = (seed >> 48) as usize % 9000;
            let before = content.clone();
            let old = model.clone();
            if step % 5 == 0 {
                model.resize(len, 0);
                content.set_len(len as u64);
            } else {
                let data = vec![step as u8; len];
                if len > 0 {
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&data);
                }
                content.write(&data, offset as u64);
            }
            for (content, model) in [(&content, &model), (&before, &old)] {
                assert_eq!(content.len(), model.len() as u64);
                let mut all = vec![0xaa; model.len()];
                assert!(content.read(&mut all, 0));
                assert!(all == *model, "step {step}");
            }
            assert!(!content.read(&mut [0], content.len()));
        }
    }
}
