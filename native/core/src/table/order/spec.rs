//! What an index is over, as text.
//!
//! ```text
//! index  = field *( "+" field )              "+" counts only before json:, header: or value
//! field  = source [ ":" type ]
//! source = "json:" pointer | "header:" name | "value"
//! type   = "scalar" | "bool" | "int" | "float" | "text" | "bytes"
//! ```
//!
//! What is behind the last colon is the type; a pointer or name with a colon in it therefore needs one. Without a type,
//! fields of JSON are scalars, headers and values bytes. JSON has no bytes, and bytes are never scalars.

use std::fmt;

use super::pointer::Pointer;
use super::scalar::{self, Kind, Value};
use crate::error::{Error, Result};

/// Most fields of an index.
const FIELDS_MAX: usize = 16;

/// Where a field comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A place within the record's value, which is JSON.
    Json(Pointer),
    /// The first header of that name.
    Header(String),
    /// The whole value.
    Value,
}

/// One field of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Where it comes from.
    pub source: Source,
    /// Its type.
    pub kind: Kind,
}

/// What an index is over: one or more fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    fields: Vec<Field>,
}

impl Field {
    fn parse(text: &str) -> Result<Self> {
        let (source, rest) = text.split_once(':').unwrap_or((text, ""));
        let (rest, kind) = match (source, rest.rsplit_once(':')) {
            ("value", _) if text.contains(':') => ("", Some(rest)),
            (_, Some((rest, kind))) => (rest, Some(kind)),
            (_, None) => (rest, None),
        };
        let (source, default) = match source {
            "json" => (Source::Json(Pointer::parse(rest)?), Kind::Scalar),
            "header" if rest.is_empty() => {
                return refused(text, "a header needs a name, as in header:region");
            }
            "header" => (Source::Header(rest.into()), Kind::Bytes),
            "value" => (Source::Value, Kind::Bytes),
            _ => return refused(text, "a field begins with json:, header: or value"),
        };
        let kind = match kind.map(|name| (name, Kind::named(name))) {
            None => default,
            Some((_, Some(kind))) => kind,
            Some((name, None)) => {
                let known = Kind::NAMES.map(|(name, _)| name).join(", ");
                let reason = format!(
                    "there is no type {name:?}; the types are {known}. What is behind the last colon is the type"
                );
                return refused(text, &reason);
            }
        };
        match (&source, kind) {
            (Source::Json(_), Kind::Bytes) => refused(text, "JSON has no bytes; use text"),
            (Source::Header(_) | Source::Value, Kind::Scalar) => refused(
                text,
                "headers and values are bytes; scalar is a type of fields of JSON",
            ),
            _ => Ok(Self { source, kind }),
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match &self.source {
            Source::Json(pointer) => format!("json:{pointer}"),
            Source::Header(name) => format!("header:{name}"),
            Source::Value => "value".into(),
        };
        // A type behind that would begin another field.
        if text.ends_with("+json") || text.ends_with("+header") {
            return f.write_str(&text);
        }
        write!(f, "{text}:{}", self.kind)
    }
}

fn refused<T>(text: &str, reason: &str) -> Result<T> {
    Err(Error::InvalidArgument(format!(
        "{text:?} is no field of an index: {reason}"
    )))
}

impl IndexSpec {
    /// Parse the text.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that says what is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<Self> {
        let mut fields = Vec::new();
        let mut rest = text;
        loop {
            let (field, behind) = first_field(rest);
            fields.push(Field::parse(field)?);
            match behind {
                Some(behind) => rest = behind,
                None => break,
            }
        }
        if fields.len() > FIELDS_MAX {
            return refused(text, "an index has at most 16 fields");
        }
        Ok(Self { fields })
    }

    /// Its fields.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Append the encoding of the first fields: what the keys of all entries with these values begin with.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a value of another type, or more values than fields.
    pub fn encode(&self, values: &[Value], out: &mut Vec<u8>) -> Result<()> {
        self.check_number(values)?;
        for (field, value) in self.fields.iter().zip(values) {
            scalar::encode(value, field.kind, out)?;
        }
        Ok(())
    }

    /// As [`IndexSpec::encode`], but the last value, text or bytes, is only the beginning of what is looked for.
    pub fn encode_beginning(&self, values: &[Value], out: &mut Vec<u8>) -> Result<()> {
        self.check_number(values)?;
        let Some((last, whole)) = values.split_last() else {
            return Ok(());
        };
        self.encode(whole, out)?;
        let kind = self.fields[whole.len()].kind;
        if scalar::put_beginning(last, kind, out) {
            return Ok(());
        }
        // It names the type that is expected.
        scalar::encode(last, kind, &mut Vec::new())?;
        Err(Error::InvalidArgument(format!(
            "a beginning is text or bytes, not {}",
            last.kind_name()
        )))
    }

    fn check_number(&self, values: &[Value]) -> Result<()> {
        if values.len() <= self.fields.len() {
            return Ok(());
        }
        Err(Error::InvalidArgument(format!(
            "{} values for an index of {} fields",
            values.len(),
            self.fields.len()
        )))
    }

    /// Take the key of an entry apart: the values of its fields, and the record's key.
    ///
    /// # Errors
    /// [`Error::Malformed`] if it is no key of this index.
    pub fn split<'k>(&self, key: &'k [u8]) -> Result<(Vec<Value>, &'k [u8])> {
        let mut values = Vec::with_capacity(self.fields.len());
        let mut rest = key;
        for field in &self.fields {
            let (value, behind) = scalar::decode(field.kind, rest)?;
            values.push(value);
            rest = behind;
        }
        Ok((values, rest))
    }

    /// Where in the key of an entry the record's key begins.
    pub fn record_key_at(&self, key: &[u8]) -> Result<usize> {
        let mut rest = key;
        for field in &self.fields {
            rest = scalar::skip(field.kind, rest)?;
        }
        Ok(key.len() - rest.len())
    }
}

/// The first field, and what is behind the `+` that ends it.
fn first_field(text: &str) -> (&str, Option<&str>) {
    let plus = text.match_indices('+').find(|(at, _)| {
        let rest = &text[at + 1..];
        let is_value = |rest: &str| rest.is_empty() || rest.starts_with([':', '+']);
        rest.starts_with("json:")
            || rest.starts_with("header:")
            || rest.strip_prefix("value").is_some_and(is_value)
    });
    match plus {
        Some((at, _)) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

impl fmt::Display for IndexSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, field) in self.fields.iter().enumerate() {
            if at > 0 {
                f.write_str("+")?;
            }
            field.fmt(f)?;
        }
        Ok(())
    }
}
