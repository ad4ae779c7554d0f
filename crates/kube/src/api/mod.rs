//! The client of the API server: lists, watches, statuses and applied objects, over the client of kube-rs.
//!
//! Objects are parsed into the caller's structs, so that fields which nothing reads never become memory. Knows no kind and keeps no state;
//! pauses after failures belong to callers.

mod error;
mod watch;

#[cfg(test)]
mod tests;

use std::fmt;

use kube::Client;
use kube::config::{Config, KubeConfigOptions};
use kube::core::Request;
use kube::core::params::{ListParams, Patch, PatchParams, PostParams, WatchParams};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

pub use self::error::Error;
pub use self::watch::{Event, Watch};
use crate::limits;

/// The name by which the API server knows the fields that this program applies.
const FIELD_MANAGER: &str = "ringmain";

/// A client of one API server. Clones share their connections.
#[derive(Clone)]
pub struct Api {
    client: Client,
    url: String,
    namespace: String,
}

/// A collection of objects, a single one by name, or those with a label.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    /// The path of the collection: `/api/v1/namespaces/shop/secrets`.
    pub path: String,
    /// The one object that lists and watches return. `None`: all.
    pub only: Option<String>,
    /// The label that objects must have, as `NAME=VALUE`. `None`: any.
    pub label: Option<String>,
}

/// The objects of a collection.
#[derive(Debug)]
pub struct Listed<T> {
    /// The objects.
    pub items: Vec<T>,
    /// The version of the collection, from which a watch continues.
    pub version: String,
}

#[derive(Deserialize)]
struct Page<T> {
    metadata: PageMetadata,
    // Written as `null` by servers of Go when it is empty.
    items: Option<Vec<T>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct PageMetadata {
    resource_version: String,
    r#continue: Option<String>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Api {
    /// A client by the file that KUBECONFIG names, or else by the ServiceAccount of the Pod. Tokens in files are read again once a
    /// minute. Nothing is connected yet.
    ///
    /// # Errors
    /// There is neither, or it cannot be used.
    pub async fn from_environment() -> Result<Api, Error> {
        let wrong = |error: &dyn std::error::Error| Error::Configuration(error::with_causes(error));
        let mut config = if std::env::var_os("KUBECONFIG").is_some() {
            let read = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
            read.map_err(|error| wrong(&error))?
        } else {
            Config::incluster().map_err(|error| wrong(&error))?
        };
        // Callers pause after failures.
        config.default_retry = false;
        let url = config.cluster_url.to_string();
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| wrong(&error))?;
        Ok(Api {
            client,
            url,
            namespace,
        })
    }

    /// A client of a test's server, in the namespace `live`.
    #[cfg(test)]
    pub(crate) fn of_test(url: &str) -> Api {
        let mut config = Config::new(url.parse().expect("a URL"));
        config.default_retry = false;
        Api {
            client: Client::try_from(config).expect("a client"),
            url: url.to_owned(),
            namespace: "live".to_owned(),
        }
    }

    /// The address of the API server.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The namespace of the ServiceAccount, or of the kubeconfig's context.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns all objects of a collection, requested page by page.
    ///
    /// # Errors
    /// A request fails, or an object does not have the form of `T`.
    pub async fn list<T: DeserializeOwned>(&self, collection: &Collection) -> Result<Listed<T>, Error> {
        let mut params = ListParams::default().limit(limits::PAGE);
        params.field_selector = collection.selector();
        params.label_selector.clone_from(&collection.label);
        let mut items = Vec::new();
        loop {
            let request = Request::new(&*collection.path).list(&params);
            let page: Page<T> = self.request(request).await?;
            items.extend(page.items.unwrap_or_default());
            match page.metadata.r#continue.filter(|token| !token.is_empty()) {
                Some(token) => params.continue_token = Some(token),
                None => {
                    return Ok(Listed {
                        items,
                        version: page.metadata.resource_version,
                    });
                }
            }
        }
    }

    /// Watches a collection from a version on.
    ///
    /// # Errors
    /// The request fails; the version may be [expired](Error::is_expired).
    pub async fn watch(&self, collection: &Collection, version: &str) -> Result<Watch, Error> {
        let mut params = WatchParams::default().timeout(limits::WATCH_SECONDS);
        params.field_selector = collection.selector();
        params.label_selector.clone_from(&collection.label);
        let request = Request::new(&*collection.path).watch(&params, version);
        let (request, name) = self.named(request)?;
        let begun = timeout(limits::CONNECT_WITHIN, self.client.request_stream(request)).await;
        match begun {
            Err(_) => Err(Error::Late(name)),
            Ok(Err(error)) => Err(Error::of(error, &name, &self.url)),
            Ok(Ok(lines)) => Ok(Watch::new(name, lines)),
        }
    }

    /// Returns an object.
    ///
    /// # Errors
    /// The request fails; there may be [no such object](Error::is_missing).
    pub async fn read<T: DeserializeOwned>(&self, collection: &str, name: &str) -> Result<T, Error> {
        let params = kube::core::params::GetParams::default();
        self.request(Request::new(collection).get(name, &params)).await
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The request fails; there may be such an object [already](Error::is_conflict).
    pub async fn create<T: DeserializeOwned>(&self, collection: &str, object: &Value) -> Result<T, Error> {
        let body = object.to_string().into_bytes();
        let request = Request::new(collection).create(&manager(), body);
        self.request(request).await
    }

    /// Replaces an object of the version that `object` has.
    ///
    /// # Errors
    /// The request fails; the object may have [changed](Error::is_conflict) since that version.
    pub async fn replace<T: DeserializeOwned>(
        &self,
        collection: &str,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let body = object.to_string().into_bytes();
        let request = Request::new(collection).replace(name, &manager(), body);
        self.request(request).await
    }

    /// Replaces the status of an object of the version that `object` has. Returns the object.
    ///
    /// # Errors
    /// The request fails; the object may have [changed](Error::is_conflict) since that version, or be [gone](Error::is_missing).
    pub async fn write_status<T: DeserializeOwned>(
        &self,
        collection: &str,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let body = object.to_string().into_bytes();
        let request = Request::new(collection).replace_subresource("status", name, &manager(), body);
        self.request(request).await
    }

    /// Creates an object or changes those of its fields that `object` has. Fields of an earlier call that this one does not have are
    /// removed, and those of others stay (server-side apply).
    ///
    /// # Errors
    /// The request fails.
    pub async fn apply<T: DeserializeOwned>(
        &self,
        collection: &str,
        name: &str,
        object: &Value,
    ) -> Result<T, Error> {
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let request = Request::new(collection).patch(name, &params, &Patch::Apply(object));
        self.request(request).await
    }

    /// Changes fields of an object (JSON merge patch).
    ///
    /// # Errors
    /// The request fails; there may be [no such object](Error::is_missing).
    pub async fn merge<T: DeserializeOwned>(
        &self,
        collection: &str,
        name: &str,
        fields: &Value,
    ) -> Result<T, Error> {
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let request = Request::new(collection).patch(name, &params, &Patch::Merge(fields));
        self.request(request).await
    }

    async fn request<T: DeserializeOwned, E: std::error::Error>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
    ) -> Result<T, Error> {
        let (request, name) = self.named(request)?;
        let response = timeout(limits::REQUEST_WITHIN, self.client.request(request)).await;
        match response {
            Err(_) => Err(Error::Late(name)),
            Ok(Err(error)) => Err(Error::of(error, &name, &self.url)),
            Ok(Ok(object)) => Ok(object),
        }
    }

    /// A request, and its method and path for messages.
    fn named<E: std::error::Error>(
        &self,
        request: Result<http::Request<Vec<u8>>, E>,
    ) -> Result<(http::Request<Vec<u8>>, String), Error> {
        let request = request.map_err(|error| Error::Unexpected {
            request: self.url.clone(),
            why: error::with_causes(&error),
        })?;
        let name = format!("{} {}", request.method(), request.uri().path());
        Ok((request, name))
    }
}

impl Collection {
    /// All objects of a collection.
    #[must_use]
    pub fn all(path: impl Into<String>) -> Collection {
        Collection {
            path: path.into(),
            only: None,
            label: None,
        }
    }

    /// One object of a collection, whether it exists or not.
    #[must_use]
    pub fn one(path: impl Into<String>, name: &str) -> Collection {
        Collection {
            path: path.into(),
            only: Some(name.to_owned()),
            label: None,
        }
    }

    /// The objects of a collection with this value of a label.
    #[must_use]
    pub fn labelled(path: impl Into<String>, label: &str, value: &str) -> Collection {
        Collection {
            path: path.into(),
            only: None,
            label: Some(format!("{label}={value}")),
        }
    }

    fn selector(&self) -> Option<String> {
        self.only.as_ref().map(|name| format!("metadata.name={name}"))
    }
}

fn manager() -> PostParams {
    PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    }
}
