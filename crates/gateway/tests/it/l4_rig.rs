//! A gateway with several listeners, and origins of bytes behind it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use ringmain_engine::{Addr, Config as EngineConfig, Engine, ListenOptions, Running};
use ringmain_gateway::Gateway;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{Config, Hostname, Listener, Protocol, StreamRoute, Upstream, WeightedBackend};
use ringmain_gateway::stats::{ConnectionEnd, StreamReport};
use ringmain_web::App;

use crate::origin;
use crate::support::{Client, PATIENCE, tls};

/// See the module.
pub(crate) struct Gates {
    pub(crate) gateway: Gateway,
    pub(crate) running: Running<std::convert::Infallible>,
    /// In the order of the configuration.
    pub(crate) addrs: Vec<SocketAddr>,
}

impl Gates {
    pub(crate) fn open(engine: EngineConfig, config: Config) -> Gates {
        Gates::open_with(engine, config, |app| app)
    }

    /// Opens a gateway with changes of its application, such as an access log.
    pub(crate) fn open_with(engine: EngineConfig, config: Config, change: impl FnOnce(App) -> App) -> Gates {
        let gateway = Gateway::new(Arc::new(config), tls::now());
        assert_eq!(gateway.problems(), [], "a configuration without problems");
        let site = change(gateway.app()).build().expect("an application");
        let engine = EngineConfig {
            clients_only: gateway.listen_addrs().is_empty(),
            ..engine
        };
        let mut engine = Engine::new(engine).expect("the back-end is there");
        let options = ListenOptions {
            send_buffer: Some(32 * 1024),
            receive_buffer: Some(32 * 1024),
            ..ListenOptions::default()
        };
        let open = |addr: &Addr| match engine.listen(addr, &options).expect("a free port") {
            Addr::Inet(addr) => addr,
            other => panic!("an internet address was asked for, not {other}"),
        };
        let addrs = gateway.listen_addrs().iter().map(open).collect();
        let running = engine
            .start(move |start| site.server(start))
            .expect("the workers start");
        assert!(
            !gateway.manage_listeners(running.listeners(), options),
            "nothing was missed"
        );
        Gates {
            gateway,
            running,
            addrs,
        }
    }

    /// Replaces the configuration. Returns its problems.
    pub(crate) fn change(&self, config: Config) -> Vec<String> {
        let problems = self.gateway.replace(Arc::new(config), tls::now());
        problems.iter().map(ToString::to_string).collect()
    }

    pub(crate) fn client(&self, gate: usize) -> Client {
        Client::new(self.addrs[gate])
    }

    /// Connects a client over TLS with this SNI.
    pub(crate) fn secure(
        &self,
        gate: usize,
        name: &str,
        authority: &tls::Authority,
    ) -> std::io::Result<Client> {
        let connector = tls::connector_of(&tls::trusting(&authority.pem));
        let name = ringmain_tls::PeerName::new(name).expect("a name");
        self.client(gate).secure(&connector, &name)
    }

    /// Returns the report of the only route with connections.
    pub(crate) fn report(&self) -> StreamReport {
        let mut all = self.gateway.stream_reports();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    /// Waits until so many connections have ended like this.
    #[track_caller]
    pub(crate) fn await_ended(&self, how: ConnectionEnd, count: u64) {
        let now = || -> u64 {
            let all = self.gateway.stream_reports();
            all.iter().map(|report| report.ended[how as usize]).sum()
        };
        until(|| now() >= count);
        assert_eq!(now(), count, "{how:?}: {:?}", self.gateway.stream_reports());
    }

    /// Waits until there were so many faults of this kind.
    #[track_caller]
    pub(crate) fn await_fault(&self, fault: Fault, count: u64) {
        let now = || {
            let all = self.gateway.fault_counts();
            all.iter()
                .find(|(found, _)| *found == fault)
                .map_or(0, |(_, count)| *count)
        };
        until(|| now() >= count);
        assert_eq!(now(), count, "{fault:?}");
    }

    /// Ends all, clients that are still there with it.
    pub(crate) fn shut_down(self) {
        self.running.stop();
        self.running.join().expect("an orderly end");
    }
}

/// Returns an address without a listener that no other test or process will use: the host is reserved.
pub(crate) fn reserved() -> SocketAddr {
    ringmain_testkit::port::unused()
}

/// Waits for what another thread brings about.
#[track_caller]
pub(crate) fn until(true_now: impl FnMut() -> bool) {
    ringmain_testkit::wait::until("another thread's doing", true_now);
}

/// A listener at a port of the kernel's choice.
pub(crate) fn gate(name: &str, protocol: Protocol) -> Listener {
    Listener {
        name: name.into(),
        protocol,
        ..origin::listener()
    }
}

pub(crate) fn hosts(names: &[&str]) -> Vec<Hostname> {
    let host = |name: &&str| Hostname::parse(name).expect("a host");
    names.iter().map(host).collect()
}

/// A route of connections for these hosts to an upstream of the same name.
pub(crate) fn stream(name: &str, names: &[&str]) -> StreamRoute {
    StreamRoute {
        name: name.into(),
        listeners: Vec::new(),
        hostnames: hosts(names),
        backends: vec![WeightedBackend::new(name)],
        idle: Some(PATIENCE),
        datagrams: Default::default(),
    }
}

pub(crate) fn config(
    listeners: Vec<Listener>,
    streams: Vec<StreamRoute>,
    upstreams: Vec<Upstream>,
) -> Config {
    Config {
        listeners: listeners.into_iter().map(Arc::new).collect(),
        streams: streams.into_iter().map(Arc::new).collect(),
        upstreams: upstreams.into_iter().map(Arc::new).collect(),
        ..Config::default()
    }
}

/// One listener of that protocol, all of whose connections go to these endpoints.
pub(crate) fn to(
    protocol: Protocol,
    addrs: &[SocketAddr],
    change: impl FnOnce(&mut Listener, &mut StreamRoute, &mut Upstream),
) -> Config {
    let mut listener = gate("gate", protocol);
    let mut route = stream("all", &[]);
    let mut upstream = origin::upstream("all", addrs);
    change(&mut listener, &mut route, &mut upstream);
    config(vec![listener], vec![route], vec![upstream])
}

/// An origin of bytes: `serve` has each connection, on a thread of its own.
pub(crate) fn bytes(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            stream.set_nodelay(true).expect("a socket");
            stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
            stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(stream));
        }
    });
    addr
}

/// A server that sends its name, then echoes, and closes when its client has.
pub(crate) fn echo(name: &'static str) -> SocketAddr {
    bytes(move |mut stream| {
        if stream.write_all(name.as_bytes()).is_err() {
            return;
        }
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = stream.shutdown(Shutdown::Write);
    })
}
