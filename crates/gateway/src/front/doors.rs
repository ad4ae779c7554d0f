//! Listeners as the configuration has them: opened and closed by the engine when it changes.

use ringmain_engine::{Addr, ListenOptions, Listeners};

use super::{Followed, Fronts};
use crate::table::{Outcome, Place, Problem};

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

    /// Closes what is gone, has connections become what they are to be, and opens what is new. Returns what could not be opened.
    pub(crate) fn turn(&mut self, followed: &Followed) -> Vec<Problem> {
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
        for (number, addr, listener) in &followed.opened {
            match engine.open(*number, addr, options) {
                Ok(opened) => log::info!("listening on {opened}"),
                Err(error) => {
                    self.fronts.failed(*number);
                    problems.push(Problem {
                        place: Place::Listener(listener.clone()),
                        part: "addresses",
                        expected: "an address that can be listened at".to_owned(),
                        found: error.to_string(),
                        outcome: Outcome::LeftOut,
                    });
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
