//! What the tests of Centrifuge's client SDKs connect to: `cargo run -p ringmain-push --example sdk_server [ADDRESS]`.
//!
//! Anybody is let in and may do anything; not for anything but tests.

use std::time::Duration;

use ringmain_hub::history::Keep;
use ringmain_push::{Namespace, Options};
use ringmain_web::{App, Exit};

fn main() -> Exit {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".into());
    let plain = Namespace::default();
    let mut open = Namespace {
        publish: true,
        history: true,
        presence: true,
        ..plain
    };
    open.rules.presence = true;
    open.rules.join_leave = true;
    let mut kept = Namespace {
        recovery: true,
        ..open
    };
    kept.rules.keep = Some(Keep {
        publications: 100,
        bytes: 1 << 20,
        time: Duration::from_secs(300),
    });
    let options = Options {
        plain: open,
        namespaces: [("recovery".to_owned(), kept)].into(),
        anonymous: true,
        origins: vec!["*".to_owned()],
        api_key: Some("secret".to_owned()),
        ..Options::default()
    };
    ringmain_push::serve(App::new(), options).run(&addr)
}
