//! Connections with a layer under cut reads, short writes and full tables: what comes back is what was sent, costly steps
//! of one turn are bounded, and nothing is left.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::{Conn, Cx, Handler, Layer, LayerFault, LayerStep, Reason, Start, Via, limits};
use ringmain_sim::{ClusterConfig, Peer, Plan, SimCluster, World};

use crate::run::addr;
use crate::scramble::{RECORD, Scramble};
use ringmain_sim::seeds;

const PORT: u32 = 7;
const STEPS: usize = 400_000;
const PEERS: usize = 40;

/// Counts costly calls of a turn.
struct Counting {
    inner: Scramble,
    turn: Rc<Turn>,
}

#[derive(Default)]
struct Turn {
    costly: Cell<usize>,
    most: Cell<usize>,
}

impl Layer for Counting {
    fn begin(&mut self, wire: &mut Vec<u8>) {
        self.inner.begin(wire);
    }

    fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> LayerStep {
        if self.inner.is_costly() {
            self.turn.costly.set(self.turn.costly.get() + 1);
            self.turn
                .most
                .set(self.turn.most.get().max(self.turn.costly.get()));
        }
        self.inner.receive(bytes, wire)
    }

    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerFault> {
        self.inner.send(plain, wire)
    }

    fn end(&mut self, wire: &mut Vec<u8>) {
        self.inner.end(wire);
    }

    fn is_costly(&self) -> bool {
        self.inner.is_costly()
    }
}

#[derive(Default)]
struct Seen {
    secured: usize,
    reasons: Vec<Reason>,
}

/// Echoes through the layer.
struct Echo {
    turn: Rc<Turn>,
    seen: Rc<RefCell<Seen>>,
}

impl Handler for Echo {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        conn.secure(Box::new(Counting {
            inner: Scramble::new(false),
            turn: Rc::clone(&self.turn),
        }));
        Some(())
    }

    fn secured(&mut self, _conn: Conn<'_>, _state: &mut ()) {
        self.seen.borrow_mut().secured += 1;
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        // Refused only when the connection is over.
        let _ = conn.write(bytes);
        bytes.len()
    }

    fn closed(&mut self, _cx: &Cx, _state: (), reason: Reason) {
        self.seen.borrow_mut().reasons.push(reason);
    }
}

/// A client of the layer, by hand.
struct Client {
    peer: Peer,
    out: Vec<u8>,
    total: usize,
    back: Vec<u8>,
    plain: Vec<u8>,
    over: bool,
}

impl Client {
    fn new(world: &World, peer: Peer, key: usize) -> Client {
        let total = 1 + world.below(5000);
        let plain: Vec<u8> = (0..total).map(|at| (at * 31 + key * 7) as u8).collect();
        let mut out = b"scramble".to_vec();
        let mut scramble = Scramble::new(true);
        scramble.receive(&mut b"scramble".to_vec(), &mut Vec::new());
        scramble.receive(&mut [], &mut Vec::new());
        for record in plain.chunks(1 + world.below(RECORD)) {
            scramble.send(record, &mut out).expect("it stands");
        }
        scramble.end(&mut out);
        Client {
            peer,
            out,
            total,
            back: Vec::new(),
            plain,
            over: false,
        }
    }

    fn act(&mut self, world: &World) {
        if self.over {
            return;
        }
        let count = world.below(self.out.len().min(900) + 1);
        let written = self.peer.write(&self.out[..count]).unwrap_or(0);
        self.out.drain(..written);
        self.back.extend(self.peer.read(world.below(3000)));
        if self.peer.failed() || self.peer.eof() {
            self.over = true;
            self.peer.close();
        }
    }

    /// What came back, turned round.
    fn check(&self, calm: bool) {
        let Some(mut rest) = self.back.strip_prefix(b"scramble".as_slice()) else {
            assert!(!calm && self.back.len() < 8, "the server greets: {:?}", self.back);
            return;
        };
        let mut plain = Vec::new();
        let mut ended = false;
        while let [high, low, behind @ ..] = rest {
            assert!(!ended, "nothing follows the announced end");
            let length = usize::from(u16::from_be_bytes([*high, *low]));
            ended = length == 0;
            let body = &behind[..length.min(behind.len())];
            plain.extend(body.iter().map(|byte| byte ^ 0xa5));
            rest = &behind[body.len()..];
        }
        assert!(
            self.plain.starts_with(&plain),
            "another's bytes, or in another order"
        );
        if calm {
            assert_eq!((plain.len(), ended), (self.total, true));
        }
    }
}

#[test]
fn what_goes_through_layers_comes_back() {
    for seed in seeds::some(60) {
        let calm = seed % 3 == 0;
        let plan = if calm { Plan::calm() } else { Plan::mixed(seed) };
        let world = World::new(seed, plan, 1);
        let _named = crate::named(seed, "what_goes_through_layers_comes_back", &world);
        let (turn, seen): (Rc<Turn>, Rc<RefCell<Seen>>) = Default::default();
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let mut cluster = SimCluster::new(&world, config, &[(0, addr(PORT), PORT)], |_: Start<()>| Echo {
            turn: Rc::clone(&turn),
            seen: Rc::clone(&seen),
        });
        let mut clients: Vec<Client> = (0..PEERS)
            .filter_map(|key| Some(Client::new(&world, world.connect(&addr(PORT)).ok()?, key)))
            .collect();
        let mut steps = 0;
        while clients.iter().any(|client| !client.over) {
            steps += 1;
            assert!(steps < STEPS, "clients are stuck");
            let at = world.below(clients.len());
            clients[at].act(&world);
            turn.costly.set(0);
            cluster.step();
        }
        for client in &clients {
            client.check(calm);
        }
        assert!(
            turn.most.get() <= limits::HANDSHAKE_STEPS_PER_TURN,
            "{}",
            turn.most.get()
        );
        if calm {
            assert_eq!(seen.borrow().secured, PEERS);
            assert!(
                seen.borrow()
                    .reasons
                    .iter()
                    .all(|reason| *reason == Reason::Closed)
            );
        }
        cluster.stop();
        for _ in 0..STEPS {
            if cluster.is_done() {
                break;
            }
            cluster.step();
        }
        assert!(cluster.is_done(), "every worker ends");
        assert_eq!(world.leaks(), Vec::<String>::new());
    }
}
