//! Rules that lead to push: clients connect by them, with the rule's policies before and its headers around.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Action, AuthzRequest, Cors, ExternalAuth, Forward, HeaderName, HeaderValue, JwtAlgorithm, JwtKeys,
    Match, Path, PathMatch, Policy, Push, PushEndpoints, PushEvent, PushKeys, PushNamespace, PushProxy,
    PushQuery, PushTokens, RemoteKeys, Rule, Secret, Target,
};
use ringmain_testkit::wait;
use serde_json::{Value, json};

use crate::identity_provider::{Signer, claims, provider, set};
use crate::jwks::Gate;
use crate::origin::{Edge, Origin, Seen, edge, refusing_addr, rules, upstream};
use crate::policies::{addresses, header, with};
use crate::support::{Client, get};

on_every_backend! {
    clients_connect_through_a_rule_and_receive_publications,
    policies_and_header_changes_apply,
    a_change_of_the_configuration_cuts_no_client,
    without_push_the_response_is_404,
    the_application_is_asked,
    an_unreachable_application_denies,
    keys_of_a_provider_arrive_late_and_change,
    an_unreachable_provider_denies_until_it_returns,
}

/// A push configuration: any client may subscribe, publishing requires the key.
pub(crate) fn push() -> Push {
    Push {
        anonymous: true,
        api_key: Some(Secret::new(b"owner".as_slice())),
        ..Push::default()
    }
}

/// Below `/live`.
pub(crate) fn config(push: Option<Push>) -> model::Config {
    let mut rule = Rule::new(Action::Push(PushEndpoints {
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

fn clients_connect_through_a_rule_and_receive_publications(engine: Config) {
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

fn policies_and_header_changes_apply(engine: Config) {
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

fn a_change_of_the_configuration_cuts_no_client(engine: Config) {
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
    // Removing the `push` key changes nothing for connected clients.
    assert_eq!(replace(config(None)), []);
    publish(&edge, "news", "2");
    assert_eq!(
        before.hear(),
        "{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":2}}}"
    );
    drop((before, stranger));
    edge.server.shut_down();
}

fn without_push_the_response_is_404(engine: Config) {
    let edge = edge(engine, config(None));
    let mut client = edge.server.client();
    client.send(opening("/live/connection/websocket", ""));
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("x-edge")), (404, Some("ringmain")));
    // Push is added by a change.
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

/// Push whose application is asked about everything, at `address`.
fn asked(address: std::net::SocketAddr) -> model::Config {
    let ask = |event: PushEvent| PushQuery {
        upstream: Target::Upstream("app".into()),
        host: None,
        path: format!("/centrifugo/{}?by=edge", event.name()).into(),
        timeout: Duration::from_secs(5),
    };
    let namespace = PushNamespace {
        subscribe_proxy: true,
        publish_proxy: true,
        ..PushNamespace::default()
    };
    let names = |names: &[&str]| names.iter().map(|name| header(name)).collect();
    let push = Push {
        proxy: PushProxy {
            events: PushEvent::ALL.map(|event| (event, ask(event))).into(),
            headers: names(&["Cookie", "X-Forwarded-For", "X-Who", "X-Real-IP", "Authorization"]),
            emulated_headers: names(&["Authorization", "X-Tenant", "Cookie"]),
            own_headers: vec![(header("X-Edge-Key"), HeaderValue::parse("k").expect("a value"))],
            binary: false,
        },
        namespaces: [("room".into(), namespace)].into(),
        ..Push::default()
    };
    let mut config = with(config(Some(push)), Vec::new());
    config.upstreams.push(Arc::new(upstream("app", &[address])));
    // Another rule writes the identity for the application: clients must not send it.
    let mut told = Rule::new(Action::Forward(Box::new(Forward::to("app"))));
    told.policies = vec![Policy::ExternalAuth(Arc::new(ExternalAuth {
        request_headers: Vec::new(),
        upstream_headers: vec![header("X-Who")],
        client_headers: Vec::new(),
        timeout: Duration::from_secs(5),
        ..ExternalAuth::new(Target::Upstream("app".into()), AuthzRequest::Path("/who".into()))
    }))];
    Arc::make_mut(&mut config.routes[0]).rules.push(told);
    config
}

/// Returns the application's response to a proxy request of Centrifugo.
fn answer_of(seen: &Seen) -> (u16, &'static str) {
    let path = seen
        .line()
        .split([' ', '?'])
        .nth(1)
        .unwrap_or_default()
        .to_owned();
    let body = String::from_utf8_lossy(&seen.body).into_owned();
    match &*path {
        "/centrifugo/connect" => (200, r#"{"result":{"user":"7","data":{"hello":1}}}"#),
        "/centrifugo/subscribe" if body.contains("room:no") => {
            (200, r#"{"error":{"code":403,"message":"no"}}"#)
        }
        "/centrifugo/subscribe" => (200, r#"{"result":{}}"#),
        "/centrifugo/publish" => (200, r#"{"result":{"data":"checked"}}"#),
        "/centrifugo/rpc" if body.contains("fails") => (500, "{\"result\":{}}"),
        "/centrifugo/rpc" => (200, r#"{"result":{"data":{"price":1}}}"#),
        _ => (404, ""),
    }
}

fn application() -> Origin {
    Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let (status, body) = answer_of(&seen);
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nContent-Length: {length}"
            );
            peer.send(format!("{head}\r\n\r\n{body}"));
        }
    })
}

#[track_caller]
fn sees_what_it_may(seen: &Seen) {
    assert_eq!(seen.line(), "POST /centrifugo/connect?by=edge HTTP/1.1");
    for (name, value) in [
        ("content-type", Some("application/json")),
        ("cookie", Some("session=1")),
        ("x-forwarded-for", Some("10.1.2.3")),
        ("authorization", Some("Bearer t")),
        ("x-tenant", Some("one")),
        ("x-edge-key", Some("k")),
        ("x-who", None),
        ("x-secret", None),
        ("x-real-ip", None),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}");
    }
}

fn the_application_is_asked(engine: Config) {
    let application = application();
    let edge = edge(engine, asked(application.addr));
    let mut listener = Listener::open(
        &edge,
        "Cookie: session=1\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-For: 10.1.2.3\r\n\
         X-Secret: no\r\nX-Who: root\r\nX-Edge-Key: forged\r\n",
    );
    listener.say(
        r#"{"id":1,"connect":{"data":{"a":1},"headers":{"authorization":"Bearer t","cookie":"forged","x-tenant":"one","x-who":"root"}}}"#,
    );
    let told = listener.hear();
    assert!(told.contains(r#""data":{"hello":1}"#), "{told}");
    let seen = application.seen();
    sees_what_it_may(&seen);
    let body = String::from_utf8(seen.body).expect("a text");
    let rest = body.split_once("\",").map(|(_, rest)| rest);
    let expected = r#""transport":"websocket","protocol":"json","encoding":"json","data":{"a":1}}"#;
    assert_eq!(rest, Some(expected), "{body}");
    for (command, reply) in [
        (
            r#"{"id":2,"subscribe":{"channel":"room:a"}}"#,
            r#"{"id":2,"subscribe":{}}"#,
        ),
        (
            r#"{"id":3,"subscribe":{"channel":"room:no"}}"#,
            r#"{"id":3,"error":{"code":403,"message":"no"}}"#,
        ),
        (
            r#"{"id":4,"rpc":{"method":"price"}}"#,
            r#"{"id":4,"rpc":{"data":{"price":1}}}"#,
        ),
        (
            r#"{"id":5,"rpc":{"method":"fails"}}"#,
            r#"{"id":5,"error":{"code":100,"message":"internal server error","temporary":true}}"#,
        ),
    ] {
        listener.say(command);
        assert_eq!(listener.hear(), reply);
        // On the connection of the first question.
        let seen = application.seen();
        assert_eq!(
            (seen.connection, seen.field("x-tenant").as_deref()),
            (0, Some("one"))
        );
    }
    listener.say(r#"{"id":6,"publish":{"channel":"room:a","data":"said"}}"#);
    let mut both = [listener.hear(), listener.hear()];
    both.sort();
    assert_eq!(both[0], r#"{"id":6,"publish":{}}"#);
    assert!(
        both[1].contains(r#""pub":{"data":"checked","info":{"user":"7""#),
        "{}",
        both[1]
    );
    let body = String::from_utf8(application.seen().body).expect("a text");
    assert!(
        body.ends_with(r#""user":"7","channel":"room:a","data":"said"}"#),
        "{body}"
    );
    drop(listener);
    edge.server.shut_down();
}

fn an_unreachable_application_denies(engine: Config) {
    let edge = edge(engine, asked(refusing_addr()));
    let mut stranger = Listener::open(&edge, "");
    stranger.say("{\"id\":1,\"connect\":{}}");
    let refused = r#"{"id":1,"error":{"code":100,"message":"internal server error","temporary":true}}"#;
    assert_eq!(stranger.hear(), refused);
    // The proxy is added by a change, for connected clients, too.
    let application = application();
    let replaced = edge
        .gateway
        .replace(Arc::new(asked(application.addr)), std::time::Duration::ZERO);
    assert_eq!(replaced, []);
    stranger.say("{\"id\":2,\"connect\":{}}");
    assert!(stranger.hear().contains("\"connect\":{\"client\":"));
    drop(stranger);
    edge.server.shut_down();
}

/// Push whose tokens are those of a provider with its keys at `address`.
fn provided(address: std::net::SocketAddr) -> model::Config {
    let keys = JwtKeys::Remote(RemoteKeys {
        upstream: Target::Upstream("id".into()),
        host: None,
        path: "/keys".into(),
        refresh: Duration::from_mins(10),
        stale: Duration::from_hours(1),
    });
    let provider = provider(keys, &[JwtAlgorithm::Es256]);
    let push = Push {
        tokens: Some(PushTokens {
            keys: PushKeys::Provider(Arc::new(provider)),
            algorithms: Vec::new(),
            issuer: None,
            audiences: Vec::new(),
            leeway: Duration::ZERO,
        }),
        ..push()
    };
    let mut config = with(config(Some(push)), Vec::new());
    config.upstreams.push(Arc::new(upstream("id", &[address])));
    config
}

/// Connects with a token. Returns 0 if the client is admitted, else the code of the error or of the close.
#[track_caller]
fn shows(edge: &Edge, token: &str) -> u32 {
    let mut client = Listener::open(edge, "");
    client.say(&format!(r#"{{"id":1,"connect":{{"token":"{token}"}}}}"#));
    let head = client.0.take(2);
    if head[0] == 0x88 {
        let code = client.0.take(2);
        return u16::from_be_bytes([code[0], code[1]]).into();
    }
    let length = match head[1] {
        126 => u16::from_be_bytes(client.0.take(2).try_into().expect("two bytes")).into(),
        short => usize::from(short),
    };
    let said: Value = serde_json::from_slice(&client.0.take(length)).expect("JSON");
    let code = said["error"]["code"].as_u64().unwrap_or(0);
    assert!(code > 0 || said["connect"].is_object(), "{said}");
    code as u32
}

/// Connects with a token until the client is admitted. Every refusal before that must be temporary.
#[track_caller]
fn until_let_in(edge: &Edge, token: &str, meanwhile: &[u32]) {
    wait::until("the keys are fetched", || match shows(edge, token) {
        0 => true,
        code => {
            assert!(meanwhile.contains(&code), "{code}");
            false
        }
    });
}

fn served(keys: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{keys}", keys.len())
}

fn keys_of_a_provider_arrive_late_and_change(engine: Config) {
    let (old, new) = (
        Signer::new(JwtAlgorithm::Es256, "old"),
        Signer::new(JwtAlgorithm::Es256, "new"),
    );
    let gate = Arc::new(Gate::default());
    let answer = Arc::new(Mutex::new(served(&set(&[&old]))));
    let (held, told) = (Arc::clone(&gate), Arc::clone(&answer));
    let keys = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            held.wait();
            let answer = told.lock().expect("no panic").clone();
            peer.send(answer);
        }
    });
    let edge = edge(engine, provided(keys.addr));
    let (before, after) = (old.sign(&claims(json!({}))), new.sign(&claims(json!({}))));
    assert_eq!(keys.seen().line(), "GET /keys HTTP/1.1");
    // They are on their way.
    assert_eq!(shows(&edge, &before), 100);
    // Claims that no key can make valid are refused at once.
    for wrong in [json!({"iss": "https://evil.example"}), json!({"aud": "other"})] {
        assert_eq!(shows(&edge, &old.sign(&claims(wrong))), 3500);
    }
    gate.open();
    until_let_in(&edge, &before, &[100]);
    let mut stays = Listener::open(&edge, "");
    stays.say(&format!(
        "{{\"id\":1,\"connect\":{{\"token\":\"{before}\"}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"news\"}}}}"
    ));
    assert!(stays.hear().contains("\"connect\":{\"client\":"));
    assert_eq!(stays.hear(), "{\"id\":2,\"subscribe\":{}}");
    // As soon as keys may be fetched again: who names one that is not there has it done.
    *answer.lock().expect("no panic") = served(&set(&[&new]));
    until_let_in(&edge, &after, &[100, 3500]);
    assert_eq!(shows(&edge, &before), 3500, "its key is gone");
    publish(&edge, "news", "1");
    let push = "{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":1}}}";
    assert_eq!(stays.hear(), push, "who is there stays");
    drop(stays);
    edge.server.shut_down();
}

fn an_unreachable_provider_denies_until_it_returns(engine: Config) {
    let signer = Signer::new(JwtAlgorithm::Es256, "one");
    let token = signer.sign(&claims(json!({})));
    let edge = edge(engine, provided(refusing_addr()));
    assert_eq!(shows(&edge, &token), 100);
    // A client without a token is admitted, since anonymous clients are allowed.
    assert_eq!(shows(&edge, ""), 0);
    let body = served(&set(&[&signer]));
    let lies = [
        served("<html>"),
        "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
    ];
    let answers = Mutex::new(lies.into_iter());
    let keys = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let next = answers.lock().expect("no panic").next();
            peer.send(next.unwrap_or_else(|| body.clone()));
        }
    });
    let replaced = edge
        .gateway
        .replace(Arc::new(provided(keys.addr)), Duration::ZERO);
    assert_eq!(replaced, []);
    until_let_in(&edge, &token, &[100]);
    // A change elsewhere in the configuration does not query again.
    let mut other = provided(keys.addr);
    let push = Arc::make_mut(other.push.as_mut().expect("push"));
    push.connections_per_user = 9;
    assert_eq!(edge.gateway.replace(Arc::new(other), Duration::ZERO), []);
    assert_eq!(shows(&edge, &token), 0);
    // With keys of another kind it is as it was before them.
    let mut own = config(Some(push_by_secret()));
    own.upstreams.push(Arc::new(upstream("id", &[keys.addr])));
    assert_eq!(edge.gateway.replace(Arc::new(own), Duration::ZERO), []);
    assert_eq!(shows(&edge, &token), 3500);
    edge.server.shut_down();
}

fn push_by_secret() -> Push {
    Push {
        tokens: Some(PushTokens {
            keys: PushKeys::Secret(Secret::new([7; 32].as_slice())),
            algorithms: Vec::new(),
            issuer: None,
            audiences: Vec::new(),
            leeway: Duration::ZERO,
        }),
        ..push()
    }
}
