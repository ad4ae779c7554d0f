//! Patterns as a tree of segments, and the walk down it.
//!
//! Owns precedence and backtracking. Knows nothing of methods: an endpoint is a number.
//!
//! A node stands for the patterns that begin alike. Each segment of the path takes one step down, so no node is
//! visited twice for one path: a lookup costs no more than the table has nodes, whatever the path.

use super::params::Params;
use super::pattern::Segment;
use crate::word;

/// The tree. Immutable once compiled.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root is the last one.
    nodes: Box<[Node]>,
}

#[derive(Debug, Default)]
struct Node {
    /// Sorted by key, then by text.
    literals: Box<[Literal]>,
    /// Parameters with a prefix or suffix, the most specific first.
    affixed: Box<[Affixed]>,
    /// The child by a parameter of the whole segment.
    parameter: Option<u32>,
    /// The endpoint by a wildcard from here.
    wildcard: Option<u32>,
    /// The endpoint of a path that ends here.
    endpoint: Option<u32>,
}

#[derive(Debug)]
struct Literal {
    /// The first eight bytes, zeros after the end.
    key: u64,
    child: u32,
    text: Box<[u8]>,
}

#[derive(Debug)]
struct Affixed {
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
    child: u32,
}

/// Fewer literals than this are looked through one by one.
const FEW_LITERALS: usize = 12;

impl Tree {
    /// Compiles patterns with their endpoints, the more specific first.
    pub(super) fn new<'s>(patterns: impl Iterator<Item = (&'s [Segment], u32)>) -> Tree {
        let mut nodes = Vec::new();
        let patterns: Vec<_> = patterns.collect();
        compile(&patterns, &mut nodes);
        Tree { nodes: nodes.into() }
    }

    /// The endpoint of the most specific pattern that matches. Its parameters are appended to `params`; nothing is
    /// if there is none.
    #[inline]
    pub(super) fn find(&self, path: &str, params: &mut Params) -> Option<u32> {
        let path = path.as_bytes();
        let root = self.nodes.last()?;
        if path.first() == Some(&b'/') {
            self.walk(root, path, 1, params)
        } else {
            None
        }
    }

    /// From `node` with the segment at `at`. As deep as the longest pattern has segments.
    fn walk(&self, node: &Node, path: &[u8], at: usize, params: &mut Params) -> Option<u32> {
        let (end, key) = segment(path, at);
        if let Some(child) = node.literal(key, &path[at..end])
            && let Some(found) = self.step(child, path, end, params)
        {
            return Some(found);
        }
        for affixed in &node.affixed {
            let Some((start, stop)) = affixed.value(&path[at..end]) else {
                continue;
            };
            params.push(at + start, at + stop);
            if let Some(found) = self.step(affixed.child, path, end, params) {
                return Some(found);
            }
            params.pop();
        }
        if let Some(child) = node.parameter
            && end > at
        {
            params.push(at, end);
            if let Some(found) = self.step(child, path, end, params) {
                return Some(found);
            }
            params.pop();
        }
        let endpoint = node.wildcard.filter(|_| at < path.len())?;
        params.push(at, path.len());
        Some(endpoint)
    }

    /// To `child` with a segment that ended at `end`.
    #[inline]
    fn step(&self, child: u32, path: &[u8], end: usize, params: &mut Params) -> Option<u32> {
        let child = &self.nodes[child as usize];
        if end == path.len() {
            child.endpoint
        } else {
            self.walk(child, path, end + 1, params)
        }
    }
}

impl Node {
    /// The child by the literal `text`.
    #[inline]
    fn literal(&self, key: u64, text: &[u8]) -> Option<u32> {
        if self.literals.len() < FEW_LITERALS {
            let found = self.literals.iter().find(|literal| literal.is(key, text));
            return found.map(|literal| literal.child);
        }
        let order = |literal: &Literal| (literal.key, &*literal.text).cmp(&(key, text));
        let found = self.literals.binary_search_by(order);
        found.ok().map(|index| self.literals[index].child)
    }
}

impl Literal {
    #[inline]
    fn is(&self, key: u64, text: &[u8]) -> bool {
        self.key == key
            && self.text.len() == text.len()
            && (text.len() <= word::BYTES || self.text[word::BYTES..] == text[word::BYTES..])
    }
}

impl Affixed {
    /// Where in `segment` the value lies.
    fn value(&self, segment: &[u8]) -> Option<(usize, usize)> {
        let (start, around) = (self.prefix.len(), self.prefix.len() + self.suffix.len());
        let fits =
            segment.len() > around && segment.starts_with(&self.prefix) && segment.ends_with(&self.suffix);
        fits.then(|| (start, segment.len() - self.suffix.len()))
    }
}

/// The end of the segment that begins at `at`, and its first eight bytes, zeros after its end.
#[inline]
fn segment(path: &[u8], at: usize) -> (usize, u64) {
    let head = word::load_padded(path, at);
    let mut length = word::first(word::equal(head, b'/')).min(path.len() - at);
    let key = word::keep(head, length);
    if length == word::BYTES {
        while at + length < path.len() {
            let next = word::first(word::equal(word::load_padded(path, at + length), b'/'));
            length = (length + next).min(path.len() - at);
            if next < word::BYTES {
                break;
            }
        }
    }
    (at + length, key)
}

/// Appends the node of these patterns, its children before it, and returns its index. The patterns are sorted.
fn compile(patterns: &[(&[Segment], u32)], nodes: &mut Vec<Node>) -> u32 {
    let mut node = Node::default();
    let (mut literals, mut affixed) = (Vec::new(), Vec::new());
    for group in patterns.chunk_by(|(one, _), (other, _)| one.first() == other.first()) {
        let (segments, endpoint) = group[0];
        let Some(head) = segments.first() else {
            node.endpoint = Some(endpoint);
            continue;
        };
        let rest: Vec<_> = group
            .iter()
            .map(|&(segments, endpoint)| (&segments[1..], endpoint))
            .collect();
        match head {
            Segment::Wildcard => node.wildcard = Some(endpoint),
            Segment::Literal(text) => literals.push(Literal {
                key: word::keep(word::load_padded(text.as_bytes(), 0), text.len()),
                child: compile(&rest, nodes),
                text: text.as_bytes().into(),
            }),
            Segment::Parameter { prefix, suffix } if prefix.is_empty() && suffix.is_empty() => {
                node.parameter = Some(compile(&rest, nodes));
            }
            Segment::Parameter { prefix, suffix } => affixed.push(Affixed {
                prefix: prefix.as_bytes().into(),
                suffix: suffix.as_bytes().into(),
                child: compile(&rest, nodes),
            }),
        }
    }
    literals.sort_by(|one: &Literal, other| (one.key, &one.text).cmp(&(other.key, &other.text)));
    node.literals = literals.into();
    node.affixed = affixed.into();
    nodes.push(node);
    u32::try_from(nodes.len() - 1).expect("fewer nodes than routes times their bytes")
}
