//! Alarms in virtual time: exactly when they are due in a world where nothing else happens, and never early in any.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::{Conn, Cx, Handler, Start, Via};
use ringmain_sim::{ClusterConfig, Plan, SimCluster, World};

use ringmain_sim::seeds;

const STEPS: usize = 200_000;
const COUNT: usize = 50;

/// Sets each alarm when the last one comes; the distances repeat.
struct Clockwork {
    due: Time,
    came: Rc<RefCell<Vec<(Time, Time)>>>,
}

/// From at once to hours, none a multiple of the timing wheel's millisecond but the first.
const DISTANCES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_nanos(999),
    Duration::from_micros(150),
    Duration::from_nanos(2_500_001),
    Duration::from_nanos(7_200_000_000_003),
];

impl Clockwork {
    fn set(&mut self, cx: &Cx) {
        let round = self.came.borrow().len();
        if round < COUNT {
            self.due = cx.now().after(DISTANCES[round % DISTANCES.len()]);
            cx.set_alarm(Some(self.due));
        }
    }
}

impl Handler for Clockwork {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        None
    }

    fn data(&mut self, _conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        bytes.len()
    }

    fn mail(&mut self, cx: &Cx, (): ()) {
        self.set(cx);
    }

    fn alarm(&mut self, cx: &Cx) {
        self.came.borrow_mut().push((self.due, cx.now()));
        self.set(cx);
    }
}

/// Due and came, of each alarm of one worker.
fn run(seed: u64, test: &'static str, plan: Plan) -> Vec<(Time, Time)> {
    let world = World::new(seed, plan, 1);
    let _named = crate::named(seed, test, &world);
    let config = ClusterConfig {
        workers: 1,
        ..ClusterConfig::default()
    };
    let came: Rc<RefCell<Vec<(Time, Time)>>> = Rc::default();
    let mut cluster = SimCluster::new(&world, config, &[], |_: Start<()>| Clockwork {
        due: Time(0),
        came: Rc::clone(&came),
    });
    assert!(cluster.inbox(0).post(()).is_ok());
    until(&mut cluster, |_| came.borrow().len() == COUNT);
    cluster.shut_down();
    until(&mut cluster, SimCluster::is_done);
    assert_eq!(world.leaks(), Vec::<String>::new());
    assert_eq!(came.borrow().len(), COUNT, "each came once");
    came.take()
}

fn until(cluster: &mut SimCluster<Clockwork>, done: impl Fn(&SimCluster<Clockwork>) -> bool) {
    for _ in 0..STEPS {
        if done(cluster) {
            return;
        }
        cluster.step();
    }
    panic!("stuck: an alarm does not come, or a worker does not end");
}

#[test]
fn an_alarm_comes_at_the_very_nanosecond() {
    for seed in seeds::some(20) {
        let came = run(seed, "an_alarm_comes_at_the_very_nanosecond", Plan::calm());
        for (due, now) in came {
            assert_eq!(due, now, "seed {seed}");
        }
    }
}

#[test]
fn an_alarm_is_never_early_whatever_happens() {
    for seed in seeds::some(100) {
        let came = run(
            seed,
            "an_alarm_is_never_early_whatever_happens",
            Plan::mixed(seed),
        );
        for (due, now) in came {
            assert!(now >= due, "seed {seed}: due at {due:?}, came at {now:?}");
        }
    }
}
