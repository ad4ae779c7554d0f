//! Answers of push servers, whole, cut and wrong.

use super::answer;

#[test]
fn answers_are_read_wherever_they_are_cut() {
    for (text, status, refusal) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{\"result\":{}}",
            200,
            None,
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\n{}", 200, None),
        (
            "HTTP/1.1 503 Busy\r\nContent-Length: 19\r\n\r\n{\"detail\":\"later\"}  ",
            503,
            Some("later"),
        ),
        ("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", 500, Some("")),
    ] {
        for cut in 0..text.len() {
            assert!(
                matches!(answer(&text.as_bytes()[..cut]), Ok(None)),
                "{text} at {cut}"
            );
        }
        let both = format!("{text}HTTP/1.1 200 OK\r\n");
        let (found, said, length) = answer(both.as_bytes()).expect("an answer").expect("all of it");
        assert_eq!((found, length), (status, text.len()));
        assert_eq!(said.as_deref(), refusal, "{text}");
    }
    let error = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"error\":{\"code\":102}}";
    let (_, said, _) = answer(error.as_bytes()).expect("an answer").expect("all of it");
    assert_eq!(said.as_deref(), Some("{\"code\":102}"));
}

#[test]
fn what_is_no_answer_ends_it() {
    for text in [
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n\r\n",
    ] {
        assert!(answer(text.as_bytes()).is_err(), "{text}");
    }
    assert!(answer(&vec![b'x'; super::FEED_ANSWER + 1]).is_err());
}
