//! The plots over time: answers, latency and errors, the rounds one behind the other.

use super::axis::Axis;
use super::figures::{ends, section, target};
use super::html::{Table, details};
use super::plot::{Axes, Curve, Plot, Weight, legend};
use super::samples::{self, Sample};
use crate::report::{Run, amount, rounds};

/// Rows of a table; of more every n-th.
const ROWS: usize = 40;

/// The section of all plots over time.
pub(super) fn all(runs: &[&Run]) -> String {
    let series = Series::new(runs);
    let note = match series.rules.len() {
        0 => "One round.".to_owned(),
        many => format!("{} rounds in sequence, separated by vertical lines.", many + 1),
    };
    let names = runs
        .iter()
        .enumerate()
        .map(|(at, run)| (at, at % 2 == 1, target(at, run)));
    let targets = if series.single() {
        String::new()
    } else {
        legend(&names.collect::<Vec<_>>())
    };
    let open = runs.iter().all(|run| rounds::has_schedule(run));
    let content = format!(
        "{targets}<h3>Responses per second</h3>\n{}<h3>{} time</h3>\n{}<h3>Errors per second</h3>\n{}{}",
        series.answers(),
        if open { "Response" } else { "Service" },
        series.latency(),
        series.errors(),
        details("As a table", &series.tables()),
    );
    section("time", "Over time", &note, &content)
}

struct Series<'a> {
    runs: &'a [&'a Run],
    /// Of each run, of each round.
    samples: Vec<Vec<Vec<Sample>>>,
    /// Seconds that all rounds take, one behind the other.
    end: f64,
    /// Where rounds meet.
    rules: Vec<f64>,
}

impl<'a> Series<'a> {
    fn new(runs: &'a [&'a Run]) -> Series<'a> {
        let elapsed = runs
            .iter()
            .flat_map(|run| &run.rounds)
            .map(|round| round.elapsed.as_secs_f64());
        let length = elapsed.fold(1e-3, f64::max);
        let most = runs.iter().map(|run| run.rounds.len()).max().unwrap_or(0).max(1);
        Series {
            runs,
            samples: runs.iter().map(|run| samples::series(run, length)).collect(),
            end: length * most as f64,
            rules: (1..most).map(|round| round as f64 * length).collect(),
        }
    }

    fn single(&self) -> bool {
        self.runs.len() == 1
    }

    fn answers(&self) -> String {
        let most = self.most(|sample| sample.rate);
        let plot = Plot {
            id: "plot-rate",
            title: "Responses per second over time".into(),
            description: format!("At most {} per second.", amount::number(most)),
            axes: self.axes(move |up| Axis::linear("responses/s", most, up / 2, amount::number)),
            curves: self.curves(self.main(), 0, |sample| Some(sample.rate)),
            rules: self.rules.clone(),
        };
        plot.svg()
    }

    fn latency(&self) -> String {
        let (low, high) = ends(self.all().flat_map(|sample| [sample.p50, sample.p99]).flatten());
        let (p50, p99_tone, key) = if self.single() {
            let key = legend(&[(0, false, "p50".into()), (1, false, "p99".into())]);
            (Weight::Bold, 1, key)
        } else {
            (
                Weight::Thin,
                0,
                "<p class=\"note\">Thin: p50; bold: p99.</p>\n".to_owned(),
            )
        };
        let mut curves = self.curves(p50, 0, |sample| sample.p50);
        curves.extend(self.curves(Weight::Bold, p99_tone, |sample| sample.p99));
        let plot = Plot {
            id: "plot-latency",
            title: "Latency over time".into(),
            description: format!(
                "p50 and p99 between {} and {}.",
                amount::seconds(low),
                amount::seconds(high)
            ),
            axes: self.axes(move |up| Axis::logarithmic("latency", low, high, up, amount::seconds)),
            curves,
            rules: self.rules.clone(),
        };
        format!("{key}{}", plot.svg())
    }

    fn errors(&self) -> String {
        let most = self.most(|sample| sample.errors);
        if most == 0.0 {
            return "<p>None at any time.</p>\n".to_owned();
        }
        let plot = Plot {
            id: "plot-errors",
            title: "Errors per second over time".into(),
            description: format!("At most {} per second.", amount::number(most)),
            axes: self.axes(move |up| Axis::linear("errors/s", most, up / 2, amount::number)),
            curves: self.curves(self.main(), usize::from(self.single()), |sample| {
                Some(sample.errors)
            }),
            rules: self.rules.clone(),
        };
        plot.svg()
    }

    fn tables(&self) -> String {
        let columns = ["until", "responses/s", "p50", "p99", "errors/s"];
        let mut out = String::new();
        for (at, (run, rounds)) in self.runs.iter().zip(&self.samples).enumerate() {
            let samples: Vec<&Sample> = rounds.iter().flatten().collect();
            let every = samples.len().div_ceil(ROWS).max(1);
            let mut table = Table::new(&target(at, run), &columns);
            for sample in samples.into_iter().step_by(every) {
                let latency = |value: Option<f64>| value.map_or(amount::NONE.into(), amount::seconds);
                table.row(&[
                    format!("{} s", amount::number(sample.until)),
                    amount::number(sample.rate),
                    latency(sample.p50),
                    latency(sample.p99),
                    amount::number(sample.errors),
                ]);
            }
            if !self.single() {
                let name = super::html::escape(&target(at, run));
                out.push_str(&format!("<h3>{name}</h3>\n"));
            }
            out.push_str(&table.finish());
        }
        out
    }

    fn all(&self) -> impl Iterator<Item = &Sample> {
        self.samples.iter().flatten().flatten()
    }

    fn most(&self, value: impl Fn(&Sample) -> f64) -> f64 {
        self.all().map(value).fold(0.0, f64::max)
    }

    /// Areas of several runs would lie over each other.
    fn main(&self) -> Weight {
        if self.single() {
            Weight::Filled
        } else {
            Weight::Bold
        }
    }

    /// Time across, and what `up` makes for so many ticks.
    fn axes(&self, up: impl Fn(usize) -> Axis + 'static) -> Axes {
        let end = self.end;
        Box::new(move |across, ticks| {
            let x = Axis::exact("seconds of measured time", end, across, amount::number);
            (x, up(ticks))
        })
    }

    /// One curve for each round of each run, cut where there is nothing. The first run has the colour `tone`.
    fn curves(&self, weight: Weight, tone: usize, value: impl Fn(&Sample) -> Option<f64>) -> Vec<Curve> {
        let mut curves = vec![];
        for (run, rounds) in self.samples.iter().enumerate() {
            for part in rounds
                .iter()
                .flat_map(|round| round.split(|sample| value(sample).is_none()))
            {
                let steps = part.iter().filter_map(|sample| {
                    let value = value(sample)?;
                    Some([(sample.from, value), (sample.until, value)])
                });
                curves.push(Curve {
                    points: steps.flatten().collect(),
                    tone: tone + run,
                    weight,
                    dashed: run % 2 == 1 && weight != Weight::Thin,
                });
            }
        }
        curves
    }
}
