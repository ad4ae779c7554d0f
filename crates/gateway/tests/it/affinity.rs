//! Requests of one client that stay with one endpoint.

use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    Affinity, AffinityBy, Balance, Cookie, HashKey, HeaderChanges, HeaderName, HeaderValue, WeightedBackend,
};

use crate::origin::{Edge, Origin, edge, refusing_addr, to};

on_every_backend! {
    by_cookie,
    by_header,
    by_address,
    sessions_end,
    by_hash,
    by_backend,
}

fn origins() -> Vec<Origin> {
    let one = |body: char| Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{body}"));
    ('a'..='e').map(one).collect()
}

fn serve(engine: Config, origins: &[Origin], by: AffinityBy, lasts: Option<Duration>) -> Edge {
    let addrs: Vec<_> = origins.iter().map(|origin| origin.addr).collect();
    edge(
        engine,
        to(&addrs, |forward, _| {
            forward.affinity = Some(Box::new(Affinity {
                by,
                lasts,
                idle: None,
            }));
        }),
    )
}

fn ask(edge: &Edge, fields: &str) -> crate::support::Answer {
    edge.server
        .ask(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"))
}

fn by_cookie(engine: Config) {
    let origins = origins();
    let cookie = Cookie {
        path: "/shop".into(),
        max_age: Some(Duration::from_secs(60)),
        ..Cookie::default()
    };
    let edge = serve(engine, &origins, AffinityBy::Cookie(cookie), None);
    let first = ask(&edge, "");
    let set = first.field("set-cookie").expect("a cookie").to_owned();
    let (pair, attributes) = set.split_once("; ").expect("attributes");
    assert_eq!(attributes, "Path=/shop; HttpOnly; SameSite=Lax; Max-Age=60");
    for _ in 0..20 {
        let next = ask(&edge, &format!("Cookie: x=y; {pair}\r\n"));
        assert_eq!((next.text(), next.field("set-cookie")), (first.text(), None));
    }
    // A client without a valid name gets an endpoint, and receives its name.
    for wrong in ["ringmain=", "ringmain=zzz", "ringmain=0000000000000001"] {
        assert!(
            ask(&edge, &format!("Cookie: {wrong}\r\n"))
                .field("set-cookie")
                .is_some(),
            "{wrong}"
        );
    }
    let others = (0..40).filter(|_| ask(&edge, "").text() != first.text()).count();
    assert!(others > 10, "without a cookie by chance");
    edge.server.shut_down();
}

fn by_header(engine: Config) {
    let origins = origins();
    let name = HeaderName::parse("X-Session").expect("a name");
    let edge = serve(engine, &origins, AffinityBy::Header(name), None);
    let first = ask(&edge, "");
    let session = first.field("x-session").expect("a session").to_owned();
    for _ in 0..20 {
        let next = ask(&edge, &format!("X-Session: {session}\r\n"));
        assert_eq!((next.text(), next.field("x-session")), (first.text(), None));
    }
    edge.server.shut_down();
}

fn by_address(engine: Config) {
    let origins = origins();
    let edge = serve(engine, &origins, AffinityBy::Source, None);
    let first = ask(&edge, "");
    for _ in 0..20 {
        assert_eq!(ask(&edge, "").text(), first.text());
    }
    edge.server.shut_down();
}

fn sessions_end(engine: Config) {
    let origins = origins();
    let lasts = Some(Duration::from_secs(3600));
    let edge = serve(engine, &origins, AffinityBy::Cookie(Cookie::default()), lasts);
    let first = ask(&edge, "");
    let set = first.field("set-cookie").expect("a cookie").to_owned();
    let value = set
        .split(';')
        .next()
        .and_then(|pair| pair.split_once('='))
        .expect("a pair")
        .1
        .to_owned();
    let [token, began, used] = value.split('.').collect::<Vec<_>>()[..] else {
        panic!("a name and two times: {value}");
    };
    assert_eq!(
        ask(&edge, &format!("Cookie: ringmain={value}\r\n")).field("set-cookie"),
        None
    );
    let long_ago = u64::from_str_radix(began, 16).expect("a number") - 3700;
    for over in [
        format!("{token}.{long_ago:x}.{used}"),
        token.to_owned(),
        format!("{token}.ffffffffffff.{used}"),
    ] {
        assert!(
            ask(&edge, &format!("Cookie: ringmain={over}\r\n"))
                .field("set-cookie")
                .is_some(),
            "{over}"
        );
    }
    edge.server.shut_down();
}

fn by_hash(engine: Config) {
    let origins = origins();
    let addrs: Vec<_> = origins
        .iter()
        .map(|origin| origin.addr)
        .chain([refusing_addr()])
        .collect();
    for balance in [Balance::Maglev(HashKey::Path), Balance::RingHash(HashKey::Path)] {
        let edge = edge(
            engine.clone(),
            to(&addrs, |forward, upstream| {
                upstream.balance = balance;
                forward.retry = Some(Default::default());
            }),
        );
        for path in 0..30 {
            let first = edge.server.get(&format!("/{path}"));
            assert_eq!(first.status, 200, "one that is gone is passed over");
            assert_eq!(edge.server.get(&format!("/{path}")).text(), first.text());
        }
        edge.server.shut_down();
    }
}

/// Each backend of a rule has sessions of its own: one client has an endpoint in each, whichever backend is drawn.
fn by_backend(engine: Config) {
    let origins = origins();
    let addrs: Vec<_> = origins.iter().map(|origin| origin.addr).collect();
    let backend = |name: &str| WeightedBackend {
        affinity: Some(Box::new(Affinity {
            by: AffinityBy::Cookie(Cookie {
                name: name.into(),
                ..Cookie::default()
            }),
            lasts: None,
            idle: None,
        })),
        response_headers: HeaderChanges {
            set: vec![(
                HeaderName::parse("X-Backend").expect("a name"),
                HeaderValue::parse(name).expect("a value"),
            )],
            ..HeaderChanges::default()
        },
        ..WeightedBackend::new("origin")
    };
    let edge = edge(
        engine,
        to(&addrs, |forward, _| {
            forward.backends = vec![backend("one"), backend("two"), WeightedBackend::new("origin")];
        }),
    );
    let mut sessions = std::collections::BTreeMap::new();
    while sessions.len() < 2 {
        let first = ask(&edge, "");
        let drawn = first.field("x-backend").map(str::to_owned);
        let set = first.field("set-cookie");
        assert_eq!(
            drawn.is_some(),
            set.is_some(),
            "a backend without affinity sets no cookie"
        );
        if let (Some(drawn), Some(set)) = (drawn, set) {
            assert!(set.starts_with(&format!("{drawn}=")), "{drawn}: {set}");
            let pair = set.split(';').next().unwrap_or_default().to_owned();
            sessions.insert(drawn, (pair, first.text().to_owned()));
        }
    }
    let pairs: Vec<&str> = sessions.values().map(|(pair, _)| pair.as_str()).collect();
    let cookies = format!("Cookie: {}\r\n", pairs.join("; "));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let next = ask(&edge, &cookies);
        let Some(drawn) = next.field("x-backend") else {
            continue;
        };
        assert_eq!(
            (next.text(), next.field("set-cookie")),
            (&*sessions[drawn].1, None),
            "{drawn}"
        );
        seen.insert(drawn.to_owned());
    }
    assert_eq!(seen.len(), 2, "both backends are drawn");
    edge.server.shut_down();
}
