//! The page matches the market and its content security policy.

use serde_json::Value;

use super::*;
use crate::welcome::tests::{allows_its_own, between};

#[test]
fn the_policy_allows_only_the_style_and_script_of_the_page() {
    allows_its_own(POLICY, PAGE);
    for place in ["src=", "@import", "url(", "style=", "onclick"] {
        assert!(!PAGE.contains(place), "{place}");
    }
}

#[test]
fn the_page_has_a_row_for_each_share() {
    let mut rest = PAGE;
    for listing in &LISTINGS {
        let row = format!(r#"<tr data-symbol="{}">"#, listing.symbol);
        let (_, after) = rest
            .split_once(&row)
            .unwrap_or_else(|| panic!("no row {row}, or out of order"));
        assert!(!between(after, r#"<td class="name">"#, "</td>").is_empty());
        rest = after;
    }
    assert_eq!(PAGE.matches("data-symbol=").count(), LISTINGS.len());
}

#[test]
fn prices_stay_near_their_first_value() {
    for seed in 0..5 {
        println!("seed {seed}");
        let mut market = Market::new(seed, &LISTINGS);
        let mut trades = 0;
        for step in 0..36_000 {
            let index = step % LISTINGS.len();
            let Some(trade) = market.maybe_trade(index) else {
                continue;
            };
            let trade: Value = serde_json::from_str(&trade).expect("JSON");
            let change = trade["change"].as_f64().expect("a number");
            assert!(change.abs() < 15.0, "{change} %");
            assert!(trade["price"].as_f64().expect("a number") > 1.0);
            trades += 1;
        }
        assert!((18_000..26_000).contains(&trades), "{trades}");
    }
}
