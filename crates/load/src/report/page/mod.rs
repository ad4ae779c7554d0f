//! The report as one HTML page that needs nothing from anywhere: style inside, no script, plots as SVG.
//!
//! Owns how a report reads in a browser, on a phone, in the dark, on paper and aloud. Writes nowhere: what it gives back
//! is the page's text.

mod axis;
mod figures;
mod html;
mod plot;
mod samples;
mod sections;
#[cfg(test)]
mod tests;
mod time;

use super::{ComparisonTable, Remark, Run};
use html::escape;

/// The style, which also says what each class of a plot looks like.
const STYLE: &str = include_str!("page.css");

/// What a browser may do with the page: apply the style in it, nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";

/// A mark for the browser's tab.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Ccircle \
    cx='16' cy='16' r='11' fill='none' stroke='%231a8f76' stroke-width='5'/%3E%3Ccircle cx='16' cy='5' r='4' \
    fill='%231a8f76'/%3E%3C/svg%3E";

/// The page of one run.
#[must_use]
pub fn run(run: &Run, remarks: &[Remark]) -> String {
    let mut main = sections::remarks(remarks);
    if !run.rounds.is_empty() {
        main.push_str(&sections::headline(run));
        main.push_str(&figures::all(&[run]));
        main.push_str(&sections::rounds(run));
        main.push_str(&sections::outcomes(&[run]));
        main.push_str(&sections::connecting(&[run]));
    }
    main.push_str(&sections::setup(&[run]));
    document(&run.name, &sections::subtitle(run), &main)
}

/// The page of targets that were compared: ratios first, then all runs in the same plots. The runs are in the order of
/// [`ComparisonTable::targets`].
#[must_use]
pub fn comparison(comparison: &ComparisonTable, runs: &[Run], remarks: &[Remark]) -> String {
    let runs: Vec<&Run> = runs.iter().collect();
    let mut main = sections::remarks(remarks);
    main.push_str(&sections::ratios(comparison));
    if runs.iter().all(|run| !run.rounds.is_empty()) {
        main.push_str(&figures::all(&runs));
        main.push_str(&sections::outcomes(&runs));
        main.push_str(&sections::connecting(&runs));
    }
    main.push_str(&sections::setup(&runs));
    let subtitle = runs.first().map_or(String::new(), |run| sections::subtitle(run));
    document(&comparison.targets.join(" · "), &subtitle, &main)
}

/// The whole of the page around what it shows. `main` is HTML, the rest is text.
fn document(title: &str, subtitle: &str, main: &str) -> String {
    let (title, subtitle) = (escape(title), escape(subtitle));
    let version = env!("CARGO_PKG_VERSION");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title} · ringmain bench</title>\n<link rel=\"icon\" href=\"{ICON}\">\n\
         <style>\n{STYLE}</style>\n<header>\n<h1>{title}</h1>\n<p>{subtitle}</p>\n</header>\n\
         <main>\n{main}</main>\n<footer>ringmain bench {version}</footer>\n</html>\n"
    )
}
