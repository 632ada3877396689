//! The Arrow schema of a log, and projections of it.

use std::sync::{Arc, LazyLock};

use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use braidlog_core::{Error, Result};

/// A column of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// `int64`, assigned by the log.
    Position,
    /// `timestamp[us, UTC]`.
    Timestamp,
    /// `binary`, null where a record has no key.
    Key,
    /// `binary`, null where a record's value is.
    Value,
    /// `map<string, binary>`, with values that may be null.
    Headers,
}

impl Column {
    /// All columns in the order of the schema.
    pub const ALL: [Self; 5] = [
        Self::Position,
        Self::Timestamp,
        Self::Key,
        Self::Value,
        Self::Headers,
    ];

    /// Name in the schema.
    pub fn name(self) -> &'static str {
        match self {
            Self::Position => "position",
            Self::Timestamp => "timestamp",
            Self::Key => "key",
            Self::Value => "value",
            Self::Headers => "headers",
        }
    }

    /// The column of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// The field. Nullable even where nothing ever is null: other engines compare schemas with theirs,
    /// in which columns are.
    fn field(self) -> Field {
        let data_type = match self {
            Self::Position => DataType::Int64,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Key | Self::Value => DataType::Binary,
            Self::Headers => DataType::Map(entries_field(), false),
        };
        Field::new(self.name(), data_type, true)
    }
}

static ENTRY_FIELDS: LazyLock<Fields> = LazyLock::new(|| {
    let key = Field::new("key", DataType::Utf8, false);
    let value = Field::new("value", DataType::Binary, true);
    Fields::from(vec![key, value])
});

static ALL: LazyLock<Projection> = LazyLock::new(|| Projection::from_columns(&Column::ALL));

/// The fields of one entry of the headers.
pub fn entry_fields() -> Fields {
    ENTRY_FIELDS.clone()
}

/// The field of the entries of the headers.
pub fn entries_field() -> Arc<Field> {
    Arc::new(Field::new(
        "entries",
        DataType::Struct(entry_fields()),
        false,
    ))
}

/// The schema of a log.
pub fn schema() -> SchemaRef {
    ALL.schema.clone()
}

/// Some columns of a log, in the order they were asked for.
#[derive(Clone, Debug)]
pub struct Projection {
    columns: Vec<Column>,
    schema: SchemaRef,
}

impl Projection {
    /// All columns.
    pub fn all() -> Self {
        ALL.clone()
    }

    /// The named columns in that order. Unknown and repeated names are `InvalidArgument`.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let mut columns = Vec::new();
        for name in names {
            let Some(column) = Column::named(name) else {
                let reason = format!(
                    "column `{name}` is not one of position, timestamp, key, value, headers"
                );
                return Err(Error::InvalidArgument(reason));
            };
            if columns.contains(&column) {
                return Err(Error::InvalidArgument(format!(
                    "column `{name}` is named twice"
                )));
            }
            columns.push(column);
        }
        Ok(Self::from_columns(&columns))
    }

    fn from_columns(columns: &[Column]) -> Self {
        let fields: Vec<Field> = columns.iter().map(|column| column.field()).collect();
        Self {
            columns: columns.to_vec(),
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// The columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Their schema.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
