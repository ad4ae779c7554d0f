//! Kubernetes objects, trimmed to the fields that are translated.
//!
//! Owns the kinds with their names in the API ([`Kind`]), keys ([`Key`]) and the parser ([`Object::parse`]). Fields that are
//! not translated are skipped while parsing and never become memory. Knows neither the store nor the model.

mod cluster;
mod external_auth;
mod gateway;
mod kind;
mod policy;
mod route;
mod status;
mod traffic;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::limits;

pub use cluster::{
    ConfigMap, ConfigMapData, EndpointAddress, EndpointConditions, EndpointHints, EndpointPort,
    EndpointSlice, NameHint, Namespace, SERVICE_NAME, Secret, SecretData, Service, ServicePort, ServiceSpec,
};
pub use external_auth::{ExternalAuth, ForwardBody, GrpcAuth, HttpAuth};
pub use gateway::{
    AllowedListeners, AllowedRoutes, BackendCertificate, ClientValidation, Frontend, FrontendTls, Gateway,
    GatewayAddress, GatewayClass, GatewayClassSpec, GatewaySpec, GatewayTls, Infrastructure, LabelSelector,
    ListenerSet, ListenerSetSpec, ListenerSpec, ListenerTls, NamespaceScope, PortValidation, RouteKind,
    SelectorRequirement,
};
pub use kind::{EXPERIMENTAL_GROUP, GATEWAY_GROUP, Kind};
pub use policy::{
    BackendTlsPolicy, BackendTlsPolicySpec, BackendValidation, GrantFrom, GrantTo, ObjectRef, ReferenceGrant,
    ReferenceGrantSpec, SubjectAltName, TargetRef,
};
pub use route::{
    BackendRef, Cors, Filter, Fraction, GrpcMatch, GrpcMethod, GrpcRoute, GrpcRouteSpec, GrpcRule,
    HeaderModifier, HeaderPair, HttpMatch, HttpRoute, HttpRouteSpec, HttpRule, Mirror, ParentRef,
    PathModifier, PathSpec, Redirect, Retry, StreamRule, TcpRoute, TcpRouteSpec, Timeouts, TlsRoute,
    TlsRouteSpec, UdpRoute, UdpRouteSpec, UrlRewrite, ValueSpec, WeightedRef,
};
pub use status::Status;
pub use traffic::{
    RequestRate, RetryConstraint, RetryShare, SessionCookie, SessionHeader, SessionPersistence,
    XBackendTrafficPolicy, XBackendTrafficPolicySpec,
};

/// A namespace and a name. The namespace is empty for kinds without namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// Empty for kinds without namespaces.
    pub namespace: Arc<str>,
    /// Unique in the namespace.
    pub name: Arc<str>,
}

impl Id {
    /// Joins both.
    #[must_use]
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Id {
        Id {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// The key of an object in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Empty for kinds without namespaces.
    pub namespace: Arc<str>,
    /// Unique among the objects of the kind and namespace.
    pub name: Arc<str>,
}

impl Key {
    /// Joins the parts.
    #[must_use]
    pub fn new(kind: Kind, namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Key {
        Key {
            kind,
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// Returns the key without its kind.
    #[must_use]
    pub fn id(&self) -> Id {
        Id {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/", self.kind)?;
        match &*self.namespace {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}

/// The metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    /// Empty for kinds without namespaces.
    #[serde(deserialize_with = "shared_text")]
    pub namespace: Arc<str>,
    /// Never empty once parsed.
    #[serde(deserialize_with = "shared_text")]
    pub name: Arc<str>,
    /// Unique in the history of the cluster.
    pub uid: String,
    /// Incremented by the API server at each change of the specification.
    pub generation: i64,
    /// RFC 3339 in UTC, so that texts compare as times do.
    #[serde(deserialize_with = "nullable")]
    pub creation_timestamp: String,
    /// Opaque; differs after each change of the object.
    pub resource_version: String,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// Retained for Namespaces, EndpointSlices and Services alone.
    #[serde(deserialize_with = "nullable")]
    pub labels: BTreeMap<String, String>,
    /// Retained for Services alone.
    #[serde(deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
}

impl Meta {
    /// Returns namespace and name.
    #[must_use]
    pub fn id(&self) -> Id {
        Id {
            namespace: Arc::clone(&self.namespace),
            name: Arc::clone(&self.name),
        }
    }

    /// The order of precedence of the Gateway API: older objects first, then by namespace and name.
    #[must_use]
    pub fn precedence(&self) -> (&str, &str, &str) {
        (&self.creation_timestamp, &self.namespace, &self.name)
    }

    fn trim(&mut self, kind: Kind) {
        if !matches!(kind, Kind::Namespace | Kind::EndpointSlice | Kind::Service) {
            self.labels.clear();
        }
        if kind != Kind::Service {
            self.annotations.clear();
        }
    }
}

/// A type of object. Implemented by the macro below for each [`Kind`].
pub trait Resource: DeserializeOwned + Sized {
    /// Its kind.
    const KIND: Kind;

    /// Its metadata.
    fn meta(&self) -> &Meta;

    /// For the parser alone.
    #[doc(hidden)]
    fn meta_mut(&mut self) -> &mut Meta;

    /// The status in the API server when the object was read. `None` for kinds whose status is not written.
    fn status(&self) -> Option<&Status> {
        None
    }
}

macro_rules! resources {
    ($($name:ident $(: $status:ident)?),* $(,)?) => {
        /// An object of any kind. Clones share it.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Object {
            $(
                #[doc = concat!("Of kind [`Kind::", stringify!($name), "`].")]
                $name(Arc<$name>),
            )*
        }

        $(impl Resource for $name {
            const KIND: Kind = Kind::$name;

            fn meta(&self) -> &Meta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut Meta {
                &mut self.metadata
            }

            $(fn status(&self) -> Option<&Status> {
                Some(&self.$status)
            })?
        })*

        impl Object {
            /// Its metadata.
            #[must_use]
            pub fn meta(&self) -> &Meta {
                match self {
                    $(Object::$name(object) => &object.metadata,)*
                }
            }

            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self {
                    $(Object::$name(_) => Kind::$name,)*
                }
            }

            /// The status in the API server when the object was read. `None` for kinds whose status is not written.
            #[must_use]
            pub fn status(&self) -> Option<&Status> {
                match self {
                    $(Object::$name(object) => Resource::status(&**object),)*
                }
            }

            fn read(kind: Kind, input: Input<'_>) -> Result<Object, ParseError> {
                match kind {
                    $(Kind::$name => Ok(Object::$name(Arc::new(input.read::<$name>()?))),)*
                }
            }
        }
    };
}

resources! {
    GatewayClass: status,
    Gateway: status,
    ListenerSet: status,
    HttpRoute: status,
    GrpcRoute: status,
    TlsRoute: status,
    TcpRoute: status,
    UdpRoute: status,
    ReferenceGrant,
    BackendTlsPolicy: status,
    XBackendTrafficPolicy: status,
    Service,
    EndpointSlice,
    Secret,
    ConfigMap,
    Namespace,
}

/// An object that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// It has more than [`limits::OBJECT_BYTES`].
    #[error("{kind} of {bytes} bytes; the limit is {} bytes", limits::OBJECT_BYTES)]
    TooLarge {
        /// The kind that was expected.
        kind: Kind,
        /// Its size.
        bytes: usize,
    },
    /// It is not JSON, or a field has another type than the API defines.
    #[error("{kind}: {message}")]
    Invalid {
        /// The kind that was expected.
        kind: Kind,
        /// The parser's message.
        message: String,
    },
    /// It has no name.
    #[error("{kind} without a name")]
    Unnamed {
        /// The kind that was expected.
        kind: Kind,
    },
}

enum Input<'a> {
    Bytes(&'a [u8]),
    Value(Value),
}

impl Input<'_> {
    fn read<T: Resource>(self) -> Result<T, ParseError> {
        let object = match self {
            Input::Bytes(bytes) => serde_json::from_slice(bytes),
            Input::Value(value) => serde_json::from_value(value),
        };
        let mut object: T = object.map_err(|error| ParseError::Invalid {
            kind: T::KIND,
            message: error.to_string(),
        })?;
        object.meta_mut().trim(T::KIND);
        if object.meta().name.is_empty() {
            Err(ParseError::Unnamed { kind: T::KIND })
        } else {
            Ok(object)
        }
    }
}

impl Object {
    /// Parses the JSON of an object, as items of lists and watches contain it. `kind` is the caller's: items of lists do
    /// not name theirs.
    ///
    /// # Errors
    /// The JSON is too large, is not that of such an object, or has no name.
    pub fn parse(kind: Kind, json: &[u8]) -> Result<Object, ParseError> {
        if json.len() > limits::OBJECT_BYTES {
            let bytes = json.len();
            return Err(ParseError::TooLarge { kind, bytes });
        }
        Object::read(kind, Input::Bytes(json))
    }

    /// Parses the key and the resource version of an object alone: those of one that cannot be read otherwise.
    ///
    /// # Errors
    /// It is not JSON with such metadata, or has no name.
    pub fn identify(kind: Kind, json: &[u8]) -> Result<(Key, String), ParseError> {
        #[derive(Deserialize)]
        struct Head {
            metadata: Meta,
        }
        let head = serde_json::from_slice::<Head>(json);
        let Head { metadata } = head.map_err(|error| ParseError::Invalid {
            kind,
            message: error.to_string(),
        })?;
        if metadata.name.is_empty() {
            Err(ParseError::Unnamed { kind })
        } else {
            Ok((
                Key::new(kind, metadata.namespace, metadata.name),
                metadata.resource_version,
            ))
        }
    }

    /// Parses an object that has been read as a value, whose size the caller has bounded.
    ///
    /// # Errors
    /// It is not such an object, or has no name.
    pub fn from_value(kind: Kind, value: Value) -> Result<Object, ParseError> {
        Object::read(kind, Input::Value(value))
    }

    /// Its key.
    #[must_use]
    pub fn key(&self) -> Key {
        let meta = self.meta();
        Key::new(self.kind(), Arc::clone(&meta.namespace), Arc::clone(&meta.name))
    }
}

/// Reads `null` as the default: the API server writes empty lists of its own kinds so.
pub(crate) fn nullable<'de, D, T>(input: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(input)?.unwrap_or_default())
}

pub(crate) fn shared_text<'de, D: Deserializer<'de>>(input: D) -> Result<Arc<str>, D::Error> {
    Ok(String::deserialize(input)?.into())
}
