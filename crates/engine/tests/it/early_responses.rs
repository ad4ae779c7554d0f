//! Bytes that a peer sent before it reset a connection are received, although a send fails first.

use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{PATIENCE, Rig, fill, for_each_engine};
use ringmain_testkit::wait;
use rustix::net::sockopt::{set_socket_linger, set_socket_send_buffer_size, socket_send_buffer_size};

/// Writes until nothing more is taken for a while, and returns how much of it the other side's kernel has at least.
fn fill_from(mut client: &TcpStream) -> usize {
    client.set_nonblocking(true).expect("a socket");
    let (mut written, mut idle) = (0, 0);
    while idle < 50 {
        match client.write(&[9; 1024]) {
            Ok(count) => (written, idle) = (written + count, 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                idle += 1;
                wait::pause(Duration::from_millis(1));
            }
            Err(error) => panic!("{error}"),
        }
    }
    // The last segment is filled up to 64 KiB, however small the buffer is.
    let unsent = socket_send_buffer_size(client).expect("a socket") + 64 * 1024;
    written - unsent.min(written)
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
        let least = fill_from(&client);
        assert!(least > ringmain_engine::limits::READ_MARK, "{least}");
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
