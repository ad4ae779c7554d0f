//! A simulated market: prices follow a random walk. Used by the ticker page and by `ringmain feed`.

use std::borrow::Cow;

use fastrand::Rng;

/// A share.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) symbol: Cow<'static, str>,
    /// The first price.
    opens_at: f64,
}

const fn listing(symbol: &'static str, opens_at: f64) -> Listing {
    Listing {
        symbol: Cow::Borrowed(symbol),
        opens_at,
    }
}

/// Fictitious shares; the page has their names.
pub(crate) static LISTINGS: [Listing; 20] = [
    listing("ARDN", 48.20),
    listing("BLKW", 131.75),
    listing("CNDR", 22.61),
    listing("DVRL", 87.40),
    listing("ELMT", 312.90),
    listing("FALC", 64.15),
    listing("GRNV", 39.88),
    listing("HLYN", 156.32),
    listing("INKW", 11.47),
    listing("JNPR", 73.05),
    listing("KSTL", 204.60),
    listing("LMNR", 28.93),
    listing("MRSH", 55.70),
    listing("NRTH", 92.18),
    listing("ORCH", 17.26),
    listing("PLMB", 45.09),
    listing("QRRY", 68.84),
    listing("RVEN", 121.50),
    listing("STLW", 34.77),
    listing("TNDL", 83.36),
];

/// Returns `count` shares: those of the page, then generated ones (`XAAAA`, `XAAAB`, …) with first prices from 10 to 200.
pub(crate) fn listings(count: usize, random: &mut Rng) -> Vec<Listing> {
    let made_up = (0..count.saturating_sub(LISTINGS.len())).map(|number| {
        let letter = |place: u32| char::from(b'A' + (number / 26_usize.pow(place) % 26) as u8);
        Listing {
            symbol: (0..4)
                .rev()
                .map(letter)
                .fold("X".to_owned(), |name, c| name + c.encode_utf8(&mut [0; 4]))
                .into(),
            opens_at: 10.0 + 190.0 * random.f64(),
        }
    });
    LISTINGS.iter().take(count).cloned().chain(made_up).collect()
}

/// Largest relative price change of a trade, and the strength of the reversion to the first price.
const MOVE: f64 = 0.002;
const MEAN_REVERSION: f64 = 0.002;

/// The shares and their prices.
pub(crate) struct Market {
    random: Rng,
    listings: Vec<Listing>,
    /// By listing.
    quotes: Vec<Quote>,
}

/// The last trade of a share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quote {
    pub(crate) price: f64,
    /// In percent of the first price.
    pub(crate) change: f64,
    /// Total number of traded shares.
    pub(crate) volume: u64,
}

impl Market {
    pub(crate) fn new(seed: u64, listings: &[Listing]) -> Market {
        let quotes = listings.iter().map(|listing| Quote {
            price: listing.opens_at,
            change: 0.0,
            volume: 0,
        });
        Market {
            random: Rng::with_seed(seed),
            quotes: quotes.collect(),
            listings: listings.to_vec(),
        }
    }

    /// Trades a share with a probability of 60 %, and returns the trade as JSON.
    pub(crate) fn maybe_trade(&mut self, index: usize) -> Option<String> {
        if self.random.u8(0..10) < 4 {
            return None;
        }
        let Quote {
            price,
            change,
            volume,
        } = self.trade_share(index);
        Some(format!(
            r#"{{"price":{price:.2},"change":{change:.2},"volume":{volume}}}"#
        ))
    }

    /// Trades a share, and returns its new quote.
    pub(crate) fn trade_share(&mut self, index: usize) -> Quote {
        let (opens_at, quote) = (self.listings[index].opens_at, &mut self.quotes[index]);
        // A sum of three random numbers: small changes are frequent, large ones rare.
        let sum: f64 = (0..3).map(|_| self.random.f64() * 2.0 - 1.0).sum();
        let away = quote.price / opens_at - 1.0;
        quote.price *= 1.0 + MOVE * sum / 3.0 - MEAN_REVERSION * away;
        quote.volume += self.random.u64(1..400);
        quote.change = 100.0 * (quote.price / opens_at - 1.0);
        *quote
    }
}
