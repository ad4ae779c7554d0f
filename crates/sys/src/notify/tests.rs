//! Addresses of sockets, and whose pings are expected.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use ringmain_testkit::folder::Folder;

use super::{NotifySocket, watchdog_from};

fn received(socket: &UnixDatagram) -> String {
    let mut buffer = [0; 256];
    let count = socket.recv(&mut buffer).expect("a message");
    String::from_utf8_lossy(&buffer[..count]).into_owned()
}

#[test]
fn messages_arrive_at_paths_and_abstract_sockets() {
    let folder = Folder::new();
    let path = folder.join("notify");
    let by_path = UnixDatagram::bind(&path).expect("a socket");
    let socket = NotifySocket::connect(path.as_os_str()).expect("a connection");
    socket.send("READY=1\nSTATUS=a").expect("sent");
    assert_eq!(received(&by_path), "READY=1\nSTATUS=a");

    let name = format!("ringmain-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("an address");
    let by_name = UnixDatagram::bind_addr(&address).expect("a socket");
    let socket = NotifySocket::connect(OsStr::new(&format!("@{name}"))).expect("a connection");
    socket.send("STOPPING=1").expect("sent");
    assert_eq!(received(&by_name), "STOPPING=1");
}

#[test]
fn other_addresses_are_errors() {
    for address in ["vsock:2:1234", "@", "relative"] {
        let error = NotifySocket::connect(OsStr::new(address)).expect_err(address);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    let error = NotifySocket::connect(OsStr::new("/nowhere/notify")).expect_err("no socket");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn the_watchdog_is_that_of_this_process() {
    let check = |microseconds: Option<&str>, pid: Option<&str>, expected: Option<Duration>| {
        let found = watchdog_from(microseconds.map(OsString::from), pid.map(OsString::from), 42);
        assert_eq!(found, expected, "{microseconds:?} {pid:?}");
    };
    let two = Some(Duration::from_secs(2));
    check(Some("2000000"), Some("42"), two);
    check(Some("2000000"), None, two);
    check(Some("2000000"), Some("43"), None);
    check(Some("2000000"), Some("x"), None);
    check(Some("0"), None, None);
    check(Some("soon"), None, None);
    check(None, Some("42"), None);
}
