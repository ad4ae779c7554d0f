//! Real processes: shells that burn CPU in children, end early, or do not want to end.
#![allow(clippy::disallowed_methods, reason = "real processes have real time")]

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use ringmain_testkit::wait;

use super::*;

/// How long anything may take before a test fails. Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A directory of a test's own with a socket and two queues.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ringmain-load-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let queues = ["go", "done"].map(|name| path.join(name));
        let made = std::process::Command::new("mkfifo")
            .args(&queues)
            .status()
            .unwrap();
        assert!(made.success());
        Place(path)
    }

    fn addr(&self) -> Addr {
        Addr::Unix(self.0.join("socket"))
    }

    /// Starts a command in this directory; the socket is there from the first look on, whoever holds it.
    fn start(&self, command: &str, cpus: &[usize]) -> (Server, UnixListener) {
        let command = format!("cd {}; {command}", self.0.display());
        let start = Start {
            command: &command,
            cpus,
            addrs: &[self.addr()],
            patience: PATIENCE,
        };
        let mut listener = None;
        let (server, addr) = Server::start(&start, &mut |time| {
            listener.get_or_insert_with(|| UnixListener::bind(self.0.join("socket")).unwrap());
            wait::pause(time);
            true
        })
        .unwrap();
        assert_eq!(addr, self.addr());
        (server, listener.unwrap())
    }

    /// Lets the command go on, and waits until it says that it is done.
    fn go(&self) -> String {
        fs::write(self.0.join("go"), "go\n").unwrap();
        fs::read_to_string(self.0.join("done")).unwrap()
    }

    fn fail(&self, command: &str, patience: Duration) -> String {
        let start = Start {
            command,
            cpus: &[],
            addrs: &[self.addr()],
            patience,
        };
        let mut pause = |time| {
            wait::pause(time);
            true
        };
        Server::start(&start, &mut pause).unwrap_err().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What cannot be removed is left to the system's cleaning of temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A function of the shell that takes a good part of a second of CPU time, most of which is its own.
const BURN: &str = "burn() { i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; };";

/// The seconds of `times`: two lines of user and system time, of the shell and of its children.
fn seconds(times: &str) -> f64 {
    let parts = times.split_whitespace().map(|time| {
        let (minutes, seconds) = time.trim_end_matches('s').split_once('m').unwrap();
        minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
    });
    parts.sum()
}

#[test]
fn the_time_of_children_that_end_meanwhile_counts() {
    let place = Place::new();
    let command = format!(
        "{BURN} (burn); read x <go; echo >done; read x <go; times >before; (burn; (burn)) & (burn); wait; times >after; cat after >done; \
         while :; do read x <go; done"
    );
    let (mut server, _listener) = place.start(&command, &[]);
    // What burns before is over.
    place.go();
    server.begin().unwrap();
    let after = seconds(&place.go());
    server.tick().unwrap();
    let used = server.end().unwrap();
    let before = seconds(&fs::read_to_string(place.0.join("before")).unwrap());
    let (found, expect) = (used.cpu.as_secs_f64(), after - before);
    println!("found {found}, the shell says {expect}");
    assert!(expect > 0.05, "the children did nothing to speak of: {expect}");
    // Ticks are 10 ms, of four figures twice.
    assert!((found - expect).abs() < 0.1, "{found} is not {expect}");
    assert!(used.peak_memory_bytes > 50_000, "{used:?}");
    assert_eq!(used.processes, 1);
}

/// Ended also when a test fails: it would keep the test's output open.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_that_runs_already_is_watched_and_left_alone() {
    // It has memory of its own once it has read its first line.
    let mut child = Ended(
        std::process::Command::new("sh")
            .args(["-c", "echo here; read never"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let child = &mut child.0;
    let mut line = String::new();
    let mut told = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut told, &mut line).unwrap();
    assert_eq!(line, "here\n");
    let mut server = Server::watch(child.id()).unwrap();
    server.begin().unwrap();
    let used = server.end().unwrap();
    assert_eq!(used.processes, 1);
    assert!(used.peak_memory_bytes > 50_000, "{used:?}");
    drop(server);
    assert!(child.try_wait().unwrap().is_none(), "it was ended");

    let mut server = Server::watch(child.id()).unwrap();
    server.begin().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = server.end().unwrap_err().to_string();
    let expect = format!("the server (process {}) exited while it was measured", child.id());
    assert_eq!(error, expect);
    let error = Server::watch(child.id()).unwrap_err().to_string();
    assert!(error.contains(&format!("no process {}", child.id())), "{error}");
}

#[test]
fn one_that_ends_early_is_an_error_with_its_last_words() {
    let place = Place::new();
    let error = place.fail("echo one; echo 'no such file: x.conf' >&2; exit 3", PATIENCE);
    assert_eq!(
        error,
        "the server `echo one; echo 'no such file: x.conf' >&2; exit 3` exited before it accepted a connection (exit \
         code 3); its last output: one | no such file: x.conf"
    );
    let error = place.fail("kill -9 $$", PATIENCE);
    assert!(error.ends_with("(signal 9); it printed nothing"), "{error}");
}

#[test]
fn one_that_never_listens_is_an_error() {
    let place = Place::new();
    let error = place.fail("echo hello; exec sleep 1000", Duration::from_millis(300));
    assert!(
        error.contains("accepts no connections after 0.3s: cannot connect to unix:"),
        "{error}"
    );
    assert!(
        error.contains("there is no such socket; its last output: hello"),
        "{error}"
    );
}

#[test]
fn an_address_that_is_taken_is_not_measured_for_another() {
    let place = Place::new();
    let _listener = UnixListener::bind(place.0.join("socket")).unwrap();
    let error = place.fail("exec sleep 1000", PATIENCE);
    assert!(
        error.contains("accepts connections before the server was started"),
        "{error}"
    );
}

#[test]
fn waiting_can_be_interrupted() {
    let place = Place::new();
    let start = Start {
        command: "exec sleep 1000",
        cpus: &[],
        addrs: &[place.addr()],
        patience: PATIENCE,
    };
    let error = Server::start(&start, &mut |_| false).unwrap_err();
    assert!(matches!(error, ServerError::Interrupted), "{error}");
}

/// Waits until a process is not there, or has ended and nobody has taken notice.
fn check_ended(pid: u32) {
    wait::until("the end of a process", || {
        process::stat(pid).is_none_or(|stat| stat.ended)
    });
}

#[test]
fn all_of_it_is_ended_what_left_the_group_too() {
    let place = Place::new();
    let (mut server, _listener) = place.start(
        "setsid sleep 1000 & echo $! >left; sleep 1000 & echo $! >member; read x <go; echo >done; wait",
        &[],
    );
    place.go();
    server.tick().unwrap();
    let mut pids = vec![server.pid()];
    for name in ["left", "member"] {
        let pid = fs::read_to_string(place.0.join(name)).unwrap();
        pids.push(pid.trim().parse().unwrap());
    }
    drop(server);
    for pid in pids {
        check_ended(pid);
    }
}

#[test]
fn one_that_ignores_sigterm_is_killed() {
    let place = Place::new();
    let (server, _listener) = place.start(
        "trap '' TERM; read x <go; echo >done; while :; do sleep 1000; done",
        &[],
    );
    place.go();
    let pid = server.pid();
    // It is given its time, however busy the machine is.
    wait::at_least(limits::SERVER_END, || drop(server));
    check_ended(pid);
}

#[test]
fn it_runs_on_its_cpus() {
    let place = Place::new();
    let cpu = ringmain_sys::cpu::allowed()[0];
    let (server, _listener) = place.start("read x <go; echo >done; read x <go", &[cpu]);
    place.go();
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    assert!(
        status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")),
        "{status}"
    );
}

#[test]
fn one_that_ends_while_it_is_measured_is_an_error() {
    let place = Place::new();
    let (mut server, _listener) = place.start("read x <go; echo >done; echo out of memory; exit 1", &[]);
    server.begin().unwrap();
    place.go();
    let error = wait::find("its end is noticed", || server.tick().err()).to_string();
    assert!(
        error.contains("exited while it was measured (exit code 1); its last output: out of memory"),
        "{error}"
    );
}
