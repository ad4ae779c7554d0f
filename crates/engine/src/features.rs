//! The kernel features that the io_uring back-end can use, as a set with a switch for each.
//!
//! Knows the names only; [`probe`](crate::probe) finds out which ones work.

use std::fmt;
use std::str::FromStr;

/// One feature beyond bare operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Feature {
    /// Sockets live in the ring's table and do not count against `RLIMIT_NOFILE`.
    DirectDescriptors,
    /// Workers wake each other and pass sockets from ring to ring (`IORING_OP_MSG_RING`).
    MessageRing,
    /// One operation accepts many connections.
    MultishotAccept,
    /// One operation receives many times.
    MultishotRecv,
    /// The ring's descriptor is registered with its thread.
    RegisteredRing,
    /// Sends without copying (`IORING_OP_SEND_ZC`).
    ZeroCopySend,
    /// Busy polling of the network device (`IORING_REGISTER_NAPI`).
    BusyPoll,
}

/// All features, in the order in which they are printed.
pub const FEATURES: [(Feature, &str); 7] = [
    (Feature::DirectDescriptors, "direct-descriptors"),
    (Feature::MessageRing, "message-ring"),
    (Feature::MultishotAccept, "multishot-accept"),
    (Feature::MultishotRecv, "multishot-recv"),
    (Feature::RegisteredRing, "registered-ring"),
    (Feature::ZeroCopySend, "zero-copy-send"),
    (Feature::BusyPoll, "busy-poll"),
];

/// A set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features(u8);

impl Features {
    /// None.
    #[must_use]
    pub const fn none() -> Features {
        Features(0)
    }

    /// All.
    #[must_use]
    pub const fn all() -> Features {
        Features((1 << FEATURES.len()) - 1)
    }

    /// Those that are used unless somebody switches them off; the others wait to be asked for.
    #[must_use]
    pub const fn by_default() -> Features {
        Features::all()
            .without(Feature::ZeroCopySend)
            .without(Feature::BusyPoll)
    }

    /// Whether the feature is in the set.
    #[must_use]
    pub const fn has(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// The set and this feature.
    #[must_use]
    pub const fn with(self, feature: Feature) -> Features {
        Features(self.0 | 1 << feature as u8)
    }

    /// The set but this feature.
    #[must_use]
    pub const fn without(self, feature: Feature) -> Features {
        Features(self.0 & !(1 << feature as u8))
    }

    /// What is in this set and not in the other.
    #[must_use]
    pub const fn minus(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
}

/// A name that is no feature.
#[derive(Clone, Debug, thiserror::Error)]
#[error("expected names of io_uring features, separated by commas, out of: {known}; found `{found}`")]
pub struct UnknownFeature {
    found: String,
    known: String,
}

impl FromStr for Features {
    type Err = UnknownFeature;

    /// Reads names separated by commas.
    fn from_str(text: &str) -> Result<Features, UnknownFeature> {
        let mut set = Features::none();
        for name in text.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let Some((feature, _)) = FEATURES.iter().find(|(_, known)| *known == name) else {
                return Err(UnknownFeature {
                    found: name.into(),
                    known: Features::all().to_string(),
                });
            };
            set = set.with(*feature);
        }
        Ok(set)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = FEATURES
            .iter()
            .filter(|(feature, _)| self.has(*feature))
            .map(|(_, name)| *name)
            .collect();
        f.write_str(&names.join(","))
    }
}
