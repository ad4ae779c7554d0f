//! Watches over lines that a test has written. Tests with an API server are in the suite `kube`.

use serde_json::{Value, json};

use super::error::Error;
use super::watch::{Event, Watch};

/// All events of a watch of these bytes, and how it ended.
fn events(text: &str) -> (Vec<Event<Value>>, Option<Error>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let bytes = text.as_bytes().to_vec();
    runtime.block_on(async move {
        let mut watch = Watch::new("GET /things".to_owned(), futures_util::io::Cursor::new(bytes));
        let mut events = Vec::new();
        loop {
            match watch.next().await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => return (events, None),
                Err(error) => return (events, Some(error)),
            }
        }
    })
}

#[test]
fn lines_are_events() {
    let (events, error) = events(
        "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n\n{\"object\":{\"a\":2},\"type\":\"MODIFIED\"}\n\
         {\"type\":\"DELETED\",\"object\":{\"a\":3}}\n\
         {\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Thing\",\"metadata\":{\"resourceVersion\":\"17\"}}}\n",
    );
    assert_eq!(error, None);
    assert_eq!(
        events,
        [
            Event::Put(json!({"a": 1})),
            Event::Put(json!({"a": 2})),
            Event::Deleted(json!({"a": 3})),
            Event::Bookmark("17".to_owned()),
        ]
    );
}

#[test]
fn incomplete_last_line_is_dropped() {
    let (events, error) = events("{\"type\":\"ADDED\",\"object\":1}\n{\"type\":\"ADDED\",\"obj");
    assert_eq!((events.len(), error), (1, None));
}

#[test]
fn expired_version_is_an_error_of_its_own() {
    let line = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,\"reason\":\"Expired\",\"message\":\"too old\"}}\n";
    let (events, error) = events(line);
    assert!(events.is_empty());
    let error = error.unwrap();
    assert!(error.is_expired() && !error.is_conflict(), "{error}");
    assert_eq!(error.to_string(), "GET /things: 410 Expired: too old");
}

#[test]
fn other_lines_are_errors() {
    for line in [
        "nonsense\n",
        "{\"type\":\"OTHER\",\"object\":{}}\n",
        "{\"type\":\"ADDED\"}\n",
    ] {
        let (events, error) = events(line);
        assert!(events.is_empty(), "{line}");
        assert!(
            matches!(error, Some(Error::Unexpected { .. })),
            "{line}: {error:?}"
        );
    }
}

#[test]
fn endless_line_is_an_error() {
    let (events, error) = events(&"x".repeat(crate::limits::LINE_BYTES + 1));
    assert!(events.is_empty());
    assert!(error.unwrap().to_string().contains("an object of more than"));
}

#[test]
fn denied_request_says_the_missing_right() {
    let error = Error::Refused {
        request: "GET /apis/x".to_owned(),
        status: 403,
        reason: "Forbidden".to_owned(),
        message: "no".to_owned(),
    };
    assert!(error.is_denied());
    assert!(error.to_string().ends_with("by a ClusterRole and its binding"));
}
