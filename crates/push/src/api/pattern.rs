//! Patterns of channels' names, as Centrifugo's API has them. Pure.
//!
//! `*` and `**` are any text, `?` is any character, `[abc]`, `[a-z]` and `[!a-z]` one of some, `{one,other}` one of several patterns,
//! `\` takes its meaning from the next. All of it is followed at once, so what a pattern costs is bounded by its length.

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Step>);

#[derive(Debug, PartialEq, Eq)]
enum Step {
    Byte(u8),
    Any,
    /// One of these, or none of them.
    Class {
        is_included: bool,
        ranges: Vec<(u8, u8)>,
    },
    /// The next step, or this one.
    Or(usize),
    Jump(usize),
}

impl Pattern {
    /// `None`: it cannot be: a class or a choice has no end, or nothing is in a class.
    pub(crate) fn parse(text: &str) -> Option<Pattern> {
        let mut steps = Vec::new();
        let rest = parse_until(text.as_bytes(), false, &mut steps)?;
        rest.is_empty().then_some(Pattern(steps))
    }

    /// Whether a name, which is ASCII, is of it.
    pub(crate) fn matches(&self, name: &str) -> bool {
        let (mut now, mut next) = (self.empty_states(), self.empty_states());
        self.activate(0, &mut now);
        for byte in name.bytes() {
            next.fill(false);
            for (at, step) in self.0.iter().enumerate().filter(|(at, _)| now[*at]) {
                let goes = match step {
                    Step::Byte(own) => *own == byte,
                    Step::Any => true,
                    Step::Class { is_included, ranges } => {
                        let is_in = ranges
                            .iter()
                            .any(|(first, last)| (*first..=*last).contains(&byte));
                        is_in == *is_included
                    }
                    Step::Or(_) | Step::Jump(_) => false,
                };
                if goes {
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

    /// Goes on to a step, and to what can be reached from it without a character.
    fn activate(&self, at: usize, states: &mut [bool]) {
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut states[at], true) {
                continue;
            }
            match self.0.get(at) {
                Some(Step::Or(other)) => open.extend([at + 1, *other]),
                Some(Step::Jump(to)) => open.push(*to),
                _ => {}
            }
        }
    }
}

/// Appends the steps of a text; within a choice, up to its `,` or `}`. Returns what is left.
fn parse_until<'t>(mut text: &'t [u8], in_choice: bool, steps: &mut Vec<Step>) -> Option<&'t [u8]> {
    while let [first, rest @ ..] = text {
        text = match first {
            b'*' => {
                // Stay here by any character, or go on.
                let at = steps.len();
                steps.extend([Step::Or(at + 3), Step::Any, Step::Jump(at)]);
                rest
            }
            b'?' => {
                steps.push(Step::Any);
                rest
            }
            b'[' => parse_class(rest, steps)?,
            b'{' => parse_choice(rest, steps)?,
            b',' | b'}' if in_choice => return Some(text),
            b'\\' => {
                let (byte, rest) = rest.split_first()?;
                steps.push(Step::Byte(*byte));
                rest
            }
            byte => {
                steps.push(Step::Byte(*byte));
                rest
            }
        };
    }
    Some(text)
}

fn parse_class<'t>(text: &'t [u8], steps: &mut Vec<Step>) -> Option<&'t [u8]> {
    let (is_included, mut text) = match text {
        [b'!', rest @ ..] => (false, rest),
        _ => (true, text),
    };
    let mut ranges = Vec::new();
    loop {
        text = match text {
            [b']', ..] if ranges.is_empty() => return None,
            [b']', rest @ ..] => {
                steps.push(Step::Class { is_included, ranges });
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

fn parse_choice<'t>(mut text: &'t [u8], steps: &mut Vec<Step>) -> Option<&'t [u8]> {
    let mut ends = Vec::new();
    loop {
        let branch = steps.len();
        steps.push(Step::Or(0));
        text = parse_until(text, true, steps)?;
        let (end, rest) = text.split_first()?;
        text = rest;
        ends.push(steps.len());
        steps.push(Step::Jump(0));
        let next = steps.len();
        if *end == b'}' {
            // The last has no other one.
            steps[branch] = Step::Jump(branch + 1);
            for end in ends {
                steps[end] = Step::Jump(next);
            }
            return Some(text);
        }
        steps[branch] = Step::Or(next);
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[track_caller]
    fn check(pattern: &str, of: &[&str], others: &[&str]) {
        let parsed = Pattern::parse(pattern).expect(pattern);
        for name in of {
            assert!(parsed.matches(name), "{pattern}: {name}");
        }
        for name in others {
            assert!(!parsed.matches(name), "{pattern}: {name}");
        }
    }

    #[test]
    fn names_are_of_patterns() {
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
    fn what_has_no_end_is_no_pattern() {
        for text in ["[", "[a", "[]", "[!]", "{", "{a", "{a,", "x{a,{b}", r"a\"] {
            assert_eq!(Pattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn none_takes_longer_than_it_is_long() {
        let pattern = Pattern::parse(&"*a".repeat(127)).expect("a pattern");
        assert!(!pattern.matches(&"a".repeat(126)));
        assert!(pattern.matches(&"a".repeat(255)));
        let nested = Pattern::parse(&format!("{}x{}", "{".repeat(120), "}".repeat(120)));
        assert!(nested.expect("a pattern").matches("x"));
    }
}
