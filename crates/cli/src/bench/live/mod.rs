//! What is said while a run goes on, on standard error: a view that is drawn in place where a person looks on, else a
//! line every few seconds.
//!
//! [`Live`] is all that the rest of the command knows: [`Live::begin`] a round, [`Live::show`] its progress,
//! [`Live::end`] it; dropping it takes the view off the terminal. `state` gathers what is shown, `view` turns it into
//! lines, `screen` puts them on a terminal. Changes no mode of the terminal, so that nothing can be left behind.

mod screen;
mod state;
#[cfg(test)]
mod tests;
mod view;

use std::io::{self, IsTerminal, Stderr};
use std::time::Duration;

use ringmain_load::plan::Plan;
use ringmain_load::report::Round;
use ringmain_load::run::Progress;
use ringmain_sys::{clock, terminal};

use self::screen::Screen;
use self::state::{Phase, State};
use crate::limits::{LIVE_LINE_INTERVAL, LIVE_REDRAW};

/// The view, or the lines in its place.
#[derive(Debug)]
pub(super) struct Live {
    mode: OutputMode,
    state: State,
    screen: Screen<Stderr>,
    /// When something was last drawn or said, by a clock that does not jump.
    said: Duration,
    /// CPU time of this process when the interval that runs began.
    cpu: Duration,
}

/// How it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    Silent,
    Lines,
    View { colour: bool },
}

impl Live {
    /// Draws where standard output and standard error are terminals, says lines elsewhere, nothing if `quiet`.
    pub(super) fn new(quiet: bool) -> Live {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let mode = match quiet {
            true => OutputMode::Silent,
            false if dumb || !io::stdout().is_terminal() || !io::stderr().is_terminal() => OutputMode::Lines,
            false => OutputMode::View {
                colour: !set("NO_COLOR"),
            },
        };
        Live {
            mode,
            state: State::default(),
            screen: Screen::new(io::stderr()),
            said: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    /// A round begins: of which target, if there are several, and which round, from 0.
    pub(super) fn begin_round(&mut self, name: Option<&str>, number: u32, plan: &Plan) {
        self.state.begin_round(name, number, plan, clock::monotonic());
        self.redraw();
    }

    /// What goes on in it.
    pub(super) fn show_progress(&mut self, progress: &Progress<'_>) {
        let now = clock::monotonic();
        match progress {
            Progress::Connecting => self.state.enter_phase(Phase::Connecting, now),
            Progress::Warming => self.state.enter_phase(Phase::Warming, now),
            Progress::Measuring => {
                self.cpu = clock::process_cpu();
                self.said = now;
                self.state.enter_phase(Phase::Measuring, now);
            }
            Progress::Interval { interval, .. } => {
                let cpu = clock::process_cpu();
                self.state.record_interval(interval, cpu.saturating_sub(self.cpu));
                self.cpu = cpu;
                if self.mode == OutputMode::Lines && now.saturating_sub(self.said) >= LIVE_LINE_INTERVAL {
                    self.said = now;
                    self.screen.print_line(&view::status_line(&self.state));
                }
            }
            Progress::Waiting if now.saturating_sub(self.said) < LIVE_REDRAW => return,
            Progress::Waiting => {}
        }
        self.redraw();
    }

    /// A round is over.
    pub(super) fn end_round(&mut self, round: &Round) {
        self.print_line(&view::round_summary(&self.state, round));
    }

    /// Says something that stays to be read; the view comes back below it.
    pub(super) fn print_line(&mut self, text: &str) {
        if self.mode != OutputMode::Silent {
            self.screen.print_line(text);
        }
    }

    fn redraw(&mut self) {
        let OutputMode::View { colour } = self.mode else {
            return;
        };
        // A terminal that does not say how large it is may be small.
        let size = terminal::size(io::stderr()).unwrap_or(terminal::Size {
            columns: 80,
            rows: 24,
        });
        let now = clock::monotonic();
        self.said = now;
        // The last column stays free: writing to it makes some terminals wrap.
        let width = usize::from(size.columns).saturating_sub(1);
        let mut lines = view::render_view(&self.state, now, width, colour);
        // One line stays free above the view, one below.
        lines.truncate(usize::from(size.rows).saturating_sub(2));
        self.screen.draw_lines(&lines);
    }
}
