//! Scenario files: reads a file with the files it names, and parses the settings that belong to the command line.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use ringmain_load::limits;
use ringmain_load::scenario::{self, Scenario, Settings};
use ringmain_load::target::{Scheme, Target};
use ringmain_load::threshold::Threshold;
use ringmain_load::traffic::Traffic;

use super::output;
use crate::error::CliError;

/// A valid scenario.
#[derive(Debug)]
pub(super) struct ScenarioFile {
    scenario: Scenario,
    /// The thresholds of its results.
    pub(super) thresholds: Vec<Threshold>,
}

impl ScenarioFile {
    /// Reads the file and the files of bodies, relative to its folder.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid.
    pub(super) fn read(path: &Path) -> Result<ScenarioFile, CliError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|error| CliError::Usage(format!("cannot read the scenario {name}: {error}")))?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let mut read = |body: &str| read_bounded(&folder.join(body));
        let scenario = scenario::load(&name, &text, &mut read).map_err(usage_error)?;
        let mut thresholds = Vec::new();
        for written in &scenario.settings.thresholds {
            let threshold = written.value.parse::<Threshold>().map_err(|error| {
                let expected = format!("{} at character {}", error.expected, error.position);
                usage_error(scenario.wrong(written, "threshold", &expected, &error.found))
            });
            thresholds.push(threshold?);
        }
        let file = ScenarioFile { scenario, thresholds };
        if let Some(target) = &file.settings().target {
            let http = Target::parse(&target.value).is_ok_and(|target| target.scheme == Scheme::Http);
            if !http {
                let expected = "a target such as http://127.0.0.1:8080";
                return Err(usage_error(file.scenario.wrong(
                    target,
                    "target",
                    expected,
                    &target.value,
                )));
            }
        }
        Ok(file)
    }

    /// Returns the settings of the load.
    pub(super) fn settings(&self) -> &Settings {
        &self.scenario.settings
    }

    /// Returns the target, if the file names one.
    pub(super) fn target(&self) -> Option<&str> {
        self.settings()
            .target
            .as_ref()
            .map(|target| target.value.as_str())
    }

    /// Returns the requests.
    pub(super) fn traffic(&self, host: &str) -> Result<Traffic, CliError> {
        self.scenario.traffic(host).map_err(usage_error)
    }
}

fn usage_error(error: impl ToString) -> CliError {
    CliError::Usage(error.to_string())
}

/// Reads the file of a body, up to one byte more than the limit.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(limits::REQUEST_BODY_BYTES as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns whether the target is the name of a scenario file, not a URL that ends alike.
pub(super) fn is_scenario(target: &str) -> bool {
    let extension = Path::new(target).extension();
    extension.is_some_and(|extension| extension == "yaml" || extension == "yml") && !target.contains(':')
}

/// `ringmain bench check`.
pub(super) fn check_scenario(path: &Path) -> Result<(), CliError> {
    let file = ScenarioFile::read(path)?;
    let traffic = file.traffic("localhost")?;
    let flows = traffic.flows();
    let steps: usize = flows.iter().map(|flow| flow.steps.len()).sum();
    output::to_standard_output(&format!(
        "{}: valid, {} flow{} with {steps} request{} in total",
        path.display(),
        flows.len(),
        if flows.len() == 1 { "" } else { "s" },
        if steps == 1 { "" } else { "s" },
    ))
}
