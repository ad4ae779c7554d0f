//! What one connection listens to: most listen to one channel, and take no memory of their own for it.

/// A subscription of a connection, by its topic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subscription {
    pub(super) topic: u32,
    pub(super) stage: Stage,
}

/// How far a subscription is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// For its answer.
    Waiting,
    /// The same; then it ends.
    Ending,
    /// Its place among the topic's subscribers.
    Listens { at: u32 },
}

/// All of one connection's.
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

    pub(super) fn stage(&mut self, topic: u32) -> Option<&mut Stage> {
        let all = match self {
            Subscriptions::None => &mut [],
            Subscriptions::One(one) => std::slice::from_mut(one),
            Subscriptions::Many(many) => many.as_mut_slice(),
        };
        let own = all.iter_mut().find(|own| own.topic == topic)?;
        Some(&mut own.stage)
    }

    pub(super) fn add(&mut self, added: Subscription) {
        match self {
            Subscriptions::None => *self = Subscriptions::One(added),
            Subscriptions::One(one) => *self = Subscriptions::Many(Box::new(vec![*one, added])),
            Subscriptions::Many(many) => {
                // Most of those that listen to more than one channel listen to few: room is made little by little.
                if many.len() == many.capacity() {
                    many.reserve_exact(1 + many.len() / 2);
                }
                many.push(added);
            }
        }
    }

    pub(super) fn remove(&mut self, topic: u32) -> Option<Stage> {
        let at = self.all().iter().position(|own| own.topic == topic)?;
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
        Some(removed.stage)
    }
}

#[cfg(test)]
mod tests;
