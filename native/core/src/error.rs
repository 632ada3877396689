//! The one error type of the storage core. Variants are split by what the caller does next.

use std::path::PathBuf;

use rustix::io::Errno;

/// Result of every fallible call of the core.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with the path and offset an operator needs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {op} {path}: {source}")]
    Io {
        /// The operation, for instance `write`.
        op: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The reason the system gave.
        source: std::io::Error,
    },
    /// Durable bytes are not what was written. Never cut silently.
    #[error("{path} at offset {offset}: corrupt: {reason}")]
    Corruption {
        /// The damaged file.
        path: PathBuf,
        /// First byte that cannot be trusted.
        offset: u64,
        /// What the check found.
        reason: String,
    },
    /// Bytes of a decoder's input are not a valid encoding (no file involved).
    #[error("malformed {what} at byte {offset}: {reason}")]
    Malformed {
        /// What was being decoded, for instance `record batch`.
        what: &'static str,
        /// Offset inside the input.
        offset: u64,
        /// What the check found.
        reason: String,
    },
    /// A file carries another program's magic.
    #[error("{path} is not a Braidlog {what}")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it was expected to be.
        what: &'static str,
    },
    /// A file was written by a newer format than this build reads.
    #[error("{path}: {what} format {found} is newer than {supported}, the newest this build reads")]
    Newer {
        /// The file.
        path: PathBuf,
        /// What it was expected to be.
        what: &'static str,
        /// Version found.
        found: u32,
        /// Newest version understood.
        supported: u32,
    },
    /// The file belongs to something else: another node, another object, another kind.
    #[error("{path} belongs to {what} {found}, not to {expected}")]
    WrongIdentity {
        /// The file.
        path: PathBuf,
        /// Which part of the identity differs.
        what: &'static str,
        /// What the file says.
        found: String,
        /// What the caller expected.
        expected: String,
    },
    /// A file that the manifest lists is not there, or is shorter than recorded.
    #[error("{path} is missing or shorter than recorded: {reason}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What was expected.
        reason: String,
    },
    /// Another process holds the directory for writing.
    #[error("{path} is open for writing by another process ({holder})")]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// What is known of the holder.
        holder: String,
    },
    /// The handle was opened read-only.
    #[error("{what} was refused: the directory was opened read-only")]
    ReadOnly {
        /// The refused operation.
        what: &'static str,
    },
    /// The write-ahead log has reached its bound; trim to free space.
    #[error("log full: {used} of {max} bytes in use")]
    LogFull {
        /// Bytes in use.
        used: u64,
        /// Configured bound.
        max: u64,
    },
    /// A write or sync failed earlier; the store is failed for good and must be reopened.
    #[error("an earlier write or sync failed, so nothing more is stored: {reason}")]
    Failed {
        /// The first failure.
        reason: String,
    },
    /// The handle was closed.
    #[error("closed")]
    Closed,
    /// Records that a repair could not save; their positions are kept.
    #[error(
        "positions {first} to {end} are a declared hole: a repair could not save their records"
    )]
    Lost {
        /// First position of the hole, or of the part that was met.
        first: u64,
        /// One past the last.
        end: u64,
    },
    /// Something is over its limit; nothing was written.
    #[error("{what} of {size} exceeds the limit of {max}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// Logs, tables, cursors and producers would not fit the head of a segment; nothing was written.
    #[error(
        "the list of logs, tables, cursors and producers would grow to {size} bytes, more than the {max} that a segment \
         of this size can hold"
    )]
    StateFull {
        /// Bytes they would take.
        size: u64,
        /// Bytes that fit.
        max: u64,
    },
    /// The call does not make sense; nothing was changed.
    #[error("{0}")]
    InvalidArgument(String),
    /// The position was trimmed away.
    #[error("position {position} was trimmed: the log begins at {first}")]
    Trimmed {
        /// The position asked for.
        position: u64,
        /// First position that can be read.
        first: u64,
    },
    /// The position does not exist yet.
    #[error("position {position} is not written yet: the next append gets position {next}")]
    BeyondEnd {
        /// The position asked for.
        position: u64,
        /// The next position to be written.
        next: u64,
    },
    /// No object of that name or id.
    #[error("{what} not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// An object of that name or id exists.
    #[error("{what} already exists")]
    AlreadyExists {
        /// What exists.
        what: String,
    },
    /// The log cannot be deleted while tables follow it.
    #[error("log {log:?} cannot be deleted: {} {}", follow(tables), list(tables))]
    LogInUse {
        /// The log.
        log: String,
        /// Names of the tables.
        tables: Vec<String>,
    },
    /// The cursor belongs to a table, and only the table moves it.
    #[error("cursor {cursor:?} belongs to table {table:?}, which moves it by itself")]
    TableCursor {
        /// Name of the cursor.
        cursor: String,
        /// Name of the table.
        table: String,
    },
    /// A trim would take records away that a table has not stored in its files.
    #[error(
        "the log cannot be trimmed up to {first}: table {table:?} still needs its records from {position} on"
    )]
    TablePin {
        /// First position that would be kept.
        first: u64,
        /// Name of the table.
        table: String,
        /// First position that the table needs.
        position: u64,
    },
    /// What a read of a table needed was merged by the table's writer, in another process, while it was read.
    #[error(
        "position {position} of the table cannot be read any more: its writer merged the files that it needed; the \
         oldest position that can be read is {first}"
    )]
    Overtaken {
        /// The position that was read.
        position: u64,
        /// Lowest position that can be read.
        first: u64,
    },
    /// The log has more behind the files of a table than a reader takes into memory.
    #[error(
        "the log has more records behind the files of the table than a reader takes into memory ({max} bytes): its \
         writer has not flushed them yet"
    )]
    Unflushed {
        /// Bytes that a reader takes.
        max: u64,
    },
    /// The epoch is older than the stream's: the caller was fenced.
    #[error("epoch {given} is older than {current}")]
    StaleEpoch {
        /// Epoch of the call.
        given: u64,
        /// Epoch of the stream.
        current: u64,
    },
    /// The number is not the next one.
    #[error("{what} is {given}, expected {expected}")]
    NotDense {
        /// Which number.
        what: &'static str,
        /// Number given.
        given: u64,
        /// Number expected.
        expected: u64,
    },
    /// An append that may have been stored before names a producer of which nothing is known any more.
    #[error(
        "this log does not know producer {id} any more, or never did, so it cannot tell whether this append was \
         stored before"
    )]
    UnknownProducer {
        /// The producer.
        id: u64,
    },
    /// A rollback or overwrite would cut below what is committed.
    #[error("cannot cut at {given}: everything below {committed} is committed")]
    Committed {
        /// Position asked for.
        given: u64,
        /// First uncommitted position.
        committed: u64,
    },
    /// Copies of one record are not the same. One of the nodes is wrong, and nothing says which.
    #[error(
        "position {position} differs between {path} at offset {offset} and {other_path} at offset \
         {other_offset}"
    )]
    Differs {
        /// The position.
        position: u64,
        /// File of one copy, or its directory.
        path: PathBuf,
        /// Offset of its frame.
        offset: u64,
        /// File of the other.
        other_path: PathBuf,
        /// Offset of its frame.
        other_offset: u64,
    },
    /// A log needs more memory to be put in order than its writer promised.
    #[error(
        "{path} at offset {offset}: putting the records in order takes {pending} bytes of memory, more than the \
         {budget} allowed. Pass a larger order_bytes_max to read it anyway"
    )]
    OverBudget {
        /// The segment file.
        path: PathBuf,
        /// Offset of the frame that was too much.
        offset: u64,
        /// Bytes that wait.
        pending: u64,
        /// The budget.
        budget: u64,
    },
    /// No directory has these records.
    #[error(
        "none of the directories has positions {begin} to {end} (half-open); add the directory of a node that stored them"
    )]
    Hole {
        /// First position that is missing.
        begin: u64,
        /// First position that is there again.
        end: u64,
    },
    /// The sequence was stored, but so long ago that its position is no longer known.
    #[error("producer sequence {sequence} is older than the window, which begins at {first}")]
    SequenceExpired {
        /// Sequence given.
        sequence: u64,
        /// First sequence still known.
        first: u64,
    },
}

fn follow(tables: &[String]) -> &'static str {
    if tables.len() == 1 {
        "it is followed by table"
    } else {
        "it is followed by tables"
    }
}

fn list(tables: &[String]) -> String {
    let names: Vec<String> = tables.iter().map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

impl Error {
    /// Wrap an operating-system error with the operation and path.
    pub fn io(op: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            op,
            path: path.into(),
            source,
        }
    }

    /// A decoder's refusal.
    pub fn malformed(what: &'static str, offset: u64, reason: impl Into<String>) -> Self {
        Self::Malformed {
            what,
            offset,
            reason: reason.into(),
        }
    }

    /// What a read of written bytes at `offset` failed with: a device that does not give them back has lost
    /// them, as one that gives others has.
    #[must_use]
    pub fn of_written(self, offset: u64) -> Self {
        match self {
            Self::Io { path, source, .. } if is_lost(&source) => {
                Self::corrupt(path, offset, format!("cannot be read: {source}"))
            }
            other => other,
        }
    }

    /// Whether the process or the system had no descriptor left. The operation was not begun, so the same one may
    /// be tried again; it says nothing about the disk.
    pub fn is_exhausted(&self) -> bool {
        matches!(self, Self::Io { source, .. } if lacks_descriptors(source))
    }

    /// Whether the disk, or what the user may use of it, is full.
    pub fn is_disk_full(&self) -> bool {
        let full = |source: &std::io::Error| {
            matches!(
                source.kind(),
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
            )
        };
        matches!(self, Self::Io { source, .. } if full(source))
    }

    /// Damage to durable bytes.
    pub fn corrupt(path: impl Into<PathBuf>, offset: u64, reason: impl Into<String>) -> Self {
        Self::Corruption {
            path: path.into(),
            offset,
            reason: reason.into(),
        }
    }
}

/// Whether an operation failed because no descriptor was left, of the process or of the system.
pub(crate) fn lacks_descriptors(source: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(source);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE].contains(&errno))
}

/// Whether the bytes are gone: the device cannot read them, the file system says that they are wrong, or the
/// file ends before them.
fn is_lost(source: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(source);
    let bad = [
        Errno::IO,
        Errno::BADMSG,
        Errno::UCLEAN,
        Errno::NODATA,
        Errno::REMOTEIO,
    ];
    source.kind() == std::io::ErrorKind::UnexpectedEof
        || errno.is_some_and(|errno| bad.contains(&errno))
}
