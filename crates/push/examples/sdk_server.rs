//! The server for the tests of Centrifuge's client SDKs: `cargo run -p ringmain-push --example sdk_server [ADDRESS]`.
//!
//! Any client has all permissions, and the secret of tokens is public: for tests only.

use std::time::Duration;

use ringmain_hub::history::HistoryOptions;
use ringmain_push::{DataFormat, KeySet, Namespace, Options, Tokens};
use ringmain_web::{App, Exit};

/// `tests/sdk/sessions.mjs` signs tokens with it.
const SECRET: &[u8] = b"the secret of tests, which is none";

fn main() -> Exit {
    let keys = match KeySet::from_secret(SECRET) {
        Ok(keys) => keys,
        Err(why) => return Exit::Failure(why),
    };
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".into());
    let kept = |publications| {
        let mut namespace = Namespace {
            publish: true,
            history: true,
            presence: true,
            recovery: true,
            ..Namespace::default()
        };
        namespace.channel_options.presence = true;
        namespace.channel_options.join_leave = true;
        namespace.channel_options.delta = true;
        namespace.channel_options.tags_filter = true;
        namespace.channel_options.history = Some(HistoryOptions {
            publications,
            bytes: 1 << 20,
            ttl: Duration::from_secs(300),
        });
        namespace
    };
    let options = Options {
        // The Go SDK expects that presence is disabled.
        default_namespace: {
            let mut plain = kept(100);
            plain.channel_options.presence = false;
            // It publishes bytes that are not JSON, too.
            plain.data_format = DataFormat::Binary;
            plain
        },
        namespaces: [
            ("recovery".to_owned(), kept(100)),
            ("delta".to_owned(), kept(100)),
            ("compact".to_owned(), {
                let mut compact = kept(100);
                compact.channel_options.compaction = true;
                compact
            }),
            ("smallhistory".to_owned(), kept(2)),
            ("personal".to_owned(), kept(100)),
        ]
        .into(),
        anonymous: true,
        tokens: Some(Tokens::new(keys)),
        user_channel: Some("personal".to_owned()),
        origins: vec!["*".to_owned()],
        api_key: Some("secret".to_owned()),
        ..Options::default()
    };
    ringmain_push::serve(App::new(), options).run(&addr)
}
