//! Listeners on the real kernel: families, Unix files, inheritance, and what errors say.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Barrier;

use crate::common::{self, Directory};
use ringmain_sys::addr::Addr;
use ringmain_sys::listen::{ListenOptions, attach_cpu_steering, listen, owner, unlink_if_ours};
use ringmain_sys::{cpu, socket};
use ringmain_testkit::port::Reserved;
use ringmain_testkit::{program, wait};
use rustix::net::sockopt;

fn open(addr: &str) -> OwnedFd {
    listen(&addr.parse().unwrap(), &ListenOptions::default()).unwrap()
}

fn open_unix(path: &Path, options: &ListenOptions) -> Result<OwnedFd, String> {
    listen(&Addr::Unix(path.to_owned()), options).map_err(|e| e.to_string())
}

fn port(listener: &OwnedFd) -> u16 {
    match socket::local_addr(listener).unwrap() {
        Some(Addr::Inet(inet)) => inet.port(),
        other => panic!("{other:?}"),
    }
}

fn reaches(ip: &str, listener: &OwnedFd) -> bool {
    TcpStream::connect(SocketAddr::new(ip.parse().unwrap(), port(listener))).is_ok()
}

#[test]
fn each_family_and_both() {
    let four = open("127.0.0.1:0");
    assert!(reaches("127.0.0.1", &four));
    let six = open("[::1]:0");
    assert!(reaches("::1", &six));
    let both = open(":0");
    assert!(reaches("127.0.0.1", &both) && reaches("::1", &both));
    let only = ListenOptions {
        v6_only: true,
        ..ListenOptions::default()
    };
    // Nothing listens at its port by IPv4.
    let mut reserved = Vec::new();
    let only = wait::find("a port that is free in both families", || {
        let held = Reserved::new();
        let only = listen(&format!(":{}", held.port()).parse().unwrap(), &only).ok();
        reserved.push(held);
        only
    });
    assert!(reaches("::1", &only) && !reaches("127.0.0.1", &only));
}

#[test]
fn connections_inherit_options() {
    let options = ListenOptions {
        receive_buffer: Some(40_000),
        send_buffer: Some(50_000),
        notsent_lowat: Some(16_384),
        ..ListenOptions::default()
    };
    let listener = listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let _client = TcpStream::connect(("127.0.0.1", port(&listener))).unwrap();
    let accepted = socket::accept(&listener).unwrap();
    assert!(sockopt::tcp_nodelay(&accepted).unwrap());
    assert_eq!(sockopt::socket_recv_buffer_size(&accepted).unwrap(), 80_000);
    assert_eq!(sockopt::socket_send_buffer_size(&accepted).unwrap(), 100_000);
}

#[test]
fn a_port_in_use_names_the_command_that_shows_whose() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = Addr::Inet(holder.local_addr().unwrap());
    let error = listen(&addr, &ListenOptions::default()).unwrap_err();
    let port = holder.local_addr().unwrap().port();
    assert_eq!(
        error.to_string(),
        format!(
            "cannot listen on 127.0.0.1:{port}: port {port} is in use by another socket; to see whose, \
             run: ss -ltnp 'sport = :{port}'"
        )
    );
    assert_eq!(error.source.kind(), std::io::ErrorKind::AddrInUse);
}

#[test]
fn an_address_of_another_host_says_so() {
    // TEST-NET-3, which is never assigned.
    let error = listen(&"203.0.113.1:0".parse().unwrap(), &ListenOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no interface of this host has the address 203.0.113.1"),
        "{error}"
    );
}

#[test]
fn a_low_port_without_the_privilege_names_the_remedy() {
    if common::is_child() {
        common::become_nobody();
        let error = listen(&"127.0.0.1:1".parse().unwrap(), &ListenOptions::default()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("CAP_NET_BIND_SERVICE"), "{text}");
        assert!(text.contains("net.ipv4.ip_unprivileged_port_start"), "{text}");
        assert!(!text.contains('\n'), "{text}");
    } else if common::is_root() {
        common::run_in_child("listen::a_low_port_without_the_privilege_names_the_remedy");
    }
}

#[test]
fn listeners_share_a_port_only_when_all_ask_for_it() {
    let options = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = socket::local_addr(&first).unwrap().unwrap();
    let _second = listen(&addr, &options).unwrap();
    assert!(listen(&addr, &ListenOptions::default()).is_err());
}

#[test]
fn steering_sends_a_connection_to_the_listener_of_its_cpu() {
    let options = ListenOptions {
        reuse_port: true,
        ..ListenOptions::default()
    };
    let first = listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
    let addr = socket::local_addr(&first).unwrap().unwrap();
    let group = [first, listen(&addr, &options).unwrap()];
    attach_cpu_steering(&group[0], 2).unwrap();
    assert!(attach_cpu_steering(&group[0], 0).is_err());
    let to = ("127.0.0.1", port(&group[0]));
    // On loopback the CPU that receives is the client's.
    for cpu in cpu::allowed() {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cpu::pin(cpu).unwrap();
                for _ in 0..20 {
                    let _client = TcpStream::connect(to).unwrap();
                    socket::accept(&group[cpu % 2]).unwrap();
                }
            });
        });
    }
}

#[test]
fn abstract_names_are_exclusive() {
    let name = format!("@ringmain-sys-abstract-{}", std::process::id());
    let _first = open(&name);
    let error = listen(&name.parse().unwrap(), &ListenOptions::default()).unwrap_err();
    assert!(error.to_string().contains("in use by another process"), "{error}");
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let _nothing_starts = program::no_process_starts();
    let directory = Directory::new();
    let path = directory.join("s");
    drop(UnixListener::bind(&path).unwrap());
    let _listener = open_unix(&path, &ListenOptions::default()).unwrap();
    UnixStream::connect(&path).unwrap();
    assert!(!directory.join("s.lock").exists());
}

#[test]
fn a_live_socket_file_is_in_use() {
    let directory = Directory::new();
    let path = directory.join("s");
    let _holder = UnixListener::bind(&path).unwrap();
    let error = open_unix(&path, &ListenOptions::default()).unwrap_err();
    assert!(error.contains("in use by another process"), "{error}");
    UnixStream::connect(&path).unwrap();
    assert!(!directory.join("s.lock").exists());
}

#[test]
fn a_socket_with_a_full_backlog_is_in_use() {
    let directory = Directory::new();
    let path = directory.join("s");
    let shallow = ListenOptions {
        backlog: 0,
        ..ListenOptions::default()
    };
    let _holder = open_unix(&path, &shallow).unwrap();
    let addr = Addr::Unix(path.clone());
    let mut waiting = Vec::new();
    loop {
        let client = socket::stream(&addr, None).unwrap();
        match socket::connect(&client, &addr) {
            Ok(()) => waiting.push(client),
            Err(error) => break assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    let error = open_unix(&path, &ListenOptions::default()).unwrap_err();
    assert!(error.contains("in use by another process"), "{error}");
}

#[test]
fn a_file_that_is_no_socket_stays() {
    let directory = Directory::new();
    let path = directory.join("precious");
    fs::write(&path, "data").unwrap();
    let error = open_unix(&path, &ListenOptions::default()).unwrap_err();
    assert!(error.contains("a file that is not a socket is there"), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");

    let link = directory.join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let error = open_unix(&link, &ListenOptions::default()).unwrap_err();
    assert!(error.contains("not a socket"), "{error}");
    assert!(link.is_symlink());
}

#[test]
fn a_missing_directory_is_named() {
    let directory = Directory::new();
    let missing = directory.join("none");
    let error = open_unix(&missing.join("s"), &ListenOptions::default()).unwrap_err();
    assert!(
        error.contains(&format!("the directory {} does not exist", missing.display())),
        "{error}"
    );
    fs::write(&missing, "").unwrap();
    let error = open_unix(&missing.join("s"), &ListenOptions::default()).unwrap_err();
    assert!(error.contains("is not a directory"), "{error}");
}

#[test]
fn a_directory_without_permission_is_named() {
    let test = "listen::a_directory_without_permission_is_named";
    if common::is_child() {
        common::become_nobody();
        let path = std::env::var_os("RINGMAIN_TEST_PATH").unwrap();
        let error = open_unix(Path::new(&path), &ListenOptions::default()).unwrap_err();
        assert!(error.contains("no permission to create files in"), "{error}");
    } else if common::is_root() {
        let directory = Directory::new();
        let mut child = common::in_child(test);
        let output = program::output(child.env("RINGMAIN_TEST_PATH", directory.join("s"))).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn another_users_socket_is_not_judged() {
    let test = "listen::another_users_socket_is_not_judged";
    if common::is_child() {
        common::become_nobody();
        let path = std::env::var_os("RINGMAIN_TEST_PATH").unwrap();
        let error = open_unix(Path::new(&path), &ListenOptions::default()).unwrap_err();
        assert!(error.contains("a socket of user 0 is there"), "{error}");
    } else if common::is_root() {
        let directory = Directory::new();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let path = directory.join("s");
        let options = ListenOptions {
            unix_mode: Some(0o600),
            ..ListenOptions::default()
        };
        let _holder = open_unix(&path, &options).unwrap();
        let mut child = common::in_child(test);
        let output = program::output(child.env("RINGMAIN_TEST_PATH", &path)).unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn mode_and_owner_are_set() {
    let directory = Directory::new();
    let path = directory.join("s");
    let mut options = ListenOptions {
        unix_mode: Some(0o666),
        ..ListenOptions::default()
    };
    let _listener = open_unix(&path, &options).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o666);
    if !common::is_root() {
        return;
    }
    let path = directory.join("t");
    options.unix_mode = Some(0o620);
    options.unix_owner = Some(owner("nobody:nogroup").unwrap());
    let _listener = open_unix(&path, &options).unwrap();
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!(
        (metadata.mode() & 0o7777, metadata.uid(), metadata.gid()),
        (0o620, 65534, 65534)
    );
}

#[test]
fn an_owner_that_may_not_be_given_leaves_no_file() {
    let test = "listen::an_owner_that_may_not_be_given_leaves_no_file";
    if common::is_child() {
        common::become_nobody();
        let path = std::env::var_os("RINGMAIN_TEST_PATH").unwrap();
        let options = ListenOptions {
            unix_owner: Some((Some(0), None)),
            ..ListenOptions::default()
        };
        let error = open_unix(Path::new(&path), &options).unwrap_err();
        assert!(
            error.contains("cannot give the socket to user 0 and group -"),
            "{error}"
        );
    } else if common::is_root() {
        let directory = Directory::new();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let path = directory.join("s");
        let mut child = common::in_child(test);
        let output = program::output(child.env("RINGMAIN_TEST_PATH", &path)).unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!path.exists());
    }
}

#[test]
fn of_many_starters_one_wins() {
    let _nothing_starts = program::no_process_starts();
    let directory = Directory::new();
    let path = directory.join("s");
    for _ in 0..50 {
        drop(UnixListener::bind(&path).unwrap());
        let barrier = Barrier::new(4);
        let start = || {
            barrier.wait();
            open_unix(&path, &ListenOptions::default())
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let winners: Vec<_> = results.iter().flatten().collect();
        assert_eq!(winners.len(), 1, "{results:?}");
        let _client = UnixStream::connect(&path).unwrap();
        socket::accept(winners[0]).unwrap();
        assert!(unlink_if_ours(&path, winners[0]).unwrap());
    }
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn only_our_own_file_is_removed() {
    let directory = Directory::new();
    let path = directory.join("s");
    let ours = open_unix(&path, &ListenOptions::default()).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(!unlink_if_ours(&path, &ours).unwrap());
    let theirs = open_unix(&path, &ListenOptions::default()).unwrap();
    assert!(!unlink_if_ours(&path, &ours).unwrap());
    UnixStream::connect(&path).unwrap();
    assert!(!unlink_if_ours(&path, open("127.0.0.1:0")).is_ok_and(|removed| removed));
    assert!(unlink_if_ours(&path, &theirs).unwrap());
    assert!(!path.exists());
}

#[test]
fn owners_by_name_and_number() {
    assert_eq!(owner("root"), Ok((Some(0), None)));
    assert_eq!(owner("root:root"), Ok((Some(0), Some(0))));
    assert_eq!(owner(":7"), Ok((None, Some(7))));
    assert_eq!(owner("12:34"), Ok((Some(12), Some(34))));
    for spec in ["", ":", "nosuchuser", "root:nosuchgroup", "root:", "4294967295"] {
        assert!(owner(spec).is_err(), "{spec}");
    }
    let text = owner("nosuchuser").unwrap_err().to_string();
    assert_eq!(
        text,
        "expected a user of /etc/passwd or a user number; found `nosuchuser`"
    );
}
