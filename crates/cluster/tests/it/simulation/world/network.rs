//! The links between nodes: they open, delay bytes, and close.

use std::collections::VecDeque;

use ringmain_cluster::frame::{Frame, FrameDecoder};
use ringmain_cluster::node::{Hello, LinkId};

use super::{Host, Link, Pipe, World};

impl World {
    /// Opens links that are missing: either node may be the first.
    pub(super) fn open_links(&mut self) {
        for from in 0..self.hosts.len() {
            for to in 0..self.hosts.len() {
                let is_active = |host: &Host| host.node.is_some() && host.paused_until <= self.now;
                let is_dialed = |link: &Link| link.ends == [from, to];
                if from == to
                    || self.cut.contains(&(from.min(to), from.max(to)))
                    || !is_active(&self.hosts[from])
                {
                    continue;
                }
                if self.hosts[to].node.is_none()
                    && let Some(node) = &mut self.hosts[from].node
                {
                    let ended = self.ended.iter().filter(|(host, _)| *host == to);
                    ended.for_each(|(_, uid)| node.note_refused(*uid, self.now));
                }
                if !is_active(&self.hosts[from])
                    || self.hosts[to].node.is_none()
                    || self.links.values().any(is_dialed)
                {
                    continue;
                }
                let (Some(node), Some(peer)) = (&self.hosts[from].node, &self.hosts[to].node) else {
                    continue;
                };
                if node.is_linked(peer.member().uid) || self.random.u8(..) > 60 {
                    continue;
                }
                let pipe = || Pipe {
                    bytes: VecDeque::new(),
                    decoder: FrameDecoder::default(),
                };
                let mut link = Link {
                    ends: [from, to],
                    pipes: [pipe(), pipe()],
                    is_up: [false; 2],
                    is_open: true,
                };
                for (end, node) in [node, peer].into_iter().enumerate() {
                    let mut bytes = Vec::new();
                    node.hello().encode(&mut bytes);
                    link.pipes[end].bytes.push_back((self.now, bytes));
                }
                self.last_link += 1;
                self.links.insert(self.last_link, link);
            }
        }
    }

    /// Delivers the bytes that have arrived, unless the receiver is paused.
    pub(super) fn carry(&mut self, id: usize) {
        let now = self.now;
        for end in 0..2 {
            let Some(link) = self.links.get_mut(&id) else {
                return;
            };
            let host = &mut self.hosts[link.ends[1 - end]];
            if host.paused_until > now {
                continue;
            }
            let Some(node) = &mut host.node else { return };
            let pipe = &mut link.pipes[end];
            while let Some((at, _)) = pipe.bytes.front()
                && *at <= now
                && let Some((_, bytes)) = pipe.bytes.pop_front()
            {
                let cut = self.random.usize(0..=bytes.len());
                pipe.decoder.feed(&bytes[..cut]);
                pipe.decoder.feed(&bytes[cut..]);
                while let Some(frame) = pipe.decoder.next_frame().expect("valid frames") {
                    if let Frame::Hello { member, version, .. } = frame {
                        let hello = Hello { member, version };
                        let is_up = node.link_up(LinkId(id as u64), hello, end == 1, now);
                        link.is_up[1 - end] = is_up;
                        link.is_open &= is_up;
                    } else {
                        node.receive(LinkId(id as u64), frame, now);
                    }
                }
            }
            if !link.is_open {
                return self.close(id);
            }
        }
    }

    pub(super) fn drop_links(&mut self, is_selected: impl Fn([usize; 2]) -> bool) {
        let links = self.links.iter().filter(|(_, link)| is_selected(link.ends));
        let ids: Vec<usize> = links.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.close(id));
    }

    /// Closes a link: both ends notice, and bytes in flight are lost.
    pub(super) fn close(&mut self, id: usize) {
        let Some(link) = self.links.remove(&id) else {
            return;
        };
        for (end, host) in link.ends.into_iter().enumerate() {
            let now = self.now;
            if let Some(node) = &mut self.hosts[host].node
                && link.is_up[end]
            {
                node.link_down(LinkId(id as u64), now);
            }
        }
    }
}
