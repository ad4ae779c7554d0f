//! What is counted, and the line that says it.

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) measuring: bool,
    answered: u64,
    resumed: u64,
    pub(crate) lost: u64,
    pub(crate) mismatched: u64,
    pub(crate) connect_errors: u64,
    latencies_ns: Vec<u64>,
}

impl Figures {
    /// The window opens: answers so far do not count, errors do.
    pub(crate) fn begin(&mut self) {
        self.measuring = true;
        self.answered = 0;
        self.resumed = 0;
        self.latencies_ns.clear();
    }

    /// `took`: from the request to the last byte; of a new connection, from the dial.
    pub(crate) fn answered(&mut self, took: Duration, resumed: bool) {
        self.answered += 1;
        self.resumed += u64::from(resumed);
        if self.measuring {
            self.latencies_ns.push(took.as_nanos() as u64);
        }
    }

    pub(crate) fn line(&mut self, elapsed: Duration, cpu: f64, silent: u64) -> String {
        self.latencies_ns.sort_unstable();
        let secs = elapsed.as_secs_f64();
        let errs = self.lost + self.mismatched + self.connect_errors + silent;
        format!(
            "rps={:.0} n={} secs={secs:.3} p50_us={:.1} p99_us={:.1} p999_us={:.1} max_us={:.1} errs={errs} lost={} \
             mismatched={} connect_errs={} silent={silent} resumed={} cpu={cpu:.3}",
            self.answered as f64 / secs,
            self.answered,
            self.quantile_us(0.5),
            self.quantile_us(0.99),
            self.quantile_us(0.999),
            self.quantile_us(1.0),
            self.lost,
            self.mismatched,
            self.connect_errors,
            self.resumed,
        )
    }

    fn quantile_us(&self, share: f64) -> f64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        let index = (share * last as f64) as usize;
        self.latencies_ns.get(index).map_or(0.0, |&ns| ns as f64 / 1000.0)
    }
}

/// Seconds of processor time of this process, as the kernel counts them in ticks.
pub(crate) fn cpu_seconds() -> f64 {
    // Nanoseconds on a CPU: the first number.
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let first = text
        .split(' ')
        .next()
        .and_then(|number| number.parse::<f64>().ok());
    first.unwrap_or_default() / 1e9
}
