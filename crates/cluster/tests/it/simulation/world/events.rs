//! The events that happen to nodes.

use std::time::Duration;

use ringmain_cluster::member::Role;
use ringmain_cluster::node::Node;

use super::{CHANNELS, Host, LARGE, World};

impl World {
    /// Lets something happen.
    pub(in crate::simulation) fn step(&mut self) {
        let host = self.pick(self.hosts.len());
        if self.log.is_some() {
            self.disturb_log(host);
        }
        match self.draw(0, 34) {
            0 if self.is_calm() => {}
            0 => {
                self.disturbed_at = self.now;
                self.kill(host);
            }
            1 | 9..=12 if self.is_calm() => {}
            1 => {
                self.disturbed_at = self.now;
                let pause = Duration::from_millis(self.draw(100, 8000));
                self.hosts[host].paused_until = self.now + pause;
            }
            2 | 3 => {
                let other = self.pick(self.hosts.len());
                self.cut.insert((host.min(other), host.max(other)));
                self.drop_links(|ends| ends == [host, other] || ends == [other, host]);
            }
            4 | 5 => self.cut.clear(),
            6 => {
                let other = self.pick(self.hosts.len());
                self.drop_links(|ends| ends == [host, other] || ends == [other, host]);
            }
            7 | 8 => {
                let slow = [0, 1, 2, usize::MAX];
                self.hosts[host].events_per_step = slow[self.random.usize(..slow.len())];
            }
            9 | 10 => self.join(host),
            11 | 12 => self.leave(host),
            13..=17 => self.toggle(host),
            18 | 19 => {
                for _ in 0..self.draw(1, 20) {
                    let channel = self.pick(CHANNELS);
                    self.publish(host, channel, LARGE);
                }
            }
            _ => {
                for _ in 0..self.draw(1, 6) {
                    let channel = self.pick(CHANNELS);
                    self.publish(host, channel, 8);
                }
            }
        }
    }

    /// Returns whether nodes must remain as they are.
    fn is_calm(&self) -> bool {
        self.now < self.calm_until
    }

    /// Lets something happen to the log.
    fn disturb_log(&mut self, host: usize) {
        let now = self.now;
        let (choice, time) = (self.draw(0, 40), self.draw(100, 9000));
        let is_quiet = now >= self.disturbed_at + Duration::from_secs(6) && self.cut.is_empty();
        let has_paused = self.hosts.iter().any(|host| host.paused_until > now);
        let time = Duration::from_millis(time);
        let Some(log) = &mut self.log else { return };
        let faults = log.faults;
        match choice {
            0 if faults.rolls_back => log.roll_back(false, now),
            1..=3 if faults.rolls_back && is_quiet && !has_paused && log.is_settled() => {
                log.roll_back(true, now);
                self.calm_until = now + Duration::from_secs(10);
            }
            4 if faults.vanishes => log.vanish(time, now),
            5 if faults.lags => log.lag(time, now),
            6 => log.cut(Some(host), now),
            7 => log.trim(Duration::from_secs(60), now),
            8 if faults.rolls_back => log.trim(Duration::from_millis(500), now),
            _ => {}
        }
    }

    /// Starts a node in place of one that has ended.
    pub(in crate::simulation) fn join(&mut self, host: usize) {
        if self.hosts[host].node.is_none() {
            let role = self.draw_role();
            self.disturbed_at = self.now;
            let node = self.start(role);
            self.hosts[host] = Host::new(node);
        }
    }

    /// Adds a node.
    pub(in crate::simulation) fn add_host(&mut self, role: Role) {
        let node = self.start(role);
        self.hosts.push(Host::new(node));
    }

    /// Starts the planned end of a node, unless it is the last one with both tasks.
    pub(in crate::simulation) fn leave(&mut self, host: usize) {
        let is_needed = |host: &Host| {
            let node = host.node.as_ref();
            host.is_running() && node.is_some_and(|node| node.member().role == Role::All)
        };
        let now = self.now;
        if self.hosts.iter().filter(|host| is_needed(host)).count() < 2
            || self.hosts[host].leaving_since.is_some()
            || self.hosts[host].paused_until > now
        {
            return;
        }
        self.disturbed_at = now;
        if let Some(node) = &mut self.hosts[host].node {
            node.leave(now);
            self.hosts[host].leaving_since = Some(now);
        }
    }

    /// Ends nodes that have left: their clients connect elsewhere.
    pub(super) fn end_nodes(&mut self) -> Result<(), String> {
        for host in 0..self.hosts.len() {
            let Some(since) = self.hosts[host].leaving_since else {
                continue;
            };
            let has_left = self.hosts[host].node.as_ref().is_some_and(Node::has_left);
            let is_late = self.now - since > Duration::from_secs(12);
            if self.is_planned && self.now - since > Duration::from_secs(2) && !has_left {
                return Err(format!("host {host} has not left within 2 s"));
            }
            if !has_left && !is_late {
                continue;
            }
            let here: Vec<usize> = (0..self.clients.len())
                .filter(|index| self.clients[*index].node == Some(host))
                .collect();
            for index in here {
                self.disconnect(index);
                let other = (0..self.hosts.len()).find(|other| self.hosts[*other].accepts_clients());
                if let Some(other) = other {
                    self.connect(index, other);
                }
            }
            // Its last frames are sent.
            if self.hosts[host].node.as_ref().is_some_and(Node::has_left) || is_late {
                self.end(host);
            }
        }
        Ok(())
    }

    /// Ends a node without notice, unless it is the last one with both tasks.
    pub(in crate::simulation) fn kill(&mut self, host: usize) {
        let is_needed = |(index, other): &(usize, &Host)| {
            let node = other.node.as_ref();
            *index != host && other.is_running() && node.is_some_and(|node| node.member().role == Role::All)
        };
        if self.hosts.iter().enumerate().any(|other| is_needed(&other)) {
            self.end(host);
        }
    }

    pub(super) fn end(&mut self, host: usize) {
        let ended = self.hosts[host].node.as_ref();
        self.ended.extend(ended.map(|node| (host, node.member().uid)));
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.remove_host(host, now);
        }
        self.hosts[host] = Host {
            events_per_step: usize::MAX,
            ..Host::default()
        };
        self.drop_links(|ends| ends.contains(&host));
        for client in self.clients.iter_mut().filter(|client| client.node == Some(host)) {
            client.node = None;
            client.is_waiting = false;
        }
    }
}
