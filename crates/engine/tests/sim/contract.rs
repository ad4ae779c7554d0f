//! The completion contract (`docs/contract.md`) on the simulated back-end, over several seeds.
//!
//! Owns the choice of plans: only faults that no case takes for a failure.

use std::time::Duration;

use ringmain_sim::conformance::SimHarness;
use ringmain_sim::{Fault, Plan};

fn calm(seed: u64) -> SimHarness {
    SimHarness::new(seed, Plan::calm())
}

/// Everything cut, held, early or late, but nothing broken.
fn rough(seed: u64) -> SimHarness {
    let mut plan = Plan::calm();
    // Late things must still come within what a case calls quiet.
    plan.delay = Duration::from_micros(2);
    for (fault, per_mille) in [
        (Fault::CutRead, 300),
        (Fault::ReceiveStops, 200),
        (Fault::ShortSend, 300),
        (Fault::HeldSend, 300),
        (Fault::SlowWire, 100),
        (Fault::LateCompletion, 200),
        (Fault::LateWake, 200),
        (Fault::AtOnce, 300),
    ] {
        plan = plan.with(fault, per_mille);
    }
    SimHarness::new(seed, plan)
}

ringmain_sim::conformance!(calm_1, calm(1));
ringmain_sim::conformance!(calm_2, calm(2));
ringmain_sim::conformance!(calm_3, calm(3));
ringmain_sim::conformance!(rough_1, rough(1));
ringmain_sim::conformance!(rough_2, rough(2));
ringmain_sim::conformance!(rough_3, rough(3));
ringmain_sim::conformance!(rough_4, rough(4));
ringmain_sim::conformance!(rough_5, rough(5));
