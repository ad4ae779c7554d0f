//! The drawing as an SVG file.
//!
//! It is complete without a script, as in an image of a page; with one it zooms, searches, and is used by keyboard.

use std::fmt::Write;

use super::palette::Colour;
use super::{Cell, count};

/// Widths and heights, in pixels.
const WIDTH: f64 = 1200.0;
const SIDE: f64 = 10.0;
const TOP: f64 = 96.0;
const BOTTOM: f64 = 14.0;
const ROW: f64 = 18.0;
/// The space above the table, and the height of its rows.
const TABLE: f64 = 34.0;
const TABLE_ROW: f64 = 16.0;
/// A character, and what is left free around a name.
const CHARACTER: f64 = 6.65;
const MARGIN: f64 = 8.0;

/// What is drawn.
#[derive(Debug)]
pub(in super::super) struct Drawing<'a> {
    pub(in super::super) title: &'a str,
    pub(in super::super) subtitle: &'a str,
    /// Colours and what they mean.
    pub(in super::super) legend: Vec<(Colour, String)>,
    pub(in super::super) cells: Vec<Cell>,
    /// Boxes too narrow to be drawn.
    pub(in super::super) narrow: usize,
    /// The title of the table below the boxes, and its rows.
    pub(in super::super) table: &'a str,
    pub(in super::super) rows: Vec<String>,
}

/// The file.
pub(in super::super) fn write(drawing: &Drawing<'_>) -> String {
    let rows = drawing.cells.iter().map(|cell| cell.depth).max().unwrap_or(0) + 1;
    let table = TOP + rows as f64 * ROW + TABLE;
    let height = table + drawing.rows.len() as f64 * TABLE_ROW + BOTTOM;
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" id=\"graph\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"group\" aria-label=\"{}\">",
        escaped(drawing.title)
    );
    let _ = writeln!(out, "<title>{}</title>", escaped(drawing.title));
    let _ = writeln!(out, "<style>{}</style>", include_str!("flame.css"));
    let _ = writeln!(
        out,
        "<rect id=\"page\" x=\"0\" y=\"0\" width=\"{WIDTH}\" height=\"{height}\"/>"
    );
    head(&mut out, drawing);
    out.push_str(
        "<g id=\"frames\" role=\"tree\" aria-label=\"Flame graph. Arrow keys move between functions, Enter zooms, Escape shows all.\">\n",
    );
    // A tree in the order of its lines: each function before those that it called.
    let mut cells: Vec<&Cell> = drawing.cells.iter().collect();
    cells.sort_by(|one, other| {
        let by_start = one.start.total_cmp(&other.start);
        by_start.then_with(|| one.depth.cmp(&other.depth))
    });
    for cell in cells {
        write_cell(&mut out, cell, rows);
    }
    out.push_str("</g>\n");
    write_table(&mut out, drawing, table);
    let _ = writeln!(
        out,
        "<script><![CDATA[\n(() => {{\n\"use strict\";\nconst width = {WIDTH}, side = {SIDE}, height = {height}, character = {CHARACTER}, margin = {MARGIN};\n{}}})();\n]]></script>",
        include_str!("flame.js")
    );
    out.push_str("</svg>\n");
    out
}

/// Title, legend, search, and the line that says what the pointer is on.
fn head(out: &mut String, drawing: &Drawing<'_>) {
    let _ = writeln!(
        out,
        "<text class=\"title\" x=\"{SIDE}\" y=\"26\">{}</text>\n<text class=\"quiet\" x=\"{SIDE}\" y=\"46\">{}</text>",
        escaped(drawing.title),
        escaped(drawing.subtitle)
    );
    let mut at = SIDE;
    for (colour, text) in &drawing.legend {
        let _ = writeln!(
            out,
            "<rect x=\"{at:.1}\" y=\"56\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/><text class=\"quiet\" x=\"{:.1}\" \
             y=\"66\">{}</text>",
            written(*colour),
            at + 17.0,
            escaped(text)
        );
        at += 17.0 + text.chars().count() as f64 * CHARACTER + 18.0;
    }
    if drawing.narrow > 0 {
        let _ = writeln!(
            out,
            "<text class=\"quiet\" x=\"{at:.1}\" y=\"66\">{} narrower boxes are left out</text>",
            count(drawing.narrow as u64)
        );
    }
    let right = WIDTH - SIDE;
    let _ = writeln!(
        out,
        "<text id=\"about\" class=\"about\" x=\"{SIDE}\" y=\"87\"></text>\n\
         <foreignObject class=\"right\" x=\"{:.0}\" y=\"10\" width=\"270\" height=\"26\"><input xmlns=\"http://www.w3.org/1999/xhtml\" id=\"search\" \
         type=\"search\" placeholder=\"search: text or /pattern/\" aria-label=\"search functions\"/></foreignObject>\n\
         <text id=\"found\" class=\"quiet end right\" x=\"{right}\" y=\"50\"></text>\n\
         <text id=\"reset\" class=\"link end right\" x=\"{right}\" y=\"66\" tabindex=\"0\" role=\"button\">show all</text>",
        right - 270.0
    );
}

/// Writes the functions with the most samples as text: the figures of the graph without its shapes and colours.
fn write_table(out: &mut String, drawing: &Drawing<'_>, top: f64) {
    if drawing.rows.is_empty() {
        return;
    }
    let _ = writeln!(
        out,
        "<text x=\"{SIDE}\" y=\"{1}\" class=\"quiet\">{0}</text>\n<g id=\"table\" role=\"list\" aria-label=\"{0}\">",
        escaped(drawing.table),
        top - TABLE_ROW / 2.0,
    );
    for (number, row) in drawing.rows.iter().enumerate() {
        let y = top + (number + 1) as f64 * TABLE_ROW - 4.0;
        let _ = writeln!(
            out,
            "<text x=\"{SIDE}\" y=\"{y}\" role=\"listitem\" xml:space=\"preserve\">{}</text>",
            escaped(&fitted(row, WIDTH - 2.0 * SIDE))
        );
    }
    out.push_str("</g>\n");
}

fn write_cell(out: &mut String, cell: &Cell, rows: usize) {
    let inner = WIDTH - 2.0 * SIDE;
    let x = SIDE + cell.start * inner;
    let width = cell.width * inner;
    let y = TOP + (rows - 1 - cell.depth) as f64 * ROW;
    let _ = writeln!(
        out,
        "<g class=\"f\" role=\"treeitem\" aria-level=\"{}\" tabindex=\"{}\" data-d=\"{}\" data-x=\"{:.7}\" data-w=\"{:.7}\" data-n=\"{}\"><title>{}</title><rect x=\"{x:.2}\" \
         y=\"{y}\" width=\"{:.2}\" height=\"{}\" fill=\"{}\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
        cell.depth + 1,
        if cell.depth == 0 { 0 } else { -1 },
        cell.depth,
        cell.start,
        cell.width,
        escaped(&cell.name),
        escaped(&cell.about),
        // A hair of the page between neighbours.
        (width - 0.4).max(0.2),
        ROW - 1.0,
        written(cell.colour),
        x + MARGIN / 2.0,
        y + 12.5,
        escaped(&fitted(&cell.name, width)),
    );
}

/// As much of a name as has room; nothing where that would say nothing. The script does the same.
fn fitted(name: &str, width: f64) -> String {
    let room = ((width - MARGIN) / CHARACTER) as usize;
    let length = name.chars().count();
    if length <= room {
        return name.to_owned();
    }
    if room < 3 {
        return String::new();
    }
    name.chars().take(room - 1).chain(['…']).collect()
}

fn written(colour: Colour) -> String {
    format!("hsl({},{}%,{}%)", colour.hue, colour.saturation, colour.lightness)
}

/// Text as XML wants it; what XML cannot hold is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            control if control.is_control() => {}
            '\u{fffe}' | '\u{ffff}' => {}
            other => out.push(other),
        }
    }
    out
}
