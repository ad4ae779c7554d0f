//! Valid and invalid tokens, on every transport and in both formats.

use std::sync::{Arc, Mutex};

use ringmain_engine::backend::Time;
use ringmain_hub::protocol::Format;
use ringmain_push::{Algorithm, KeyLookup, KeySet, KeySource, Options, Tokens};
use ringmain_web::App;
use ringmain_web::testing::{TestClient, TestEvent};
use serde_json::{Value, json};

use crate::support::with_query;
use crate::token_signing::{
    FORMATS, LEEWAY, SECRET, WsClient, code, connect, guarded, now, refresh, serve_guarded, signed_by,
    subscribe, token, tokens,
};

/// Returns the code by which a client with this token is rejected; 0 if it is accepted.
fn rejection_code(client: &mut TestClient, format: Format, token: &str) -> u32 {
    let mut ws = WsClient::open(client, format);
    ws.send([connect(token)]);
    match ws.socket.event().expect("an event") {
        TestEvent::Close(code, _) => u32::from(code),
        TestEvent::Message(message) => {
            let mut replies = ringmain_hub::protocol::Replies::new(format, message.data().to_vec().into());
            let reply = replies.next().expect("a reply").expect("a reply");
            assert!(reply.error.is_some() != reply.connect.is_some(), "{reply:?}");
            code(&reply)
        }
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn check(options: Options, table: impl FnOnce(u64) -> Vec<(&'static str, String, u32)>) {
    let mut client = serve_guarded(1, options);
    let now = now(&mut client);
    for (what, token, expected) in table(now) {
        for format in FORMATS {
            assert_eq!(
                rejection_code(&mut client, format, &token),
                expected,
                "{what} ({format:?})"
            );
        }
    }
    client.finish().expect("it ends");
}

#[test]
fn an_invalid_token_is_rejected_with_the_reason() {
    let header = json!({ "alg": "HS256" });
    check(guarded(), |now| {
        let claims = json!({ "sub": "7", "exp": now + 100 });
        let by = |header: Value| signed_by(SECRET, &header, &claims);
        let good = token(claims.clone());
        let (message, _) = good.rsplit_once('.').expect("three parts");
        let stranger = b"another one of two and thirty by";
        vec![
            ("good", good.clone(), 0),
            ("without an end", token(json!({ "sub": "7" })), 0),
            ("without a user", token(json!({ "sub": "", "exp": now + 100 })), 0),
            (
                "just about",
                token(json!({ "sub": "7", "exp": now - LEEWAY + 2 })),
                0,
            ),
            ("expired", token(json!({ "sub": "7", "exp": now - LEEWAY })), 109),
            (
                "not yet",
                token(json!({ "sub": "7", "nbf": now + LEEWAY + 5 })),
                109,
            ),
            ("nearly yet", token(json!({ "sub": "7", "nbf": now + LEEWAY })), 0),
            ("of a stranger", signed_by(stranger, &header, &claims), 3500),
            (
                "of a stranger, and expired",
                signed_by(stranger, &header, &json!({ "sub": "7", "exp": 1 })),
                3500,
            ),
            ("not signed", format!("{message}."), 3500),
            ("by no algorithm", by(json!({ "alg": "none" })), 3500),
            (
                "by none, not signed",
                {
                    let none = by(json!({ "alg": "none" }));
                    format!("{}.", none.rsplit_once('.').expect("three parts").0)
                },
                3500,
            ),
            ("by one that is not allowed", by(json!({ "alg": "HS384" })), 3500),
            ("by a public key's", by(json!({ "alg": "RS256" })), 3500),
            (
                "by a key of any name",
                by(json!({ "alg": "HS256", "kid": "x" })),
                0,
            ),
            ("no token", "nothing".to_owned(), 3500),
            ("longer than may be", "x".repeat(9000), 3500),
            ("of a number", token(json!({ "sub": 7, "exp": now + 100 })), 3500),
            (
                "for a subscription",
                token(json!({ "sub": "7", "channel": "news" })),
                3500,
            ),
            (
                "with an end that is none",
                token(json!({ "sub": "7", "exp": "1" })),
                3500,
            ),
            (
                "to be over long ago",
                token(json!({ "sub": "7", "expire_at": 1 })),
                110,
            ),
            ("nothing is shown", String::new(), 101),
        ]
    });
}

/// Returns a token with one more claim.
fn with_claim(name: &str, value: Value) -> String {
    let mut claims = json!({ "sub": "7" });
    claims[name] = value;
    token(claims)
}

#[test]
fn unsupported_fields_are_rejected() {
    check(guarded(), |_| {
        vec![
            ("info", with_claim("info", json!({ "name": "Ann" })), 0),
            ("no base64", with_claim("b64info", json!("!")), 3500),
            ("channels", with_claim("channels", json!(["kept:a", "news"])), 0),
            ("no channels", with_claim("channels", json!("news")), 3500),
            ("a channel that is none", with_claim("channels", json!([""])), 107),
            (
                "a channel of no namespace",
                with_claim("channels", json!(["no:where"])),
                102,
            ),
            ("no subs", with_claim("subs", json!(["kept:a"])), 3500),
            (
                "data",
                with_claim("subs", json!({ "kept:a": { "data": [1], "b64data": "e30=" } })),
                0,
            ),
            (
                "data without base64",
                with_claim("subs", json!({ "kept:a": { "b64data": "!" } })),
                3500,
            ),
            ("no end", with_claim("expire_at", json!("1")), 3500),
        ]
    });
    check(guarded(), |_| {
        let caps = |value: Value| with_claim("caps", json!([value]));
        let allow = |what: Value| caps(json!({ "channels": ["a"], "allow": what }));
        let like = |what: &str| caps(json!({ "channels": ["a"], "allow": ["sub"], "match": what }));
        vec![
            ("all there are", allow(json!(["sub", "pub", "prs", "hst"])), 0),
            ("one that is none", allow(json!(["all"])), 3500),
            ("wildcards", like("wildcard"), 0),
            ("expressions", like("regex"), 3500),
        ]
    });
}

#[test]
fn subscription_options_follow_the_namespace() {
    check(guarded(), |_| {
        let over = |channel: &str, name: &str, value: Value| {
            let mut switch = json!({});
            switch[name] = value;
            with_claim("subs", json!({ channel: { "override": switch } }))
        };
        let kept = |name: &str, value: bool| over("kept:a", name, json!({ "value": value }));
        vec![
            ("shown, as it is", kept("presence", true), 0),
            ("hidden", kept("presence", false), 0),
            ("recovered", kept("force_recovery", true), 0),
            ("positioned", kept("force_positioning", true), 0),
            ("others told of it alone", kept("join_leave", true), 108),
            ("told of others alone", kept("force_push_join_leave", true), 108),
            (
                "recovered, and nothing is kept",
                over("news", "force_recovery", json!({ "value": true })),
                108,
            ),
            (
                "positioned there",
                over("news", "force_positioning", json!({ "value": true })),
                108,
            ),
            (
                "shown without presence",
                over("news", "presence", json!({ "value": true })),
                108,
            ),
            ("something else", kept("force", true), 3500),
            ("no switch", over("kept:a", "presence", json!(true)), 3500),
        ]
    });
}

#[test]
fn issuer_and_audience_are_checked() {
    let options = Options {
        tokens: Some(Tokens {
            issuer: Some("https://id.example".to_owned()),
            audiences: vec!["push".to_owned(), "all".to_owned()],
            ..tokens()
        }),
        ..guarded()
    };
    check(options, |_| {
        let of = |iss: Value, aud: Value| token(json!({ "sub": "7", "iss": iss, "aud": aud }));
        let (issuer, push) = (json!("https://id.example"), json!("push"));
        vec![
            ("good", of(issuer.clone(), push.clone()), 0),
            ("among others", of(issuer.clone(), json!(["web", "all"])), 0),
            ("for others", of(issuer.clone(), json!("web")), 3500),
            ("without an audience", of(issuer.clone(), Value::Null), 3500),
            (
                "of another issuer",
                of(json!("https://other.example"), push.clone()),
                3500,
            ),
            ("of no issuer", of(Value::Null, push), 3500),
        ]
    });
}

#[test]
fn a_public_key_is_not_an_hmac_secret() {
    // RFC 8037 §A.2; signatures would be valid if the key were used as a secret.
    const PUBLIC: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(PUBLIC)
        .expect("base64url");
    let set = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": PUBLIC }] }).to_string();
    let keys = KeySet::parse(set.as_bytes()).expect("a set");
    let options = |algorithms: Option<Vec<Algorithm>>| {
        let tokens = Tokens::new(KeySet::parse(set.as_bytes()).expect("a set"));
        let algorithms = algorithms.unwrap_or(tokens.algorithms.clone());
        Options {
            tokens: Some(Tokens { algorithms, ..tokens }),
            ..guarded()
        }
    };
    assert!(!Tokens::new(keys).algorithms.contains(&Algorithm::Hs256));
    check(options(None), |_| {
        let claims = json!({ "sub": "7" });
        [bytes, PUBLIC.as_bytes().to_vec(), set.as_bytes().to_vec()]
            .map(|secret| {
                (
                    "a public key",
                    signed_by(&secret, &json!({ "alg": "HS256" }), &claims),
                    3500,
                )
            })
            .into()
    });
    // Nor can it be configured by mistake.
    let app = ringmain_push::serve(App::new(), options(Some(vec![Algorithm::Hs256])));
    let why = TestClient::new(app).expect_err("it cannot be built");
    assert!(why.to_string().contains("a key for the algorithm HS256"), "{why}");
}

#[test]
fn an_algorithm_that_is_not_allowed_is_rejected() {
    let secret = [7; 64];
    let options = |algorithms: &[Algorithm]| Options {
        tokens: Some(Tokens {
            algorithms: algorithms.to_vec(),
            ..Tokens::new(KeySet::from_secret(&secret).expect("a key"))
        }),
        ..guarded()
    };
    let shown = signed_by(&secret, &json!({ "alg": "HS256" }), &json!({ "sub": "7" }));
    check(options(&[Algorithm::Hs512]), |_| {
        vec![("another", shown.clone(), 3500)]
    });
    check(options(&[Algorithm::Hs512, Algorithm::Hs256]), |_| {
        vec![("it", shown.clone(), 0)]
    });
}

#[test]
fn invalid_options_fail_when_the_application_is_built() {
    let with_tokens = |tokens: Tokens| Options {
        tokens: Some(tokens),
        ..guarded()
    };
    for (options, told) in [
        (
            with_tokens(Tokens {
                algorithms: Vec::new(),
                ..tokens()
            }),
            "at least one algorithm",
        ),
        (
            with_tokens(Tokens {
                issuer: Some(String::new()),
                ..tokens()
            }),
            "found an empty one",
        ),
        (
            Options {
                user_channel: Some("no".to_owned()),
                ..guarded()
            },
            "found `no`",
        ),
    ] {
        let app = ringmain_push::serve(App::new(), options);
        let why = TestClient::new(app).expect_err("it cannot be built");
        assert!(why.to_string().contains(told), "{why}");
    }
}

#[test]
fn keys_are_replaced_while_clients_connect() {
    let options = guarded();
    let keys = options.tokens.as_ref().expect("tokens").keys.clone();
    let mut client = serve_guarded(2, options);
    let other = b"another one of two and thirty by";
    let (old, new) = (
        token(json!({ "sub": "7" })),
        signed_by(other, &json!({ "alg": "HS256" }), &json!({ "sub": "7" })),
    );
    let (mut stays, _) = WsClient::connected(&mut client, Format::Json, &old);
    assert_eq!(rejection_code(&mut client, Format::Json, &new), 3500);
    keys.replace(KeySet::from_secret(other).expect("a key"));
    assert_eq!(rejection_code(&mut client, Format::Json, &new), 0);
    assert_eq!(rejection_code(&mut client, Format::Json, &old), 3500);
    assert_eq!(
        code(&stays.request(crate::token_signing::subscribe("news", ""))),
        0,
        "it is still there"
    );
    drop(stays);
    client.finish().expect("it ends");
}

/// Keys that can change, and the number of lookups.
#[derive(Debug, Default)]
struct Elsewhere(Mutex<(Option<KeyLookup>, u32)>);

impl Elsewhere {
    fn has(&self, look: Option<KeyLookup>) {
        self.0.lock().expect("no panic").0 = look;
    }

    fn asked(&self) -> u32 {
        self.0.lock().expect("no panic").1
    }
}

impl KeySource for Elsewhere {
    fn find_keys(&self, algorithm: Algorithm, _: Option<&str>, _: Time) -> KeyLookup {
        assert_eq!(algorithm, Algorithm::Hs256);
        let mut state = self.0.lock().expect("no panic");
        state.1 += 1;
        state.0.clone().unwrap_or(KeyLookup::Unavailable)
    }
}

#[test]
fn keys_of_a_source_can_change() {
    let source = Arc::new(Elsewhere::default());
    let kept = Arc::clone(&source) as Arc<dyn KeySource>;
    let mut options = guarded();
    options.tokens = Some(Tokens {
        issuer: Some("us".to_owned()),
        ..Tokens::from_source(kept, vec![Algorithm::Hs256])
    });
    for format in FORMATS {
        source.has(None);
        let mut client = serve_guarded(1, options.clone());
        let now = now(&mut client);
        let good = token(json!({ "iss": "us", "sub": "7", "exp": now + 600 }));
        let forged = signed_by(
            b"another one of two and thirty by",
            &json!({ "alg": "HS256" }),
            &json!({ "iss": "us", "sub": "7" }),
        );
        assert_eq!(rejection_code(&mut client, format, &good), 100, "it tries again");
        let before = source.asked();
        let strange = token(json!({ "iss": "them", "sub": "7" }));
        assert_eq!(rejection_code(&mut client, format, &strange), 3500);
        assert_eq!(source.asked(), before, "no key makes that good");
        source.has(Some(KeyLookup::Unknown));
        assert_eq!(rejection_code(&mut client, format, &good), 3500);
        let keys = KeySet::from_secret(SECRET).expect("a key");
        source.has(Some(KeyLookup::Keys(Arc::new(keys))));
        assert_eq!(rejection_code(&mut client, format, &forged), 3500);
        let (mut stays, _) = WsClient::connected(&mut client, format, &good);
        // Connected clients remain without keys, and may send the token again later.
        source.has(None);
        assert_eq!(code(&stays.request(refresh(&good))), 100);
        let private = token(json!({ "iss": "us", "sub": "7", "channel": "closed:a", "exp": now + 600 }));
        assert_eq!(code(&stays.request(subscribe("closed:a", &private))), 100);
        source.has(Some(KeyLookup::Keys(Arc::new(
            KeySet::from_secret(SECRET).expect("a key"),
        ))));
        assert_eq!(code(&stays.request(refresh(&good))), 0);
        assert_eq!(code(&stays.request(subscribe("closed:a", &private))), 0);
        drop(stays);
        client.finish().expect("it ends");
    }
}

#[test]
fn a_client_without_a_token_is_anonymous_if_allowed() {
    let options = Options {
        anonymous: true,
        ..guarded()
    };
    check(options, |_| {
        vec![
            ("nothing", String::new(), 0),
            ("a token", token(json!({ "sub": "7" })), 0),
            ("a wrong one", "x".to_owned(), 3500),
        ]
    });
    // Without keys a token is rejected, and not ignored.
    let options = Options {
        anonymous: true,
        tokens: None,
        ..guarded()
    };
    check(options, |_| vec![("a token", token(json!({ "sub": "7" })), 3500)]);
}

#[test]
fn unidirectional_clients_send_tokens_on_every_transport() {
    let mut client = serve_guarded(2, guarded());
    let now = now(&mut client);
    let request = |token: &str| json!({ "token": token }).to_string();
    let good = request(&token(
        json!({ "sub": "7", "exp": now + 100, "channels": ["news"] }),
    ));
    for (connect, status, told) in [
        (request(""), 401, 3500),
        (request("x"), 401, 3500),
        (request(&token(json!({ "sub": "7", "exp": 1 }))), 401, 3005),
        (
            request(&token(json!({ "sub": "7", "channels": ["no:where"] }))),
            400,
            3501,
        ),
    ] {
        let queried = client.get(&with_query("/connection/uni_sse", &connect)).send();
        let posted = client.post("/connection/uni_sse").body(&*connect).send();
        let lines = client.post("/connection/uni_http_stream").body(&*connect).send();
        for reply in [queried, posted, lines] {
            assert_eq!(reply.status(), status, "{connect}: {}", reply.text());
            assert!(
                reply.text().contains(&format!("(code {told})")),
                "{}",
                reply.text()
            );
        }
        let mut socket = client.ws("/connection/uni_websocket").open();
        socket.send_text(&connect);
        assert_eq!(u32::from(socket.closed().0), told, "{connect}");
    }
    let mut events = crate::support::Stream::open(client.get(&with_query("/connection/uni_sse", &good)));
    let mut lines = crate::support::Stream::open(client.post("/connection/uni_http_stream").body(&*good));
    let mut socket = client.ws("/connection/uni_websocket").open();
    socket.send_text(&good);
    for told in [events.event(), lines.line(), socket.text()] {
        let told: Value = serde_json::from_str(&told).expect("JSON");
        assert_eq!(told["connect"]["expires"], true, "{told}");
        assert_eq!(told["connect"]["subs"], json!({ "news": {} }), "{told}");
    }
    drop((events, lines, socket));
    client.finish().expect("it ends");
}
