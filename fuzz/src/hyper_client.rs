//! hyper's HTTP/1 client asking a server in memory one question, polled to its end without a runtime.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use hyper::Request;
use hyper::client::conn::http1;

use crate::conversation::Seen;
use crate::memory::{self, Memory, NoBody, POLLS};

/// The first final response in `input`, read to its end, to a request with `method`.
pub(crate) fn read(input: &[u8], method: &str) -> Option<Seen> {
    let target = if method == "CONNECT" { "a:443" } else { "/" };
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("Host", "a")
        .body(NoBody)
        .expect("a valid request");
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Ok((mut sender, connection))) =
        pin!(http1::handshake(Memory::server(input))).poll(&mut context)
    else {
        panic!("hyper's handshake does not wait");
    };
    let mut exchange = pin!(async move {
        let response = sender.send_request(request).await.ok()?;
        let (head, incoming) = response.into_parts();
        Some(Seen {
            start: vec![head.status.as_u16().to_string()],
            body: memory::collect(incoming).await?,
        })
    });
    let mut connection = pin!(connection);
    let mut connected = true;
    for _ in 0..POLLS {
        connected = connected && connection.as_mut().poll(&mut context).is_pending();
        if let Poll::Ready(seen) = exchange.as_mut().poll(&mut context) {
            return seen;
        }
    }
    panic!("hyper comes to an end");
}
