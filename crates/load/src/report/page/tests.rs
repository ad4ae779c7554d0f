//! What every page promises: all sections, nothing from elsewhere, no markup from outside, readable colours.
//!
//! After a wanted change of a plot run the tests with `UPDATE_GOLDEN=1` in the environment and look at the file.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::axis::Axis;
use super::plot::{Curve, Plot, Weight};
use super::*;
use crate::figures::Latency;
use crate::plan::{Messages, Pace, Protocol};
use crate::report::fixture;

const OPEN: Pace = Pace::Constant(4_000.0);

fn single() -> String {
    super::run(
        &fixture::run("http://a.example/", OPEN, 3, 1.0),
        &fixture::remarks(),
    )
}

fn compared() -> String {
    let runs = ["ringmain", "net/http", "ringmain, epoll"].map(|name| fixture::run(name, OPEN, 2, 1.0));
    comparison(&fixture::comparison(), &runs, &fixture::remarks())
}

/// The values of an attribute, in order.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    let parts = page.split(&start).skip(1);
    parts.map(|part| part.split('"').next().unwrap()).collect()
}

#[test]
fn every_section_is_there() {
    let page = single();
    let sections = [
        "doubts",
        "headline",
        "percentiles",
        "time",
        "histogram",
        "rounds",
        "outcomes",
        "setup",
    ];
    for id in sections {
        assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    for plot in [
        "plot-percentiles",
        "plot-rate",
        "plot-latency",
        "plot-errors",
        "plot-histogram",
    ] {
        assert!(page.contains(&format!("{plot}-wide-title")), "{plot}");
        assert!(page.contains(&format!("{plot}-narrow-title")), "{plot}");
    }
    let page = compared();
    for id in [
        "doubts",
        "ratios",
        "percentiles",
        "time",
        "histogram",
        "outcomes",
        "setup",
    ] {
        assert!(page.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
    for name in ["A ringmain", "B net/http", "C ringmain, epoll"] {
        assert!(page.contains(name), "{name}");
    }
}

#[test]
fn a_run_without_doubts_or_rounds_has_no_section_for_them() {
    let page = super::run(&fixture::run("x", Pace::Closed, 0, 1.0), &[]);
    assert!(page.contains("<section id=\"setup\""));
    for id in ["doubts", "headline", "percentiles", "rounds"] {
        assert!(!page.contains(&format!("<section id=\"{id}\"")), "{id}");
    }
}

#[test]
fn handshakes_have_a_section() {
    let mut run = fixture::run("x", OPEN, 1, 1.0);
    run.plan.protocol = Protocol::WebSocket(Messages {
        text: false,
        bytes: 64,
        deflate: true,
    });
    let figures = &mut run.rounds[0].figures;
    figures.opening.record(5_000_000);
    let what = "WebSocket: answered 503";
    figures.counts.first_errors.insert(what, "<busy>".into());
    let page = super::run(&run, &[]);
    for expect in [
        "<section id=\"connecting\"",
        "WebSocket, longest",
        "echo differs",
        "with permessage-deflate",
        "answered 503\u{201d}: &lt;busy&gt;.",
    ] {
        assert!(page.contains(expect), "{expect}");
    }
    assert!(!single().contains("<section id=\"connecting\""));
}

#[test]
fn a_closed_loop_shows_no_response_time() {
    let page = super::run(&fixture::run("x", Pace::Closed, 2, 1.0), &[]);
    assert!(!page.contains("response time"));
    assert!(page.contains("A closed loop has no schedule"));
}

#[test]
fn without_errors_there_is_no_plot_of_them() {
    let mut run = fixture::run("x", OPEN, 1, 1.0);
    for interval in &mut run.rounds[0].series {
        interval.counts.statuses.retain(|status, _| *status < 400);
        interval.counts.timeouts = 0;
        interval.counts.broken.clear();
    }
    let page = super::run(&run, &[]);
    assert!(page.contains("None at any time."));
    assert!(!page.contains("plot-errors"));
}

#[test]
fn nothing_comes_from_elsewhere() {
    for page in [single(), compared()] {
        for tag in [
            "<script", "<img", "<iframe", "<object", "<embed", "<form", "<base",
        ] {
            assert!(!page.contains(tag), "{tag}");
        }
        for style in ["@import", "url("] {
            assert!(!page.contains(style), "{style}");
        }
        assert_eq!(values(&page, "src"), [""; 0]);
        assert_eq!(values(&page, "style"), [""; 0]);
        for link in values(&page, "href") {
            assert!(link.starts_with("data:"), "{link}");
        }
        assert!(page.contains("default-src 'none'"));
    }
}

#[test]
fn what_comes_from_outside_is_text() {
    let evil = "</title><script>alert(1)</script><b a=\"'&\x1b";
    let mut run = fixture::run(evil, OPEN, 2, 1.0);
    run.engine = evil.into();
    let remark = Remark {
        severity: crate::report::Severity::Note,
        message: evil.into(),
    };
    let mut rows = fixture::comparison();
    rows.targets = vec![evil.into(), evil.into(), evil.into()];
    rows.rows[0].metric = evil.into();
    rows.rows[0].against[0].as_mut().unwrap().verdict = evil.into();
    let runs = [run.clone(), run.clone(), run.clone()];
    for page in [
        super::run(&run, std::slice::from_ref(&remark)),
        comparison(&rows, &runs, std::slice::from_ref(&remark)),
    ] {
        assert!(!page.contains("<script"));
        assert!(!page.contains('\x1b'));
        assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;&lt;b a=&quot;&#39;&amp;\u{fffd}"));
        check_structure(&page);
    }
}

#[test]
fn pages_are_well_formed() {
    check_structure(&single());
    check_structure(&compared());
}

/// Elements close in the order they opened, identifiers are unique, what is referred to is there.
fn check_structure(page: &str) {
    const VOID: [&str; 2] = ["meta", "link"];
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, body) = rest.split_once("</style>").unwrap();
    let mut open: Vec<&str> = vec![];
    for tag in [head, body].iter().flat_map(|part| part.split('<').skip(1)) {
        let (tag, _) = tag.split_once('>').unwrap();
        let name = tag.split([' ', '\n']).next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "in {tag}");
        } else if !name.starts_with('!') && !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, [""; 0]);
    let ids = values(page, "id");
    let unique: BTreeSet<&str> = ids.iter().copied().collect();
    assert_eq!(ids.len(), unique.len());
    for reference in values(page, "aria-labelledby")
        .iter()
        .flat_map(|value| value.split(' '))
    {
        assert!(unique.contains(reference), "{reference}");
    }
}

#[test]
fn a_small_plot_is_drawn_like_this() {
    let curve = |points: &[(f64, f64)], tone, weight, dashed| Curve {
        points: points.to_vec(),
        tone,
        weight,
        dashed,
    };
    let plot = Plot {
        id: "small",
        title: "A <small> plot".into(),
        description: "Two curves & a line between rounds.".into(),
        axes: Box::new(|across, up| {
            let write = |value: f64| format!("{value}");
            (
                Axis::exact("seconds", 25.0, across, write),
                Axis::logarithmic("latency", 0.01, 3.0, up, write),
            )
        }),
        curves: vec![
            curve(&[(0.0, 0.02), (10.0, 0.5), (25.0, 2.0)], 0, Weight::Filled, false),
            curve(&[(0.0, 0.01), (25.0, 9.0)], 1, Weight::Thin, true),
            curve(&[], 2, Weight::Bold, false),
        ],
        rules: vec![12.5],
    };
    let svg = plot.svg();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/page/golden/small.svg");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(file, &svg).unwrap();
        return;
    }
    assert!(svg == include_str!("golden/small.svg"), "the plot is now:\n{svg}");
}

#[test]
fn ticks_are_round_and_hold_the_figures() {
    let write = |value: f64| format!("{value:.3}");
    let names = |axis: &Axis| {
        axis.ticks
            .iter()
            .map(|(_, name)| name.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(&Axis::linear("", 4_121.0, 4, write)),
        ["0", "2000", "4000", "6000"]
    );
    let of_nothing = Axis::linear("", 0.0, 4, write);
    assert_eq!(names(&of_nothing), ["0", "0.5", "1"]);
    assert_eq!(
        names(&Axis::logarithmic("", 0.03, 0.4, 8, write)),
        ["0.02", "0.05", "0.1", "0.2", "0.5"]
    );
    assert_eq!(names(&Axis::logarithmic("", 0.5, 0.5, 8, write)).len(), 4);
    assert_eq!(
        names(&Axis::nines("", 4.3)),
        ["0 %", "90 %", "99 %", "99.9 %", "99.99 %"]
    );
    for (low, high) in [
        (1e-6, 3.6e3),
        (0.0, 0.0),
        (1e-9, 2e-9),
        (f64::INFINITY, 0.0),
        (f64::NAN, 1.0),
    ] {
        for wanted in 1..12 {
            let axis = Axis::logarithmic("", low, high, wanted, write);
            assert!(
                axis.ticks.len() <= wanted + 1,
                "{low} to {high}: {:?}",
                axis.ticks
            );
            assert!(!axis.ticks.is_empty());
            for value in [low, high, -1.0, f64::MAX] {
                let place = axis.place(value);
                assert!(
                    (0.0..=1.0).contains(&place) || value.is_nan(),
                    "{value} at {place}"
                );
            }
        }
    }
}

#[test]
fn shares_add_up_and_curves_end_at_the_longest() {
    let mut latency = Latency::default();
    assert_eq!(samples::shares(&latency), []);
    assert_eq!(samples::percentiles(&latency), []);
    for at in 1..=10_000u64 {
        latency.record(at * at);
    }
    let shares = samples::shares(&latency);
    let sum: f64 = shares.iter().map(|(_, _, share)| share).sum();
    assert!((sum - 100.0).abs() < 1e-6, "{sum}");
    for pair in shares.windows(2) {
        assert!((pair[0].1 / pair[1].0 - 1.0).abs() < 1e-9, "{pair:?} have a gap");
    }
    let curve = samples::percentiles(&latency);
    assert_eq!(curve.last(), Some(&(4.0, latency.max().as_secs_f64())));
    assert!(curve.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1), "{curve:?}");
    let p90 = curve.iter().find(|(nines, _)| *nines == 1.0).unwrap().1;
    assert_eq!(p90, latency.percentile(90.0).as_secs_f64());
}

#[test]
fn long_series_are_thinned_without_losing_answers() {
    let mut run = fixture::run("x", OPEN, 2, 1.0);
    for round in &mut run.rounds {
        let first = round.series[0].clone();
        let interval = |at: u32| {
            let mut interval = first.clone();
            interval.length = Duration::from_secs(1);
            interval.until = Duration::from_secs(u64::from(at) + 1);
            interval.counts.answered = u64::from(at % 7);
            interval
        };
        round.series = (0..3_600).map(interval).collect();
    }
    let series = samples::series(&run, 3_600.0);
    assert_eq!(series.len(), 2);
    let points: usize = series.iter().map(Vec::len).sum();
    assert!((100..=302).contains(&points), "{points}");
    let mut last = 0.0;
    let mut answers = 0.0;
    for sample in series.iter().flatten() {
        assert!(
            (sample.from - last).abs() < 1e-9,
            "{sample:?} does not begin at {last}"
        );
        answers += sample.rate * (sample.until - sample.from);
        last = sample.until;
    }
    let counts = run
        .rounds
        .iter()
        .flat_map(|round| &round.series)
        .map(|interval| interval.counts.answered);
    assert!((answers - counts.sum::<u64>() as f64).abs() < 1e-3, "{answers}");
}

#[test]
fn moments_are_written_in_utc() {
    for (seconds, written) in [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (951_868_800, "2000-03-01 00:00:00 UTC"),
        (1_700_000_000, "2023-11-14 22:13:20 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
    ] {
        assert_eq!(sections::utc(Duration::from_secs(seconds)), written);
    }
}

#[test]
fn colours_can_be_told_from_the_panel() {
    let schemes: Vec<BTreeMap<&str, &str>> = STYLE
        .split(":root {")
        .skip(1)
        .map(|scheme| {
            let (scheme, _) = scheme.split_once('}').unwrap();
            let pairs = scheme.split(';').filter_map(|pair| pair.trim().split_once(": "));
            pairs.collect()
        })
        .collect();
    assert_eq!(schemes.len(), 2);
    for scheme in schemes {
        for (names, least) in [
            (
                &["--text", "--quiet", "--accent", "--good", "--bad", "--warn"][..],
                4.5,
            ),
            (&["--t0", "--t1", "--t2", "--t3", "--t4", "--t5"], 3.0),
        ] {
            for name in names {
                let contrast = contrast(scheme[name], scheme["--panel"]);
                assert!(contrast >= least, "{name}: {contrast}");
            }
        }
    }
}

/// As WCAG 2 defines it.
fn contrast(a: &str, b: &str) -> f64 {
    let (a, b) = (luminance(a), luminance(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

fn luminance(colour: &str) -> f64 {
    let digits = colour.strip_prefix('#').unwrap();
    let wide: String = match digits.len() {
        3 => digits.chars().flat_map(|digit| [digit, digit]).collect(),
        _ => digits.to_owned(),
    };
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&wide[2 * at..2 * at + 2], 16).unwrap()) / 255.0;
        if value <= 0.040_45 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(0) + 0.7152 * channel(1) + 0.0722 * channel(2)
}
