//! An identity provider for tests: keys of every algorithm, tokens signed by these, and gateways that require such tokens.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_engine::Config;
use ringmain_gateway::model::{CredentialSource, Jwt, JwtAlgorithm, JwtKeys, JwtProvider, KeySet, Policy};
use serde_json::{Value, json};

use crate::origin::{Edge, Origin, edge, to};
use crate::policies::{ask, header, with};
use crate::support::Answer;

pub(crate) const ISSUER: &str = "https://id.example/realms/shop";

pub(crate) enum Secret {
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
    Curve(EcdsaKeyPair),
    Edwards(Ed25519KeyPair),
    Shared(hmac::Algorithm, Vec<u8>),
}

/// An identity provider's key.
pub(crate) struct Signer {
    pub(crate) algorithm: JwtAlgorithm,
    pub(crate) id: String,
    pub(crate) secret: Secret,
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

impl Signer {
    pub(crate) fn new(algorithm: JwtAlgorithm, id: &str) -> Signer {
        let pair = || RsaKeyPair::generate(rsa::KeySize::Rsa2048).expect("a key");
        let curve =
            |by: &'static EcdsaSigningAlgorithm| Secret::Curve(EcdsaKeyPair::generate(by).expect("a key"));
        let secret = match algorithm {
            JwtAlgorithm::Hs256 => Secret::Shared(hmac::HMAC_SHA256, vec![7; 64]),
            JwtAlgorithm::Hs384 => Secret::Shared(hmac::HMAC_SHA384, vec![7; 64]),
            JwtAlgorithm::Hs512 => Secret::Shared(hmac::HMAC_SHA512, vec![7; 64]),
            JwtAlgorithm::Rs256 => Secret::Rsa(pair(), &signature::RSA_PKCS1_SHA256),
            JwtAlgorithm::Rs384 => Secret::Rsa(pair(), &signature::RSA_PKCS1_SHA384),
            JwtAlgorithm::Rs512 => Secret::Rsa(pair(), &signature::RSA_PKCS1_SHA512),
            JwtAlgorithm::Ps256 => Secret::Rsa(pair(), &signature::RSA_PSS_SHA256),
            JwtAlgorithm::Ps384 => Secret::Rsa(pair(), &signature::RSA_PSS_SHA384),
            JwtAlgorithm::Ps512 => Secret::Rsa(pair(), &signature::RSA_PSS_SHA512),
            JwtAlgorithm::Es256 => curve(&signature::ECDSA_P256_SHA256_FIXED_SIGNING),
            JwtAlgorithm::Es384 => curve(&signature::ECDSA_P384_SHA384_FIXED_SIGNING),
            JwtAlgorithm::Es512 => curve(&signature::ECDSA_P521_SHA512_FIXED_SIGNING),
            JwtAlgorithm::EdDsa => Secret::Edwards(Ed25519KeyPair::generate().expect("a key")),
        };
        Signer {
            algorithm,
            id: id.to_owned(),
            secret,
        }
    }

    /// The key as a set has it.
    pub(crate) fn jwk(&self) -> Value {
        let mut key = match &self.secret {
            Secret::Rsa(pair, _) => {
                // Of 2048 bits, in DER (RFC 8017 §A.1.1): the modulus behind its sign, then 65537.
                let der = pair.public_key().as_ref();
                assert_eq!((der.len(), &der[265..]), (270, &[2, 3, 1, 0, 1][..]));
                json!({ "kty": "RSA", "n": encode(&der[9..265]), "e": "AQAB" })
            }
            Secret::Curve(pair) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                let curve = match x.len() {
                    32 => "P-256",
                    48 => "P-384",
                    _ => "P-521",
                };
                json!({ "kty": "EC", "crv": curve, "x": encode(x), "y": encode(y) })
            }
            Secret::Edwards(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": encode(pair.public_key()) })
            }
            Secret::Shared(_, secret) => json!({ "kty": "oct", "k": encode(secret) }),
        };
        key["kid"] = json!(self.id);
        key["use"] = json!("sig");
        key
    }

    fn signature(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.secret {
            Secret::Rsa(pair, by) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(*by, &random, message, &mut signature)
                    .expect("it signs");
                signature
            }
            Secret::Curve(pair) => pair.sign(&random, message).expect("it signs").as_ref().to_vec(),
            Secret::Edwards(pair) => pair.sign(message).as_ref().to_vec(),
            Secret::Shared(by, secret) => hmac::sign(&hmac::Key::new(*by, secret), message)
                .as_ref()
                .to_vec(),
        }
    }

    /// With a head that a test says.
    pub(crate) fn sign_as(&self, head: &Value, claims: &Value) -> String {
        self.sign_text(&head.to_string(), &claims.to_string())
    }

    /// With a head and claims that need not be JSON.
    pub(crate) fn sign_text(&self, head: &str, claims: &str) -> String {
        let message = format!("{}.{}", encode(head), encode(claims));
        let signature = encode(self.signature(message.as_bytes()));
        format!("{message}.{signature}")
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let head = json!({ "alg": self.algorithm.name(), "kid": self.id, "typ": "JWT" });
        self.sign_as(&head, claims)
    }
}

/// So many seconds from now.
pub(crate) fn from_now(seconds: i64) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(now.as_secs()).expect("not yet") + seconds
}

/// Claims that are good, with changes: `null` takes one out.
pub(crate) fn claims(changes: Value) -> Value {
    let mut claims = json!({
        "iss": ISSUER, "aud": "shop-api", "sub": "ada", "exp": from_now(3600), "nbf": from_now(-10),
    });
    for (name, value) in changes.as_object().expect("changes") {
        match value {
            Value::Null => claims.as_object_mut().expect("claims").remove(name),
            value => claims
                .as_object_mut()
                .expect("claims")
                .insert(name.clone(), value.clone()),
        };
    }
    claims
}

pub(crate) fn set(keys: &[&Signer]) -> String {
    let keys: Vec<Value> = keys.iter().map(|signer| signer.jwk()).collect();
    json!({ "keys": keys }).to_string()
}

pub(crate) fn provider(keys: JwtKeys, algorithms: &[JwtAlgorithm]) -> JwtProvider {
    JwtProvider {
        name: "id".into(),
        issuer: ISSUER.into(),
        audiences: vec!["shop-api".into(), "shop".into()],
        algorithms: algorithms.to_vec(),
        keys,
        leeway: Duration::from_secs(30),
        from: vec![CredentialSource::Header(header("Authorization"))],
    }
}

pub(crate) fn inline(keys: &[&Signer]) -> JwtKeys {
    JwtKeys::Set(KeySet::parse(set(keys).as_bytes()).expect("a set"))
}

pub(crate) fn jwt(provider: JwtProvider) -> Jwt {
    Jwt {
        providers: vec![Arc::new(provider)],
        scopes: Vec::new(),
        claims: Vec::new(),
        headers: Vec::new(),
        hide: false,
    }
}

pub(crate) fn guarded(engine: Config, origin: &Origin, policy: Jwt) -> Edge {
    let config = with(to(&[origin.addr], |_, _| {}), vec![Policy::Jwt(Arc::new(policy))]);
    edge(engine, config)
}

pub(crate) fn shown(edge: &Edge, token: &str) -> Answer {
    ask(edge, "GET", &format!("Authorization: Bearer {token}\r\n"))
}
