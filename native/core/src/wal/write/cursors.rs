//! Cursors, and trimming, which minds what they pin.
//!
//! What a call does depends on what is stored. It looks and places under one lock, or two callers would undo
//! each other: a cursor that one creates and commits would be created again by the other, and a pin would be
//! there before a trim that has not seen it.

use std::borrow::Cow;
use std::cell::Cell;

use crate::error::{Error, Result};
use crate::wal::format::change::{Change, Cursor};
use crate::wal::write::store::Store;
use crate::wal::write::tables::check_free;

impl Store {
    /// Write a cursor. Durable once [`Store::wait`] returns for the group.
    pub fn set_cursor(&self, stream: u32, name: &str, cursor: Cursor) -> Result<u64> {
        let change = Change::SetCursor(name.into(), cursor);
        self.change_if(stream, None, &|state| {
            check_free(state, name)?;
            Ok(Some((0, Cow::Borrowed(&change))))
        })
    }

    /// Create a cursor at the stream's first position unless there is one; `cursor` says the rest of it.
    pub fn create_cursor(&self, stream: u32, name: &str, cursor: &Cursor) -> Result<u64> {
        self.change_if(stream, None, &|state| {
            check_free(state, name)?;
            let stream = state.stream(stream)?;
            if stream.cursors.contains_key(name) {
                return Ok(None);
            }
            let position = stream.low;
            let change = Change::SetCursor(
                name.into(),
                Cursor {
                    position,
                    ..*cursor
                },
            );
            Ok(Some((0, Cow::Owned(change))))
        })
    }

    /// Move a cursor that is there; it keeps its pin and lease.
    ///
    /// Fails with [`Error::NotFound`] if there is none.
    pub fn move_cursor(&self, stream: u32, name: &str, position: u64, touched: i64) -> Result<u64> {
        self.change_if(stream, None, &|state| {
            state.check_own(name)?;
            let stream = state.stream(stream)?;
            let Some(stored) = stream.cursors.get(name) else {
                let what = format!("cursor {name:?}");
                return Err(Error::NotFound { what });
            };
            let cursor = Cursor {
                position,
                touched,
                ..*stored
            };
            Ok(Some((
                0,
                Cow::Owned(Change::SetCursor(name.into(), cursor)),
            )))
        })
    }

    /// Delete a cursor. Durable on return.
    pub fn delete_cursor(&self, stream: u32, name: &str) -> Result<()> {
        self.wait(self.change(stream, None, 0, &Change::DeleteCursor(name.into()))?)
    }

    /// Let everything below `first` go. The new low watermark is durable before any file goes; returns it.
    pub fn trim(&self, stream: u32, first: u64) -> Result<u64> {
        self.trim_to(stream, first, None)
    }

    /// [`Store::trim`], no further than the cursors that pin at `now` allow.
    pub fn trim_unpinned(&self, stream: u32, first: u64, now: i64) -> Result<u64> {
        self.trim_to(stream, first, Some(now))
    }

    fn trim_to(&self, stream: u32, first: u64, now: Option<i64>) -> Result<u64> {
        // The records may still be on their way; what is trimmed must be committed first.
        self.sync()?;
        let (low, moved) = (Cell::new(0), Cell::new(false));
        let group = self.change_if(stream, None, &|state| {
            let stream = state.stream(stream)?;
            // As it was asked for: a pin would hide that it cannot be meant.
            stream.check_trim(first)?;
            let pin = now.and_then(|now| stream.lowest_pin(now));
            let first = pin.map_or(first, |pin| first.min(pin));
            moved.set(first > stream.low);
            low.set(first.max(stream.low));
            Ok(moved.get().then_some((first, Cow::Owned(Change::Trim))))
        })?;
        self.wait(group)?;
        if moved.get() {
            self.reclaim()?;
        }
        Ok(low.get())
    }
}
