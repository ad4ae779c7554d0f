//! Random deltas and tag filters with our results, for tests/sdk, in which Centrifugo's libraries check them:
//! `cargo run -p ringmain-hub --example feature_cases [SEED]`.
//!
//! Each line is a JSON object: `{"base", "data", "delta"}` in hexadecimal, or `{"filter", "tags", "matches"}`, in which `matches` is `null` if
//! we reject the filter.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use fastrand::Rng;
use ringmain_hub::delta::fossil;
use ringmain_hub::tag_filter::TagFilter;
use serde_json::{Value, json};

const DELTAS: usize = 4000;
const FILTERS: usize = 4000;
const TAGS_PER_FILTER: usize = 6;

fn main() -> io::Result<()> {
    let seed = std::env::args().nth(1).and_then(|seed| seed.parse().ok());
    let mut random = Rng::with_seed(seed.unwrap_or(1));
    let mut out = BufWriter::new(io::stdout().lock());
    for _ in 0..DELTAS {
        let base = random_data(&mut random);
        let data = if random.u8(..8) == 0 {
            random_data(&mut random)
        } else {
            edited(&base, &mut random)
        };
        if let Some(delta) = fossil::create(&base, &data) {
            let case = json!({ "base": hex(&base), "data": hex(&data), "delta": hex(&delta) });
            writeln!(out, "{case}")?;
        }
    }
    for _ in 0..FILTERS {
        let node = random_filter(&mut random, 3);
        let filter = serde_json::from_value(node.clone())
            .ok()
            .and_then(|node| TagFilter::new(&node).ok());
        for _ in 0..TAGS_PER_FILTER {
            let tags = random_tags(&mut random);
            let matches = filter.as_ref().map(|filter| filter.matches(&tags));
            let case = json!({ "filter": node, "tags": tags, "matches": matches });
            writeln!(out, "{case}")?;
        }
    }
    out.flush()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns bytes, text of several bytes per character, or a long JSON object.
fn random_data(random: &mut Rng) -> Vec<u8> {
    match random.u8(..16) {
        0 => (0..random.usize(..2000)).map(|_| random.u8(..)).collect(),
        1 => (0..random.usize(..400))
            .map(|_| ['a', 'ö', '温', '😀', '"', '\n'][random.usize(..6)])
            .collect::<String>()
            .into(),
        kind => {
            let fields = if kind == 2 {
                random.usize(..4000)
            } else {
                random.usize(..60)
            };
            let object: BTreeMap<String, u32> = (0..fields)
                .map(|at| (format!("field {at}"), random.u32(..1000)))
                .collect();
            json!(object).to_string().into()
        }
    }
}

fn edited(base: &[u8], random: &mut Rng) -> Vec<u8> {
    let mut data = base.to_vec();
    for _ in 0..random.usize(..6) {
        let at = random.usize(..=data.len());
        let end = (at + random.usize(..40)).min(data.len());
        match random.u8(..3) {
            0 => drop(data.drain(at..end)),
            1 => {
                let moved: Vec<u8> = data.drain(at..end).collect();
                let to = random.usize(..=data.len());
                data.splice(to..to, moved);
            }
            _ => {
                let inserted: Vec<u8> = (0..random.usize(..40)).map(|_| random.u8(..)).collect();
                data.splice(at..end, inserted);
            }
        }
    }
    data
}

const KEYS: [&str; 4] = ["a", "price", "täg", ""];

const VALUES: [&str; 24] = [
    "",
    "a",
    "ab",
    "abc",
    "b",
    "ö",
    "0",
    "-0",
    "1",
    "1.0",
    "01",
    "+1",
    "10",
    "9",
    "9.5",
    "9.50",
    "-3",
    "-3.1",
    ".5",
    "5.",
    "1e3",
    "99999999999999999999999999999999",
    "0.1234567890123456789",
    "nan",
];

const COMPARISONS: [&str; 14] = [
    "eq", "neq", "in", "nin", "ex", "nex", "sw", "ew", "ct", "lt", "lte", "gt", "gte", "like",
];

fn random_value(random: &mut Rng) -> &'static str {
    VALUES[random.usize(..VALUES.len())]
}

fn random_tags(random: &mut Rng) -> BTreeMap<String, String> {
    (0..random.usize(..4))
        .map(|_| {
            let key = KEYS[random.usize(..KEYS.len())];
            (key.to_owned(), random_value(random).to_owned())
        })
        .collect()
}

/// Returns a filter, of which a few are invalid.
fn random_filter(random: &mut Rng, depth: usize) -> Value {
    if depth > 0 && random.bool() {
        let op = ["and", "or", "not", "xor"][random.choice([0, 0, 0, 1, 1, 1, 2, 2, 2, 3]).unwrap_or(0)];
        let count = if op == "not" {
            random.choice([1, 1, 1, 1, 1, 1, 0, 2]).unwrap_or(1)
        } else {
            random.choice([1, 2, 3, 2, 3, 1, 2, 3, 0]).unwrap_or(1)
        };
        let nodes: Vec<Value> = (0..count).map(|_| random_filter(random, depth - 1)).collect();
        return json!({ "op": op, "nodes": nodes });
    }
    // The last of each is invalid.
    let unusual = random.u8(..20);
    let cmp = COMPARISONS[random.usize(..COMPARISONS.len() - usize::from(unusual != 0))];
    let key = KEYS[random.usize(..KEYS.len() - usize::from(unusual != 1))];
    let mut node = json!({ "key": key, "cmp": cmp });
    let is_usual = random.u8(..20) > 0;
    if matches!(cmp, "in" | "nin") == is_usual {
        let values: Vec<_> = (0..random.usize(1..4)).map(|_| random_value(random)).collect();
        node["vals"] = json!(values);
    } else if !matches!(cmp, "ex" | "nex") == is_usual {
        // An empty value makes the filter invalid.
        node["val"] = json!(VALUES[random.usize(usize::from(is_usual)..VALUES.len())]);
    }
    node
}
