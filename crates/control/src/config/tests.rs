//! Configurations of files, and the errors of invalid ones.

mod admin;
mod deprecated_keys;
mod derived_errors;
#[cfg(all(
    feature = "kafka",
    feature = "jetstream",
    feature = "redis",
    feature = "postgres",
    feature = "kubernetes"
))]
mod documentation;
mod empty_lists;
mod errors;
mod examples;
mod expansion;
mod ext_proc;
mod filters;
mod grpc;
mod kubernetes;
mod limits;
mod nats;
mod policies;
mod process_log;
mod push;
mod push_cluster;
mod push_log;
mod rate_service;
mod retries;
mod schema;
mod source;
#[cfg(all(
    feature = "kafka",
    feature = "jetstream",
    feature = "redis",
    feature = "postgres"
))]
mod sources;
mod traffic;
mod udp;
mod zones;

use std::io;
use std::path::Path;
use std::sync::Arc;

use ringmain_gateway::model::Config;
use ringmain_gateway::table::Table;

use super::{ConfigEnvironment, Loaded, load};

/// A world with some variables and files.
fn test_environment() -> ConfigEnvironment<'static> {
    ConfigEnvironment {
        variable: &|name| match name {
            "NAME" => Some("the-value".to_owned()),
            "SECRET" => Some("hun ter:2\n".to_owned()),
            "TOKEN_SECRET" => Some("0123456789abcdef0123456789abcdef".to_owned()),
            "API_KEY" => Some("owner".to_owned()),
            "PROXY_KEY" => Some("gateway".to_owned()),
            "SHOP_NAME" => Some("corner".to_owned()),
            "POD_NAME" => Some("push-0".to_owned()),
            _ => None,
        },
        file: &|path| {
            match path {
            "token" => Ok(b"from-a-file\n".to_vec()),
            "users.htpasswd" => {
                Ok(b"# users\nada:$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5\n".to_vec())
            }
            "jwks.json" => Ok(
                br#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#
                    .to_vec(),
            ),
            "keys.txt" => {
                let digest = "00".repeat(31);
                Ok(format!("# keys\ntill sha256:{digest}ff\n").into_bytes())
            }
            "binary" => Ok(vec![0xff, 0xfe]),
            path if path.ends_with(".crt") || path.ends_with(".key") || path.ends_with(".pem") => {
                Ok(b"-----BEGIN CERTIFICATE-----\n".to_vec())
            }
            "page.html" | "shop/not-found.html" => Ok(b"<p>Not here.</p>\n".to_vec()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
        },
        is_public: &|_| false,
        folder: Path::new("/etc/ringmain"),
    }
}

fn loaded(text: &str) -> Loaded {
    load("c.yaml", text, &test_environment())
}

/// Returns all errors, those of the table included.
fn all_errors_of(text: &str) -> Vec<String> {
    let loaded = loaded(text);
    let mut wrong: Vec<_> = loaded.errors.iter().map(ToString::to_string).collect();
    if let Some(config) = &loaded.config {
        let table: Table<()> = Table::compile(Arc::new(config.clone()), None, &mut |_, _| Ok(()));
        wrong.extend(
            loaded
                .locate_problems(table.problems())
                .iter()
                .map(ToString::to_string),
        );
    }
    wrong
}

#[track_caller]
fn valid_config(text: &str) -> Config {
    assert_eq!(all_errors_of(text), Vec::<String>::new());
    loaded(text).config.expect("it is right")
}
