//! HTML in small pieces: escaped text and tables.
//!
//! Everything that comes from outside goes through [`escape`]; knows no figure.

use std::fmt::Write;

/// `text` as the content of an element or a quoted attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

/// A table: names of columns, then rows whose first cell names the row. All cells are text.
pub(super) struct Table {
    caption: String,
    html: String,
}

impl Table {
    /// With a caption that is read aloud, not shown, and the names of its columns.
    pub(super) fn new<S: AsRef<str>>(caption: &str, columns: &[S]) -> Table {
        let mut html = String::from("<thead><tr>");
        for column in columns {
            write!(html, "<th scope=\"col\">{}</th>", escape(column.as_ref())).expect(TO_STRING);
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        Table {
            caption: caption.to_owned(),
            html,
        }
    }

    /// A row.
    pub(super) fn row<S: AsRef<str>>(&mut self, cells: &[S]) {
        let plain: Vec<(&str, &str)> = cells.iter().map(|cell| ("", cell.as_ref())).collect();
        self.classed_row(&plain);
    }

    /// A row of cells with their classes.
    pub(super) fn classed_row(&mut self, cells: &[(&str, &str)]) {
        self.html.push_str("<tr>");
        for (at, (class, cell)) in cells.iter().enumerate() {
            let (open, close) = if at == 0 {
                ("th scope=\"row\"", "th")
            } else {
                ("td", "td")
            };
            let class = if class.is_empty() {
                String::new()
            } else {
                format!(" class=\"{class}\"")
            };
            write!(self.html, "<{open}{class}>{}</{close}>", escape(cell)).expect(TO_STRING);
        }
        self.html.push_str("</tr>\n");
    }

    /// The element, in a box of its own that scrolls sideways on a narrow screen.
    pub(super) fn finish(self) -> String {
        let caption = escape(&self.caption);
        format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\">\n<table>\
             <caption>{caption}</caption>\n{}</tbody></table></div>\n",
            self.html
        )
    }
}

/// What is shown only when asked for.
pub(super) fn details(summary: &str, content: &str) -> String {
    format!(
        "<details><summary>{}</summary>\n{content}</details>\n",
        escape(summary)
    )
}

/// Why writing cannot fail.
pub(super) const TO_STRING: &str = "a string takes all that is written";
