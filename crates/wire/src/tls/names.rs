//! Which certificate a client gets for the name that it asks for. Knows nothing of where certificates come from.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::certificate::Served;
use super::fault::cut;
use super::finding::Finding;

/// Certificates for one name, of different algorithms: the first that a client can check is taken.
type Choice = Vec<Arc<CertifiedKey>>;

/// Certificates by name.
#[derive(Debug)]
pub(super) struct Names {
    /// By whole names.
    exact: BTreeMap<String, Choice>,
    /// By what is behind the first label, for `*.` in front.
    wildcard: BTreeMap<String, Choice>,
    /// For clients that ask for no name, and for those of unknown ones.
    default: Choice,
    refuse_unknown: bool,
}

impl Names {
    /// Sorts them in; two for one name have keys of different algorithms.
    pub(super) fn new(served: &[Served], refuse_unknown: bool, findings: &mut Vec<Finding>) -> Self {
        let mut owners: BTreeMap<&str, Vec<&Served>> = BTreeMap::new();
        let mut names = Self {
            exact: BTreeMap::new(),
            wildcard: BTreeMap::new(),
            default: served
                .first()
                .map(|first| first.key.clone())
                .into_iter()
                .collect(),
            refuse_unknown,
        };
        for one in served {
            for name in &one.about.names {
                let owners = owners.entry(name).or_default();
                if let Some(other) = owners.iter().find(|other| other.algorithm() == one.algorithm()) {
                    // A name may stand twice in one certificate.
                    if other.about.fingerprint != one.about.fingerprint {
                        let text = format!(
                            "expected one certificate for each name and algorithm; found \"{}\" in {} too",
                            cut(name),
                            other.about.source
                        );
                        findings.push(Finding::error(&one.about.source, text));
                    } else if !std::ptr::eq(*other, one) {
                        let text = format!(
                            "expected each certificate once; found it in {} too",
                            other.about.source
                        );
                        findings.push(Finding::error(&one.about.source, text));
                    }
                    continue;
                }
                owners.push(one);
                match name.strip_prefix("*.") {
                    Some(rest) => names
                        .wildcard
                        .entry(rest.to_owned())
                        .or_default()
                        .push(one.key.clone()),
                    None => names.exact.entry(name.clone()).or_default().push(one.key.clone()),
                }
            }
        }
        if let Some(choice) = served
            .first()
            .and_then(|first| names.find(first.about.names.first()?))
        {
            names.default = choice.clone();
        }
        names
    }

    /// The certificates for `name`, which is in lower case; a wildcard stands for one label (RFC 9525 §6.3).
    fn find(&self, name: &str) -> Option<&Choice> {
        let name = name.strip_suffix('.').unwrap_or(name);
        let wildcard = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(wildcard)
    }
}

impl ResolvesServerCert for Names {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let choice = match hello.server_name() {
            None => &self.default,
            Some(name) => match self.find(name) {
                Some(choice) => choice,
                None if self.refuse_unknown => return None,
                None => &self.default,
            },
        };
        let schemes = hello.signature_schemes();
        let fits = choice.iter().find(|key| key.key.choose_scheme(schemes).is_some());
        fits.or(choice.first()).cloned()
    }
}
