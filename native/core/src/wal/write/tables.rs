//! Changes of tables, and the cursors by which they pin their logs.

use std::borrow::Cow;

use crate::error::{Error, Result};
use crate::wal::format::change::{Change, Cursor};
use crate::wal::format::identity::{IDENTITY, NodeIdentity};
use crate::wal::format::state::State;
use crate::wal::format::table_change::{TableChange, pin_name, pin_of};
use crate::wal::placing::appender::Appender;
use crate::wal::write::store::Store;

impl Store {
    /// Whose directory it is: files of tables name it.
    pub fn identity(&self) -> Result<NodeIdentity> {
        let dir = &self.view.dir;
        NodeIdentity::read(&*self.view.vfs, dir)?.ok_or_else(|| Error::Missing {
            path: dir.join(IDENTITY),
            reason: "it was there when the directory was opened".into(),
        })
    }

    /// Change tables: all of it, or nothing if any part is refused. Durable on return.
    ///
    /// No manifest of a table is read or written, so it cannot fail because of one.
    pub fn change_tables(&self, changes: Vec<TableChange>) -> Result<()> {
        let change = Change::Tables(changes);
        // What is refused leaves the directory as it is, for builds that know no tables too.
        {
            let inner = self.guard()?;
            let header = Appender::header(change.kind(), 0, 0, 0, 0);
            inner.appender.state.check(&header, &change)?;
        }
        self.allow_tables()?;
        self.wait(self.change(0, None, 0, &change)?)
    }

    /// Say in the identity that there may be tables, before the first one is there: a build that knows none would
    /// let the log go that they need.
    fn allow_tables(&self) -> Result<()> {
        let _one = self.files.lock();
        let identity = self.identity()?;
        if identity.tables {
            return Ok(());
        }
        let identity = NodeIdentity {
            tables: true,
            ..identity
        };
        let path = self.view.dir.join(IDENTITY);
        self.view.vfs.replace(&path, &identity.encode())
    }

    /// Move the pin of a table: it needs nothing below `position` any more. It never goes back. Durable once
    /// [`Store::wait`] returns for the group.
    ///
    /// Fails with [`Error::NotFound`] if there is no such table any more.
    pub fn move_table_pin(&self, table: u128, position: u64, touched: i64) -> Result<u64> {
        let stream = self.with_state(|state| {
            let missing = || Error::NotFound {
                what: format!("table {table:032x}"),
            };
            let found = state.tables.get(table).ok_or_else(missing)?;
            let log = state.logs.get(&found.log).ok_or_else(missing)?;
            Ok(log.stream)
        })?;
        let name = pin_name(table);
        self.change_if(stream, None, &|state| {
            let cursors = &state.stream(stream)?.cursors;
            let Some(stored) = cursors.get(&name) else {
                let what = format!("table {table:032x}");
                return Err(Error::NotFound { what });
            };
            if position <= stored.position {
                return Ok(None);
            }
            let cursor = Cursor {
                position,
                touched,
                ..*stored
            };
            let change = Change::SetCursor(name.clone(), cursor);
            Ok(Some((0, Cow::Owned(change))))
        })
    }
}

/// Refuse users a cursor that a table has, or one with the name of a table's.
pub(super) fn check_free(state: &State, cursor: &str) -> Result<()> {
    state.check_own(cursor)?;
    if pin_of(cursor).is_some() {
        let reason = format!("cursor {cursor:?} has a name that only tables give to their cursors");
        return Err(Error::InvalidArgument(reason));
    }
    Ok(())
}
