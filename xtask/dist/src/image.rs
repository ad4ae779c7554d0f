//! The container image: an OCI image layout, as one tar archive, of the static programs.
//!
//! No container engine is needed: a layout is a folder of JSON documents and one compressed tar archive per layer.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::archive::{Entry, gzip, tar};
use crate::checksums::sha256;
use crate::release::Release;
use crate::target::Arch;

/// The user of the image, as in distroless images: it has no name anywhere else.
const USER: u32 = 65532;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// Returns the layout as a tar archive, for these static programs.
pub(crate) fn build(
    release: &Release,
    programs: &[(Arch, &[u8])],
    authorities: &[u8],
) -> Result<Vec<u8>, String> {
    let mut blobs = BTreeMap::new();
    let mut manifests = Vec::new();
    for (arch, program) in programs {
        let layer = tar(&files(program, authorities), release.time).map_err(|error| error.to_string())?;
        manifests.push(manifest(release, *arch, &layer, &mut blobs)?);
    }
    let name = json!({ "org.opencontainers.image.ref.name": release.version });
    // One architecture needs no index of its own: more programs read the layout then.
    let mut top = match manifests.as_slice() {
        [only] => only.clone(),
        _ => {
            let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
            blob(INDEX, json_bytes(&index), &mut blobs)
        }
    };
    top["annotations"] = name;
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [top] });
    let mut entries = vec![
        Entry::file(
            "oci-layout",
            0o644,
            json_bytes(&json!({ "imageLayoutVersion": "1.0.0" })),
        ),
        Entry::file("index.json", 0o644, json_bytes(&index)),
    ];
    for (digest, data) in blobs {
        entries.push(Entry::file(format!("blobs/sha256/{digest}"), 0o644, data));
    }
    tar(&entries, release.time).map_err(|error| error.to_string())
}

/// Returns the files of the image.
fn files(program: &[u8], authorities: &[u8]) -> Vec<Entry> {
    vec![
        Entry::file("usr/bin/ringmain", 0o755, program),
        Entry::file(
            "etc/passwd",
            0o644,
            format!("root:x:0:0:root:/:/sbin/nologin\nringmain:x:{USER}:{USER}:Ringmain:/:/sbin/nologin\n"),
        ),
        Entry::file("etc/group", 0o644, format!("root:x:0:\nringmain:x:{USER}:\n")),
        Entry::file("etc/ssl/certs/ca-certificates.crt", 0o644, authorities),
        Entry::folder("etc/ringmain", 0o755),
        Entry::folder("tmp", 0o1777),
    ]
}

/// Adds the blobs of one architecture, and returns the descriptor of its manifest.
fn manifest(
    release: &Release,
    arch: Arch,
    layer: &[u8],
    blobs: &mut BTreeMap<String, Vec<u8>>,
) -> Result<Value, String> {
    let compressed = gzip(layer).map_err(|error| error.to_string())?;
    let layer_blob = blob("application/vnd.oci.image.layer.v1.tar+gzip", compressed, blobs);
    let config = json!({
        "created": release.rfc3339(),
        "architecture": arch.go_name(),
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "8080/tcp": {}, "8443/tcp": {} },
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Entrypoint": ["/usr/bin/ringmain"],
            // The built-in application, until a configuration is mounted and named.
            "Cmd": ["run", "--listen", "0.0.0.0:8080"],
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": labels(release),
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sha256(layer))] },
        "history": [{ "created": release.rfc3339(), "created_by": "cargo xtask dist" }],
    });
    let config_blob = blob(
        "application/vnd.oci.image.config.v1+json",
        json_bytes(&config),
        blobs,
    );
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config_blob,
        "layers": [layer_blob],
        "annotations": labels(release),
    });
    let mut descriptor = blob(MANIFEST, json_bytes(&manifest), blobs);
    descriptor["platform"] = json!({ "architecture": arch.go_name(), "os": "linux" });
    Ok(descriptor)
}

fn labels(release: &Release) -> Value {
    json!({
        "org.opencontainers.image.title": "ringmain",
        "org.opencontainers.image.description": "HTTP server, API gateway and realtime push server on io_uring",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.commit,
        "org.opencontainers.image.created": release.rfc3339(),
        "org.opencontainers.image.source": "https://github.com/ringmain/ringmain",
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.vendor": "The Ringmain Project Developers",
    })
}

/// Adds a blob, and returns its descriptor.
fn blob(media_type: &str, data: Vec<u8>, blobs: &mut BTreeMap<String, Vec<u8>>) -> Value {
    let digest = sha256(&data);
    let descriptor =
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": data.len() });
    blobs.insert(digest, data);
    descriptor
}

fn json_bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}
