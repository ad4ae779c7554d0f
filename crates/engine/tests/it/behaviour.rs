//! What a connection may rely on, on every real back-end: back-pressure, half-close, resets, deadlines, limits, panics.
//!
//! Owns one case per promise of `Handler`, `Conn` and `limits`. Knows nothing of processes and shutdown.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::scripted::{self, Setting, Told, echo, pattern, read_all, reset, serve};
use ringmain_engine::limits::{READ_MARK, READ_PER_TURN, WRITE_LIMIT, WRITE_MARK};
use ringmain_engine::{Config, Reason, WriteError};

on_every_backend!(
    a_stalled_reader_is_held_back_and_gets_every_byte,
    a_stalled_reader_that_goes_away_is_a_failure,
    a_client_that_half_closes_gets_its_answer_and_the_end,
    a_server_that_half_closes_still_receives,
    both_directions_ended_close_the_connection,
    a_reset_in_the_middle_of_a_write_ends_the_connection,
    what_a_peer_said_before_its_reset_is_heard,
    unconsumed_bytes_are_offered_again_with_the_next,
    a_handler_that_consumes_nothing_meets_the_read_limit,
    one_receipt_as_large_as_the_read_mark_meets_it_too,
    a_paused_connection_receives_nothing_until_resumed,
    bytes_left_over_before_a_pause_come_first_after_it,
    the_end_of_data_waits_for_resume,
    a_deadline_ends_the_connection,
    a_deadline_moved_forward_holds_at_its_new_time,
    a_deadline_taken_away_does_not_come,
    a_write_beyond_the_limit_is_full_and_closes,
    the_largest_write_and_close_arrives_whole,
    a_peer_that_does_not_take_the_last_bytes_is_given_up,
    a_deadline_set_after_close_leaves_the_flush_time,
    drained_is_told_when_a_writer_may_go_on,
    an_abort_is_a_reset,
    a_connection_that_fails_is_told_once,
    a_connection_given_up_while_connecting_is_told,
);

const ONE: Duration = Duration::from_millis(1);

fn a_stalled_reader_is_held_back_and_gets_every_byte(config: Config) {
    let most = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&most);
    let server = serve(config, move |setting| {
        let (tell, seen) = (setting.tell.clone(), Arc::clone(&seen));
        let mut app = setting.echo();
        app.data = Box::new(move |conn, bytes| {
            conn.write(bytes).expect("far from the limit");
            seen.fetch_max(conn.unsent(), Ordering::Relaxed);
            if conn.unsent() > WRITE_MARK {
                tell.send((0, Told::Note("blocked"))).unwrap();
            }
            bytes.len()
        });
        app
    });
    let mut stalled = server.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(&stalled, 16 * 1024).unwrap();
    let sent = pattern(8 * 1024 * 1024);
    let mut writer = stalled.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    server.expect(&Told::Note("blocked"));
    for _ in 0..50 {
        echo(&mut server.client(), b"others are served");
    }
    assert!(!writing.is_finished(), "its sender has to wait, too");
    assert!(read_all(&mut stalled) == sent);
    writing.join().unwrap();
    let most = most.load(Ordering::Relaxed);
    let bound = WRITE_MARK + READ_MARK + READ_PER_TURN;
    assert!(most <= bound, "{most} bytes were unsent");
}

fn a_stalled_reader_that_goes_away_is_a_failure(config: Config) {
    for with_reset in [false, true] {
        let server = serve(config.clone(), |setting| {
            let tell = setting.tell.clone();
            let mut app = setting.echo();
            app.data = Box::new(move |conn, bytes| {
                let _ = conn.write(bytes);
                if conn.unsent() > WRITE_MARK {
                    tell.send((0, Told::Note("blocked"))).unwrap();
                }
                bytes.len()
            });
            app
        });
        let stalled = server.client();
        rustix::net::sockopt::set_socket_recv_buffer_size(&stalled, 16 * 1024).unwrap();
        let mut writer = stalled.try_clone().unwrap();
        // Ends with an error when the connection is cut.
        let writing = std::thread::spawn(move || writer.write_all(&pattern(64 * 1024 * 1024)));
        server.expect(&Told::Note("blocked"));
        stalled.shutdown(Shutdown::Read).unwrap();
        if with_reset {
            rustix::net::sockopt::set_socket_linger(&stalled, Some(Duration::ZERO)).unwrap();
        }
        stalled.shutdown(Shutdown::Both).unwrap();
        writing.join().unwrap().expect_err("cut in the middle");
        drop(stalled);
        // Closed with bytes unread, the client's kernel resets as well.
        assert!(matches!(server.closed(), Reason::Failed(_)));
    }
}

fn a_client_that_half_closes_gets_its_answer_and_the_end(config: Config) {
    let server = serve(config, Setting::echo);
    let mut client = server.client();
    let sent = pattern(300_000);
    let mut writer = client.try_clone().unwrap();
    let copy = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&copy).unwrap();
        writer.shutdown(Shutdown::Write).unwrap();
    });
    assert!(read_all(&mut client) == sent);
    writing.join().unwrap();
    assert_eq!(server.closed(), Reason::Closed);
}

fn a_server_that_half_closes_still_receives(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            if conn.is_open() {
                conn.write(b"bye").unwrap();
                conn.shutdown();
                assert_eq!(conn.write(b"late"), Err(WriteError::Closed));
            }
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"hello").unwrap();
    assert_eq!(read_all(&mut client), b"bye");
    server.expect(&Told::Data(5));
    client.write_all(b"there is more").unwrap();
    server.expect(&Told::Data(13));
    drop(client);
    assert_eq!(server.closed(), Reason::Closed);
}

fn both_directions_ended_close_the_connection(config: Config) {
    for server_first in [true, false] {
        let server = serve(config.clone(), move |setting| {
            let mut app = setting.echo();
            app.data = Box::new(move |conn, bytes| {
                if server_first {
                    conn.shutdown();
                }
                bytes.len()
            });
            app.end = Box::new(move |conn| {
                if !server_first {
                    conn.write(b"last").unwrap();
                    conn.shutdown();
                }
            });
            app
        });
        let mut client = server.client();
        client.write_all(b"hello").unwrap();
        if server_first {
            assert_eq!(read_all(&mut client), b"");
            client.shutdown(Shutdown::Write).unwrap();
        } else {
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(read_all(&mut client), b"last");
        }
        assert_eq!(server.closed(), Reason::Closed);
    }
}

fn a_reset_in_the_middle_of_a_write_ends_the_connection(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            conn.write(&pattern(WRITE_LIMIT)).unwrap();
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    client.read_exact(&mut [0; 1000]).unwrap();
    reset(client);
    assert!(matches!(server.closed(), Reason::Failed(_)));
    echo_one(&server);
}

/// A server that refuses an upload answers and closes, with bytes unread: its kernel resets. Whoever uploads finds that out by
/// a send that fails, with the answer already there.
fn what_a_peer_said_before_its_reset_is_heard(config: Config) {
    let (arrived, at_work) = std::sync::mpsc::channel();
    let (is_reset, wait_for_reset) = std::sync::mpsc::channel::<()>();
    let wait_for_reset = Arc::new(std::sync::Mutex::new(wait_for_reset));
    let server = serve(config, move |setting| {
        let (arrived, reset) = (arrived.clone(), Arc::clone(&wait_for_reset));
        let mut app = setting.echo();
        app.data = Box::new(move |conn, bytes| {
            if bytes == b"go" {
                // Both its last words and the reset come while this worker is busy.
                arrived.send(()).unwrap();
                reset.lock().unwrap().recv().unwrap();
                conn.write(b"more").unwrap();
            } else if bytes == b"hello" {
                conn.write(b"which nobody reads").unwrap();
            }
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"hello").unwrap();
    client.peek(&mut [0]).unwrap();
    client.write_all(b"go").unwrap();
    at_work.recv_timeout(scripted::PATIENCE).unwrap();
    client.write_all(b"last words").unwrap();
    drop(client);
    is_reset.send(()).unwrap();
    server.expect(&Told::Data(b"last words".len()));
    assert!(matches!(server.closed(), Reason::Failed(_)));
}

/// The worker has gone on.
fn echo_one(server: &scripted::Server) {
    let mut client = server.client();
    client.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
}

fn unconsumed_bytes_are_offered_again_with_the_next(config: Config) {
    // A frame is its length and so many bytes.
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            let mut consumed = 0;
            while let Some((&len, rest)) = bytes[consumed..].split_first()
                && let Some(frame) = rest.get(..usize::from(len))
            {
                conn.write(frame).unwrap();
                consumed += 1 + frame.len();
            }
            consumed
        });
        app
    });
    let mut client = server.client();
    let mut frames = Vec::new();
    let mut payload = Vec::new();
    for len in 1..=255_u8 {
        frames.push(len);
        frames.extend(std::iter::repeat_n(len, usize::from(len)));
        payload.extend(std::iter::repeat_n(len, usize::from(len)));
    }
    for piece in frames.chunks(97) {
        client.write_all(piece).unwrap();
    }
    let mut back = vec![0; payload.len()];
    client.read_exact(&mut back).unwrap();
    assert!(back == payload);
}

fn consumes_nothing(setting: Setting) -> scripted::App {
    let mut app = setting.echo();
    app.data = Box::new(|_, _| 0);
    app
}

fn a_handler_that_consumes_nothing_meets_the_read_limit(config: Config) {
    let server = serve(config, consumes_nothing);
    let mut client = server.client();
    // The rest meets a closed connection.
    let _ = client.write_all(&pattern(4 * READ_MARK));
    assert_eq!(server.closed(), Reason::ReadLimit);
    assert_eq!(server.running.report().workers[0].panics, 0);
}

fn one_receipt_as_large_as_the_read_mark_meets_it_too(config: Config) {
    // Large buffers, so that all is there before the first receive.
    let addr = "127.0.0.1:0".parse().unwrap();
    let server = scripted::serve_at(config, &addr, &Default::default(), |setting| {
        let mut app = consumes_nothing(setting);
        app.open = Box::new(|conn| conn.pause());
        app
    });
    let mut client = server.client();
    let id = server.opened();
    client.write_all(&pattern(READ_MARK)).unwrap();
    server.on_worker(0, move |cx| cx.conn(id).resume());
    assert_eq!(server.closed(), Reason::ReadLimit);
}

fn a_paused_connection_receives_nothing_until_resumed(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let mut first = true;
        app.open = Box::new(move |conn| {
            if std::mem::replace(&mut first, false) {
                conn.pause();
            }
        });
        app
    });
    let mut paused = server.client();
    let id = server.opened();
    paused.write_all(b"wait").unwrap();
    let mut other = server.client();
    for _ in 0..100 {
        echo(&mut other, b"not paused");
    }
    assert!(
        server.told.try_iter().all(|(_, told)| told != Told::Data(4)),
        "a paused connection's data was told"
    );
    server.on_worker(0, move |cx| cx.conn(id).resume());
    let mut back = [0; 4];
    paused.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"wait");
    echo(&mut paused, b"goes on");
}

fn bytes_left_over_before_a_pause_come_first_after_it(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let mut first = true;
        app.data = Box::new(move |conn, bytes| {
            if std::mem::replace(&mut first, false) {
                conn.pause();
                conn.write(&bytes[..1]).unwrap();
                return 1;
            }
            conn.write(bytes).unwrap();
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    let id = server.opened();
    client.write_all(b"abc").unwrap();
    let mut back = [0; 6];
    client.read_exact(&mut back[..1]).unwrap();
    client.write_all(b"def").unwrap();
    server.on_worker(0, move |cx| cx.conn(id).resume());
    client.read_exact(&mut back[1..]).unwrap();
    assert_eq!(&back, b"abcdef");
}

fn the_end_of_data_waits_for_resume(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.open = Box::new(|conn| conn.pause());
        app
    });
    let mut client = server.client();
    let id = server.opened();
    client.write_all(b"last words").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.on_worker(0, move |cx| cx.conn(id).resume());
    assert_eq!(read_all(&mut client), b"last words");
    server.expect(&Told::Data(10));
    server.expect(&Told::End);
    assert_eq!(server.closed(), Reason::Closed);
}

fn a_deadline_ends_the_connection(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.open = Box::new(|conn| conn.set_deadline(Some(ONE)));
        app
    });
    let mut client = server.client();
    server.expect(&Told::Deadline);
    assert_eq!(server.closed(), Reason::Deadline);
    assert!(scripted::is_reset(&mut client));
}

fn a_deadline_moved_forward_holds_at_its_new_time(config: Config) {
    let hour = Duration::from_secs(3600);
    let server = serve(config, move |setting| {
        let mut app = setting.echo();
        app.open = Box::new(move |conn| conn.set_deadline(Some(hour)));
        app.data = Box::new(move |conn, bytes| {
            conn.set_deadline(Some(ONE));
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"hurry").unwrap();
    assert_eq!(server.closed(), Reason::Deadline);
}

fn a_deadline_taken_away_does_not_come(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        let mut first = true;
        app.open = Box::new(move |conn| {
            conn.set_deadline(Some(ONE));
            if std::mem::replace(&mut first, false) {
                conn.set_deadline(None);
            }
        });
        app
    });
    let mut kept = server.client();
    echo(&mut kept, b"one");
    let _late = server.client();
    assert_eq!(server.closed(), Reason::Deadline);
    // The later connection's deadline has passed, so the earlier one's would have.
    echo(&mut kept, b"two");
}

fn a_write_beyond_the_limit_is_full_and_closes(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            conn.write(&pattern(WRITE_LIMIT)).unwrap();
            assert_eq!(conn.write(b"x"), Err(WriteError::Full));
            assert_eq!(conn.write(b"x"), Err(WriteError::Closed));
            assert!(!conn.is_open());
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    assert_eq!(server.closed(), Reason::WriteLimit);
    assert_eq!(server.running.report().workers[0].panics, 0);
    let mut rest = Vec::new();
    // Its end may be a reset.
    let _ = client.read_to_end(&mut rest);
    assert!(rest.len() < WRITE_LIMIT, "the unsent bytes are dropped");
}

fn writes_and_closes(setting: Setting) -> scripted::App {
    let mut app = setting.echo();
    app.data = Box::new(|conn, bytes| {
        conn.write(&pattern(WRITE_LIMIT)).unwrap();
        conn.close();
        bytes.len()
    });
    app
}

fn the_largest_write_and_close_arrives_whole(config: Config) {
    let server = serve(config, writes_and_closes);
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    assert!(read_all(&mut client) == pattern(WRITE_LIMIT));
    assert_eq!(server.closed(), Reason::Closed);
}

fn a_peer_that_does_not_take_the_last_bytes_is_given_up(config: Config) {
    let config = Config { flush: ONE, ..config };
    let server = serve(config, writes_and_closes);
    let mut client = server.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 16 * 1024).unwrap();
    client.write_all(b"go").unwrap();
    assert_eq!(server.closed(), Reason::FlushTimeout);
}

fn a_deadline_set_after_close_leaves_the_flush_time(config: Config) {
    let config = Config { flush: ONE, ..config };
    let server = serve(config, |setting| {
        let mut app = writes_and_closes(setting);
        let mut inner = app.data;
        app.data = Box::new(move |conn, bytes| {
            let consumed = inner(conn, bytes);
            conn.set_deadline(None);
            consumed
        });
        app
    });
    let mut client = server.client();
    rustix::net::sockopt::set_socket_recv_buffer_size(&client, 16 * 1024).unwrap();
    client.write_all(b"go").unwrap();
    assert_eq!(server.closed(), Reason::FlushTimeout);
}

fn drained_is_told_when_a_writer_may_go_on(config: Config) {
    let rounds = 20;
    let server = serve(config, move |setting| {
        let mut app = setting.echo();
        let left = Rc::new(Cell::new(rounds));
        let more = Rc::clone(&left);
        app.data = Box::new(move |conn, bytes| {
            conn.write(&pattern(2 * WRITE_MARK)).unwrap();
            bytes.len()
        });
        app.drained = Box::new(move |conn| {
            assert!(conn.unsent() <= WRITE_MARK / 2);
            more.set(more.get() - 1);
            if more.get() == 0 {
                return conn.close();
            }
            conn.write(&pattern(2 * WRITE_MARK)).unwrap();
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    assert_eq!(read_all(&mut client).len(), rounds * 2 * WRITE_MARK);
    assert_eq!(server.running.report().workers[0].panics, 0);
}

fn an_abort_is_a_reset(config: Config) {
    let server = serve(config, |setting| {
        let mut app = setting.echo();
        app.data = Box::new(|conn, bytes| {
            conn.abort();
            bytes.len()
        });
        app
    });
    let mut client = server.client();
    client.write_all(b"go").unwrap();
    assert_eq!(server.closed(), Reason::Aborted);
    assert!(scripted::is_reset(&mut client));
}

fn a_connection_that_fails_is_told_once(config: Config) {
    let server = serve(config, Setting::echo);
    // Bound and not listening: nobody else can take the port meanwhile.
    let taken = ringmain_sys::socket::stream(
        &"127.0.0.1:1".parse().unwrap(),
        Some(&"127.0.0.1:0".parse().unwrap()),
    );
    let taken = taken.unwrap();
    let nobody = ringmain_sys::socket::local_addr(&taken).unwrap().unwrap();
    server.on_worker(0, move |cx| cx.connect(&nobody, None).map(drop).unwrap());
    let told = server.until(|_, told| Some(told));
    assert_eq!(
        told,
        Told::NotConnected(Reason::NotConnected(ErrorKind::ConnectionRefused))
    );
    let listening = server.addr.into();
    server.on_worker(0, move |cx| cx.connect(&listening, None).map(drop).unwrap());
    for _ in 0..2 {
        server.opened();
    }
}

fn a_connection_given_up_while_connecting_is_told(config: Config) {
    let server = serve(config, Setting::echo);
    let to = server.addr.into();
    server.on_worker(0, move |cx| {
        let id = cx.connect(&to, None).unwrap();
        cx.conn(id).abort_because(Reason::Deadline);
    });
    let reason = server.until(|_, told| match told {
        Told::NotConnected(reason) => Some(reason),
        _ => None,
    });
    assert_eq!(reason, Reason::Deadline);
}
