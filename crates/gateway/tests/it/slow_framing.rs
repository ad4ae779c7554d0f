//! Framing of a body without a minimum rate that arrives a byte at a time, in virtual time: chunk extensions and trailers.

use std::time::Duration;

use ringmain_gateway::fault::Fault;

use crate::origin::to;
use crate::virtual_gateway::{ORIGIN, Scene, write};

/// The time limit of a line.
const HEADER: Duration = Duration::from_secs(10);

const SECOND: Duration = Duration::from_secs(1);

const HEAD: &str = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

fn scene() -> Scene {
    Scene::new(to(&[ORIGIN], |_, _| {}), |limits| limits.header_timeout = HEADER)
}

#[test]
fn a_line_that_drips_is_cut() {
    for begins in ["5;", "1\r\nx\r\n2;a", "1\r\nx\r\n0\r\nX-Last: "] {
        let mut scene = scene();
        let client = scene.dial();
        let begun = scene.now();
        write(&client, [HEAD, begins].concat());
        while scene.count(Fault::RequestTooSlow) == 0 {
            scene.pass(SECOND);
            let passed = scene.now().since(begun);
            // The line is seen with its first byte, or with the next one: not with every one.
            assert!(
                passed <= HEADER + 2 * SECOND,
                "{begins:?}: not cut after {passed:?}"
            );
            // The gateway may have closed it by now.
            let _ = client.write(b"x");
        }
        let passed = scene.now().since(begun);
        assert!(passed >= HEADER, "{begins:?}: cut after {passed:?}");
        assert_eq!(scene.reply(&client).status(), 408, "{begins:?}");
        client.close();
        scene.stop();
    }
}

/// Each line has a time of its own, the wait for its first byte has none, and data may arrive as slowly as its sender likes.
#[test]
fn lines_that_are_whole_may_pause() {
    let mut scene = scene();
    let client = scene.dial();
    write(&client, HEAD);
    let pieces = [
        "3;",
        "a\r\n",
        "x",
        "y",
        "z",
        "\r\n",
        "1",
        ";b\r\n",
        "x\r\n",
        "0\r\n",
        "X-Last: 1\r\n\r\n",
    ];
    for piece in pieces {
        // All pieces together take longer than one may.
        scene.pass(HEADER - SECOND);
        write(&client, piece);
    }
    let origin = scene.accept();
    let request = scene.read_to(&origin, "X-Last: 1\r\n\r\n");
    assert!(request.starts_with(b"POST / HTTP/1.1\r\n"));
    write(&origin, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let reply = scene.reply(&client);
    assert_eq!((reply.status(), reply.text()), (200, "ok"));
    assert_eq!(scene.faults(), 0);
    client.close();
    scene.stop();
}
