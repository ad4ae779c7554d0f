//! An origin: a thread with scripted responses that records the requests it receives.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ringmain_engine::Config as EngineConfig;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, Listener, Protocol, Route, Rule, Upstream,
};

use crate::support::{self, PATIENCE, Server};

/// A request as received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The head, byte by byte.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Which connection, from 0.
    pub(crate) connection: usize,
}

impl Seen {
    /// The values of a field, joined.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let values: Vec<_> = fields
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .collect();
        (!values.is_empty()).then(|| values.join(" | "))
    }

    pub(crate) fn line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }
}

/// One connection of an origin.
pub(crate) struct Peer {
    reader: BufReader<TcpStream>,
    pub(crate) connection: usize,
    seen: mpsc::Sender<Seen>,
}

impl Peer {
    /// The next request; `None`: the gateway has closed.
    pub(crate) fn request(&mut self) -> Option<Seen> {
        let mut seen = self.head()?;
        if let Some(length) = seen.field("content-length") {
            seen.body = vec![0; length.parse().expect("a number")];
            self.reader.read_exact(&mut seen.body).ok()?;
        } else if seen.field("transfer-encoding").is_some() {
            loop {
                let mut line = String::new();
                self.reader.read_line(&mut line).ok()?;
                let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
                let mut chunk = vec![0; length + 2];
                self.reader.read_exact(&mut chunk).ok()?;
                seen.body.extend_from_slice(&chunk[..length]);
                if length == 0 {
                    break;
                }
            }
        }
        let _ = self.seen.send(seen.clone());
        Some(seen)
    }

    /// A head alone.
    pub(crate) fn head(&mut self) -> Option<Seen> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.reader.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        Some(Seen {
            head,
            body: Vec::new(),
            connection: self.connection,
        })
    }

    /// Sends bytes; whether the gateway takes them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.reader.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Returns the next bytes after a head; `None`: the end.
    pub(crate) fn some(&mut self) -> Option<Vec<u8>> {
        let bytes = self.reader.fill_buf().ok()?.to_vec();
        self.reader.consume(bytes.len());
        (!bytes.is_empty()).then_some(bytes)
    }

    /// A line before a head.
    pub(crate) fn line(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        self.reader.read_line(&mut line).ok()?;
        (!line.is_empty()).then(|| line.into_bytes())
    }

    /// So many bytes before a head.
    pub(crate) fn take(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.reader.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Ends its own side.
    pub(crate) fn finish(&mut self) {
        let socket = self.reader.get_ref();
        socket.shutdown(std::net::Shutdown::Write).expect("open so far");
    }

    /// Leaves by a reset.
    pub(crate) fn reset(self) {
        let socket = self.reader.into_inner();
        rustix::net::sockopt::set_socket_linger(&socket, Some(Duration::ZERO)).expect("a socket");
    }
}

/// See the module.
pub(crate) struct Origin {
    pub(crate) addr: SocketAddr,
    seen: Mutex<mpsc::Receiver<Seen>>,
}

impl Origin {
    /// Runs `serve` for each connection, each on a thread of its own.
    pub(crate) fn new(serve: impl Fn(Peer) + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (sender, seen) = mpsc::channel();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                stream.set_nodelay(true).expect("a socket");
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                let (serve, seen) = (Arc::clone(&serve), sender.clone());
                std::thread::spawn(move || {
                    serve(Peer {
                        reader: BufReader::new(stream),
                        connection,
                        seen,
                    });
                });
            }
        });
        Origin {
            addr,
            seen: Mutex::new(seen),
        }
    }

    /// Answers every request with these bytes.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Origin {
        let answer = answer.into();
        Origin::new(move |mut peer| while peer.request().is_some() && peer.send(&answer) {})
    }

    /// Answers every request with its head and body.
    pub(crate) fn echo() -> Origin {
        Origin::new(|mut peer| {
            while let Some(seen) = peer.request() {
                let body = [seen.head.as_bytes(), &seen.body].concat();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Origin: yes\r\n\r\n",
                    body.len()
                );
                if !peer.send([head.as_bytes(), &body].concat()) {
                    return;
                }
            }
        })
    }

    /// Returns the next complete request.
    #[track_caller]
    pub(crate) fn seen(&self) -> Seen {
        let seen = self.seen.lock().expect("one test");
        seen.recv_timeout(PATIENCE).expect("the origin is asked")
    }
}

/// Returns an address without a listener.
pub(crate) fn refusing_addr() -> SocketAddr {
    // Of a host of its own: the port of another would be given to the next test that listens.
    crate::l4_rig::reserved()
}

/// One HTTP listener.
pub(crate) fn listener() -> Listener {
    Listener {
        name: "web".into(),
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        protocol: Protocol::Http,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: Default::default(),
        policies: Vec::new(),
    }
}

/// All requests by these rules.
pub(crate) fn rules(rules: Vec<Rule>, upstreams: Vec<Upstream>) -> Config {
    Config {
        listeners: vec![listener().into()],
        routes: vec![
            Route {
                name: "all".into(),
                listeners: Vec::new(),
                hostnames: Vec::new(),
                rules,
            }
            .into(),
        ],
        upstreams: upstreams.into_iter().map(Arc::new).collect(),
        ..Config::default()
    }
}

/// An upstream of that name at these addresses.
pub(crate) fn upstream(name: &str, addrs: &[SocketAddr]) -> Upstream {
    let endpoints = addrs
        .iter()
        .map(|addr| Endpoint::new(EndpointLocation::Address(*addr)));
    Upstream::new(name, endpoints.collect())
}

/// All requests to one upstream.
pub(crate) fn to(addrs: &[SocketAddr], change: impl FnOnce(&mut Forward, &mut Upstream)) -> Config {
    let mut forward = Forward::to("origin");
    let mut origin = upstream("origin", addrs);
    change(&mut forward, &mut origin);
    rules(vec![Rule::new(Action::Forward(Box::new(forward)))], vec![origin])
}

/// A gateway that serves.
pub(crate) struct Edge {
    pub(crate) server: Server,
    pub(crate) gateway: Gateway,
}

pub(crate) fn edge(engine: EngineConfig, config: Config) -> Edge {
    edge_within(engine, config, |_| {})
}

/// The same with limits of its server changed.
pub(crate) fn edge_within(
    engine: EngineConfig,
    config: Config,
    change: impl FnOnce(&mut ringmain_web::Limits),
) -> Edge {
    let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
    assert_eq!(gateway.problems(), [], "a configuration without problems");
    let mut limits = gateway.limits();
    change(&mut limits);
    let server = support::serve(engine, gateway.app().limits(limits));
    Edge { server, gateway }
}
