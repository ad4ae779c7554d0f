//! Listeners as the configuration has them: opened and closed by the engine when it changes.

use ringmain_engine::{Addr, BoundListener, EngineError, ListenOptions, Listeners};

use super::{Followed, Fronts, NextFronts};
use crate::model::Name;
use crate::table::{Outcome, Place, Problem};

/// Addresses that were bound for a change, in its order.
pub(crate) type Bindings = Vec<Option<BoundListener>>;

/// All listeners, and what opens and closes them.
#[derive(Debug, Default)]
pub(crate) struct Doors {
    pub(crate) fronts: Fronts,
    /// `None`: the engine does not run yet, and opens at its start what there was first.
    engine: Option<(Listeners, ListenOptions)>,
    /// Nothing was followed so far.
    begun: bool,
    /// Changes before the engine ran: those that it is to close again.
    missed: Vec<u32>,
    /// And whether there were any.
    has_missed: bool,
}

impl Doors {
    /// From now on they follow. Whether there was a change that they could not follow.
    pub(crate) fn follow_by(&mut self, listeners: Listeners, options: ListenOptions) -> bool {
        self.missed.drain(..).for_each(|number| listeners.close(number));
        self.engine = Some((listeners, options));
        std::mem::take(&mut self.has_missed)
    }

    /// Binds the addresses that are new, in their order, before anything of what was prepared holds. The kernel queues connections
    /// there from now on. Those of listeners whose names `is_required` does not select are left to [`Doors::turn`].
    ///
    /// # Errors
    /// Those that cannot be bound: then no address is bound or closed.
    pub(crate) fn bind(
        &self,
        next: &NextFronts,
        is_required: &dyn Fn(&Name) -> bool,
    ) -> Result<Bindings, Vec<Problem>> {
        let Some((engine, options)) = &self.engine else {
            return Ok(Vec::new());
        };
        let mut bound = Vec::new();
        let mut closed = Vec::new();
        let mut problems = Vec::new();
        for (addr, listener) in next.opened() {
            if !is_required(listener) {
                bound.push(None);
                continue;
            }
            let mut binding = engine.bind(addr, options);
            if binding.is_err() {
                // Listeners that are gone may be in its way: `0.0.0.0:80` where `127.0.0.1:80` is new.
                let in_the_way = self.fronts.closing(next).into_iter();
                let in_the_way =
                    in_the_way.filter(|(_, gone)| overlaps(gone, addr) && !closed.contains(gone));
                let in_the_way: Vec<_> = in_the_way.collect();
                if !in_the_way.is_empty() {
                    in_the_way.iter().for_each(|(number, _)| engine.close(*number));
                    binding = engine.bind(addr, options);
                    closed.extend(in_the_way.into_iter().map(|(_, addr)| addr));
                }
            }
            match binding {
                Ok(binding) => bound.push(Some(binding)),
                Err(error) => problems.push(unopened(listener, &error)),
            }
        }
        if problems.is_empty() {
            return Ok(bound);
        }
        drop(bound);
        for (number, addr) in self.fronts.closing(next) {
            if closed.contains(&addr)
                && let Err(error) = engine.open(number, &addr, options)
            {
                log::error!(
                    "{addr} was closed for a change that was refused, and cannot be opened again: {error}"
                );
            }
        }
        Err(problems)
    }

    /// Closes what is gone, has connections become what they are to be, and opens what is new, or starts what was bound for it.
    /// Returns what could not be opened.
    pub(crate) fn turn(&mut self, followed: &Followed, bound: Bindings) -> Vec<Problem> {
        let Some((engine, options)) = &self.engine else {
            followed
                .changed
                .iter()
                .for_each(|number| self.fronts.enter(*number));
            if std::mem::replace(&mut self.begun, true) {
                self.has_missed = true;
                self.missed.extend(&followed.closed);
                followed
                    .opened
                    .iter()
                    .for_each(|(number, ..)| self.fronts.failed(*number));
            }
            return Vec::new();
        };
        // First: what is gone may have what is new in its place.
        for number in &followed.closed {
            engine.close(*number);
        }
        followed
            .changed
            .iter()
            .for_each(|number| self.fronts.enter(*number));
        let mut problems = Vec::new();
        let mut bound = bound.into_iter();
        for (number, addr, listener) in &followed.opened {
            let opened = match bound.next().flatten() {
                Some(bound) => engine.start(*number, bound),
                None => engine.open(*number, addr, options),
            };
            match opened {
                Ok(opened) => log::info!("listening on {opened}"),
                Err(error) => {
                    self.fronts.failed(*number);
                    problems.push(unopened(listener, &error));
                }
            }
        }
        problems
    }

    /// The addresses to listen at when the engine starts, in the order of their numbers.
    pub(crate) fn addrs(&self) -> Vec<Addr> {
        self.fronts.addrs()
    }
}

fn unopened(listener: &Name, error: &EngineError) -> Problem {
    Problem {
        place: Place::Listener(listener.clone()),
        part: "addresses",
        expected: "an address that can be listened at".to_owned(),
        found: error.to_string(),
        outcome: Outcome::LeftOut,
    }
}

/// Whether a listener at one address may keep another from being bound.
fn overlaps(one: &Addr, other: &Addr) -> bool {
    match (one, other) {
        (Addr::Inet(one), Addr::Inet(other)) => {
            let any = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && (any || one.ip() == other.ip())
        }
        _ => one == other,
    }
}
