//! What the server used from each time at which all clients were cut off until all stood again.
//!
//! Knows when by what threads of clients tell; they count their clients themselves.

use std::time::Duration;

use super::figures::Outage;

/// All such times of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Outages(Vec<Used>);

#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// The server's CPU time when the first thread cut off its clients.
    begun: Option<Duration>,
    /// Threads that have all of theirs back.
    threads: usize,
    cpu: Option<Duration>,
}

impl Outages {
    /// A thread cuts off its clients; the server has used so much by now, asked for once each time.
    pub(super) fn cut<E>(
        &mut self,
        number: u16,
        cpu: impl FnOnce() -> Result<Option<Duration>, E>,
    ) -> Result<(), E> {
        let number = usize::from(number);
        if self.0.len() <= number {
            self.0.resize(number + 1, Used::default());
            self.0[number].begun = cpu()?;
        }
        Ok(())
    }

    /// A thread of `threads` has all of its clients back; the same is asked for when it is the last one.
    pub(super) fn back<E>(
        &mut self,
        number: u16,
        threads: usize,
        cpu: impl FnOnce() -> Result<Option<Duration>, E>,
    ) -> Result<(), E> {
        let Some(used) = self.0.get_mut(usize::from(number)) else {
            return Ok(());
        };
        used.threads += 1;
        if used.threads == threads {
            used.cpu = cpu()?
                .zip(used.begun)
                .map(|(end, begun)| end.saturating_sub(begun));
        }
        Ok(())
    }

    /// Says it of those that were counted.
    pub(super) fn tell(&self, outages: &mut [Outage]) {
        for (outage, used) in outages.iter_mut().zip(&self.0) {
            outage.server_cpu = used.cpu;
        }
    }
}

#[cfg(test)]
mod tests;
