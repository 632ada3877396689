//! Byte strings of any Arrow type, as offsets and data.

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, GenericByteArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::DataType;
use braidlog_core::batch::{Bitmap, BytesRef, NullableRef, Offsets};
use braidlog_core::{Error, Result};

/// Offsets of either width.
#[derive(Clone, Debug)]
enum OwnedOffsets {
    Narrow(OffsetBuffer<i32>),
    Wide(OffsetBuffer<i64>),
}

/// A column of byte strings that shares the buffers of the array it was made of. Types without
/// offsets (views, dictionaries) are copied once.
#[derive(Clone, Debug)]
pub struct Bytes {
    offsets: OwnedOffsets,
    data: Buffer,
    /// Unset where an element is null; absent if none is.
    pub nulls: Option<NullBuffer>,
}

impl Bytes {
    /// The byte strings of `array`; `None` for a type that has none.
    ///
    /// A view or a dictionary may say much more than it holds: what does not fit the memory is
    /// refused.
    pub fn of(array: &dyn Array) -> Result<Option<Self>> {
        Ok(Some(match array.data_type() {
            DataType::Binary => Self::narrow(array.as_binary::<i32>()),
            DataType::Utf8 => Self::narrow(array.as_string::<i32>()),
            DataType::LargeBinary => Self::wide(array.as_binary::<i64>()),
            DataType::LargeUtf8 => Self::wide(array.as_string::<i64>()),
            DataType::BinaryView => {
                let view = array.as_binary_view();
                Self::copied(array.nulls().cloned(), view.len(), |index| {
                    view.value(index)
                })?
            }
            DataType::Utf8View => {
                let view = array.as_string_view();
                Self::copied(array.nulls().cloned(), view.len(), |index| {
                    view.value(index).as_bytes()
                })?
            }
            DataType::Dictionary(..) => {
                let dictionary = array.as_any_dictionary();
                let Some(values) = Self::of(dictionary.values())? else {
                    return Ok(None);
                };
                let nulls = array.logical_nulls();
                // Without values every element is null, and there are no indexes to look up.
                let indexes = match dictionary.values().len() {
                    0 => vec![0; array.len()],
                    _ => dictionary.normalized_keys(),
                };
                let element = |index: usize| values.get(indexes[index]);
                Self::copied(nulls, array.len(), element)?
            }
            _ => return Ok(None),
        }))
    }

    fn narrow<T: ByteArrayType<Offset = i32>>(array: &GenericByteArray<T>) -> Self {
        let (offsets, data, nulls) = array.clone().into_parts();
        Self::new(OwnedOffsets::Narrow(offsets), data, nulls)
    }

    fn wide<T: ByteArrayType<Offset = i64>>(array: &GenericByteArray<T>) -> Self {
        let (offsets, data, nulls) = array.clone().into_parts();
        Self::new(OwnedOffsets::Wide(offsets), data, nulls)
    }

    fn new(offsets: OwnedOffsets, data: Buffer, nulls: Option<NullBuffer>) -> Self {
        let nulls = nulls.filter(|nulls| nulls.null_count() != 0);
        Self {
            offsets,
            data,
            nulls,
        }
    }

    /// Copy `len` elements; null ones become empty.
    fn copied<'a>(
        nulls: Option<NullBuffer>,
        len: usize,
        element: impl Fn(usize) -> &'a [u8],
    ) -> Result<Self> {
        let is_null = |index| nulls.as_ref().is_some_and(|nulls| nulls.is_null(index));
        let bytes_of = |index| if is_null(index) { &[] } else { element(index) };
        let size: u128 = (0..len).map(|index| bytes_of(index).len() as u128).sum();
        let mut data = Vec::new();
        let room = usize::try_from(size).is_ok_and(|size| data.try_reserve_exact(size).is_ok());
        if !room {
            return Err(Error::InvalidArgument(format!(
                "a column takes {size} bytes when each row has its own copy, and there is not as much \
                 memory; append fewer rows at a time"
            )));
        }
        let lengths = (0..len).map(|index| {
            let bytes = bytes_of(index);
            data.extend_from_slice(bytes);
            bytes.len()
        });
        let offsets = OwnedOffsets::Wide(OffsetBuffer::from_lengths(lengths));
        Ok(Self::new(offsets, Buffer::from_vec(data), nulls))
    }

    /// The elements `indexes`, copied.
    pub fn take(&self, indexes: &[usize]) -> Result<Self> {
        let nulls = self.nulls.as_ref();
        let nulls = nulls.map(|nulls| indexes.iter().map(|&index| nulls.is_valid(index)).collect());
        Self::copied(nulls, indexes.len(), |index| self.get(indexes[index]))
    }

    /// The bytes of element `index`; empty beyond the end.
    pub fn get(&self, index: usize) -> &[u8] {
        let range = match &self.offsets {
            OwnedOffsets::Narrow(all) => range(all.get(index), all.get(index + 1)),
            OwnedOffsets::Wide(all) => range(all.get(index), all.get(index + 1)),
        };
        range
            .and_then(|range| self.data.get(range))
            .unwrap_or_default()
    }

    /// Whether element `index` is null.
    pub fn is_null(&self, index: usize) -> bool {
        self.nulls
            .as_ref()
            .is_some_and(|nulls| nulls.is_null(index))
    }

    /// As the encoder takes them.
    pub fn borrow(&self) -> NullableRef<'_> {
        let offsets = match &self.offsets {
            OwnedOffsets::Narrow(offsets) => Offsets::I32(offsets),
            OwnedOffsets::Wide(offsets) => Offsets::I64(offsets),
        };
        NullableRef {
            bytes: BytesRef {
                offsets,
                data: &self.data,
            },
            validity: self.nulls.as_ref().map(|nulls| Bitmap {
                bytes: nulls.validity(),
                offset: nulls.offset(),
            }),
        }
    }
}

fn range<T: Copy>(begin: Option<&T>, end: Option<&T>) -> Option<std::ops::Range<usize>>
where
    usize: TryFrom<T>,
{
    Some(usize::try_from(*begin?).ok()?..usize::try_from(*end?).ok()?)
}
