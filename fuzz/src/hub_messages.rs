//! Messages of the Centrifuge client protocol: commands and replies, in both formats, and JSON without line breaks.
//!
//! The first byte of an input says what the rest is.

use std::fmt::Debug;

use bytes::Bytes;
use prost::Message;
use ringmain_hub::limits::COMMANDS_PER_MESSAGE;
use ringmain_hub::protocol::{Command, Format, MessageParts, Reply, compact};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// Laws: no panic; parts end behind the first that is broken, and are no more than may be; what is understood is understood again
/// when it is written, one by one and all together; what is JSON is so for serde_json, too, and without breaks it is the same JSON.
///
/// # Panics
/// When a law is broken.
pub fn run(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else {
        return;
    };
    let bytes = Bytes::copy_from_slice(bytes);
    let format = if kind & 1 == 0 {
        Format::Json
    } else {
        Format::Protobuf
    };
    match kind >> 1 & 1 {
        0 => parts::<Command>(format, bytes.clone()),
        _ => parts::<Reply>(format, bytes.clone()),
    }
    let compact = compact(&bytes);
    let is_json = serde_json::from_slice::<&RawValue>(&bytes).is_ok();
    assert_eq!(compact.is_ok(), is_json, "as a reader says that is known");
    if let Ok(compact) = compact {
        assert!(!compact.contains(&b'\n') && !compact.contains(&b'\r'));
        assert_eq!(value(&compact), value(&bytes));
    }
}

fn value(json: &[u8]) -> Option<serde_json::Value> {
    serde_json::from_slice(json).ok()
}

fn parts<T: Message + Default + Clone + PartialEq + Serialize + DeserializeOwned + Debug>(
    format: Format,
    bytes: Bytes,
) {
    let found: Vec<_> = MessageParts::<T>::new(format, bytes).collect();
    assert!(found.len() <= COMMANDS_PER_MESSAGE + 1);
    let good = found.iter().take_while(|part| part.is_ok()).count();
    assert!(found.len() <= good + 1, "it ends behind the first that is broken");
    let mut all = Vec::new();
    let mut written = Vec::new();
    for part in found.into_iter().flatten() {
        let mut alone = Vec::new();
        // Bytes within are JSON, since they were read as it; what is read in Protobuf is written in it.
        format
            .write(&part, &mut alone)
            .expect("what is read can be written");
        let read: Vec<_> = MessageParts::<T>::new(format, alone.clone().into()).collect();
        // A break within raw JSON goes when it is written; then it stays as it is.
        let again = match &read[..] {
            [Ok(again)] => again.clone(),
            other => panic!("one is written, and read as {other:?}"),
        };
        let mut second = Vec::new();
        format
            .write(&again, &mut second)
            .expect("what is read can be written");
        assert_eq!(second, alone);
        format.write(&part, &mut all).expect("as before");
        written.push(Ok(again));
    }
    let read: Vec<_> = MessageParts::<T>::new(format, all.into()).collect();
    assert_eq!(read, written);
}
