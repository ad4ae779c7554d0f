//! The share of each distance, by the health of its endpoints.

use super::{DistanceTiers, TierLoad, TierShares};
use crate::model::{Distance, Endpoint, EndpointLocation, Upstream, ZonePreference};

/// `loads` are the weights of endpoints by distance: healthy ones, and the total. `expected` are thousandths.
#[track_caller]
fn check(preference: ZonePreference, loads: [(u64, u64); 3], expected: Option<[u64; 3]>) {
    let zones = [Some("a".into()), Some("a".into()), Some("b".into())];
    let located = Distance::ALL.into_iter().zip(zones);
    let located: Vec<_> = located.map(|(distance, zone)| (distance, zone, 1)).collect();
    let config = Upstream {
        zones: Some(preference),
        ..Upstream::new("shop", Vec::new())
    };
    let tiers = DistanceTiers::new(&config, &located).expect("distances that differ");
    let loads = loads.map(|(healthy, weight)| TierLoad { weight, healthy });
    assert_eq!(tiers.shares(&loads), expected.map(TierShares), "{loads:?}");
}

#[test]
fn near_endpoints_get_what_they_can_carry() {
    use ZonePreference::Prefer;
    check(Prefer, [(0, 0), (3, 3), (6, 6)], Some([0, 1000, 0]));
    check(Prefer, [(1, 1), (3, 3), (6, 6)], Some([1000, 0, 0]));
    // 72 % of the near endpoints carry everything, half carry 70 %.
    check(Prefer, [(0, 0), (72, 100), (6, 6)], Some([0, 1000, 0]));
    check(Prefer, [(0, 0), (1, 2), (6, 6)], Some([0, 700, 300]));
    check(Prefer, [(0, 1), (1, 2), (6, 6)], Some([0, 700, 300]));
    check(Prefer, [(0, 0), (0, 3), (6, 6)], Some([0, 0, 1000]));
    // Neither carries everything: 280 and 560 of 840.
    check(Prefer, [(0, 0), (1, 5), (2, 5)], Some([0, 333, 666]));
    check(Prefer, [(0, 1), (0, 3), (0, 6)], None);
}

#[test]
fn balance_does_not_overload_a_small_zone() {
    use ZonePreference::Balance;
    // Two zones, each with half of the requests, and a tenth of the endpoints are near.
    check(Balance, [(0, 0), (1, 1), (9, 9)], Some([0, 200, 800]));
    check(Balance, [(0, 0), (5, 5), (5, 5)], Some([0, 1000, 0]));
    check(Balance, [(0, 0), (9, 9), (1, 1)], Some([0, 1000, 0]));
    check(Balance, [(0, 0), (3, 3), (0, 3)], Some([0, 1000, 0]));
    check(Balance, [(1, 1), (1, 1), (8, 8)], Some([400, 0, 600]));
}

#[test]
fn a_draw_follows_the_shares() {
    let seed = 7;
    let mut random = fastrand::Rng::with_seed(seed);
    let shares = TierShares([100, 600, 300]);
    let mut counts = [0; 3];
    for _ in 0..100_000 {
        counts[shares.draw(random.u64(..)) as usize] += 1;
    }
    for (count, share) in counts.into_iter().zip([10_000_u64, 60_000, 30_000]) {
        assert!(share.abs_diff(count) < share / 20, "seed {seed}: {counts:?}");
    }
    // Thousandths that were rounded off fall to the largest share.
    assert_eq!(TierShares([0, 333, 666]).draw(u64::MAX), Distance::Elsewhere);
}

#[test]
fn distances_that_do_not_differ_do_not_matter() {
    let endpoint = Endpoint::new(EndpointLocation::Address(([127, 0, 0, 1], 80).into()));
    let mut config = Upstream::new("shop", vec![endpoint]);
    let differing = [(Distance::Zone, None, 1), (Distance::Elsewhere, None, 1)];
    assert!(DistanceTiers::new(&config, &differing).is_none());
    config.zones = Some(ZonePreference::Prefer);
    assert!(DistanceTiers::new(&config, &differing[..1]).is_none());
    assert!(DistanceTiers::new(&config, &[]).is_none());
    assert!(DistanceTiers::new(&config, &differing).is_some());
}
