//! Which numbers records, sequences and positions may have.

/// Numbers of records stay below this, so that sums of two never overflow.
pub const NUMBER_MAX: u64 = 1 << 62;

/// Whether `count` numbers from `first` on are all in range.
pub fn fits(first: u64, count: u64) -> bool {
    let end = first.checked_add(count);
    end.is_some_and(|end| end < NUMBER_MAX)
}
