//! No allocation where none is promised: counted by the allocator, over all threads.

use std::hint::black_box;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ringmain_web::access_log::{AccessLog, AccessWriter, Format, Record};
use ringmain_web::{Event, Query, SameSite, SetCookie, http_date};
use ringmain_wire::h1::Version;
use stats_alloc::Region;

use crate::ALLOCATOR;

const TIMES: u64 = 1000;

pub(crate) fn main() {
    let mut out = Vec::with_capacity(4096);
    check("queries", |_| query());
    check("what is set and sent", |number| {
        out.clear();
        answer(&mut out, number);
    });
    for format in [Format::Common, Format::Combined, Format::Json] {
        let lines = Lines::default();
        let log = AccessLog::to_writer(lines.clone())
            .expect("a thread")
            .format(format);
        let mut writer = log.writer();
        check("access log", |number| log_lines(&mut writer, &lines, number));
    }
}

/// `run` once to warm up, then many times without an allocation.
fn check(what: &str, mut run: impl FnMut(u64)) {
    run(0);
    let region = Region::new(ALLOCATOR);
    for number in 1..=TIMES {
        run(number);
    }
    let change = region.change();
    let counts = (change.allocations, change.reallocations);
    assert_eq!(counts, (0, 0), "{what}, {TIMES} times: {change:?}");
}

fn query() {
    let query = Query::new("page=7&size=20&n%61me=x&tag=a&tag=b").expect("pairs");
    assert_eq!(query.parse("page").expect("a number"), Some(7));
    assert_eq!(query.get("name").as_deref(), Some("x"));
    assert_eq!(query.all("tag").count(), 2);
    assert_eq!(query.get("absent"), None);
}

fn answer(out: &mut Vec<u8>, number: u64) {
    let age = Duration::from_secs(number);
    let cookie = SetCookie::new("__Host-id", "abc").max_age(age).expires(age);
    let cookie = cookie.secure(true).same_site(Some(SameSite::Strict));
    cookie.write(out).expect("a cookie");
    let event = Event::new().event("tick").id("1").retry(age).data("a\nb");
    event.write(out).expect("an event");
    out.extend_from_slice(&http_date(black_box(age)));
    assert!(out.len() > 100);
}

/// Lines written so far, and a way to wait for them.
#[derive(Clone, Default)]
struct Lines(Arc<(Mutex<u64>, Condvar)>);

impl Lines {
    fn wait_for(&self, target: u64) {
        let (count, changed) = &*self.0;
        let count = count.lock().expect("no panic");
        drop(
            changed
                .wait_while(count, |count| *count < target)
                .expect("no panic"),
        );
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count();
        let (count, changed) = &*self.0;
        *count.lock().expect("no panic") += lines as u64;
        changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Three lines, handed over and written: the block is back before the next ones.
fn log_lines(writer: &mut AccessWriter, lines: &Lines, number: u64) {
    for _ in 0..3 {
        writer.record(&Record {
            remote: Some(Ipv4Addr::LOCALHOST.into()),
            time: Duration::from_millis(number),
            method: "GET",
            target: "/a\\b?c=\"d\"",
            version: Some(Version::Http11),
            status: 200,
            body_bytes: number,
            duration_us: number,
            referer: Some(b"http://example.org/"),
            user_agent: Some("J\u{fc}rgen\u{85}".as_bytes()),
            request_id: Some("0123456789abcdef"),
            log_fields: &[],
        });
    }
    writer.flush();
    lines.wait_for(3 * (number + 1));
}
