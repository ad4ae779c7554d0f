//! Stacks as a tree: what each function called, with samples of one profile or of two.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::folded::{Folded, frames};

/// A function in the place where it was called.
#[derive(Debug, Default)]
struct Node {
    counts: [u64; 2],
    children: BTreeMap<String, usize>,
}

/// The tree, from a root that is all samples.
#[derive(Debug)]
pub(in super::super) struct Tree {
    nodes: Vec<Node>,
    profiles: usize,
}

/// Where a node is drawn.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Place {
    pub(in super::super) depth: usize,
    pub(in super::super) start: f64,
    pub(in super::super) width: f64,
}

/// What a node holds.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Seen<'a> {
    pub(in super::super) frame: &'a str,
    /// Samples in each profile.
    pub(in super::super) counts: [u64; 2],
}

impl Tree {
    /// Of one or two profiles.
    pub(in super::super) fn of(profiles: &[&Folded]) -> Tree {
        let mut tree = Tree {
            nodes: vec![Node::default()],
            profiles: profiles.len().clamp(1, 2),
        };
        for (which, folded) in profiles.iter().take(2).enumerate() {
            for (stack, count) in folded.iter() {
                tree.add(which, stack, count);
            }
        }
        tree
    }

    fn add(&mut self, which: usize, stack: &str, count: u64) {
        let mut at = 0;
        self.nodes[at].counts[which] += count;
        for frame in frames(stack) {
            at = match self.nodes[at].children.get(frame) {
                Some(child) => *child,
                None => {
                    let child = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[at].children.insert(frame.to_owned(), child);
                    child
                }
            };
            self.nodes[at].counts[which] += count;
        }
    }

    /// How many functions there are, each in all of its places.
    pub(in super::super) fn functions(&self) -> usize {
        let names = self.nodes.iter().flat_map(|node| node.children.keys());
        names.collect::<BTreeSet<_>>().len()
    }

    /// A node's part of all: of two profiles the mean of its parts, so that what only one of them has is seen as well, and parts
    /// add up.
    fn part(&self, counts: [u64; 2]) -> f64 {
        let all = self.nodes[0].counts;
        let part = |which: usize| counts[which] as f64 / all[which].max(1) as f64;
        (0..self.profiles).map(part).sum::<f64>() / self.profiles as f64
    }

    /// Calls `each` for all that are at least `least` wide, from outside to inside and from left to right; returns how many were
    /// narrower.
    pub(in super::super) fn walk(&self, least: f64, each: &mut dyn FnMut(Place, Seen<'_>)) -> usize {
        let mut narrow = 0;
        // Depth first without recursion: stacks are as deep as a file says.
        let mut waiting = vec![(0, 0, 0.0)];
        while let Some((node, depth, start)) = waiting.pop() {
            let mut at = start;
            let mut children = Vec::new();
            for (frame, child) in &self.nodes[node].children {
                let counts = self.nodes[*child].counts;
                let width = self.part(counts);
                if width < least {
                    narrow += 1;
                } else {
                    let place = Place {
                        depth: depth + 1,
                        start: at,
                        width,
                    };
                    each(place, Seen { frame, counts });
                    children.push((*child, depth + 1, at));
                }
                at += width;
            }
            waiting.extend(children.into_iter().rev());
        }
        narrow
    }
}
