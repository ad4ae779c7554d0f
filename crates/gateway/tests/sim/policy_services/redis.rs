//! The shared counter: the part of a Redis that the gateway uses.

use std::time::Duration;

use ringmain_engine::backend::Time;

use super::service::Trade;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Counting {
    loaded: bool,
    /// Until when something is owed, microseconds.
    until: u64,
    /// Requests that a whole answer has let pass.
    pub(super) passes: u64,
    /// And those that one has refused.
    pub(super) refusals: u64,
}

impl Counting {
    /// Nothing is owed any more.
    pub(super) fn forgive(&mut self) {
        self.until = 0;
    }
}

/// A command's words.
type Words = Vec<Vec<u8>>;

/// Takes a line from there on.
fn line(kept: &[u8], at: &mut usize) -> Option<String> {
    let length = kept[*at..].windows(2).position(|pair| pair == b"\r\n")?;
    let text = String::from_utf8_lossy(&kept[*at..*at + length]).into_owned();
    *at += length + 2;
    Some(text)
}

fn counted(line: &str, kind: char) -> usize {
    let digits = line.strip_prefix(kind).expect("a command");
    digits.parse().expect("a number")
}

fn numbers(passes: bool, owed: u64) -> Vec<u8> {
    format!("*2\r\n:{}\r\n:{owed}\r\n", u8::from(passes)).into_bytes()
}

impl Trade for Counting {
    type Question = Words;
    type Told = Option<bool>;

    fn question(&mut self, kept: &mut Vec<u8>) -> Option<Words> {
        let mut at = 0;
        let count = counted(&line(kept, &mut at)?, '*');
        let mut words = Vec::new();
        for _ in 0..count {
            let length = counted(&line(kept, &mut at)?, '$');
            words.push(kept.get(at..at + length)?.to_vec());
            kept.get(at + length..at + length + 2)?;
            at += length + 2;
        }
        kept.drain(..at);
        Some(words)
    }

    fn asked(&mut self, words: &Words, _now: Time) {
        assert!(words.len() == 6 && words[2] == b"1", "{words:?}");
        assert!(words[3].starts_with(b"ringmain:shared:"), "{words:?}");
    }

    fn answer(&mut self, words: &Words, now: Time, random: &mut fastrand::Rng) -> (Vec<u8>, Option<bool>) {
        if random.u32(0..20) == 0 {
            self.loaded = false;
        }
        if words[0] == b"EVAL" {
            self.loaded = true;
        } else if !self.loaded {
            return (
                b"-NOSCRIPT No matching script. Please use EVAL.\r\n".to_vec(),
                None,
            );
        }
        let number = |word: &[u8]| -> u64 { String::from_utf8_lossy(word).parse().expect("a number") };
        let (share, most) = (number(&words[4]), number(&words[5]));
        let now = now.0 / 1000;
        let owed = self.until.saturating_sub(now).min(most);
        if owed + share > most {
            return (numbers(false, owed), Some(false));
        }
        self.until = now + owed + share;
        (numbers(true, owed + share), Some(true))
    }

    fn failure(&mut self, _words: &Words) -> Vec<u8> {
        b"-LOADING Redis is loading the dataset in memory\r\n".to_vec()
    }

    fn lie(&mut self, _words: &Words, random: &mut fastrand::Rng) -> Vec<u8> {
        let lies: [&[u8]; 14] = [
            b":1\r\n",
            b"+OK\r\n",
            b"$1\r\n1\r\n",
            b"*2\r\n:1\r\n",
            b"*2\r\n:2\r\n:0\r\n",
            b"*2\r\n:1\r\n:-5\r\n",
            b"*1\r\n:1\r\n",
            b"*3\r\n:1\r\n:0\r\n:0\r\n",
            b"*2\r\n+1\r\n+0\r\n",
            b"*-1\r\n",
            b"*99999999\r\n",
            b"$99999999999\r\n",
            b"\r\n",
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
        ];
        lies[random.usize(..lies.len())].to_vec()
    }

    fn told(&mut self, told: Option<bool>, _now: Time, _took: Duration) {
        match told {
            Some(true) => self.passes += 1,
            Some(false) => self.refusals += 1,
            None => {}
        }
    }
}
