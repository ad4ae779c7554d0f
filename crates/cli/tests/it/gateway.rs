//! `ringmain run FILE` as a process, with a file and origins that are threads of the test.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::{self, Directory, Stream, connect, engines};
use crate::proxy::{Answer, Origin, Proxy, get, until};
use rustix::process::Signal;

const EXAMPLE: &str = include_str!("../../../../examples/proxy.yaml");

#[test]
fn the_example_of_five_lines_serves() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let text = EXAMPLE
            .replace("0.0.0.0:8080", "127.0.0.1:0")
            .replace("127.0.0.1:9901", "127.0.0.1:0")
            .replace("127.0.0.1:3000", &origin.addr());
        let proxy = Proxy::start(&text, &["--engine", engine]);
        let answer = get(proxy.addr(), "shop.example", "/cart?id=1");
        assert_eq!((answer.status, &answer.body[..]), (200, "origin /cart?id=1"));
        proxy.server.terminate();
    }
}

/// A file that says which version it is at `/version`, and has everything else answered by an origin.
fn version(number: u32, origin: &Origin) -> String {
    format!(
        "
listen: 127.0.0.1:0
routes:
  all:
    rules:
      - {{match: {{path: {{exact: /version}}}}, respond: {{body: \"{number}\"}}}}
      - {{to: http://{}, upgrades: [echo]}}
",
        origin.addr()
    )
}

fn is_version(number: u32) -> impl Fn(&Answer) -> bool {
    move |answer| answer.status == 200 && answer.body == number.to_string()
}

/// A request that is under way and a tunnel that is open, held while things change.
struct Open {
    request: Box<dyn Stream>,
    tunnel: Box<dyn Stream>,
}

impl Open {
    fn new(addr: &str, origin: &Origin) -> Open {
        let mut request = connect(addr);
        let text = "GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        request.write_all(text.as_bytes()).expect("it is read");
        origin.wait_held(1);
        let mut tunnel = connect(addr);
        let text = "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
        tunnel.write_all(text.as_bytes()).expect("it is read");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            tunnel.read_exact(&mut byte).expect("a head");
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 101 "), "{}", head.escape_ascii());
        let mut open = Open { request, tunnel };
        open.check();
        open
    }

    /// The tunnel is open.
    fn check(&mut self) {
        common::exchange(&mut *self.tunnel, b"to and fro").expect("an echo");
    }

    /// Both end as they should.
    fn finish(mut self, origin: &Origin) {
        self.check();
        origin.release();
        let mut answer = String::new();
        self.request.read_to_string(&mut answer).expect("an answer");
        let answer = Answer::of(&answer);
        assert_eq!((answer.status, &answer.body[..]), (200, "origin /hold"));
    }
}

#[test]
fn each_way_to_change_the_file_is_followed_and_nothing_is_cut() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let proxy = Proxy::start(&version(1, &origin), &["--engine", engine]);
        let (addr, file) = (proxy.addr(), &proxy.file);
        assert!(is_version(1)(&get(addr, "a", "/version")));
        let mut open = Open::new(addr, &origin);

        // In place.
        fs::write(file, version(2, &origin)).expect("written");
        until(addr, "a", "/version", is_version(2));
        open.check();
        // By a rename, as editors do.
        let new = proxy.folder.join("new");
        fs::write(&new, version(3, &origin)).expect("written");
        fs::rename(&new, file).expect("renamed");
        until(addr, "a", "/version", is_version(3));
        open.check();
        // A file that cannot be parsed changes nothing.
        fs::write(file, "listen: [").expect("written");
        let mut server = proxy.server;
        server.wait_for("keeping the previous configuration");
        assert!(is_version(3)(&get(addr_of(&proxy.addrs), "a", "/version")));
        fs::write(file, version(4, &origin)).expect("written");
        until(addr_of(&proxy.addrs), "a", "/version", is_version(4));
        // Asked for.
        server.signal(Signal::HUP);
        server.wait_for("configuration reloaded: unchanged");
        open.finish(&origin);
        server.terminate();
    }
}

fn addr_of(addrs: &[String]) -> &str {
    &addrs[0]
}

#[test]
fn a_folder_of_links_is_followed_as_kubernetes_replaces_it() {
    let origin = Origin::named("origin");
    let prepare = |folder: &Directory| {
        for number in 1..=2 {
            let data = folder.join(&format!("..{number}"));
            fs::create_dir(&data).expect("a folder");
            fs::write(data.join("proxy.yaml"), version(number, &origin)).expect("written");
        }
        symlink("..1", folder.join("..data")).expect("a link");
        symlink("..data/proxy.yaml", folder.join("proxy.yaml")).expect("a link");
    };
    let proxy = Proxy::start_with("", &[], 1, prepare);
    assert!(is_version(1)(&get(proxy.addr(), "a", "/version")));
    let open = Open::new(proxy.addr(), &origin);
    symlink("..2", proxy.folder.join("..data_tmp")).expect("a link");
    fs::rename(proxy.folder.join("..data_tmp"), proxy.folder.join("..data")).expect("renamed");
    fs::remove_dir_all(proxy.folder.join("..1")).expect("removed");
    until(proxy.addr(), "a", "/version", is_version(2));
    open.finish(&origin);
    proxy.server.terminate();
}

#[test]
fn a_file_with_a_bad_route_changes_nothing_and_limits_wait_for_a_restart() {
    let origin = Origin::named("origin");
    let mut proxy = Proxy::start(&version(1, &origin), &[]);
    let wrong = format!(
        "{}  bad: {{hosts: 'not a host', rules: [{{to: nobody}}]}}\n",
        version(2, &origin)
    );
    fs::write(&proxy.file, wrong).expect("written");
    let line = proxy.server.wait_for("expected");
    assert!(line.contains("proxy.yaml:"), "{line}");
    proxy.server.wait_for("keeping the previous configuration");
    assert!(is_version(1)(&get(&proxy.addrs[0], "a", "/version")));
    let more = format!("{}limits: {{connections: 77}}\n", version(3, &origin));
    fs::write(&proxy.file, more).expect("written");
    let line = proxy.server.wait_for("require a restart");
    assert!(line.contains("limits.connections"), "{line}");
    until(&proxy.addrs[0], "a", "/version", is_version(3));
    proxy.server.terminate();
}
