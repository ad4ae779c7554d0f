//! `ringmain feed`: a made-up market, published at a rate, whether or not the receiver keeps up (an open loop).
//!
//! ```text
//! clock ─▶ pace: so many are due ─▶ trades of the market ─▶ line: a sink (standard output, NATS, push server), made again if lost
//!            └─ due for too long ─▶ left out, and counted
//! ```

mod connection;
mod http;
mod schedule;
mod sink;
mod trades;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use ringmain_load::report::amount;
use ringmain_sys::clock;

use self::connection::Line;
use self::schedule::Pace;
use self::sink::{Sink, Target, Trouble};
use self::trades::Trades;
use crate::args::feed::Feed as Args;
use crate::bench::interrupt::Interrupt;
use crate::error::Failure;
use crate::limits::{FEED_LOOK, FEED_STEP, FEED_WAITING};

/// Does what the command line says.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let target = Arc::new(sink::target(args)?);
    let interrupt = crate::bench::prepare(args.receiver.quiet)?;
    let Some(sink) = first(&target, &interrupt)? else {
        return Ok(());
    };
    let market = &args.market;
    let seed = market
        .seed
        .unwrap_or_else(|| clock::realtime().as_nanos() as u64 & 0xffff_ffff);
    let say = |text: &str| {
        if !args.receiver.quiet {
            // Nobody is left to hear of a broken standard error.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    };
    say(&format!(
        "{} trades a second of {} shares to {}, seed {seed}",
        amount::number(market.rate),
        market.symbols,
        target.shown()
    ));
    let began = clock::monotonic();
    let mut feed = Feed {
        trades: Trades::new(seed, market.symbols, market.distribution, market.size),
        pace: Pace::new(market.rate, market.duration.map(|time| time.0)),
        line: Line::Open(sink),
        trouble: String::new(),
        target,
        interrupt,
    };
    let ended = feed.go(&|| clock::monotonic() - began);
    feed.pace.give_up(feed.line.pending());
    say(&feed.pace.summary(clock::monotonic() - began));
    let failure = ended.err().or_else(|| match *feed.target {
        // A reader may take as little as it likes.
        Target::Lines => None,
        Target::Nats { .. } | Target::Push { .. } => feed.pace.failure(),
    });
    match failure {
        Some(why) => Err(Failure::Other(format!("{}: {why}", feed.target.shown()))),
        None => Ok(()),
    }
}

/// Connects. `None`: Ctrl-C came first.
fn first(target: &Arc<Target>, interrupt: &Interrupt) -> Result<Option<Sink>, Failure> {
    let line = Line::open(target).map_err(no_thread)?;
    while !interrupt.came() {
        match line.opened(FEED_LOOK) {
            Some(Ok(sink)) => return Ok(Some(sink)),
            Some(Err(Trouble::Lost(why) | Trouble::Refused(why))) => {
                return Err(Failure::Other(format!("{}: {why}", target.shown())));
            }
            Some(Err(Trouble::Over)) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

fn no_thread(error: std::io::Error) -> Failure {
    Failure::Other(format!("no thread to connect: {error}"))
}

/// While it runs.
struct Feed {
    trades: Trades,
    pace: Pace,
    line: Line,
    /// Why there is no connection, as it was said last.
    trouble: String,
    target: Arc<Target>,
    interrupt: Interrupt,
}

impl Feed {
    /// Goes on to the end; `clock` says how much time has passed.
    ///
    /// # Errors
    /// Why it cannot.
    fn go(&mut self, clock: &dyn Fn() -> Duration) -> Result<(), String> {
        loop {
            let passed = clock();
            self.pace.leave_out(passed, self.line.is_open());
            let interrupted = self.interrupt.came();
            if self.pace.is_over(passed, interrupted, self.line.pending()) {
                return Ok(());
            }
            match self.turn(passed, interrupted) {
                Ok(()) => {}
                Err(Trouble::Over) => return Ok(()),
                Err(Trouble::Refused(why)) => return Err(why),
                Err(Trouble::Lost(why)) => self.lose(passed, why),
            }
        }
    }

    fn turn(&mut self, passed: Duration, interrupted: bool) -> Result<(), Trouble> {
        match &mut self.line {
            Line::Open(sink) => {
                while self.pace.is_due(passed) && !interrupted && sink.waiting() < FEED_WAITING {
                    let (symbol, json) = self.trades.next(self.pace.number());
                    sink.put(symbol, json)?;
                    self.pace.made += 1;
                }
                sink.carry_on(FEED_STEP)?;
                if let Some((count, why)) = sink.refusals()
                    && let Some(why) = self.pace.refuse(count, why)
                {
                    log::warn!("{} does not accept publications: {why}", self.target.shown());
                }
                let rest = match sink.pending() {
                    0 => self.pace.rest(passed),
                    _ => FEED_STEP,
                };
                self.interrupt.pause(rest);
            }
            Line::Opening(_) => {
                if let Some(outcome) = self.line.opened(FEED_LOOK) {
                    self.line = Line::Open(outcome?);
                    log::warn!("{}: connected again", self.target.shown());
                    self.trouble.clear();
                }
            }
            Line::Waiting(until) if passed >= *until => {
                self.line = Line::open(&self.target).map_err(|error| Trouble::Lost(error.to_string()))?;
            }
            Line::Waiting(_) => {
                self.interrupt.pause(FEED_STEP);
            }
        }
        Ok(())
    }

    /// The connection is gone, or could not be had again.
    fn lose(&mut self, passed: Duration, why: String) {
        if self.line.is_open() {
            self.pace.lose(self.line.pending());
        }
        if self.trouble != why {
            log::warn!("{}: {why}; it is tried again", self.target.shown());
            self.trouble = why;
        }
        self.line = Line::wait(passed);
    }
}
