//! What waits on a session's behalf: most of the time nothing, which then takes no memory.

use std::cell::RefCell;

use ringmain_hub::protocol::{Command, SubscribeResult};

use crate::handshakes::Handshake;
use crate::seat::{Asked, Joining};

/// See the module.
#[derive(Default)]
pub(crate) struct Pending(RefCell<Option<Box<Inner>>>);

#[derive(Default)]
struct Inner {
    /// It is about to say who it is.
    handshake: Option<Handshake>,
    /// What it is told first, once the last of the channels has answered that it has from the beginning.
    joining: Option<Joining>,
    /// Commands that came before that.
    held: Vec<Command>,
    /// Subscriptions that wait for their answer, with their commands' numbers and whether they recover.
    asked: Vec<Asked>,
}

impl Inner {
    fn is_empty(&self) -> bool {
        let Inner {
            handshake,
            joining,
            held,
            asked,
        } = self;
        handshake.is_none() && joining.is_none() && held.is_empty() && asked.is_empty()
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

    /// Adds what came of a channel to what it is told first; gives it back to whoever was told that already.
    pub(crate) fn joins(&self, channel: &str, result: SubscribeResult) -> Option<SubscribeResult> {
        let mut result = Some(result);
        self.joining(|joining| {
            if let Some(result) = result.take() {
                joining.connect.subs.insert(channel.to_owned(), result);
            }
        });
        result
    }

    /// What it is told first, once nothing is waited for.
    pub(crate) fn joined(&self) -> Option<Joining> {
        self.change(|inner| inner.joining.take_if(|joining| joining.left == 0))?
    }

    /// Keeps a command. `false`: it keeps `most` already.
    pub(crate) fn hold(&self, command: Command, most: usize) -> bool {
        self.add(|inner| {
            let has_room = inner.held.len() < most;
            if has_room {
                inner.held.push(command);
            }
            has_room
        })
    }

    pub(crate) fn take_held(&self) -> Vec<Command> {
        let held = self.change(|inner| std::mem::take(&mut inner.held));
        held.unwrap_or_default()
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
