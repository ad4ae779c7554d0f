//! The schedule, compared with a plain list of due times.

use super::*;

const INTERVAL: Duration = Duration::from_millis(200);

/// An entry and its due time.
type Expected = (u32, Option<u64>);

#[test]
fn each_entry_is_due_once_at_its_time() {
    for seed in 0..100 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut schedule = ConflationSchedule::default();
        // By connection: its first entry, and the due times of its entries.
        let mut conns: Vec<(u32, Vec<Expected>)> = vec![(NONE, Vec::new()); 8];
        let mut now = Duration::ZERO;
        for _ in 0..500 {
            let index = random.u32(0..8);
            let (first, own) = &mut conns[index as usize];
            let any = random.usize(0..own.len().max(1));
            match random.u8(0..6) {
                0 => {
                    let conflation_interval = INTERVAL * random.u32(1..4);
                    let found = schedule.find(*first, conflation_interval);
                    let known = own
                        .iter()
                        .find(|(at, _)| schedule.entries[*at as usize].interval == conflation_interval);
                    assert_eq!(found, known.map(|(at, _)| *at), "seed {seed}");
                    if found.is_none() {
                        own.push((schedule.add(first, index, conflation_interval), None));
                    }
                }
                1 if !own.is_empty() => {
                    let (removed, _) = own.swap_remove(any);
                    schedule.remove(first, removed);
                }
                2 | 3 if !own.is_empty() => {
                    let (at, due) = &mut own[any];
                    schedule.schedule_if_idle(*at);
                    due.get_or_insert(0);
                }
                _ => now += Duration::from_micros(random.u64(0..100_000)),
            }
            while let Some((at, due)) = schedule.pop_due(now) {
                let conn = schedule.get(at).conn;
                let own = conns[conn as usize].1.iter_mut().find(|(other, _)| *other == at);
                let (_, expected) = own.expect("an existing entry");
                assert_eq!(*expected, Some(due), "seed {seed}");
                assert!(due <= nanos(now));
                *expected = None;
                if random.bool() {
                    schedule.reschedule(at, due, now);
                    *expected = Some(schedule.get(at).due);
                }
            }
            let due = conns.iter().flat_map(|(_, own)| own).filter_map(|(_, due)| *due);
            let next = due
                .min()
                .map(|due| Duration::from_nanos(due.div_ceil(TICK_NANOS) * TICK_NANOS));
            assert_eq!(schedule.next_due(), next, "seed {seed}");
        }
    }
}

#[test]
fn ticks_are_an_interval_apart_and_reach_their_phase() {
    for conflation_interval in [1, 999, 5_000_000, 200_000_000, 333_333_333, 86_400_000_000_000] {
        let interval = Duration::from_nanos(conflation_interval);
        for conn in [0, 1, 2, 77, 1000, u32::MAX] {
            let phase =
                ((u128::from(conflation_interval) * u128::from(conn.wrapping_mul(0x9e37_79b9))) >> 32) as u64;
            let mut due = 12_345_678_901;
            for round in 0..100 {
                let next = next_due_nanos(conn, interval, due, Duration::from_nanos(due));
                assert!(
                    next - due >= conflation_interval
                        && next - due <= conflation_interval + conflation_interval / 16,
                    "{conflation_interval} {conn}"
                );
                // A sixteenth of the way in each round, and one round for the remainder.
                assert!(
                    round < 20 || conflation_interval < 16 || next % conflation_interval == phase,
                    "{conflation_interval} {conn} {round}"
                );
                due = next;
            }
        }
    }
}

#[test]
fn only_a_very_late_tick_delays_the_next() {
    let late = |millis| {
        let now = INTERVAL + Duration::from_millis(millis);
        Duration::from_nanos(next_due_nanos(0, INTERVAL, INTERVAL.as_nanos() as u64, now))
    };
    assert_eq!(late(0), 2 * INTERVAL);
    assert_eq!(late(12), 2 * INTERVAL);
    assert_eq!(late(13), 2 * INTERVAL + Duration::from_micros(25_500));
    assert_eq!(late(190), 3 * INTERVAL, "on its phase again");
}

#[test]
fn extreme_intervals_are_supported() {
    let (longest, now) = (Duration::MAX, Duration::from_secs(1 << 30));
    let mut schedule = ConflationSchedule::default();
    let mut first = NONE;
    for conflation_interval in [longest, Duration::ZERO, Duration::from_nanos(1)] {
        let at = schedule.add(&mut first, 7, conflation_interval);
        schedule.reschedule(at, nanos(now), now);
        assert!(schedule.get(at).due > nanos(now));
    }
    assert!(schedule.pop_due(now).is_none(), "not before the next tick");
}
