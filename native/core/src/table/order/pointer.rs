//! JSON pointers (RFC 6901), and many of them as one tree.

use std::fmt;

use crate::error::{Error, Result};

/// Most steps of a pointer: so deep the reader of a record calls itself.
const STEPS_MAX: usize = 32;

/// A place within a JSON text. The empty pointer is the whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    /// Parse the text of a pointer.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self> {
        let refused = |reason: &str| {
            Err(Error::InvalidArgument(format!(
                "{text:?} is no JSON pointer (RFC 6901): {reason}"
            )))
        };
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let Some(steps) = text.strip_prefix('/') else {
            return refused("it must begin with / unless it is empty");
        };
        let steps: Option<Vec<String>> = steps.split('/').map(unescape).collect();
        match steps {
            None => refused("~ must be followed by 0 (for ~) or 1 (for /)"),
            Some(steps) if steps.len() > STEPS_MAX => refused("more than 32 steps"),
            Some(steps) => Ok(Self { steps }),
        }
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.steps {
            write!(f, "/{}", step.replace('~', "~0").replace('/', "~1"))?;
        }
        Ok(())
    }
}

/// A step without its escapes; none if one is unknown.
fn unescape(step: &str) -> Option<String> {
    let mut parts = step.split('~');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push(match part.as_bytes().first()? {
            b'0' => '~',
            b'1' => '/',
            _ => return None,
        });
        plain.push_str(&part[1..]);
    }
    Some(plain)
}

/// A node of the tree of all pointers that are looked for.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// Where the value goes if a pointer ends here.
    pub(super) slot: Option<usize>,
    children: Vec<(String, Node)>,
}

impl Node {
    /// Add a pointer; a second one to the same place gets the same slot.
    pub(super) fn add(&mut self, pointer: &Pointer, next: &mut usize) -> usize {
        let mut node = self;
        for step in &pointer.steps {
            let known = node.children.iter().position(|(name, _)| name == step);
            let at = known.unwrap_or_else(|| {
                node.children.push((step.clone(), Self::default()));
                node.children.len() - 1
            });
            node = &mut node.children[at].1;
        }
        *node.slot.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// What is looked for under a name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        let found = self.children.iter().find(|(known, _)| known == name);
        found.map(|(_, node)| node)
    }

    /// What is looked for at a place of an array; names with leading zeros are none.
    pub(super) fn item(&self, at: usize) -> Option<&Self> {
        if self.children.is_empty() {
            return None;
        }
        self.child(&at.to_string())
    }

    /// Whether anything is looked for further in.
    pub(super) fn has_children(&self) -> bool {
        !self.children.is_empty()
    }

    /// All places of it and of what is further in.
    pub(super) fn slots(&self, each: &mut impl FnMut(usize)) {
        if let Some(slot) = self.slot {
            each(slot);
        }
        for (_, child) in &self.children {
            child.slots(each);
        }
    }
}
