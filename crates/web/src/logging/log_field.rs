//! Fields that a handler adds to its request's line in the access log.
//!
//! Owns values by name. Without an access log they are discarded.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;

use crate::limits;

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// A constant of the program.
    Word(&'static str),
    /// A text.
    Text(Arc<str>),
    /// A number.
    Number(u64),
}

/// The notes of one request.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    client: Cell<Option<IpAddr>>,
    all: RefCell<Vec<(&'static str, Note)>>,
}

impl Notes {
    pub(crate) fn put(&self, name: &'static str, note: Note) {
        let mut all = self.all.borrow_mut();
        if let Some((_, old)) = all.iter_mut().find(|(other, _)| *other == name) {
            *old = note;
        } else if all.len() < limits::NOTES {
            all.push((name, note));
        }
    }

    pub(crate) fn put_client(&self, client: IpAddr) {
        self.client.set(Some(client));
    }

    pub(crate) fn client(&self) -> Option<IpAddr> {
        self.client.get()
    }

    /// Adds the notes of `others`.
    pub(crate) fn add(&self, others: &Notes) {
        if let Some(client) = others.client() {
            self.put_client(client);
        }
        others.look(|all| all.iter().for_each(|(name, note)| self.put(name, note.clone())));
    }

    pub(crate) fn look<R>(&self, look: impl FnOnce(&[(&'static str, Note)]) -> R) -> R {
        look(&self.all.borrow())
    }
}
