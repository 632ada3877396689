//! Changes: what frames other than data say, and how they are encoded.
//!
//! A change is decided once, written as one frame, and folded into [`State`](super::state::State)
//! by the writer, by recovery and by followers through the same code.
//!
//! Payloads, after the frame header (which carries stream, epoch and LLSN):
//!
//! ```text
//! commit    u64 version, u64 GLSN begin, u64 LLSN begin, u64 length, u64 high watermark
//! rollback  -                      trim  -                     epoch  -          close  -
//! catalog   u8 1 create: u128 id, u8 explicit commit, i64 created (us), bytes name, bytes options
//!           u8 2 delete: u128 id
//!           u8 3 options: u128 id, bytes options
//!           u8 4 restart: u128 id, u64 first LLSN, bytes options, producer windows
//!           u8 5 tables: see `table_change`
//! cursor    u8 1 set: bytes name, u64 position, u8 pin, i64 touched (us), u64 lease (us, 0 = for ever)
//!           u8 2 delete: bytes name
//! order     u128 log, u64 budget, u64 pending bytes of the stream
//! ```

use crate::codec::{Put, Take};
use crate::error::Result;
use crate::wal::format::frame::{FrameHeader, Kind};
use crate::wal::format::producer::{ProducerId, Producers};
use crate::wal::format::table_change::{TableChange, decode_changes, encode_changes, pin_of};

/// The latest commit a stream has applied (Varlog's commit context).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitContext {
    /// Number of the cut.
    pub version: u64,
    /// First GLSN of the run.
    pub glsn_begin: u64,
    /// First LLSN of the run.
    pub llsn_begin: u64,
    /// Records in the run.
    pub length: u64,
    /// Last GLSN of the whole cut, over all streams.
    pub high_watermark: u64,
}

/// A reader's named, stored position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Next position to read.
    pub position: u64,
    /// Whether retention keeps what the cursor has not read.
    pub pin: bool,
    /// When the cursor was last written, microseconds since the epoch.
    pub touched: i64,
    /// How long after that a pin holds, microseconds; 0 = for ever.
    pub lease: u64,
}

/// A new log and its stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewLog {
    /// Random identity, chosen before anything is written.
    pub id: u128,
    /// Whether records need a commit frame; otherwise durable means committed.
    pub explicit_commit: bool,
    /// Creation time, microseconds since the epoch.
    pub created: i64,
    /// Unique name.
    pub name: String,
    /// Options, opaque to the core.
    pub options: Vec<u8>,
}

/// What a frame says of the place of its stream in the order of its log. Its LLSN is the first one that is in
/// order, 0 if none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Identity of the log: the streams of it share one order.
    pub log: u128,
    /// Most bytes of them that are pending.
    pub budget: u64,
    /// Pending bytes of the stream before the frame.
    pub pending: u64,
}

/// How a log begins anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restart {
    /// LLSN of its next record.
    pub first: u64,
    /// Its options from now on.
    pub options: Vec<u8>,
    /// What producers stored below.
    pub producers: Producers,
}

/// One change of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Records were appended.
    Batch {
        /// Records that count.
        count: u32,
        /// Producer and base sequence.
        producer: Option<(ProducerId, u64)>,
    },
    /// Records got their place in the total order.
    Commit(CommitContext),
    /// Everything from the frame's LLSN on never happened.
    Rollback,
    /// Everything below the frame's LLSN may go.
    Trim,
    /// The stream enters the frame's epoch.
    Epoch,
    /// A log came into being with the frame's stream.
    CreateLog(NewLog),
    /// A log and its stream are gone.
    DeleteLog(u128),
    /// A log's options are replaced.
    AlterLog(u128, Vec<u8>),
    /// A log begins anew, empty, with the frame's stream, epoch and LLSN; its options are replaced.
    Restart(u128, Restart),
    /// Tables changed: all of this, or nothing.
    Tables(Vec<TableChange>),
    /// A cursor of the frame's stream was written.
    SetCursor(String, Cursor),
    /// A cursor of the frame's stream was deleted.
    DeleteCursor(String),
    /// The frame's stream joined the order of its log at the frame's LLSN, or left it.
    Order(Order),
    /// Orderly end.
    Close,
    /// Bytes that change no state (moved batches).
    Nothing,
}

impl Change {
    /// Whether it has to find room in a full log, because it frees some or settles what is there already.
    /// What is only wished for leaves the reserve alone.
    pub fn takes_reserve(&self) -> bool {
        match self {
            Self::CreateLog(_) | Self::AlterLog(..) | Self::Restart(..) => false,
            // A table lets go of what it has in files. Nothing else frees the log that it pins.
            Self::SetCursor(name, _) => pin_of(name).is_some(),
            Self::Tables(changes) => changes.iter().all(TableChange::settles),
            _ => true,
        }
    }

    /// The frame kind that carries this change.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Batch { .. } => Kind::Batch,
            Self::Commit(_) => Kind::Commit,
            Self::Rollback => Kind::Rollback,
            Self::Trim => Kind::Trim,
            Self::Epoch => Kind::Epoch,
            Self::CreateLog(_)
            | Self::DeleteLog(_)
            | Self::AlterLog(..)
            | Self::Restart(..)
            | Self::Tables(_) => Kind::Catalog,
            Self::SetCursor(..) | Self::DeleteCursor(_) => Kind::Cursor,
            Self::Order(_) => Kind::Order,
            Self::Close => Kind::Close,
            Self::Nothing => Kind::Moved,
        }
    }

    /// Payload bytes; batches carry their own.
    pub fn payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Commit(context) => encode_context(context, &mut out),
            Self::Order(order) => {
                out.put_u128(order.log);
                out.put_u64(order.budget);
                out.put_u64(order.pending);
            }
            Self::CreateLog(log) => {
                out.put_u8(1);
                out.put_u128(log.id);
                out.put_u8(u8::from(log.explicit_commit));
                out.put_u64(log.created.cast_unsigned());
                out.put_bytes(log.name.as_bytes());
                out.put_bytes(&log.options);
            }
            Self::DeleteLog(id) => {
                out.put_u8(2);
                out.put_u128(*id);
            }
            Self::AlterLog(id, options) => {
                out.put_u8(3);
                out.put_u128(*id);
                out.put_bytes(options);
            }
            Self::Restart(id, restart) => {
                out.put_u8(4);
                out.put_u128(*id);
                out.put_u64(restart.first);
                out.put_bytes(&restart.options);
                restart.producers.encode(&mut out);
            }
            Self::Tables(changes) => {
                out.put_u8(5);
                encode_changes(changes, &mut out);
            }
            Self::SetCursor(name, cursor) => {
                out.put_u8(1);
                encode_cursor(name, cursor, &mut out);
            }
            Self::DeleteCursor(name) => {
                out.put_u8(2);
                out.put_bytes(name.as_bytes());
            }
            _ => {}
        }
        out
    }

    /// Decode the change a frame carries; `payload` is the frame's payload (for batches, unused).
    pub fn decode(header: &FrameHeader, payload: &[u8]) -> Result<Self> {
        let mut take = Take::new("frame payload", payload);
        let change = match header.kind {
            Kind::Batch => Self::Batch {
                count: header.count,
                producer: None,
            },
            Kind::Moved | Kind::MovedRuns | Kind::Preamble => return Ok(Self::Nothing),
            Kind::Commit => Self::Commit(decode_context(&mut take)?),
            Kind::Order => Self::Order(Order {
                log: take.u128()?,
                budget: take.u64()?,
                pending: take.u64()?,
            }),
            Kind::Rollback => Self::Rollback,
            Kind::Trim => Self::Trim,
            Kind::Epoch => Self::Epoch,
            Kind::Close => Self::Close,
            Kind::Catalog => decode_catalog(&mut take)?,
            Kind::Cursor => match take.u8()? {
                1 => {
                    let (name, cursor) = decode_cursor(&mut take)?;
                    Self::SetCursor(name, cursor)
                }
                2 => Self::DeleteCursor(take.string()?),
                _ => return Err(take.error("unknown cursor operation")),
            },
        };
        if header.kind != Kind::Batch {
            take.finish()?;
        }
        Ok(change)
    }
}

fn decode_catalog(take: &mut Take<'_>) -> Result<Change> {
    Ok(match take.u8()? {
        1 => Change::CreateLog(NewLog {
            id: take.u128()?,
            explicit_commit: take.u8()? != 0,
            created: take.u64()?.cast_signed(),
            name: take.string()?,
            options: take.bytes()?.to_vec(),
        }),
        2 => Change::DeleteLog(take.u128()?),
        3 => Change::AlterLog(take.u128()?, take.bytes()?.to_vec()),
        4 => {
            let id = take.u128()?;
            let restart = Restart {
                first: take.u64()?,
                options: take.bytes()?.to_vec(),
                producers: Producers::decode(take)?,
            };
            Change::Restart(id, restart)
        }
        5 => Change::Tables(decode_changes(take)?),
        _ => return Err(take.error("unknown catalog operation")),
    })
}

/// Append a commit context.
pub fn encode_context(context: &CommitContext, out: &mut Vec<u8>) {
    for field in [
        context.version,
        context.glsn_begin,
        context.llsn_begin,
        context.length,
        context.high_watermark,
    ] {
        out.put_u64(field);
    }
}

/// Take a commit context.
pub fn decode_context(take: &mut Take<'_>) -> Result<CommitContext> {
    Ok(CommitContext {
        version: take.u64()?,
        glsn_begin: take.u64()?,
        llsn_begin: take.u64()?,
        length: take.u64()?,
        high_watermark: take.u64()?,
    })
}

/// Append a named cursor.
pub fn encode_cursor(name: &str, cursor: &Cursor, out: &mut Vec<u8>) {
    out.put_bytes(name.as_bytes());
    out.put_u64(cursor.position);
    out.put_u8(u8::from(cursor.pin));
    out.put_u64(cursor.touched.cast_unsigned());
    out.put_u64(cursor.lease);
}

/// Take a named cursor.
pub fn decode_cursor(take: &mut Take<'_>) -> Result<(String, Cursor)> {
    let name = take.string()?;
    let cursor = Cursor {
        position: take.u64()?,
        pin: take.u8()? != 0,
        touched: take.u64()?.cast_signed(),
        lease: take.u64()?,
    };
    Ok((name, cursor))
}
