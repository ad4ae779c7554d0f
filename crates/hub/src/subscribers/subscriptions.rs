//! The subscriptions of one connection. A single one, the usual case, takes no memory of its own.

/// A subscription of a connection to a topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub(super) topic: u32,
    pub(super) state: SubState,
}

/// The state of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubState {
    /// The shard has not replied yet.
    Pending,
    /// The shard has not replied yet, and the subscription then ends.
    Ending,
    /// Subscribed, with the index among the topic's subscribers.
    Subscribed { at: u32 },
}

/// All subscriptions of a connection.
#[derive(Debug, Default)]
pub(super) enum Subscriptions {
    #[default]
    None,
    One(Subscription),
    #[expect(
        clippy::box_collection,
        reason = "a rare state must not widen every connection"
    )]
    Many(Box<Vec<Subscription>>),
}

impl Subscriptions {
    pub(super) fn all(&self) -> &[Subscription] {
        match self {
            Subscriptions::None => &[],
            Subscriptions::One(one) => std::slice::from_ref(one),
            Subscriptions::Many(many) => many,
        }
    }

    pub(super) fn state(&mut self, topic: u32) -> Option<&mut SubState> {
        let all = match self {
            Subscriptions::None => &mut [],
            Subscriptions::One(one) => std::slice::from_mut(one),
            Subscriptions::Many(many) => many.as_mut_slice(),
        };
        let subscription = all.iter_mut().find(|subscription| subscription.topic == topic)?;
        Some(&mut subscription.state)
    }

    pub(super) fn add(&mut self, added: Subscription) {
        match self {
            Subscriptions::None => *self = Subscriptions::One(added),
            Subscriptions::One(one) => *self = Subscriptions::Many(Box::new(vec![*one, added])),
            Subscriptions::Many(many) => {
                // Most connections with several subscriptions have few, so the capacity grows slowly.
                if many.len() == many.capacity() {
                    many.reserve_exact(1 + many.len() / 2);
                }
                many.push(added);
            }
        }
    }

    pub(super) fn remove(&mut self, topic: u32) -> Option<SubState> {
        let at = self
            .all()
            .iter()
            .position(|subscription| subscription.topic == topic)?;
        let removed = match self {
            Subscriptions::None => return None,
            Subscriptions::One(one) => *one,
            Subscriptions::Many(many) => many.swap_remove(at),
        };
        *self = match std::mem::take(self) {
            Subscriptions::Many(many) if many.len() > 1 => Subscriptions::Many(many),
            Subscriptions::Many(many) => many
                .first()
                .map_or(Subscriptions::None, |one| Subscriptions::One(*one)),
            Subscriptions::None | Subscriptions::One(_) => Subscriptions::None,
        };
        Some(removed.state)
    }
}

#[cfg(test)]
mod tests;
