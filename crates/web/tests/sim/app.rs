//! The application under test: every way to take a body and to answer, each answer recognisable by its request's id.

use std::time::Duration;

use bytes::Bytes;
use ringmain_web::ws::{Message, Window};
use ringmain_web::{
    App, Error, Event, Flow, Limits, Reply, Request, Result, Socket, Ws, WsOptions, WsStream,
};

/// Returns byte `at` of the pattern of `id`.
fn byte(id: u64, at: usize) -> u8 {
    let mix = (id << 32 | at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mix ^ (mix >> 29))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
        .to_le_bytes()[7]
}

/// Returns the first `length` bytes of the pattern of `id`.
pub(crate) fn pattern(id: u64, length: usize) -> Vec<u8> {
    (0..length).map(|at| byte(id, at)).collect()
}

/// Returns a handler's response to a received body.
pub(crate) fn account(id: u64, body: &[u8]) -> String {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{id} took {} bytes, {hash:016x}", body.len())
}

/// Events of a stream.
pub(crate) const EVENTS: u64 = 4;

pub(crate) fn event(id: u64, number: u64) -> String {
    format!("event {number} of {id}")
}

fn id(req: &Request<'_>) -> Result<u64> {
    req.param_as("id")
}

fn number(req: &Request<'_>, name: &str) -> usize {
    let query = req.target().split_once('?').map_or("", |(_, query)| query);
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let found = pairs.find(|(is, _)| *is == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

async fn sleep(req: &Request<'_>) {
    let span = number(req, "ms");
    if span > 0 {
        req.cx().sleep(Duration::from_millis(span as u64)).await;
    }
}

async fn drain(req: &Request<'_>) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = req.chunk().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Every answer of a handler or of the application itself says the id of its request.
fn mark(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    if let Some(id) = req.header("x-id") {
        reply.header("X-Id", id)?;
    }
    Ok(())
}

pub(crate) fn app(limits: Limits) -> App {
    let app = App::new()
        .limits(limits)
        .after(mark)
        .get("/plain/{id}", |req, reply| {
            reply
                .body()
                .extend_from_slice(&pattern(id(req)?, number(req, "n")));
            Ok(())
        })
        .get("/frame/{id}", |req, reply| {
            let bytes = Bytes::from(pattern(id(req)?, number(req, "n")));
            reply.bytes("application/octet-stream", bytes)
        })
        .post("/collect/{id}", |req, reply| {
            reply.text(account(id(req)?, req.body()))
        })
        .get("/fail/{id}", |req, _| {
            Err(Error::new(number(req, "status") as u16, "as was asked"))
        })
        .get("/panic/{id}", |_, _| panic!("planned"))
        .group("/stopped", |group| {
            group
                .before(|req, reply| {
                    reply.text(account(id(req)?, req.body()))?;
                    Ok(Flow::Stop)
                })
                .post_async("/{id}", async |_, _| unreachable!("the hook has answered"))
        })
        .group("/hook", |group| {
            group
                .before(|_, _| panic!("planned"))
                .get_async("/{id}", async |_, _| unreachable!("the hook panics"))
        });
    sockets(waiting(app))
}

/// Echoes each message.
struct Echo;

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

fn sockets(app: App) -> App {
    let deflated = WsOptions::new().deflate_with_context(Window::MIN);
    app.ws("/ws", |_| Ok(Echo))
        .ws_with("/ws/deflate", &deflated, |_| Ok(Echo))
        .ws_async("/ws/task", |_, mut ws: WsStream| {
            Ok(async move {
                while let Some(message) = ws.next().await? {
                    ws.send(message.borrowed()).await?;
                }
                Ok(())
            })
        })
}

fn waiting(app: App) -> App {
    app.get_async("/sleep/{id}", async |req, reply| {
        sleep(req).await;
        reply
            .body()
            .extend_from_slice(&pattern(id(req)?, number(req, "n")));
        Ok(())
    })
    .get_async("/panics/{id}", async |req, _| {
        sleep(req).await;
        panic!("planned")
    })
    .get_async("/download/{id}", async |req, reply| {
        let body = pattern(id(req)?, number(req, "n"));
        if number(req, "sized") > 0 {
            reply.length(body.len() as u64);
        }
        for piece in body.chunks(number(req, "piece").max(1)) {
            if number(req, "frames") > 0 {
                reply.write_bytes(Bytes::copy_from_slice(piece)).await?;
            } else {
                reply.write(piece).await?;
            }
            sleep(req).await;
        }
        Ok(())
    })
    .get_async("/cut/{id}", async |req, reply| {
        reply.write(&pattern(id(req)?, number(req, "n").max(1))).await?;
        sleep(req).await;
        Err(Error::bad_request("too late to be said"))
    })
    .get_async("/events/{id}", async |req, reply| {
        let id = id(req)?;
        let mut events = reply.events().await?;
        for number in 0..EVENTS {
            events.send(&Event::new().data(&event(id, number))).await?;
            sleep(req).await;
        }
        Ok(())
    })
    .post_async("/collected/{id}", async |req, reply| {
        sleep(req).await;
        reply.text(account(id(req)?, req.body()))
    })
    .post_streamed("/stream/{id}", async |req, reply| {
        sleep(req).await;
        let body = drain(req).await?;
        sleep(req).await;
        reply.text(account(id(req)?, &body))
    })
    .post_streamed("/echo/{id}", async |req, reply| {
        while let Some(chunk) = req.chunk().await? {
            reply.write(&chunk).await?;
        }
        Ok(())
    })
    .post_streamed("/first/{id}", async |req, reply| {
        // The answer begins before the body was asked for.
        reply.write("first ").await?;
        sleep(req).await;
        let body = drain(req).await?;
        reply.write(account(id(req)?, &body)).await
    })
    .post_streamed("/early/{id}", async |req, reply| {
        sleep(req).await;
        reply.text(account(id(req)?, b""))
    })
}
