//! How a connection ends in order.

use ringmain_wire::h2::{ErrorCode, Limits};

use crate::h2::support::*;

fn answer(side: &mut Side, heard: &[Heard]) {
    let stream = heard[0].0.expect("a stream");
    side.connection
        .respond(stream, 204, &mut side.out)
        .expect("a head")
        .finish(true);
}

fn goaway(last: u32) -> (u8, u8, u32, Vec<u8>) {
    (GOAWAY, 0, 0, [last.to_be_bytes(), [0; 4]].concat())
}

#[test]
fn who_comes_meanwhile_is_answered_and_who_comes_later_is_not() {
    let mut side = Side::server(&Limits::INTERNET);
    let first = side.hear(&post(1)).expect("a request");
    side.connection.announce_end(&mut side.out);
    let frames = side.frames();
    assert_eq!(frames[0], goaway(i32::MAX as u32));
    assert_eq!((frames[1].0, frames[1].1), (PING, 0));
    // It was on its way.
    let second = side.hear(&get(3)).expect("a request");
    assert_eq!(second.len(), 1);
    side.hear(&frame(PING, ACK, 0, &frames[1].3))
        .expect("the client confirms");
    assert_eq!(side.frames(), [goaway(3)]);
    assert!(side.connection.is_going_away());
    assert_eq!(
        side.hear(&[get(5), frame(DATA, 0, 5, b"late")].concat()),
        Ok(vec![])
    );
    assert!(side.out.is_empty());
    answer(&mut side, &second);
    assert!(!side.connection.is_idle());
    assert_eq!(
        side.hear(&frame(DATA, END_STREAM, 1, b"a")).expect("data").len(),
        1
    );
    answer(&mut side, &first);
    assert!(side.connection.is_idle());
}

#[test]
fn the_end_can_be_told_at_once_and_only_once() {
    let mut side = Side::server(&Limits::INTERNET);
    side.hear(&get(1)).expect("a request");
    side.connection.go_away(&mut side.out);
    side.connection.go_away(&mut side.out);
    side.connection.announce_end(&mut side.out);
    assert_eq!(side.frames(), [goaway(1)]);
}

#[test]
fn a_client_learns_which_requests_were_lost() {
    let mut client = Side::client(&Limits::INTERNET);
    let first = crate::h2::messages::ask(&mut client, "GET", true);
    let second = crate::h2::messages::ask(&mut client, "GET", true);
    let told = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(texts(&client.hear(&told).expect("GOAWAY")), ["goaway 1 NO_ERROR"]);
    assert!(client.connection.is_open(first) && !client.connection.is_open(second));
    assert!(!client.connection.can_open());
}

#[test]
fn a_client_opens_no_more_streams_than_its_server_takes() {
    let mut client = Side::client(&Limits::INTERNET);
    client.hear(&settings(&[(3, 1)])).expect("settings");
    assert!(client.connection.can_open());
    let stream = crate::h2::messages::ask(&mut client, "GET", true);
    assert!(!client.connection.can_open());
    client
        .connection
        .reset(stream, ErrorCode::CANCEL, &mut client.out);
    assert!(client.connection.can_open());
}

#[test]
fn a_ping_is_answered_and_a_pong_is_told() {
    let mut side = Side::server(&Limits::INTERNET);
    assert_eq!(side.hear(&frame(PING, 0, 0, b"abcdefgh")), Ok(vec![]));
    assert_eq!(side.frames(), [(PING, ACK, 0, b"abcdefgh".to_vec())]);
    side.connection.ping(*b"12345678", &mut side.out);
    assert_eq!(side.frames(), [(PING, 0, 0, b"12345678".to_vec())]);
    assert_eq!(
        texts(&side.hear(&frame(PING, ACK, 0, b"12345678")).expect("a pong")),
        ["pong 12345678"]
    );
}
