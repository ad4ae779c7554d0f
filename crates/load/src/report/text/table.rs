//! Columns of text, aligned by their widest cell.
//!
//! Knows no figure.

use super::Style;

/// The widest line, in columns.
pub(crate) const WIDTH: usize = 100;

/// Rows of cells. The first cell of a row stands left, the others right.
#[derive(Default)]
pub(crate) struct Table {
    rows: Vec<(Kind, Vec<String>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Head,
    Body,
    /// The figure that most readers look for.
    Main,
    /// Something that should not have happened.
    Bad,
}

impl Table {
    /// A row that names the columns.
    pub(crate) fn head<const N: usize>(&mut self, cells: [&str; N]) {
        self.rows.push((Kind::Head, cells.map(String::from).to_vec()));
    }

    /// A row of figures. Fewer cells than other rows have leave the rest empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push((Kind::Body, cells));
    }

    /// As [`Table::row`], for the figure that most readers look for.
    pub(crate) fn main(&mut self, cells: Vec<String>) {
        self.rows.push((Kind::Main, cells));
    }

    /// As [`Table::row`], for what should not have happened.
    pub(crate) fn bad(&mut self, cells: Vec<String>) {
        self.rows.push((Kind::Bad, cells));
    }

    /// Appends the lines, indented by two, columns at least `least` wide and two apart.
    pub(crate) fn write(&self, out: &mut String, least: &[usize], style: Style) {
        let columns = self.rows.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(least.get(column).copied().unwrap_or(0))
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (kind, cells) in &self.rows {
            let mut line = String::new();
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                match column {
                    0 => line.push_str(&format!("  {cell:<width$}")),
                    _ => line.push_str(&format!("  {cell:>width$}")),
                }
            }
            let line = line.trim_end();
            match kind {
                Kind::Head => out.push_str(&style.quiet(line)),
                Kind::Body => out.push_str(line),
                Kind::Main => out.push_str(&style.bold(line)),
                Kind::Bad => out.push_str(&style.bad(line)),
            }
            out.push('\n');
        }
    }
}

/// Appends `label` and `text` behind it in a column of its own, wrapped to [`WIDTH`].
pub(crate) fn labelled(out: &mut String, label: &str, text: &str, style: Style) {
    const INDENT: usize = 12;
    let mut lines = wrap(text, WIDTH - INDENT).into_iter();
    let first = lines.next().unwrap_or_default();
    let padded = format!("{label:<width$}", width = INDENT - 2);
    out.push_str(format!("  {}{first}", style.quiet(&padded)).trim_end());
    out.push('\n');
    for line in lines {
        out.push_str(&format!("{:INDENT$}{line}\n", ""));
    }
}

/// Appends a sentence, indented by two and wrapped to [`WIDTH`].
pub(crate) fn sentence(out: &mut String, text: &str, style: Style) {
    for line in wrap(text, WIDTH - 2) {
        out.push_str(&format!("  {}\n", style.quiet(&line)));
    }
}

/// Words put on lines of at most `width` columns; a longer word is cut.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![];
    let mut line = String::new();
    let mut columns = 0;
    for word in text.split_whitespace() {
        let mut word = word;
        loop {
            let length = word.chars().count();
            let space = usize::from(columns > 0);
            if columns + space + length <= width {
                line.push_str(&" ".repeat(space));
                line.push_str(word);
                columns += space + length;
                break;
            }
            if columns > 0 {
                lines.push(std::mem::take(&mut line));
                columns = 0;
                continue;
            }
            let cut = word.char_indices().nth(width).map_or(word.len(), |(at, _)| at);
            lines.push(word[..cut].to_owned());
            word = &word[cut..];
        }
    }
    if columns > 0 {
        lines.push(line);
    }
    lines
}

/// Text from outside with nothing in it that moves a cursor or changes a colour.
pub(crate) fn printable(text: &str) -> String {
    let plain = |c: char| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    text.chars().map(plain).collect()
}
