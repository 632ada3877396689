//! Parts of backups: [`Entries`].
//!
//! Accepted means that all of it was read. Then the records of the stream are dense, the positions rise, and
//! the header and the batches make the same bytes again.

use braidlog_core::batch::{BatchView, parse_head};
use braidlog_core::wal::backup::part::{Entries, Entry, HEADER_BYTES, Header, put};

use super::batch::malformed;
use super::batch_make::{Size, batch};
use crate::input::Input;
use crate::mutate::{Field, damage, put_u32, u32_at};
use crate::rng::Rng;
use crate::target::{Broken, Target, Verdict, general_bound, hold};

/// The numbers of the header and of the first entry.
const FIELDS: [Field; 8] = [
    (0, 4),
    (4, 4),
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 4),
    (40, 8),
    (48, 8),
];

/// Bytes of an entry before its batch.
const ENTRY_BYTES: usize = 24;

/// The target.
pub struct Part;

impl Target for Part {
    fn name(&self) -> &'static str {
        "part"
    }

    fn generate(&self, rng: &mut Rng) -> Input {
        let header = Header {
            log: u128::from(rng.below(1 << 30) as u64) << 64 | 7,
            stream: rng.within(1..=9) as u32,
        };
        let mut out = header.encode();
        let mut llsn = rng.within(1..=1000) as u64;
        let mut glsn = llsn + rng.below(5) as u64;
        for _ in 0..rng.below(6) {
            let made = batch(Size::Small, rng);
            let Ok(count) = parse_head(&made).map(|head| head.count()) else {
                continue;
            };
            // Some of the records, as where a cut goes through a batch.
            let skip = if rng.one_in(3) {
                rng.below(count as usize) as u32
            } else {
                0
            };
            let before = out.len();
            if put(&mut out, (llsn, glsn), skip, count - skip, &made).is_err() {
                out.truncate(before);
                continue;
            }
            llsn += u64::from(count - skip);
            glsn += u64::from(count - skip) + rng.below(3) as u64;
        }
        Input::single(out)
    }

    fn mutate(&self, input: &mut Input, other: &Input, rng: &mut Rng) {
        let fields = if input.len() > HEADER_BYTES + ENTRY_BYTES {
            &FIELDS[..]
        } else {
            &FIELDS[..4]
        };
        damage(input.bytes_mut(), fields, other.bytes(), rng);
    }

    fn reseal(&self, input: &mut Input, _: &mut Rng) {
        let bytes = input.bytes_mut();
        if let Some(header) = bytes.get(..HEADER_BYTES - 4) {
            let checksum = crc32c::crc32c(header);
            put_u32(bytes, HEADER_BYTES - 4, checksum);
        }
    }

    /// A verified batch may unpack to the most that a batch holds.
    fn bound(&self, input: &Input) -> usize {
        general_bound(input).max(64 << 20)
    }

    fn check(&self, input: &Input) -> Result<Verdict, Broken> {
        let bytes = input.bytes();
        let read = Entries::new(bytes).and_then(|entries| {
            let header = entries.header;
            entries
                .collect::<braidlog_core::Result<Vec<Entry<'_>>>>()
                .map(|found| (header, found))
        });
        let (header, entries) = match read {
            Ok(read) => read,
            Err(error) => {
                malformed("Entries", &error)?;
                return Ok(Verdict::Refused);
            }
        };
        let mut again = header.encode();
        for entry in &entries {
            let whole = BatchView::parse(entry.batch).map(|view| view.count());
            hold(whole.as_ref().ok() == Some(&entry.count), || {
                format!("{whole:?} records in an entry of {}", entry.count)
            })?;
            put(
                &mut again,
                (entry.llsn, entry.glsn),
                0,
                entry.count,
                entry.batch,
            )
            .map_err(|error| format!("cannot be put in again: {error}"))?;
        }
        for (one, next) in entries.iter().zip(entries.iter().skip(1)) {
            let count = u64::from(one.count);
            hold(
                one.llsn + count == next.llsn && one.glsn + count <= next.glsn,
                || format!("{} follows {}", next.llsn, one.llsn),
            )?;
        }
        hold(again == bytes, || {
            format!("other bytes: magic {:x}", u32_at(&again, 0))
        })?;
        Ok(Verdict::Accepted)
    }
}
