//! Filters that a program brings along, as a configuration names them.

use std::fmt;
use std::sync::Arc;

use super::Name;

/// A filter that the requests of a rule pass, by the name under which the program has it ([`crate::filter`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterUse {
    /// Which.
    pub name: Name,
    /// What it is told here. Its own to understand.
    pub options: Options,
}

/// What a filter is told, in the form in which configurations are written. Its texts are not shown, since they may be secrets.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Options {
    /// No value.
    #[default]
    Nothing,
    /// True or false.
    Bool(bool),
    /// A number, as it is written.
    Number(Arc<str>),
    /// A text.
    Text(Arc<str>),
    /// Several.
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
