//! Random tables and paths against a twin that looks at every route.
//!
//! The twin shares nothing with the router but the text of the patterns, which it writes and never reads.

use std::cmp::Reverse;

use super::{find, insert};
use crate::router::RouterBuilder;

const TABLES: u64 = 3000;
const LOOKUPS: usize = 40;
const METHODS: &[&str] = &["GET", "HEAD", "POST", "OPTIONS", "PURGE", "ANY"];
/// Few and alike, so that routes and paths meet; some longer than a word.
const TEXTS: &[&str] = &[
    "a",
    "b",
    "ab",
    "aa",
    "abcdefgh",
    "abcdefghi",
    "abcdefgha",
    "ö",
    ".",
];

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % limit
    }

    fn text(&mut self) -> &'static str {
        // Never a dot segment.
        TEXTS[self.below(TEXTS.len() - 1)]
    }

    fn affix(&mut self) -> &'static str {
        match self.below(3) {
            0 => TEXTS[self.below(TEXTS.len())],
            _ => "",
        }
    }
}

#[derive(Clone, PartialEq)]
enum Part {
    Text(&'static str),
    Name(&'static str, &'static str),
    Rest,
}

struct ReferenceRoute {
    methods: Vec<&'static str>,
    parts: Vec<Part>,
    text: String,
}

fn route(random: &mut Random) -> ReferenceRoute {
    let mut parts = Vec::new();
    for _ in 0..random.below(4) {
        parts.push(match random.below(5) {
            0 | 1 => Part::Text(random.text()),
            2 => Part::Name("", ""),
            _ => Part::Name(random.affix(), random.affix()),
        });
    }
    match random.below(4) {
        0 => parts.push(Part::Rest),
        1 => parts.push(Part::Text("")),
        _ if parts.is_empty() => parts.push(Part::Text("")),
        _ => {}
    }
    let mut methods: Vec<_> = (0..=random.below(2)).map(|_| METHODS[random.below(5)]).collect();
    methods.sort_unstable();
    methods.dedup();
    if random.below(8) == 0 {
        methods = vec!["ANY"];
    }
    // Names differ from route to route.
    let salt = random.below(1000);
    let mut text = format!("{} ", methods.join(","));
    for (index, part) in parts.iter().enumerate() {
        text += &match part {
            Part::Text(literal) => format!("/{literal}"),
            Part::Name(prefix, suffix) => format!("/{prefix}{{p{index}_{salt}}}{suffix}"),
            Part::Rest => format!("/{{*p{index}_{salt}}}"),
        };
    }
    ReferenceRoute { methods, parts, text }
}

/// The values if `path` matches, in the order of the parts.
fn values<'p>(parts: &[Part], path: &'p str) -> Option<Vec<&'p str>> {
    let mut rest = path.strip_prefix('/')?;
    let mut values = Vec::new();
    for (index, part) in parts.iter().enumerate() {
        if *part == Part::Rest {
            values.push(rest);
            return (!rest.is_empty()).then_some(values);
        }
        let (segment, after) = match rest.split_once('/') {
            Some((segment, after)) => (segment, Some(after)),
            None => (rest, None),
        };
        match part {
            Part::Text(text) if *text == segment => {}
            Part::Name(prefix, suffix) => {
                let value = segment.strip_prefix(prefix)?.strip_suffix(suffix)?;
                values.push(value);
                if value.is_empty() {
                    return None;
                }
            }
            _ => return None,
        }
        match (after, index + 1 == parts.len()) {
            (None, true) => return Some(values),
            (Some(after), false) => rest = after,
            _ => return None,
        }
    }
    None
}

/// The less is preferred.
fn rank(parts: &[Part]) -> Vec<(u8, Reverse<usize>, Reverse<usize>)> {
    let rank = |part: &Part| match part {
        Part::Text(_) => (0, Reverse(0), Reverse(0)),
        Part::Name(prefix, suffix) => (1, Reverse(prefix.len()), Reverse(suffix.len())),
        Part::Rest => (2, Reverse(0), Reverse(0)),
    };
    parts.iter().map(rank).collect()
}

fn twin(routes: &[ReferenceRoute], method: &str, path: &str) -> String {
    let matching = || routes.iter().filter(|route| values(&route.parts, path).is_some());
    let Some(best) = matching().map(|route| rank(&route.parts)).min() else {
        return "404".to_owned();
    };
    let candidates: Vec<_> = matching().filter(|route| rank(&route.parts) == best).collect();
    let with = |method: &str| candidates.iter().find(|route| route.methods.contains(&method));
    let by_get = || (method == "HEAD").then(|| with("GET")).flatten();
    if let Some(found) = with(method).or_else(by_get).or_else(|| with("ANY")) {
        let names = found.text.split(['{', '}']).skip(1).step_by(2);
        let values = values(&found.parts, path).expect("it matches");
        return names.zip(values).fold(found.text.clone(), |text, (name, value)| {
            format!("{text} {}={value}", name.trim_start_matches('*')).replace('\0', "/")
        });
    }
    let mut allow = Vec::new();
    for name in ["GET", "HEAD", "POST", "OPTIONS", "PURGE"] {
        let by_get = name == "HEAD" && with("GET").is_some();
        if with(name).is_some() || by_get || name == "OPTIONS" {
            allow.push(name);
        }
    }
    let what = if method == "OPTIONS" { "options" } else { "405" };
    format!("{what} {}", allow.join(", "))
}

fn path(random: &mut Random) -> String {
    let mut path = String::new();
    for _ in 0..=random.below(4) {
        path += "/";
        path += random.text();
        for _ in 0..random.below(3) {
            path += ["\0", ".", "a", "b", "abcdefgh"][random.below(5)];
        }
    }
    match random.below(4) {
        0 => path + "/",
        1 if random.below(8) == 0 => "/".to_owned(),
        _ => path,
    }
}

fn run(seed: u64, outcomes: &mut [usize; 4]) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut kept: Vec<ReferenceRoute> = Vec::new();
    for _ in 0..=random.below(30) {
        let route = route(&mut random);
        let clash = kept.iter().any(|known| {
            known.parts == route.parts && known.methods.iter().any(|m| route.methods.contains(m))
        });
        if !clash {
            kept.push(route);
        }
    }
    let mut table = RouterBuilder::new();
    for route in &kept {
        insert(&mut table, &route.text).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    for route in &kept {
        insert(&mut table, &route.text).expect_err("each a second time");
    }
    let router = table.build();
    for _ in 0..LOOKUPS {
        let (method, path) = (METHODS[random.below(5)], path(&mut random));
        let (found, expected) = (find(&router, method, &path), twin(&kept, method, &path));
        let routes: Vec<_> = kept.iter().map(|route| &route.text).collect();
        assert_eq!(found, expected, "seed {seed}: {method} {path:?} in {routes:#?}");
        outcomes[match &expected[..3] {
            "404" => 0,
            "405" => 1,
            "opt" => 2,
            _ => 3,
        }] += 1;
    }
}

#[test]
fn random_tables_answer_as_the_twin_does() {
    let mut outcomes = [0; 4];
    for seed in 0..TABLES {
        run(seed, &mut outcomes);
    }
    let least = TABLES as usize;
    assert!(
        outcomes.iter().all(|&count| count > least),
        "each outcome is seen often: {outcomes:?}"
    );
}
