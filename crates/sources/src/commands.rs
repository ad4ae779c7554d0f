//! Commands of the server API in records, in the form that Centrifugo's consumers read: `{"method": "publish", "payload": {…}}`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ringmain_push::UserCommand;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits;
use crate::status::DeadReason;

/// A publication that a record asks for.
#[derive(Debug)]
pub(crate) struct Publication {
    pub(crate) channel: Arc<str>,
    pub(crate) data: Bytes,
    pub(crate) tags: BTreeMap<String, String>,
    /// Another publication of the channel with this key is the same.
    pub(crate) key: Option<Box<str>>,
}

/// A part of a record that is handed to a worker.
#[derive(Debug)]
pub(crate) enum Action {
    Publish(Publication),
    Command(UserCommand),
}

impl Action {
    /// The name that its worker follows from.
    pub(crate) fn addressee(&self) -> &str {
        match self {
            Action::Publish(publication) => &publication.channel,
            Action::Command(command) => command.user(),
        }
    }
}

#[derive(Deserialize)]
struct Command<'d> {
    method: &'d str,
    #[serde(borrow)]
    payload: &'d RawValue,
}

#[derive(Deserialize)]
struct Payload<'d> {
    #[serde(default)]
    channel: Option<String>,
    #[serde(default)]
    channels: Vec<String>,
    #[serde(borrow, default)]
    data: Option<&'d RawValue>,
    #[serde(default)]
    idempotency_key: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
}

/// The actions of a command. `id` is the key of publications that have none.
pub(crate) fn actions(value: &[u8], id: Option<&str>) -> Result<Vec<Action>, DeadReason> {
    let command: Command<'_> = serde_json::from_slice(value).map_err(|_| DeadReason::BadFormat)?;
    if !["publish", "broadcast"].contains(&command.method) {
        let command = UserCommand::parse(command.method, command.payload);
        return Ok(vec![Action::Command(command.ok_or(DeadReason::BadFormat)?)]);
    }
    let payload: Payload<'_> =
        serde_json::from_str(command.payload.get()).map_err(|_| DeadReason::BadFormat)?;
    let channels = match (command.method, payload.channel) {
        ("publish", Some(channel)) => vec![channel],
        ("broadcast", _) if payload.channels.len() > limits::BROADCAST_CHANNELS => {
            return Err(DeadReason::TooLarge);
        }
        ("broadcast", _) => payload.channels,
        _ => return Err(DeadReason::BadFormat),
    };
    let data = payload.data.ok_or(DeadReason::BadFormat)?;
    let data = Bytes::copy_from_slice(data.get().as_bytes());
    let key = match (&*payload.idempotency_key, id) {
        ("", id) => id.map(Box::from),
        (key, _) => Some(Box::from(key)),
    };
    let publication = |channel: String| {
        Action::Publish(Publication {
            channel: channel.into(),
            data: data.clone(),
            tags: payload.tags.clone(),
            key: key.clone(),
        })
    };
    Ok(channels.into_iter().map(publication).collect())
}

#[cfg(test)]
mod tests {
    use super::{Action, Publication, actions};
    use crate::status::DeadReason;

    fn publications(value: &[u8], id: Option<&str>) -> Result<Vec<Publication>, DeadReason> {
        let publications = actions(value, id)?.into_iter().map(|action| match action {
            Action::Publish(publication) => publication,
            Action::Command(command) => panic!("expected a publication, found {command:?}"),
        });
        Ok(publications.collect())
    }

    #[test]
    fn commands_for_the_connections_of_a_user_are_kept_whole() {
        for (method, payload) in [
            ("subscribe", r#"{"user":"ada","channel":"news"}"#),
            ("unsubscribe", r#"{"user":"ada","channel":"news"}"#),
            ("disconnect", r#"{"user":"ada"}"#),
            ("refresh", r#"{"user":"ada","expired":true}"#),
        ] {
            let value = format!(r#"{{"method":"{method}","payload":{payload}}}"#);
            let found = actions(value.as_bytes(), Some("7")).expect("a command");
            let [Action::Command(command)] = &found[..] else {
                panic!("{found:?}");
            };
            assert_eq!(command.user(), "ada", "{method}");
        }
    }

    #[test]
    fn a_publish_command_has_one_publication() {
        let value = br#"{"method":"publish","payload":{"channel":"news","data":{"a":1},"tags":{"b":"c"}}}"#;
        let found = publications(value, Some("7")).expect("a command");
        assert_eq!(found.len(), 1);
        let publication = &found[0];
        assert_eq!(
            (&*publication.channel, &publication.data[..]),
            ("news", &b"{\"a\":1}"[..])
        );
        assert_eq!(publication.tags["b"], "c");
        assert_eq!(publication.key.as_deref(), Some("7"));
    }

    #[test]
    fn a_broadcast_has_one_for_each_channel() {
        let value =
            br#"{"method":"broadcast","payload":{"channels":["a","b"],"data":1,"idempotency_key":"k"}}"#;
        let found = publications(value, Some("7")).expect("a command");
        let channels: Vec<&str> = found.iter().map(|publication| &*publication.channel).collect();
        assert_eq!(channels, ["a", "b"]);
        assert!(
            found
                .iter()
                .all(|publication| publication.key.as_deref() == Some("k"))
        );
    }

    #[test]
    fn other_values_are_dead_letters() {
        for value in [
            &b"{"[..],
            b"1",
            br#"{"method":"publish","payload":{"data":1}}"#,
            br#"{"method":"publish","payload":{"channel":"a"}}"#,
            br#"{"method":"disconnect","payload":{"user":"a","mistake":1}}"#,
            br#"{"method":"disconnect","payload":{}}"#,
            br#"{"method":"presence","payload":{"channel":"a"}}"#,
            br#"{"method":"explode","payload":{}}"#,
        ] {
            let text = String::from_utf8_lossy(value);
            assert_eq!(
                publications(value, None).err(),
                Some(DeadReason::BadFormat),
                "{text}"
            );
        }
        let channels: Vec<String> = (0..2000).map(|number| format!("\"c{number}\"")).collect();
        let value = format!(
            r#"{{"method":"broadcast","payload":{{"channels":[{}],"data":1}}}}"#,
            channels.join(",")
        );
        assert_eq!(
            publications(value.as_bytes(), None).err(),
            Some(DeadReason::TooLarge)
        );
    }
}
