//! A page with simulated prices, pushed to the browser: `/ticker`.
//!
//! ```text
//! market (simulated, on the first worker) ─▶ one channel per share ─▶ WebSocket or server-sent events ─▶ page
//! ```
//!
//! Without clients the market pauses.

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

/// The page, without other resources.
const PAGE: &str = include_str!("page.html");

/// The content security policy: one script and one style by their digests (a test computes them), requests to this server.
const POLICY: &str = "default-src 'none'; style-src 'sha256-14McipO/EEXzN8F9lABusmiA91o9kUuCtKiAObrk81U='; script-src 'sha256-n/ZyHOocNiwOa016LT/Y/kt9Qk8RKeii2+XYbrQIoRQ='; connect-src 'self'; \
     img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The namespace of the channels `ticker:SYMBOL`.
const NAMESPACE: &str = "ticker";

/// Adds the page and its channels.
pub(crate) fn add_ticker(app: App) -> App {
    let mut prices = Namespace::default();
    // The last price, for new subscribers.
    prices.channel_options.history = Some(HistoryOptions {
        publications: 1,
        bytes: 1024,
        ttl: Duration::from_hours(1),
    });
    prices.channel_options.cache_recovery = true;
    prices.channel_options.conflation_interval = Some(TICKER_INTERVAL);
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

/// Publishes trades, on the first worker.
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
        log::error!("ticker: the task limit of the worker is reached, so no prices are published");
    }
}

fn publish_step(market: &mut Market, channels: &[Arc<str>], publisher: &Publisher) {
    for (index, channel) in channels.iter().enumerate() {
        let Some(trade) = market.maybe_trade(index) else {
            continue;
        };
        // Valid JSON in a known namespace; if a limit is reached, the next trade follows soon.
        let _ = publisher.publish(channel, trade.as_bytes());
    }
}
