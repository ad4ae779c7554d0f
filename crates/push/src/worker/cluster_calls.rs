//! Calls to the other nodes of a cluster, and those of other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;

use super::cluster::CallResults;
use super::pending_replies::{QueryError, ReplyGroup};
use super::user_commands::ConnectionCommand;
use super::{EmulatedMessage, PushWorker};
use crate::api::ChannelPattern;
use crate::cluster::ClusterRequest;
use crate::cluster::call::{ChannelList, Emulated, NodeCall, NodeInfo, decode_count, encode_count};
use crate::limits;

/// The numbers of other nodes that have responded, and have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CalledNodes {
    pub(crate) responded: u32,
    /// They may have run the call.
    pub(crate) missing: u32,
}

/// The outcome of a client's message for a session of another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RemoteEmulation {
    /// The node has passed it to the session.
    Passed,
    /// No node has this name.
    UnknownNode,
    /// The node has too much to do.
    Busy,
    /// A node has not responded in time.
    Late,
}

impl PushWorker {
    /// Returns whether this process is a node of a cluster.
    pub(crate) fn is_clustered(&self) -> bool {
        self.0.cluster.is_some()
    }

    /// Calls all other nodes.
    ///
    /// # Errors
    /// [`QueryError::Busy`] at [`limits::CLUSTER_CALLS`]; [`QueryError::Late`] if the links do not respond.
    async fn call_nodes(&self, call: &NodeCall, deadline: Duration) -> Result<CallResults, QueryError> {
        let Some(cluster) = &self.0.cluster else {
            return Ok(CallResults::new());
        };
        let group = ReplyGroup::new(1);
        let request = {
            let mut cluster = cluster.borrow_mut();
            if cluster.calls.len() >= limits::CLUSTER_CALLS {
                return Err(QueryError::Busy);
            }
            let request = cluster.draw_request(self.0.cx.worker());
            cluster.calls.insert(request.0, Rc::clone(&group));
            request
        };
        let payload = call.encode();
        self.send_to_cluster(ClusterRequest::Call { request, payload });
        let results = group.all(&self.0.cx, deadline).await;
        cluster.borrow_mut().calls.remove(&request.0);
        results
            .and_then(|results| results.into_iter().next())
            .ok_or(QueryError::Late)
    }

    /// Runs a command on the connections of every node. Returns the number of affected connections, and in a cluster the other nodes.
    ///
    /// # Errors
    /// [`QueryError`].
    pub(crate) async fn run_everywhere(
        &self,
        command: ConnectionCommand,
        deadline: Duration,
    ) -> Result<(u32, Option<CalledNodes>), QueryError> {
        let cluster = self.0.cluster.as_ref();
        if cluster.is_some_and(|cluster| cluster.borrow().calls.len() >= limits::CLUSTER_CALLS) {
            // Before any connection is affected.
            return Err(QueryError::Busy);
        }
        let counted = self.run_counted(command.clone(), deadline).await;
        let mut connections = counted.map_err(|_| QueryError::Busy)?.ok_or(QueryError::Late)?;
        if !self.is_clustered() {
            return Ok((connections, None));
        }
        let results = self.call_nodes(&NodeCall::Command(command), deadline).await?;
        let mut nodes = CalledNodes::default();
        for (_, result) in results {
            match result.and_then(|result| decode_count(&result)) {
                Some(count) => {
                    nodes.responded += 1;
                    connections = connections.saturating_add(count);
                }
                None => nodes.missing += 1,
            }
        }
        Ok((connections, Some(nodes)))
    }

    /// Returns the channels of every node that have subscribers and match the pattern, each with the number of subscribers, and in a
    /// cluster the other nodes. A node counts as missing if a part of its list is.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`] for an invalid pattern; [`Fault::LIMIT_EXCEEDED`] for more than [`limits::LISTED_CHANNELS`]; [`QueryError`].
    pub(crate) async fn list_all_channels(
        &self,
        pattern: Option<String>,
        deadline: Duration,
    ) -> Result<(BTreeMap<String, u32>, Option<CalledNodes>), QueryError> {
        let parsed = ChannelPattern::parse_optional(pattern.as_deref())?;
        let mut channels = self.list_channels(parsed, deadline).await?;
        if !self.is_clustered() {
            return Ok((channels, None));
        }
        let (mut complete, mut missing) = (BTreeSet::new(), BTreeSet::new());
        let mut after: Option<String> = None;
        loop {
            let call = NodeCall::Channels {
                pattern: pattern.clone(),
                after,
            };
            let mut pages = Vec::new();
            for (uid, result) in self.call_nodes(&call, deadline).await? {
                match result.and_then(|result| ChannelList::decode(&result)) {
                    Some(ChannelList::Page { channels, has_more }) => pages.push((uid, channels, has_more)),
                    Some(ChannelList::TooMany {}) => return Err(Fault::LIMIT_EXCEEDED.into()),
                    Some(ChannelList::Busy {}) | None => drop(missing.insert(uid)),
                }
            }
            // Other nodes send the names behind this one again, together with the next part of its node.
            let ends = pages.iter().filter(|(_, _, has_more)| *has_more);
            after = ends
                .filter_map(|(_, page, _)| page.last().map(|(name, _)| name.clone()))
                .min();
            for (uid, page, has_more) in pages {
                if !has_more {
                    complete.insert(uid);
                }
                for (name, count) in page {
                    if after.as_ref().is_none_or(|end| name <= *end) {
                        let sum = channels.entry(name).or_default();
                        *sum = sum.saturating_add(count);
                    }
                }
            }
            if channels.len() > limits::LISTED_CHANNELS {
                return Err(Fault::LIMIT_EXCEEDED.into());
            }
            if after.is_none() {
                break;
            }
        }
        complete.retain(|uid| !missing.contains(uid));
        let nodes = CalledNodes {
            responded: complete.len() as u32,
            missing: missing.len() as u32,
        };
        Ok((channels, Some(nodes)))
    }

    /// Describes every node, in the order of their names, and returns in a cluster the other nodes.
    ///
    /// # Errors
    /// [`QueryError`].
    pub(crate) async fn describe_nodes(
        &self,
        deadline: Duration,
    ) -> Result<(Vec<NodeInfo>, Option<CalledNodes>), QueryError> {
        let mut nodes = vec![self.describe()];
        if !self.is_clustered() {
            return Ok((nodes, None));
        }
        let mut called = CalledNodes::default();
        for (_, result) in self.call_nodes(&NodeCall::Info, deadline).await? {
            match result.and_then(|result| NodeInfo::decode(&result)) {
                Some(info) => {
                    called.responded += 1;
                    nodes.push(info);
                }
                None => called.missing += 1,
            }
        }
        nodes.sort_by(|a, b| (&a.name, &a.uid).cmp(&(&b.name, &b.uid)));
        Ok((nodes, Some(called)))
    }

    /// Describes this process.
    fn describe(&self) -> NodeInfo {
        let report = self.report();
        NodeInfo {
            uid: self.node().to_string(),
            name: self.0.settings.node_name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            num_clients: report.clients,
            num_users: report.users,
            num_subs: report.subscriptions,
            num_channels: report.subscribed_channels,
            uptime: self.uptime().as_secs(),
        }
    }

    /// Passes a client's message to a session of another node, by the name of that node for clients.
    pub(crate) async fn emulate_remotely(
        &self,
        node: String,
        worker: usize,
        message: EmulatedMessage,
    ) -> RemoteEmulation {
        let cluster = self.0.cluster.as_ref();
        if cluster.is_some_and(|cluster| cluster.borrow().calls.len() >= limits::CLUSTER_EMULATIONS) {
            return RemoteEmulation::Busy;
        }
        let call = NodeCall::Emulate {
            node,
            worker,
            message,
        };
        let results = match self.call_nodes(&call, self.reply_deadline()).await {
            Ok(results) => results,
            Err(QueryError::Busy) => return RemoteEmulation::Busy,
            Err(QueryError::Late | QueryError::Fault(_)) => return RemoteEmulation::Late,
        };
        let mut outcome = RemoteEmulation::UnknownNode;
        for (_, result) in results {
            match result.and_then(|result| Emulated::decode(&result)) {
                Some(Emulated::Passed) => return RemoteEmulation::Passed,
                Some(Emulated::Busy) => return RemoteEmulation::Busy,
                Some(Emulated::NotHere) => {}
                None => outcome = RemoteEmulation::Late,
            }
        }
        outcome
    }

    /// Runs a call of another node in a task of its own, and sends the result.
    pub(super) fn run_call(&self, from: u64, call: u64, payload: &Bytes) {
        let Some(request) = NodeCall::decode(payload) else {
            log::warn!("push: a node of the cluster has sent a call that this version does not know");
            return;
        };
        let worker = self.clone();
        let spawned = self.0.cx.spawn(async move {
            // Without a result the other node reports that this one has not responded.
            if let Some(payload) = worker.call_result(request).await {
                worker.send_to_cluster(ClusterRequest::CallResult { from, call, payload });
            }
        });
        if spawned.is_err() {
            log::warn!("push: no capacity for a call of another node");
        }
    }

    async fn call_result(&self, call: NodeCall) -> Option<Bytes> {
        let deadline = self.reply_deadline();
        Some(match call {
            NodeCall::Command(command) => encode_count(self.run_counted(command, deadline).await.ok()??),
            NodeCall::Channels { pattern, after } => {
                let pattern = ChannelPattern::parse_optional(pattern.as_deref()).ok()?;
                let list = match self.list_channels(pattern, deadline).await {
                    Ok(channels) => ChannelList::page(channels, after.as_deref()),
                    Err(QueryError::Fault(_)) => ChannelList::TooMany {},
                    Err(QueryError::Busy | QueryError::Late) => ChannelList::Busy {},
                };
                list.encode()
            }
            NodeCall::Info => self.describe().encode(),
            NodeCall::Emulate { node, .. } if node != **self.node() => Emulated::NotHere.encode(),
            NodeCall::Emulate { worker, message, .. } => {
                let is_passed = self.forward_emulated(worker, message);
                let outcome = if is_passed {
                    Emulated::Passed
                } else {
                    Emulated::Busy
                };
                outcome.encode()
            }
        })
    }
}
