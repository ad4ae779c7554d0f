//! The queues of connections: linked lists in one arena, so that steady traffic does not allocate. Must not know connections or policies.

use bytes::Bytes;

use super::features::PushDelta;
use crate::limits::QUEUE_NODES_RETAINED;
use crate::mail::SlowConsumerPolicy;

/// No index.
const NONE: u32 = u32::MAX;

/// A queued push.
#[derive(Debug)]
pub(super) struct QueuedPush {
    pub(super) topic: u32,
    pub(super) slow: SlowConsumerPolicy,
    /// True if it is a conflated update, which the next one of its topic supersedes.
    pub(super) is_state: bool,
    pub(super) frame: QueuedFrame,
}

/// The bytes of a queued push.
#[derive(Clone, Debug)]
pub(super) enum QueuedFrame {
    Whole(Bytes),
    /// In a subscription with deltas: whole or a delta, which is decided when it is sent.
    Delta(PushDelta),
}

// Deltas add nothing to the memory of other pushes.
const _: () = assert!(size_of::<QueuedFrame>() == size_of::<Bytes>());
const _: () = assert!(size_of::<QueueNode>() == size_of::<Bytes>() + 16);

/// The queue of one connection, the oldest push first.
#[derive(Debug)]
pub(super) struct PushQueue {
    first: u32,
    last: u32,
}

/// The nodes of the queues.
#[derive(Debug)]
pub(super) struct QueueArena {
    nodes: Vec<QueueNode>,
    /// The first free node. The free nodes are a queue, too.
    free: u32,
    used: usize,
}

#[derive(Debug)]
struct QueueNode {
    /// `None` if the node is free.
    push: Option<QueuedPush>,
    next: u32,
}

impl QueuedFrame {
    /// Returns the length of the complete push, in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            QueuedFrame::Whole(whole) => whole.len(),
            QueuedFrame::Delta(delta) => delta.whole_bytes(),
        }
    }
}

impl PushQueue {
    pub(super) const EMPTY: PushQueue = PushQueue {
        first: NONE,
        last: NONE,
    };
}

impl QueueArena {
    pub(super) fn new() -> QueueArena {
        QueueArena {
            nodes: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    /// Appends a push.
    pub(super) fn push(&mut self, queue: &mut PushQueue, push: QueuedPush) {
        let node = QueueNode {
            push: Some(push),
            next: NONE,
        };
        let at = match self.nodes.get_mut(self.free as usize) {
            Some(free) => {
                let at = std::mem::replace(&mut self.free, free.next);
                *free = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.used += 1;
        match self.nodes.get_mut(queue.last as usize) {
            Some(last) => last.next = at,
            None => queue.first = at,
        }
        queue.last = at;
    }

    /// Removes the oldest push.
    pub(super) fn pop(&mut self, queue: &mut PushQueue) -> Option<QueuedPush> {
        let at = queue.first;
        queue.first = self.nodes.get(at as usize)?.next;
        if queue.first == NONE {
            queue.last = NONE;
        }
        Some(self.free(at))
    }

    /// Removes the pushes for which `predicate` returns `false`. They are visited from the oldest.
    pub(super) fn retain(&mut self, queue: &mut PushQueue, mut predicate: impl FnMut(&QueuedPush) -> bool) {
        let (mut at, mut previous) = (queue.first, NONE);
        while let Some(node) = self.nodes.get(at as usize) {
            let next = node.next;
            if node.push.as_ref().is_some_and(&mut predicate) {
                previous = at;
            } else {
                match self.nodes.get_mut(previous as usize) {
                    Some(previous) => previous.next = next,
                    None => queue.first = next,
                }
                if next == NONE {
                    queue.last = previous;
                }
                self.free(at);
            }
            at = next;
        }
    }

    /// Returns whether one of the `limit` oldest pushes matches.
    pub(super) fn any(
        &self,
        queue: &PushQueue,
        limit: usize,
        mut is_match: impl FnMut(&QueuedPush) -> bool,
    ) -> bool {
        let mut at = queue.first;
        for _ in 0..limit {
            let Some(node) = self.nodes.get(at as usize) else {
                break;
            };
            if node.push.as_ref().is_some_and(&mut is_match) {
                return true;
            }
            at = node.next;
        }
        false
    }

    /// Returns the newest push of a topic.
    pub(super) fn last_of(&mut self, queue: &PushQueue, topic: u32) -> Option<&mut QueuedPush> {
        let (mut at, mut found) = (queue.first, NONE);
        while let Some(node) = self.nodes.get(at as usize) {
            if node.push.as_ref().is_some_and(|push| push.topic == topic) {
                found = at;
            }
            at = node.next;
        }
        self.nodes.get_mut(found as usize)?.push.as_mut()
    }

    fn free(&mut self, at: u32) -> QueuedPush {
        let node = &mut self.nodes[at as usize];
        let push = node.push.take().expect("a queued node is not free");
        node.next = std::mem::replace(&mut self.free, at);
        self.used -= 1;
        if self.used == 0 && self.nodes.capacity() > QUEUE_NODES_RETAINED {
            (self.nodes, self.free) = (Vec::new(), NONE);
        }
        push
    }
}

#[cfg(test)]
mod tests;
