//! Taking the fields of all indexes out of a record.

use jiter::{Jiter, JiterResult, Peek};

use super::pointer::Node;
use super::scalar::{Kind, Plain};
use super::spec::{IndexSpec, Source};
use crate::limits::TABLE_KEY_BYTES_MAX;

/// What became of a record in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// It is there, with this key.
    Key(&'a [u8]),
    /// It has no such field, or null in it, and is not there.
    Absent,
    /// It should be there, but cannot be.
    Refused(&'static str),
}

/// Makes the index keys of records, and keeps what it needs for that from one record to the next.
#[derive(Debug)]
pub struct Extractor {
    specs: Vec<IndexSpec>,
    /// For each index, where the values of its fields are among `found`; none of headers and values.
    slots: Vec<Vec<Option<usize>>>,
    /// The pointers of all indexes.
    root: Node,
    found: Vec<Found>,
    /// Text and digits of what was found.
    scratch: Vec<u8>,
    /// A string with escapes, between quotes.
    quoted: Vec<u8>,
    key: Vec<u8>,
}

/// What a pointer leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Nothing, or null.
    Nothing,
    Bool(bool),
    /// Digits and text: from and to in the scratch.
    Number(usize, usize),
    Text(usize, usize),
    /// A string that is not UTF-8.
    NoText,
    /// An object or an array.
    Container,
}

impl Extractor {
    /// For the indexes of a table.
    pub fn new(specs: Vec<IndexSpec>) -> Self {
        let mut root = Node::default();
        let mut next = 0;
        let slots = specs.iter().map(|spec| {
            let fields = spec.fields().iter();
            let slot = |source: &Source| match source {
                Source::Json(pointer) => Some(root.add(pointer, &mut next)),
                Source::Header(_) | Source::Value => None,
            };
            let mut slot = slot;
            fields.map(|field| slot(&field.source)).collect()
        });
        let slots = slots.collect();
        Self {
            specs,
            slots,
            root,
            found: vec![Found::Nothing; next],
            scratch: Vec::new(),
            quoted: Vec::new(),
            key: Vec::new(),
        }
    }

    /// The indexes.
    pub fn specs(&self) -> &[IndexSpec] {
        &self.specs
    }

    /// Tell `each` the number of every index and what becomes of a record with this key in it.
    pub fn extract<'r>(
        &mut self,
        key: &[u8],
        value: &[u8],
        headers: &(impl Iterator<Item = (&'r str, Option<&'r [u8]>)> + Clone),
        mut each: impl FnMut(usize, Outcome<'_>),
    ) {
        let is_json = self.found.is_empty() || self.read_json(value);
        for index in 0..self.specs.len() {
            let reads_json = self.slots[index].iter().any(Option::is_some);
            if reads_json && !is_json {
                each(index, Outcome::Refused("the value is not JSON"));
                continue;
            }
            let mut buffer = std::mem::take(&mut self.key);
            buffer.clear();
            let put = self.put_fields(index, value, headers, &mut buffer);
            buffer.extend_from_slice(key);
            let outcome = match put {
                Put::Done if buffer.len() > TABLE_KEY_BYTES_MAX => {
                    Outcome::Refused("field and key together are longer than a key may be")
                }
                Put::Done => Outcome::Key(&buffer),
                Put::Absent => Outcome::Absent,
                Put::Refused(reason) => Outcome::Refused(reason),
            };
            each(index, outcome);
            self.key = buffer;
        }
    }

    fn put_fields<'r>(
        &self,
        index: usize,
        value: &[u8],
        headers: &(impl Iterator<Item = (&'r str, Option<&'r [u8]>)> + Clone),
        out: &mut Vec<u8>,
    ) -> Put {
        let fields = self.specs[index].fields().iter().zip(&self.slots[index]);
        let mut result = Put::Done;
        for (field, slot) in fields {
            let put = match (&field.source, slot) {
                (Source::Json(_), Some(slot)) => self.put_found(self.found[*slot], field.kind, out),
                (Source::Header(name), _) => {
                    let mut headers = headers.clone();
                    match headers.find(|(found, _)| found == name) {
                        Some((_, Some(value))) => put_raw(value, field.kind, out),
                        // A null value is none.
                        _ => Put::Absent,
                    }
                }
                _ => put_raw(value, field.kind, out),
            };
            match put {
                Put::Done => {}
                // A record that lacks a field is not in the index, whatever its other fields are.
                Put::Absent => return Put::Absent,
                Put::Refused(_) => result = put,
            }
        }
        result
    }

    fn put_found(&self, found: Found, kind: Kind, out: &mut Vec<u8>) -> Put {
        let done = match found {
            Found::Nothing => return Put::Absent,
            Found::Container => return Put::Refused("the field is an object or an array"),
            Found::NoText => return Put::Refused("the field is not UTF-8"),
            Found::Bool(value) => Plain::Bool(value).put(kind, out),
            // Both were checked when they were read.
            Found::Text(begin, end) => {
                let text = std::str::from_utf8(&self.scratch[begin..end]).unwrap_or_default();
                Plain::Text(text).put(kind, out)
            }
            Found::Number(begin, end) => {
                let digits = std::str::from_utf8(&self.scratch[begin..end]).unwrap_or_default();
                number(digits).is_some_and(|number| number.put(kind, out))
            }
        };
        if done {
            Put::Done
        } else {
            Put::Refused(other_type(kind))
        }
    }

    /// Read all fields; false if the value is no JSON.
    ///
    /// Whether it is, must not depend on what is looked for: an index that is built by itself would differ from one that was there
    /// from the start. So all strings are read in the way in which they are passed over, and are decoded apart.
    fn read_json(&mut self, value: &[u8]) -> bool {
        self.found.fill(Found::Nothing);
        self.scratch.clear();
        if may_be_too_deep(value) && Jiter::new(value).next_skip().is_err() {
            return false;
        }
        let mut reader = Reader {
            jiter: Jiter::new(value),
            found: &mut self.found,
            scratch: &mut self.scratch,
            quoted: &mut self.quoted,
        };
        reader.read(&self.root).is_ok()
    }
}

enum Put {
    Done,
    Absent,
    Refused(&'static str),
}

fn other_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Scalar => "the field is of no type that an index holds",
        Kind::Bool => "the field is not true or false",
        Kind::Int => "the field is not an integer, or beyond 64 bits",
        Kind::Float => "the field is not a number",
        Kind::Text => "the field is not text",
        Kind::Bytes => "the field is not bytes",
    }
}

/// A header or a value, which are bytes, as what the type makes of them.
fn put_raw(raw: &[u8], kind: Kind, out: &mut Vec<u8>) -> Put {
    let text = || std::str::from_utf8(raw).ok();
    let plain = match kind {
        Kind::Bytes | Kind::Scalar => Some(Plain::Bytes(raw)),
        Kind::Text => text().map(Plain::Text),
        Kind::Bool => text().and_then(|text| text.parse().ok()).map(Plain::Bool),
        Kind::Int => text().and_then(|text| text.parse().ok()).map(Plain::Int),
        Kind::Float => text().and_then(|text| text.parse().ok()).map(Plain::Float),
    };
    if plain.is_some_and(|plain| plain.put(kind, out)) {
        Put::Done
    } else {
        Put::Refused(other_type(kind))
    }
}

/// A number of JSON: exact where it is an integer that fits.
fn number(digits: &str) -> Option<Plain<'static>> {
    if !digits.contains(['.', 'e', 'E'])
        && let Ok(int) = digits.parse()
    {
        return Some(Plain::Int(int));
    }
    digits.parse().ok().map(Plain::Float)
}

/// Brackets from which on a value may be nested deeper than the parser allows. It counts from where it begins to pass something over.
const DEEP: usize = 200;

fn may_be_too_deep(value: &[u8]) -> bool {
    let brackets = value.iter().filter(|byte| matches!(byte, b'{' | b'['));
    brackets.count() >= DEEP
}

struct Reader<'j, 'f> {
    jiter: Jiter<'j>,
    found: &'f mut [Found],
    scratch: &'f mut Vec<u8>,
    quoted: &'f mut Vec<u8>,
}

/// Give `take` a string as the parser found it, without its escapes; `None` if it is not UTF-8.
fn decoded<T>(raw: &[u8], quoted: &mut Vec<u8>, take: impl FnOnce(&str) -> T) -> Option<T> {
    if !raw.contains(&b'\\') {
        return std::str::from_utf8(raw).ok().map(take);
    }
    quoted.clear();
    quoted.push(b'"');
    quoted.extend_from_slice(raw);
    quoted.push(b'"');
    Jiter::new(quoted).next_str().ok().map(take)
}

impl Reader<'_, '_> {
    fn read(&mut self, root: &Node) -> JiterResult<()> {
        let peek = self.jiter.peek()?;
        self.value(peek, root)?;
        self.jiter.finish()
    }

    /// Read a value of which the node says what is looked for. Calls itself as deep as pointers go.
    fn value(&mut self, peek: Peek, node: &Node) -> JiterResult<()> {
        // Of two members of one name the last counts, as for most readers.
        node.slots(&mut |slot| self.found[slot] = Found::Nothing);
        let found = match peek {
            Peek::Object if node.has_children() => {
                self.object(node)?;
                Found::Container
            }
            Peek::Array if node.has_children() => {
                self.array(node)?;
                Found::Container
            }
            _ if node.slot.is_none() => {
                self.jiter.known_skip(peek)?;
                return Ok(());
            }
            Peek::Object | Peek::Array => {
                self.jiter.known_skip(peek)?;
                Found::Container
            }
            Peek::String => {
                let (raw, scratch) = (self.jiter.known_bytes()?, &mut *self.scratch);
                let text = decoded(raw, self.quoted, |text| {
                    keep(scratch, text.as_bytes(), Found::Text)
                });
                text.unwrap_or(Found::NoText)
            }
            Peek::True | Peek::False => Found::Bool(self.jiter.known_bool(peek)?),
            Peek::Null => {
                self.jiter.known_null()?;
                Found::Nothing
            }
            _ => {
                let digits = self.jiter.known_number_bytes(peek)?;
                keep(self.scratch, digits, Found::Number)
            }
        };
        if let Some(slot) = node.slot {
            self.found[slot] = found;
        }
        Ok(())
    }

    fn object(&mut self, node: &Node) -> JiterResult<()> {
        let mut name = self.jiter.next_object_bytes()?;
        while let Some(raw) = name {
            let child = child_of(node, raw, self.quoted);
            let peek = self.jiter.peek()?;
            match child {
                Some(child) => self.value(peek, child)?,
                None => self.jiter.known_skip(peek)?,
            }
            name = self.jiter.next_key_bytes()?;
        }
        Ok(())
    }

    fn array(&mut self, node: &Node) -> JiterResult<()> {
        let mut next = self.jiter.known_array()?;
        let mut at = 0;
        while let Some(peek) = next {
            match node.item(at) {
                Some(found) => self.value(peek, found)?,
                None => self.jiter.known_skip(peek)?,
            }
            at += 1;
            next = self.jiter.array_step()?;
        }
        Ok(())
    }
}

/// What is looked for under a name. One that is not UTF-8 is no name of a pointer.
fn child_of<'n>(node: &'n Node, raw: &[u8], quoted: &mut Vec<u8>) -> Option<&'n Node> {
    decoded(raw, quoted, |name| node.child(name)).flatten()
}

fn keep(scratch: &mut Vec<u8>, bytes: &[u8], found: fn(usize, usize) -> Found) -> Found {
    let begin = scratch.len();
    scratch.extend_from_slice(bytes);
    found(begin, scratch.len())
}
