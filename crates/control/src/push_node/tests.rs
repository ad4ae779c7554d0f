//! The absence of servers.

use super::*;

#[test]
fn servers_are_missing_before_the_first_and_after_a_while() {
    let mut servers = ServerPresence::default();
    let at = |millis| Duration::from_secs(100) + Duration::from_millis(millis);
    assert!(servers.update(false, at(0)), "none was linked yet");
    assert!(!servers.update(true, at(10)));
    let limit = limits::PUSH_SERVERS_MISSING.as_millis() as u64;
    for (after, is_missing) in [(0, false), (limit - 1, false), (limit, true), (9 * limit, true)] {
        assert_eq!(servers.update(false, at(20 + after)), is_missing, "{after}");
    }
    assert!(!servers.update(true, at(100_000)));
    assert!(!servers.update(false, at(100_001)), "the time starts again");
}
