//! Which steps are kept by what was measured.

use super::*;

fn ladder() -> Ladder {
    let rung = |step, after: f64, ratio: f64, verdict| Rung {
        step,
        pairs: 5,
        before: 1000.0,
        after,
        ratio,
        low: ratio - 0.02,
        high: ratio + 0.02,
        p99_us: (900.0, 800.0),
        verdict,
    };
    Ladder {
        target: "http://h/?a<b".into(),
        goal: "requests/s".into(),
        rounds: 5,
        rungs: vec![
            rung(Id::Xps, 1100.0, 1.1, Verdict::Kept),
            rung(Id::Rps, 990.0, 0.99, Verdict::Noise),
            rung(Id::BusyPoll, 1210.0, 1.2, Verdict::Kept),
            rung(Id::Gro, 500.0, 0.5, Verdict::Worse),
            rung(
                Id::Rings,
                0.0,
                1.0,
                Verdict::Failed {
                    why: "refused".into(),
                },
            ),
        ],
    }
}

#[test]
fn the_table_says_what_was_kept_and_what_it_comes_to() {
    let text = text(&ladder(), Style::Plain);
    assert!(
        text.contains("Kept: xps, busy-poll (together +32.0 %)."),
        "{text}"
    );
    assert!(
        text.contains(" 1,000       1,100     1.100     1.080 - 1.120"),
        "{text}"
    );
    assert!(text.contains("rings                failed: refused"), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= limits::COLUMNS + 6),
        "{text}"
    );
}

#[test]
fn a_coin_says_which_side_of_each_pair_is_first() {
    let mut coins = [true, false, false, true].into_iter();
    let sides: Vec<usize> = order(4, || coins.next().unwrap()).collect();
    assert_eq!(sides, [0, 1, 1, 0, 1, 0, 0, 1]);
}

#[test]
fn nothing_kept_is_said() {
    let mut ladder = ladder();
    ladder.rungs.retain(|rung| rung.verdict != Verdict::Kept);
    assert!(text(&ladder, Style::Plain).contains("the host is unchanged"));
}

#[test]
fn the_page_has_a_bar_for_each_measured_rung_and_escapes_what_is_not_ours() {
    let page = page(&ladder());
    assert_eq!(page.matches("class='before'").count(), 4);
    assert_eq!(page.matches("<rect class='kept'").count(), 2);
    assert!(
        page.contains(">1,100, +10.0 %<") && page.contains(">990, noise<"),
        "{page}"
    );
    assert!(page.contains("http://h/?a&lt;b") && !page.contains("?a<b"));
}

#[test]
fn figures_can_be_read() {
    for (value, expected) in [
        (0.0, "0.00"),
        (14.904, "14.90"),
        (100.4, "100"),
        (1_234_567.0, "1,234,567"),
    ] {
        assert_eq!(figure(value), expected);
    }
}
