//! The boundaries of messages that a gateway writes to an origin.

/// Returns the length of the first message if it is complete.
pub(super) fn message(bytes: &[u8]) -> Option<usize> {
    let text = String::from_utf8_lossy(bytes);
    let head = text.find("\r\n\r\n")? + 4;
    let lower = text[..head].to_ascii_lowercase();
    if lower.contains("\r\ntransfer-encoding: chunked\r\n") {
        let end = text[head..].find("0\r\n\r\n")?;
        return Some(head + end + 5);
    }
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |value| value.parse().expect("the gateway says how long it is"));
    (bytes.len() >= head + length).then_some(head + length)
}
