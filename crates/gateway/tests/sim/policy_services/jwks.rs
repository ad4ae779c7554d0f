//! The key server, and the tokens that its keys sign.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_engine::backend::Time;
use ringmain_gateway::limits;

use super::http;
use super::service::Trade;

/// Keys that there are; an epoch's set has its own and the next one.
pub(super) const KEYS: usize = 4;

/// The credentials of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Badge {
    Nothing,
    /// A token that the key of this number has signed.
    Key(usize),
    /// One that says so.
    Forged(usize),
    /// A token by a key that is not served.
    Stranger,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Keys {
    epoch: usize,
    /// Keys do not change.
    steady: bool,
    /// Numbers of keys that were in a set that was sent as a whole.
    pub(super) served: BTreeSet<usize>,
    /// The instant at which such a set was first sent.
    pub(super) first: Option<Time>,
    /// The instant at which one was last sent, and the time for which it may be used.
    good: Option<Time>,
    stale: Duration,
    /// The instant of the last query.
    last: Option<Time>,
    /// Since when more than one fetch waits for a response.
    beside: Option<Time>,
    /// Another task fetches from now on, which does not wait for the delay of the last one.
    pub(super) renewed: bool,
}

fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn secret(key: &str) -> Vec<u8> {
    key.bytes().cycle().take(48).collect()
}

/// A token by a key, that says to be by another one.
fn token(key: &str, says: &str, subject: u64) -> String {
    let head = format!(r#"{{"alg":"HS256","kid":"{says}"}}"#);
    let claims = format!(r#"{{"iss":"sim","sub":"{subject}","exp":4102444800}}"#);
    let message = format!("{}.{}", encode(head), encode(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret(key));
    let signature = encode(hmac::sign(&key, message.as_bytes()));
    format!("{message}.{signature}")
}

impl Badge {
    /// Returns the header field with the token; there are few subjects, so that tokens repeat.
    pub(super) fn field(self, id: u64) -> String {
        let token = match self {
            Badge::Nothing => return String::new(),
            Badge::Key(key) => token(&format!("k{key}"), &format!("k{key}"), id % 3),
            Badge::Forged(key) => token("mine", &format!("k{key}"), id % 3),
            Badge::Stranger => token("mine", "mine", id % 3),
        };
        format!("Authorization: Bearer {token}\r\n")
    }
}

impl Keys {
    /// Its keys change, or do not; they may be used for so long when they cannot be fetched.
    pub(super) fn new(steady: bool, stale: Duration) -> Keys {
        Keys {
            steady,
            stale,
            ..Keys::default()
        }
    }

    /// From now on it has the last key alone.
    pub(super) fn change(&mut self) {
        self.epoch = KEYS - 1;
        self.steady = true;
    }

    /// The key that it has for longest.
    pub(super) fn newest(&self) -> usize {
        (self.epoch + 1).min(KEYS - 1)
    }

    fn set(epoch: usize) -> impl Iterator<Item = usize> {
        epoch..=(epoch + 1).min(KEYS - 1)
    }
}

impl Trade for Keys {
    type Question = ();
    type Told = usize;

    fn question(&mut self, kept: &mut Vec<u8>) -> Option<()> {
        let asked = http::request(kept)?;
        assert_eq!(asked.path, "/keys");
        Some(())
    }

    fn asked(&mut self, (): &(), now: Time) {
        if self.renewed {
            return;
        }
        // Connecting takes a part of the time between two. Of two on one occasion the first was on a kept connection.
        if let (Some(first), Some(last)) = (self.first, self.last)
            && first < last
        {
            let apart = now.since(last);
            let again = apart < Duration::from_millis(500);
            let least = limits::KEYS_LEAST - Duration::from_secs(4);
            // Without any, it is tried again sooner.
            let old = self.good.is_none_or(|good| now.since(good) >= self.stale);
            assert!(again || old || apart >= least, "fetched again after {apart:?}");
        }
        self.last = Some(now);
    }

    fn waiting(&mut self, count: usize, now: Time) {
        if self.renewed || count < 2 {
            self.beside = None;
            return;
        }
        // A fetch that is given up closes its connection, which takes a moment to arrive here.
        let since = *self.beside.get_or_insert(now);
        let span = now.since(since);
        assert!(
            span < Duration::from_millis(500),
            "{count} fetches at a time for {span:?}"
        );
    }

    fn answer(&mut self, (): &(), _now: Time, random: &mut fastrand::Rng) -> (Vec<u8>, usize) {
        if !self.steady && random.u32(0..4) == 0 {
            self.epoch = (self.epoch + 1).min(KEYS - 2);
        }
        let key = |number| {
            let secret = encode(secret(&format!("k{number}")));
            format!(r#"{{"kty":"oct","kid":"k{number}","k":"{secret}","use":"sig"}}"#)
        };
        let keys: Vec<String> = Keys::set(self.epoch).map(key).collect();
        let body = format!(r#"{{"keys":[{}]}}"#, keys.join(","));
        (http::answer(200, "", &body), self.epoch)
    }

    fn failure(&mut self, (): &()) -> Vec<u8> {
        http::answer(500, "", "{}")
    }

    fn lie(&mut self, (): &(), random: &mut fastrand::Rng) -> Vec<u8> {
        let none = |body: &str| http::answer(200, "Content-Type: application/json\r\n", body);
        match random.u32(0..10) {
            0 => none("<html>"),
            1 => none(r#"{"keys":[]}"#),
            2 => none(r#"{"keys":7}"#),
            3 => none(r#"{"keys":[{"kty":"oct","kid":"k0","k":""}]}"#),
            4 => none(&"[".repeat(5_000)),
            5 => none(&format!(r#"{{"keys":"{}"}}"#, "x".repeat(limits::KEY_SET_BYTES))),
            6 => http::answer(204, "", ""),
            7 => http::answer(301, "Location: /keys\r\n", ""),
            _ => http::lie(random),
        }
    }

    fn told(&mut self, epoch: usize, now: Time, took: Duration) {
        self.first.get_or_insert(now);
        self.served.extend(Keys::set(epoch));
        // A later set may be too late. Its age counts from the query.
        if took < Duration::from_secs(2) {
            self.good = Some(Time(now.0 - took.as_nanos() as u64));
        }
    }

    fn cut(&mut self) {
        self.good = None;
    }
}
