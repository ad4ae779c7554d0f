//! `ringmain feed`: a made-up market, published at a rate, whether or not the receiver keeps up (an open loop).
//!
//! ```text
//! clock ─▶ so many are due ─▶ market: trades ─▶ sink: standard output, NATS, push server
//!            └─ due for too long ─▶ left out, and counted
//! ```

mod http;
mod sink;

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use fastrand::Rng;
use ringmain_load::report::amount;
use ringmain_sys::clock;

use self::sink::{Sink, Trouble};
use crate::args::feed::{Distribution, Feed};
use crate::bench::interrupt::Interrupt;
use crate::failure::Failure;
use crate::limits::{FEED_AGAIN, FEED_BEHIND, FEED_LOOK, FEED_STEP, FEED_WAITING};
use crate::market::{self, Listing, Market};

/// Does what the command line says.
pub(crate) fn run(args: &Feed) -> Result<(), Failure> {
    let target = sink::target(args)?;
    let interrupt = crate::bench::prepare(args.receiver.quiet)?;
    let mut sink = target.open().map_err(|trouble| match trouble {
        Trouble::Lost(why) => Failure::Other(format!("{}: {why}", target.shown())),
        Trouble::Over => Failure::Other("nobody reads standard output".to_owned()),
    })?;
    let seed = args
        .market
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
        amount::number(args.market.rate),
        args.market.symbols,
        target.shown()
    ));
    let mut trades = Trades::new(
        seed,
        args.market.symbols,
        args.market.distribution,
        args.market.size,
    );
    let mut pace = Pace::new(args.market.rate, args.market.duration.map(|time| time.0));
    let mut again: Option<Duration> = None;
    let began = clock::monotonic();
    loop {
        let passed = clock::monotonic() - began;
        if pace.is_over(passed, interrupt.came(), sink.waiting()) {
            break;
        }
        if let Some(at) = again {
            if passed < at {
                interrupt.pause(FEED_STEP);
                pace.leave_out(passed);
                continue;
            }
            again = target
                .open()
                .map(|opened| sink = opened)
                .err()
                .map(|_| passed + FEED_AGAIN);
            continue;
        }
        match step(&mut sink, &mut pace, &mut trades, passed, &interrupt) {
            Ok(()) => {}
            Err(Trouble::Over) => break,
            Err(Trouble::Lost(why)) => {
                log::error!("{}: {why}; it is tried again", target.shown());
                pace.lost += 1;
                again = Some(passed + FEED_AGAIN);
                sink = Sink::Nobody;
            }
        }
    }
    say(&pace.summary(clock::monotonic() - began, sink.refused()));
    match (pace.made, pace.lost) {
        (0, 1..) => Err(Failure::Other(format!(
            "{}: nothing was published",
            target.shown()
        ))),
        _ => Ok(()),
    }
}

/// Makes what is due and has it sent.
fn step(
    sink: &mut Sink,
    pace: &mut Pace,
    trades: &mut Trades,
    passed: Duration,
    interrupt: &Interrupt,
) -> Result<(), Trouble> {
    pace.leave_out(passed);
    while pace.is_due(passed) && !interrupt.came() && sink.waiting() < FEED_WAITING {
        let (symbol, json) = trades.next(pace.number());
        sink.put(symbol, json)?;
        pace.made += 1;
    }
    if sink.waiting() == 0 {
        interrupt.pause(FEED_STEP);
    }
    sink.carry_on(FEED_LOOK)
}

/// How many are due, were made and were left out.
#[derive(Debug)]
struct Pace {
    rate: f64,
    duration: Option<Duration>,
    made: u64,
    left_out: u64,
    /// Times that the connection was lost.
    lost: u64,
    /// When it was to end for the first time it was looked at.
    ends: Option<Duration>,
}

impl Pace {
    fn new(rate: f64, duration: Option<Duration>) -> Pace {
        Pace {
            rate,
            duration,
            made: 0,
            left_out: 0,
            lost: 0,
            ends: None,
        }
    }

    /// Of the next trade.
    fn number(&self) -> u64 {
        self.made + self.left_out
    }

    fn due(&self, passed: Duration) -> u64 {
        let passed = self.duration.map_or(passed, |duration| duration.min(passed));
        (passed.as_secs_f64() * self.rate) as u64
    }

    fn is_due(&self, passed: Duration) -> bool {
        self.number() < self.due(passed)
    }

    /// Those that are due for too long.
    fn leave_out(&mut self, passed: Duration) {
        let late = self.due(passed.saturating_sub(FEED_BEHIND));
        self.left_out += late.saturating_sub(self.number());
    }

    /// Whether nothing more is to be done. What waits at the end is given as long as it is good for.
    fn is_over(&mut self, passed: Duration, interrupted: bool, waiting: usize) -> bool {
        if !interrupted && self.duration.is_none_or(|duration| passed < duration) {
            return false;
        }
        let ends = *self.ends.get_or_insert(passed);
        let all_made = interrupted || !self.is_due(passed);
        if all_made && waiting == 0 {
            return true;
        }
        let over = passed.saturating_sub(ends) >= FEED_BEHIND;
        if over && !interrupted {
            self.left_out += self.due(passed).saturating_sub(self.number());
        }
        over
    }

    fn summary(&self, took: Duration, refused: Option<(u64, String)>) -> String {
        let mut text = format!("{} trades in {:.1} s", self.made, took.as_secs_f64());
        // Writing to a string cannot fail.
        if self.left_out > 0 {
            let all = self.number();
            let percent = 100.0 * self.left_out as f64 / all as f64;
            let _ = write!(
                text,
                "; {} of {all} that were due ({percent:.1} %) were left out: the receiver, or this machine, is too slow for the rate",
                self.left_out
            );
        }
        if self.lost > 0 {
            let _ = write!(text, "; the connection was lost {} times", self.lost);
        }
        if let Some((count, last)) = refused {
            let _ = write!(text, "; {count} were refused, the last one with {last}");
        }
        text
    }
}

/// One after the other.
struct Trades {
    listings: Vec<Listing>,
    market: Market,
    random: Rng,
    /// By listing, its weight and those of all before it.
    weights: Vec<f64>,
    size: usize,
    /// Kept for the memory alone.
    json: String,
}

impl Trades {
    fn new(seed: u64, symbols: usize, distribution: Distribution, size: Option<u32>) -> Trades {
        let mut random = Rng::with_seed(seed);
        let listings = market::listings(symbols, &mut random);
        let mut sum = 0.0;
        let weights = (1..=listings.len()).map(|place| {
            sum += match distribution {
                Distribution::Zipf => 1.0 / place as f64,
                Distribution::Uniform => 1.0,
            };
            sum
        });
        let weights = weights.collect();
        Trades {
            market: Market::new(random.u64(..), &listings),
            listings,
            random,
            weights,
            size: size.map_or(0, |size| size as usize),
            json: String::new(),
        }
    }

    /// The next trade: its share, and what it says.
    fn next(&mut self, number: u64) -> (&str, &str) {
        const PAD: &str = r#","pad":"""#;
        let all = self.weights.last().copied().unwrap_or_default();
        let drawn = self.random.f64() * all;
        let index = self.weights.partition_point(|weight| *weight <= drawn);
        let index = index.min(self.listings.len() - 1);
        let quote = self.market.trade(index);
        let symbol = &self.listings[index].symbol;
        self.json.clear();
        let _ = write!(
            self.json,
            r#"{{"symbol":"{symbol}","price":{:.2},"change":{:.2},"volume":{},"n":{number}"#,
            quote.price, quote.change, quote.volume
        );
        let pad = self.size.saturating_sub(self.json.len() + 1);
        if pad > 0 {
            let _ = write!(
                self.json,
                r#","pad":"{:x<1$}""#,
                "",
                pad.saturating_sub(PAD.len())
            );
        }
        self.json.push('}');
        (symbol, &self.json)
    }
}
