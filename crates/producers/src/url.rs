//! URLs of brokers, as `--publish-to` takes them. Pure.

/// The placeholder of a record's channel in a subject.
const CHANNEL: &str = "{channel}";

/// An invalid URL of a broker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{found}: expected kafka://HOST[:PORT]/TOPIC, nats://HOST[:PORT]/SUBJECT with {{channel}} in the subject, or redis://HOST[:PORT]/STREAM{reason}"
)]
pub struct UrlError {
    found: String,
    reason: &'static str,
}

/// A broker, and the place in it that records are written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Kafka(KafkaTopic),
    JetStream(Subject),
    Redis(RedisStream),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KafkaTopic {
    /// Addresses, separated by commas.
    pub(crate) servers: String,
    pub(crate) topic: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Subject {
    /// With the user and the password, if there are any.
    pub(crate) server: String,
    before: String,
    after: String,
}

#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisStream {
    /// With the user and the password, if there are any.
    pub(crate) server: String,
    pub(crate) stream: String,
}

impl Subject {
    /// The subject of a channel.
    pub(crate) fn of(&self, channel: &str) -> String {
        [&self.before, channel, &self.after].concat()
    }

    /// The template.
    pub(crate) fn template(&self) -> String {
        self.of(CHANNEL)
    }
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&without_login(&self.server))
    }
}

impl std::fmt::Debug for RedisStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&without_login(&self.server))
    }
}

impl Target {
    pub(crate) fn parse(url: &str) -> Result<Target, UrlError> {
        let error = |reason| UrlError {
            found: without_login(url),
            reason,
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| error(""))?;
        let (authority, path) = rest
            .split_once('/')
            .ok_or_else(|| error(": the path is missing"))?;
        if authority.is_empty() || path.is_empty() || path.contains([' ', '/', '?']) {
            return Err(error(""));
        }
        let port = |default: u16| {
            let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
            let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
            if has_port {
                authority.to_owned()
            } else {
                format!("{authority}:{default}")
            }
        };
        match scheme {
            "kafka" => Ok(Target::Kafka(KafkaTopic {
                servers: authority
                    .split(',')
                    .map(|server| {
                        if server.contains(':') {
                            server.to_owned()
                        } else {
                            format!("{server}:9092")
                        }
                    })
                    .collect::<Vec<_>>()
                    .join(","),
                topic: path.to_owned(),
            })),
            "nats" => {
                let (before, after) = path
                    .split_once(CHANNEL)
                    .ok_or_else(|| error(": the subject has no {channel}"))?;
                Ok(Target::JetStream(Subject {
                    server: format!("nats://{}", port(4222)),
                    before: before.to_owned(),
                    after: after.to_owned(),
                }))
            }
            "redis" => Ok(Target::Redis(RedisStream {
                server: format!("redis://{}", port(6379)),
                stream: path.to_owned(),
            })),
            _ => Err(error("")),
        }
    }

    /// The URL without user and password.
    pub(crate) fn redacted(&self) -> String {
        match self {
            Target::Kafka(KafkaTopic { servers, topic }) => format!("kafka://{servers}/{topic}"),
            Target::JetStream(subject) => {
                format!("{}/{}", without_login(&subject.server), subject.template())
            }
            Target::Redis(RedisStream { server, stream }) => format!("{}/{stream}", without_login(server)),
        }
    }

    /// Returns advice for a broker that cannot be used.
    pub(crate) fn hint(&self) -> &'static str {
        match self {
            Target::Kafka(_) => "check that a broker listens there and that the topic exists",
            Target::JetStream(_) => {
                "check that a NATS with JetStream listens there and that a stream has the subject"
            }
            Target::Redis(_) => "check that a Redis listens there and that the key is a stream or free",
        }
    }
}

/// A URL whose user and password are left out.
fn without_login(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => match rest.split_once('@') {
            Some((_, rest)) => format!("{scheme}://{rest}"),
            None => url.to_owned(),
        },
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{KafkaTopic, Target};

    #[test]
    fn urls_are_parsed_with_the_ports_of_their_brokers() {
        let cases = [
            ("kafka://a/t", "kafka://a:9092/t"),
            ("kafka://a:1,b/t", "kafka://a:1,b:9092/t"),
            ("nats://a/p.{channel}", "nats://a:4222/p.{channel}"),
            ("nats://u:p@a:1/{channel}.x", "nats://a:1/{channel}.x"),
            ("redis://:p@[::1]/s", "redis://[::1]:6379/s"),
        ];
        for (url, expected) in cases {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.redacted(), expected);
        }
    }

    #[test]
    fn servers_of_kafka_are_kept_in_order() {
        let expected = KafkaTopic {
            servers: "a:1,b:9092".into(),
            topic: "t".into(),
        };
        assert_eq!(Target::parse("kafka://a:1,b/t"), Ok(Target::Kafka(expected)));
    }

    #[test]
    fn a_subject_has_the_channel_in_its_place() {
        let Ok(Target::JetStream(subject)) = Target::parse("nats://a/p.{channel}.x") else {
            panic!("a subject");
        };
        assert_eq!(subject.of("c1"), "p.c1.x");
    }

    #[test]
    fn invalid_urls_are_refused_without_their_passwords() {
        for url in [
            "kafka:a",
            "kafka://a",
            "kafka:///t",
            "kafka://a/",
            "nats://u:secret@a/p",
            "amqp://a/t",
            "redis://a/t/u",
        ] {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains("expected kafka://HOST"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
