//! Fields that a handler adds to its request's line in the access log.
//!
//! Owns values by name. Without an access log they are discarded.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use crate::limits;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogField {
    /// A constant of the program.
    Word(&'static str),
    /// A text.
    Text(Arc<str>),
    /// A number.
    Number(u64),
}

/// The notes of one request.
#[derive(Debug, Default)]
pub(crate) struct LogFields {
    client: Cell<Option<IpAddr>>,
    all: RefCell<Vec<(&'static str, LogField)>>,
}

impl LogFields {
    pub(crate) fn set(&self, name: &'static str, value: LogField) {
        let mut all = self.all.borrow_mut();
        if let Some((_, old)) = all.iter_mut().find(|(other, _)| *other == name) {
            *old = value;
        } else if all.len() < limits::LOG_FIELDS {
            all.push((name, value));
        }
    }

    pub(crate) fn set_client(&self, client: IpAddr) {
        self.client.set(Some(client));
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.client.get()
    }

    /// Adds the notes of `others`.
    pub(crate) fn add(&self, others: &LogFields) {
        if let Some(client) = others.client() {
            self.set_client(client);
        }
        others.with_all(|all| all.iter().for_each(|(name, value)| self.set(name, value.clone())));
    }

    pub(crate) fn with_all<R>(&self, read: impl FnOnce(&[(&'static str, LogField)]) -> R) -> R {
        read(&self.all.borrow())
    }
}
