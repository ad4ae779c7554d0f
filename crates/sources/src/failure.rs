//! Failures of sources.

/// The reason for which a source does not read. It is started again.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The broker's client failed.
    #[error("{0}")]
    Client(Box<dyn std::error::Error + Send + Sync>),
    /// A setting cannot be used.
    #[error("{0}")]
    Settings(String),
    /// The broker has ended the subscription.
    #[error("{0}")]
    Ended(String),
}

impl Failure {
    /// The failure of a broker's client.
    #[cfg(feature = "jetstream")]
    pub(crate) fn client(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
        Failure::Client(error.into())
    }
}

#[cfg(feature = "kafka")]
impl From<krafka::KrafkaError> for Failure {
    fn from(error: krafka::KrafkaError) -> Failure {
        Failure::Client(Box::new(error))
    }
}

#[cfg(feature = "postgres")]
impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Failure {
        // Its own text is the kind alone ("db error").
        match std::error::Error::source(&error) {
            Some(cause) => Failure::Client(format!("{error}: {cause}").into()),
            None => Failure::Client(error.to_string().into()),
        }
    }
}
