//! TLS of the tests' clients, over blocking sockets; certificates for servers and clients. Knows no HTTP.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair as Key,
    KeyUsagePurpose, SanType, date_time_ymd,
};
use ringmain_engine::{Layer, LayerEvent};
use ringmain_tls::{
    Acceptor, ClientSettings, Connector, DevCertificate, Facts, KeyPair, PeerName, Pem, ServerSettings, Tls,
    Trust, http_protocols,
};

/// Wall time.
pub(crate) fn now() -> Duration {
    UNIX_EPOCH.elapsed().expect("a time after 1970")
}

/// One for all tests.
pub(crate) fn development() -> &'static DevCertificate {
    static MADE: OnceLock<DevCertificate> = OnceLock::new();
    MADE.get_or_init(|| DevCertificate::new(&[], now()).expect("names"))
}

pub(crate) fn settings() -> ServerSettings {
    ServerSettings {
        certificates: vec![development().pair.clone()],
        alpn: http_protocols(),
        ..ServerSettings::default()
    }
}

pub(crate) fn acceptor() -> Acceptor {
    Acceptor::new(&settings(), now()).expect("settings")
}

/// Settings of a client that trusts this authority.
pub(crate) fn trusting(authority: &Pem) -> ClientSettings {
    ClientSettings {
        alpn: vec![b"http/1.1".to_vec()],
        ..ClientSettings::new(Trust::Authorities(authority.clone()))
    }
}

pub(crate) fn connector() -> Connector {
    connector_of(&trusting(&development().authority))
}

pub(crate) fn connector_of(settings: &ClientSettings) -> Connector {
    Connector::new(settings, now()).expect("settings")
}

pub(crate) fn localhost() -> PeerName {
    PeerName::new("localhost").expect("a name")
}

/// An authority that signs for servers and clients.
pub(crate) struct Authority {
    issuer: Issuer<'static, Key>,
    pub(crate) pem: Pem,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = Key::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Authority {
            pem: pem("authority", certificate.pem()),
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for this name, of servers and of clients.
    pub(crate) fn sign(&self, name: &str) -> KeyPair {
        self.sign_for(name, 0, 4_000_000_000)
    }

    /// One that is valid between these seconds since 1970.
    pub(crate) fn sign_for(&self, name: &str, from: u64, to: u64) -> KeyPair {
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        self.sign_params(params, from, to)
    }

    /// One for these hosts and URIs.
    #[allow(dead_code, reason = "the gateway's tests take this file in, too")]
    pub(crate) fn sign_all(&self, hosts: &[&str], uris: &[&str]) -> KeyPair {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        for uri in uris {
            let uri = (*uri).try_into().expect("ASCII");
            params.subject_alt_names.push(SanType::URI(uri));
        }
        self.sign_params(params, 0, 4_000_000_000)
    }

    fn sign_params(&self, mut params: CertificateParams, from: u64, to: u64) -> KeyPair {
        let name = "signed";
        let start = date_time_ymd(1970, 1, 1);
        params.not_before = start + Duration::from_secs(from);
        params.not_after = start + Duration::from_secs(to);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = Key::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        KeyPair {
            chain: pem(name, certificate.pem()),
            key: pem(name, key.serialize_pem()),
        }
    }
}

fn pem(source: &str, text: String) -> Pem {
    Pem {
        source: source.to_owned(),
        bytes: text.into_bytes(),
    }
}

/// A client's side of a connection's TLS.
pub(crate) struct Secure {
    tls: Tls,
    /// Received and not yet opened.
    wire: Vec<u8>,
    /// The server has announced its end.
    pub(crate) ended: bool,
}

impl Secure {
    /// Runs the handshake; fails with the error of the session.
    pub(crate) fn new(stream: &mut TcpStream, connector: &Connector, name: &PeerName) -> Result<Secure> {
        let mut secure = Secure::begin(connector, name);
        stream.write_all(&secure.hello())?;
        secure.agree(stream)?;
        Ok(secure)
    }

    /// Returns the ClientHello.
    pub(crate) fn hello(&mut self) -> Vec<u8> {
        let mut hello = Vec::new();
        self.tls.begin(&mut hello);
        hello
    }

    /// Continues the handshake to its end.
    pub(crate) fn agree(&mut self, stream: &mut TcpStream) -> Result<()> {
        while self.tls.facts().is_none() {
            if self.receive(stream, &mut Vec::new())? == 0 && self.tls.facts().is_none() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Adds bytes that were received elsewhere.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.wire.extend_from_slice(bytes);
    }

    /// Returns a session that has sent nothing yet.
    pub(crate) fn begin(connector: &Connector, name: &PeerName) -> Secure {
        Secure {
            tls: connector.handle().connect(name, now()),
            wire: Vec::new(),
            ended: false,
        }
    }

    /// Returns the negotiated parameters.
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.tls.facts()
    }

    pub(crate) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut wire = Vec::new();
        self.tls.send(plain, &mut wire).expect("it stands");
        wire
    }

    /// The announcement of the end.
    pub(crate) fn close(&mut self) -> Vec<u8> {
        let mut wire = Vec::new();
        self.tls.end(&mut wire);
        wire
    }

    /// Receives until data was decrypted, a handshake is complete, or the end; appends the data. Returns 0 at the end, with or
    /// without close_notify.
    pub(crate) fn receive(&mut self, stream: &mut TcpStream, plain: &mut Vec<u8>) -> Result<usize> {
        loop {
            let mut answer = Vec::new();
            let news = self.open(&mut answer, plain);
            if !answer.is_empty() {
                // The server may have closed: bytes that it sent before must still be read.
                let _ = stream.write_all(&answer);
            }
            if let Some(count) = news? {
                return Ok(count);
            }
            let mut buffer = vec![0; 64 * 1024];
            let count = read(stream, &mut buffer)?;
            if count == 0 {
                return Ok(0);
            }
            self.wire.extend_from_slice(&buffer[..count]);
        }
    }

    /// Decrypts the received bytes; `None` if more must arrive.
    pub(crate) fn open(&mut self, answer: &mut Vec<u8>, plain: &mut Vec<u8>) -> Result<Option<usize>> {
        let before = plain.len();
        let mut news = false;
        loop {
            if self.ended {
                return Ok(Some(plain.len() - before));
            }
            let step = self.tls.receive(&mut self.wire, answer);
            match step.event {
                LayerEvent::Plain(range) => plain.extend_from_slice(&self.wire[range]),
                LayerEvent::Established => news = true,
                LayerEvent::End => self.ended = true,
                LayerEvent::Failed | LayerEvent::Refused => {
                    let fault = self.tls.fault().map(ToString::to_string);
                    return Err(Error::other(fault.unwrap_or_default()));
                }
                LayerEvent::Nothing if step.consumed > 0 => {}
                LayerEvent::Nothing | LayerEvent::NeedMore => break,
            }
            self.wire.drain(..step.consumed);
        }
        // A completed handshake counts as an event, and not as the end.
        let count = plain.len() - before;
        Ok((news || count > 0).then_some(count.max(1)))
    }
}

/// Reads, whatever a ring that this thread has probed does to it.
pub(crate) fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> Result<usize> {
    loop {
        match stream.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
