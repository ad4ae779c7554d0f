//! A worker's memory for steps that nothing waits in.

use ringmain_wire::h1::{FieldBlock, FieldTable, Limits};

use crate::limits;

/// Memory for steps that nothing waits in.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) limits: Limits,
    pub(crate) table: FieldTable,
    pub(crate) out: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) fields: FieldBlock,
}

impl Desk {
    pub(crate) fn new() -> Desk {
        let limits = Limits {
            head_bytes: limits::RESPONSE_HEAD_BYTES,
            fields: limits::RESPONSE_FIELDS,
            ..Limits::INTERNET
        };
        Desk {
            table: FieldTable::new(&limits),
            limits,
            out: Vec::new(),
            text: Vec::new(),
            host: String::new(),
            path: String::new(),
            fields: FieldBlock::new(),
        }
    }
}
