//! examples/policies.yaml at work: tokens as Keycloak, Auth0 and Okta make them, with the sets of keys that these serve.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::common::{connect, engines};
use crate::proxy::{Answer, Proxy};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_testkit::wait;
use serde_json::{Value, json};

const EXAMPLE: &str = include_str!("../../../../examples/policies.yaml");

const KEYCLOAK: &str = "https://id.shop.example/realms/shop";
const AUTH0: &str = "https://shop.eu.auth0.com/";
const OKTA: &str = "https://shop.okta.com/oauth2/default";

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// A key of an identity provider.
struct Key {
    id: &'static str,
    pair: RsaKeyPair,
}

impl Key {
    fn new(id: &'static str) -> Key {
        let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
        Key { id, pair }
    }

    /// Returns the key as a member of a JWK set, with the optional members that providers add.
    fn jwk(&self, usage: &str, algorithm: &str) -> Value {
        // Of 2048 bits, in DER (RFC 8017 §A.1.1): the modulus behind its sign, then 65537.
        let der = self.pair.public_key().as_ref();
        assert_eq!((der.len(), &der[265..]), (270, &[2, 3, 1, 0, 1][..]));
        json!({
            "kid": self.id, "kty": "RSA", "alg": algorithm, "use": usage, "n": encode(&der[9..265]), "e": "AQAB",
            "x5c": ["MIICmzCCAYMCBgGM"], "x5t": "c2hh", "x5t#S256": "c2hhMjU2",
        })
    }

    fn sign(&self, claims: &Value) -> String {
        let head = json!({ "alg": "RS256", "typ": "JWT", "kid": self.id });
        let message = format!("{}.{}", encode(head.to_string()), encode(claims.to_string()));
        let mut signature = vec![0; self.pair.public_modulus_len()];
        self.pair
            .sign(
                &RSA_PKCS1_SHA256,
                &SystemRandom::new(),
                message.as_bytes(),
                &mut signature,
            )
            .expect("it signs");
        format!("{message}.{}", encode(signature))
    }
}

/// So many seconds from now.
fn at(seconds: i64) -> i64 {
    let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs();
    i64::try_from(now).expect("not yet") + seconds
}

/// Claims with others in place of some.
fn changed(mut claims: Value, changes: &Value) -> Value {
    let members = changes.as_object().expect("changes").clone();
    claims.as_object_mut().expect("claims").extend(members);
    claims
}

/// An access token of Keycloak's, as it is.
fn keycloak(changes: &Value) -> Value {
    let claims = json!({
        "exp": at(300), "iat": at(0), "auth_time": at(-1), "jti": "onrtac:6a9b0e6d", "iss": KEYCLOAK,
        "aud": ["shop-api", "account"], "sub": "f7c1b0a4-1f0e-4d8e-9d0a-2c1f7a3f6b11", "typ": "Bearer", "azp": "shop-web",
        "sid": "1c2d", "acr": "1", "allowed-origins": ["https://shop.example"],
        "realm_access": { "roles": ["default-roles-shop", "offline_access", "owner"] },
        "resource_access": { "account": { "roles": ["manage-account", "view-profile"] } },
        "scope": "openid profile email orders", "email_verified": true, "name": "Ada Lovelace",
        "preferred_username": "ada", "given_name": "Ada", "family_name": "Lovelace", "email": "ada@shop.example",
    });
    changed(claims, changes)
}

/// One of Auth0's.
fn auth0(changes: &Value) -> Value {
    let claims = json!({
        "iss": AUTH0, "sub": "auth0|65a1b2", "aud": ["https://api.shop.example", "https://shop.eu.auth0.com/userinfo"],
        "iat": at(0), "exp": at(86_400), "azp": "mZk1", "scope": "openid profile", "permissions": ["read:orders"],
        "https://shop.example/roles": ["buyer"],
    });
    changed(claims, changes)
}

/// One of Okta's.
fn okta(changes: &Value) -> Value {
    let claims = json!({
        "ver": 1, "jti": "AT.0mP4", "iss": OKTA, "aud": "api://default", "iat": at(0), "exp": at(3600), "cid": "0oa5",
        "uid": "00u5", "scp": ["openid", "reports.read"], "auth_time": at(-60), "sub": "ada@shop.example",
    });
    changed(claims, changes)
}

/// The three providers' keys, the service that is asked, and the upstream: all at one address, by their paths. The upstream answers with
/// the head that it was sent.
fn world(keys: &Arc<[Key; 4]>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("an address");
    let keys = Arc::clone(keys);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let keys = Arc::clone(&keys);
            // It ends with the connection, at the latest with the test.
            std::thread::spawn(move || drop(serve(stream, &keys)));
        }
    });
    addr
}

fn serve(mut stream: TcpStream, keys: &[Key; 4]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let [realm, encryption, auth0, okta] = keys;
        let set = |keys: &[Value]| (200, String::new(), json!({ "keys": keys }).to_string());
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, fields, body) = match path {
            // Its encryption key is the first one, as in Keycloak.
            "/realms/shop/protocol/openid-connect/certs" => {
                set(&[encryption.jwk("enc", "RSA-OAEP"), realm.jwk("sig", "RS256")])
            }
            "/.well-known/jwks.json" => set(&[auth0.jwk("sig", "RS256")]),
            "/oauth2/default/v1/keys" => set(&[okta.jwk("sig", "RS256")]),
            "/verify" if head.contains("Cookie: partner=a") => {
                (200, "X-Partner: a\r\n".to_owned(), String::new())
            }
            "/verify" => (401, String::new(), "who are you?".to_owned()),
            _ => (200, String::new(), head),
        };
        let length = body.len();
        let text = format!("HTTP/1.1 {status} Said\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        stream.write_all(text.as_bytes())?;
    }
}

fn ask(addr: &str, path: &str, fields: &str) -> Answer {
    let mut stream = connect(addr);
    // Headers that policies set for the upstream, forged by the client.
    let forged = match path {
        "/feed" => "X-Consumer: root\r\nx_consumer: root\r\n",
        "/partners" => "X-Partner: root\r\n",
        _ => "X-User: root\r\nx-user: root\r\n",
    };
    let text =
        format!("GET {path} HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n{fields}{forged}\r\n");
    stream.write_all(text.as_bytes()).expect("it is read");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    Answer::of(&answer)
}

/// Asks with a token; again as long as keys are not there yet.
fn show(addr: &str, path: &str, token: &str) -> Answer {
    wait::until_ok("keys", || {
        let answer = ask(addr, path, &format!("Authorization: Bearer {token}\r\n"));
        match answer.status {
            503 => Err(answer),
            _ => Ok(answer),
        }
    })
}

/// A path, a token, the status, and fields that the upstream is sent; those that are empty it is not.
type Case = (&'static str, String, u16, &'static [(&'static str, &'static str)]);

const ADA: &str = "f7c1b0a4-1f0e-4d8e-9d0a-2c1f7a3f6b11";

fn cases(keys: &[Key; 4]) -> Vec<Case> {
    let [realm, _, other, third] = keys;
    let of_realm = |changes: Value| realm.sign(&keycloak(&changes));
    let good = || of_realm(json!({}));
    vec![
        ("/", good(), 200, &[("X-User", ADA)]),
        (
            "/",
            other.sign(&auth0(&json!({}))),
            200,
            &[("X-User", "auth0|65a1b2")],
        ),
        ("/", third.sign(&okta(&json!({}))), 401, &[]),
        ("/", of_realm(json!({ "aud": "account" })), 401, &[]),
        ("/", of_realm(json!({ "exp": at(-300) })), 401, &[]),
        ("/", of_realm(json!({ "iss": AUTH0 })), 401, &[]),
        (
            "/orders",
            good(),
            200,
            &[("X-User", ADA), ("X-Mail", "ada@shop.example")],
        ),
        (
            "/orders",
            of_realm(json!({ "scope": "openid profile email" })),
            403,
            &[],
        ),
        ("/orders", of_realm(json!({ "azp": "admin-cli" })), 403, &[]),
        (
            "/orders",
            other.sign(&auth0(&json!({ "scope": "orders" }))),
            401,
            &[],
        ),
        (
            "/admin",
            good(),
            200,
            &[
                ("X-User", "ada"),
                ("X-Roles", "default-roles-shop,offline_access,owner"),
            ],
        ),
        (
            "/admin",
            of_realm(json!({ "realm_access": { "roles": ["offline_access"] } })),
            403,
            &[],
        ),
        (
            "/admin",
            of_realm(json!({ "realm_access": null, "roles": ["admin"] })),
            403,
            &[],
        ),
    ]
}

/// Of those whose scopes are a list in `scp`.
fn of_okta(keys: &[Key; 4]) -> Vec<Case> {
    let [realm, _, _, third] = keys;
    vec![
        (
            "/reports",
            third.sign(&okta(&json!({}))),
            200,
            &[("X-User", "ada@shop.example"), ("X-Client", "0oa5")],
        ),
        (
            "/reports",
            third.sign(&okta(&json!({ "scp": ["openid"] }))),
            403,
            &[],
        ),
        ("/reports", realm.sign(&keycloak(&json!({}))), 401, &[]),
    ]
}

#[test]
fn the_example_knows_tokens_of_real_providers() {
    let keys = Arc::new([
        Key::new("k-sig"),
        Key::new("k-enc"),
        Key::new("a0"),
        Key::new("okta-1"),
    ]);
    let behind = world(&keys);
    let here = format!("http://{behind}");
    let text = EXAMPLE
        .replace("0.0.0.0:8080", "127.0.0.1:0")
        .replace("jwks: https://id.shop.example", &format!("jwks: {here}"))
        .replace("url: https://shop.eu.auth0.com", &format!("url: {here}"))
        .replace("jwks: https://shop.okta.com", &format!("jwks: {here}"))
        .replace("http://127.0.0.1:3000", &here)
        .replace("http://127.0.0.1:9000", &here);
    for engine in engines() {
        let proxy = Proxy::start(&text, &["--engine", engine]);
        for (path, token, status, told) in [cases(&keys), of_okta(&keys)].concat() {
            let answer = show(proxy.addr(), path, &token);
            assert_eq!(answer.status, status, "{path} with {token}: {answer:?}");
            for (name, value) in told {
                assert!(
                    answer.body.contains(&format!("\r\n{name}: {value}\r\n")),
                    "{name}: {answer:?}"
                );
            }
            assert!(!answer.body.contains("root"), "{answer:?}");
        }
        others(proxy.addr());
        proxy.server.terminate();
    }
}

/// Clients without a token: API keys, partners known to an authorization service, anonymous clients.
fn others(addr: &str) {
    assert_eq!(ask(addr, "/", "").status, 401);
    assert_eq!(ask(addr, "/feed", "").status, 401);
    let machine = ask(addr, "/feed", "X-API-Key: not-a-secret\r\n");
    assert!(
        machine.status == 200 && machine.body.contains("X-Consumer: partner\r\n"),
        "{machine:?}"
    );
    let partner = ask(addr, "/partners", "Cookie: partner=a\r\n");
    assert!(
        partner.status == 200 && partner.body.contains("X-Partner: a\r\n"),
        "{partner:?}"
    );
    let nobody = ask(addr, "/partners", "");
    assert_eq!((nobody.status, &nobody.body[..]), (401, "who are you?"));
    assert_eq!(ask(addr, "/health", "").status, 200);
}
