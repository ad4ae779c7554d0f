//! The measured cases: the policies of a rule, and requests that these admit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ringmain_gateway::model::{
    Action, Addresses, ApiKey, ApiKeys, BasicAuth, ClaimHeader, ClaimPath, ClaimRule, ClientCertificate,
    Concurrency, Config, Cors, CredentialSource, Endpoint, EndpointLocation, Forward, HeaderChanges,
    HeaderName, HeaderValue, Jwt, JwtAlgorithm, JwtKeys, JwtProvider, Listener, Network, Origin,
    PasswordHash, Policy, Protocol, RateKey, RateLimit, RemoteKeys, Route, Rule, Target, Upstream, User,
};
use serde_json::{Value, json};

/// The path at which the origin serves the keys.
pub(crate) const JWKS: &str = "/jwks";

const ISSUER: &str = "https://id.example/realms/shop";

/// A measured case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// The policies of the rule.
    pub(crate) policies: Vec<Policy>,
    /// The rule edits request and response headers.
    pub(crate) changes: bool,
    /// Additional header fields of requests.
    pub(crate) fields: Fields,
    /// Requests are sent over TLS, with a client certificate.
    pub(crate) secure: bool,
}

/// Additional header fields of requests.
pub(crate) enum Fields {
    /// The same fields in each request.
    Same(String),
    /// Another token in each request.
    Tokens(JwtAlgorithm),
}

/// An identity provider's keys.
pub(crate) struct Signer {
    rsa: RsaKeyPair,
    curve: EcdsaKeyPair,
    edwards: Ed25519KeyPair,
}

impl Signer {
    pub(crate) fn new() -> Signer {
        Signer {
            rsa: RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).expect("a key"),
            curve: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key"),
            edwards: Ed25519KeyPair::generate().expect("a key"),
        }
    }

    /// Returns the key set as a provider serves it.
    pub(crate) fn set(&self) -> String {
        // RFC 8017 §A.1.1, DER: the 2048-bit modulus after its sign byte, then the exponent 65537.
        let rsa = self.rsa.public_key().as_ref();
        let (x, y) = self.curve.public_key().as_ref()[1..].split_at(32);
        json!({ "keys": [
            { "kty": "RSA", "kid": "RS256", "n": encode(&rsa[9..265]), "e": "AQAB" },
            { "kty": "EC", "kid": "ES256", "crv": "P-256", "x": encode(x), "y": encode(y) },
            { "kty": "OKP", "kid": "EdDSA", "crv": "Ed25519", "x": encode(self.edwards.public_key()) },
        ]})
        .to_string()
    }

    /// Returns a header field with a token, of about the size of Keycloak's tokens.
    pub(crate) fn field(&self, algorithm: JwtAlgorithm, number: usize) -> String {
        let head = json!({ "alg": algorithm.name(), "kid": algorithm.name(), "typ": "JWT" });
        let claims = json!({
            "iss": ISSUER, "aud": ["shop-api", "account"], "sub": format!("f:528950:{number}"),
            "exp": 4_000_000_000_u64, "iat": 1_700_000_000, "jti": format!("0cd6ee1c-{number:08}"),
            "azp": "shop-web", "scope": "openid profile orders", "preferred_username": "ada",
            "realm_access": { "roles": ["staff", "offline_access", "uma_authorization"] },
        });
        let message = format!("{}.{}", part(&head), part(&claims));
        let random = SystemRandom::new();
        let signature = match algorithm {
            JwtAlgorithm::Es256 => {
                let signature = self.curve.sign(&random, message.as_bytes()).expect("a signature");
                signature.as_ref().to_vec()
            }
            JwtAlgorithm::EdDsa => self.edwards.sign(message.as_bytes()).as_ref().to_vec(),
            _ => {
                let mut signature = vec![0; self.rsa.public_modulus_len()];
                let signed = self
                    .rsa
                    .sign(&RSA_PKCS1_SHA256, &random, message.as_bytes(), &mut signature);
                signed.expect("a signature");
                signature
            }
        };
        format!("Authorization: Bearer {message}.{}\r\n", encode(signature))
    }
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn part(value: &Value) -> String {
    encode(value.to_string())
}

/// Returns all cases, the cheapest first.
pub(crate) fn cases(signer: &Signer) -> Vec<Case> {
    let case = |name, policies: Vec<Policy>, fields: &str| Case {
        name,
        policies,
        changes: false,
        fields: Fields::Same(fields.to_owned()),
        secure: false,
    };
    let token = || signer.field(JwtAlgorithm::Rs256, 0);
    let first = |name, algorithm| Case {
        fields: Fields::Tokens(algorithm),
        ..case(name, vec![jwt(signer, true)], "")
    };
    vec![
        case("addresses", vec![addresses()], ""),
        case("concurrency", vec![concurrency()], ""),
        Case {
            changes: true,
            ..case("headers", vec![], "X-Debug: 1\r\n")
        },
        case("rate_limit", vec![rate_limit()], ""),
        case("api_keys", vec![api_keys()], "X-API-Key: 7c3b1a\r\n"),
        case(
            "basic",
            vec![basic()],
            &format!("Authorization: Basic {}\r\n", STANDARD.encode("ada:engine")),
        ),
        case("cors", vec![cors()], "Origin: https://shop.example\r\n"),
        Case {
            secure: true,
            ..case("client_certificate", vec![certificate()], "")
        },
        case("jwt_cached", vec![jwt(signer, false)], &token()),
        case("jwt_cached_served", vec![jwt(signer, true)], &token()),
        first("jwt_first_es256", JwtAlgorithm::Es256),
        first("jwt_first_eddsa", JwtAlgorithm::EdDsa),
        first("jwt_first_rs256", JwtAlgorithm::Rs256),
        Case {
            changes: true,
            ..case(
                "three_together",
                vec![jwt(signer, true), rate_limit()],
                &(token() + "X-Debug: 1\r\n"),
            )
        },
    ]
}

fn name(text: &str) -> HeaderName {
    HeaderName::parse(text).expect("a name")
}

fn addresses() -> Policy {
    let networks = |texts: &[&str]| {
        let networks = texts.iter().map(|text| Network::parse(text).expect("a network"));
        networks.collect()
    };
    Policy::Addresses(Arc::new(Addresses {
        allow: networks(&["10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0"]),
        deny: networks(&["192.0.2.0/24", "198.51.100.0/24"]),
    }))
}

fn concurrency() -> Policy {
    Policy::Concurrency(Arc::new(Concurrency {
        name: "at once".into(),
        requests: 100,
        by: Vec::new(),
    }))
}

fn rate_limit() -> Policy {
    Policy::RateLimit(Arc::new(RateLimit {
        by: vec![RateKey::Source { v4: 32, v6: 64 }],
        // Simulated time advances too slowly to refill the bucket.
        burst: u32::MAX,
        ..RateLimit::new("shop", 1_000_000, Duration::from_secs(1))
    }))
}

fn api_keys() -> Policy {
    let key = |consumer: &str, key: &str| {
        let mut sum = [0; 32];
        sum.copy_from_slice(digest(&SHA256, key.as_bytes()).as_ref());
        ApiKey {
            consumer: consumer.into(),
            digest: sum,
        }
    };
    let mut keys: Vec<ApiKey> = (0..100)
        .map(|number| key("till", &format!("key {number}")))
        .collect();
    keys.push(key("phone", "7c3b1a"));
    Policy::ApiKeys(Arc::new(ApiKeys {
        from: vec![CredentialSource::Header(name("X-API-Key"))],
        keys: keys.into(),
        consumer_header: Some(name("X-Consumer")),
        hide: false,
    }))
}

fn basic() -> Policy {
    let hash = bcrypt::hash("engine", 4).expect("a hash");
    Policy::Basic(Arc::new(BasicAuth {
        realm: "shop".into(),
        users: [User {
            name: "ada".into(),
            password: PasswordHash::parse(&hash).expect("a hash"),
        }]
        .into(),
        user_header: Some(name("X-User")),
        hide: false,
    }))
}

fn cors() -> Policy {
    Policy::Cors(Arc::new(Cors {
        origins: vec![Origin::parse("https://shop.example").expect("an origin")],
        exposed_headers: vec![name("X-Total")],
        credentials: true,
        ..Cors::default()
    }))
}

fn certificate() -> Policy {
    Policy::ClientCertificate(Arc::new(ClientCertificate {
        required: true,
        chain: false,
        fingerprint: Some(name("X-Fingerprint")),
        verification: None,
    }))
}

/// Creates a JWT policy; `served`: its keys are fetched, so a token may have to wait.
fn jwt(signer: &Signer, served: bool) -> Policy {
    let keys = if served {
        JwtKeys::Remote(RemoteKeys {
            upstream: Target::Upstream("origin".into()),
            host: None,
            path: JWKS.into(),
            refresh: Duration::from_secs(600),
            stale: Duration::from_secs(86_400),
        })
    } else {
        JwtKeys::Set(ringmain_gateway::model::KeySet::parse(signer.set().as_bytes()).expect("a set"))
    };
    let path = |text: &str| ClaimPath(text.into());
    Policy::Jwt(Arc::new(Jwt {
        providers: vec![Arc::new(JwtProvider {
            name: if served { "served" } else { "set" }.into(),
            issuer: ISSUER.into(),
            audiences: vec!["shop-api".into()],
            algorithms: vec![JwtAlgorithm::Rs256, JwtAlgorithm::Es256, JwtAlgorithm::EdDsa],
            keys,
            leeway: Duration::from_secs(30),
            from: vec![CredentialSource::Header(name("Authorization"))],
        })],
        scopes: vec!["orders".into()],
        claims: vec![ClaimRule {
            claim: path("realm_access.roles"),
            any_of: vec!["admin".into(), "staff".into()],
        }],
        headers: vec![
            ClaimHeader {
                name: name("X-User"),
                claim: path("sub"),
            },
            ClaimHeader {
                name: name("X-Roles"),
                claim: path("realm_access.roles"),
            },
        ],
        hide: false,
    }))
}

/// Returns the rule of a case; `bare`: without its policies.
pub(crate) fn rule(case: &Case, bare: bool) -> Rule {
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to("origin"))));
    if bare {
        return rule;
    }
    rule.policies.clone_from(&case.policies);
    if case.changes {
        let value = |text| HeaderValue::parse(text).expect("a value");
        rule.request_headers = HeaderChanges {
            set: vec![(name("X-Gateway"), value("ringmain"))],
            remove: vec![name("X-Debug")],
            ..HeaderChanges::default()
        };
        rule.response_headers = HeaderChanges {
            set: vec![(name("Strict-Transport-Security"), value("max-age=31536000"))],
            remove: vec![name("X-Powered-By")],
            ..HeaderChanges::default()
        };
    }
    rule
}

/// Returns a configuration with one listener and the origin.
pub(crate) fn config(rules: Vec<Rule>, origin: SocketAddr) -> Config {
    let listener = Listener {
        name: "web".into(),
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        protocol: Protocol::Http,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    };
    let route = Route {
        name: "all".into(),
        listeners: Vec::new(),
        hostnames: Vec::new(),
        rules,
    };
    Config {
        listeners: vec![listener.into()],
        routes: vec![route.into()],
        upstreams: vec![
            Upstream::new("origin", vec![Endpoint::new(EndpointLocation::Address(origin))]).into(),
        ],
        ..Config::default()
    }
}
