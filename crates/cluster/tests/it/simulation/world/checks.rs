//! The promises that a world checks.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ringmain_cluster::frame::{Answer, PublishOutcome};
use ringmain_cluster::node::NodeRequest;
use ringmain_hub::mail::ChannelQuery;

use super::{CHANNELS, Host, World, channel, settings};

impl World {
    /// Checks that a client has received each publication without an offset once that was requested while it was subscribed.
    pub(in crate::simulation) fn check_plain(&self, index: usize, until: Duration) -> Result<(), String> {
        let client = &self.clients[index];
        let Some(since) = client.live_since else {
            return Ok(());
        };
        let mut seen = BTreeSet::new();
        for number in &client.arrived {
            if !seen.insert(*number) {
                return Err(format!("client {} received {number} twice", client.name));
            }
        }
        let mut due = self
            .published_at
            .iter()
            .filter(|(_, (at, is_plain))| *is_plain && *at >= since && *at <= until);
        match due.find(|(number, _)| !seen.contains(number)) {
            Some((number, (at, _))) => Err(format!(
                "client {} missed {number}, requested at {at:?}, subscribed since {since:?}",
                client.name
            )),
            None => Ok(()),
        }
    }

    /// Checks the outcome of a publication.
    pub(super) fn check_published(&mut self, request: u64, outcome: PublishOutcome) -> Result<(), String> {
        let requested = self.requested.remove(&request).ok_or("an outcome twice")?;
        let waited = self.now - requested.at;
        self.longest[0] = self.longest[0].max(waited);
        let PublishOutcome::Published(position) = outcome else {
            return match self.is_planned {
                true => Err(format!("a publication was {outcome:?} after {waited:?}")),
                false => Ok(()),
            };
        };
        let Some(position) = position else { return Ok(()) };
        let (channel, epoch) = (&*requested.channel, position.epoch);
        let Some(key) = requested.key else {
            return self
                .oracle
                .check(channel, epoch, position.offset, &requested.data);
        };
        let first = self
            .keys
            .entry((Arc::clone(&requested.channel), key.clone()))
            .or_insert(position);
        // Without a log another owner has another epoch, and does not know the keys.
        if first.epoch == epoch && *first != position {
            return Err(format!("{key} was published at {first:?} and {position:?}"));
        }
        *first = position;
        Ok(())
    }

    /// Checks that a member neither joins twice nor leaves while it is connected.
    pub(super) fn check_presence(
        &mut self,
        host: usize,
        channel: Arc<str>,
        name: &str,
        is_join: bool,
    ) -> Result<(), String> {
        let is_connected = self
            .clients
            .iter()
            .any(|client| &*client.name == name && client.node.is_some());
        let joined = &mut self.hosts[host].joined;
        let is_new = match is_join {
            true => joined.insert((channel, name.to_owned())),
            false => {
                joined.remove(&(channel, name.to_owned()));
                !is_connected
            }
        };
        if self.is_planned && !is_new {
            return Err(format!(
                "host {host}: {name} was reported, joined: {is_join}, again"
            ));
        }
        Ok(())
    }

    /// Checks the promises that hold after quiet.
    pub(in crate::simulation) fn check_quiet(&mut self) -> Result<(), String> {
        for client in self.clients.iter().filter(|client| client.node.is_some()) {
            if client.is_waiting {
                return Err(format!("client {} of {} waits", client.name, client.channel));
            }
        }
        for number in 0..CHANNELS {
            self.check_channel(number)?;
        }
        Ok(())
    }

    /// Checks that the presence of each channel is right at a node, which responds within a time.
    pub(in crate::simulation) fn check_all_presence(
        &mut self,
        host: usize,
        within: Duration,
    ) -> Result<(), String> {
        let now = self.now;
        let first = self.requests + 1;
        for number in 0..CHANNELS {
            self.requests += 1;
            let request = self.requests;
            let channel = channel(number);
            if let Some(node) = &mut self.hosts[host].node {
                let (settings, query) = (settings(&channel), ChannelQuery::Presence);
                node.handle(
                    NodeRequest::Query {
                        request,
                        channel,
                        settings,
                        query,
                    },
                    now,
                );
            }
        }
        self.run_for(within)?;
        for number in 0..CHANNELS {
            self.check_members(&channel(number), first + number as u64)?;
        }
        Ok(())
    }

    pub(super) fn check_members(&mut self, name: &Arc<str>, request: u64) -> Result<(), String> {
        let Some(Answer::Presence(members)) = self.answers.remove(&request) else {
            return Err(format!("presence of {name} was not answered"));
        };
        let present: BTreeSet<String> = members.iter().map(|info| info.client.clone()).collect();
        let connected = self.clients.iter().filter(|client| client.channel == *name);
        let connected: BTreeSet<String> = connected
            .filter(|client| client.node.is_some())
            .map(|client| client.name.to_string())
            .collect();
        match present == connected {
            true => Ok(()),
            false => Err(format!(
                "presence of {name} is {present:?}, connected are {connected:?}"
            )),
        }
    }

    pub(super) fn check_channel(&mut self, number: usize) -> Result<(), String> {
        let name = channel(number);
        let host = self.hosts.iter().position(Host::is_running);
        let host = host.ok_or("no node is left")?;
        let mut requests = Vec::new();
        for query in [
            ChannelQuery::Presence,
            ChannelQuery::History {
                query: ringmain_hub::history::HistoryQuery {
                    since: None,
                    limit: 1,
                    reverse: true,
                },
                epoch: ringmain_hub::mail::EpochFilter::Any,
            },
        ] {
            self.requests += 1;
            let (request, now) = (self.requests, self.now);
            requests.push(request);
            let node = self.hosts[host].node.as_mut().ok_or("no node is left")?;
            node.handle(
                NodeRequest::Query {
                    request,
                    channel: Arc::clone(&name),
                    settings: settings(&name),
                    query,
                },
                now,
            );
        }
        self.run_for(Duration::from_secs(2))?;
        self.check_members(&name, requests[0])?;
        let Some(Answer::History {
            publications,
            position,
        }) = self.answers.remove(&requests[1])
        else {
            return Err(format!("history of {name} was not answered"));
        };
        for client in &self.clients {
            let is_here = client.channel == name && client.node.is_some();
            if is_here
                && self
                    .oracle
                    .check_complete(&name, client.position, position)
                    .is_err()
            {
                return Err(format!(
                    "client {} of {name} has {:?}, the channel {position:?} ({} retained)",
                    client.name,
                    client.position,
                    publications.len()
                ));
            }
        }
        Ok(())
    }

    /// Checks that nothing is retained without clients.
    pub(in crate::simulation) fn check_empty(&self) -> Result<(), String> {
        for node in self.hosts.iter().filter_map(|host| host.node.as_ref()) {
            let counts = node.counts();
            if counts.mirrors + counts.owned + counts.requests > 0 {
                return Err(format!("{} retains {counts:?}", node.member().name));
            }
            if let Some(log) = node.log_report(self.now)
                && log.channels > 0
            {
                return Err(format!("{} retains {log:?}", node.member().name));
            }
        }
        Ok(())
    }
}
