//! Clients that may open a socket, and the responses to those that may not.

use ringmain_web::testing::TestClient;
use ringmain_web::{App, Error, Flow, Limits, Request, Result, WsOptions};

use crate::ws::support::{Echo, Ends, echo, echo_with};

#[test]
fn what_is_no_upgrade_is_told_what_would_be() {
    let (mut client, _) = echo();
    let reply = client.get("/echo").send();
    assert_eq!(reply.status(), 426);
    assert_eq!(reply.header("upgrade"), Some("websocket"));
    assert_eq!(reply.header("sec-websocket-version"), Some("13"));
    assert!(!reply.closes());
    assert!(
        reply.text().contains("expected `Upgrade: websocket`"),
        "{}",
        reply.text()
    );
    assert_eq!(client.head("/echo").send().status(), 426);
    let reply = client.post("/echo").send();
    assert_eq!(
        (reply.status(), reply.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    // The connection lives on.
    assert_eq!(client.get("/").send().text(), "alive");
    client.finish().unwrap();
}

#[test]
fn pages_of_the_same_host_may() {
    let (mut client, _) = echo();
    for (origin, host, may) in [
        ("http://localhost", "localhost", true),
        ("https://LOCALHOST", "localhost:443", true),
        ("http://localhost:8080", "localhost:8080", true),
        ("http://evil.example", "localhost", false),
        ("http://localhost:8080", "localhost", false),
        ("null", "localhost", false),
    ] {
        let upgrade = client.ws("/echo").host(host).header("Origin", origin);
        if may {
            drop(upgrade.open());
        } else {
            assert_eq!(upgrade.refused().status(), 403, "{origin}");
        }
    }
    let twice = client
        .ws("/echo")
        .header("Origin", "http://localhost")
        .header("Origin", "http://localhost");
    assert_eq!(twice.refused().status(), 403);
    client.finish().unwrap();
}

#[test]
fn further_pages_may_by_a_list_or_all() {
    let listed = WsOptions::new()
        .allow_origin("https://*.example.com")
        .allow_origin("http://b");
    let (mut client, _) = echo_with(Limits::default(), &listed);
    for origin in ["https://x.example.com", "http://b", "http://localhost"] {
        drop(client.ws("/echo").header("Origin", origin).open());
    }
    assert_eq!(
        client.ws("/echo").header("Origin", "http://c").refused().status(),
        403
    );
    let (mut client, _) = echo_with(Limits::default(), &WsOptions::new().allow_any_origin());
    drop(client.ws("/echo").header("Origin", "null").open());
}

#[test]
fn settings_are_checked_when_the_application_is_built() {
    let build = |options: &WsOptions| {
        App::new()
            .ws_with("/a", options, Echo::open)
            .build()
            .unwrap_err()
            .to_string()
    };
    let error = build(&WsOptions::new().allow_origin("*"));
    assert!(error.contains("`/a`") && error.contains("`*`"), "{error}");
    let error = build(&WsOptions::new().protocols(&["a b"]));
    assert!(error.contains("different tokens"), "{error}");
}

#[test]
fn the_client_s_order_decides_about_subprotocols() {
    let (mut client, _) = echo_with(Limits::default(), &WsOptions::new().protocols(&["a", "b"]));
    assert_eq!(
        client.ws("/echo").protocols(&["x", "b", "a"]).open().protocol(),
        Some("b")
    );
    assert_eq!(client.ws("/echo").protocols(&["x"]).open().protocol(), None);
    assert_eq!(client.ws("/echo").open().protocol(), None);
}

#[test]
fn hooks_and_the_route_may_refuse() {
    fn authenticate(request: &Request<'_>) -> Result<Flow> {
        match request.header("authorization") {
            Some("secret") => Ok(Flow::Continue),
            _ => Err(Error::unauthorized("expected a token")),
        }
    }
    let app = App::new()
        .state(Ends::default())
        .request_ids()
        .after(|_, reply| reply.header("X-After", "yes").map(drop))
        .group("/api", |api| {
            api.before(|request, _| authenticate(request))
                .ws("/{room}", |request| {
                    if request.param("room")? == "full" {
                        return Err(Error::conflict("the room is full"));
                    }
                    Echo::open(request)
                })
        });
    let mut client = TestClient::new(app).unwrap();
    let reply = client.ws("/api/blue").refused();
    assert_eq!((reply.status(), reply.header("x-after")), (401, Some("yes")));
    let reply = client.ws("/api/full").header("Authorization", "secret").refused();
    assert_eq!((reply.status(), reply.header("x-after")), (409, Some("yes")));
    let mut socket = client.ws("/api/blue").header("Authorization", "secret").open();
    socket.send_text("in");
    assert_eq!(socket.text(), "in");
    drop(socket);
    client.finish().unwrap();
}
