//! Records of brokers, and what they ask for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_gateway::model::{Mapping, RecordFormat, RecordParts};

use crate::commands::{self, Action, Publication};
use crate::limits;
use crate::status::DeadReason;

/// A record, as its broker delivered it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The topic, subject, stream or channel.
    pub(crate) subject: Arc<str>,
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<(String, Bytes)>,
    /// `None`: a tombstone, which is not published.
    pub(crate) value: Option<Bytes>,
    /// A name that repeats have too, where the record has no offset.
    pub(crate) id: Option<Box<str>>,
}

impl RecordParts for Record {
    fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    fn subject(&self) -> &str {
        &self.subject
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers.iter().find(|(header, _)| header == name);
        found.map(|(_, value)| &**value)
    }
}

/// A record that cannot be published.
#[derive(Clone, Debug)]
pub(crate) struct DeadLetter {
    pub(crate) reason: DeadReason,
    pub(crate) record: Record,
}

impl DeadLetter {
    /// The bytes of its record.
    pub(crate) fn bytes(&self) -> usize {
        let Record {
            key, headers, value, ..
        } = &self.record;
        let headers = headers.iter().map(|(name, value)| name.len() + value.len());
        key.as_ref().map_or(0, Bytes::len) + value.as_ref().map_or(0, Bytes::len) + headers.sum::<usize>()
    }
}

/// The actions of a record.
pub(crate) enum Actions {
    /// A tombstone has none.
    None,
    One(Action),
    Many(Vec<Action>),
}

impl Actions {
    pub(crate) fn len(&self) -> usize {
        match self {
            Actions::None => 0,
            Actions::One(_) => 1,
            Actions::Many(actions) => actions.len(),
        }
    }

    /// Reads a record, which keeps its value and headers only if dead letters are sent.
    pub(crate) fn read(mapping: &Mapping, record: &mut Record) -> Result<Actions, DeadReason> {
        let Some(value) = &record.value else {
            return Ok(Actions::None);
        };
        if value.len() > limits::RECORD_BYTES {
            return Err(DeadReason::TooLarge);
        }
        match mapping.format {
            RecordFormat::Data => {
                let channel = mapping.channel.channel_of(record);
                let channel = channel.ok_or(DeadReason::NoChannel)?.into();
                let key = record.id.take();
                let data = match mapping.dead_letters {
                    Some(_) => record.value.clone(),
                    None => {
                        record.headers = Vec::new();
                        record.value.take()
                    }
                };
                Ok(Actions::One(Action::Publish(Publication {
                    channel,
                    data: data.unwrap_or_default(),
                    tags: BTreeMap::new(),
                    key,
                })))
            }
            RecordFormat::Commands => commands::actions(value, record.id.as_deref()).map(Actions::Many),
        }
    }
}
