//! Batches that stand for records that are lost.
//!
//! A repair cannot bring back what is damaged, but positions must stay dense. So the lost records keep their
//! positions, in a batch of empty records with a flag. Whoever stores, copies or indexes batches need not
//! know of it; whoever reads records has to.

use super::columns::{BytesRef, ColumnsRef, Offsets, Timestamps};
use super::compress::Compression;
use super::encode::encode_columns;
use super::head::declare_hole;
use super::header::Producer;
use crate::error::Result;

/// A batch for `count` lost records, at most as many as a batch may have.
pub fn encode_hole(count: usize, timestamp: i64) -> Result<Vec<u8>> {
    let offsets = vec![0_u32; count + 1];
    let columns = ColumnsRef {
        len: count,
        values: BytesRef {
            offsets: Offsets::U32(&offsets),
            data: &[],
        }
        .into(),
        keys: None,
        timestamps: Timestamps::All(timestamp),
        headers: None,
    };
    let mut out = Vec::new();
    encode_columns(
        &columns,
        0..count,
        Producer::default(),
        Compression::Zstd,
        &mut out,
    )?;
    declare_hole(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchView, parse_head};
    use crate::error::Error;
    use crate::limits::BATCH_RECORDS_MAX;

    #[test]
    fn a_hole_has_positions_and_nothing_else() {
        for count in [1, 2, 5000, BATCH_RECORDS_MAX] {
            let bytes = encode_hole(count, 7).unwrap();
            assert!(bytes.len() < 8 << 10, "{} bytes", bytes.len());
            assert_eq!(bytes[4], 2, "a build that does not know of it refuses it");
            let view = BatchView::parse(&bytes).unwrap();
            let (first, end) = (10, 10 + count as u64);
            assert_eq!(view.count() as usize, count);
            assert_eq!(view.head().min_timestamp(), 7);
            let lost = view.head().check_there(first);
            assert!(
                matches!(lost, Err(Error::Lost { first: f, end: e }) if (f, e) == (first, end))
            );
        }
        assert!(encode_hole(BATCH_RECORDS_MAX + 1, 7).is_err());
    }

    #[test]
    fn a_hole_with_the_version_of_other_batches_is_refused() {
        let bytes = encode_hole(3, 7).unwrap();
        for version in [0, 1, 3] {
            let mut other = bytes.clone();
            other[4] = version;
            assert!(parse_head(&other).is_err());
        }
    }
}
