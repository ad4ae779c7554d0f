//! hyper's HTTP/1 server over bytes in memory, polled to its end without a runtime.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::conversation::Seen;
use crate::memory::{self, Memory, NoBody, POLLS};

/// The requests of `input` that hyper gave to its service and whose bodies it read to their end.
pub(crate) fn read(input: &[u8]) -> Vec<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            if let Some(request) = collect(request).await {
                seen.lock().expect("no panic while locked").push(request);
            }
            Ok::<_, Infallible>(Response::new(NoBody))
        }
    });
    let mut builder = http1::Builder::new();
    let connection = builder
        .half_close(true)
        .serve_connection(Memory::client(input), service);
    let mut connection = pin!(connection);
    let mut context = Context::from_waker(Waker::noop());
    let over = (0..POLLS).any(|_| connection.as_mut().poll(&mut context).is_ready());
    assert!(over, "hyper comes to an end");
    let seen = seen.lock().expect("no panic while locked");
    seen.clone()
}

/// The request with its body; `None` if the body is broken.
async fn collect(request: Request<Incoming>) -> Option<Seen> {
    let (head, incoming) = request.into_parts();
    Some(Seen {
        start: vec![head.method.as_str().to_owned(), head.uri.to_string()],
        body: memory::collect(incoming).await?,
    })
}
