//! A page with prices that move, which shows what push does: `/ticker`.
//!
//! ```text
//! market (made up, on the first worker) ─▶ a channel for each share ─▶ WebSocket, or server-sent events ─▶ the page
//! ```
//!
//! The market stands still while nobody looks.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_hub::history::HistoryOptions;
use ringmain_push::{Namespace, Options, Publisher};
use ringmain_web::{App, Reply, Request, Result};

use crate::limits::{TICKER_IDLE_POLL, TICKER_INTERVAL, TICKER_STEP};
use crate::market::{LISTINGS, Market};

/// The page: no file beside it, nothing from elsewhere.
const PAGE: &str = include_str!("page.html");

/// What a browser may do for the page: run its one script and style, by their digests (a test computes them), and ask this
/// server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-vbU6GFr0uBiBNJgJwGZoKI6iT2HMjuq3H3k8KVtblhg='; script-src 'sha256-tCz+DnzFH0GXfqNQKCroyNqhnY7mLR/JO+7abxEI39g='; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Of channels with prices: `ticker:SYMBOL`.
const NAMESPACE: &str = "ticker";

/// Adds the page and its channels.
pub(crate) fn add_ticker(app: App) -> App {
    let mut prices = Namespace::default();
    // The last one, for whoever comes.
    prices.rules.history = Some(HistoryOptions {
        publications: 1,
        bytes: 1024,
        ttl: Duration::from_hours(1),
    });
    prices.rules.cache_recovery = true;
    prices.rules.conflation_interval = Some(TICKER_INTERVAL);
    let options = Options {
        namespaces: [(NAMESPACE.to_owned(), prices)].into(),
        anonymous: true,
        ..Options::default()
    };
    ringmain_push::serve_with(app.get("/ticker", serve_page), options, publish_trades)
}

fn serve_page(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply
        .header("Cache-Control", "no-cache")?
        .header("Content-Security-Policy", POLICY)?
        .header("X-Content-Type-Options", "nosniff")?
        .header("Referrer-Policy", "no-referrer")?;
    reply.html(PAGE)
}

/// Publishes what is traded, from the first worker.
fn publish_trades(cx: &Cx, publisher: Publisher) {
    if cx.worker() != 0 {
        return;
    }
    let own = cx.clone();
    let feed = cx.spawn(async move {
        let mut market = Market::new(own.random(), &LISTINGS);
        let channels = LISTINGS
            .each_ref()
            .map(|listing| Arc::from(format!("{NAMESPACE}:{}", listing.symbol)));
        loop {
            if publisher.clients() == 0 {
                own.sleep(TICKER_IDLE_POLL).await;
                continue;
            }
            publish_step(&mut market, &channels, &publisher);
            own.sleep(TICKER_STEP).await;
        }
    });
    if feed.is_err() {
        log::error!("ticker: the worker has no room for its task, so prices stand still");
    }
}

fn publish_step(market: &mut Market, channels: &[Arc<str>], publisher: &Publisher) {
    for (index, channel) in channels.iter().enumerate() {
        let Some(trade) = market.maybe_trade(index) else {
            continue;
        };
        // It is JSON, in a namespace that is there; where there is no room for it the next one comes soon.
        let _ = publisher.publish(channel, trade.as_bytes());
    }
}
