//! Patterns as a tree of segments, and the walk down it.
//!
//! Owns precedence and backtracking. Knows nothing of methods: an endpoint is a number.
//!
//! A node represents the patterns with a common beginning. Each segment of the path takes one step down, so no node is visited
//! twice for one path: a lookup costs at most the number of nodes in the table, whatever the path.

use super::params::Params;
use super::pattern::Segment;
use crate::router::swar;

/// The tree. Immutable once compiled.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root is the last one.
    nodes: Box<[TreeNode]>,
}

#[derive(Debug, Default)]
struct TreeNode {
    /// The keys of `literals`, side by side.
    keys: Box<[u64]>,
    /// Sorted by key, then by text.
    literals: Box<[Literal]>,
    /// Parameters with a prefix or suffix, the most specific first.
    affixed: Box<[Affixed]>,
    /// The child for a parameter of the whole segment.
    parameter: Option<u32>,
    /// The endpoint of a wildcard from here.
    wildcard: Option<u32>,
    /// The endpoint of a path that ends here.
    endpoint: Option<u32>,
}

#[derive(Debug)]
struct Literal {
    child: u32,
    text: Box<[u8]>,
}

#[derive(Debug)]
struct Affixed {
    prefix: Box<[u8]>,
    suffix: Box<[u8]>,
    child: u32,
}

/// Up to this number of literals are searched one by one.
const FEW_LITERALS: usize = 32;

impl Tree {
    /// Compiles patterns with their endpoints, the more specific first.
    pub(super) fn new<'s>(patterns: impl Iterator<Item = (&'s [Segment], u32)>) -> Tree {
        let mut nodes = Vec::new();
        let patterns: Vec<_> = patterns.collect();
        compile(&patterns, &mut nodes);
        Tree { nodes: nodes.into() }
    }

    /// Returns the endpoint of the most specific pattern that matches. Its parameters are appended to `params`; none are without a
    /// match.
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

    /// Matches from `node` with the segment at `at`. Recurses as deep as the longest pattern has segments.
    fn walk(&self, node: &TreeNode, path: &[u8], at: usize, params: &mut Params) -> Option<u32> {
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

    /// Continues at `child` with a segment that ended at `end`.
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

impl TreeNode {
    /// Returns the child for the literal `text`. `key` is its first eight bytes, padded with zeros.
    #[inline]
    fn literal(&self, key: u64, text: &[u8]) -> Option<u32> {
        if self.keys.len() > FEW_LITERALS {
            return self.literal_of_many(key, text);
        }
        let index = self.keys.iter().position(|&known| known == key)?;
        // Literals with the same key are adjacent; most often there is one.
        let candidates = self.keys[index..].iter().zip(&self.literals[index..]);
        let mut candidates = candidates.take_while(|&(&known, _)| known == key);
        candidates.find_map(|(_, literal)| literal.is(text).then_some(literal.child))
    }

    fn literal_of_many(&self, key: u64, text: &[u8]) -> Option<u32> {
        let first = self.keys.partition_point(|&known| known < key);
        let candidates = self.keys[first..].partition_point(|&known| known == key);
        let candidates = &self.literals[first..first + candidates];
        let found = candidates.binary_search_by(|literal| (*literal.text).cmp(text));
        found.ok().map(|index| candidates[index].child)
    }
}

impl Literal {
    /// Returns true if it equals `text`, which has the same key.
    #[inline]
    fn is(&self, text: &[u8]) -> bool {
        self.text.len() == text.len()
            && (text.len() <= swar::BYTES || self.text[swar::BYTES..] == text[swar::BYTES..])
    }
}

impl Affixed {
    /// Returns the range of the value in `segment`.
    fn value(&self, segment: &[u8]) -> Option<(usize, usize)> {
        let start = self.prefix.len();
        let end = segment.len().checked_sub(self.suffix.len())?;
        let matches = start < end && ends_fit(segment, &self.prefix, &self.suffix);
        matches.then_some((start, end))
    }
}

/// Compares byte by byte from the ends: a prefix or suffix is a few bytes, and usually the first one compared differs.
#[inline]
fn ends_fit(segment: &[u8], prefix: &[u8], suffix: &[u8]) -> bool {
    let before = prefix.iter().zip(segment).all(|(one, other)| one == other);
    before
        && suffix
            .iter()
            .rev()
            .zip(segment.iter().rev())
            .all(|(one, other)| one == other)
}

/// Returns the end of the segment that begins at `at`, and its first eight bytes, padded with zeros.
#[inline]
fn segment(path: &[u8], at: usize) -> (usize, u64) {
    let head = swar::load_padded(path, at);
    let mut length = swar::first(swar::equal(head, b'/')).min(path.len() - at);
    let key = swar::keep(head, length);
    if length == swar::BYTES {
        while at + length < path.len() {
            let next = swar::first(swar::equal(swar::load_padded(path, at + length), b'/'));
            length = (length + next).min(path.len() - at);
            if next < swar::BYTES {
                break;
            }
        }
    }
    (at + length, key)
}

/// Appends the node of these patterns, its children before it, and returns its index. The patterns are sorted.
fn compile(patterns: &[(&[Segment], u32)], nodes: &mut Vec<TreeNode>) -> u32 {
    let mut node = TreeNode::default();
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
            Segment::Literal(text) => {
                let text = text.as_bytes();
                let child = compile(&rest, nodes);
                literals.push((
                    swar::load_padded(text, 0),
                    Literal {
                        child,
                        text: text.into(),
                    },
                ));
            }
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
    literals.sort_by(|(key, one), (other_key, other)| (key, &one.text).cmp(&(other_key, &other.text)));
    node.keys = literals.iter().map(|&(key, _)| key).collect();
    node.literals = literals.into_iter().map(|(_, literal)| literal).collect();
    node.affixed = affixed.into();
    nodes.push(node);
    u32::try_from(nodes.len() - 1).expect("fewer nodes than routes times their bytes")
}
