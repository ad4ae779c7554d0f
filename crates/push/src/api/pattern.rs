//! Patterns of channel names, as in Centrifugo's API. Pure.
//!
//! `*` and `**` match any text, `?` any character, `[abc]`, `[a-z]` and `[!a-z]` one character of a class, `{one,other}` one of several
//! patterns, `\` takes the next character literally. All alternatives are followed at once, so the cost of a match is bounded by the
//! pattern's length.

use ringmain_hub::protocol::Fault;

use crate::limits;

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ChannelPattern(Vec<PatternStep>);

#[derive(Debug, PartialEq, Eq)]
enum PatternStep {
    Byte(u8),
    Any,
    /// One character within these ranges, or outside them.
    Class {
        is_included: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// The next step, or this one.
    Or(usize),
    Jump(usize),
}

impl ChannelPattern {
    /// Parses the pattern of a request. `None`: all channels, also for an empty text.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`]: it is invalid, or exceeds [`limits::PATTERN_BYTES`].
    pub(crate) fn parse_optional(text: Option<&str>) -> Result<Option<ChannelPattern>, Fault> {
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let pattern = Some(text).filter(|text| text.len() <= limits::PATTERN_BYTES);
        let pattern = pattern.and_then(ChannelPattern::parse);
        pattern.map(Some).ok_or(Fault::BAD_REQUEST)
    }

    /// Parses a pattern. `None`: a class or a choice is not closed, or a class is empty.
    pub(crate) fn parse(text: &str) -> Option<ChannelPattern> {
        let mut steps = Vec::new();
        let rest = parse_until(text.as_bytes(), false, &mut steps)?;
        rest.is_empty().then_some(ChannelPattern(steps))
    }

    /// Returns whether a name, which is ASCII, matches.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (mut now, mut next) = (self.empty_states(), self.empty_states());
        self.activate(0, &mut now);
        for byte in name.bytes() {
            next.fill(false);
            for (at, step) in self.0.iter().enumerate().filter(|(at, _)| now[*at]) {
                let successor = match step {
                    PatternStep::Byte(literal) => *literal == byte,
                    PatternStep::Any => true,
                    PatternStep::Class { is_included, ranges } => {
                        let is_in_set = ranges
                            .iter()
                            .any(|(first, last)| (*first..=*last).contains(&byte));
                        is_in_set == *is_included
                    }
                    PatternStep::Or(_) | PatternStep::Jump(_) => false,
                };
                if successor {
                    self.activate(at + 1, &mut next);
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        now[self.0.len()]
    }

    fn empty_states(&self) -> Vec<bool> {
        vec![false; self.0.len() + 1]
    }

    /// Activates a step, and the steps that are reachable from it without a character.
    fn activate(&self, at: usize, states: &mut [bool]) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut states[at], true) {
                continue;
            }
            match self.0.get(at) {
                Some(PatternStep::Or(other)) => open.extend([at + 1, *other]),
                Some(PatternStep::Jump(to)) => open.push(*to),
                _ => {}
            }
        }
    }
}

/// Appends the steps of a text; within a choice, up to its `,` or `}`. Returns the rest of the text.
fn parse_until<'t>(mut text: &'t [u8], in_choice: bool, steps: &mut Vec<PatternStep>) -> Option<&'t [u8]> {
    while let [first, rest @ ..] = text {
        text = match first {
            b'*' => {
                // Repeat this step with any character, or continue.
                let at = steps.len();
                steps.extend([PatternStep::Or(at + 3), PatternStep::Any, PatternStep::Jump(at)]);
                rest
            }
            b'?' => {
                steps.push(PatternStep::Any);
                rest
            }
            b'[' => parse_class(rest, steps)?,
            b'{' => parse_choice(rest, steps)?,
            b',' | b'}' if in_choice => return Some(text),
            b'\\' => {
                let (byte, rest) = rest.split_first()?;
                steps.push(PatternStep::Byte(*byte));
                rest
            }
            byte => {
                steps.push(PatternStep::Byte(*byte));
                rest
            }
        };
    }
    Some(text)
}

fn parse_class<'t>(text: &'t [u8], steps: &mut Vec<PatternStep>) -> Option<&'t [u8]> {
    let (is_included, mut text) = match text {
        [b'!', rest @ ..] => (false, rest),
        _ => (true, text),
    };
    let mut ranges = Vec::new();
    loop {
        text = match text {
            [b']', ..] if ranges.is_empty() => return None,
            [b']', rest @ ..] => {
                steps.push(PatternStep::Class { is_included, ranges });
                return Some(rest);
            }
            [first, b'-', last, rest @ ..] if *last != b']' => {
                ranges.push((*first, *last));
                rest
            }
            [byte, rest @ ..] => {
                ranges.push((*byte, *byte));
                rest
            }
            [] => return None,
        };
    }
}

fn parse_choice<'t>(mut text: &'t [u8], steps: &mut Vec<PatternStep>) -> Option<&'t [u8]> {
    let mut accepted = Vec::new();
    loop {
        let branch = steps.len();
        steps.push(PatternStep::Or(0));
        text = parse_until(text, true, steps)?;
        let (end, rest) = text.split_first()?;
        text = rest;
        accepted.push(steps.len());
        steps.push(PatternStep::Jump(0));
        let next = steps.len();
        if *end == b'}' {
            // The last branch has no alternative.
            steps[branch] = PatternStep::Jump(branch + 1);
            for end in accepted {
                steps[end] = PatternStep::Jump(next);
            }
            return Some(text);
        }
        steps[branch] = PatternStep::Or(next);
    }
}

#[cfg(test)]
mod tests {
    use super::ChannelPattern;

    #[track_caller]
    fn check(pattern: &str, of: &[&str], others: &[&str]) {
        let parsed = ChannelPattern::parse(pattern).expect(pattern);
        for name in of {
            assert!(parsed.matches(name), "{pattern}: {name}");
        }
        for name in others {
            assert!(!parsed.matches(name), "{pattern}: {name}");
        }
    }

    #[test]
    fn patterns_match_names() {
        check("news", &["news"], &["new", "newsy", "", "News"]);
        check("*", &["", "a", "a:b"], &[]);
        check("chat:*", &["chat:", "chat:a:b"], &["chat", "xchat:a"]);
        check("**:a*b", &["x:ab", ":a:a:b", "x:y:a-b"], &["ab", "x:ba"]);
        check("a?c", &["abc", "a:c"], &["ac", "abbc"]);
        check("[a-c]x[!0-9]", &["axa", "cx-"], &["dxa", "ax1", "ax"]);
        check("[-a]", &["-", "a"], &["b"]);
        check("[a-]", &["-", "a"], &["b"]);
        check("{chat,news}:*", &["chat:1", "news:"], &["other:1", "chat"]);
        check("x{,a{b,c?}}y", &["xy", "xaby", "xacdy"], &["xay", "xacy"]);
        check(r"\*\{", &["*{"], &["a{", r"\*\{"]);
        check("a,b}", &["a,b}"], &["a", "b"]);
    }

    #[test]
    fn unclosed_patterns_are_invalid() {
        for text in ["[", "[a", "[]", "[!]", "{", "{a", "{a,", "x{a,{b}", r"a\"] {
            assert_eq!(ChannelPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn matching_is_bounded_by_the_length_of_the_pattern() {
        let pattern = ChannelPattern::parse(&"*a".repeat(127)).expect("a pattern");
        assert!(!pattern.matches(&"a".repeat(126)));
        assert!(pattern.matches(&"a".repeat(255)));
        let nested = ChannelPattern::parse(&format!("{}x{}", "{".repeat(120), "}".repeat(120)));
        assert!(nested.expect("a pattern").matches("x"));
    }
}
