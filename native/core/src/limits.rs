//! Every bound of the storage core in one place, each with its reason.

/// Largest encoded record batch. Keeps a batch well inside one segment and inside Arrow's
/// 32-bit offsets, and bounds what a decoder may allocate for one frame.
pub const BATCH_BYTES_MAX: usize = 16 << 20;

/// Most records in one batch: offsets stay small and a count cannot make a decoder
/// allocate more than a few multiples of [`BATCH_BYTES_MAX`].
pub const BATCH_RECORDS_MAX: usize = 1 << 20;

/// Most headers on one record.
pub const RECORD_HEADERS_MAX: usize = 256;

/// Bytes of a batch body covered by one page checksum. A point read verifies the pages it
/// touches, not the whole batch.
pub const PAGE_BYTES: usize = 4 << 10;

/// Device block the write-ahead log aligns to; direct I/O needs it.
pub const BLOCK_BYTES: usize = 4096;

/// Default segment size.
pub const SEGMENT_BYTES_DEFAULT: u64 = 64 << 20;

/// Bound on the segments of a directory that was given none.
pub const WAL_BYTES_DEFAULT: u64 = 64 << 30;

/// Smallest segment: header block, preamble and a few frames. Small ones are for tests.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;

/// Largest segment: frame offsets are 32-bit.
pub const SEGMENT_BYTES_MAX: u64 = 2 << 30;

/// Stream bytes between two samples of the number index: 8 bytes a sample in memory is then at
/// most 0.2 % of the data, and a lookup scans at most this much plus one frame.
pub const SAMPLE_BYTES: u64 = 4096;

/// Segments of which readers keep the file open: a log of 64 GiB has a thousand, and a process often no more
/// descriptors than that.
pub const READERS_MAX: usize = 64;

/// What lookups keep of the batches they were in: heads and offsets are a few per cent of the data, so
/// this serves some hundred MiB of it.
pub const LOOKUP_BYTES_DEFAULT: usize = 16 << 20;

/// Largest manifest edit: thousands of files in one change, yet bounds what a damaged length
/// can make a decoder look at.
pub const MANIFEST_EDIT_BYTES_MAX: usize = 16 << 20;

/// Largest entry of a listing: a few hundred of them fit one manifest file.
pub const LISTING_ENTRY_BYTES_MAX: usize = 256 << 10;

/// Largest manifest file that is read, so that a wrong file cannot exhaust memory. A snapshot
/// that would not fit is refused before it is written.
pub const MANIFEST_FILE_BYTES_MAX: u64 = 256 << 20;

/// Bytes of edits behind the snapshot after which a new manifest file is started: reading one
/// takes about a millisecond.
pub const MANIFEST_ROTATE_BYTES: u64 = 1 << 20;

/// Edits behind the snapshot after which a new manifest file is started.
pub const MANIFEST_ROTATE_EDITS: u64 = 4096;

/// Longest key of a table: two of them fit a page index entry, and a page holds many. A log takes longer keys; a
/// table counts their records and leaves them out.
pub const TABLE_KEY_BYTES_MAX: usize = 16 << 10;

/// Largest payload of an entry: a record of the largest batch, with room for how its headers are written.
pub const TABLE_PAYLOAD_BYTES_MAX: usize = 17 << 20;

/// Bytes of a run's page before compression, unless a caller chooses. A point read decompresses a page, so
/// small ones answer faster, and large ones compress better and need a smaller index.
pub const RUN_PAGE_BYTES_DEFAULT: usize = 8 << 10;

/// Largest choice of that.
pub const RUN_PAGE_BYTES_MAX: usize = 1 << 20;

/// Most bytes of a page index, and of a filter: more than a run of a hundred GiB needs, and a bound on what
/// opening a run may allocate. A run that would need more is refused when it is written.
pub const RUN_INDEX_BYTES_MAX: usize = 1 << 30;

/// Bytes that a run writes between two syncs, so that the last sync does not hold up the device for everyone else.
pub const RUN_SYNC_BYTES: u64 = 16 << 20;

/// Most bytes that a scan of a run reads at once.
pub const RUN_READ_AHEAD_BYTES: usize = 256 << 10;

/// What the cache of pages holds unless a caller chooses: it serves all tables of a directory.
pub const TABLE_CACHE_BYTES_DEFAULT: usize = 128 << 20;

/// Runs of which the file is kept open: a table of a hundred GiB has more of them than a process has
/// descriptors.
pub const RUN_FILES_OPEN_MAX: usize = 256;

/// How many times the memory of a table its readers in other processes may fill with what is in the log and not in its
/// files. A writer is behind the log while it flushes.
pub const TABLE_FOLLOWED_MEMORIES: usize = 4;

/// Most bytes that one tree of them may have: a chunk that is cut has to fit one piece.
pub const TREE_FOLLOWED_BYTES_MAX: usize = 2 << 30;

/// Bytes that all memory levels of a table may have before they are flushed, unless a caller chooses: as much of the log
/// is applied again after a kill.
pub const TABLE_MEMORY_BYTES_DEFAULT: usize = 64 << 20;

/// Records that a table or an index lists of those it could not take in; all are counted.
pub const TABLE_REFUSALS_LISTED_MAX: usize = 100;

/// Most tables of a directory: each has a cursor, and all of them stand in each preamble.
pub const TABLES_MAX: usize = 1024;

/// Most indexes of a table: each record is written to all of them.
pub const TABLE_INDEXES_MAX: usize = 64;

/// Longest description of the field of an index, so that a thousand of them fit a preamble of the default size.
pub const TABLE_SPEC_BYTES_MAX: usize = 4 << 10;

/// Longest options of a table, for the same reason.
pub const TABLE_OPTIONS_BYTES_MAX: usize = 16 << 10;
