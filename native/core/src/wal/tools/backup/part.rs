//! A part of a backup: a range of records of one stream, as encoded batches.
//!
//! ```text
//! 0  u32 magic "BRBP"   4 u32 format   8 u128 log   24 u32 stream   28 u32 CRC32C of bytes 0..28
//! then entries, each: u32 bytes, u32 records, u64 first LLSN, u64 first GLSN, the batch
//! ```

use crate::batch::{BatchBuilder, BatchView, parse_head};
use crate::codec::{Put, Take};
use crate::error::{Error, Result};
use crate::wal::format::number::fits;
use crate::wal::tools::subset::subset;

const MAGIC: u32 = u32::from_le_bytes(*b"BRBP");

/// Format of parts.
pub const FORMAT: u32 = 1;

/// Bytes before the first entry.
pub const HEADER_BYTES: usize = 32;

/// Whose records a part has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Identity of the log.
    pub log: u128,
    /// Number of the stream.
    pub stream: u32,
}

impl Header {
    /// The bytes before the first entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put_u32(MAGIC);
        out.put_u32(FORMAT);
        out.put_u128(self.log);
        out.put_u32(self.stream);
        out.put_u32(crc32c::crc32c(&out));
        out
    }
}

/// One batch of a part. All of its records follow one another in their stream and in their log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// LLSN of its first record.
    pub llsn: u64,
    /// GLSN of its first record; in an embedded log the LLSN.
    pub glsn: u64,
    /// Its records.
    pub count: u32,
    /// As encoded.
    pub batch: &'a [u8],
}

/// A verified batch without its producer: where the sequences of several streams come together, they say nothing.
pub fn anonymous(batch: &[u8]) -> Result<Vec<u8>> {
    let view = BatchView::parse_verified(batch)?;
    let mut builder = BatchBuilder::new();
    for record in view.iter() {
        let headers: Vec<_> = record.headers.collect();
        builder.push(record.value, record.key, record.timestamp, &headers)?;
    }
    let mut out = Vec::with_capacity(builder.encoded_len_max());
    builder.encode_into(view.head().compression(), &mut out)?;
    Ok(out)
}

/// Append records `skip..skip + count` of a verified batch whose first record would have LLSN `llsn - skip`.
pub fn put(
    out: &mut Vec<u8>,
    (llsn, glsn): (u64, u64),
    skip: u32,
    count: u32,
    batch: &[u8],
) -> Result<()> {
    let head = parse_head(batch)?;
    let end = skip.checked_add(count).filter(|end| *end <= head.count());
    let Some(end) = end.filter(|_| count > 0) else {
        let reason = format!("records {skip}..+{count} of a batch of {}", head.count());
        return Err(Error::InvalidArgument(reason));
    };
    let part;
    let batch = if (skip, end) == (0, head.count()) {
        batch
    } else {
        part = subset(&BatchView::parse_verified(batch)?, skip..end)?;
        &part
    };
    out.put_u32(batch.len() as u32);
    out.put_u32(count);
    out.put_u64(llsn);
    out.put_u64(glsn);
    out.extend_from_slice(batch);
    Ok(())
}

/// Goes through the entries of a part, and verifies each batch.
pub struct Entries<'a> {
    /// Whose records these are.
    pub header: Header,
    take: Take<'a>,
    next: Option<(u64, u64)>,
}

impl<'a> Entries<'a> {
    /// Begin with the header of a part.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        let mut take = Take::new("part of a backup", bytes);
        if take.u32()? != MAGIC {
            return Err(take.error("other magic"));
        }
        let format = take.u32()?;
        let header = Header {
            log: take.u128()?,
            stream: take.u32()?,
        };
        if take.u32()? != crc32c::crc32c(&bytes[..HEADER_BYTES - 4]) {
            return Err(take.error("checksum of the header does not match"));
        }
        if format != FORMAT {
            return Err(take.error(format!("format {format}; this build reads {FORMAT}")));
        }
        Ok(Self {
            header,
            take,
            next: None,
        })
    }

    fn entry(&mut self) -> Result<Entry<'a>> {
        let bytes = self.take.u32()? as usize;
        let count = self.take.u32()?;
        let (llsn, glsn) = (self.take.u64()?, self.take.u64()?);
        if llsn == 0 || glsn < llsn || !fits(glsn, count.into()) {
            return Err(self.take.error("numbers are out of range"));
        }
        if self
            .next
            .is_some_and(|(next, least)| llsn != next || glsn < least)
        {
            return Err(self.take.error("the batch does not follow the one before"));
        }
        let batch = self.take.slice(bytes)?;
        if BatchView::parse(batch)?.count() != count {
            return Err(self.take.error("another number of records"));
        }
        let records = u64::from(count);
        self.next = Some((llsn + records, glsn + records));
        Ok(Entry {
            llsn,
            glsn,
            count,
            batch,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        (self.take.remaining() > 0).then(|| self.entry())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::batch::Compression;

    fn batch(values: &[&[u8]]) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        for value in values {
            builder.push(Some(*value), None, 7, &[]).unwrap();
        }
        let mut out = Vec::new();
        builder.encode_into(Compression::None, &mut out).unwrap();
        out
    }

    fn sample() -> Vec<u8> {
        let mut part = Header { log: 9, stream: 2 }.encode();
        let whole = batch(&[b"a", b"b", b"c"]);
        put(&mut part, (5, 7), 0, 3, &whole).unwrap();
        put(&mut part, (8, 12), 1, 2, &whole).unwrap();
        part
    }

    /// First LLSN, first GLSN, values.
    type Row = (u64, u64, Vec<Vec<u8>>);

    fn read(bytes: &[u8]) -> Result<Vec<Row>> {
        let values = |entry: Entry<'_>| {
            let view = BatchView::parse(entry.batch).unwrap();
            view.iter()
                .map(|record| record.value.unwrap().to_vec())
                .collect()
        };
        Entries::new(bytes)?
            .map(|entry| entry.map(|entry| (entry.llsn, entry.glsn, values(entry))))
            .collect()
    }

    #[test]
    fn a_part_gives_back_what_was_put_in() {
        let part = sample();
        let entries = Entries::new(&part).unwrap();
        assert_eq!(entries.header, Header { log: 9, stream: 2 });
        let all = |texts: &[&[u8]]| texts.iter().map(|text| text.to_vec()).collect();
        let expected: Vec<Row> = vec![
            (5, 7, all(&[b"a", b"b", b"c"])),
            (8, 12, all(&[b"b", b"c"])),
        ];
        assert_eq!(read(&part).unwrap(), expected);
    }

    #[test]
    fn no_byte_but_of_the_positions_is_taken_on_trust() {
        let part = sample();
        let good = read(&part).unwrap();
        for at in 0..part.len() {
            let mut bad = part.clone();
            bad[at] ^= 1;
            // The list of a backup has a checksum of the whole; what is read without is never nonsense.
            match read(&bad) {
                Err(_) => {}
                Ok(found) => {
                    let values = |rows: &[Row]| -> Vec<Vec<Vec<u8>>> {
                        rows.iter().map(|row| row.2.clone()).collect()
                    };
                    assert_eq!(values(&found), values(&good), "byte {at}");
                }
            }
        }
        for len in 0..part.len() {
            let short = read(&part[..len]);
            assert!(short.is_err() || short.unwrap().len() < good.len(), "{len}");
        }
    }

    /// Value, key, timestamp, number of headers.
    type Bare = (Vec<u8>, Option<Vec<u8>>, i64, usize);

    #[test]
    fn an_anonymous_batch_has_the_records_and_no_producer() {
        let mut builder = BatchBuilder::new();
        builder.set_producer(7, 1, 5);
        for value in [b"a", b"b"] {
            builder
                .push(Some(value), Some(b"k"), 3, &[("h", Some(b"x"))])
                .unwrap();
        }
        let mut batch = Vec::new();
        builder.encode_into(Compression::Zstd, &mut batch).unwrap();
        let bare = anonymous(&batch).unwrap();
        let (one, other) = (
            BatchView::parse(&batch).unwrap(),
            BatchView::parse(&bare).unwrap(),
        );
        assert_eq!(
            (one.head().producer().id, other.head().producer().id),
            (7, 0)
        );
        let rows = |view: &BatchView<'_>| -> Vec<Bare> {
            let row = |record: crate::batch::RecordRef<'_>| {
                let key = record.key.map(<[u8]>::to_vec);
                (
                    record.value.unwrap().to_vec(),
                    key,
                    record.timestamp,
                    record.headers.count(),
                )
            };
            view.iter().map(row).collect()
        };
        assert_eq!(rows(&one), rows(&other));
    }

    #[test]
    fn more_records_than_there_are_cannot_be_put_in() {
        let whole = batch(&[b"a"]);
        for (skip, count) in [(0, 2), (1, 1), (0, 0), (u32::MAX, 2)] {
            let refused = put(&mut Vec::new(), (1, 1), skip, count, &whole);
            assert!(matches!(refused, Err(Error::InvalidArgument(_))));
        }
    }
}
