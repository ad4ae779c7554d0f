//! Lines drawn over and over at the same place of a terminal.
//!
//! After each drawing the cursor rests on an empty line above the lines. So whatever else is written to the terminal, a
//! log line above all, lands there and stays, and the next drawing begins below it; a terminal that was made narrower
//! in between is no matter, for everything from the cursor on is erased; and a program that is killed leaves no mode
//! behind, only lines that the next prompt writes over. Knows nothing of what is drawn.

use std::io::Write;

/// Where it is drawn.
#[derive(Debug)]
pub(super) struct Screen<W: Write> {
    out: W,
    drawn: bool,
}

/// From the cursor's line on everything is erased: the line, then what is below it. Not both at once, for at the top of
/// a screen some terminals take that for the wish to keep all of it in their history.
const ERASE: &str = "\r\x1b[K\r\n\x1b[J\x1b[1A";
/// What was in the line behind what was written now.
const REST: &str = "\x1b[K";
/// A terminal that knows these shows what is between them at once; others ignore them.
const TOGETHER: (&str, &str) = ("\x1b[?2026h", "\x1b[?2026l");

impl<W: Write> Screen<W> {
    pub(super) fn new(out: W) -> Screen<W> {
        Screen { out, drawn: false }
    }

    /// Draws `lines` in place of those of the last time. None may be wider than the terminal, and there must be at
    /// least two fewer than it has rows.
    pub(super) fn draw_lines(&mut self, lines: &[String]) {
        let (begin, end) = TOGETHER;
        let mut text = format!("{begin}\r{REST}");
        for line in lines {
            text.push_str(&format!("\r\n{line}{REST}"));
        }
        // Lines of the last time that are more than those of now.
        text.push_str(&format!("\r\n\x1b[J\x1b[{}A{end}", lines.len() + 1));
        self.write_text(&text);
        self.drawn = true;
    }

    /// Writes a line that stays, in place of what is drawn.
    pub(super) fn print_line(&mut self, text: &str) {
        let erase = if self.drawn { ERASE } else { "" };
        self.drawn = false;
        self.write_text(&format!("{erase}{text}\n"));
    }

    fn write_text(&mut self, text: &str) {
        // In one piece, and nobody is left to hear of a broken terminal.
        let _ = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
    }
}

impl<W: Write> Drop for Screen<W> {
    /// Takes off what is drawn, also where an error or a panic ends the run.
    fn drop(&mut self) {
        if self.drawn {
            self.write_text(ERASE);
        }
    }
}
