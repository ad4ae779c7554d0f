//! Sets of keys (RFC 7517), which verify signatures. A key supports only the algorithms of its own type, so that a public key cannot be
//! used as an HMAC secret. Must not know tokens.

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    self, ParsedPublicKey, RsaParameters, RsaPublicKeyComponents, VerificationAlgorithm,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::{Algorithm, limits};

/// The keys that verify signatures. `Debug` does not print them.
#[derive(Debug)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<Box<str>>,
    /// `None`: all algorithms that its type supports.
    algorithm: Option<Algorithm>,
    material: Material,
}

enum Material {
    Rsa(RsaPublicKeyComponents<Vec<u8>>),
    /// A key on the curve of this algorithm, or an Ed25519 key.
    Curve(Algorithm, ParsedPublicKey),
    Secret(Box<[u8]>),
}

impl std::fmt::Debug for Material {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Material::Rsa(_) => "Rsa",
            Material::Curve(..) => "Curve",
            Material::Secret(_) => "Secret",
        })
    }
}

impl KeySet {
    /// Parses a JWK Set.
    ///
    /// Keys for other uses, and those of unknown types, are skipped (RFC 7517 §5). Of the others the first
    /// [`KEYS_PER_SET`](limits::KEYS_PER_SET) are used.
    ///
    /// # Errors
    /// The set is longer than [`KEY_SET_BYTES`](limits::KEY_SET_BYTES), invalid, or has no usable key. The text reads `expected …, found
    /// …`.
    pub fn parse(json: &[u8]) -> Result<KeySet, String> {
        if json.len() > limits::KEY_SET_BYTES {
            return Err(format!(
                "expected a set of keys of at most {} bytes, found more",
                limits::KEY_SET_BYTES
            ));
        }
        let set: Value = serde_json::from_slice(json)
            .map_err(|error| format!("expected a set of keys (JWKS) in JSON, found none: {error}"))?;
        let list = set.get("keys").and_then(Value::as_array);
        let list = list.ok_or("expected a set of keys (JWKS) with the member `keys`, found none")?;
        let keys: Vec<Key> = list
            .iter()
            .filter_map(Key::parse)
            .take(limits::KEYS_PER_SET)
            .collect();
        if keys.is_empty() {
            return Err(format!(
                "expected a usable key (RSA of 2048 to 8192 bits, EC P-256, P-384 or P-521, Ed25519, oct), found none \
                 among {}",
                list.len()
            ));
        }
        Ok(KeySet { keys })
    }

    /// Creates a set with one unnamed secret, for the HMAC algorithms whose hash is not longer than the secret (RFC 7518 §3.2). The secret
    /// can also create signatures.
    ///
    /// # Errors
    /// The secret is shorter than 32 bytes, the hash of HS256.
    pub fn from_secret(secret: &[u8]) -> Result<KeySet, String> {
        let material = Material::Secret(secret.into());
        if !material.fits(Algorithm::Hs256) {
            return Err(format!(
                "expected a secret of at least 32 bytes, since a shorter one can be guessed, found {} bytes",
                secret.len()
            ));
        }
        let (id, algorithm) = (None, None);
        Ok(KeySet {
            keys: vec![Key {
                id,
                algorithm,
                material,
            }],
        })
    }

    /// Returns whether a key matches the algorithm and the key ID of a token.
    #[must_use]
    pub fn has_candidate(&self, algorithm: Algorithm, id: Option<&str>) -> bool {
        self.candidates(algorithm, id).next().is_some()
    }

    /// Verifies a signature with each matching key. Returns whether any of these keys created it.
    #[must_use]
    pub fn verify(&self, algorithm: Algorithm, id: Option<&str>, message: &[u8], signature: &[u8]) -> bool {
        self.candidates(algorithm, id)
            .any(|key| key.material.verify(algorithm, message, signature))
    }

    /// Returns the keys with this ID and those without one; all keys if the token has no key ID.
    fn candidates(&self, algorithm: Algorithm, id: Option<&str>) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| {
            let named = match (&key.id, id) {
                (Some(own), Some(id)) => &**own == id,
                _ => true,
            };
            named && key.algorithm.is_none_or(|own| own == algorithm) && key.material.fits(algorithm)
        })
    }
}

impl Key {
    fn parse(json: &Value) -> Option<Key> {
        let text = |name: &str| json.get(name).and_then(Value::as_str);
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        if let Some(usages) = json.get("key_ops").and_then(Value::as_array)
            && !usages.iter().any(|usage| usage == "verify")
        {
            return None;
        }
        let algorithm = match text("alg") {
            // An unknown algorithm, such as one for encryption.
            Some(name) => Some(Algorithm::from_name(name)?),
            None => None,
        };
        let material = Material::parse(json)?;
        if algorithm.is_some_and(|algorithm| !material.fits(algorithm)) {
            return None;
        }
        Some(Key {
            id: text("kid").map(Into::into),
            algorithm,
            material,
        })
    }
}

impl Material {
    fn parse(json: &Value) -> Option<Material> {
        let bytes = |name: &str| {
            let text = json.get(name)?.as_str()?;
            // Some issuers write the padding that RFC 7515 §2 omits.
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
        };
        match json.get("kty")?.as_str()? {
            "RSA" => {
                let (n, e) = (bytes("n")?, bytes("e")?);
                let zeros = n.iter().take_while(|&&byte| byte == 0).count();
                let n = n[zeros..].to_vec();
                (256..=1024).contains(&n.len()).then_some(())?;
                Some(Material::Rsa(RsaPublicKeyComponents { n, e }))
            }
            "EC" => {
                let (algorithm, size) = match json.get("crv")?.as_str()? {
                    "P-256" => (Algorithm::Es256, 32),
                    "P-384" => (Algorithm::Es384, 48),
                    "P-521" => (Algorithm::Es512, 66),
                    _ => return None,
                };
                let (x, y) = (bytes("x")?, bytes("y")?);
                if x.len() != size || y.len() != size {
                    return None;
                }
                // SEC 1 §2.3.3: an uncompressed point.
                let point = [&[4][..], &x, &y].concat();
                Material::curve(algorithm, &point)
            }
            "OKP" if json.get("crv")?.as_str()? == "Ed25519" => {
                Material::curve(Algorithm::EdDsa, &bytes("x")?)
            }
            "oct" => {
                let secret = bytes("k")?;
                (!secret.is_empty()).then(|| Material::Secret(secret.into()))
            }
            _ => None,
        }
    }

    fn curve(algorithm: Algorithm, key: &[u8]) -> Option<Material> {
        let by: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Es512 => &signature::ECDSA_P521_SHA512_FIXED,
            _ => &signature::ED25519,
        };
        let key = ParsedPublicKey::new(by, key).ok()?;
        Some(Material::Curve(algorithm, key))
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        match self {
            Material::Rsa(_) => rsa(algorithm).is_some(),
            Material::Curve(own, _) => *own == algorithm,
            // RFC 7518 §3.2: a secret is at least as long as the hash.
            Material::Secret(secret) => {
                hmac_algorithm(algorithm).is_some_and(|(_, least)| secret.len() >= least)
            }
        }
    }

    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        match self {
            Material::Rsa(key) => rsa(algorithm).is_some_and(|by| key.verify(by, message, signature).is_ok()),
            Material::Curve(_, key) => key.verify_sig(message, signature).is_ok(),
            Material::Secret(secret) => hmac_algorithm(algorithm)
                .is_some_and(|(by, _)| hmac::verify(&hmac::Key::new(by, secret), message, signature).is_ok()),
        }
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn hmac_algorithm(algorithm: Algorithm) -> Option<(hmac::Algorithm, usize)> {
    Some(match algorithm {
        Algorithm::Hs256 => (hmac::HMAC_SHA256, 32),
        Algorithm::Hs384 => (hmac::HMAC_SHA384, 48),
        Algorithm::Hs512 => (hmac::HMAC_SHA512, 64),
        _ => return None,
    })
}
