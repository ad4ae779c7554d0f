//! Request bodies that arrive slowly, in virtual time: each time limit is met to the second.

use std::time::Duration;

use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{self, Hostname, OutlierDetection};
use ringmain_sim::Peer;

use crate::origin::{listener, to};
use crate::support::pattern;
use crate::virtual_gateway::{ORIGIN, Scene, write};

const SECOND: Duration = Duration::from_secs(1);

/// Bytes a second that a listener demands of uploads.
const RATE: u32 = 1_000_000;

const PIECE: usize = 1000;

/// Ten pieces.
const HEAD: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n";

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// All requests to the origin, by a listener with a minimum rate.
fn at_rate(rate: u32) -> model::Config {
    let mut config = to(&[ORIGIN], |_, _| {});
    let mut listener = listener();
    listener.limits.rate_bytes = rate;
    config.listeners = vec![listener.into()];
    config
}

/// Rates are checked each second, without grace.
fn without_grace(limits: &mut ringmain_web::Limits) {
    limits.rate_grace = Duration::ZERO;
}

/// Sends a body in ten pieces, one a second. Returns the bytes that the origin has received by then.
fn trickle(scene: &mut Scene, client: &Peer, origin: &mut Option<Peer>, begins: bool) -> Vec<u8> {
    let mut received = Vec::new();
    let mut has_responded = false;
    write(client, HEAD);
    for _ in 0..10 {
        scene.pass(SECOND);
        write(client, pattern(PIECE));
        scene.pass(Duration::from_millis(1));
        if origin.is_none() {
            *origin = scene.try_accept();
        }
        if let Some(origin) = origin {
            received.extend(origin.read(usize::MAX));
            if begins && !has_responded && received.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
                // Its body follows that of the request.
                write(origin, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
                has_responded = true;
            }
        }
    }
    received
}

/// The bytes behind a head.
fn body(request: &[u8]) -> &[u8] {
    let end = request.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    &request[end.expect("a head") + 4..]
}

/// A byte a second, for longer than a rate would allow.
#[test]
fn a_live_stream_has_no_minimum_rate() {
    let mut scene = Scene::new(at_rate(RATE), without_grace);
    let client = scene.dial();
    write(
        &client,
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    );
    let origin = scene.accept();
    scene.read_to(&origin, "1\r\nx\r\n");
    write(
        &origin,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
    );
    let head = scene.read_to(&client, "1\r\nx\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{head:?}");
    for _ in 0..60 {
        scene.pass(SECOND);
        write(&client, "1\r\nx\r\n");
        scene.read_to(&origin, "1\r\nx\r\n");
        write(&origin, "1\r\nx\r\n");
        scene.read_to(&client, "1\r\nx\r\n");
    }
    assert_eq!(scene.faults(), 0);
    client.close();
    scene.stop();
}

/// The rate is that of the listener that accepted the connection, not that of the process.
#[test]
fn an_upload_has_the_rate_of_its_listener() {
    for (rate, others, status) in [(0, RATE, 200), (RATE, 0, 408)] {
        let mut config = at_rate(rate);
        let mut other = listener();
        other.name = "other".into();
        other.hostnames = vec![Hostname::parse("other.example").expect("a host")];
        other.limits.rate_bytes = others;
        config.listeners.push(other.into());
        let mut scene = Scene::new(config, without_grace);
        let client = scene.dial();
        let begun = scene.now();
        write(
            &client,
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n",
        );
        for _ in 0..20 {
            scene.pass(Duration::from_millis(110));
            if scene.count(Fault::RequestTooSlow) > 0 {
                break;
            }
            write(&client, "x");
        }
        if status == 408 {
            let passed = scene.now().since(begun);
            assert!(passed >= SECOND && passed < 2 * SECOND, "cut after {passed:?}");
        } else {
            let origin = scene.accept();
            scene.read_to(&origin, "x".repeat(20));
            write(&origin, OK);
        }
        assert_eq!(scene.reply(&client).status(), status);
        assert_eq!(scene.count(Fault::RequestTooSlow), u64::from(status == 408));
        client.close();
        scene.stop();
    }
}

#[test]
fn an_upload_that_moves_is_not_idle() {
    for begins in [false, true] {
        let config = to(&[ORIGIN], |forward, _| forward.timeouts.idle = Some(3 * SECOND));
        let mut scene = Scene::new(config, |_| {});
        let client = scene.dial();
        let mut origin = None;
        let mut received = trickle(&mut scene, &client, &mut origin, begins);
        let origin = origin.unwrap_or_else(|| scene.accept());
        scene.pass(Duration::from_millis(1));
        received.extend(origin.read(usize::MAX));
        assert!(body(&received) == pattern(PIECE).repeat(10), "begins: {begins}");
        write(&origin, if begins { "ok" } else { OK });
        let reply = scene.reply(&client);
        assert_eq!((reply.status(), reply.text()), (200, "ok"), "begins: {begins}");
        assert_eq!(scene.faults(), 0, "begins: {begins}");
        client.close();
        scene.stop();
    }
}

/// Slow bodies with a short `per_try` timeout are no failure of the endpoint.
#[test]
fn the_time_of_the_client_is_no_attempts_time() {
    let config = to(&[ORIGIN], |forward, upstream| {
        forward.timeouts.per_try = Some(5 * SECOND / 2);
        upstream.health.outliers = Some(OutlierDetection {
            consecutive: 1,
            ..OutlierDetection::default()
        });
    });
    let mut scene = Scene::new(config, |_| {});
    let client = scene.dial();
    let mut origin = None;
    for _ in 0..2 {
        trickle(&mut scene, &client, &mut origin, false);
        let origin = origin.get_or_insert_with(|| scene.accept());
        scene.pass(Duration::from_millis(1));
        drop(origin.read(usize::MAX));
        write(origin, OK);
        let reply = scene.reply(&client);
        assert_eq!((reply.status(), reply.text()), (200, "ok"));
    }
    assert_eq!(scene.faults(), 0);
    let upstream = &scene.gateway.upstreams()[0];
    assert_eq!(upstream.endpoints[0].ejection, None);
    client.close();
    scene.stop();
}

/// The time of the endpoint starts once it has the whole body.
#[test]
fn an_endpoint_is_late_behind_a_slow_body() {
    let limit = 5 * SECOND / 2;
    let config = to(&[ORIGIN], |forward, _| forward.timeouts.per_try = Some(limit));
    let mut scene = Scene::new(config, |_| {});
    let client = scene.dial();
    let mut origin = None;
    trickle(&mut scene, &client, &mut origin, false);
    let begun = scene.now();
    assert_eq!(scene.reply(&client).status(), 504);
    let passed = scene.now().since(begun);
    assert!(
        passed + Duration::from_millis(2) >= limit && passed < limit + SECOND / 10,
        "{passed:?}"
    );
    assert_eq!(scene.count(Fault::HeadTimeout), 1);
    client.close();
    scene.stop();
}
