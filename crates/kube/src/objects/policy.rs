//! ReferenceGrant, BackendTLSPolicy and references to other objects.

use serde::Deserialize;

use super::{Meta, Status};

/// A reference to an object. The defaults of group and kind depend on the field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ObjectRef {
    /// `None` or empty: as the field has it, mostly the core group.
    pub group: Option<String>,
    /// `None`: as the field has it.
    pub kind: Option<String>,
    /// The object's name.
    pub name: String,
    /// `None`: that of the object that refers.
    pub namespace: Option<String>,
}

/// Permits references from other namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrant {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: ReferenceGrantSpec,
}

/// The specification of a [`ReferenceGrant`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ReferenceGrantSpec {
    /// The objects that may refer.
    pub from: Vec<GrantFrom>,
    /// The objects of this namespace that may be referred to.
    pub to: Vec<GrantTo>,
}

/// Objects that may refer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GrantFrom {
    /// Empty: the core group.
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// Their namespace.
    pub namespace: String,
}

/// Objects that may be referred to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GrantTo {
    /// Empty: the core group.
    pub group: String,
    /// Their kind.
    pub kind: String,
    /// `None`: every object of the kind.
    pub name: Option<String>,
}

/// TLS towards the endpoints of Services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct BackendTlsPolicy {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: BackendTlsPolicySpec,
    /// As the API server has it.
    pub status: Status,
}

/// The specification of a [`BackendTlsPolicy`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendTlsPolicySpec {
    /// Services of its namespace.
    pub target_refs: Vec<TargetRef>,
    /// The validation of their certificates.
    pub validation: BackendValidation,
}

/// A target of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TargetRef {
    /// Empty: the core group.
    pub group: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The name of one port; `None`: all ports without a policy of their own.
    pub section_name: Option<String>,
}

/// The validation of the certificates of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendValidation {
    /// ConfigMaps and Secrets of the policy's namespace.
    #[serde(rename = "caCertificateRefs")]
    pub authorities: Vec<ObjectRef>,
    /// `System`, or `None`.
    #[serde(rename = "wellKnownCACertificates")]
    pub well_known: Option<String>,
    /// SNI, and the name that certificates are for unless [`subject_alt_names`](Self::subject_alt_names) are set.
    pub hostname: String,
    /// The names of which certificates must have one.
    pub subject_alt_names: Vec<SubjectAltName>,
}

/// A name of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SubjectAltName {
    /// `Hostname` or `URI`.
    #[serde(rename = "type")]
    pub kind: String,
    /// For `Hostname`.
    pub hostname: String,
    /// For `URI`.
    pub uri: String,
}
