//! Tokens that identity providers have signed (RFC 7519): who signs, by what that is checked, what a rule wants of one.

use std::sync::Arc;
use std::time::Duration;

pub use ringmain_jwt::Algorithm as JwtAlgorithm;

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
