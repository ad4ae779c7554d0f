//! Tokens that identity providers have signed (RFC 7519): who signs, by what that is checked, what a rule wants of one.

use std::sync::Arc;
use std::time::Duration;

use super::{HeaderName, Hostname, KeyPlace, Name, Secret, Target};

/// A rule wants a token of one of these providers, which has not expired and holds all of this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// At least one; their issuers are all different. The token's `iss` says which one it is of.
    pub providers: Vec<Arc<JwtProvider>>,
    /// All of these must be among the token's `scope` and `scp`. Default: none.
    pub scopes: Vec<Arc<str>>,
    /// Each must hold. Default: none.
    pub claims: Vec<ClaimRule>,
    /// Headers that tell the upstream claims. A claim that is not there, or is an object, has no header. Default: none.
    pub headers: Vec<ClaimHeader>,
    /// Headers with tokens go no further. Default `false`.
    pub hide: bool,
}

/// Who signs tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtProvider {
    /// Unique among providers. What is known of its keys belongs to it.
    pub name: Name,
    /// `iss` must be this.
    pub issuer: Arc<str>,
    /// One of these must be `aud`, or be among it. None: `aud` is not looked at.
    pub audiences: Vec<Arc<str>>,
    /// Others are refused. `none` is none of them.
    pub algorithms: Vec<JwtAlgorithm>,
    /// By what signatures are checked.
    pub keys: JwtKeys,
    /// By how much clocks may differ. Default 30 s.
    pub leeway: Duration,
    /// Where a token is; the first place that has one counts. At least one.
    pub from: Vec<KeyPlace>,
}

/// By what signatures are checked: a set of keys (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// This one.
    Set(KeySet),
    /// One that somebody serves.
    Remote(RemoteKeys),
}

/// A set of keys in JSON, of which at least one can be used. No log and no dump shows it: keys of HMAC are secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet(Secret);

impl KeySet {
    /// Reads one.
    ///
    /// # Errors
    /// It is longer than [`KEY_SET_BYTES`](crate::limits::KEY_SET_BYTES), no set, or has no key that can be used. The text is
    /// `expected …, found …`.
    pub fn parse(json: &[u8]) -> Result<KeySet, String> {
        crate::policy::jwt::check_keys(json)?;
        Ok(KeySet(Secret::new(json)))
    }

    /// As it was written.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// Where a set of keys is served. Until it was fetched once tokens are answered 503.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteKeys {
    /// Who serves it.
    pub upstream: Target,
    /// `Host`. `None`: the endpoint's own.
    pub host: Option<Hostname>,
    /// Path and query.
    pub path: Arc<str>,
    /// How often it is fetched. Default 10 min. Also when a token names a key that is not in it, at most once in
    /// [`KEYS_LEAST`](crate::limits::KEYS_LEAST).
    pub refresh: Duration,
    /// For how long a set that cannot be fetched again goes on being used. Default 1 day; then 503.
    pub stale: Duration,
}

/// An algorithm of signatures (RFC 7518 §3.1, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JwtAlgorithm {
    /// HMAC with SHA-256: who checks can sign, too.
    Hs256,
    /// HMAC with SHA-384.
    Hs384,
    /// HMAC with SHA-512.
    Hs512,
    /// RSA of PKCS #1 1.5 with SHA-256.
    Rs256,
    /// The same with SHA-384.
    Rs384,
    /// The same with SHA-512.
    Rs512,
    /// RSA-PSS with SHA-256.
    Ps256,
    /// The same with SHA-384.
    Ps384,
    /// The same with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// ECDSA on P-521 with SHA-512.
    Es512,
    /// Ed25519.
    EdDsa,
}

impl JwtAlgorithm {
    /// All of them.
    pub const ALL: [JwtAlgorithm; 13] = [
        JwtAlgorithm::Hs256,
        JwtAlgorithm::Hs384,
        JwtAlgorithm::Hs512,
        JwtAlgorithm::Rs256,
        JwtAlgorithm::Rs384,
        JwtAlgorithm::Rs512,
        JwtAlgorithm::Ps256,
        JwtAlgorithm::Ps384,
        JwtAlgorithm::Ps512,
        JwtAlgorithm::Es256,
        JwtAlgorithm::Es384,
        JwtAlgorithm::Es512,
        JwtAlgorithm::EdDsa,
    ];

    /// As `alg` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            JwtAlgorithm::Hs256 => "HS256",
            JwtAlgorithm::Hs384 => "HS384",
            JwtAlgorithm::Hs512 => "HS512",
            JwtAlgorithm::Rs256 => "RS256",
            JwtAlgorithm::Rs384 => "RS384",
            JwtAlgorithm::Rs512 => "RS512",
            JwtAlgorithm::Ps256 => "PS256",
            JwtAlgorithm::Ps384 => "PS384",
            JwtAlgorithm::Ps512 => "PS512",
            JwtAlgorithm::Es256 => "ES256",
            JwtAlgorithm::Es384 => "ES384",
            JwtAlgorithm::Es512 => "ES512",
            JwtAlgorithm::EdDsa => "EdDSA",
        }
    }

    /// The one of that name. `none` is none.
    #[must_use]
    pub fn of(name: &str) -> Option<JwtAlgorithm> {
        JwtAlgorithm::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether who checks a signature cannot make one.
    #[must_use]
    pub const fn is_public(self) -> bool {
        !matches!(
            self,
            JwtAlgorithm::Hs256 | JwtAlgorithm::Hs384 | JwtAlgorithm::Hs512
        )
    }
}

/// A claim: its name, or the names on the way to it behind dots, as in `realm_access.roles`. A claim whose whole name has
/// the dots goes first, as `https://shop.example/roles`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimPath(pub Arc<str>);

/// What a claim must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRule {
    /// Which.
    pub claim: ClaimPath,
    /// It, or one of its elements, must be one of these; numbers and truth values as JSON writes them.
    pub any_of: Vec<Arc<str>>,
}

/// A claim for the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHeader {
    /// The header. Clients cannot send it.
    pub name: HeaderName,
    /// Which; of a list its elements with commas between them.
    pub claim: ClaimPath,
}
