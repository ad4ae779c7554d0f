//! Settings that cannot be used. Owns how findings are told.

use std::fmt;

use ringmain_wire::tls::Finding;

/// Settings with which nothing can be served; all that is wrong with them, warnings included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refused(pub Vec<Finding>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TLS cannot be set up:")?;
        for finding in &self.0 {
            write!(f, "\n  {finding}")?;
        }
        Ok(())
    }
}

impl From<Finding> for Refused {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}
