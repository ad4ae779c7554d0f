//! Tests of the limits of the process.

use super::errors::check_errors;
use super::valid_config;

#[test]
fn a_drain_spread_fits_into_the_drain() {
    let config = |limits: &str| format!("listen: :80\nto: http://a:1\nlimits: {limits}\n");
    let limits = valid_config(&config("{drain: 60s, drain_delay: 10s, drain_spread: 60s}")).limits;
    assert_eq!(
        (
            limits.drain_delay.as_secs(),
            limits.drain_spread.map(|spread| spread.as_secs())
        ),
        (10, Some(60))
    );
    let limits = valid_config(&config("{drain: 60s}")).limits;
    assert_eq!((limits.drain_delay.as_secs(), limits.drain_spread), (0, None));
    check_errors(
        &config("{drain: 5s, drain_spread: 6s}"),
        &["3:35: expected at most the time of `drain`, 5s, found `6s`"],
    );
}
