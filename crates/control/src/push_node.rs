//! The node of this process while it runs: its load, the clients that it sends away, and its planned end.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ringmain_cluster::links::{Cluster, Load};
use ringmain_push::Push;
use ringmain_sys::clock;
use ringmain_sys::event::Event;

use crate::limits;

/// The node, as long as the process is one.
#[derive(Debug)]
pub struct PushNode {
    links: Cluster,
    is_leaving: AtomicBool,
    /// The nodes that own channels.
    servers: Mutex<ServerPresence>,
}

#[derive(Debug, Default)]
struct ServerPresence {
    /// One was linked before.
    was_linked: bool,
    /// The time of the first check that found none, by the monotonic clock.
    missing_since: Option<Duration>,
}

impl PushNode {
    pub(crate) fn new(links: Cluster) -> PushNode {
        PushNode {
            links,
            is_leaving: AtomicBool::new(false),
            servers: Mutex::default(),
        }
    }

    /// Returns the links to other nodes.
    pub(crate) fn links(&self) -> &Cluster {
        &self.links
    }

    /// Returns whether this node hands its channels over, or has done so.
    pub(crate) fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Acquire)
    }

    /// Returns whether this node depends on others for channels, and no such node has been linked yet, or for
    /// [`limits::PUSH_SERVERS_MISSING`].
    pub(crate) fn lacks_servers(&self) -> bool {
        if self.links.member().role.owns_channels() {
            return false;
        }
        let nodes = self.links.report().nodes;
        let has_server = nodes.iter().any(|node| node.role.owns_channels());
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.update(has_server, clock::monotonic())
    }

    /// Returns the reason why the log of the cluster does not deliver here, if it does not.
    pub(crate) fn log_failure(&self) -> Option<String> {
        let report = self.links.report();
        if let Some(other) = report.other_log {
            return Some(format!(
                "the node {other} has other settings of the log of the push cluster"
            ));
        }
        let log = report.log.filter(|log| !log.is_ready)?;
        let seconds = log.silent.as_secs();
        Some(match log.is_connected {
            true if seconds == 0 => {
                "no beat of this node has arrived yet through the log of the push cluster".into()
            }
            true => format!(
                "no beat of this node has arrived through the log of the push cluster for {seconds} s"
            ),
            false => format!("the log of the push cluster is unreachable: {}", log.reason),
        })
    }

    /// Reports the load of this node, and sends clients to less loaded ones. Called several times a second.
    pub(crate) fn balance(&self, push: &Push) {
        let clients = u32::try_from(push.report().clients).unwrap_or(u32::MAX);
        self.links.set_load(Load { clients });
        let count = self.links.clients_to_move();
        if count > 0 {
            push.move_clients(count);
        }
    }

    /// Starts to hand the channels over to other nodes, which send no clients here any more.
    pub(crate) fn begin_leave(&self) {
        if !self.is_leaving.swap(true, Ordering::AcqRel) {
            self.links.leave();
        }
    }

    /// Hands the channels over, before clients are disconnected. Waits for that at most [`limits::PUSH_LEAVE_TIMEOUT`].
    pub(crate) fn leave(&self) {
        let start = clock::monotonic();
        self.begin_leave();
        let wait = || -> io::Result<bool> {
            let pause = Event::new()?;
            while clock::monotonic() - start < limits::PUSH_LEAVE_TIMEOUT {
                if self.links.has_left() {
                    return Ok(true);
                }
                // Never signalled.
                pause.wait_for(limits::PUSH_LEAVE_CHECK)?;
            }
            Ok(self.links.has_left())
        };
        match wait() {
            Ok(true) => {
                let duration = clock::monotonic() - start;
                log::info!("cluster: this node has left after {duration:?}");
            }
            Ok(false) => log::warn!(
                "cluster: not all channels are handed over after {:?}: they start new epochs at their next owners",
                limits::PUSH_LEAVE_TIMEOUT
            ),
            Err(error) => log::error!("cluster: cannot wait until the channels are handed over: {error}"),
        }
    }
}

impl ServerPresence {
    /// Returns whether servers are missing now.
    fn update(&mut self, has_server: bool, now: Duration) -> bool {
        if has_server {
            self.was_linked = true;
            self.missing_since = None;
            return false;
        }
        let since = *self.missing_since.get_or_insert(now);
        !self.was_linked || now.saturating_sub(since) >= limits::PUSH_SERVERS_MISSING
    }
}

#[cfg(test)]
mod tests;
