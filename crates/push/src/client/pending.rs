//! Pending commands, replies and subscriptions of a client. Usually there are none, and no memory is allocated.

use std::cell::RefCell;

use ringmain_hub::protocol::{Command, SubscribeResult, encoded_bytes};

use crate::client::reply_queue::{Queued, ReplyQueue};
use crate::client::{PendingConnect, PendingSubscribe};
use crate::limits;
use crate::worker::connect_limiter::Handshake;

/// See the module.
#[derive(Default)]
pub(crate) struct PendingState(RefCell<Option<Box<PendingItems>>>);

#[derive(Default)]
struct PendingItems {
    /// Present until the client is identified.
    handshake: Option<Handshake>,
    /// The reply to `connect`, until the last channel has a result.
    connect: Option<PendingConnect>,
    /// Commands to be executed later, in their order: once the client is connected, has received its replies, or once the replies to
    /// earlier commands are sent.
    held: Vec<Command>,
    /// The encoded size of `held`.
    held_bytes: usize,
    /// Replies and recovered publications that were not sent yet.
    replies: ReplyQueue,
    /// Recovered publications that follow the reply to `connect`.
    after_connect: ReplyQueue,
    /// Subscriptions without a result.
    subscribes: Vec<PendingSubscribe>,
}

impl PendingItems {
    fn is_empty(&self) -> bool {
        let PendingItems {
            handshake,
            connect,
            held,
            held_bytes: _,
            replies,
            after_connect,
            subscribes,
        } = self;
        handshake.is_none()
            && connect.is_none()
            && held.is_empty()
            && replies.is_empty()
            && after_connect.is_empty()
            && subscribes.is_empty()
    }
}

impl PendingState {
    fn update_or_create<T>(&self, change: impl FnOnce(&mut PendingItems) -> T) -> T {
        change(self.0.borrow_mut().get_or_insert_default())
    }

    /// Changes the state, and frees it once nothing is pending.
    fn update<T>(&self, change: impl FnOnce(&mut PendingItems) -> T) -> Option<T> {
        let mut state = self.0.borrow_mut();
        let changed = change(state.as_mut()?);
        state.take_if(|state| state.is_empty());
        Some(changed)
    }

    pub(crate) fn start_handshake(&self, handshake: Handshake) {
        self.update_or_create(|state| state.handshake = Some(handshake));
    }

    /// Ends the count of the handshake: the client is identified, or has left.
    pub(crate) fn finish_handshake(&self) {
        drop(self.update(|state| state.handshake.take()));
    }

    pub(crate) fn start_connect(&self, connect: PendingConnect) {
        self.update_or_create(|state| state.connect = Some(connect));
    }

    pub(crate) fn is_connecting(&self) -> bool {
        let state = self.0.borrow();
        state.as_ref().is_some_and(|state| state.connect.is_some())
    }

    /// Changes the reply to `connect`. `None`: it was sent.
    pub(crate) fn with_connect<T>(&self, change: impl FnOnce(&mut PendingConnect) -> T) -> Option<T> {
        self.update(|state| state.connect.as_mut().map(change))?
    }

    /// Adds a subscription to the reply to `connect`, and queues the publications that do not fit into it. Returns the result if that reply
    /// was sent already.
    pub(crate) fn add_subscription(
        &self,
        channel: &str,
        result: SubscribeResult,
        rest: &mut ReplyQueue,
    ) -> Option<SubscribeResult> {
        let mut result = Some(result);
        self.update(|state| {
            if let Some(connect) = &mut state.connect
                && let Some(result) = result.take()
            {
                connect.result.subs.insert(channel.to_owned(), result);
                state.after_connect.append(rest);
            }
        });
        result
    }

    /// Removes a subscription from the reply to `connect`. Returns whether that reply was not sent yet.
    pub(crate) fn remove_subscription(&self, channel: &str) -> bool {
        let removed = self.update(|state| {
            let connect = state.connect.as_mut()?;
            connect.result.subs.remove(channel);
            state.after_connect.remove(channel);
            Some(())
        });
        removed.flatten().is_some()
    }

    /// Queues the publications that follow the reply to `connect`, which was sent.
    pub(crate) fn queue_after_connect(&self) {
        self.update(|state| {
            let mut rest = std::mem::take(&mut state.after_connect);
            state.replies.append(&mut rest);
        });
    }

    /// Queues a reply behind the others.
    pub(crate) fn push_reply(&self, queued: Queued) {
        self.update_or_create(|state| state.replies.push(queued));
    }

    pub(crate) fn append_replies(&self, rest: &mut ReplyQueue) {
        if !rest.is_empty() {
            self.update_or_create(|state| state.replies.append(rest));
        }
    }

    /// Returns the next reply.
    pub(crate) fn pop_reply(&self) -> Option<Queued> {
        self.update(|state| state.replies.pop())?
    }

    pub(crate) fn has_replies(&self) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|state| !state.replies.is_empty())
    }

    /// Returns the bytes of the replies and publications, as counted by [`Queued::weight`].
    pub(crate) fn queued_bytes(&self) -> usize {
        let state = self.0.borrow();
        state
            .as_ref()
            .map_or(0, |state| state.replies.bytes() + state.after_connect.bytes())
    }

    /// Returns the reply to `connect` once every channel has a result.
    pub(crate) fn take_connect(&self) -> Option<PendingConnect> {
        self.update(|state| state.connect.take_if(|connect| connect.open_channels == 0))?
    }

    /// Holds a command. Returns `false` at the limits [`limits::COMMANDS_HELD`] and [`limits::HELD_BYTES`]. A single command may exceed the
    /// latter.
    pub(crate) fn hold_command(&self, command: Command) -> bool {
        self.update_or_create(|state| {
            let bytes = state.held_bytes + encoded_bytes(&command);
            let has_room = state.held.is_empty()
                || (state.held.len() < limits::COMMANDS_HELD && bytes <= limits::HELD_BYTES);
            if has_room {
                state.held.push(command);
                state.held_bytes = bytes;
            }
            has_room
        })
    }

    pub(crate) fn has_held(&self) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|state| !state.held.is_empty())
    }

    pub(crate) fn holds_any(&self, matches: impl FnMut(&Command) -> bool) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|state| state.held.iter().any(matches))
    }

    pub(crate) fn take_held(&self) -> Vec<Command> {
        let held = self.update(|state| {
            state.held_bytes = 0;
            std::mem::take(&mut state.held)
        });
        held.unwrap_or_default()
    }

    /// Returns whether a subscription to a channel has no result yet.
    pub(crate) fn is_subscribing(&self, channel: &str) -> bool {
        let state = self.0.borrow();
        let mut subscribes = state.iter().flat_map(|state| &state.subscribes);
        subscribes.any(|subscribe| &*subscribe.channel == channel)
    }

    pub(crate) fn add_subscribe(&self, subscribe: PendingSubscribe) {
        self.update_or_create(|state| state.subscribes.push(subscribe));
    }

    /// Returns the subscription to a channel whose result has arrived.
    pub(crate) fn take_subscribe(&self, channel: &str) -> Option<PendingSubscribe> {
        self.update(|state| {
            let at = state
                .subscribes
                .iter()
                .position(|subscribe| &*subscribe.channel == channel)?;
            Some(state.subscribes.remove(at))
        })?
    }
}

#[cfg(test)]
mod tests {
    use ringmain_hub::protocol::{Command, RpcRequest};

    use super::PendingState;
    use crate::limits::{COMMANDS_HELD, HELD_BYTES};

    fn rpc(bytes: usize) -> Command {
        Command {
            id: 7,
            rpc: Some(RpcRequest {
                data: vec![b'1'; bytes].into(),
                ..RpcRequest::default()
            }),
            ..Command::default()
        }
    }

    #[test]
    fn held_commands_are_bounded_by_number_and_by_bytes() {
        for (bytes, held) in [(1, COMMANDS_HELD), (HELD_BYTES / 4, 3), (2 * HELD_BYTES, 1)] {
            let pending = PendingState::default();
            // Executed again after the held commands.
            for _ in 0..2 {
                let mut count = 0;
                while pending.hold_command(rpc(bytes)) {
                    count += 1;
                }
                assert_eq!(count, held, "{bytes} bytes each");
                assert_eq!(pending.take_held().len(), held);
                assert!(!pending.has_held());
            }
        }
    }
}
