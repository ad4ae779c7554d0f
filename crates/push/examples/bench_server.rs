//! The target of `ringmain bench push`: `cargo run -p ringmain-push --example bench_server -- ADDRESS KEY [--workers=N]
//! [NAMESPACE[=RULE,…]]…`
//!
//! Any client may subscribe; programs publish with the key. Rules of a namespace: `keep=N` publications, `every=MILLISECONDS` for
//! conflation, `cache`, and the policy for slow consumers: `disconnect`, `drop_old`, `drop_new`, `conflate`, `resync`. Without a name
//! (`=RULE,…`) they are those of channels without a namespace.
//!
//! Besides, `POST /pub` publishes each line of its body without a key: a channel, a space and JSON, as sent by the client of the peers'
//! measurements (`bench/push.py`).

#![expect(
    clippy::disallowed_macros,
    reason = "it never runs in a simulation: each worker is a thread, which has a publisher"
)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_push::{Namespace, Options, Publisher};
use ringmain_web::{App, Error, Exit, Reply, Request, Result};

/// Subscriptions of a client.
const SUBSCRIPTIONS: usize = 1024;

thread_local! {
    static PUBLISHER: RefCell<Option<Publisher>> = const { RefCell::new(None) };
}

fn main() -> Exit {
    let mut words = std::env::args().skip(1);
    let addr = words.next().unwrap_or_else(|| "127.0.0.1:8000".into());
    let mut options = Options {
        anonymous: true,
        api_key: Some(words.next().unwrap_or_else(|| "secret".into())),
        ..Options::default()
    };
    options.limits.subscriptions = SUBSCRIPTIONS;
    let mut config = Config::default();
    for word in words {
        // Over io_uring each worker can have as many clients as the process may open files.
        if let Some(workers) = word.strip_prefix("--workers=") {
            config.workers = Some(workers.parse().expect("a number of workers"));
            continue;
        }
        let (name, rules) = word.split_once('=').unwrap_or((&word, ""));
        let namespace = namespace(rules);
        match name {
            "" => options.default_namespace = namespace,
            name => drop(options.namespaces.insert(name.to_owned(), namespace)),
        }
    }
    let app = App::new().post("/pub", lines);
    let app = ringmain_push::serve_with(app, options, |_, publisher| {
        PUBLISHER.with_borrow_mut(|own| *own = Some(publisher));
    });
    app.run_with(&addr, config)
}

fn lines(request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    PUBLISHER.with_borrow(|publisher| {
        let publisher = publisher.as_ref().expect("given before the first request");
        for line in request.text()?.lines() {
            let (channel, json) = line
                .split_once(' ')
                .ok_or_else(|| Error::bad_request("expected CHANNEL JSON in each line"))?;
            publisher
                .publish(&Arc::from(channel), json.as_bytes())
                .map_err(|why| Error::new(503, why.to_string()))?;
        }
        reply.text("")
    })
}

fn namespace(text: &str) -> Namespace {
    let mut namespace = Namespace::default();
    let rules = &mut namespace.channel_options;
    let keep = |publications| HistoryOptions {
        publications,
        bytes: 1 << 20,
        ttl: Duration::from_secs(300),
    };
    for rule in text.split(',').filter(|rule| !rule.is_empty()) {
        let (name, value) = rule.split_once('=').unwrap_or((rule, ""));
        let number = || value.parse().expect("a number behind the rule's =");
        match name {
            "keep" => {
                rules.history = Some(keep(number()));
                namespace.recovery = true;
            }
            "every" => {
                rules.conflation_interval = Some(Duration::from_millis(number() as u64));
                rules.history.get_or_insert(keep(1));
            }
            "cache" => {
                rules.cache_recovery = true;
                rules.history.get_or_insert(keep(1));
            }
            "disconnect" => rules.slow_consumer = SlowConsumerPolicy::Disconnect,
            "drop_old" => rules.slow_consumer = SlowConsumerPolicy::DropOld,
            "drop_new" => rules.slow_consumer = SlowConsumerPolicy::DropNew,
            "conflate" => rules.slow_consumer = SlowConsumerPolicy::Conflate,
            "resync" => rules.slow_consumer = SlowConsumerPolicy::Resync,
            other => panic!("expected keep, every, cache or a policy for slow consumers, found {other}"),
        }
    }
    namespace
}
