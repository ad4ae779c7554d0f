//! Rules that lead to push: clients connect by them, with the rule's policies before and its headers around.

use std::sync::Arc;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Action, Cors, HeaderName, HeaderValue, Match, Path, PathMatch, Policy, Push, PushAt, Rule, Secret,
};

use crate::origin::{Edge, edge, rules};
use crate::policies::{addresses, with};
use crate::support::{Client, get};

on_every_backend! {
    clients_connect_by_a_rule_and_hear_what_is_published,
    policies_come_before_and_headers_around,
    a_change_of_the_configuration_cuts_nobody,
    what_is_not_there_is_not_found,
}

/// What is pushed: anybody may listen, who has the key may publish.
fn push() -> Push {
    Push {
        anonymous: true,
        api_key: Some(Secret::new(b"owner".as_slice())),
        ..Push::default()
    }
}

/// Below `/live`.
fn config(push: Option<Push>) -> model::Config {
    let mut rule = Rule::new(Action::Push(PushAt {
        below: Some(Path::parse("/live").expect("a path")),
    }));
    rule.matches = vec![Match {
        path: PathMatch::Prefix(Path::parse("/live").expect("a path")),
        ..Match::default()
    }];
    rule.response_headers.set = vec![(
        HeaderName::parse("X-Edge").expect("a name"),
        HeaderValue::parse("ringmain").expect("a value"),
    )];
    let mut config = rules(vec![rule], Vec::new());
    config.push = push.map(Arc::new);
    config
}

/// A client of push on a WebSocket.
struct Listener(Client);

impl Listener {
    /// # Panics
    /// Without a handshake.
    #[track_caller]
    fn open(edge: &Edge, fields: &str) -> Listener {
        let mut client = edge.server.client();
        client.send(opening("/live/connection/websocket", fields));
        let answer = client.head();
        assert_eq!(answer.status, 101, "{}", answer.text());
        assert_eq!(answer.field("x-edge"), Some("ringmain"));
        Listener(client)
    }

    /// Sends a text, masked by nothing.
    fn say(&mut self, text: &str) {
        let mut frame = vec![0x81];
        match u8::try_from(text.len()) {
            Ok(short) if short < 126 => frame.push(0x80 | short),
            _ => {
                frame.push(0x80 | 126);
                frame.extend((text.len() as u16).to_be_bytes());
            }
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.send(frame);
    }

    /// The next text.
    #[track_caller]
    fn hear(&mut self) -> String {
        let head = self.0.take(2);
        assert_eq!(head[0], 0x81, "a text");
        let length = match head[1] {
            126 => u16::from_be_bytes(self.0.take(2).try_into().expect("two bytes")).into(),
            short => usize::from(short),
        };
        String::from_utf8(self.0.take(length)).expect("UTF-8")
    }

    #[track_caller]
    fn subscribe(&mut self, channel: &str) {
        self.say(&format!(
            "{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"{channel}\"}}}}"
        ));
        assert!(self.hear().contains("\"connect\":{\"client\":"));
        assert_eq!(self.hear(), "{\"id\":2,\"subscribe\":{}}");
    }
}

fn opening(target: &str, fields: &str) -> String {
    format!(
        "GET {target} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n{fields}\r\n"
    )
}

#[track_caller]
fn publish(edge: &Edge, channel: &str, data: &str) {
    let body = format!("{{\"channel\":\"{channel}\",\"data\":{data}}}");
    let answer = edge.server.ask(format!(
        "POST /live/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: owner\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    answer.expect(200, "{\"result\":{}}");
}

fn clients_connect_by_a_rule_and_hear_what_is_published(engine: Config) {
    let edge = edge(engine, config(Some(push())));
    let mut listener = Listener::open(&edge, "");
    listener.subscribe("news");
    let mut events = edge.server.client();
    events.send(get(
        "/live/connection/uni_sse?cf_connect=%7B%22subs%22:%7B%22news%22:%7B%7D%7D%7D",
    ));
    let head = events.head();
    assert_eq!((head.status, head.field("x-edge")), (200, Some("ringmain")));
    let welcome = events.chunk().expect("an event");
    assert!(
        welcome.starts_with(b"data: {\"connect\""),
        "{}",
        welcome.escape_ascii()
    );
    publish(&edge, "news", "{\"a\":1}");
    let push = "{\"channel\":\"news\",\"pub\":{\"data\":{\"a\":1}}}";
    assert_eq!(listener.hear(), format!("{{\"push\":{push}}}"));
    assert_eq!(
        events.chunk().expect("an event"),
        format!("data: {push}\n\n").as_bytes()
    );
    // Only the owner publishes.
    let refused = edge
        .server
        .ask("POST /live/api/publish HTTP/1.1\r\nHost: a\r\nX-API-Key: guess\r\nContent-Length: 2\r\n\r\n{}");
    assert_eq!((refused.status, refused.field("x-edge")), (401, Some("ringmain")));
    // A shutdown waits for clients to answer its Close.
    drop((listener, events));
    edge.server.shut_down();
}

fn policies_come_before_and_headers_around(engine: Config) {
    let cors = Policy::Cors(Arc::new(Cors {
        origins: vec![model::Origin::Any],
        ..Cors::default()
    }));
    let edge = edge(
        engine,
        with(config(Some(push())), vec![addresses(&["10.0.0.0/8"], &[]), cors]),
    );
    let mut client = edge.server.client();
    client.send(opening(
        "/live/connection/websocket",
        "X-Forwarded-For: 192.0.2.1\r\n",
    ));
    let refused = client.answer();
    assert_eq!((refused.status, refused.field("x-edge")), (403, Some("ringmain")));
    // On the same connection.
    client.send(opening(
        "/live/connection/websocket",
        "X-Forwarded-For: 10.1.2.3\r\n",
    ));
    assert_eq!(client.head().status, 101);
    let preflight = edge.server.ask(
        "OPTIONS /live/connection/uni_sse HTTP/1.1\r\nHost: a\r\nOrigin: https://app.example\r\nX-Forwarded-For: 10.1.2.3\r\n\
         Access-Control-Request-Method: GET\r\n\r\n",
    );
    assert_eq!(preflight.status, 204);
    assert_eq!(preflight.field("access-control-allow-origin"), Some("*"));
    drop(client);
    edge.server.shut_down();
}

fn a_change_of_the_configuration_cuts_nobody(engine: Config) {
    let edge = edge(engine, config(Some(push())));
    let mut before = Listener::open(&edge, "");
    before.subscribe("news");
    let closed = Push {
        anonymous: false,
        ..push()
    };
    let replace = |config| edge.gateway.replace(Arc::new(config), std::time::Duration::ZERO);
    assert_eq!(replace(config(Some(closed))), []);
    publish(&edge, "news", "1");
    assert_eq!(
        before.hear(),
        "{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":1}}}"
    );
    let mut stranger = Listener::open(&edge, "");
    stranger.say("{\"id\":1,\"connect\":{}}");
    assert_eq!(
        stranger.hear(),
        "{\"id\":1,\"error\":{\"code\":101,\"message\":\"unauthorized\"}}"
    );
    // Without the key nothing changes for who is there.
    assert_eq!(replace(config(None)), []);
    publish(&edge, "news", "2");
    assert_eq!(
        before.hear(),
        "{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":2}}}"
    );
    drop((before, stranger));
    edge.server.shut_down();
}

fn what_is_not_there_is_not_found(engine: Config) {
    let edge = edge(engine, config(None));
    let mut client = edge.server.client();
    client.send(opening("/live/connection/websocket", ""));
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("x-edge")), (404, Some("ringmain")));
    // It comes with a change.
    assert_eq!(
        edge.gateway
            .replace(Arc::new(config(Some(push()))), std::time::Duration::ZERO),
        []
    );
    let mut listener = Listener::open(&edge, "");
    listener.subscribe("news");
    publish(&edge, "news", "1");
    assert_eq!(
        listener.hear(),
        "{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":1}}}"
    );
    for target in ["/live", "/live/", "/live/nothing", "/live/api/publish/"] {
        assert_eq!(edge.server.get(target).status, 404, "{target}");
    }
    assert_eq!(edge.server.get("/connection/uni_sse").status, 404);
    drop(listener);
    edge.server.shut_down();
}
