//! Commands for the connections of a user, which every worker runs on those that it has.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_hub::protocol::{Disconnect, PushMessage, Refresh, Reply, Unsubscribed};
use ringmain_hub::subscribers::ConnId;

use super::PushWorker;
use crate::client::Client;
use crate::client::commands::CommandHandler;
use crate::limits;
use crate::publish::publisher::Busy;
use crate::publish::receipts::{Receipt, ReceiptOutcome};
use crate::tokens::claims::{Expiry, SubscribeOptions};

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionCommand {
    /// The user. An empty name has no connections.
    pub(crate) user: Arc<str>,
    /// One of the connections. `None`: all.
    pub(crate) client: Option<Arc<str>>,
    pub(crate) action: UserAction,
    /// Counts affected connections, for a caller that awaits the number.
    pub(crate) progress: Option<Arc<CommandProgress>>,
}

/// The number of connections that a command has affected, across all workers.
#[derive(Debug)]
pub(crate) struct CommandProgress {
    connections: AtomicU32,
    /// Workers that have not run the command yet.
    workers_left: AtomicUsize,
    waker: Mutex<Option<Waker>>,
    /// The receipt of a source's command, completed by the last worker.
    receipt: Mutex<Option<Receipt>>,
}

impl CommandProgress {
    fn new(workers: usize) -> Arc<CommandProgress> {
        CommandProgress::with_receipt(workers, None)
    }

    pub(super) fn with_receipt(workers: usize, receipt: Option<Receipt>) -> Arc<CommandProgress> {
        Arc::new(CommandProgress {
            connections: AtomicU32::new(0),
            workers_left: AtomicUsize::new(workers),
            waker: Mutex::new(None),
            receipt: Mutex::new(receipt),
        })
    }

    fn add_worker(&self, connections: u32) {
        self.connections.fetch_add(connections, Ordering::AcqRel);
        if self.workers_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            waker.iter().for_each(Waker::wake_by_ref);
            let receipt = self.receipt.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(receipt) = receipt {
                receipt.complete(ReceiptOutcome::Published);
            }
        }
    }

    fn poll_finished(&self, context: &Context<'_>) -> Poll<u32> {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        // After the waker is stored: the last worker either wakes it, or has finished by now.
        match self.workers_left.load(Ordering::Acquire) {
            0 => Poll::Ready(self.connections.load(Ordering::Acquire)),
            _ => Poll::Pending,
        }
    }
}

/// The effect of a command on each connection.
#[derive(Clone, Debug)]
pub(crate) enum UserAction {
    /// Disconnects permanently ([`Disconnect::FORCED`]), except for these connections.
    Disconnect(Arc<[Arc<str>]>),
    /// Disconnects as expired ([`Disconnect::EXPIRED`]).
    Expire,
    /// Sets the expiry, in seconds since 1970 (`None`: none), and the `info` for other clients unless it is empty.
    Refresh { until: Option<u64>, info: Bytes },
    /// Subscribes to a channel.
    Subscribe(Arc<str>, SubscribeOptions),
    /// Ends the subscription to a channel ([`Unsubscribed::SERVER`]).
    Unsubscribe(Arc<str>),
}

impl ConnectionCommand {
    /// Creates a command for all connections of a user.
    pub(crate) fn for_user(user: &str, action: UserAction) -> ConnectionCommand {
        ConnectionCommand {
            user: user.into(),
            client: None,
            action,
            progress: None,
        }
    }

    fn includes(&self, client: &Client) -> bool {
        let client_id = client.identity().client;
        self.client.as_ref().is_none_or(|name| client_id.matches(name))
    }
}

impl PushWorker {
    /// Runs a command on all workers: on this one at once, on the others in their next turn.
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub(crate) fn run_on_all(&self, command: &ConnectionCommand) -> Result<(), Busy> {
        let worker = self.0.cx.worker();
        if !self.0.mesh.borrow_mut().broadcast_command(worker, command) {
            return Err(Busy);
        }
        self.run_command(command);
        self.wake();
        Ok(())
    }

    /// Runs a command on all workers, and returns the number of connections that were reached once all have run it. `None`: not in
    /// time.
    ///
    /// # Errors
    /// [`Busy`]: nothing was done.
    pub(crate) async fn run_counted(
        &self,
        mut command: ConnectionCommand,
        until: Duration,
    ) -> Result<Option<u32>, Busy> {
        let cx = &self.0.cx;
        let progress = CommandProgress::new(cx.workers());
        command.progress = Some(Arc::clone(&progress));
        self.run_on_all(&command)?;
        let now = cx.now().since(Time(0));
        let mut sleep = pin!(cx.sleep(until.saturating_sub(now)));
        let counted = poll_fn(|context| match progress.poll_finished(context) {
            Poll::Ready(count) => Poll::Ready(Some(count)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        });
        Ok(counted.await)
    }

    /// Runs a command on the connections here.
    pub(super) fn run_command(&self, command: &ConnectionCommand) {
        let connections = self.apply_to_clients(command);
        if let Some(progress) = &command.progress {
            progress.add_worker(connections);
        }
    }

    fn apply_to_clients(&self, command: &ConnectionCommand) -> u32 {
        let mut connections = 0;
        for client in self.0.clients.user_clients(&command.user) {
            if command.includes(&client)
                && client.transport.borrow().is_open()
                && self.apply_action(&command.action, client)
            {
                connections += 1;
            }
        }
        connections
    }

    /// Returns whether the action had an effect on the connection.
    fn apply_action(&self, action: &UserAction, client: Rc<Client>) -> bool {
        match (action, client.id()) {
            (UserAction::Disconnect(except), _) => {
                let client_id = client.identity().client;
                if except.iter().any(|name| client_id.matches(name)) {
                    return false;
                }
                client.disconnect(Disconnect::FORCED);
            }
            (UserAction::Expire, _) => client.disconnect(Disconnect::EXPIRED),
            (UserAction::Refresh { until, info }, Some(id)) => {
                self.refresh_client(&client, id, *until, info);
            }
            (UserAction::Unsubscribe(channel), Some(id)) => {
                return self.unsubscribe(id, channel, Unsubscribed::SERVER);
            }
            (UserAction::Subscribe(channel, options), Some(id)) => {
                let session = CommandHandler::resume(self, client);
                if let Err(fault) = session.subscribe_by_server(id, channel, options.clone()) {
                    log::debug!("push: the server could not subscribe a client: {}", fault.message);
                    return false;
                }
            }
            (UserAction::Subscribe(..) | UserAction::Unsubscribe(_) | UserAction::Refresh { .. }, None) => {
                return false;
            }
        }
        true
    }

    /// Replaces the expiry that a connection has by its token.
    fn refresh_client(&self, client: &Client, id: ConnId, until: Option<u64>, info: &Bytes) {
        let leeway = self
            .options()
            .tokens
            .as_ref()
            .map_or(Duration::ZERO, |tokens| tokens.leeway);
        let expiry = Expiry {
            until,
            leeway: leeway.as_secs(),
        };
        let now = self.wall_time();
        if expiry.is_expired(now) {
            return client.disconnect(Disconnect::EXPIRED);
        }
        let grace = if client.unidirectional {
            Duration::ZERO
        } else {
            limits::REFRESH_GRACE
        };
        let deadline = expiry.deadline(grace);
        let before = client.permissions.borrow_mut().set_deadline(deadline);
        self.set_deadline(id, None, before, deadline);
        if !info.is_empty() {
            client.set_identity(client.identity().with_info(info.clone()));
        }
        let (expires, ttl) = expiry.client_ttl(now);
        let in_connect_reply = client
            .pending
            .with_connect(|connect| (connect.result.expires, connect.result.ttl) = (expires, ttl));
        if in_connect_reply.is_some() {
            return;
        }
        let push = PushMessage {
            refresh: Some(Refresh { expires, ttl }),
            ..PushMessage::default()
        };
        client.send_reply(Reply {
            push: Some(push),
            ..Reply::default()
        });
    }
}
