//! What waits on a session's behalf (commands, replies, subscriptions): most of the time nothing, which then takes no memory.

use std::cell::RefCell;

use ringmain_hub::protocol::{Command, SubscribeResult, encoded_bytes};

use crate::client::reply_queue::{Queued, ReplyQueue};
use crate::client::{PendingConnect, PendingSubscribe};
use crate::limits;
use crate::worker::connect_limiter::Handshake;

/// See the module.
#[derive(Default)]
pub(crate) struct Pending(RefCell<Option<Box<PendingState>>>);

#[derive(Default)]
struct PendingState {
    /// It is about to say who it is.
    handshake: Option<Handshake>,
    /// What it is told first, once the last of the channels has answered that it has from the beginning.
    connect: Option<PendingConnect>,
    /// Commands that are carried out later, in their order: once the client is connected, has taken its replies, or once the
    /// commands before them are answered.
    held: Vec<Command>,
    /// Of `held`, encoded.
    held_bytes: usize,
    /// Replies and recovered publications that the client has not been sent yet.
    replies: ReplyQueue,
    /// Recovered publications that follow the reply to `connect`.
    after_connect: ReplyQueue,
    /// Subscriptions that wait for their answer, with their commands' numbers and whether they recover.
    subscribes: Vec<PendingSubscribe>,
}

impl PendingState {
    fn is_empty(&self) -> bool {
        let PendingState {
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

impl Pending {
    fn update_or_create<T>(&self, change: impl FnOnce(&mut PendingState) -> T) -> T {
        change(self.0.borrow_mut().get_or_insert_default())
    }

    /// Changes what is there; whoever waits for nothing holds nothing.
    fn update<T>(&self, change: impl FnOnce(&mut PendingState) -> T) -> Option<T> {
        let mut state = self.0.borrow_mut();
        let changed = change(state.as_mut()?);
        state.take_if(|inner| inner.is_empty());
        Some(changed)
    }

    pub(crate) fn start_handshake(&self, handshake: Handshake) {
        self.update_or_create(|inner| inner.handshake = Some(handshake));
    }

    /// It has said who it is, or does not any more.
    pub(crate) fn finish_handshake(&self) {
        drop(self.update(|inner| inner.handshake.take()));
    }

    pub(crate) fn start_connect(&self, connect: PendingConnect) {
        self.update_or_create(|inner| inner.connect = Some(connect));
    }

    pub(crate) fn is_connecting(&self) -> bool {
        let state = self.0.borrow();
        state.as_ref().is_some_and(|inner| inner.connect.is_some())
    }

    /// Changes what it is told first; `None`: it was told that.
    pub(crate) fn with_connect<T>(&self, change: impl FnOnce(&mut PendingConnect) -> T) -> Option<T> {
        self.update(|inner| inner.connect.as_mut().map(change))?
    }

    /// Adds a subscription to the reply to `connect`, and behind that reply the publications that had no room in it. Returns the
    /// result if that reply was sent already.
    pub(crate) fn add_subscription(
        &self,
        channel: &str,
        result: SubscribeResult,
        rest: &mut ReplyQueue,
    ) -> Option<SubscribeResult> {
        let mut result = Some(result);
        self.update(|inner| {
            if let Some(connect) = &mut inner.connect
                && let Some(result) = result.take()
            {
                connect.result.subs.insert(channel.to_owned(), result);
                inner.after_connect.append(rest);
            }
        });
        result
    }

    /// Removes a subscription from the reply to `connect`. Returns whether that reply was not sent yet.
    pub(crate) fn remove_subscription(&self, channel: &str) -> bool {
        let unjoined = self.update(|inner| {
            let connect = inner.connect.as_mut()?;
            connect.result.subs.remove(channel);
            inner.after_connect.remove(channel);
            Some(())
        });
        unjoined.flatten().is_some()
    }

    /// The reply to `connect` was sent: the publications behind it are next.
    pub(crate) fn queue_after_connect(&self) {
        self.update(|inner| {
            let mut rest = std::mem::take(&mut inner.after_connect);
            inner.replies.append(&mut rest);
        });
    }

    /// Queues a reply behind the others.
    pub(crate) fn push_reply(&self, queued: Queued) {
        self.update_or_create(|inner| inner.replies.push(queued));
    }

    /// Queues several.
    pub(crate) fn append_replies(&self, rest: &mut ReplyQueue) {
        if !rest.is_empty() {
            self.update_or_create(|inner| inner.replies.append(rest));
        }
    }

    /// Takes the next reply.
    pub(crate) fn pop_reply(&self) -> Option<Queued> {
        self.update(|inner| inner.replies.pop())?
    }

    pub(crate) fn has_replies(&self) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|inner| !inner.replies.is_empty())
    }

    /// Bytes of all that waits to be sent, as [`Queued::weight`] counts.
    pub(crate) fn queued_bytes(&self) -> usize {
        let state = self.0.borrow();
        state
            .as_ref()
            .map_or(0, |inner| inner.replies.bytes() + inner.after_connect.bytes())
    }

    /// What it is told first, once nothing is waited for.
    pub(crate) fn take_connect(&self) -> Option<PendingConnect> {
        self.update(|inner| inner.connect.take_if(|connect| connect.open_channels == 0))?
    }

    /// Holds a command. `false`: there is no room for it ([`limits::COMMANDS_HELD`], [`limits::HELD_BYTES`]). One alone has room.
    pub(crate) fn hold_command(&self, command: Command) -> bool {
        self.update_or_create(|inner| {
            let bytes = inner.held_bytes + encoded_bytes(&command);
            let has_room = inner.held.is_empty()
                || (inner.held.len() < limits::COMMANDS_HELD && bytes <= limits::HELD_BYTES);
            if has_room {
                inner.held.push(command);
                inner.held_bytes = bytes;
            }
            has_room
        })
    }

    pub(crate) fn has_held(&self) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|inner| !inner.held.is_empty())
    }

    /// Whether a command is held for which this is true.
    pub(crate) fn holds_any(&self, is_one: impl FnMut(&Command) -> bool) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|inner| inner.held.iter().any(is_one))
    }

    pub(crate) fn take_held(&self) -> Vec<Command> {
        let held = self.update(|inner| {
            inner.held_bytes = 0;
            std::mem::take(&mut inner.held)
        });
        held.unwrap_or_default()
    }

    /// Whether a subscription to a channel waits for its answer.
    pub(crate) fn is_subscribing(&self, channel: &str) -> bool {
        let state = self.0.borrow();
        let mut subscribes = state.iter().flat_map(|inner| &inner.subscribes);
        subscribes.any(|subscribes| &*subscribes.channel == channel)
    }

    pub(crate) fn add_subscribe(&self, subscribes: PendingSubscribe) {
        self.update_or_create(|inner| inner.subscribes.push(subscribes));
    }

    /// What was subscribes for a channel, now that its answer is there.
    pub(crate) fn take_subscribe(&self, channel: &str) -> Option<PendingSubscribe> {
        self.update(|inner| {
            let at = inner
                .subscribes
                .iter()
                .position(|subscribes| &*subscribes.channel == channel)?;
            Some(inner.subscribes.remove(at))
        })?
    }
}

#[cfg(test)]
mod tests {
    use ringmain_hub::protocol::{Command, RpcRequest};

    use super::Pending;
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
            let pending = Pending::default();
            // Again, when those before are carried out.
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
