//! The way of lines to their destination: order, limits, losses, log rotation.
#![forbid(unsafe_code)]

use std::fs;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_web::access_log::{AccessLog, AccessWriter, Format, Record};
use ringmain_web::limits::{ACCESS_LOG_BLOCK_BYTES, ACCESS_LOG_BLOCKS};
use ringmain_wire::h1::Version;

/// Long enough for any machine; nothing here waits for its end.
const PATIENCE: Duration = Duration::from_secs(60);

fn say(writer: &mut AccessWriter, target: &str) {
    writer.record(&Record {
        remote: Some(Ipv4Addr::LOCALHOST.into()),
        time: Duration::ZERO,
        method: "GET",
        target,
        version: Some(Version::Http11),
        status: 200,
        body_bytes: 0,
        duration_us: 0,
        referer: None,
        user_agent: None,
        request_id: None,
        log_fields: &[],
    });
}

fn targets(text: &str) -> Vec<&str> {
    let target = |line| str::split(line, ' ').nth(6).expect("a whole line");
    text.lines().map(target).collect()
}

/// Lines in the application's log, from all tests.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        SAID.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

fn listen() {
    // Whichever test is first sets it.
    let _ = log::set_logger(&Logger);
    log::set_max_level(log::LevelFilter::Info);
}

fn was_said(text: &str) -> bool {
    SAID.lock().unwrap().iter().any(|said| said.contains(text))
}

/// Collects written bytes.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports the start of each write, then follows the test's order: `true` fails.
struct Gate {
    reached: Sender<()>,
    answers: Receiver<bool>,
    memory: Memory,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.reached.send(());
        // Once the test has dropped its end, the gate is open.
        if self.answers.recv().unwrap_or(false) {
            return Err(io::Error::other("no space"));
        }
        self.memory.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports the written bytes when it is dropped.
struct Tell(Memory, Sender<String>);

impl Write for Tell {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.1.send(self.0.text());
    }
}

fn gate() -> (Gate, Receiver<()>, Sender<bool>, Memory) {
    let (reached, at_gate) = channel();
    let (opener, answers) = channel();
    let memory = Memory::default();
    let gate = Gate {
        reached,
        answers,
        memory: memory.clone(),
    };
    (gate, at_gate, opener, memory)
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn lines_arrive_in_each_workers_order() {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone())
        .unwrap()
        .format(Format::Common);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let mut writer = log.writer();
            let run = move || {
                for number in 0..1000 {
                    say(&mut writer, &format!("/{worker}/{number}"));
                    if number % 50 == 0 {
                        writer.flush();
                    }
                }
            };
            scope.spawn(run);
        }
    });
    assert!(log.finish(PATIENCE));
    assert_eq!(log.lost_lines(), 0);
    let text = memory.text();
    let all = targets(&text);
    assert_eq!(all.len(), 4000);
    for worker in 0..4 {
        let start = format!("/{worker}/");
        let numbers: Vec<usize> = all
            .iter()
            .filter_map(|target| target.strip_prefix(&start))
            .map(|number| number.parse().unwrap())
            .collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_block_leaves_by_itself() {
    let (gate, at_gate, opener, memory) = gate();
    drop(opener);
    let log = AccessLog::to_writer(gate).unwrap();
    let mut writer = log.writer();
    let target = format!("/{}", "a".repeat(1000));
    for _ in 0..=ACCESS_LOG_BLOCK_BYTES / target.len() {
        say(&mut writer, &target);
    }
    at_gate.recv_timeout(PATIENCE).expect("a write without a flush");
    drop(writer);
    assert!(log.finish(PATIENCE));
    assert_eq!(
        targets(&memory.text()).len(),
        ACCESS_LOG_BLOCK_BYTES / target.len() + 1
    );
}

#[test]
fn a_full_queue_drops_lines_and_logs_their_count() {
    listen();
    let (gate, at_gate, opener, memory) = gate();
    let log = AccessLog::to_writer(gate).unwrap();
    let mut writer = log.writer();
    say(&mut writer, "/first");
    writer.flush();
    at_gate.recv_timeout(PATIENCE).unwrap();
    // The writer hangs. Whoever records does not.
    for number in 0..ACCESS_LOG_BLOCKS + 3 {
        say(&mut writer, &format!("/{number}"));
        say(&mut writer, &format!("/{number}"));
        writer.flush();
    }
    assert_eq!(log.lost_lines(), 6);
    assert!(!log.finish(Duration::from_millis(1)), "it still hangs");
    say(&mut writer, "/late");
    drop(writer);
    assert_eq!(log.lost_lines(), 7, "nobody waits for lines any more");
    drop(opener);
    assert!(log.finish(PATIENCE));
    assert!(was_said(
        "7 access log lines dropped: its destination is too slow"
    ));
    let text = memory.text();
    let all = targets(&text);
    assert_eq!(all.len(), 1 + 2 * ACCESS_LOG_BLOCKS);
    assert_eq!(all.first(), Some(&"/first"));
    assert_eq!(all.last(), Some(&&*format!("/{}", ACCESS_LOG_BLOCKS - 1)));
}

#[test]
fn a_destination_that_fails_costs_its_lines_only() {
    listen();
    let (gate, at_gate, opener, memory) = gate();
    let log = AccessLog::to_writer(gate).unwrap();
    let mut writer = log.writer();
    say(&mut writer, "/lost");
    writer.flush();
    at_gate.recv_timeout(PATIENCE).unwrap();
    opener.send(true).unwrap();
    say(&mut writer, "/kept");
    drop(writer);
    drop(opener);
    assert!(log.finish(PATIENCE));
    assert_eq!(log.lost_lines(), 1);
    assert!(was_said(
        "cannot write the access log to its destination: no space; lines are dropped until a write succeeds"
    ));
    assert!(was_said("access log: writes to its destination succeed again"));
    let text = memory.text();
    // A partly written line is not joined with the next one.
    assert!(
        text.starts_with('\n') && text.contains("/kept") && !text.contains("/lost"),
        "{text}"
    );
}

#[test]
fn a_file_is_appended_to_and_opened_again() {
    let folder = folder("rotation");
    let (path, moved) = (folder.join("access.log"), folder.join("access.log.1"));
    let again = || AccessLog::to_file(&path).unwrap();
    let log = again();
    say(&mut log.writer(), "/one");
    assert!(log.finish(PATIENCE));
    let log = again();
    say(&mut log.writer(), "/two");
    assert!(log.finish(PATIENCE));
    assert_eq!(targets(&fs::read_to_string(&path).unwrap()), ["/one", "/two"]);

    let log = again();
    fs::rename(&path, &moved).unwrap();
    log.reopen();
    say(&mut log.writer(), "/three");
    assert!(log.finish(PATIENCE));
    assert_eq!(targets(&fs::read_to_string(&path).unwrap()), ["/three"]);
    assert_eq!(targets(&fs::read_to_string(&moved).unwrap()), ["/one", "/two"]);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_file_that_cannot_be_opened_again_is_written_on() {
    listen();
    let folder = folder("gone");
    let (inner, moved) = (folder.join("inner"), folder.join("moved"));
    fs::create_dir(&inner).unwrap();
    let log = AccessLog::to_file(inner.join("access.log")).unwrap();
    fs::rename(&inner, &moved).unwrap();
    log.reopen();
    say(&mut log.writer(), "/kept");
    assert!(log.finish(PATIENCE));
    assert_eq!(
        targets(&fs::read_to_string(moved.join("access.log")).unwrap()),
        ["/kept"]
    );
    assert!(was_said("inner/access.log`: No such file"));
    let error = AccessLog::to_file(inner.join("access.log")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert!(
        error.to_string().contains("inner/access.log"),
        "it names the file: {error}"
    );
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_line_after_the_end_is_counted_as_lost() {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone()).unwrap();
    assert!(log.finish(PATIENCE));
    say(&mut log.writer(), "/late");
    assert_eq!((log.lost_lines(), memory.text()), (1, String::new()));
}

#[test]
fn dropping_the_log_ends_its_thread_after_the_last_line() {
    let (ended, end) = channel();
    let log = AccessLog::to_writer(Tell(Memory::default(), ended)).unwrap();
    say(&mut log.writer(), "/last");
    drop(log);
    let text = end.recv_timeout(PATIENCE).expect("the thread ends");
    assert_eq!(targets(&text), ["/last"]);
}
