//! How an engine ends: what is queued and open is served, what does not end is ended, nothing hangs.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::scripted::{self, App, Letter, Setting, Told, client, echo, pattern, read_all, serve, serve_at};
use ringmain_engine::{Config, Engine, ListenOptions, Reason};
use ringmain_sys::inherit;
use ringmain_testkit::port::Reserved;
use ringmain_testkit::wait::until;

on_every_backend!(
    connections_in_the_listen_queue_are_answered,
    a_request_under_way_is_finished,
    what_does_not_end_in_the_grace_time_is_ended,
    stop_ends_all_at_once,
    a_reply_that_leaves_slowly_is_sent_to_its_end,
    blocking_work_under_way_does_not_hold_the_workers,
    sleeping_tasks_and_datagram_sockets_end_with_the_worker,
    streams_that_the_handler_holds_do_not_keep_it,
    a_task_spawned_at_the_end_is_dropped,
    a_task_hears_of_the_shutdown,
    dropping_it_ends_everything,
    dropping_it_closes_its_listener,
    it_restarts_on_the_same_port_at_once,
    a_successor_takes_over_without_a_refused_connection,
);

const HOUR: Duration = Duration::from_secs(3600);

/// Answers what is under way and closes then.
fn finishes(setting: Setting) -> App {
    let mut app = setting.echo();
    let draining = Rc::new(Cell::new(false));
    let seen = Rc::clone(&draining);
    app.drain = Box::new(move |_| draining.set(true));
    app.data = Box::new(move |conn, bytes| {
        if !bytes.ends_with(b"\n") {
            return 0;
        }
        let _ = conn.write(bytes);
        if seen.get() {
            conn.close();
        }
        bytes.len()
    });
    app
}

fn connections_in_the_listen_queue_are_answered(config: Config) {
    let server = serve(config, Setting::echo);
    let (release, released) = channel::<()>();
    let mut idle = server.client();
    echo(&mut idle, b"open");
    let block = Letter::Run(Box::new(move |_| {
        let _ = released.recv();
    }));
    assert!(server.running.inbox(0).post(block).is_ok());
    let mut clients: Vec<_> = (0..50).map(|_| server.client()).collect();
    for client in &mut clients {
        client.write_all(b"in time").unwrap();
    }
    server.running.shut_down();
    drop(release);
    for client in &mut clients {
        assert_eq!(read_all(client), b"in time");
    }
    assert_eq!(read_all(&mut idle), b"");
    let summary = server.running.join().unwrap();
    assert_eq!(summary.report.workers[0].accepted, 51);
    assert_eq!(summary.report.workers[0].closed, 51);
}

fn a_request_under_way_is_finished(config: Config) {
    let server = serve(config, finishes);
    let mut clients: Vec<_> = (0..10).map(|_| server.client()).collect();
    for client in &mut clients {
        client.write_all(b"a request ").unwrap();
        server.expect(&Told::Data(10));
    }
    server.running.shut_down();
    server.expect(&Told::Drain);
    for client in &mut clients {
        client.write_all(b"in two parts\n").unwrap();
        assert_eq!(read_all(client), b"a request in two parts\n");
    }
    server.running.join().unwrap();
}

fn what_does_not_end_in_the_grace_time_is_ended(config: Config) {
    let config = Config {
        grace: Duration::from_millis(1),
        ..config
    };
    let server = serve(config, finishes);
    let mut client = server.client();
    echo(&mut client, b"open\n");
    server.running.shut_down();
    assert_eq!(server.closed(), Reason::Shutdown);
    assert!(scripted::is_reset(&mut client), "a reset");
    server.running.join().unwrap();
}

fn stop_ends_all_at_once(config: Config) {
    let config = Config {
        grace: HOUR,
        ..config
    };
    let server = serve(config, finishes);
    let mut client = server.client();
    echo(&mut client, b"open\n");
    server.running.shut_down();
    server.expect(&Told::Drain);
    server.running.stop();
    assert_eq!(server.closed(), Reason::Shutdown);
    server.running.join().unwrap();
}

fn a_reply_that_leaves_slowly_is_sent_to_its_end(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            conn.write(&pattern(1_000_000)).unwrap();
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    client.read_exact(&mut [0; 1]).unwrap();
    server.running.shut_down();
    server.expect(&Told::Drain);
    assert!(read_all(&mut client) == pattern(1_000_000)[1..]);
    server.running.join().unwrap();
}

fn blocking_work_under_way_does_not_hold_the_workers(config: Config) {
    let server = serve(config, Setting::echo);
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    server.on_worker(0, move |cx| {
        let inner = cx.clone();
        let work = move || {
            begun.send(()).unwrap();
            let _ = released.recv();
        };
        cx.spawn(async move { inner.blocking(work).await.unwrap() })
            .unwrap();
    });
    begins.recv_timeout(scripted::PATIENCE).unwrap();
    server.running.shut_down();
    until("the end of the workers", || server.running.is_over());
    drop(release);
    server.running.join().unwrap();
}

fn sleeping_tasks_and_datagram_sockets_end_with_the_worker(config: Config) {
    let server = serve(config, Setting::echo);
    let (gone, went) = channel::<()>();
    server.on_worker(0, move |cx| {
        for _ in 0..100 {
            let (inner, gone) = (cx.clone(), gone.clone());
            let udp = cx.bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
            cx.spawn(async move {
                let _held = gone;
                inner.sleep(HOUR).await;
                drop(udp);
            })
            .unwrap();
            let udp = cx.bind_udp("127.0.0.1:0".parse().unwrap()).unwrap();
            cx.spawn(async move { drop(udp.recv_from().await) }).unwrap();
        }
    });
    server.running.shut_down();
    server.running.join().unwrap();
    assert!(
        went.try_recv()
            .is_err_and(|e| e == std::sync::mpsc::TryRecvError::Disconnected)
    );
}

fn streams_that_the_handler_holds_do_not_keep_it(config: Config) {
    let server = serve(config, |setting| {
        let (cx, tell) = (setting.cx.clone(), setting.tell.clone());
        let pool = Rc::new(RefCell::new(Vec::new()));
        let mut app = setting.echo();
        app.data = Box::new(move |conn, bytes| {
            let to = conn.local_addr().unwrap().unwrap();
            let (cx, pool, tell) = (cx.clone(), Rc::clone(&pool), tell.clone());
            let connect = async move {
                let stream = cx.clone().connect_stream(&to, None).await.unwrap();
                pool.borrow_mut().push(stream);
                tell.send((0, Told::Note("held"))).unwrap();
            };
            conn.cx().spawn(connect).unwrap();
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    server.expect(&Told::Note("held"));
    server.running.stop();
    server.running.join().unwrap();
}

fn a_task_hears_of_the_shutdown(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(move |conn, bytes| {
            let (cx, id) = (conn.cx().clone(), conn.id());
            let goodbye = async move {
                assert!(!cx.is_draining());
                cx.draining().await;
                assert!(cx.is_draining());
                cx.conn(id).write(b"bye").unwrap();
                cx.conn(id).close();
            };
            conn.cx().spawn(goodbye).unwrap();
            conn.write(b"hello").unwrap();
            bytes.len()
        });
        // Only the task ends it.
        app.drain = Box::new(|_| {});
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    let mut hello = [0; 5];
    client.read_exact(&mut hello).unwrap();
    server.running.shut_down();
    assert_eq!(read_all(&mut client), b"bye");
    let summary = server.running.join().unwrap();
    assert_eq!(summary.report.workers.iter().map(|w| w.panics).sum::<u64>(), 0);
}

fn a_task_spawned_at_the_end_is_dropped(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.closed = Box::new(|cx, _| {
            let inner = cx.clone();
            cx.spawn(async move { inner.sleep(HOUR).await }).unwrap();
        });
        app
    });
    let mut client = server.client();
    echo(&mut client, b"open");
    server.running.stop();
    server.running.join().unwrap();
}

fn dropping_it_ends_everything(config: Config) {
    let config = Config {
        workers: Some(2),
        ..config
    };
    let server = serve(config, finishes);
    let mut clients: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut clients {
        echo(client, b"open\n");
    }
    drop(server);
    for mut client in clients {
        assert!(scripted::is_reset(&mut client), "a reset");
    }
}

/// By an abstract name, which no other test can take over as it might a port that has become free.
fn dropping_it_closes_its_listener(config: Config) {
    let _nothing_starts = scripted::no_process_starts();
    let name = format!(
        "@ringmain-dropped-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    );
    let addr: ringmain_engine::Addr = name.parse().unwrap();
    let server = serve_at(config, &addr, &ListenOptions::default(), Setting::echo);
    let connect = || {
        let addr = std::os::unix::net::SocketAddr::from_abstract_name(&name[1..]).unwrap();
        std::os::unix::net::UnixStream::connect_addr(&addr)
    };
    let _open = connect().unwrap();
    drop(server);
    let refused = connect().map(drop).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

fn it_restarts_on_the_same_port_at_once(config: Config) {
    let _nothing_starts = scripted::no_process_starts();
    let config = Config {
        workers: Some(2),
        ..config
    };
    let reserved = Reserved::new();
    let same = ringmain_engine::Addr::Inet(reserved.addr());
    let again = || serve_at(config.clone(), &same, &ListenOptions::default(), Setting::echo);
    let mut server = again();
    for _ in 0..5 {
        let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
        for client in &mut clients {
            echo(client, b"open");
        }
        let addr = server.addr;
        // The server closes first: its side stays in TIME_WAIT.
        server.running.shut_down();
        server.running.join().unwrap();
        server = again();
        assert_eq!(server.addr, addr);
        echo(&mut server.client(), b"again");
    }
}

/// Answers a line with its process's number in front.
fn names_itself(setting: Setting) -> App {
    let mut app = finishes(setting);
    let mut inner = app.data;
    app.data = Box::new(move |conn, bytes| {
        if bytes == b"quit\n" {
            conn.cx().shut_down();
        }
        conn.write(format!("{} ", std::process::id()).as_bytes()).unwrap();
        inner(conn, bytes)
    });
    app
}

/// Not a test: what [`a_successor_takes_over_without_a_refused_connection`] starts.
#[test]
fn successor() {
    let inherited = inherit::take().unwrap();
    if inherited.is_empty() {
        return;
    }
    let epoll = std::env::args().any(|arg| arg.contains("epoll"));
    let config = if epoll {
        scripted::epoll()
    } else {
        scripted::direct()
    };
    let mut engine = Engine::new(Config {
        workers: Some(2),
        ..config
    })
    .unwrap();
    let addr = engine.inherit(inherited).unwrap().remove(0);
    let server = scripted::start(engine, addr, names_itself);
    assert!(inherit::ready());
    server.running.join().unwrap();
}

/// One connection with one request; returns the process that answered.
fn ask(addr: SocketAddr, line: &str) -> u32 {
    let mut client = client(addr);
    client.write_all(line.as_bytes()).unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(line.as_bytes()) {
        let mut byte = [0];
        client
            .read_exact(&mut byte)
            .expect("no connection is refused or reset");
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    answer.split_once(' ').unwrap().0.parse().unwrap()
}

fn a_successor_takes_over_without_a_refused_connection(config: Config) {
    let config = Config {
        workers: Some(2),
        ..config
    };
    let epoll = config.engine == ringmain_engine::Choice::Epoll;
    let server = serve(config, names_itself);
    let addr = server.addr;
    let own = std::process::id();
    let mut open = server.client();
    open.write_all(b"before\n").unwrap();
    server.expect(&Told::Data(7));
    let asking = move || {
        let mut theirs = 0;
        while theirs < 200 {
            theirs += u32::from(ask(addr, "who\n") != own);
        }
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(asking)).collect();
    for _ in 0..100 {
        assert_eq!(ask(addr, "who\n"), own);
    }
    let mut arguments = vec![
        "--exact".into(),
        "shutdown::successor".into(),
        "--nocapture".into(),
    ];
    if epoll {
        arguments.extend(["--skip".into(), "epoll".into()]);
    }
    let program = std::env::current_exe().unwrap();
    let starting = scripted::starts_process();
    let pid = server
        .running
        .hand_over(&program, &arguments, scripted::PATIENCE)
        .unwrap();
    drop(starting);
    for thread in threads {
        thread.join().unwrap();
    }
    // A connection from before is finished by the process that has it.
    open.write_all(b"after\n").unwrap();
    let expected = format!("{own} before\n{own} after\n");
    assert_eq!(String::from_utf8(read_all(&mut open)).unwrap(), expected);
    server.running.join().unwrap();
    assert_eq!(ask(addr, "quit\n"), pid);
}
