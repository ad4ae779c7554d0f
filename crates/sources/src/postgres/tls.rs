//! TLS to PostgreSQL, over rustls.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringmain_gateway::model::BrokerTls;
use rustls::ClientConfig;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::{TlsConnector, client};

use crate::failure::Failure;
use crate::tls::client_config;

/// Makes connections over TLS.
#[derive(Clone)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    /// The name that certificates are verified against, if it is not the host's.
    server_name: Option<Arc<str>>,
}

/// A handshake with one server.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

/// A connection over TLS.
pub(super) struct Session<S>(client::TlsStream<S>);

impl Tls {
    /// Reads certificates and keys.
    pub(super) fn new(tls: &BrokerTls) -> Result<Tls, Failure> {
        let config = client_config(tls.authorities.as_deref(), tls.certificate.as_deref())?;
        Ok(Tls {
            config: Arc::new(config),
            server_name: tls.server_name.clone(),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> MakeTlsConnect<S> for Tls {
    type Stream = Session<S>;
    type TlsConnect = Handshake;
    type Error = InvalidDnsNameError;

    fn make_tls_connect(&mut self, host: &str) -> Result<Handshake, InvalidDnsNameError> {
        let name = self.server_name.as_deref().unwrap_or(host);
        Ok(Handshake {
            connector: TlsConnector::from(Arc::clone(&self.config)),
            name: ServerName::try_from(name)?.to_owned(),
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Unpin + 'static> TlsConnect<S> for Handshake {
    type Stream = Session<S>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Session<S>>> + Send>>;

    fn connect(self, stream: S) -> Self::Future {
        Box::pin(async move { self.connector.connect(self.name, stream).await.map(Session) })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Session<S> {
    /// None: passwords are exchanged by SCRAM without binding, over a server whose certificate was verified.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Session<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Session<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
