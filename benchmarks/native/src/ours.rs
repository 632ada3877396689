//! Braidlog's core, as the Python module opens it.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braidlog_core::batch::{BytesRef, ColumnsRef, Offsets, Timestamps};
use braidlog_core::vfs::RealVfs;
use braidlog_core::wal::{NewLog, NewRecord, Options, Store, open};

use crate::{Log, Outcome};

/// Batches become as large as the caller's.
const BATCH_TARGET: usize = 4 << 20;

/// One log of one stream.
pub struct Braidlog {
    store: Arc<Store>,
    stream: u32,
}

impl Braidlog {
    /// Create the log in an empty directory.
    pub fn open(directory: &Path) -> Outcome<Self> {
        std::fs::create_dir_all(directory)?;
        let options = Options {
            entropy: now().unsigned_abs(),
            ..Options::default()
        };
        let (store, _) = open(Arc::new(RealVfs::default()), directory, options)?;
        let store = Arc::new(store);
        let stream = store.create_log(NewLog {
            id: 1,
            explicit_commit: false,
            created: now(),
            name: "contest".into(),
            options: Vec::new(),
        })?;
        let housekeeping = Arc::clone(&store);
        // As the housekeeper of a store: the next segment is zeroed while the active one fills. It ends with the store.
        thread::spawn(move || {
            while let Some(wanted) = housekeeping.wait_housekeeping(Duration::from_secs(1)) {
                if wanted && housekeeping.prepare_slot().is_err() {
                    return;
                }
            }
        });
        Ok(Self { store, stream })
    }
}

impl Log for Braidlog {
    fn append(&self, _: usize, value: &[u8]) -> Outcome<()> {
        let record = NewRecord {
            value: Some(value),
            key: None,
            timestamp: now(),
            headers: &[],
        };
        let ticket = self.store.append(self.stream, record, None)?;
        Ok(self.store.wait(ticket.group)?)
    }

    fn append_batch(&self, values: &[u8], records: usize) -> Outcome<()> {
        let bytes = values.len() / records;
        let offsets: Vec<i64> = (0..=records).map(|row| (row * bytes) as i64).collect();
        let columns = columns(values, &offsets);
        let ticket =
            self.store
                .append_columns(self.stream, &columns, 0..records, BATCH_TARGET, None)?;
        Ok(self.store.wait(ticket.group)?)
    }
}

fn now() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_micros() as i64)
}

fn columns<'a>(values: &'a [u8], offsets: &'a [i64]) -> ColumnsRef<'a> {
    let bytes = BytesRef {
        offsets: Offsets::I64(offsets),
        data: values,
    };
    ColumnsRef {
        len: offsets.len() - 1,
        values: bytes.into(),
        keys: None,
        timestamps: Timestamps::All(now()),
        headers: None,
    }
}
