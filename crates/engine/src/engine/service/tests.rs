//! The order of messages to a service manager, and the instants of pings.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use ringmain_sys::notify::NotifySocket;
use ringmain_testkit::folder::Folder;

use super::{PingSchedule, Service};

/// A service manager's socket, and the service that is connected to it.
struct Rig {
    _folder: Folder,
    socket: UnixDatagram,
    service: &'static Service,
}

impl Rig {
    fn new(watchdog: Option<Duration>) -> Rig {
        let folder = Folder::new();
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_nonblocking(true).expect("a socket");
        let connected = NotifySocket::connect(path.as_os_str()).expect("a connection");
        Rig {
            _folder: folder,
            socket,
            service: Box::leak(Box::new(Service::new(connected, watchdog))),
        }
    }

    /// Returns the messages so far, without their times.
    fn messages(&self) -> Vec<String> {
        let mut buffer = [0; 1024];
        let received = std::iter::from_fn(|| {
            self.socket
                .recv(&mut buffer)
                .ok()
                .map(|count| buffer[..count].to_vec())
        });
        received
            .map(|bytes| without_time(&String::from_utf8_lossy(&bytes)))
            .collect()
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        assert_eq!(self.messages(), expected);
    }
}

fn without_time(message: &str) -> String {
    let lines = message
        .split('\n')
        .map(|line| match line.strip_prefix("MONOTONIC_USEC=") {
            Some(time) => {
                time.parse::<u64>().expect("microseconds");
                "MONOTONIC_USEC=T"
            }
            None => line,
        });
    lines.collect::<Vec<_>>().join(" ")
}

const LISTENING: &str = "READY=1 STATUS=Listening on 127.0.0.1:80, unix:/run/s";
const RELOADING: &str = "RELOADING=1 MONOTONIC_USEC=T";

fn serve(rig: &Rig) {
    rig.service.ready(&[
        "127.0.0.1:80".parse().expect("an address"),
        "unix:/run/s".parse().expect("an address"),
    ]);
}

#[test]
fn a_life_in_order() {
    let rig = Rig::new(None);
    serve(&rig);
    serve(&rig);
    rig.service.begin_reload();
    rig.service.lock().status = Some("two\nlines".into());
    rig.service.finish_reload();
    rig.service.stopping(3, None);
    rig.service.stopping(2, None);
    rig.service.ping();
    rig.check(&[
        LISTENING,
        RELOADING,
        "READY=1 STATUS=two lines",
        "STOPPING=1 STATUS=Shutting down, connections still open: 3",
    ]);
}

#[test]
fn a_delayed_shutdown_is_announced_at_once_and_pings_continue() {
    let rig = Rig::new(Some(Duration::from_secs(1)));
    serve(&rig);
    rig.service.stopping(3, Some(Duration::from_millis(9_001)));
    rig.service.stopping(3, Some(Duration::from_millis(5_000)));
    rig.service.ping();
    rig.service.begin_reload();
    rig.service.finish_reload();
    rig.service.stopping(2, None);
    rig.service.stopping(1, None);
    rig.service.ping();
    rig.check(&[
        &format!("{LISTENING} WATCHDOG=1"),
        "STOPPING=1 STATUS=Shutting down in 10 s, still serving; connections open: 3",
        "WATCHDOG=1",
        "STATUS=Shutting down, connections still open: 2",
    ]);
}

#[test]
fn readiness_follows_the_last_of_several_reloads() {
    let rig = Rig::new(None);
    serve(&rig);
    rig.service.begin_reload();
    rig.service.begin_reload();
    rig.service.finish_reload();
    rig.check(&[LISTENING, RELOADING, RELOADING]);
    rig.service.finish_reload();
    rig.check(&["READY=1"]);
}

#[test]
fn a_reload_that_began_before_the_start_was_complete_is_reported() {
    let rig = Rig::new(None);
    rig.service.begin_reload();
    rig.check(&[]);
    serve(&rig);
    rig.check(&["RELOADING=1 MONOTONIC_USEC=T STATUS=Listening on 127.0.0.1:80, unix:/run/s"]);
    rig.service.finish_reload();
    rig.check(&["READY=1"]);
}

#[test]
fn a_process_that_was_replaced_reports_nothing_more() {
    let rig = Rig::new(Some(Duration::from_secs(1)));
    serve(&rig);
    rig.service.ping();
    rig.service.begin_reload();
    rig.service.replaced_by(77);
    rig.service.finish_reload();
    rig.service.ping();
    rig.service.stopping(0, None);
    rig.check(&[
        &format!("{LISTENING} WATCHDOG=1"),
        "WATCHDOG=1",
        RELOADING,
        "MAINPID=77 STATUS=Process 77 has taken over the listeners WATCHDOG=1",
    ]);
}

#[test]
fn pings_stop_while_a_worker_does_not_turn() {
    let mut schedule = PingSchedule::new(2, 2);
    let mut check = |turns: [u64; 2], exempt: bool, expected: bool| {
        assert_eq!(schedule.is_due(turns.into_iter(), exempt), expected, "{turns:?}");
    };
    check([1, 1], false, false);
    check([2, 2], false, true);
    check([3, 3], false, false);
    // The second one is held.
    check([4, 3], false, false);
    check([5, 3], false, false);
    // It is free again: the ping that was due is sent.
    check([6, 4], false, true);
    check([6, 4], true, false);
    check([6, 4], true, true);
}
