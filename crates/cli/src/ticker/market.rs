//! A market that is made up: prices that wander.

use fastrand::Rng;

/// What is traded.
pub(super) struct Listing {
    pub(super) symbol: &'static str,
    /// What a share costs at first.
    opens_at: f64,
}

const fn listing(symbol: &'static str, opens_at: f64) -> Listing {
    Listing { symbol, opens_at }
}

/// None of them is real. The page has their names.
pub(super) const LISTINGS: [Listing; 20] = [
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

/// Of a step's moves, how large they are at most (a share of the price), and how strongly prices are drawn back to where they opened.
const MOVE: f64 = 0.002;
const DRAWN_BACK: f64 = 0.002;

/// What is traded, and for how much.
pub(super) struct Market {
    random: Rng,
    /// By listing.
    quotes: Vec<Quote>,
}

#[derive(Clone, Copy)]
struct Quote {
    price: f64,
    volume: u64,
}

impl Market {
    pub(super) fn new(seed: u64) -> Market {
        let quotes = LISTINGS.iter().map(|listing| Quote {
            price: listing.opens_at,
            volume: 0,
        });
        Market {
            random: Rng::with_seed(seed),
            quotes: quotes.collect(),
        }
    }

    /// Perhaps there is a trade. Returns what it says, as JSON.
    pub(super) fn trade(&mut self, index: usize) -> Option<String> {
        let (listing, quote) = (&LISTINGS[index], &mut self.quotes[index]);
        if self.random.u8(0..10) < 4 {
            return None;
        }
        // A sum of three is nearer to how prices move than one: small moves often, large ones seldom.
        let sum: f64 = (0..3).map(|_| self.random.f64() * 2.0 - 1.0).sum();
        let away = quote.price / listing.opens_at - 1.0;
        quote.price *= 1.0 + MOVE * sum / 3.0 - DRAWN_BACK * away;
        quote.volume += self.random.u64(1..400);
        let change = 100.0 * (quote.price / listing.opens_at - 1.0);
        let Quote { price, volume } = quote;
        Some(format!(
            r#"{{"price":{price:.2},"change":{change:.2},"volume":{volume}}}"#
        ))
    }
}
