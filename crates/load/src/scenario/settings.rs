//! What a scenario file says about the load: which numbers are possible, and which keys exclude each other.
//!
//! Knows neither flags nor what a target or a threshold means.

use std::time::Duration;

use super::document::Document;
use super::error::ScenarioError;
use super::values::{At, Position, Time};
use crate::limits;
use crate::traffic::shorten;

/// What a scenario file says about the load; flags override it. Each is within its limit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Where to connect to, as it is written.
    pub target: Option<Located<String>>,
    /// As in [`crate::plan::Plan`].
    pub connections: Option<u32>,
    /// As in [`crate::plan::Plan`].
    pub threads: Option<usize>,
    /// Arrivals a second, above 0.
    pub rate: Option<f64>,
    /// Whether arrivals are independent of each other; says nothing without a rate.
    pub poisson: Option<bool>,
    /// How long is measured, above 0. Never together with `requests`.
    pub duration: Option<Duration>,
    /// How many requests are measured.
    pub requests: Option<u64>,
    /// As in [`crate::plan::Plan`].
    pub warmup: Option<Duration>,
    /// As in [`crate::plan::Plan`].
    pub pipeline: Option<u32>,
    /// As in [`crate::plan::Plan`]; above 0.
    pub timeout: Option<Duration>,
    /// As in [`crate::plan::Plan`].
    pub reconnect_after: Option<u64>,
    /// As in [`crate::plan::Plan`].
    pub seed: Option<u64>,
    /// What must hold for the figures, as they are written.
    pub thresholds: Vec<Located<String>>,
}

/// A value and where it stands in the file: line and column from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// What is written.
    pub value: T,
    /// From 1.
    pub line: u64,
    /// In characters, from 1.
    pub column: u64,
}

/// The settings of a file.
pub(super) fn of(file: &str, document: &Document) -> Result<Settings, ScenarioError> {
    Ok(Settings {
        target: document.target.as_ref().map(located),
        connections: whole(file, "connections", &document.connections, limits::CONNECTIONS)?,
        threads: whole(file, "threads", &document.threads, limits::THREADS)?,
        rate: rate(file, document.rate.as_ref())?,
        poisson: document.poisson,
        duration: positive(file, "duration", document.duration.as_ref())?,
        requests: whole(file, "requests", &document.requests, u64::MAX)?,
        warmup: time(file, "warmup", document.warmup.as_ref())?,
        pipeline: whole(file, "pipeline", &document.pipeline, limits::PIPELINE)?,
        timeout: positive(file, "timeout", document.timeout.as_ref())?,
        reconnect_after: whole(file, "reconnect_after", &document.reconnect_after, u64::MAX)?,
        seed: document.seed,
        thresholds: document.thresholds.iter().map(located).collect(),
    })
}

/// A number from 1 to `most`.
fn whole<T: Copy + PartialOrd + From<u8> + std::fmt::Display>(
    file: &str,
    what: &str,
    at: &Option<At<T>>,
    most: T,
) -> Result<Option<T>, ScenarioError> {
    let Some(At { value, position }) = *at else {
        return Ok(None);
    };
    if value < T::from(1) || value > most {
        let expected = format!("a whole number from 1 to {most}");
        return Err(ScenarioError::new(
            file,
            position,
            what,
            expected,
            value.to_string(),
        ));
    }
    Ok(Some(value))
}

fn rate(file: &str, at: Option<&At<f64>>) -> Result<Option<f64>, ScenarioError> {
    let Some(&At { value, position }) = at else {
        return Ok(None);
    };
    if value > 0.0 && value <= limits::RATE {
        return Ok(Some(value));
    }
    let expected = format!("flows a second, above 0 and at most {}", limits::RATE);
    Err(ScenarioError::new(
        file,
        position,
        "rate",
        expected,
        value.to_string(),
    ))
}

fn positive(file: &str, what: &str, at: Option<&At<Time>>) -> Result<Option<Duration>, ScenarioError> {
    let duration = time(file, what, at)?;
    match at {
        Some(At { position, .. }) if duration == Some(Duration::ZERO) => {
            Err(ScenarioError::new(file, *position, what, "a time above 0", "0"))
        }
        _ => Ok(duration),
    }
}

/// A time that may be 0.
pub(super) fn time(file: &str, what: &str, at: Option<&At<Time>>) -> Result<Option<Duration>, ScenarioError> {
    let Some(At { value, position }) = at else {
        return Ok(None);
    };
    let duration = value.duration().ok_or_else(|| {
        let expected = "a time with its unit (us, ms, s, m, h), such as 500ms, 10s or 2m";
        let found = format!("`{}`", shorten(&value.0));
        ScenarioError::new(file, *position, what, expected, found)
    })?;
    Ok(Some(duration))
}

fn located(at: &At<String>) -> Located<String> {
    let Position { line, column } = at.position;
    Located {
        value: at.value.clone(),
        line,
        column,
    }
}
