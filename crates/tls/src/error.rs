//! The error of invalid TLS settings. Owns its text.

use std::fmt;

use ringmain_wire::tls::Finding;

/// Settings that cannot be used, with all their errors and warnings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError(pub Vec<Finding>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid TLS settings:")?;
        for finding in &self.0 {
            write!(f, "\n  {finding}")?;
        }
        Ok(())
    }
}

impl From<Finding> for ConfigError {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}
