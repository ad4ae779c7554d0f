//! Requests that no handler sees, as the access log has them.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ringmain_web::access_log::Format;
use ringmain_web::{AccessLog, App, Limits};

use crate::http2::client::{Http2, fields};
use crate::support::{PATIENCE, Setting, serve};

in_every_way!(refused_requests_keep_their_line_and_id);

/// Collects written bytes.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refused_requests_keep_their_line_and_id(setting: Setting) {
    let memory = Memory::default();
    let log = AccessLog::to_writer(memory.clone()).expect("a thread");
    let limits = Limits {
        body_bytes: 10,
        ..Limits::default()
    };
    let app = App::new()
        .limits(limits)
        .request_ids()
        .access_log(log.format(Format::Json))
        .post("/body", |_, _| Ok(()));
    let server = serve(setting.clone(), app);
    let id = fields(&[("X-Request-Id", "kept"), ("User-Agent", "tests")]);
    // Too long by its length, and by its bytes.
    let mut client = server.client();
    client.send("POST /body?1 HTTP/1.1\r\nHost: a\r\nX-Request-Id: kept\r\nContent-Length: 20\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.field("x-request-id")), (413, Some("kept")));
    let mut client = server.client();
    client.send("POST /body?2 HTTP/1.0\r\nHost: a\r\nX-Request-Id: kept\r\nContent-Length: 20\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    let mut client = server.client();
    client.send(format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(20_000)));
    let long = client.answer();
    assert_eq!(long.status, 414);
    assert!(long.field("x-request-id").is_some());
    let mut client = Http2::new(&setting, &server);
    let stream = client.head("POST", "/body?3", &id, false);
    client.send_body(stream, &[b'x'; 20]);
    let got = client.wait(stream);
    assert_eq!((got.status, got.field("x-request-id")), (413, Some("kept")));
    let many: Vec<(&str, &str)> = vec![("x", "y"); 150];
    let stream = client.head("GET", "/many", &fields(&many), true);
    assert_eq!(client.wait(stream).status, 431);
    let app = Arc::clone(&server.app);
    server.shut_down();
    assert!(app.access_log().expect("a log").finish(PATIENCE));
    let text = String::from_utf8(memory.0.lock().expect("not poisoned").clone()).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    for (line, texts) in lines.iter().zip([
        &["/body?1", "kept", "413", "HTTP/1.1"][..],
        &["/body?2", "kept", "413", "HTTP/1.0"],
        &["/xxxx", "414", "HTTP/1.1"],
        &["/body?3", "kept", "413", "HTTP/2", "tests"],
        &["431", "HTTP/2"],
    ]) {
        assert!(
            texts.iter().all(|text| line.contains(text)),
            "{texts:?} in {line}"
        );
    }
    assert_eq!(lines.len(), 5, "{text}");
}
