//! `ringmain feed`: a simulated market, published at a rate that is independent of the receiver (an open loop).
//!
//! ```text
//! clock ─▶ schedule: due trades ─▶ trades of the market ─▶ connection: a sink (standard output, NATS, push server)
//!            └─ overdue ─▶ skipped, and counted
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

use self::connection::SinkConnection;
use self::schedule::Schedule;
use self::sink::{Sink, SinkError, Target};
use self::trades::Trades;
use crate::args::feed::Feed as Args;
use crate::bench::interrupt::Interrupt;
use crate::error::CliError;
use crate::limits::{FEED_IDLE_POLL, FEED_POLL, FEED_QUEUED_BYTES};

/// Runs the command.
///
/// # Errors
/// Fails on a wrong command line, if the receiver cannot be reached, or if no trade is delivered.
pub(crate) fn run(args: &Args) -> Result<(), CliError> {
    let target = Arc::new(sink::parse_target(args)?);
    let interrupt = crate::bench::init_process(args.receiver.quiet)?;
    let Some(sink) = connect_first(&target, &interrupt)? else {
        return Ok(());
    };
    let market = &args.market;
    let seed = market
        .seed
        .unwrap_or_else(|| clock::realtime().as_nanos() as u64 & 0xffff_ffff);
    let say = |text: &str| {
        if !args.receiver.quiet {
            // A broken standard error cannot be reported.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    };
    say(&format!(
        "{} trades per second of {} shares to {}, seed {seed}",
        amount::number(market.rate),
        market.symbols,
        target.display_name()
    ));
    let began = clock::monotonic();
    let mut feed = Feed {
        trades: Trades::new(seed, market.symbols, market.distribution, market.size),
        schedule: Schedule::new(market.rate, market.duration.map(|time| time.0)),
        connection: SinkConnection::Open(sink),
        last_error: String::new(),
        target,
        interrupt,
    };
    let ended = feed.run_loop(&|| clock::monotonic() - began);
    feed.schedule.record_unconfirmed(feed.connection.unconfirmed());
    say(&feed.schedule.summary(clock::monotonic() - began));
    let failure = ended.err().or_else(|| match *feed.target {
        // A reader may close the pipe at any time.
        Target::Lines => None,
        Target::Nats { .. } | Target::Push { .. } => feed.schedule.failure_reason(),
    });
    match failure {
        Some(why) => Err(CliError::Other(format!("{}: {why}", feed.target.display_name()))),
        None => Ok(()),
    }
}

/// Connects. Returns `None` after Ctrl-C.
fn connect_first(target: &Arc<Target>, interrupt: &Interrupt) -> Result<Option<Sink>, CliError> {
    let connection = SinkConnection::open(target).map_err(thread_error)?;
    while !interrupt.is_interrupted() {
        match connection.poll_opened(FEED_IDLE_POLL) {
            Some(Ok(sink)) => return Ok(Some(sink)),
            Some(Err(SinkError::Lost(why) | SinkError::Refused(why))) => {
                return Err(CliError::Other(format!("{}: {why}", target.display_name())));
            }
            Some(Err(SinkError::Closed)) => return Ok(None),
            None => {}
        }
    }
    Ok(None)
}

fn thread_error(error: std::io::Error) -> CliError {
    CliError::Other(format!("cannot start the connecting thread: {error}"))
}

/// The state of a running feed.
struct Feed {
    trades: Trades,
    schedule: Schedule,
    connection: SinkConnection,
    /// The last reported connection error.
    last_error: String,
    target: Arc<Target>,
    interrupt: Interrupt,
}

impl Feed {
    /// Runs until the feed is finished; `clock` returns the time since its start.
    ///
    /// # Errors
    /// Returns the reason if the receiver refuses trades permanently.
    fn run_loop(&mut self, clock: &dyn Fn() -> Duration) -> Result<(), String> {
        loop {
            let passed = clock();
            self.schedule.skip_overdue(passed, self.connection.is_open());
            let interrupted = self.interrupt.is_interrupted();
            if self
                .schedule
                .is_finished(passed, interrupted, self.connection.unconfirmed())
            {
                return Ok(());
            }
            match self.run_once(passed, interrupted) {
                Ok(()) => {}
                Err(SinkError::Closed) => return Ok(()),
                Err(SinkError::Refused(why)) => return Err(why),
                Err(SinkError::Lost(why)) => self.on_connection_lost(passed, why),
            }
        }
    }

    fn run_once(&mut self, passed: Duration, interrupted: bool) -> Result<(), SinkError> {
        match &mut self.connection {
            SinkConnection::Open(sink) => {
                while self.schedule.is_due(passed) && !interrupted && sink.queued_bytes() < FEED_QUEUED_BYTES
                {
                    let (symbol, json) = self.trades.next_trade(self.schedule.next_number());
                    sink.queue_trade(symbol, json)?;
                    self.schedule.made += 1;
                }
                sink.drive(FEED_POLL)?;
                if let Some((count, why)) = sink.take_refusals()
                    && let Some(why) = self.schedule.record_refusal(count, why)
                {
                    log::warn!("{} refuses publications: {why}", self.target.display_name());
                }
                let rest = match sink.unconfirmed() {
                    0 => self.schedule.time_to_next(passed),
                    _ => FEED_POLL,
                };
                self.interrupt.pause(rest);
            }
            SinkConnection::Opening(_) => {
                if let Some(outcome) = self.connection.poll_opened(FEED_IDLE_POLL) {
                    self.connection = SinkConnection::Open(outcome?);
                    log::warn!("{}: reconnected", self.target.display_name());
                    self.last_error.clear();
                }
            }
            SinkConnection::Waiting(until) if passed >= *until => {
                self.connection =
                    SinkConnection::open(&self.target).map_err(|error| SinkError::Lost(error.to_string()))?;
            }
            SinkConnection::Waiting(_) => {
                self.interrupt.pause(FEED_POLL);
            }
        }
        Ok(())
    }

    /// Handles a lost connection, or a failed attempt to reconnect.
    fn on_connection_lost(&mut self, passed: Duration, why: String) {
        if self.connection.is_open() {
            self.schedule.record_loss(self.connection.unconfirmed());
        }
        if self.last_error != why {
            log::warn!("{}: {why}; reconnecting", self.target.display_name());
            self.last_error = why;
        }
        self.connection = SinkConnection::back_off(passed);
    }
}
