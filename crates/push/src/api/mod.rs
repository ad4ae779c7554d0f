//! What programs of the owner's call: `POST /api/METHOD` with JSON, and a key in `X-API-Key`.

use std::sync::Arc;

use bytes::Bytes;
use ringmain_hub::protocol::Fault;
use ringmain_web::{App, Error, Flow, Reply, Request, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::claims::Terms;
use crate::orders::{Order, What};
use crate::place::desk_of;
use crate::publisher::NotPublished;

#[derive(Deserialize)]
struct Publish<'a> {
    channel: String,
    #[serde(borrow)]
    data: &'a RawValue,
}

#[derive(Deserialize)]
struct Broadcast<'a> {
    channels: Vec<String>,
    #[serde(borrow)]
    data: &'a RawValue,
}

/// What is said besides would not be done.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DisconnectUser {
    user: String,
    client: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubscribeUser<'a> {
    user: String,
    channel: String,
    client: Option<String>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UnsubscribeUser {
    user: String,
    channel: String,
    client: Option<String>,
}

#[derive(Serialize)]
struct Done {
    result: Empty,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Failed {
    error: Why,
}

#[derive(Serialize)]
struct Why {
    code: u32,
    message: &'static str,
}

pub(crate) fn serve(app: App) -> App {
    app.group("/api", |group| {
        group
            .before(|request, _| {
                let options = desk_of(request)?.options();
                let Some(key) = &options.api_key else {
                    let what = "nothing is served here: push has no API key";
                    return Err(Error::not_found(what));
                };
                match request.header("x-api-key") {
                    Some(said) if is_same(said.as_bytes(), key.as_bytes()) => Ok(Flow::Continue),
                    _ => Err(Error::unauthorized("expected the API key in X-API-Key")),
                }
            })
            .post("/publish", |request, reply| {
                let Publish { channel, data } = request.json()?;
                publish(request, reply, &[Arc::from(channel)], data)
            })
            .post("/broadcast", |request, reply| {
                let Broadcast { channels, data } = request.json()?;
                let channels: Vec<Arc<str>> = channels.into_iter().map(Arc::from).collect();
                publish(request, reply, &channels, data)
            })
            .post("/disconnect", |request, reply| {
                let DisconnectUser { user, client } = request.json()?;
                order(request, reply, user, client, What::Disconnect)
            })
            .post("/subscribe", |request, reply| {
                let said: SubscribeUser<'_> = request.json()?;
                let bytes = |json: Option<&RawValue>| {
                    let json = json.map(|json| Bytes::copy_from_slice(json.get().as_bytes()));
                    json.unwrap_or_default()
                };
                let terms = Terms {
                    info: bytes(said.info),
                    data: bytes(said.data),
                    ..Terms::default()
                };
                let what = What::Subscribe(said.channel.into(), terms);
                order(request, reply, said.user, said.client, what)
            })
            .post("/unsubscribe", |request, reply| {
                let UnsubscribeUser {
                    user,
                    channel,
                    client,
                } = request.json()?;
                order(request, reply, user, client, What::Unsubscribe(channel.into()))
            })
    })
}

/// In all of these channels, or in none if one of them cannot be.
fn publish(request: &Request<'_>, reply: &mut Reply<'_>, channels: &[Arc<str>], data: &RawValue) -> Result {
    let desk = desk_of(request)?;
    match desk.publish(channels, data.get().as_bytes()) {
        Ok(()) => reply.json(&Done { result: Empty {} }),
        Err(NotPublished::Fault(fault)) => failed(reply, fault),
        Err(NotPublished::Busy) => Err(Error::new(
            503,
            "more is being published than can be carried on; try again a little later",
        )),
    }
}

/// To all connections of a user, or to one of them.
fn order(
    request: &Request<'_>,
    reply: &mut Reply<'_>,
    user: String,
    client: Option<String>,
    what: What,
) -> Result {
    let desk = desk_of(request)?;
    if user.is_empty() {
        return failed(reply, Fault::BAD_REQUEST);
    }
    if let What::Unsubscribe(channel) | What::Subscribe(channel, _) = &what
        && let Err(fault) = desk.options().namespace(channel)
    {
        return failed(reply, fault);
    }
    let order = Order {
        user: user.into(),
        client: client.map(Into::into),
        what,
    };
    match desk.order(order) {
        Ok(()) => reply.json(&Done { result: Empty {} }),
        Err(busy) => Err(Error::new(503, busy.to_string()).with_header("Retry-After", "1")),
    }
}

fn failed(reply: &mut Reply<'_>, fault: Fault) -> Result {
    reply.json(&Failed {
        error: Why {
            code: fault.code,
            message: fault.message,
        },
    })
}

/// In a time that says nothing of where they differ.
fn is_same(said: &[u8], key: &[u8]) -> bool {
    let differ = said.iter().zip(key).fold(0, |differ, (a, b)| differ | (a ^ b));
    said.len() == key.len() && differ == 0
}
