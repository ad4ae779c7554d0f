//! Patterns: their syntax, and their order of precedence.
//!
//! Owns the syntax. Knows nothing of methods and of how paths are matched.

use std::cmp::Ordering;

use super::RouteError;
use crate::limits;

/// A parsed pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoutePattern {
    /// Never empty. A pattern that ends in a slash has an empty literal last.
    pub(super) segments: Vec<Segment>,
    /// Names of the parameters, in the order of their positions.
    pub(super) names: Box<[Box<str>]>,
}

/// The condition on one segment of a path, ordered by precedence: the smaller is the more specific.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    /// This text.
    Literal(Box<str>),
    /// This prefix, one or more bytes, this suffix.
    Parameter {
        /// May be empty.
        prefix: Box<str>,
        /// May be empty.
        suffix: Box<str>,
    },
    /// The rest of the path, one or more bytes.
    Wildcard,
}

impl Segment {
    /// Returns the key of the order. Segments with equal keys match the same texts; the order of others is always defined.
    fn rank(&self) -> impl Ord + '_ {
        let longer_first = |text: &str| usize::MAX - text.len();
        match self {
            Segment::Literal(text) => (0, 0, 0, &**text, ""),
            Segment::Parameter { prefix, suffix } => (
                1,
                longer_first(prefix),
                longer_first(suffix),
                &**prefix,
                &**suffix,
            ),
            Segment::Wildcard => (2, 0, 0, "", ""),
        }
    }
}

impl Ord for Segment {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Segment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Returns the pattern of a route in a group, the concatenation of `prefix` and `pattern`. An empty `pattern` is the route of the
/// prefix itself, `/` that of the prefix with a slash.
///
/// # Errors
/// The prefix does not begin with a slash, ends in one or has a wildcard; the result is not a pattern. An empty prefix is valid.
pub(crate) fn join(prefix: &str, pattern: &str) -> Result<String, RouteError> {
    let refuse = |text: &str, at, problem| {
        let pattern = text.to_owned();
        Err(RouteError::Pattern {
            pattern,
            at,
            what: problem,
        })
    };
    if prefix.ends_with('/') {
        let at = prefix.len() - 1;
        return refuse(
            prefix,
            at,
            "a group's prefix ends in `/`; remove it, its routes start with one",
        );
    }
    if !prefix.is_empty() && RoutePattern::parse(prefix)?.segments.contains(&Segment::Wildcard) {
        return refuse(
            prefix,
            0,
            "a group's prefix has a wildcard; only the last segment of a route may be one",
        );
    }
    if !pattern.is_empty() && !pattern.starts_with('/') {
        return refuse(pattern, 0, NO_SLASH);
    }
    let joined = format!("{prefix}{pattern}");
    RoutePattern::parse(&joined)?;
    Ok(joined)
}

const NO_SLASH: &str = "a route must start with `/`";

/// A fault: its offset, and the fault with its remedy.
type PatternFault = (usize, &'static str);

impl RoutePattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// It is invalid, or exceeds the limits; the fault has the offset and the remedy.
    pub(super) fn parse(text: &str) -> Result<RoutePattern, RouteError> {
        if text.len() > limits::PATTERN_BYTES {
            let beginning = text.chars().take(40).collect();
            let bytes = text.len();
            return Err(RouteError::TooLong { beginning, bytes });
        }
        read(text).map_err(|(at, problem)| RouteError::Pattern {
            pattern: text.to_owned(),
            at,
            what: problem,
        })
    }
}

fn read(text: &str) -> Result<RoutePattern, PatternFault> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err((0, NO_SLASH));
    };
    let (mut segments, mut names) = (Vec::new(), Vec::new());
    let mut at = 1;
    for segment in rest.split('/') {
        if segments.last() == Some(&Segment::Wildcard) {
            return Err((
                at - 1,
                "a wildcard takes the rest of the path: it must be the last segment",
            ));
        }
        let last = at + segment.len() == text.len();
        if segment.is_empty() && !last {
            return Err((
                at,
                "an empty segment never matches: repeated slashes in request paths are merged; remove one",
            ));
        }
        segments.push(read_segment(segment, at, &mut names)?);
        at += segment.len() + 1;
    }
    Ok(RoutePattern {
        segments,
        names: names.into(),
    })
}

/// Parses the segment at `start` of the pattern.
fn read_segment<'p>(text: &'p str, start: usize, names: &mut Vec<Box<str>>) -> Result<Segment, PatternFault> {
    // Other routers use `/:id` and `/*`; taken as literals they would never match the intended paths.
    match text.as_bytes() {
        [b':', _, ..] => return Err((start, "`:name` is no parameter here; write `{name}`")),
        [b'*', ..] => return Err((start, "`*` is no wildcard here; write `{*rest}`")),
        _ => {}
    }
    let mut literal = String::new();
    let mut parameter: Option<(Box<str>, &'p str)> = None;
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            literal.push(next);
            at += 2;
        } else if next == '{' {
            if parameter.is_some() {
                return Err((
                    start + at,
                    "a second parameter in one segment; put a `/` between them",
                ));
            }
            let end = rest
                .find('}')
                .ok_or((start + at, "`{` without `}`; a brace itself is written `{{`"))?;
            parameter = Some((std::mem::take(&mut literal).into(), &rest[1..end]));
            read_name(&rest[1..end], start + at + 1, names)?;
            at += end + 1;
        } else {
            literal.push(read_character(next).map_err(|problem| (start + at, problem))?);
            at += next.len_utf8();
        }
    }
    match parameter {
        None if literal == "." || literal == ".." => Err((
            start,
            "a dot segment never matches: dot segments in request paths are removed; remove it",
        )),
        None => Ok(Segment::Literal(literal.into())),
        Some((prefix, name)) if name.starts_with('*') => {
            if !prefix.is_empty() || !literal.is_empty() {
                return Err((start, "a wildcard is a whole segment; put a `/` before it"));
            }
            Ok(Segment::Wildcard)
        }
        Some((prefix, _)) => Ok(Segment::Parameter {
            prefix,
            suffix: literal.into(),
        }),
    }
}

/// Parses the name between two braces, with the star of a wildcard.
fn read_name(text: &str, at: usize, names: &mut Vec<Box<str>>) -> Result<(), PatternFault> {
    let name = text.strip_prefix('*').unwrap_or(text);
    let is_valid = |index: usize, byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'_' => true,
        b'0'..=b'9' => index > 0,
        _ => false,
    };
    if name.is_empty()
        || !name
            .bytes()
            .enumerate()
            .all(|(index, byte)| is_valid(index, byte))
    {
        return Err((
            at,
            "invalid parameter name; expected a letter or `_`, then letters, digits and `_`",
        ));
    }
    if names.iter().any(|known| **known == *name) {
        return Err((at, "duplicate parameter name"));
    }
    if names.len() == limits::PARAMS {
        return Err((
            at,
            "more than 16 parameters; match the rest of the path with a wildcard",
        ));
    }
    names.push(name.into());
    Ok(())
}

fn read_character(character: char) -> Result<char, &'static str> {
    match character {
        '}' => Err("`}` without `{`; a brace itself is written `}}`"),
        '%' => Err("`%`, but routes are matched against the decoded path; write the decoded character"),
        '?' => Err("`?`, but the query is not part of a route; remove it and read the query in the handler"),
        '#' => Err("`#`, but fragments are not sent to servers; remove it"),
        character if character.is_control() => Err("a control character; remove it"),
        character => Ok(character),
    }
}
