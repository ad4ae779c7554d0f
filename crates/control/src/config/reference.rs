//! The reference pages: type, default, example and description of every key, from the JSON Schema.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use super::schema::{KeyDoc, definition_name};

/// The page of the keys at the top of a file.
const INDEX: &str = "README.md";

/// The comment of each page but the first, which has the command.
const GENERATED: &str = "<!-- Generated from crates/control/src/config/document: see README.md -->\n\n";

/// The page of values that are no objects.
const VALUES: &str = "values.md";

/// A page: its file name, title, the objects that it starts from, and the guides that it links to, with their names. An object
/// that no page lists is on the page of the first object that refers to it.
struct Page {
    file: &'static str,
    title: &'static str,
    objects: &'static [&'static str],
    guides: &'static [(&'static str, &'static str)],
}

const PAGES: [Page; 17] = [
    Page {
        file: "listeners.md",
        title: "Listeners and certificates",
        objects: &["Listener", "Certificate"],
        guides: &[
            ("https", "HTTPS"),
            ("tcp-and-tls-passthrough", "TCP and TLS passthrough"),
            ("udp", "UDP"),
            ("reverse-proxy", "reverse proxy"),
        ],
    },
    Page {
        file: "routes.md",
        title: "Routes, rules and streams",
        objects: &["Route", "Rule", "Stream"],
        guides: &[
            ("reverse-proxy", "reverse proxy"),
            ("tcp-and-tls-passthrough", "TCP and TLS passthrough"),
            ("udp", "UDP"),
            ("troubleshooting", "troubleshooting"),
        ],
    },
    Page {
        file: "responses.md",
        title: "Files, redirects, responses and headers",
        objects: &[
            "Files",
            "Redirect",
            "Respond",
            "ErrorPage",
            "HeaderChanges",
            "ResponseHeaders",
        ],
        guides: &[
            ("static-files", "static files"),
            ("https", "HTTPS"),
            ("cors", "CORS"),
        ],
    },
    Page {
        file: "forwarding.md",
        title: "Forwarding",
        objects: &[
            "Backend",
            "Rewrite",
            "Timeouts",
            "Retry",
            "Mirror",
            "Affinity",
            "BodyLimits",
        ],
        guides: &[
            ("retries-and-timeouts", "retries and timeouts"),
            ("canary", "canary releases"),
            ("mirroring", "mirroring"),
            ("load-balancing", "load balancing"),
        ],
    },
    Page {
        file: "upstreams.md",
        title: "Upstreams",
        objects: &["Upstream"],
        guides: &[
            ("load-balancing", "load balancing"),
            ("retries-and-timeouts", "retries and timeouts"),
            ("websockets-and-grpc", "WebSockets and gRPC"),
        ],
    },
    Page {
        file: "policies.md",
        title: "Policies",
        objects: &[
            "Policies",
            "Addresses",
            "ClientCertificate",
            "ExternalProcessor",
            "Filter",
            "Inject",
        ],
        guides: &[
            ("fault-injection", "fault injection"),
            ("ext-proc", "external processing"),
            ("custom-filters", "custom filters"),
        ],
    },
    Page {
        file: "authentication.md",
        title: "Authentication",
        objects: &[
            "JwtProvider",
            "Jwt",
            "ApiKeys",
            "BasicAuth",
            "ExternalAuth",
            "GrpcCheck",
        ],
        guides: &[
            ("jwt", "JWT"),
            ("api-keys", "API keys"),
            ("basic-auth", "basic auth"),
            ("external-auth", "external authorization"),
        ],
    },
    Page {
        file: "rate-limits.md",
        title: "Rate limits, concurrency and load shedding",
        objects: &[
            "RateLimit",
            "RateLimitService",
            "RateLimitDescriptor",
            "RateLimitEntry",
            "Concurrency",
            "Shed",
        ],
        guides: &[
            ("rate-limits", "rate limits"),
            ("rate-limit-service", "a rate limit service"),
            ("concurrency-and-load-shedding", "concurrency and load shedding"),
        ],
    },
    Page {
        file: "process.md",
        title: "Process: administration, logs, limits",
        objects: &["Admin", "AccessLog", "ProcessLog", "Limits"],
        guides: &[
            ("metrics", "metrics"),
            ("access-log", "access log"),
            ("process-log", "process log"),
            ("reload-and-upgrade", "reload and upgrade"),
        ],
    },
    Page {
        file: "kubernetes.md",
        title: "Kubernetes",
        objects: &["Kubernetes"],
        guides: &[("kubernetes", "Kubernetes")],
    },
    Page {
        file: "push.md",
        title: "Push",
        objects: &["Push", "PushTokens", "PushLimits", "PushProxy"],
        guides: &[
            ("push-connect", "connect a client"),
            ("push-authenticate", "authenticate clients"),
            ("push-proxy", "proxy events to the application"),
        ],
    },
    Page {
        file: "push-channels.md",
        title: "Push: channels",
        objects: &["PushNamespace"],
        guides: &[
            ("push-channels", "authorise channels"),
            ("push-recovery", "recover publications"),
            ("push-conflate", "conflation"),
            ("push-slow-consumers", "slow consumers"),
        ],
    },
    Page {
        file: "push-cluster.md",
        title: "Push: cluster",
        objects: &["PushCluster"],
        guides: &[("push-cluster", "push from several nodes")],
    },
    Page {
        file: "push-log.md",
        title: "Push: log of a cluster",
        objects: &["PushLog"],
        guides: &[("push-log", "keep publications when a node ends")],
    },
    Page {
        file: "push-nats.md",
        title: "Push: NATS and JetStream",
        objects: &["Nats", "JetStream", "NatsTls"],
        guides: &[("push-nats", "core NATS"), ("push-jetstream", "JetStream")],
    },
    Page {
        file: "push-kafka.md",
        title: "Push: Kafka",
        objects: &["Kafka", "KafkaSasl", "BrokerTls"],
        guides: &[("push-kafka", "Kafka")],
    },
    Page {
        file: "push-stores.md",
        title: "Push: Redis and PostgreSQL",
        objects: &["Postgres", "RedisPubSub", "RedisStreams"],
        guides: &[("push-redis", "Redis"), ("push-postgres", "PostgreSQL")],
    },
];

/// Returns the reference pages in Markdown, by file name.
#[must_use]
pub fn reference() -> BTreeMap<&'static str, String> {
    let schema = super::schema();
    let reference = Reference::new(&schema);
    let mut pages = BTreeMap::from([
        (INDEX, reference.index(&schema)),
        (VALUES, reference.values(&schema)),
    ]);
    pages.extend(
        PAGES
            .iter()
            .map(|page| (page.file, reference.page(page, &schema))),
    );
    pages
}

/// The keys of a definition that the reference lists, unless there are more.
const KEYS_SHOWN: usize = 6;

/// The definitions of the schema, in the order of the reference.
struct Reference {
    /// The names, in the order in which keys refer to them.
    order: Vec<String>,
    /// The page of each definition.
    files: BTreeMap<String, &'static str>,
    /// The keys at which a definition is used, in the order of their pages.
    keys: BTreeMap<String, Vec<String>>,
}

impl Reference {
    fn new(schema: &Value) -> Reference {
        let mut reference = Reference {
            order: Vec::new(),
            files: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        for page in &PAGES {
            for object in page.objects {
                reference.files.insert((*object).to_owned(), page.file);
            }
        }
        reference.visit(schema, INDEX, "", schema, &mut BTreeSet::new());
        reference
    }

    /// Visits the definitions that a value refers to: the objects of a page before those that these refer to.
    fn visit(
        &mut self,
        value: &Value,
        file: &'static str,
        key: &str,
        schema: &Value,
        seen: &mut BTreeSet<String>,
    ) {
        let mut uses = Vec::new();
        collect_uses(value, key, &mut uses);
        for (name, key) in &uses {
            let keys = self.keys.entry(name.clone()).or_default();
            if !keys.contains(key) {
                keys.push(key.clone());
            }
        }
        uses.retain(|(name, _)| seen.insert(name.clone()));
        for (name, key) in uses {
            let definition = &schema["$defs"][&name];
            let inherited = if is_object(definition) { file } else { VALUES };
            let file = *self.files.entry(name.clone()).or_insert(inherited);
            self.order.push(name);
            self.visit(definition, file, &key, schema, seen);
        }
    }

    fn index(&self, schema: &Value) -> String {
        let mut page = String::from(
            "# Configuration\n\n\
             <!-- Generated from the structs in crates/control/src/config/document: change those, then run\n     \
             cargo test -p ringmain-control --all-features write_the -- --ignored -->\n\n\
             `ringmain check FILE` validates a file and reports all errors; `ringmain explain FILE METHOD URL` shows the route of a\n\
             request. `examples/proxy.yaml` is the shortest file, `examples/shop.yaml` uses every feature once. Editors complete and\n\
             check keys with the JSON Schema [config.schema.json](../../config.schema.json), which `ringmain schema` prints.\n\n\
             In the column \"default\", – means that the key has no effect unless it is set, or that its own keys have defaults.\n\n",
        );
        page += &paragraph(text(schema, "description"));
        self.write_section(&mut page, schema, INDEX);
        page += "\n## Pages\n\n";
        for Page { file, title, .. } in &PAGES {
            let _ = writeln!(page, "- [{title}]({file})");
        }
        let _ = writeln!(page, "- [Values: times, sizes, hosts, addresses]({VALUES})");
        page
    }

    fn page(&self, page: &Page, schema: &Value) -> String {
        let mut text = format!("# {}\n\n{GENERATED}", page.title);
        text += "Keys of the [configuration](README.md)";
        for (number, (guide, name)) in page.guides.iter().enumerate() {
            text += if number == 0 { "; guides: " } else { ", " };
            let _ = write!(text, "[{name}](../../how-to/{guide}.md)");
        }
        text += ".\n";
        // The objects that the page lists, each followed by those that it refers to.
        let mut names: Vec<&str> = Vec::new();
        for object in page.objects {
            self.collect_names(object, page, schema, &mut names);
        }
        for name in names {
            self.write_definition(&mut text, name, page.file, schema);
        }
        text
    }

    fn collect_names<'n>(&'n self, name: &'n str, page: &Page, schema: &Value, names: &mut Vec<&'n str>) {
        if self.files.get(name) != Some(&page.file) || names.contains(&name) {
            return;
        }
        names.push(name);
        let mut uses = Vec::new();
        collect_uses(&schema["$defs"][name], "", &mut uses);
        for (inner, _) in uses {
            let Some((inner, _)) = self.files.get_key_value(&inner) else {
                continue;
            };
            if !page.objects.contains(&inner.as_str()) {
                self.collect_names(inner, page, schema, names);
            }
        }
    }

    fn values(&self, schema: &Value) -> String {
        let mut text =
            format!("# Values\n\n{GENERATED}The forms of values in the [configuration](README.md).\n");
        let mut names: Vec<&str> = self.order.iter().map(String::as_str).collect();
        names.retain(|name| self.files.get(*name) == Some(&VALUES));
        names.sort_unstable_by_key(|name| name.to_lowercase());
        for name in names {
            self.write_definition(&mut text, name, VALUES, schema);
        }
        text
    }

    /// Writes a definition with its keys.
    fn write_definition(&self, page: &mut String, name: &str, file: &str, schema: &Value) {
        let definition = &schema["$defs"][name];
        let _ = write!(page, "\n## {name}\n\n");
        if is_object(definition) {
            let _ = write!(page, "At {}. ", self.keys_of(name));
        }
        *page += &paragraph(text(definition, "description"));
        let examples = definition["examples"].as_array().into_iter().flatten();
        let examples: Vec<_> = examples.map(|value| format!("`{}`", in_yaml(value))).collect();
        if !examples.is_empty() {
            let word = if examples.len() == 1 {
                "Example"
            } else {
                "Examples"
            };
            let _ = write!(page, "\n{word}: {}.\n", examples.join(", "));
        }
        self.write_section(page, definition, file);
    }

    /// Returns the keys at which a definition is used: of many, the first one.
    fn keys_of(&self, name: &str) -> String {
        let keys = &self.keys[name];
        let shown = if keys.len() > KEYS_SHOWN {
            &keys[..1]
        } else {
            &keys[..]
        };
        let shown: Vec<String> = shown.iter().map(|key| format!("`{key}`")).collect();
        match shown.split_last() {
            Some((last, before @ [_, ..])) => format!("{} and {last}", before.join(", ")),
            _ => shown.concat(),
        }
    }

    /// Writes the keys of an object, or the words of an enum.
    fn write_section(&self, page: &mut String, value: &Value, file: &str) {
        if let Some(keys) = value["properties"].as_object() {
            page.push_str("\n| key | type | default | example | description |\n|---|---|---|---|---|\n");
            for (key, value) in keys {
                let doc = KeyDoc::parse(text(value, "description"));
                let default = default_column(value, &doc);
                let example = example_column(value);
                let _ = writeln!(
                    page,
                    "| `{key}` | {} | {default} | {example} | {} |",
                    self.kind(value, file),
                    doc.text
                );
            }
        } else if let Some(variants) = value["oneOf"].as_array() {
            page.push_str("\n| value | description |\n|---|---|\n");
            for variant in variants {
                let description = text(variant, "description").replace('\n', " ");
                let _ = writeln!(page, "| {} | {description} |", self.kind(variant, file));
            }
        } else if let Some(shape) = value["pattern"].as_str() {
            let _ = write!(page, "\nPattern: `{shape}`.\n");
        }
    }

    /// Returns the type of a value in words, with links from the page `file`.
    fn kind(&self, value: &Value, file: &str) -> String {
        if let Some(reference) = value["$ref"].as_str() {
            let name = definition_name(reference);
            let anchor = name.to_lowercase().replace(' ', "-");
            let target = self.files.get(&name).copied().filter(|target| *target != file);
            return format!("[{name}]({}#{anchor})", target.unwrap_or_default());
        }
        if let Some(word) = value["const"].as_str() {
            return format!("`{word}`");
        }
        if let Some(words) = value["enum"].as_array() {
            let words: Vec<_> = words
                .iter()
                .filter_map(Value::as_str)
                .map(|word| format!("`{word}`"))
                .collect();
            return words.join(" or ");
        }
        if let Some(any) = value["anyOf"].as_array() {
            let mut kinds: Vec<_> = any
                .iter()
                .filter(|value| value["type"] != "null")
                .map(|value| self.kind(value, file))
                .collect();
            kinds.dedup();
            return kinds.join(" or ");
        }
        let of = |word: &str| match word {
            "string" => "string".to_owned(),
            "integer" => "integer".to_owned(),
            "boolean" => "boolean".to_owned(),
            "array" => format!("list of {}", self.kind(&value["items"], file)),
            _ => match (&value["additionalProperties"], value["properties"].as_object()) {
                (inner @ Value::Object(_), _) => format!("map of {}", self.kind(inner, file)),
                (_, Some(keys)) => {
                    let keys: Vec<_> = keys
                        .iter()
                        .map(|(key, value)| format!("`{key}:` {}", self.kind(value, file)))
                        .collect();
                    keys.join(", ")
                }
                _ => "keys".to_owned(),
            },
        };
        match &value["type"] {
            Value::String(word) => of(word),
            Value::Array(words) => {
                let words = words
                    .iter()
                    .filter_map(Value::as_str)
                    .filter(|word| *word != "null");
                words.map(of).collect::<Vec<_>>().join(" or ")
            }
            _ => "anything".to_owned(),
        }
    }
}

/// Lists the definitions that a value refers to, each with the key at which it does.
fn collect_uses(value: &Value, key: &str, uses: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) => {
            for (word, value) in map.iter().filter(|(word, _)| *word != "$defs") {
                match (word.as_str(), value) {
                    ("$ref", Value::String(target)) => uses.push((definition_name(target), key.to_owned())),
                    ("properties", Value::Object(keys)) => {
                        for (name, value) in keys {
                            let dot = if key.is_empty() { "" } else { "." };
                            collect_uses(value, &format!("{key}{dot}{name}"), uses);
                        }
                    }
                    ("additionalProperties", Value::Object(_)) => {
                        collect_uses(value, &format!("{key}.NAME"), uses);
                    }
                    _ => collect_uses(value, key, uses),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| collect_uses(value, key, uses)),
        _ => {}
    }
}

/// Returns true if a definition has keys or words, so that it is on the page of its object.
fn is_object(definition: &Value) -> bool {
    definition["properties"].is_object() || definition["oneOf"].is_array()
}

/// Returns the default of a key for its column: the value of an omitted key.
fn default_column(value: &Value, doc: &KeyDoc) -> String {
    match (&value["default"], &doc.default) {
        (_, Some(default)) => default.clone(),
        (Value::Null, None) if doc.is_required => "required".to_owned(),
        (Value::Null, None) => "–".to_owned(),
        (Value::String(default), _) => format!("`{default}`"),
        (default, _) => format!("`{default}`"),
    }
}

/// Returns the first example of a key that is not its default, in YAML.
fn example_column(value: &Value) -> String {
    let examples = value["examples"].as_array().into_iter().flatten();
    let mut examples = examples.filter(|example| **example != value["default"]);
    examples.next().map_or_else(String::new, |example| {
        format!("`{}`", in_yaml(example).replace('|', "\\|"))
    })
}

/// Writes a value in YAML, in one line.
pub(super) fn in_yaml(value: &Value) -> String {
    match value {
        Value::Array(list) => {
            let list: Vec<_> = list.iter().map(in_yaml).collect();
            format!("[{}]", list.join(", "))
        }
        Value::Object(map) => {
            let pairs: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", scalar_in_yaml(key), in_yaml(value)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Value::String(text) => scalar_in_yaml(text),
        other => other.to_string(),
    }
}

/// Writes a string in YAML: with quotes where a plain one has another meaning.
fn scalar_in_yaml(text: &str) -> String {
    let is_plain_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./ %;=~^+$()".contains(&byte);
    let starts_plain = text
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'/' || byte == b'_' || byte == b'.');
    // A number with a unit or a dot in the middle is a string, as in `10s`.
    let is_measure = text.bytes().next().is_some_and(|byte| byte.is_ascii_digit())
        && text
            .bytes()
            .any(|byte| byte.is_ascii_alphabetic() || byte == b'/' || byte == b'%')
        && !text.contains(['e', 'x', 'o']);
    let is_word_of_yaml = ["true", "false", "null"].contains(&text.to_lowercase().as_str());
    // A colon is plain if no space follows.
    let has_plain_colons = !text.ends_with(':') && !text.contains(": ");
    let is_plain = text.bytes().all(|byte| is_plain_byte(byte) || byte == b':')
        && has_plain_colons
        && !text.ends_with(' ')
        && (starts_plain || is_measure)
        && !is_word_of_yaml;
    if is_plain {
        text.to_owned()
    } else {
        format!("{}", Value::String(text.to_owned()))
    }
}

fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_default()
}

fn paragraph(text: &str) -> String {
    format!("{}\n", text.trim())
}
