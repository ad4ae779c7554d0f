//! Tokens signed by identity providers (RFC 7519): the providers, the keys that verify signatures, the requirements of a rule.

use std::sync::Arc;
use std::time::Duration;

pub use ringmain_jwt::Algorithm as JwtAlgorithm;

use super::{CredentialSource, HeaderName, Hostname, Name, Secret, Target};

/// The requirements of a rule: an unexpired token of one of these providers that has all of these scopes and claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jwt {
    /// At least one, with distinct issuers. The token's `iss` selects the provider.
    pub providers: Vec<Arc<JwtProvider>>,
    /// Scopes that the token's `scope` and `scp` must contain. Default: none.
    pub scopes: Vec<Arc<str>>,
    /// Claims that the token must have. Default: none.
    pub claims: Vec<ClaimRule>,
    /// Headers that forward claims to the upstream. A claim that is absent, or is an object, has no header. Default: none.
    pub headers: Vec<ClaimHeader>,
    /// Removes the headers with tokens before the request is forwarded. Default: `false`.
    pub hide: bool,
}

/// An identity provider that signs tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JwtProvider {
    /// Unique among providers; identifies the cache of its keys.
    pub name: Name,
    /// The required `iss`.
    pub issuer: Arc<str>,
    /// Audiences, one of which `aud` must be or contain. None: `aud` is not checked.
    pub audiences: Vec<Arc<str>>,
    /// The accepted signature algorithms. `none` is never accepted.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The keys that verify signatures.
    pub keys: JwtKeys,
    /// Tolerated clock skew. Default: 30 s.
    pub leeway: Duration,
    /// The locations of a token in a request, at least one; the first that has a token applies.
    pub from: Vec<CredentialSource>,
}

/// The key set that verifies signatures (RFC 7517).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwtKeys {
    /// A configured set.
    Set(KeySet),
    /// A set that is fetched from a server.
    Remote(RemoteKeys),
}

/// A key set in JSON with at least one usable key. No log and no dump shows it: HMAC keys are secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet(Secret);

impl KeySet {
    /// Parses a key set.
    ///
    /// # Errors
    /// It is longer than [`KEY_SET_BYTES`](crate::limits::KEY_SET_BYTES), is not a key set, or has no usable key. The message is `expected
    /// …, found …`.
    pub fn parse(json: &[u8]) -> Result<KeySet, String> {
        crate::policy::jwt::check_key_set(json)?;
        Ok(KeySet(Secret::new(json)))
    }

    /// Returns the JSON text as configured.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }
}

/// The location of a remote key set. Requests with tokens are answered 503 until it was fetched once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteKeys {
    /// The upstream that serves it.
    pub upstream: Target,
    /// The `Host`. `None`: the endpoint's own.
    pub host: Option<Hostname>,
    /// Path and query.
    pub path: Arc<str>,
    /// Refresh interval. Default: 10 min. The set is also fetched when a token names an unknown key, at most once in
    /// [`KEYS_LEAST`](crate::limits::KEYS_LEAST).
    pub refresh: Duration,
    /// Time for which a set that cannot be refreshed stays in use. Default: 1 day; then 503.
    pub stale: Duration,
}

/// A claim: its name, or the path of names to it, separated by dots, as in `realm_access.roles`. A claim whose name contains the dots takes
/// precedence, as in `https://shop.example/roles`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimPath(pub Arc<str>);

/// A requirement of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRule {
    /// The claim.
    pub claim: ClaimPath,
    /// The accepted values, one of which the claim or one of its elements must be; numbers and booleans as JSON writes them.
    pub any_of: Vec<Arc<str>>,
}

/// A header that forwards a claim to the upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimHeader {
    /// The header. Clients cannot send it.
    pub name: HeaderName,
    /// The claim; the elements of a list are separated by commas.
    pub claim: ClaimPath,
}
