//! A request of a client: its bytes, and the check of its response.

use std::ops::Range;
use std::time::Duration;

use ringmain_gateway::fault::Fault;
use ringmain_sim::World;
use ringmain_web::testing::TestReply;

use crate::clients::Weather;
use crate::fingerprint;
use crate::policy_services::Asked;

/// One request.
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) method: &'static str,
    /// As HTTP/1.1.
    pub(crate) bytes: Vec<u8>,
    /// Bytes of its head, of these.
    pub(crate) head: usize,
    /// The end of its body is not announced: it is a live stream.
    pub(crate) is_live: bool,
    /// Ranges of its bytes that are framing of such a body and not data.
    lines: Vec<Range<usize>>,
    pub(crate) body: Vec<u8>,
    /// Bytes that its response is to have behind the account.
    pub(crate) length: usize,
    /// The client has stopped within the body.
    pub(crate) is_cut: bool,
}

impl Ask {
    pub(crate) fn new(world: &World, id: u64, most: usize, asked: &Asked) -> Ask {
        let length = world.below(most + 1);
        let method = ["GET", "GET", "HEAD", "POST", "PUT"][world.below(5)];
        let has_body = matches!(method, "POST" | "PUT");
        let body = fingerprint::pattern(id ^ 0xb0d7, if has_body { world.below(most + 1) } else { 0 });
        let fields = asked.fields(id);
        let mut bytes =
            format!("{method} /r/{id}?n={length} HTTP/1.1\r\nHost: sim\r\nX-Id: {id}\r\n{fields}")
                .into_bytes();
        let is_live = has_body && world.below(2) == 0;
        if is_live {
            bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
        } else if has_body {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
        } else {
            bytes.extend_from_slice(b"\r\n");
        }
        let head = bytes.len();
        let mut lines = Vec::new();
        if is_live {
            lines = chunks(world, &body, &mut bytes);
        } else {
            bytes.extend_from_slice(&body);
        }
        Ask {
            id,
            method,
            bytes,
            head,
            is_live,
            lines,
            body,
            length,
            is_cut: false,
        }
    }

    /// Returns the end of a piece of a live stream: `end`, moved so that the piece ends with data, as a client sends it.
    pub(crate) fn end_of_piece(&self, end: usize) -> usize {
        let within = |line: &&Range<usize>| line.start < end && end <= line.end;
        let line = self.lines.iter().find(within);
        line.map_or(end, |line| self.bytes.len().min(line.end + 1))
    }

    /// Checks a response. Returns `false` if it is a reported failure.
    pub(crate) fn check(
        &self,
        reply: &TestReply,
        weather: Weather,
        asked: &Asked,
        waited: Option<Duration>,
    ) -> Result<bool, String> {
        if let Some(judged) = asked.judge(self.id, reply, waited, weather.broken) {
            return judged.map(|()| false);
        }
        if weather.bounds.explains(reply) {
            return Ok(false);
        }
        if reply.status() == 413 && reply.header("X-Proof") == Some(&*self.id.to_string()) {
            // The origin's own response, which may arrive before the request is sent.
            let has_body = !self.body.is_empty() || self.is_live;
            let is_right = has_body && reply.body() == fingerprint::refusal(self.id);
            return is_right.then_some(true).ok_or("another refusal".to_owned());
        }
        if self.is_cut && reply.status() == 408 {
            return Ok(false);
        }
        if reply.status() != 200 {
            let told = matches!(reply.status(), 400 | 403 | 408 | 502..=504);
            if weather.broken && told && reply.header("X-Proof").is_none() {
                return Ok(false);
            }
            return Err(format!(
                "answered {}: {}",
                reply.status(),
                reply.body().escape_ascii()
            ));
        }
        let proof = reply.header("X-Proof").map(str::to_owned);
        if proof != Some(self.id.to_string()) {
            return Err(format!("the answer of {proof:?}"));
        }
        if self.is_cut {
            return Err("a response to part of a request".to_owned());
        }
        let expected = match self.method {
            "HEAD" => Vec::new(),
            _ => fingerprint::answer(self.id, &self.body, self.length),
        };
        if reply.body() != expected {
            return Err(format!(
                "{} bytes of {}, or wrong ones",
                reply.body().len(),
                expected.len()
            ));
        }
        Ok(true)
    }
}

/// Chunks of a body that have extensions at most.
const EXTENSIONS: usize = 20;

/// Writes a body in chunks; those of some requests have extensions, and some have trailers.
/// Returns where their framing is.
fn chunks(world: &World, body: &[u8], out: &mut Vec<u8>) -> Vec<Range<usize>> {
    let mut lines = Vec::new();
    let mut begins = out.len();
    let extension = ["", "", ";name=value", ";a;b=\"c d\""][world.below(4)];
    for (number, chunk) in body.chunks(1 + world.below(1000)).enumerate() {
        // Those of a body have a limit together.
        let extension = if number < EXTENSIONS { extension } else { "" };
        out.extend_from_slice(format!("{:x}{extension}\r\n", chunk.len()).as_bytes());
        lines.push(begins..out.len());
        out.extend_from_slice(chunk);
        begins = out.len();
        out.extend_from_slice(b"\r\n");
    }
    let trailers = ["", "", "X-Last: 1\r\n"][world.below(3)];
    out.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    lines.push(begins..out.len());
    lines
}

/// The faults of clients that stop or are too slow within a request, by the order of [`Timeouts`].
pub(crate) const TIMEOUTS: [Fault; 2] = [Fault::RequestIdle, Fault::RequestTooSlow];

/// The number of responses that reported each of [`TIMEOUTS`].
pub(crate) type Timeouts = [u64; 2];

/// Counts a response that reports a timeout.
pub(crate) fn count(reply: &TestReply, timeouts: &mut Timeouts) {
    for (fault, count) in TIMEOUTS.iter().zip(timeouts) {
        let text = String::from_utf8_lossy(reply.body());
        *count += u64::from(reply.status() == fault.status() && text.trim_end() == fault.text());
    }
}
