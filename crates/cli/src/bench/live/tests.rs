//! The lines of the view, compared with the files in `golden/`, and their position on a terminal.
//!
//! After an intended change, run the tests with `UPDATE_GOLDEN=1` and review the difference.

use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::figures::{Counts, Figures, Percentiles};
use ringmain_load::plan::{Extent, Pace, Plan, Protocol};
use ringmain_load::report::{Interval, Round};

use super::screen::Screen;
use super::state::{Phase, State};
use super::view;
use crate::limits::LIVE_RATES;

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn plan(pace: Pace) -> Plan {
    Plan {
        target: "127.0.0.1:8080".parse().unwrap(),
        others: Vec::new(),
        sources: vec![],
        protocol: Protocol::Http1,
        tls: None,
        connections: 256,
        pipeline: 1,
        reconnect_after: None,
        pace,
        extent: Extent::Time(seconds(10.0)),
        warmup: seconds(2.0),
        rounds: 3,
        timeout: seconds(8.0),
        connect_timeout: seconds(10.0),
        interval: seconds(1.0),
        threads: 2,
        cpus: vec![],
        engine: Choice::Auto,
        seed: 1,
    }
}

fn interval(number: u32, answered: u64) -> Interval {
    let percentiles = |scale: u64| Percentiles {
        p50: Duration::from_micros(190 * scale),
        p90: Duration::from_micros(290 * scale),
        p99: Duration::from_micros(414 * scale),
        p999: Duration::from_micros(522 * scale),
        p9999: Duration::from_micros(626 * scale),
        max: Duration::from_micros(742 * scale),
    };
    Interval {
        until: Duration::from_secs(u64::from(number)),
        length: Duration::from_millis(1_001),
        counts: Counts {
            sent: answered,
            answered,
            ..Counts::default()
        },
        service: percentiles(1),
        response: percentiles(3),
    }
}

/// Returns a state in the second of three rounds.
fn measuring(pace: Pace) -> State {
    let mut state = State::default();
    state.begin_round(None, 1, &plan(pace), seconds(100.0));
    state.enter_phase(Phase::Warming, seconds(100.1));
    state.enter_phase(Phase::Measuring, seconds(102.1));
    for number in 1..=6 {
        state.record_interval(
            &interval(number, 400_000 + 4_000 * u64::from(number)),
            seconds(1.23),
        );
    }
    state
}

fn check(lines: &[String], file: &str, golden: &str) {
    let mut text = lines.join("\n");
    text.push('\n');
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/bench/live/golden");
        std::fs::write(format!("{folder}/{file}"), text).unwrap();
        return;
    }
    assert!(text == golden, "{file} differs; the view is now:\n{text}");
}

macro_rules! check {
    ($lines:expr, $file:literal) => {
        check(&$lines, $file, include_str!(concat!("golden/", $file)))
    };
}

#[test]
fn each_phase_shows_its_progress() {
    let mut state = State::default();
    state.begin_round(None, 0, &plan(Pace::Closed), seconds(5.0));
    let mut lines = view::render_view(&state, seconds(8.5), 99, false);
    state.enter_phase(Phase::Warming, seconds(10.0));
    lines.extend(view::render_view(&state, seconds(11.0), 99, false));
    state.enter_phase(Phase::Measuring, seconds(12.0));
    for now in [12.0, 15.0, 22.0, 30.0] {
        lines.extend(view::render_view(&state, seconds(now), 99, false));
    }
    state.begin_round(Some("net/http"), 2, &plan(Pace::Closed), seconds(5.0));
    state.extent = Extent::Count(1_000_000);
    state.enter_phase(Phase::Measuring, seconds(12.0));
    state.counts.answered = 250_000;
    lines.extend(view::render_view(&state, seconds(15.0), 99, false));
    check!(lines, "phases.txt");
}

#[test]
fn a_closed_loop_shows_service_times() {
    check!(
        view::render_view(&measuring(Pace::Closed), seconds(108.3), 99, false),
        "closed.txt"
    );
}

#[test]
fn an_open_loop_shows_response_times_and_problems() {
    let mut state = measuring(Pace::Constant(500_000.0));
    let mut bad = interval(7, 80_000);
    bad.counts.statuses.insert(503, 1_234);
    bad.counts.timeouts = 3;
    bad.counts.broken.insert("reset", 2);
    bad.counts.connect_errors.insert("refused", 4);
    (bad.counts.connects, bad.counts.late, bad.counts.dropped) = (256 + 5, 6, 7);
    state.record_interval(&bad, seconds(1.99));
    let mut lines = view::render_view(&state, seconds(109.1), 99, false);
    lines.push(view::status_line(&state));
    check!(lines, "open.txt");
}

#[test]
fn a_round_ends_in_one_line() {
    let state = measuring(Pace::Closed);
    let mut figures = Figures::default();
    for nanoseconds in [100_000, 200_000, 300_000] {
        figures.service.record(nanoseconds);
    }
    figures.counts.answered = 3_000;
    figures.counts.timeouts = 1;
    let round = Round {
        elapsed: seconds(10.0),
        began: Duration::ZERO,
        figures,
        series: vec![],
        workers: vec![],
        server: None,
    };
    assert_eq!(
        view::round_summary(&state, &round),
        "round 2 of 3: 300.0 requests/s, service time p50 200 µs, p99 300 µs, 1 timed out"
    );
}

#[test]
fn lines_fit_the_width_and_colours_change_no_text() {
    let mut state = measuring(Pace::Poisson(1e9));
    state.name = Some("a\x1b[2Jlong name ".repeat(5));
    for width in 0..140 {
        let plain = view::render_view(&state, seconds(108.0), width, false);
        let coloured = view::render_view(&state, seconds(108.0), width, true);
        for (plain, coloured) in plain.iter().zip(&coloured) {
            assert!(plain.chars().count() <= width, "{width}: {plain}");
            assert!(!plain.contains('\x1b'), "{plain}");
            assert_eq!(without_colours(coloured).trim_end(), plain);
        }
        assert_eq!(plain.len(), coloured.len());
    }
}

fn without_colours(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').unwrap().1)
}

#[test]
fn rates_are_limited_and_a_new_round_resets_counters() {
    let mut state = measuring(Pace::Closed);
    for number in 0..100 {
        state.record_interval(&interval(number, u64::from(number)), Duration::ZERO);
    }
    assert_eq!(state.rates.len(), LIVE_RATES);
    assert!((state.rates[LIVE_RATES - 1] - 99.0 / 1.001).abs() < 1e-9);
    state.begin_round(None, 2, &plan(Pace::Closed), seconds(200.0));
    assert_eq!(state.counts, Counts::default());
    assert!(state.last.is_none());
    assert_eq!(state.remaining_time(seconds(201.0)), Some(seconds(12.0)));
}

/// An emulation of the terminal functions that the screen uses; it panics on others.
struct Terminal {
    rows: Vec<Vec<char>>,
    height: usize,
    at: (usize, usize),
}

impl Terminal {
    fn new(height: usize) -> Terminal {
        Terminal {
            rows: vec![vec![]; height],
            height,
            at: (0, 0),
        }
    }

    fn write(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            rest = &rest[c.len_utf8()..];
            match c {
                '\r' => self.at.1 = 0,
                '\n' => self.down(),
                '\x1b' => rest = self.sequence(rest),
                c => self.put(c),
            }
        }
    }

    /// Handles a line feed; the terminal driver adds the carriage return.
    fn down(&mut self) {
        self.at.1 = 0;
        if self.at.0 + 1 < self.height {
            self.at.0 += 1;
        } else {
            self.rows.remove(0);
            self.rows.push(vec![]);
        }
    }

    fn put(&mut self, c: char) {
        let row = &mut self.rows[self.at.0];
        row.resize(row.len().max(self.at.1 + 1), ' ');
        row[self.at.1] = c;
        self.at.1 += 1;
    }

    fn sequence<'a>(&mut self, rest: &'a str) -> &'a str {
        let rest = rest.strip_prefix('[').unwrap();
        let end = rest.find(|c: char| c.is_ascii_alphabetic()).unwrap();
        let (parameter, last, rest) = (&rest[..end], &rest[end..=end], &rest[end + 1..]);
        match (parameter, last) {
            ("", "K") => self.rows[self.at.0].truncate(self.at.1),
            ("", "J") => {
                assert_ne!(self.at, (0, 0), "this screen would go to the history");
                self.rows[self.at.0].truncate(self.at.1);
                self.rows[self.at.0 + 1..].fill(vec![]);
            }
            (lines, "A") => self.at.0 -= lines.parse::<usize>().unwrap(),
            ("?2026", "h" | "l") => {}
            other => panic!("unknown sequence {other:?}"),
        }
        rest
    }

    fn text(&self) -> String {
        let rows = self
            .rows
            .iter()
            .map(|row| row.iter().collect::<String>().trim_end().to_owned());
        rows.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

/// The output of a screen in a test.
#[derive(Clone, Default)]
struct Tape(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);

impl std::io::Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Tape {
    fn play(&self, terminal: &mut Terminal) {
        let bytes = std::mem::take(&mut *self.0.borrow_mut());
        terminal.write(&String::from_utf8(bytes).unwrap());
    }
}

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn drawings_replace_each_other_and_lines_remain() {
    let (tape, mut terminal) = (Tape::default(), Terminal::new(7));
    terminal.write("$ ringmain bench\n");
    let mut screen = Screen::new(tape.clone());
    screen.draw_lines(&lines(&["first, long", "second", "third"]));
    screen.draw_lines(&lines(&["one", "two"]));
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "$ ringmain bench\n\none\ntwo");
    screen.print_line("round 1 is over");
    screen.draw_lines(&lines(&["three"]));
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "$ ringmain bench\nround 1 is over\n\nthree");
    for number in 0..10 {
        screen.print_line(&format!("line {number}"));
        screen.draw_lines(&lines(&["a", "b", "c"]));
    }
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "line 8\nline 9\n\na\nb\nc");
    drop(screen);
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "line 8\nline 9");
    terminal.write("the summary\n");
    assert_eq!(terminal.text(), "line 8\nline 9\nthe summary");
}

#[test]
fn other_output_remains_above_the_drawing() {
    let (tape, mut terminal) = (Tape::default(), Terminal::new(8));
    let mut screen = Screen::new(tape.clone());
    screen.draw_lines(&lines(&["one", "two"]));
    tape.play(&mut terminal);
    terminal.write("warn: something\n");
    screen.draw_lines(&lines(&["three", "four"]));
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "warn: something\n\nthree\nfour");
    terminal.write("^C");
    screen.print_line("interrupted");
    drop(screen);
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "warn: something\ninterrupted");
}

#[test]
fn a_panic_erases_the_drawing() {
    let (tape, mut terminal) = (Tape::default(), Terminal::new(8));
    let inner = tape.clone();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        let mut screen = Screen::new(inner);
        screen.draw_lines(&lines(&["one", "two"]));
        panic!("as wanted");
    }));
    assert!(outcome.is_err());
    tape.play(&mut terminal);
    assert_eq!(terminal.text(), "");
}
