//! Bytes that a peer sent before it reset a connection are received, although a send fails first.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use crate::support::{PATIENCE, Rig, fill, for_each_engine};
use ringmain_engine::limits::READ_MARK;
use ringmain_testkit::wait;
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size, socket_send_buffer_size};

/// Writes until nothing more is taken for a while and the other side's kernel has more than `least` bytes; returns how many it has
/// at least.
fn fill_from(mut client: &TcpStream, least: usize) -> usize {
    client.set_nonblocking(true).expect("a socket");
    // The last segment is filled up to 64 KiB, however small the buffer is.
    let unsent = socket_send_buffer_size(client).expect("a socket") + 64 * 1024;
    let (mut written, mut idle) = (0_usize, 0);
    // A worker that is not scheduled for a while has read nothing yet: that nothing is taken does not mean that all is full.
    while idle < 50 || written <= unsent + least {
        match client.write(&[9; 1024]) {
            Ok(count) => (written, idle) = (written + count, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                idle += 1;
                assert!(idle < PATIENCE.as_millis(), "{written} bytes were taken");
                wait::pause(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    written - unsent
}

/// The receive of a stream is not armed when its send fails: it has as many unread bytes as it may. The rest is in the kernel.
#[test]
fn what_the_kernel_holds_is_received_behind_a_failed_send() {
    for_each_engine(|choice| {
        let (full, is_full) = mpsc::channel();
        let (told, received) = mpsc::channel();
        let rig = Rig::serving(choice, move |stream| {
            let (full, told) = (full.clone(), told.clone());
            async move {
                fill(&stream).await;
                full.send(()).expect("the test waits");
                let flushed = stream.flush().await.map_err(|error| error.kind());
                let mut count = 0;
                let mut buffer = vec![0; 64 * 1024];
                let end = loop {
                    match stream.read(&mut buffer).await {
                        Ok(0) => break Ok(()),
                        Ok(read) => count += read,
                        Err(error) => break Err(error.kind()),
                    }
                };
                let again = stream.read(&mut buffer).await.map_err(|error| error.kind());
                told.send((flushed, count, end, again)).expect("the test waits");
            }
        });
        let client = TcpStream::connect(rig.addr()).expect("the engine listens");
        set_socket_send_buffer_size(&client, 4096).expect("a socket");
        is_full.recv_timeout(PATIENCE).expect("the kernel is full");
        let least = fill_from(&client, READ_MARK);
        set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket");
        drop(client);
        let (flushed, count, end, again) = received.recv_timeout(PATIENCE).expect("the task ends");
        flushed.expect_err("the peer has gone");
        end.expect_err("a reset is no end in order");
        again.expect_err("for good");
        assert!(count >= least, "{count} of at least {least} bytes");
        rig.wait_connections(0);
    });
}

/// The worker takes the wake-ups of bytes and of a reset behind them at once.
#[test]
fn a_reset_right_behind_bytes_is_reported() {
    for_each_engine(|choice| {
        let (told, reports) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let rig = Rig::serving(choice, move |stream| {
            let (told, released) = (told.clone(), Arc::clone(&released));
            async move {
                let mut buffer = [0; 16];
                loop {
                    let read = stream.read(&mut buffer).await.map_err(|error| error.kind());
                    told.send(read).expect("the test waits");
                    match read {
                        // The worker does nothing else meanwhile.
                        Ok(1) if buffer[0] == b'b' => {
                            let _ = released.lock().expect("no holder panics").recv();
                        }
                        Ok(1..) => {}
                        Ok(0) | Err(_) => return,
                    }
                }
            }
        });
        let connect = || TcpStream::connect(rig.addr()).expect("the engine listens");
        let (mut quiet, mut busy) = (connect(), connect());
        let report = || reports.recv_timeout(PATIENCE).expect("the task reports");
        for (client, bytes) in [(&mut quiet, b"a"), (&mut busy, b"b")] {
            client.write_all(bytes).expect("the engine receives");
            assert_eq!(report(), Ok(1));
        }
        quiet.write_all(b"aaa").expect("room");
        set_socket_linger(&quiet, Some(Duration::ZERO)).expect("a socket");
        drop(quiet);
        release.send(()).expect("the worker waits");
        // A reset may take bytes along.
        let first = report();
        let end = if first == Ok(3) { report() } else { first };
        assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
        drop(busy);
        rig.wait_connections(0);
    });
}

/// A stream that has as many unread bytes as it may receives again behind both.
#[test]
fn a_reset_behind_bytes_that_wait_in_the_kernel_is_reported() {
    for_each_engine(|choice| {
        let (told, report) = mpsc::channel();
        let may_read = Arc::new(AtomicBool::new(false));
        let reads = Arc::clone(&may_read);
        let rig = Rig::serving(choice, move |stream| {
            let (told, reads) = (told.clone(), Arc::clone(&reads));
            async move {
                while !reads.load(Ordering::Acquire) {
                    stream.cx().sleep(Duration::from_millis(1)).await;
                }
                let mut buffer = vec![0; 2 * READ_MARK];
                let end = loop {
                    match stream.read(&mut buffer).await {
                        Ok(1..) => {}
                        Ok(0) => break Ok(()),
                        Err(error) => break Err(error.kind()),
                    }
                };
                told.send(end).expect("the test waits");
            }
        });
        let mut client = TcpStream::connect(rig.addr()).expect("the engine listens");
        client.write_all(&[1; READ_MARK]).expect("the engine receives");
        while rig.report().bytes_received < READ_MARK as u64 {
            rig.run(|cx| async move { cx.sleep(Duration::from_millis(1)).await });
        }
        // The receive has ended when the worker has done so much more.
        (0..3).for_each(|_| rig.run(|_| async {}));
        client.write_all(&[2; 3]).expect("the kernel has room");
        set_socket_linger(&client, Some(Duration::ZERO)).expect("a socket");
        drop(client);
        may_read.store(true, Ordering::Release);
        // On Linux, a receive may report any reset behind bytes as the end of data.
        let _ = report.recv_timeout(PATIENCE).expect("the task ends");
        rig.wait_connections(0);
    });
}
