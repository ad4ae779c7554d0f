//! What waits on a session's behalf (commands, replies, subscriptions): most of the time nothing, which then takes no memory.

use std::cell::RefCell;

use ringmain_hub::protocol::{Command, SubscribeResult, encoded_bytes};

use crate::client::reply_queue::{Queued, ReplyQueue};
use crate::client::{Asked, Joining};
use crate::limits;
use crate::worker::connect_limiter::Handshake;

/// See the module.
#[derive(Default)]
pub(crate) struct Pending(RefCell<Option<Box<Inner>>>);

#[derive(Default)]
struct Inner {
    /// It is about to say who it is.
    handshake: Option<Handshake>,
    /// What it is told first, once the last of the channels has answered that it has from the beginning.
    joining: Option<Joining>,
    /// Commands that are carried out later, in their order: once the client is connected, has taken its replies, or once the
    /// commands before them are answered.
    held: Vec<Command>,
    /// Of `held`, encoded.
    held_bytes: usize,
    /// Replies and recovered publications that the client has not been sent yet.
    replies: ReplyQueue,
    /// Recovered publications that follow the reply to `connect`.
    after_welcome: ReplyQueue,
    /// Subscriptions that wait for their answer, with their commands' numbers and whether they recover.
    asked: Vec<Asked>,
}

impl Inner {
    fn is_empty(&self) -> bool {
        let Inner {
            handshake,
            joining,
            held,
            held_bytes: _,
            replies,
            after_welcome,
            asked,
        } = self;
        handshake.is_none()
            && joining.is_none()
            && held.is_empty()
            && replies.is_empty()
            && after_welcome.is_empty()
            && asked.is_empty()
    }
}

impl Pending {
    fn add<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        change(self.0.borrow_mut().get_or_insert_default())
    }

    /// Changes what is there; whoever waits for nothing holds nothing.
    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> Option<T> {
        let mut place = self.0.borrow_mut();
        let changed = change(place.as_mut()?);
        place.take_if(|inner| inner.is_empty());
        Some(changed)
    }

    pub(crate) fn begin(&self, handshake: Handshake) {
        self.add(|inner| inner.handshake = Some(handshake));
    }

    /// It has said who it is, or does not any more.
    pub(crate) fn end_handshake(&self) {
        drop(self.change(|inner| inner.handshake.take()));
    }

    pub(crate) fn join(&self, joining: Joining) {
        self.add(|inner| inner.joining = Some(joining));
    }

    pub(crate) fn is_joining(&self) -> bool {
        let place = self.0.borrow();
        place.as_ref().is_some_and(|inner| inner.joining.is_some())
    }

    /// Changes what it is told first; `None`: it was told that.
    pub(crate) fn joining<T>(&self, change: impl FnOnce(&mut Joining) -> T) -> Option<T> {
        self.change(|inner| inner.joining.as_mut().map(change))?
    }

    /// Adds a subscription to the reply to `connect`, and behind that reply the publications that had no room in it. Returns the
    /// result if that reply was sent already.
    pub(crate) fn joins(
        &self,
        channel: &str,
        result: SubscribeResult,
        rest: &mut ReplyQueue,
    ) -> Option<SubscribeResult> {
        let mut result = Some(result);
        self.change(|inner| {
            if let Some(joining) = &mut inner.joining
                && let Some(result) = result.take()
            {
                joining.connect.subs.insert(channel.to_owned(), result);
                inner.after_welcome.append(rest);
            }
        });
        result
    }

    /// Removes a subscription from the reply to `connect`. Returns whether that reply was not sent yet.
    pub(crate) fn unjoins(&self, channel: &str) -> bool {
        let unjoined = self.change(|inner| {
            let joining = inner.joining.as_mut()?;
            joining.connect.subs.remove(channel);
            inner.after_welcome.remove(channel);
            Some(())
        });
        unjoined.flatten().is_some()
    }

    /// The reply to `connect` was sent: the publications behind it are next.
    pub(crate) fn follow_welcome(&self) {
        self.change(|inner| {
            let mut rest = std::mem::take(&mut inner.after_welcome);
            inner.replies.append(&mut rest);
        });
    }

    /// Queues a reply behind the others.
    pub(crate) fn queue(&self, queued: Queued) {
        self.add(|inner| inner.replies.push(queued));
    }

    /// Queues several.
    pub(crate) fn queue_all(&self, rest: &mut ReplyQueue) {
        if !rest.is_empty() {
            self.add(|inner| inner.replies.append(rest));
        }
    }

    /// Takes the next reply.
    pub(crate) fn next_queued(&self) -> Option<Queued> {
        self.change(|inner| inner.replies.pop())?
    }

    pub(crate) fn has_queued(&self) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|inner| !inner.replies.is_empty())
    }

    /// Bytes of all that waits to be sent, as [`Queued::weight`] counts.
    pub(crate) fn queued_bytes(&self) -> usize {
        let place = self.0.borrow();
        place
            .as_ref()
            .map_or(0, |inner| inner.replies.bytes() + inner.after_welcome.bytes())
    }

    /// What it is told first, once nothing is waited for.
    pub(crate) fn joined(&self) -> Option<Joining> {
        self.change(|inner| inner.joining.take_if(|joining| joining.left == 0))?
    }

    /// Holds a command. `false`: there is no room for it ([`limits::COMMANDS_HELD`], [`limits::HELD_BYTES`]). One alone has room.
    pub(crate) fn hold(&self, command: Command) -> bool {
        self.add(|inner| {
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
    pub(crate) fn holds(&self, is_one: impl FnMut(&Command) -> bool) -> bool {
        self.0
            .borrow()
            .as_ref()
            .is_some_and(|inner| inner.held.iter().any(is_one))
    }

    pub(crate) fn take_held(&self) -> Vec<Command> {
        let held = self.change(|inner| {
            inner.held_bytes = 0;
            std::mem::take(&mut inner.held)
        });
        held.unwrap_or_default()
    }

    /// Whether a subscription to a channel waits for its answer.
    pub(crate) fn is_asked(&self, channel: &str) -> bool {
        let place = self.0.borrow();
        let mut asked = place.iter().flat_map(|inner| &inner.asked);
        asked.any(|asked| &*asked.channel == channel)
    }

    pub(crate) fn ask(&self, asked: Asked) {
        self.add(|inner| inner.asked.push(asked));
    }

    /// What was asked for a channel, now that its answer is there.
    pub(crate) fn answered(&self, channel: &str) -> Option<Asked> {
        self.change(|inner| {
            let at = inner.asked.iter().position(|asked| &*asked.channel == channel)?;
            Some(inner.asked.remove(at))
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
                while pending.hold(rpc(bytes)) {
                    count += 1;
                }
                assert_eq!(count, held, "{bytes} bytes each");
                assert_eq!(pending.take_held().len(), held);
                assert!(!pending.has_held());
            }
        }
    }
}
