//! Bodies: the output of filters does not depend on how a body is cut, and no filter holds more than the limit.

use ringmain_gateway::limits::{FILTER_GROWTH_BYTES, FILTER_HELD_BYTES};
use ringmain_gateway::model::{Mirror, Retry, RetryOn, StatusRange};

use super::*;
use crate::origin::upstream;
use crate::support::{chunked, pattern};

on_every_backend! {
    changed_in_pieces_however_they_are_cut,
    lines_held_until_they_are_whole,
    whole_before_the_head,
    looked_at_and_left_alone,
    long_ones_pass_in_pieces,
    more_than_may_be_held,
    other_tries_and_copies_get_what_filters_left,
    a_slow_client_holds_the_upstream_back,
    files_pass_them,
    what_follows_a_body,
    nothing_that_was_taken_out_follows,
    a_switch_of_protocols,
}

/// Sizes of chunks that a body is cut into: within words, within lines, not at all.
const CUTS: [usize; 5] = [1, 2, 3, 7, 4096];

/// Asks with a body in chunks of at most that many bytes.
fn posted(body: &[u8], size: usize) -> Vec<u8> {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    [&head[..], &chunked(body, size)].concat()
}

fn changed_in_pieces_however_they_are_cut(engine: Config) {
    let script = || Script {
        request_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        request_body: |body| {
            assert!(body.head().is_none(), "it is sent");
            body.bytes_mut()?.make_ascii_uppercase();
            if body.is_end() {
                body.bytes_mut()?.extend_from_slice(b"!");
            }
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            body.bytes_mut()?.retain(|byte| *byte != b'-');
            if body.is_end() {
                body.bytes_mut()?.extend_from_slice(b"?");
            }
            Ok(Flow::Continue)
        },
    };
    for size in CUTS {
        let origin = answering(b"an-answer-in-pieces", size);
        let (edge, told) = one(engine.clone(), &origin, script());
        let answer = edge.server.ask(posted(b"some words", size));
        answer.expect(200, "ananswerinpieces?");
        assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
        assert_eq!(origin.seen().body, b"SOME WORDS!", "in chunks of {size}");
        edge.server.shut_down();
        let ends = super::told(&told);
        assert_eq!(
            ends.iter().filter(|line| line.contains(" end")).count(),
            2,
            "{ends:?}"
        );
    }
    // A Content-Length of the input is not forwarded.
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\na-b-c");
    let (edge, _) = one(engine, &origin, script());
    let answer = edge.server.ask(support::post("/", "text/plain", "word"));
    answer.expect(200, "abc?");
    assert_eq!(answer.field("content-length"), None);
    let seen = origin.seen();
    assert_eq!(
        (&seen.body[..], seen.field("content-length")),
        (&b"WORD!"[..], None)
    );
    edge.server.shut_down();
}

fn lines_held_until_they_are_whole(engine: Config) {
    let script = || Script {
        response_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            if !body.is_end() && !body.bytes().ends_with(b"\n") {
                return Ok(Flow::Hold);
            }
            let text = String::from_utf8(body.bytes().to_vec())?;
            let kept = text.lines().filter(|line| !line.contains("secret"));
            let kept: String = kept.map(|line| format!("{line}\n")).collect();
            *body.bytes_mut()? = kept.into();
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    for size in CUTS {
        let origin = answering(b"one\na secret here\ntwo\nthree secrets", size);
        let (edge, _) = one(engine.clone(), &origin, script());
        edge.server.get("/").expect(200, "one\ntwo\n");
        edge.server.shut_down();
    }
}

fn whole_before_the_head(engine: Config) {
    let script = || Script {
        request_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        request_body: |body| {
            assert!(body.is_end());
            let sum: u32 = body.bytes().iter().map(|byte| u32::from(*byte)).sum();
            let length = body.bytes().len();
            body.head()
                .ok_or("it is not sent")?
                .set("X-Sum", format!("{length}/{sum}"))?;
            body.bytes_mut()?.reverse();
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            assert!(body.is_end());
            let length = body.bytes().len();
            let head = body.head().ok_or("it is not sent")?;
            head.set("X-Came", length.to_string())?;
            head.set_status(202)?;
            body.bytes_mut()?.extend_from_slice(b"+");
            Ok(Flow::Continue)
        },
    };
    for size in CUTS {
        let origin = answering(b"answer", size);
        let (edge, told) = one(engine.clone(), &origin, script());
        let mut client = edge.server.client();
        for _ in 0..2 {
            client.send(posted(b"abc", size));
            let answer = client.answer();
            answer.expect(202, "answer+");
            assert_eq!(
                (answer.field("x-came"), answer.field("content-length")),
                (Some("6"), Some("7"))
            );
            let seen = origin.seen();
            assert_eq!(
                (&seen.body[..], seen.field("x-sum").as_deref()),
                (&b"cba"[..], Some("3/294"))
            );
            assert_eq!(seen.field("content-length").as_deref(), Some("3"));
        }
        edge.server.shut_down();
        assert_eq!(
            super::told(&told)
                .iter()
                .filter(|line| line.ends_with("202) whole"))
                .count(),
            2
        );
    }
}

fn looked_at_and_left_alone(engine: Config) {
    let script = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Read);
            Ok(Flow::Continue)
        },
        request_body: |body| {
            assert!(body.bytes_mut().is_err());
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.want_body(BodyAccess::Read);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            assert!(body.bytes_mut().is_err());
            Ok(Flow::Continue)
        },
    };
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let (edge, told) = one(engine, &origin, script);
    let answer = edge.server.ask(support::post("/", "text/plain", "word"));
    answer.expect(200, "ok");
    assert_eq!(answer.field("content-length"), Some("2"));
    assert_eq!(origin.seen().field("content-length").as_deref(), Some("4"));
    edge.server.shut_down();
    let told = super::told(&told);
    assert!(told.contains(&"a request end".to_owned()) && told.contains(&"a response end".to_owned()));
}

fn long_ones_pass_in_pieces(engine: Config) {
    // Each byte is inverted: a body over the limit of held bytes passes all the same.
    let script = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        request_body: |body| {
            body.bytes_mut()?.iter_mut().for_each(|byte| *byte = !*byte);
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        response_body: |body| {
            body.bytes_mut()?.iter_mut().for_each(|byte| *byte = !*byte);
            Ok(Flow::Continue)
        },
    };
    let long = pattern(3 * FILTER_HELD_BYTES);
    let (origin, sent) = (answering(&long, 50_000), posted(&long, 50_000));
    let (edge, _) = one(engine, &origin, script);
    let mut client = edge.server.client();
    let sending = client.send_behind(sent);
    let answer = client.answer();
    sending.join().expect("a thread").expect("all of it was taken");
    let turned: Vec<u8> = long.iter().map(|byte| !byte).collect();
    assert!(answer.body == turned, "{} bytes came", answer.body.len());
    assert!(origin.seen().body == turned);
    edge.server.shut_down();
}

fn more_than_may_be_held(engine: Config) {
    let whole = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let holds = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        request_body: |_| Ok(Flow::Hold),
        response_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        response_body: |_| Ok(Flow::Hold),
    };
    let (long, most) = (pattern(FILTER_HELD_BYTES + 1), pattern(FILTER_HELD_BYTES));
    for (script, is_whole) in [(whole, true), (holds, false)] {
        let origin = answering(&most, 60_000);
        let (edge, _) = one(engine.clone(), &origin, script.clone());
        let mut client = edge.server.client();
        let sending = client.send_behind(posted(&most, 60_000));
        let answer = client.answer();
        sending.join().expect("a thread").expect("all of it was taken");
        assert!(answer.status == 200 && answer.body == most && origin.seen().body == most);
        let mut client = edge.server.client();
        // The number of its bytes that are read before the response is unspecified.
        let sending = client.send_behind(posted(&long, 60_000));
        assert_eq!(client.answer().status, 413);
        drop(client);
        let _ = sending.join();
        edge.server.shut_down();
        let origin = answering(&long, 60_000);
        let (edge, told) = one(engine.clone(), &origin, script);
        let mut client = edge.server.client();
        client.send(support::get("/"));
        if is_whole {
            let answer = client.answer();
            answer.expect(502, "upstream response body too large\n");
        } else {
            assert_eq!(client.head().status, 200);
            client.expect_end();
        }
        let faults = edge.gateway.fault_counts();
        assert!(
            faults
                .iter()
                .any(|(fault, count)| fault.label() == "response_too_large" && *count == 1)
        );
        edge.server.shut_down();
        assert!(super::told(&told).iter().any(|line| line.contains(" over Some(")));
    }
}

fn other_tries_and_copies_get_what_filters_left(engine: Config) {
    let script = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Modify);
            head.set("X-Stamp", "1")?;
            Ok(Flow::Continue)
        },
        request_body: |body| {
            body.bytes_mut()?.make_ascii_uppercase();
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let is_first = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
            let status = if is_first { "503 Later" } else { "200 OK" };
            peer.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
        }
    });
    let shadow = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut config = to(&[origin.addr], |forward, upstream| {
        forward.mirrors = vec![Mirror::to("shadow")];
        forward.retry = Some(Retry {
            attempts: 1,
            on: RetryOn {
                statuses: vec![StatusRange::one(503)],
                ..RetryOn::default()
            },
            ..Retry::default()
        });
        upstream.retry_budget.percent = 100;
    });
    config.upstreams.push(upstream("shadow", &[shadow.addr]).into());
    let (filters, told) = scripted([("a", script)]);
    let edge = edge(engine, config, filters);
    let request = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nword";
    assert_eq!(edge.server.ask(request).status, 200);
    for seen in [origin.seen(), origin.seen(), shadow.seen()] {
        assert_eq!(
            (&seen.body[..], seen.field("x-stamp").as_deref()),
            (&b"WORD"[..], Some("1"))
        );
    }
    edge.server.shut_down();
    let told = super::told(&told);
    assert_eq!(
        told.iter().filter(|line| line.contains("head")).count(),
        2,
        "once for all tries: {told:?}"
    );
}

fn a_slow_client_holds_the_upstream_back(engine: Config) {
    // Far more than all buffers between: the origin is not read to its end while the client takes nothing.
    const BYTES: usize = 64 << 20;
    let script = Script {
        response_head: |head| {
            head.want_body(BodyAccess::Modify);
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (sender, stuck) = std::sync::mpsc::channel();
    let origin = Origin::new(move |mut peer| {
        let Some(_) = peer.request() else { return };
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n"));
        let piece = vec![7; FILTER_GROWTH_BYTES];
        let mut sent = 0;
        while sent < BYTES && peer.send(&piece) {
            sent += piece.len();
        }
        let _ = sender.send(sent);
    });
    let (edge, told) = one(engine, &origin, script);
    let mut client = edge.server.slow_client();
    client.send(support::get("/"));
    assert_eq!(client.head().status, 200);
    assert!(
        client
            .take(100_000)
            .iter()
            .all(|byte| *byte == b'\r' || *byte != 0)
    );
    // The client leaves: bytes that were not sent by then are not held.
    client.reset();
    let sent = stuck
        .recv_timeout(crate::support::PATIENCE)
        .expect("the origin's thread ends");
    assert!(sent < BYTES, "{sent} bytes were taken of a client that has left");
    edge.server.shut_down();
    let told = super::told(&told);
    assert!(
        told.iter()
            .any(|line| line == "a over None cut" || line == "a over Some(200) cut"),
        "{told:?}"
    );
}

fn files_pass_them(engine: Config) {
    let root = std::env::temp_dir().join(format!(
        "ringmain-filters-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    std::fs::create_dir_all(&root).expect("a directory");
    let long = pattern(300_000);
    std::fs::write(root.join("long"), &long).expect("a file");
    std::fs::write(root.join("empty"), b"").expect("a file");
    for want in [BodyAccess::Modify, BodyAccess::Buffer] {
        let script = Script {
            response_head: match want {
                BodyAccess::Buffer => |head| {
                    head.want_body(BodyAccess::Buffer);
                    Ok(Flow::Continue)
                },
                _ => |head| {
                    head.want_body(BodyAccess::Modify);
                    Ok(Flow::Continue)
                },
            },
            response_body: |body| {
                let is_end = body.is_end();
                let bytes = body.bytes_mut()?;
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                if is_end {
                    bytes.push(7);
                }
                Ok(Flow::Continue)
            },
            ..Script::default()
        };
        let action = model::Action::Files(model::Files::of(&root));
        let (filters, _) = scripted([("a", script)]);
        let edge = edge(
            engine.clone(),
            crate::origin::rules(vec![Rule::new(action)], Vec::new()),
            filters,
        );
        let answer = edge.server.get("/long");
        let turned: Vec<u8> = long.iter().map(|byte| !byte).chain([7]).collect();
        assert!(answer.status == 200 && answer.body == turned);
        assert_eq!(
            answer.field("content-length").is_some(),
            want == BodyAccess::Buffer
        );
        assert_eq!(edge.server.get("/empty").body, [7]);
        let head = edge.server.ask("HEAD /long HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((head.status, head.field("content-length")), (200, None));
        assert_eq!(edge.server.get("/nothing").status, 404);
        edge.server.shut_down();
    }
    let _ = std::fs::remove_dir_all(&root);
}

fn what_follows_a_body(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n4\r\nword\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let ask = "GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\n\r\n";
    for (script, trailers) in [
        (
            Script {
                response_head: |head| {
                    head.want_body(BodyAccess::Modify);
                    Ok(Flow::Continue)
                },
                ..Script::default()
            },
            true,
        ),
        // A body with a length has no chunks, and so no trailers.
        (
            Script {
                response_head: |head| {
                    head.want_body(BodyAccess::Buffer);
                    Ok(Flow::Continue)
                },
                ..Script::default()
            },
            false,
        ),
    ] {
        let (edge, _) = one(engine.clone(), &origin, script);
        let mut client = edge.server.client();
        client.send(ask);
        let text = String::from_utf8(client.rest().0).expect("text");
        assert!(
            text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("word"),
            "{text}"
        );
        assert_eq!(text.contains("X-Sum: 7\r\n"), trailers, "{text}");
        assert_eq!(text.contains("Trailer: "), trailers, "{text}");
        edge.server.shut_down();
    }
}

fn nothing_that_was_taken_out_follows(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while peer.head().is_some() {
            let mut body = String::new();
            while !body.ends_with("\r\n\r\n") {
                let Some(line) = peer.line() else { return };
                body.push_str(&String::from_utf8_lossy(&line));
            }
            let text = body.escape_debug().to_string();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\nX-Set: 1\r\nX-Gone: 1\r\nX-Other: 1\r\n\r\n",
                text.len()
            ));
        }
    });
    let script = Script {
        request_head: |head| {
            head.set("X-Set", "filter")?;
            head.remove("X-Gone");
            Ok(Flow::Continue)
        },
        response_head: |head| {
            head.set("X-Set", "filter")?;
            head.remove("X-Gone");
            Ok(Flow::Continue)
        },
        ..Script::default()
    };
    let (edge, _) = one(engine, &origin, script);
    let mut client = edge.server.client();
    client.send(
        "PUT / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: te, close\r\nTransfer-Encoding: chunked\r\n\r\n\
         0\r\nX-Set: 2\r\nX-Gone: 2\r\nX-Other: 2\r\n\r\n",
    );
    let text = String::from_utf8(client.rest().0).expect("text");
    assert!(text.contains("0\\r\\nX-Other: 2\\r\\n\\r\\n"), "{text}");
    assert!(text.ends_with("0\r\nX-Other: 1\r\n\r\n"), "{text}");
    edge.server.shut_down();
}

fn a_switch_of_protocols(engine: Config) {
    let origin = Origin::new(|mut peer| {
        if peer.head().is_some() {
            peer.send("HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
            while let Some(bytes) = peer.some() {
                peer.send(bytes);
            }
        }
    });
    let script = Script {
        request_head: |head| {
            head.want_body(BodyAccess::Buffer);
            head.set("X-Stamp", "1")?;
            Ok(Flow::Continue)
        },
        response_head: |_| Err("it is no answer".into()),
        ..Script::default()
    };
    let (edge, told) = one(engine, &origin, script);
    let mut client = edge.server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
    assert_eq!(client.head().status, 101);
    client.send("ping");
    assert_eq!(client.take(4), b"ping");
    client.finish();
    client.expect_end();
    edge.server.shut_down();
    assert_eq!(
        super::told(&told),
        ["a request head", "a over Some(101) whole", "a gone"]
    );
}
