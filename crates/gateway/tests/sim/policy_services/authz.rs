//! The authorization service.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringmain_engine::backend::Time;

use super::http;
use super::service::Trade;
use crate::fingerprint;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    /// Requests that were allowed by a response sent in full.
    pub(super) allowed: BTreeSet<u64>,
    /// Requests that were refused in time.
    pub(super) denied: BTreeSet<u64>,
    /// The instants at which their clients began to send.
    pub(super) sent: BTreeMap<u64, Time>,
    /// Requests that are always allowed.
    pub(super) favoured: BTreeSet<u64>,
}

/// A refusal that arrives later than this may be too late.
const SOON: Duration = Duration::from_millis(300);

/// Returns the status with which a request is refused, if it is.
pub(super) fn refusal(id: u64) -> Option<u16> {
    let mix = (id ^ 0x5eed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
    match mix {
        0 => Some(403),
        1 => Some(401),
        2 => Some(302),
        _ => None,
    }
}

/// Returns the body of a refusal.
pub(super) fn told(id: u64) -> String {
    format!("{id} is not let in\n")
}

/// Returns the identity that the upstream receives of an allowed client.
pub(super) fn user(id: u64) -> String {
    format!("user-{id}")
}

impl Trade for Verdicts {
    type Question = (u64, bool);
    type Told = (u64, bool);

    fn question(&mut self, kept: &mut Vec<u8>) -> Option<(u64, bool)> {
        let asked = http::request(kept)?;
        let uri = asked.field("X-Forwarded-Uri").expect("what it is about");
        let id = uri.strip_prefix("/r/").and_then(|rest| rest.split('?').next());
        assert!(asked.field("X-User").is_none(), "what only it may say");
        let id: u64 = id.and_then(|id| id.parse().ok()).expect("an id");
        assert_eq!(
            asked.body,
            fingerprint::pattern(id ^ 0xb0d7, asked.body.len()),
            "the body of {id}"
        );
        Some((id, asked.is_head))
    }

    fn asked(&mut self, _question: &(u64, bool), _now: Time) {}

    fn answer(
        &mut self,
        (id, is_head): &(u64, bool),
        _now: Time,
        random: &mut fastrand::Rng,
    ) -> (Vec<u8>, (u64, bool)) {
        let refused = refusal(*id).filter(|_| !self.favoured.contains(id));
        let mut bytes = match refused {
            Some(status) => http::answer(status, "Location: /login\r\nX-User: root\r\n", &told(*id)),
            None => {
                let body = "x".repeat(random.usize(0..100));
                http::answer(200, &format!("X-User: {}\r\nX-Other: root\r\n", user(*id)), &body)
            }
        };
        if *is_head {
            let head = bytes.windows(4).position(|end| end == b"\r\n\r\n");
            bytes.truncate(head.map_or(0, |at| at + 4));
        }
        (bytes, (*id, refused.is_none()))
    }

    fn failure(&mut self, _question: &(u64, bool)) -> Vec<u8> {
        http::answer(500, "X-User: root\r\n", "")
    }

    fn lie(&mut self, (_, is_head): &(u64, bool), random: &mut fastrand::Rng) -> Vec<u8> {
        // If the method allows no body, the head is the whole response.
        let kinds = if *is_head { 3..4 } else { 0..6 };
        match random.u32(kinds) {
            // Longer than a response may be.
            0 => http::answer(200, "X-User: root\r\n", &"x".repeat(70_000)),
            // Never there as a whole.
            1 => b"HTTP/1.1 200 OK\r\nX-User: root\r\nContent-Length: 5\r\n\r\nok".to_vec(),
            2 => b"HTTP/1.1 200 OK\r\nX-User: root\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n".to_vec(),
            3 => http::answer(600, "X-User: root\r\n", ""),
            _ => http::lie(random),
        }
    }

    fn told(&mut self, told: Self::Told, now: Time, _took: Duration) {
        let (id, allowed) = told;
        let sent = self.sent.get(&id).expect("somebody has sent it");
        if allowed {
            self.allowed.insert(id);
        } else if now.since(*sent) < SOON {
            self.denied.insert(id);
        }
    }

    fn cut(&mut self) {
        self.denied.clear();
    }
}
