//! A gateway in a simulated world, in virtual time: a test writes the bytes of its clients and of its origin, and lets time pass.
//!
//! Knows no single case.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_gateway::Gateway;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::Config;
use ringmain_sim::{ClusterConfig, Peer, PeerListener, Plan, SimCluster, World};
use ringmain_web::testing::{ReplyReader, TestReply};
use ringmain_web::{Limits, Server};

/// The address of the origin.
pub(crate) const ORIGIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);

/// The address of the gateway.
const FRONT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 80);

/// Virtual time after which an awaited event counts as missing.
const PATIENCE: Duration = Duration::from_hours(1);

/// See the module.
pub(crate) struct Scene {
    world: World,
    cluster: SimCluster<Server>,
    origin: PeerListener,
    pub(crate) gateway: Gateway,
}

/// Writes all bytes.
#[track_caller]
pub(crate) fn write(peer: &Peer, bytes: impl AsRef<[u8]>) {
    let bytes = bytes.as_ref();
    assert_eq!(peer.write(bytes).expect("it is open"), bytes.len());
}

impl Scene {
    /// A gateway of one worker with this configuration, in a network without faults; `change` changes the limits of its server.
    pub(crate) fn new(config: Config, change: impl FnOnce(&mut Limits)) -> Scene {
        let world = World::new(0, Plan::calm(), 1);
        let origin = world.peer_listen(&Addr::Inet(ORIGIN));
        let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
        assert_eq!(gateway.problems(), [], "a configuration without problems");
        let mut limits = gateway.limits();
        change(&mut limits);
        let site = gateway.app().limits(limits).build().expect("an application");
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let cluster = SimCluster::new(&world, config, &[(0, Addr::Inet(FRONT), 0)], |start| {
            site.server(start)
        });
        Scene {
            world,
            cluster,
            origin,
            gateway,
        }
    }

    /// Virtual time.
    pub(crate) fn now(&self) -> Time {
        self.world.now()
    }

    /// Returns whether an event before `until` was left, which has happened then.
    fn step_before(&mut self, until: Time) -> bool {
        if self.world.worker_idle(0) && self.world.next_event_time().is_none_or(|at| at > until) {
            return false;
        }
        self.cluster.step();
        true
    }

    /// Lets virtual time pass.
    pub(crate) fn pass(&mut self, span: Duration) {
        let until = self.now().after(span);
        while self.step_before(until) {}
        self.world.jump(until.since(self.now()));
    }

    /// Runs the world until `find` returns a value.
    #[track_caller]
    pub(crate) fn find<T>(&mut self, what: &str, mut find: impl FnMut(&Scene) -> Option<T>) -> T {
        let until = self.now().after(PATIENCE);
        loop {
            if let Some(found) = find(self) {
                return found;
            }
            assert!(
                self.step_before(until),
                "{what}: not within {PATIENCE:?} of virtual time"
            );
        }
    }

    /// A client's connection.
    pub(crate) fn dial(&self) -> Peer {
        self.world
            .connect(&Addr::Inet(FRONT))
            .expect("the gateway listens")
    }

    /// The gateway's next connection to the origin.
    #[track_caller]
    pub(crate) fn accept(&mut self) -> Peer {
        self.find("a connection to the origin", |scene| scene.origin.accept())
    }

    /// The same, if there is one already.
    pub(crate) fn try_accept(&self) -> Option<Peer> {
        self.origin.accept()
    }

    /// Reads until the bytes end with `end`, and returns them.
    #[track_caller]
    pub(crate) fn read_to(&mut self, peer: &Peer, end: impl AsRef<[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.find("bytes", |_| {
            bytes.extend(peer.read(usize::MAX));
            bytes.ends_with(end.as_ref()).then_some(())
        });
        bytes
    }

    /// Reads a whole response.
    #[track_caller]
    pub(crate) fn reply(&mut self, client: &Peer) -> TestReply {
        let mut reader = ReplyReader::new();
        self.find("a response", |_| {
            reader.feed(&client.read(usize::MAX));
            reader.next("POST").expect("a response")
        })
    }

    /// Returns the gateway's count of this fault.
    pub(crate) fn count(&self, fault: Fault) -> u64 {
        let faults = self.gateway.fault_counts();
        faults
            .iter()
            .find(|(found, _)| *found == fault)
            .map_or(0, |(_, count)| *count)
    }

    /// All that the gateway has counted as faults.
    pub(crate) fn faults(&self) -> u64 {
        self.gateway.fault_counts().iter().map(|(_, count)| count).sum()
    }

    /// Begins a graceful shutdown of the gateway.
    pub(crate) fn shut_down(&self) {
        self.cluster.shut_down();
    }

    /// Stops the gateway, and waits until it has ended.
    #[track_caller]
    pub(crate) fn stop(mut self) {
        self.cluster.stop();
        self.find("the end of the worker", |scene| {
            scene.cluster.is_done().then_some(())
        });
    }
}
