//! The expressions that the rule counts, and the matcher over the words of a paragraph.
//!
//! Mirrors the list in the section "Language" of CONTRIBUTING.md. Knows nothing of files and ceilings.

use super::prose::ProseWord;

/// One expression of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Expression {
    Anew,
    ByProtocol,
    Come,
    ForEver,
    GoOn,
    HowFirst,
    IsOver,
    IsThere,
    IsTold,
    Nobody,
    OfIt,
    Stand,
    What,
    WhatFirst,
    Who,
    WhoFirst,
}

use Expression::{
    Anew, ByProtocol, Come, ForEver, GoOn, HowFirst, IsOver, IsThere, IsTold, Nobody, OfIt, Stand, What,
    WhatFirst, Who, WhoFirst,
};

/// Every expression: its name in the file of ceilings, its form in a finding, and its replacement.
const EXPRESSIONS: &[(Expression, &str, &str, &str)] = &[
    (Anew, "anew", "`anew`", "again"),
    (
        ByProtocol,
        "by-protocol",
        "`by` a protocol",
        "over HTTP/2, over TLS, through tasks",
    ),
    (
        Come,
        "come",
        "`come`, `comes`, `coming`, `came`",
        "arrive, receive, follow, result from",
    ),
    (ForEver, "for-ever", "`for ever`", "permanently, without a limit"),
    (GoOn, "go-on", "`go on`, `goes on`", "continue, resume, retry"),
    (
        HowFirst,
        "how-first",
        "a text that begins with How, Where, When, Whether or Why",
        "a verb in the third person (`Returns`, `Sends`), a noun phrase with an article, or the subject of the sentence",
    ),
    (
        IsOver,
        "is-over",
        "`is over`, `was over`",
        "closed, finished, expired",
    ),
    (
        IsThere,
        "is-there",
        "`is there`, `are there`",
        "exists, is present, is open",
    ),
    (
        IsTold,
        "is-told",
        "`is told`, `was told`",
        "receives, is notified, is configured with",
    ),
    (
        Nobody,
        "nobody",
        "`nobody`, `somebody`, `he`, `his`",
        "the client, the caller, the operator; no client, no caller",
    ),
    (
        OfIt,
        "of-it",
        "`of it`, `of them`, `of all`",
        "the noun, or its, their, every",
    ),
    (
        Stand,
        "stand",
        "`stand`, `stands`, `stood`",
        "is established, is located, represents, remains",
    ),
    (
        What,
        "what",
        "a clause with `what` and no noun",
        "the noun: the request, the response, the field, the error",
    ),
    (
        WhatFirst,
        "what-first",
        "a text that begins with What",
        "a verb in the third person (`Returns`, `Sends`), or a noun phrase with an article",
    ),
    (
        Who,
        "who",
        "a clause with `who` and no noun",
        "the noun: the client, the peer, the caller, the worker",
    ),
    (
        WhoFirst,
        "who-first",
        "a text that begins with Who",
        "the noun: the client, the peer, the caller, the worker",
    ),
];

impl Expression {
    fn row(self) -> &'static (Expression, &'static str, &'static str, &'static str) {
        let row = EXPRESSIONS.iter().find(|row| row.0 == self);
        row.expect("every expression has a row")
    }

    /// Returns its name in the file of ceilings.
    pub(crate) fn name(self) -> &'static str {
        self.row().1
    }

    /// Describes the expression in a finding.
    pub(crate) fn shown(self) -> &'static str {
        self.row().2
    }

    /// Lists the words to write in its place.
    pub(crate) fn instead(self) -> &'static str {
        self.row().3
    }

    /// Finds an expression by its name in the file of ceilings.
    pub(crate) fn named(name: &str) -> Option<Expression> {
        EXPRESSIONS.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// Words after a headless "what".
const AFTER_WHAT: &[&str] = &[
    "is", "was", "came", "comes", "follows", "has", "had", "does", "waits", "belongs", "stands", "lies",
    "arrives", "goes", "becomes", "they", "it", "a", "an", "the", "this", "others",
];

/// Words after a headless "who".
const AFTER_WHO: &[&str] = &[
    "is", "has", "was", "does", "may", "speaks", "waits", "sends", "asks", "reads", "wants", "writes",
    "listens", "comes", "answers", "knows", "cannot", "can", "gives", "takes", "says", "closes", "makes",
    "had",
];

/// Nouns that a clause with "who" may follow.
const BEFORE_WHO: &[&str] = &["client", "clients", "peer", "peers", "those", "anyone"];

/// Beginnings of the word after "by".
const PROTOCOLS: &[&str] = &[
    "HTTP",
    "TLS",
    "gRPC",
    "WebSocket",
    "SSE",
    "ALPN",
    "tasks",
    "streams",
];

/// Calls `report` for every expression that begins at `words[index]`, with its number of words.
pub(super) fn at(words: &[ProseWord<'_>], index: usize, mut report: impl FnMut(Expression, usize)) {
    let word = &words[index];
    let next = words.get(index + 1).filter(|next| next.is_adjacent);
    let next_is = |list: &[&str]| next.is_some_and(|next| list.contains(&next.text));
    match word.text {
        "What" | "what" => {
            if word.is_first && word.text == "What" {
                report(WhatFirst, 1);
            }
            let is_headless = word.is_first || matches!(word.before, ' ' | '\n' | ',' | ';' | ':' | '(');
            if is_headless && next_is(AFTER_WHAT) {
                report(What, 2);
            }
        }
        "Who" | "who" => {
            if word.is_first && word.text == "Who" {
                report(WhoFirst, 1);
            }
            let noun = index.checked_sub(1).map(|before| words[before].text);
            if next_is(AFTER_WHO) && !noun.is_some_and(|noun| BEFORE_WHO.contains(&noun)) {
                report(Who, 2);
            }
        }
        // A how-to guide is a kind of page.
        "How"
            if words
                .get(index + 1)
                .is_some_and(|next| next.text == "to" && next.before == '-') => {}
        "How" | "Where" | "When" | "Whether" | "Why" if word.is_first => report(HowFirst, 1),
        "is" | "are" | "was" | "were" => match next.map(|next| next.text) {
            Some("there") => report(IsThere, 2),
            Some("over") => report(IsOver, 2),
            Some("told") => report(IsTold, 2),
            _ => {}
        },
        "of" | "Of" if next_is(&["it", "them", "all"]) => report(OfIt, 2),
        "go" | "goes" if next_is(&["on"]) => report(GoOn, 2),
        "anew" | "Anew" => report(Anew, 1),
        "nobody" | "Nobody" | "somebody" | "Somebody" | "he" | "He" | "his" | "His" => report(Nobody, 1),
        "for" | "For" if next_is(&["ever"]) => report(ForEver, 2),
        "came" | "comes" | "coming" | "come" | "Came" | "Comes" | "Coming" | "Come" => report(Come, 1),
        "stands" | "stood" | "stand" | "Stands" | "Stood" | "Stand" => report(Stand, 1),
        "by" | "By" => {
            let names =
                |next: &ProseWord<'_>| PROTOCOLS.iter().any(|protocol| next.text.starts_with(protocol));
            if next.is_some_and(names) {
                report(ByProtocol, 2);
            }
        }
        _ => {}
    }
}
