//! One record as a reader sees it: slices of a batch.

use super::columns::Bitmap;

/// Little-endian `u32`s at any alignment.
#[derive(Clone, Copy, Debug)]
pub struct U32s<'a>(&'a [u8]);

impl<'a> U32s<'a> {
    /// View whole elements; bytes left over at the end are not part of it.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.0.len() / 4
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`.
    pub fn get(&self, index: usize) -> Option<u32> {
        let element = self.0.get(index.checked_mul(4)?..)?.first_chunk()?;
        Some(u32::from_le_bytes(*element))
    }

    /// Elements `index` and `index + 1` of offsets, as the range of data between them.
    pub fn range(&self, index: usize) -> Option<std::ops::Range<usize>> {
        Some(self.get(index)? as usize..self.get(index.checked_add(1)?)? as usize)
    }

    /// All elements.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + use<'a> {
        self.0
            .as_chunks::<4>()
            .0
            .iter()
            .map(|element| u32::from_le_bytes(*element))
    }
}

/// A record of a batch, borrowed.
#[derive(Clone, Debug)]
pub struct RecordRef<'a> {
    /// Microseconds since the Unix epoch.
    pub timestamp: i64,
    /// The key, if it has one.
    pub key: Option<&'a [u8]>,
    /// The value, unless it is null.
    pub value: Option<&'a [u8]>,
    /// Headers in the order they were given.
    pub headers: Headers<'a>,
}

/// Headers of one record: an iterator of name and value, which may be null.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    // Offsets of this record's entries; one more than entries, or none at all.
    name_offsets: U32s<'a>,
    value_offsets: U32s<'a>,
    // Of this record's entries; none if all are present.
    validity: Option<Bitmap<'a>>,
    // Data that begins with this record's first entry.
    names: &'a [u8],
    values: &'a [u8],
    next: usize,
}

impl<'a> Headers<'a> {
    /// No headers.
    pub fn none() -> Self {
        Self {
            name_offsets: U32s::new(&[]),
            value_offsets: U32s::new(&[]),
            validity: None,
            names: &[],
            values: &[],
            next: 0,
        }
    }

    /// Headers between verified offsets; the data begins at the first of them.
    pub(super) fn new(
        name_offsets: U32s<'a>,
        value_offsets: U32s<'a>,
        validity: Option<Bitmap<'a>>,
        names: &'a [u8],
        values: &'a [u8],
    ) -> Self {
        Self {
            name_offsets,
            value_offsets,
            validity,
            names,
            values,
            next: 0,
        }
    }

    /// The names as stored, for whoever has yet to verify them.
    pub(super) fn raw_names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let Self {
            name_offsets,
            names,
            ..
        } = *self;
        (0..).map_while(move |index| Self::bytes(&name_offsets, names, index))
    }

    fn bytes(offsets: &U32s<'_>, data: &'a [u8], index: usize) -> Option<&'a [u8]> {
        let base = offsets.get(0)? as usize;
        let range = offsets.range(index)?;
        data.get(range.start.checked_sub(base)?..range.end.checked_sub(base)?)
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = (&'a str, Option<&'a [u8]>);

    fn next(&mut self) -> Option<Self::Item> {
        let name = Self::bytes(&self.name_offsets, self.names, self.next)?;
        let value = Self::bytes(&self.value_offsets, self.values, self.next)?;
        let is_null = self.validity.is_some_and(|bits| !bits.get(self.next));
        self.next += 1;
        // Verified as UTF-8 when the batch was parsed.
        Some((
            std::str::from_utf8(name).unwrap_or_default(),
            (!is_null).then_some(value),
        ))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self
            .name_offsets
            .len()
            .saturating_sub(1)
            .saturating_sub(self.next);
        (left, Some(left))
    }
}

impl ExactSizeIterator for Headers<'_> {}
