//! Errors of the API server, each with a next step. Knows no kind of object.

use std::fmt::Write as _;

/// A request to the API server that has failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// There is no configuration of a client, or an unusable one.
    #[error(
        "no access to an API server: {0}; run as a Pod with a ServiceAccount, or set KUBECONFIG to the path of a kubeconfig file"
    )]
    Configuration(String),
    /// The API server was not reached, or a connection to it was lost.
    #[error("{url}: {why}; is the API server running, and is its address right?")]
    Unreachable {
        /// The address of the API server.
        url: String,
        /// The error and its causes.
        why: String,
    },
    /// The API server has refused a request.
    #[error("{request}: {status} {reason}: {message}{}", advice(*.status))]
    Refused {
        /// The request: its method and path.
        request: String,
        /// The status of the response.
        status: u16,
        /// The reason in a word, as the API server gives it.
        reason: String,
        /// The reason in a sentence, as the API server gives it.
        message: String,
    },
    /// The API server has not responded in time, or nothing more of a response.
    #[error("{0}: the API server has not responded in time")]
    Late(String),
    /// A response that is no object of the expected form.
    #[error("{request}: unexpected response: {why}")]
    Unexpected {
        /// The request: its method and path.
        request: String,
        /// The difference.
        why: String,
    },
}

impl Error {
    /// Returns `true` if the requested version of a collection is not kept any more: then it has to be listed again.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        matches!(self, Error::Refused { status: 410, .. })
    }

    /// Returns `true` if an object has changed since it was read, or exists already.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Error::Refused { status: 409, .. })
    }

    /// Returns `true` if an object or a kind does not exist.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Error::Refused { status: 404, .. })
    }

    /// Returns `true` if the credentials do not suffice.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        matches!(
            self,
            Error::Refused {
                status: 401 | 403,
                ..
            }
        )
    }

    /// Returns `true` if the API server has not responded.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Late(_))
    }

    /// Returns `true` if the same request cannot succeed later.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        matches!(
            self,
            Error::Refused {
                status: 400 | 413 | 422,
                ..
            }
        )
    }

    pub(super) fn of(error: kube::Error, request: &str, url: &str) -> Error {
        match error {
            kube::Error::Api(status) => Error::Refused {
                request: request.to_owned(),
                status: status.code,
                reason: status.reason,
                message: status.message,
            },
            kube::Error::SerdeError(error) => Error::Unexpected {
                request: request.to_owned(),
                why: error.to_string(),
            },
            other => Error::Unreachable {
                url: url.to_owned(),
                why: with_causes(&other),
            },
        }
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        401 => "; is the token of the ServiceAccount, or that of KUBECONFIG, valid?",
        403 => "; grant this to the ServiceAccount by a ClusterRole and its binding",
        _ => "",
    }
}

/// An error and its causes in one line.
pub(super) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Most repeat their causes.
        if !text.contains(&next) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {next}");
        }
        cause = error.source();
    }
    text
}
