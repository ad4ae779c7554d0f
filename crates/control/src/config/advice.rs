//! Advice on words that a map or an enumeration does not have.

/// Words of another place or of other programs: each with a word that is known here, and advice.
const ELSEWHERE: [(&[&str], &str, &str); 4] = [
    (
        &["path", "method", "headers", "query", "grpc"],
        "match",
        "it is a condition, and belongs into `match`",
    ),
    (
        &["ip", "address", "client", "remote_addr"],
        "source",
        "the client's address is `source`",
    ),
    (
        &["proxy_pass", "backend", "upstream", "reverse_proxy"],
        "redirect",
        "the upstream of a rule is its key `to`",
    ),
    (
        &["listen", "listener", "bind", "port"],
        "metrics",
        "the listen addresses are its key `address`",
    ),
];

/// Returns advice on a word that is not among the `known` ones.
pub(super) fn on_unknown(word: &str, known: &[&str]) -> Option<String> {
    let mut fits = ELSEWHERE
        .iter()
        .filter(|(words, kind, _)| words.contains(&word) && known.contains(kind));
    fits.next().map(|(.., advice)| (*advice).to_owned())
}
