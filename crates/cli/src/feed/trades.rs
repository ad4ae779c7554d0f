//! The sequence of trades: the share of each, and its JSON.

use std::fmt::Write as _;

use fastrand::Rng;

use crate::args::feed::Distribution;
use crate::market::{self, Listing, Market};

/// The trades of a seed.
pub(super) struct Trades {
    listings: Vec<Listing>,
    market: Market,
    random: Rng,
    /// Cumulative weights of the listings.
    weights: Vec<f64>,
    size: usize,
    /// Buffer of the current trade.
    json: String,
}

impl Trades {
    /// Returns the trades of a seed. `size` is the minimum size of a trade in bytes.
    pub(super) fn new(seed: u64, symbols: usize, distribution: Distribution, size: Option<u32>) -> Trades {
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

    /// Returns the share and the JSON of the next trade.
    pub(super) fn next_trade(&mut self, number: u64) -> (&str, &str) {
        const PAD: &str = r#","pad":"""#;
        let all = self.weights.last().copied().unwrap_or_default();
        let drawn = self.random.f64() * all;
        let index = self.weights.partition_point(|weight| *weight <= drawn);
        let index = index.min(self.listings.len() - 1);
        let quote = self.market.trade_share(index);
        let symbol = &self.listings[index].symbol;
        self.json.clear();
        // Writing to a string cannot fail.
        let _ = write!(
            self.json,
            r#"{{"symbol":"{symbol}","price":{:.2},"change":{:.2},"volume":{},"n":{number}"#,
            quote.price, quote.change, quote.volume
        );
        let pad = self.size.saturating_sub(self.json.len() + 1);
        if pad > 0 {
            let fill = pad.saturating_sub(PAD.len());
            let _ = write!(self.json, r#","pad":"{:x<1$}""#, "", fill);
        }
        self.json.push('}');
        (symbol, &self.json)
    }
}
