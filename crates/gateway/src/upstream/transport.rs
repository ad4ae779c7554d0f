//! The transport to an upstream: TLS, trusted certificates, the PROXY protocol header.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_tls::{
    ClientSettings, ConnectHandle, Connector, Identity, KeyPair, PeerName, Pem, Trust, Version, system_roots,
};
use ringmain_wire::proxy::{Addresses, Header};

use crate::model::{
    self, Config, ProxyProtocolVersion, Secret, StreamRoute, SubjectName, Target, TlsVersion, Upstream,
    UpstreamProtocol, UpstreamTls,
};

/// The transport to an upstream.
#[derive(Debug)]
pub(crate) struct Transport {
    inputs: TransportInputs,
    /// `None`: no TLS. An error: the reason that there is no connection.
    pub(crate) connector: Option<Result<Connector, String>>,
    /// The same for protocols other than HTTP, without ALPN; only if a stream route leads here.
    pub(crate) byte_connector: Option<Result<Connector, String>>,
    /// The same for requests that HTTP/2 cannot carry, with HTTP/1.1 alone in ALPN; only where the endpoint selects the protocol.
    pub(crate) upgrade_connector: Option<Result<Connector, String>>,
}

/// A worker's handles that TLS sessions are created from; `None`: there is no TLS, or it is invalid.
#[derive(Debug)]
pub(super) struct TlsHandles {
    pub(super) http: Option<Rc<ConnectHandle>>,
    pub(super) bytes: Option<Rc<ConnectHandle>>,
    pub(super) upgrades: Option<Rc<ConnectHandle>>,
}

impl TlsHandles {
    pub(super) fn from_transport(transport: &Transport) -> TlsHandles {
        let handle = |connector: &Option<Result<Connector, String>>| {
            let connector = connector.as_ref()?.as_ref().ok()?;
            Some(Rc::new(connector.handle()))
        };
        TlsHandles {
            http: handle(&transport.connector),
            bytes: handle(&transport.byte_connector),
            upgrades: handle(&transport.upgrade_connector),
        }
    }
}

/// The inputs of a transport: equal inputs give equal transports.
#[derive(Debug, PartialEq, Eq)]
struct TransportInputs {
    protocol: UpstreamProtocol,
    tls: Option<UpstreamTls>,
    proxy_protocol: Option<ProxyProtocolVersion>,
    authorities: Vec<Arc<[u8]>>,
    certificate: Option<(Arc<[u8]>, Secret)>,
    for_bytes: bool,
}

impl TransportInputs {
    fn new(upstream: &Upstream, config: &Config) -> TransportInputs {
        let tls = upstream.tls.as_ref();
        let trusted = match tls.map(|tls| &tls.trust) {
            Some(model::Trust::Authorities(names)) => &names[..],
            _ => &[],
        };
        let authorities = config
            .authorities
            .iter()
            .filter(|authority| trusted.contains(&authority.name));
        let name = tls.and_then(|tls| tls.certificate.as_ref());
        let mut certificates = config.certificates.iter();
        let certificate = certificates.find(|certificate| name == Some(&certificate.name));
        TransportInputs {
            protocol: upstream.protocol,
            tls: upstream.tls.clone(),
            proxy_protocol: upstream.proxy_protocol,
            authorities: authorities.map(|authority| Arc::clone(&authority.pem)).collect(),
            certificate: certificate
                .map(|certificate| (Arc::clone(&certificate.chain), certificate.key.clone())),
            for_bytes: tls.is_some() && config.streams.iter().any(|stream| routes_to(stream, upstream)),
        }
    }
}

impl Transport {
    /// Builds the transport of an upstream; returns `last` if it is unchanged. `now` is the time since the Unix epoch.
    pub(crate) fn of(
        upstream: &Upstream,
        config: &Config,
        last: Option<&Arc<Transport>>,
        now: Duration,
    ) -> Arc<Transport> {
        let inputs = TransportInputs::new(upstream, config);
        if let Some(last) = last.filter(|last| last.inputs == inputs) {
            return Arc::clone(last);
        }
        let tls = inputs.tls.as_ref();
        let build = |tls, alpn| build_connector(tls, &inputs, upstream, alpn, now);
        let protocols: &[&[u8]] = match upstream.protocol {
            UpstreamProtocol::Http1 => &[b"http/1.1"],
            UpstreamProtocol::Http2 => &[b"h2"],
            UpstreamProtocol::Auto => &[b"h2", b"http/1.1"],
        };
        let protocols: Vec<_> = protocols.iter().map(|name| name.to_vec()).collect();
        let connector = tls.map(|tls| build(tls, protocols.clone()));
        let for_bytes = tls.filter(|_| inputs.for_bytes).map(|tls| build(tls, Vec::new()));
        let negotiates = upstream.protocol == UpstreamProtocol::Auto;
        let for_switches = tls
            .filter(|_| negotiates)
            .map(|tls| build(tls, vec![b"http/1.1".to_vec()]));
        Arc::new(Transport {
            inputs,
            connector,
            byte_connector: for_bytes,
            upgrade_connector: for_switches,
        })
    }

    /// Returns the protocol.
    pub(crate) fn protocol(&self) -> UpstreamProtocol {
        self.inputs.protocol
    }

    /// Returns the version of the PROXY protocol, if it is used.
    pub(crate) fn proxy_protocol(&self) -> Option<ProxyProtocolVersion> {
        self.inputs.proxy_protocol
    }
}

/// Returns whether connections of a route may go to an upstream.
fn routes_to(stream: &StreamRoute, upstream: &Upstream) -> bool {
    let names = |target: &Target| matches!(target, Target::Upstream(name) if *name == upstream.name);
    stream.backends.iter().any(|backend| names(&backend.target))
}

fn build_connector(
    tls: &UpstreamTls,
    inputs: &TransportInputs,
    upstream: &Upstream,
    alpn: Vec<Vec<u8>>,
    now: Duration,
) -> Result<Connector, String> {
    let identities = tls.subject_names.iter().map(peer_identity);
    let identities = identities.collect::<Result<Vec<_>, _>>()?;
    let trust = match &tls.trust {
        model::Trust::System => system_roots().map_err(|finding| finding.text)?,
        model::Trust::Authorities(_) => {
            Trust::Authorities(parse_pem("authorities", upstream, &inputs.authorities.concat()))
        }
    };
    let settings = ClientSettings {
        certificate: inputs.certificate.as_ref().map(|(chain, key)| KeyPair {
            chain: parse_pem("certificate", upstream, chain),
            key: parse_pem("key", upstream, key.expose()),
        }),
        minimum_version: match tls.minimum {
            TlsVersion::Tls12 => Version::Tls12,
            TlsVersion::Tls13 => Version::Tls13,
        },
        alpn,
        identities,
        ..ClientSettings::new(trust)
    };
    Connector::new(&settings, now).map_err(|refused| refused.to_string())
}

/// Returns a name in the form for certificate checks.
fn peer_identity(name: &SubjectName) -> Result<Identity, String> {
    match name {
        SubjectName::Host(host) => PeerName::new(host.as_str())
            .map(Identity::Host)
            .map_err(|error| error.to_string()),
        SubjectName::Uri(uri) => Ok(Identity::Uri(uri.to_string())),
    }
}

fn parse_pem(part: &str, upstream: &Upstream, bytes: &[u8]) -> Pem {
    Pem {
        source: format!("{part} of upstream `{}`", upstream.name),
        bytes: bytes.to_vec(),
    }
}

/// Returns the header of the PROXY protocol; without addresses it marks a connection of the gateway's own.
pub(crate) fn proxy_header(version: ProxyProtocolVersion, addresses: Option<Addresses>) -> Vec<u8> {
    let mut pem = Vec::new();
    let header = Header { addresses };
    match version {
        ProxyProtocolVersion::V1 => header.write_v1(&mut pem),
        ProxyProtocolVersion::V2 => header.write_v2(&mut pem),
    }
    pem
}
