//! Handlers that wait for messages in their own order.

use std::time::Duration;

use ringmain_web::testing::{TestClient, TestEvent};
use ringmain_web::ws::OwnedMessage;
use ringmain_web::{App, Error, WsStream};

fn app() -> App {
    App::new()
        .ws_async("/greet/{name}", |request, mut ws: WsStream| {
            let name = request.param("name")?.into_owned();
            if name == "nobody" {
                return Err(Error::forbidden("nobody is nobody"));
            }
            Ok(async move {
                ws.send_text(format!("Hello, {name}!")).await?;
                while let Some(message) = ws.next().await? {
                    match message {
                        OwnedMessage::Text(text) if text == "stop" => return Ok(()),
                        OwnedMessage::Text(text) if text == "fail" => {
                            return Err(Error::bad_request("as was asked"));
                        }
                        OwnedMessage::Text(text) if text == "panic" => panic!("planned"),
                        message => ws.send(message.borrowed()).await?,
                    }
                }
                Ok(())
            })
        })
        .ws_async("/late", |request, mut ws| {
            let cx = request.cx().clone();
            Ok(async move {
                cx.sleep(Duration::from_secs(10)).await;
                let mut bytes = 0;
                while let Some(message) = ws.next().await? {
                    bytes += message.data().len();
                    ws.send_text(bytes.to_string()).await?;
                }
                Ok(())
            })
        })
        .ws_async("/meanwhile", |request, ws| {
            let cx = request.cx().clone();
            Ok(async move {
                ws.ws().send_binary(vec![7; 2_000_000]);
                for tick in 0_u32..20 {
                    cx.sleep(Duration::from_millis(1)).await;
                    ws.ws().send_text(tick.to_string());
                }
                Ok(())
            })
        })
        .ws_async("/ticks", |request, ws| {
            let cx = request.cx().clone();
            Ok(async move {
                for tick in 0_u32.. {
                    ws.send_text(tick.to_string()).await?;
                    cx.sleep(Duration::from_secs(1)).await;
                }
                Ok(())
            })
        })
}

#[test]
fn a_task_converses() {
    let mut client = TestClient::new(app()).unwrap();
    assert_eq!(client.ws("/greet/nobody").refused().status(), 403);
    let mut socket = client.ws("/greet/you").open();
    assert_eq!(socket.text(), "Hello, you!");
    for text in ["one", "two"] {
        socket.send_text(text);
    }
    assert_eq!((socket.text(), socket.text()), ("one".into(), "two".into()));
    socket.send_binary([1, 2]);
    assert_eq!(socket.message(), OwnedMessage::Binary(vec![1, 2]));
    socket.close(1000, "");
    assert_eq!(socket.closed().0, 1000);
    assert_eq!(socket.event().unwrap(), TestEvent::End);
    client.finish().unwrap();
}

#[test]
fn a_task_s_end_is_the_socket_s() {
    for (order, code, reason) in [
        ("stop", 1000, ""),
        ("fail", 1008, "as was asked"),
        ("panic", 1011, ""),
    ] {
        let mut client = TestClient::new(app()).unwrap();
        let mut socket = client.ws("/greet/you").open();
        socket.send_text(order);
        assert_eq!(socket.closed(), (code, reason.into()), "{order}");
        assert_eq!(socket.event().unwrap(), TestEvent::End);
        client.finish().unwrap();
    }
}

#[test]
fn messages_wait_for_a_task_that_does_not_ask() {
    let mut client = TestClient::new(app()).unwrap();
    let mut socket = client.ws("/late").open();
    for _ in 0..40 {
        socket.send_binary([1; 10_000]);
    }
    for at in 1..=40 {
        assert_eq!(socket.text(), (at * 10_000).to_string());
    }
    socket.close(1000, "");
    assert_eq!(socket.closed().0, 1000);
    client.finish().unwrap();
}

#[test]
fn what_is_sent_meanwhile_waits_its_turn() {
    let mut client = TestClient::new(app()).unwrap();
    let mut socket = client.ws("/meanwhile").open();
    // So much at a time that the large message takes longer than the ticks.
    let mut bytes = Vec::new();
    while bytes.len() < 2_000_010 {
        socket.advance(Duration::from_millis(1));
        bytes.extend(socket.connection().take(50_000.min(2_000_010 - bytes.len())));
    }
    assert_eq!(bytes[..10], [0x82, 127, 0, 0, 0, 0, 0, 0x1E, 0x84, 0x80]);
    assert!(bytes[10..].iter().all(|&byte| byte == 7), "something is between");
    for tick in 0..20 {
        assert_eq!(socket.text(), tick.to_string());
    }
    assert_eq!(socket.closed().0, 1000);
    client.finish().unwrap();
}

#[test]
fn a_task_sees_that_its_client_disconnected() {
    let mut client = TestClient::new(app()).unwrap();
    let mut socket = client.ws("/ticks").open();
    for tick in 0..3 {
        assert_eq!(socket.text(), tick.to_string());
    }
    drop(socket);
    client.advance(Duration::from_secs(3));
    // No task holds the shutdown up.
    client.finish().unwrap();
}
