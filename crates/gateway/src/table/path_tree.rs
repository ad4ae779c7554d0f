//! The rules of one host: a tree of path segments, each node with its candidates in order.
//!
//! ```text
//! path ─▶ down by segments as far as the tree goes ─▶ exact here? ─▶ expressions ─▶ prefixes, upwards to the root
//!                                                      └── at each node: candidates, the first whose predicates hold
//! ```
//!
//! Knows no hosts and no listeners.

use std::cmp::Reverse;
use std::sync::Arc;

use super::compiled_route::{CompiledRoute, Matched};
use super::name_index::{HashSlots, hash_text};
use super::request_facts::{RequestFacts, matches_predicates, trim_final_slash};
use crate::model::{Match, PathMatch, Route};

/// A match of a rule, as a candidate at its node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// Index into [`PathTree::routes`].
    route: u32,
    rule: u16,
    /// The number of the match in the rule; 0 for a rule without matches.
    matching: u16,
    /// The match has conditions besides its path.
    predicates: bool,
}

/// A segment below its parent.
#[derive(Debug)]
struct PathNode {
    up: u32,
    /// The start of the segment in [`PathTree::segments`].
    at: u32,
    length: u32,
    /// Length of the path up to this node, in bytes.
    bytes: u32,
    /// Candidates: exact paths from `exact`, prefixes from `prefix`, until `end`.
    exact: u32,
    prefix: u32,
    end: u32,
}

impl PathNode {
    fn child_of(up: u32, at: u32, length: u32, bytes: u32) -> PathNode {
        PathNode {
            up,
            at,
            length,
            bytes,
            exact: 0,
            prefix: 0,
            end: 0,
        }
    }

    /// Returns whether this is the node of that segment below that parent.
    fn is_segment(&self, up: u32, segment: &[u8], segments: &str) -> bool {
        self.up == up && &segments.as_bytes()[self.at as usize..][..self.length as usize] == segment
    }
}

/// The rules of one host.
#[derive(Debug)]
pub(super) struct PathTree<P> {
    pub(super) routes: Box<[Arc<CompiledRoute<P>>]>,
    /// The first node is the root.
    nodes: Box<[PathNode]>,
    children: HashSlots,
    segments: Box<str>,
    candidates: Box<[Candidate]>,
    /// Candidates whose path is a regular expression, in order.
    patterns: Box<[Candidate]>,
}

/// The precedence among candidates of one node: a method, then more headers, then more query parameters, then configuration order.
type MatchOrder = (bool, Reverse<usize>, Reverse<usize>, u32, u16, u16);

impl<P> PathTree<P> {
    /// Builds the table of these routes, in their order.
    pub(super) fn new(routes: Box<[Arc<CompiledRoute<P>>]>) -> PathTree<P> {
        let mut draft = PathTreeBuilder::new(routes.iter().map(|route| route.route()));
        let every = Match::default();
        for (number, route) in (0..).zip(&routes) {
            for (rule_number, rule) in (0..).zip(&route.route().rules) {
                let matches = match &*rule.matches {
                    [] => std::slice::from_ref(&every),
                    matches => matches,
                };
                for (matching, found) in (0..).zip(matches) {
                    let candidate = Candidate {
                        route: number,
                        rule: rule_number,
                        matching,
                        predicates: found.method.is_some()
                            || !found.headers.is_empty()
                            || !found.query.is_empty(),
                    };
                    draft.add(found, candidate);
                }
            }
        }
        draft.finish(routes)
    }

    /// Returns the rule that takes a request. Allocates nothing.
    pub(super) fn find(&self, facts: &RequestFacts<'_>) -> Option<Matched<'_, P>> {
        let (deepest, whole) = self.descend(facts.path);
        let node = &self.nodes[deepest];
        if whole {
            let exact = &self.candidates[node.exact as usize..node.prefix as usize];
            if let Some(matched) = self.first_match(exact, facts, 0, |_| true) {
                return Some(matched);
            }
        }
        let matches = |found: &Match| match &found.path {
            PathMatch::Pattern(pattern) => pattern.matches(facts.path.as_bytes()),
            PathMatch::Exact(_) | PathMatch::Prefix(_) => true,
        };
        if let Some(matched) = self.first_match(&self.patterns, facts, 0, matches) {
            return Some(matched);
        }
        let mut index = deepest;
        loop {
            let node = &self.nodes[index];
            let prefixes = &self.candidates[node.prefix as usize..node.end as usize];
            if let Some(matched) = self.first_match(prefixes, facts, node.bytes as usize, |_| true) {
                return Some(matched);
            }
            if index == 0 {
                return None;
            }
            index = node.up as usize;
        }
    }

    /// Returns the last node on the path, and whether the path ends there.
    fn descend(&self, path: &str) -> (usize, bool) {
        let mut index = 0;
        let mut rest = path.as_bytes();
        while let [b'/', tail @ ..] = rest {
            let length = tail.iter().position(|&byte| byte == b'/').unwrap_or(tail.len());
            let (segment, behind) = tail.split_at(length);
            let is_child = |child: u32| self.nodes[child as usize].is_segment(index, segment, &self.segments);
            match self.children.find(hash_text(index, segment), is_child) {
                Some(child) => index = child,
                None => return (index as usize, false),
            }
            rest = behind;
        }
        (index as usize, true)
    }

    /// Returns the first candidate that matches.
    fn first_match(
        &self,
        candidates: &[Candidate],
        facts: &RequestFacts<'_>,
        prefix: usize,
        path: impl Fn(&Match) -> bool,
    ) -> Option<Matched<'_, P>> {
        for candidate in candidates {
            let route = &self.routes[candidate.route as usize];
            let rule = &route.route().rules[usize::from(candidate.rule)];
            // A rule without matches has no predicates and no expression.
            let holds = match rule.matches.get(usize::from(candidate.matching)) {
                Some(found) => path(found) && (!candidate.predicates || matches_predicates(found, facts)),
                None => true,
            };
            if holds {
                return Some(Matched {
                    route,
                    rule: usize::from(candidate.rule),
                    matching: usize::from(candidate.matching),
                    prefix,
                });
            }
        }
        None
    }
}

/// Returns the precedence of a match among those with the same path.
fn match_order(found: &Match, candidate: &Candidate) -> MatchOrder {
    (
        found.method.is_none(),
        Reverse(found.headers.len()),
        Reverse(found.query.len()),
        candidate.route,
        candidate.rule,
        candidate.matching,
    )
}

/// A table while candidates are added.
struct PathTreeBuilder {
    nodes: Vec<PathNode>,
    children: HashSlots,
    segments: String,
    /// Candidates with their nodes, exact paths before prefixes.
    entries: Vec<(u32, bool, MatchOrder, Candidate)>,
    patterns: Vec<(MatchOrder, Candidate)>,
}

impl PathTreeBuilder {
    /// Creates a draft with capacity for these routes.
    fn new<'r>(routes: impl Iterator<Item = &'r Arc<Route>>) -> PathTreeBuilder {
        let matches = routes
            .flat_map(|route| &route.rules)
            .flat_map(|rule| &rule.matches);
        let segments = matches.map(|found| match &found.path {
            PathMatch::Exact(path) | PathMatch::Prefix(path) => path.as_str().matches('/').count(),
            PathMatch::Pattern(_) => 0,
        });
        PathTreeBuilder {
            nodes: vec![PathNode::child_of(0, 0, 0, 0)],
            children: HashSlots::with_capacity(segments.sum()),
            segments: String::new(),
            entries: Vec::new(),
            patterns: Vec::new(),
        }
    }

    fn add(&mut self, found: &Match, candidate: Candidate) {
        let order = match_order(found, &candidate);
        let (node, prefix) = match &found.path {
            PathMatch::Exact(path) => (self.node_of(path.as_str()), false),
            PathMatch::Prefix(path) => (self.node_of(trim_final_slash(path.as_str())), true),
            PathMatch::Pattern(_) => return self.patterns.push((order, candidate)),
        };
        self.entries.push((node, prefix, order, candidate));
    }

    /// Returns the node of a path; creates it if needed.
    fn node_of(&mut self, path: &str) -> u32 {
        let mut index = 0;
        let mut bytes = 0;
        for segment in path.split('/').skip(1) {
            bytes += 1 + segment.len() as u32;
            let hash = hash_text(index, segment.as_bytes());
            let is_child =
                |child: u32| self.nodes[child as usize].is_segment(index, segment.as_bytes(), &self.segments);
            index = match self.children.find(hash, is_child) {
                Some(child) => child,
                None => {
                    let child = self.nodes.len() as u32;
                    let node =
                        PathNode::child_of(index, self.segments.len() as u32, segment.len() as u32, bytes);
                    self.segments.push_str(segment);
                    self.nodes.push(node);
                    self.children.insert(hash, child);
                    child
                }
            };
        }
        index
    }

    fn finish<P>(mut self, routes: Box<[Arc<CompiledRoute<P>>]>) -> PathTree<P> {
        self.entries
            .sort_unstable_by_key(|(node, prefix, order, _)| (*node, *prefix, *order));
        self.patterns.sort_unstable_by_key(|(order, _)| *order);
        let mut entries = self.entries.iter().peekable();
        let (mut start, mut taken) = (0, 0);
        for (index, node) in (0..).zip(&mut self.nodes) {
            let mut take_child = |kind: bool| {
                while entries
                    .next_if(|(node, prefix, ..)| (*node, *prefix) == (index, kind))
                    .is_some()
                {
                    taken += 1;
                }
                taken
            };
            node.exact = start;
            node.prefix = take_child(false);
            node.end = take_child(true);
            start = node.end;
        }
        PathTree {
            routes,
            nodes: self.nodes.into(),
            children: self.children,
            segments: self.segments.into(),
            candidates: self
                .entries
                .into_iter()
                .map(|(.., candidate)| candidate)
                .collect(),
            patterns: self
                .patterns
                .into_iter()
                .map(|(_, candidate)| candidate)
                .collect(),
        }
    }
}
