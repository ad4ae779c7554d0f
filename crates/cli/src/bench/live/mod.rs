//! The progress of a run on standard error: a live view on a terminal, otherwise a line every few seconds.
//!
//! [`Live`] is the interface: [`Live::begin_round`], [`Live::show_progress`], [`Live::end_round`]; dropping it removes the
//! view. `state` collects the data, `view` renders lines, `screen` draws them. Changes no mode of the terminal, so that a
//! killed process leaves none behind.

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

/// The live view, or progress lines.
#[derive(Debug)]
pub(super) struct Live {
    mode: OutputMode,
    state: State,
    screen: Screen<Stderr>,
    /// Monotonic time of the last output.
    last_output: Duration,
    /// CPU time of this process at the start of the interval.
    cpu: Duration,
}

/// The kinds of progress output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OutputMode {
    Silent,
    Lines,
    View { colour: bool },
}

impl Live {
    /// Returns a view if standard output and standard error are terminals, otherwise lines; no output if `quiet`.
    pub(super) fn new(quiet: bool) -> Live {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let mode = if quiet {
            OutputMode::Silent
        } else if dumb || !io::stdout().is_terminal() || !io::stderr().is_terminal() {
            OutputMode::Lines
        } else {
            OutputMode::View {
                colour: !set("NO_COLOR"),
            }
        };
        Live {
            mode,
            state: State::default(),
            screen: Screen::new(io::stderr()),
            last_output: Duration::ZERO,
            cpu: Duration::ZERO,
        }
    }

    /// Starts a round. `name`: the target, if there are several; `number`: from 0.
    pub(super) fn begin_round(&mut self, name: Option<&str>, number: u32, plan: &Plan) {
        self.state.begin_round(name, number, plan, clock::monotonic());
        self.redraw();
    }

    /// Shows the progress of the round.
    pub(super) fn show_progress(&mut self, progress: &Progress<'_>) {
        let now = clock::monotonic();
        match progress {
            Progress::Connecting => self.state.enter_phase(Phase::Connecting, now),
            Progress::Warming => self.state.enter_phase(Phase::Warming, now),
            Progress::Measuring => {
                self.cpu = clock::process_cpu();
                self.last_output = now;
                self.state.enter_phase(Phase::Measuring, now);
            }
            Progress::Interval { interval, .. } => {
                let cpu = clock::process_cpu();
                self.state.record_interval(interval, cpu.saturating_sub(self.cpu));
                self.cpu = cpu;
                if self.mode == OutputMode::Lines
                    && now.saturating_sub(self.last_output) >= LIVE_LINE_INTERVAL
                {
                    self.last_output = now;
                    self.screen.print_line(&view::status_line(&self.state));
                }
            }
            Progress::Waiting if now.saturating_sub(self.last_output) < LIVE_REDRAW => return,
            Progress::Waiting => {}
        }
        self.redraw();
    }

    /// Prints the summary of a finished round.
    pub(super) fn end_round(&mut self, round: &Round) {
        self.print_line(&view::round_summary(&self.state, round));
    }

    /// Prints a permanent line; the view continues below it.
    pub(super) fn print_line(&mut self, text: &str) {
        if self.mode != OutputMode::Silent {
            self.screen.print_line(text);
        }
    }

    fn redraw(&mut self) {
        let OutputMode::View { colour } = self.mode else {
            return;
        };
        // The size of a terminal that does not report it.
        let size = terminal::size(io::stderr()).unwrap_or(terminal::Size {
            columns: 80,
            rows: 24,
        });
        let now = clock::monotonic();
        self.last_output = now;
        // Some terminals wrap lines that use the last column.
        let width = usize::from(size.columns).saturating_sub(1);
        let mut lines = view::render_view(&self.state, now, width, colour);
        // One free line above and below the view.
        lines.truncate(usize::from(size.rows).saturating_sub(2));
        self.screen.draw_lines(&lines);
    }
}
