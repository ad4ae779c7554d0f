//! References to custom filters of the program, as a configuration names them.

use std::fmt;
use std::sync::Arc;

use super::Name;

/// A filter that the requests of a rule pass, by the name under which the program registered it ([`crate::filter`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterUse {
    /// The registered name.
    pub name: Name,
    /// The options for the filter, which interprets them itself.
    pub options: Options,
}

/// The options of a filter, as a tree of configuration values. `Debug` omits the values, since they may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Options {
    /// No value.
    #[default]
    Nothing,
    /// True or false.
    Bool(bool),
    /// A number, as written.
    Number(Arc<str>),
    /// A string.
    Text(Arc<str>),
    /// A list.
    List(Vec<Options>),
    /// Names with a value each, in the order of the file.
    Map(Vec<(Arc<str>, Options)>),
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Options::Map(pairs) => {
                let names: Vec<_> = pairs.iter().map(|(name, _)| name).collect();
                write!(f, "Options of {names:?}")
            }
            _ => f.write_str("Options"),
        }
    }
}
