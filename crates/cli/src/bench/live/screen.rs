//! Lines that are redrawn at the same position of a terminal.
//!
//! After each drawing the cursor is on an empty line above the drawn lines. Other output, such as a log line, therefore remains
//! visible, and the next drawing begins below it. A resized terminal needs no handling, since everything below the cursor
//! is erased. A killed program leaves no terminal mode, only lines that the next prompt overwrites. Knows nothing of the
//! lines.

use std::io::Write;

/// A terminal with drawn lines.
#[derive(Debug)]
pub(super) struct Screen<W: Write> {
    out: W,
    drawn: bool,
}

/// Erases the cursor's line, then everything below it. Not both at once: at the top of a screen some terminals would then move
/// the whole screen to their history.
const ERASE: &str = "\r\x1b[K\r\n\x1b[J\x1b[1A";
/// Erases the rest of the line.
const REST: &str = "\x1b[K";
/// Begin and end of a synchronized update; terminals without it ignore both.
const TOGETHER: (&str, &str) = ("\x1b[?2026h", "\x1b[?2026l");

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W) -> Screen<W> {
        Screen { out, drawn: false }
    }

    /// Draws `lines` in place of the previous ones. No line may be wider than the terminal, and two rows must remain free.
    pub(super) fn draw_lines(&mut self, lines: &[String]) {
        let (begin, end) = TOGETHER;
        let mut text = format!("{begin}\r{REST}");
        for line in lines {
            text.push_str(&format!("\r\n{line}{REST}"));
        }
        // Erases additional lines of the previous drawing.
        text.push_str(&format!("\r\n\x1b[J\x1b[{}A{end}", lines.len() + 1));
        self.write_text(&text);
        self.drawn = true;
    }

    /// Writes a permanent line in place of the drawn lines.
    pub(super) fn print_line(&mut self, text: &str) {
        let erase = if self.drawn { ERASE } else { "" };
        self.drawn = false;
        self.write_text(&format!("{erase}{text}\n"));
    }

    fn write_text(&mut self, text: &str) {
        // In one write; a broken terminal cannot be reported.
        let _ = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
    }
}

impl<W: Write> Drop for Screen<W> {
    /// Erases the drawn lines, also after an error or a panic.
    fn drop(&mut self) {
        if self.drawn {
            self.write_text(ERASE);
        }
    }
}
