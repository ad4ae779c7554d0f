//! Publications, queries and calls of this node that wait for other nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::mail::ChannelQuery;

use super::{Event, Node};
use crate::frame::{Answer, ChannelSettings, Frame, Publish, PublishOutcome};
use crate::limits;
use crate::member::Uid;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    pending: BTreeMap<u64, PendingRequest>,
    calls: BTreeMap<u64, PendingCall>,
    /// The deadlines in order, also of requests that are finished.
    deadlines: VecDeque<(Duration, u64)>,
}

#[derive(Debug)]
struct PendingRequest {
    owner: Uid,
    local: u64,
    is_publish: bool,
}

#[derive(Debug)]
struct PendingCall {
    local: u64,
    /// The results by node; `None`: it has not responded.
    results: BTreeMap<Uid, Option<Bytes>>,
    /// The nodes that may respond.
    waiting: BTreeSet<Uid>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.calls.len()
    }

    fn draw(&mut self, now: Duration) -> u64 {
        self.last += 1;
        self.deadlines
            .push_back((now + limits::REQUEST_TIMEOUT, self.last));
        self.last
    }
}

impl Node {
    pub(super) fn publish_local(&mut self, local: u64, publish: Publish, now: Duration) {
        let sent = self.send_request(&publish.channel.clone(), local, true, now, |request| {
            Frame::Publish { request, publish }
        });
        if !sent {
            let outcome = PublishOutcome::Refused;
            self.emit(Event::Published {
                request: local,
                outcome,
            });
        }
    }

    pub(super) fn query_local(
        &mut self,
        local: u64,
        channel: Arc<str>,
        settings: ChannelSettings,
        query: ChannelQuery,
        now: Duration,
    ) {
        let sent = self.send_request(&channel.clone(), local, false, now, |request| Frame::Query {
            request,
            channel,
            settings,
            query,
        });
        if !sent {
            let answer = Answer::Unreachable;
            self.emit(Event::Answer {
                request: local,
                answer,
            });
        }
    }

    fn send_request(
        &mut self,
        channel: &str,
        local: u64,
        is_publish: bool,
        now: Duration,
        frame: impl FnOnce(u64) -> Frame,
    ) -> bool {
        let Some(owner) = self.owner_of(channel) else {
            return false;
        };
        if self.requests.pending.len() >= limits::REQUESTS {
            return false;
        }
        let request = self.requests.draw(now);
        if !self.send(owner, frame(request)) {
            return false;
        }
        let pending = PendingRequest {
            owner,
            local,
            is_publish,
        };
        self.requests.pending.insert(request, pending);
        true
    }

    pub(super) fn finish_publish(&mut self, from: Uid, request: u64, outcome: PublishOutcome) {
        if let Some(request) = self.take_request(from, request, true) {
            self.emit(Event::Published { request, outcome });
        }
    }

    pub(super) fn finish_query(&mut self, from: Uid, request: u64, answer: Answer) {
        if let Some(request) = self.take_request(from, request, false) {
            self.emit(Event::Answer { request, answer });
        }
    }

    fn take_request(&mut self, from: Uid, request: u64, is_publish: bool) -> Option<u64> {
        let pending = self.requests.pending.get(&request)?;
        if pending.owner != from || pending.is_publish != is_publish {
            return None;
        }
        self.requests
            .pending
            .remove(&request)
            .map(|pending| pending.local)
    }

    /// The link to a node is lost: the outcomes of its requests are unknown.
    pub(super) fn fail_requests(&mut self, owner: Uid) {
        let pending = self.requests.pending.iter();
        let failed = pending.filter(|(_, pending)| pending.owner == owner);
        let failed: Vec<u64> = failed.map(|(request, _)| *request).collect();
        failed.into_iter().for_each(|request| self.fail_request(request));
    }

    fn fail_request(&mut self, request: u64) {
        let Some(PendingRequest {
            local, is_publish, ..
        }) = self.requests.pending.remove(&request)
        else {
            return;
        };
        self.emit(if is_publish {
            Event::Published {
                request: local,
                outcome: PublishOutcome::Unknown,
            }
        } else {
            Event::Answer {
                request: local,
                answer: Answer::Unreachable,
            }
        });
    }

    /// Sends a call to all other nodes.
    pub(super) fn start_call(&mut self, local: u64, payload: Bytes, now: Duration) {
        let nodes: Vec<Uid> = self.peers.keys().copied().collect();
        let is_allowed = self.requests.calls.len() < limits::CALLS && payload.len() <= limits::CALL_BYTES;
        let mut call = PendingCall {
            local,
            results: nodes.iter().map(|uid| (*uid, None)).collect(),
            waiting: BTreeSet::new(),
        };
        if is_allowed {
            let request = self.requests.draw(now);
            for uid in nodes {
                let payload = payload.clone();
                if self.send(uid, Frame::Call { request, payload }) {
                    call.waiting.insert(uid);
                }
            }
            if !call.waiting.is_empty() {
                self.requests.calls.insert(request, call);
                return;
            }
        }
        self.finish_call(call);
    }

    pub(super) fn add_call_result(&mut self, from: Uid, request: u64, payload: Bytes) {
        self.settle_call(from, request, Some(payload));
    }

    fn settle_call(&mut self, node: Uid, request: u64, payload: Option<Bytes>) {
        let Some(call) = self.requests.calls.get_mut(&request) else {
            return;
        };
        if !call.waiting.remove(&node) {
            return;
        }
        call.results.insert(node, payload);
        if call.waiting.is_empty()
            && let Some(call) = self.requests.calls.remove(&request)
        {
            self.finish_call(call);
        }
    }

    /// The link to a node is lost: it responds no more.
    pub(super) fn finish_calls_of(&mut self, node: Uid) {
        let requests: Vec<u64> = self.requests.calls.keys().copied().collect();
        for request in requests {
            self.settle_call(node, request, None);
        }
    }

    fn finish_call(&mut self, call: PendingCall) {
        self.emit(Event::CallFinished {
            request: call.local,
            results: call.results.into_iter().collect(),
        });
    }

    pub(super) fn expire_requests(&mut self, now: Duration) {
        while let Some((deadline, request)) = self.requests.deadlines.front().copied()
            && deadline <= now
        {
            self.requests.deadlines.pop_front();
            self.fail_request(request);
            if let Some(call) = self.requests.calls.remove(&request) {
                self.finish_call(call);
            }
        }
    }
}
