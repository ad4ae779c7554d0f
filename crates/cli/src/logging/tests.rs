//! Format of log lines, and the queue of a blocked writer.

use std::sync::mpsc;
use std::time::UNIX_EPOCH;

use super::*;

fn check_time(seconds: u64, expect: &str) {
    let at = UNIX_EPOCH + Duration::from_secs(seconds);
    assert_eq!(time::Rfc3339(at).to_string(), expect);
}

#[test]
fn times_follow_the_gregorian_calendar() {
    check_time(0, "1970-01-01T00:00:00.000Z");
    check_time(951_782_399, "2000-02-28T23:59:59.000Z");
    check_time(951_782_400, "2000-02-29T00:00:00.000Z");
    check_time(951_868_800, "2000-03-01T00:00:00.000Z");
    check_time(1_709_251_199, "2024-02-29T23:59:59.000Z");
    check_time(1_767_225_599, "2025-12-31T23:59:59.000Z");
    check_time(4_107_542_400, "2100-03-01T00:00:00.000Z");
    check_time(4_107_456_000, "2100-02-28T00:00:00.000Z");
}

#[test]
fn control_characters_are_escaped() {
    let text = format_line(UNIX_EPOCH, Level::Warn, format_args!("a\nb\x1b[2Jc"), false);
    assert_eq!(text, "1970-01-01T00:00:00.000Z WARN  a\\nb\\u{1b}[2Jc\n");
}

#[test]
fn a_long_line_is_truncated() {
    let text = format_line(
        UNIX_EPOCH,
        Level::Info,
        format_args!("{}", "x".repeat(100_000)),
        false,
    );
    assert!(text.ends_with("x…\n"), "{}", &text[text.len() - 10..]);
    assert!(text.len() <= limits::LOG_LINE_BYTES + 8);
}

/// A writer that blocks until the test opens it.
struct Gate {
    reached: mpsc::Sender<()>,
    open: mpsc::Receiver<()>,
    written: mpsc::Sender<String>,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The test may have failed already.
        let _ = self.reached.send(());
        let _ = self.open.recv();
        let _ = self.written.send(String::from_utf8_lossy(bytes).into_owned());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_queue_drops_lines_and_logs_their_number() {
    let queue = Arc::new(Queue::new(2, false));
    let (reached, at_gate) = mpsc::channel();
    let (opener, open) = mpsc::channel();
    let (written, output) = mpsc::channel();
    let writer = Arc::clone(&queue);
    let mut gate = Gate {
        reached,
        open,
        written,
    };
    #[expect(clippy::disallowed_methods, reason = "the writer's thread, as in the product")]
    let _writer = std::thread::spawn(move || writer.write_loop(&mut gate));
    let say = |text: &str| {
        queue.push_line(format_line(
            UNIX_EPOCH,
            Level::Info,
            format_args!("{text}"),
            false,
        ))
    };
    say("first");
    at_gate.recv().unwrap();
    // The writer is blocked: two lines are queued, three are dropped, and no caller waits.
    for text in ["second", "third", "fourth", "fifth", "sixth"] {
        say(text);
    }
    assert!(!queue.flush(Duration::from_millis(1)), "nothing is written yet");
    drop(opener);
    assert!(queue.flush(Duration::from_secs(60)));
    let all: String = output.try_iter().collect();
    let lines: Vec<&str> = all.lines().collect();
    assert_eq!(lines.len(), 4, "{all}");
    assert!(lines[2].ends_with("third"), "{all}");
    assert!(lines[3].contains("WARN  3 log lines were dropped"), "{all}");
}

#[test]
fn lines_of_libraries_are_written_from_level_debug_on() {
    let cases = [
        (Level::Info, "ringmain_sources::kafka", LevelFilter::Info, true),
        (Level::Error, "ringmain", LevelFilter::Error, true),
        (Level::Debug, "ringmain_kube::live", LevelFilter::Info, false),
        (Level::Info, "krafka::consumer", LevelFilter::Info, false),
        (Level::Error, "krafka::network", LevelFilter::Info, false),
        (Level::Info, "krafka::consumer", LevelFilter::Debug, true),
        (Level::Trace, "krafka::consumer", LevelFilter::Debug, false),
    ];
    for (level, target, most, expected) in cases {
        assert_eq!(
            is_written(level, target, most),
            expected,
            "{level} {target} {most}"
        );
    }
}
