//! Axes: where a value stands between two ends, and the ticks that people count by.
//!
//! Pure arithmetic; knows neither figures nor SVG.

/// One axis of a plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    /// What it shows, in words.
    pub(super) label: String,
    low: f64,
    high: f64,
    logarithmic: bool,
    /// Values with their names.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// From nothing to at least `high`, evenly divided into about `wanted` parts.
    pub(super) fn linear(label: &str, high: f64, wanted: usize, write: impl Fn(f64) -> String) -> Axis {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = step(high / wanted as f64);
        let parts = (high / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=parts as u32).map(|at| f64::from(at) * step);
        Axis {
            label: label.into(),
            low: 0.0,
            high: parts * step,
            logarithmic: false,
            ticks: ticks.map(|at| (at, short(&write(at)))).collect(),
        }
    }

    /// From nothing to exactly `high`, with ticks where they fall.
    pub(super) fn exact(label: &str, high: f64, wanted: usize, write: impl Fn(f64) -> String) -> Axis {
        let mut axis = Axis::linear(label, high, wanted, write);
        if high.is_finite() && high > 0.0 {
            axis.high = high;
            axis.ticks.retain(|(at, _)| *at <= high);
        }
        axis
    }

    /// From `low` to `high` (both above nothing), widened to ticks at 1, 2 and 5 of each power of ten, or only at the
    /// powers if those are more than `wanted`.
    pub(super) fn logarithmic(
        label: &str,
        low: f64,
        high: f64,
        wanted: usize,
        write: impl Fn(f64) -> String,
    ) -> Axis {
        let low = if low.is_finite() && low > 0.0 { low } else { 1e-6 };
        let high = if high.is_finite() && high > low {
            high
        } else {
            low * 10.0
        };
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let values = |steps: &[f64]| -> Vec<f64> {
            let all = (first..=last).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            let all: Vec<f64> = all.collect();
            let from = all
                .iter()
                .rposition(|value| *value <= low * (1.0 + 1e-9))
                .unwrap_or(0);
            let to = all
                .iter()
                .position(|value| *value >= high * (1.0 - 1e-9))
                .unwrap_or(all.len() - 1);
            all[from..=to].to_vec()
        };
        let mut values = [values(&[1.0, 2.0, 5.0]), values(&[1.0, 3.0]), values(&[1.0])]
            .into_iter()
            .min_by_key(|values| (values.len() > wanted + 1, usize::MAX - values.len()))
            .expect("an array of three is not empty");
        if values.len() < 2 {
            values.push(values[0] * 10.0);
        }
        let mut axis = Axis {
            label: label.into(),
            low: values[0],
            high: values[values.len() - 1],
            logarithmic: true,
            ticks: values.into_iter().map(|at| (at, short(&write(at)))).collect(),
        };
        if axis.ticks.len() > wanted + 1 {
            axis.thin(wanted);
        }
        axis
    }

    /// Percentiles by how many nines they have, from none to `nines`; values are `-log10(1 - quantile)`.
    pub(super) fn nines(label: &str, nines: f64) -> Axis {
        let whole = nines.ceil().clamp(1.0, 12.0) as usize;
        let name = |nines: usize| match nines {
            0 => "0 %".to_owned(),
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            more => format!("99.{} %", "9".repeat(more - 2)),
        };
        Axis {
            label: label.into(),
            low: 0.0,
            high: nines.clamp(1.0, 12.0),
            logarithmic: false,
            ticks: (0..=whole)
                .filter(|at| *at as f64 <= nines.max(1.0))
                .map(|at| (at as f64, name(at)))
                .collect(),
        }
    }

    /// Leaves out ticks, evenly, until at most `wanted` are left.
    pub(super) fn thin(&mut self, wanted: usize) {
        let every = self.ticks.len().div_ceil(wanted.max(1)).max(1);
        let mut at = 0;
        self.ticks.retain(|_| {
            at += 1;
            (at - 1) % every == 0
        });
    }

    /// Where `value` stands between the ends: 0 to 1, no further.
    pub(super) fn place(&self, value: f64) -> f64 {
        let (low, high, value) = if self.logarithmic {
            (self.low.ln(), self.high.ln(), value.max(self.low).ln())
        } else {
            (self.low, self.high, value)
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    let fits = steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9));
    fits.unwrap_or(10.0 * power)
}

/// Without the zeros that only say how exact a figure is: a tick is.
fn short(written: &str) -> String {
    let (number, unit) = written.split_once(' ').unwrap_or((written, ""));
    let number = match number.split_once('.') {
        Some(_) => number.trim_end_matches('0').trim_end_matches('.'),
        None => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}
