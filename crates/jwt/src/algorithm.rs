//! By what a signature is made. Names alone: keys know what they fit.

/// An algorithm of signatures (RFC 7518 §3.1, RFC 8037).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
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

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 13] = [
        Algorithm::Hs256,
        Algorithm::Hs384,
        Algorithm::Hs512,
        Algorithm::Rs256,
        Algorithm::Rs384,
        Algorithm::Rs512,
        Algorithm::Ps256,
        Algorithm::Ps384,
        Algorithm::Ps512,
        Algorithm::Es256,
        Algorithm::Es384,
        Algorithm::Es512,
        Algorithm::EdDsa,
    ];

    /// As `alg` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Hs256 => "HS256",
            Algorithm::Hs384 => "HS384",
            Algorithm::Hs512 => "HS512",
            Algorithm::Rs256 => "RS256",
            Algorithm::Rs384 => "RS384",
            Algorithm::Rs512 => "RS512",
            Algorithm::Ps256 => "PS256",
            Algorithm::Ps384 => "PS384",
            Algorithm::Ps512 => "PS512",
            Algorithm::Es256 => "ES256",
            Algorithm::Es384 => "ES384",
            Algorithm::Es512 => "ES512",
            Algorithm::EdDsa => "EdDSA",
        }
    }

    /// The one of that name. `none` is none.
    #[must_use]
    pub fn of(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|known| known.name() == name)
    }

    /// Whether who checks a signature cannot make one.
    #[must_use]
    pub const fn is_public(self) -> bool {
        !matches!(self, Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512)
    }
}
