//! Tests of the pure parts: archives, versions, the ELF requirements, the image, and the list of libraries.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use ringmain_testkit::folder::Folder;

use crate::archive::{Effort, Entry, gzip, tar, xz};
use crate::args::Request;
use crate::check::differences;
use crate::checksums::{sha256, sums};
use crate::compile::own_folder;
use crate::elf::{Facts, check, find_path, glibc_version};
use crate::package::Files;
use crate::release::{Release, rfc3339, workspace_version};
use crate::sbom::{checksums, parse_tree};
use crate::system_package::settings;
use crate::target::{Arch, TARGETS, Target};
use crate::{elf, image};

fn release() -> Release {
    Release {
        root: ".".into(),
        version: "0.1.0".into(),
        commit: "0123456789abcdef".into(),
        time: 1_790_000_000,
        modified: false,
    }
}

#[test]
fn an_archive_depends_on_its_contents_alone() {
    let entries = [
        Entry::file("a/run", 0o755, *b"program"),
        Entry::file("a/b/text", 0o644, *b"text"),
        Entry::folder("tmp", 0o1777),
    ];
    let mut reversed = entries.to_vec();
    reversed.reverse();
    let archive = tar(&entries, 1_790_000_000).unwrap();
    assert_eq!(archive, tar(&reversed, 1_790_000_000).unwrap());
    assert_eq!(gzip(&archive).unwrap(), gzip(&archive).unwrap());
    for effort in [Effort::Small, Effort::Fast] {
        assert_eq!(xz(&archive, effort).unwrap(), xz(&archive, effort).unwrap());
    }

    let mut reader = tar::Archive::new(archive.as_slice());
    let found: Vec<String> = reader
        .entries()
        .unwrap()
        .map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            assert_eq!(header.mtime().unwrap(), 1_790_000_000);
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            format!(
                "{} {:o} {text}",
                entry.path().unwrap().display(),
                header.mode().unwrap()
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            "a/ 755 ",
            "a/b/ 755 ",
            "a/b/text 644 text",
            "a/run 755 program",
            "tmp/ 1777 "
        ]
    );
}

#[test]
fn compressed_archives_are_read_by_the_usual_programs() {
    let archive = tar(&[Entry::file("file", 0o644, vec![7; 100_000])], 1).unwrap();
    let folder = Folder::new();
    for (name, data) in [
        ("a.tar.gz", gzip(&archive).unwrap()),
        ("a.tar.xz", xz(&archive, Effort::Small).unwrap()),
    ] {
        let path = folder.file(name, data);
        let listed = std::process::Command::new("tar")
            .arg("-tf")
            .arg(&path)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&listed.stderr).into_owned();
        // A machine without the program xz reads the first alone.
        if error.contains("xz: Cannot exec") {
            continue;
        }
        assert_eq!(
            (String::from_utf8(listed.stdout).unwrap().as_str(), error.as_str()),
            ("file\n", "")
        );
    }
}

#[test]
fn versions_are_read_from_the_manifest() {
    let manifest = "[workspace]\nmembers = []\n\n[workspace.package]\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[package]\nversion = \"9\"\n";
    assert_eq!(workspace_version(manifest).as_deref(), Some("0.1.0"));
    assert_eq!(workspace_version("[package]\nversion = \"1.0.0\"\n"), None);
    assert_eq!(
        workspace_version("[workspace.package]\nedition = \"2024\"\n[package]\nversion = \"1.0.0\"\n"),
        None
    );
}

#[test]
fn times_are_in_the_form_of_rfc_3339() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (1_709_164_799, "2024-02-28T23:59:59Z"),
        (1_795_996_800, "2026-11-30T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ] {
        assert_eq!(rfc3339(seconds), expected);
    }
}

#[test]
fn versions_of_glibc_are_ordered_by_number() {
    assert_eq!(glibc_version("GLIBC_2.31"), Some((2, 31)));
    assert_eq!(glibc_version("GLIBC_2.2.5"), Some((2, 2)));
    assert_eq!(glibc_version("GLIBC_PRIVATE"), None);
    assert_eq!(glibc_version("GCC_3.0"), None);
    assert!(glibc_version("GLIBC_2.4") < glibc_version("GLIBC_2.31"));
}

fn facts(target: &Target) -> Facts {
    Facts {
        machine: target.arch.elf_machine(),
        build_id: Some("00".into()),
        ..Facts::default()
    }
}

#[test]
fn a_program_fulfils_the_requirements_of_its_target() {
    let musl = Target::named("x86_64-unknown-linux-musl").unwrap();
    let glibc = Target::named("x86_64-unknown-linux-gnu").unwrap();
    let arm = Target::named("aarch64-unknown-linux-musl").unwrap();
    assert_eq!(check(musl, &facts(musl)), Ok(()));
    assert_eq!(check(arm, &facts(arm)), Ok(()));
    let with_glibc = |version| Facts {
        glibc: Some(version),
        loader: Some("/lib64/ld-linux-x86-64.so.2".into()),
        libraries: vec!["libc.so.6".into()],
        ..facts(glibc)
    };
    assert_eq!(check(glibc, &with_glibc((2, 35))), Ok(()));
    for (target, facts, expected) in [
        (arm, facts(musl), "expected the ELF machine 183, found 62"),
        (musl, with_glibc((2, 31)), "expected a static program"),
        (glibc, facts(glibc), "expected symbols of glibc, found none"),
        (
            glibc,
            with_glibc((2, 36)),
            "expected symbols of glibc 2.35 at most, found 2.36",
        ),
        (
            musl,
            Facts {
                build_id: None,
                ..facts(musl)
            },
            "expected a build ID",
        ),
    ] {
        let error = check(target, &facts).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_facts_of_this_test_program_are_read() {
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let facts = elf::read(&program).unwrap();
    let own = TARGETS.iter().find(|target| target.arch.runs_here()).unwrap();
    assert_eq!(facts.machine, own.arch.elf_machine());
    if cfg!(target_env = "gnu") {
        assert!(
            facts.libraries.iter().any(|name| name == "libc.so.6"),
            "{facts:?}"
        );
        assert!(
            facts
                .loader
                .as_deref()
                .is_some_and(|path| path.contains("ld-linux")),
            "{facts:?}"
        );
        assert!(facts.glibc >= Some((2, 2)), "{facts:?}");
    }
    assert!(
        elf::read(b"#!/bin/sh\n")
            .unwrap_err()
            .contains("not a 64-bit ELF program")
    );
}

#[test]
fn paths_of_the_building_machine_are_found() {
    let paths = ["/home/builder/".to_owned(), String::new()];
    assert_eq!(
        find_path(b"at /home/builder/src/main.rs:1", &paths),
        Some("/home/builder/")
    );
    assert_eq!(find_path(b"at /ringmain/src/main.rs:1", &paths), None);
    // A folder of the sources may have the name of a home.
    assert_eq!(find_path(b"/ringmain/home/builder/live.rs", &paths), None);
    assert_eq!(find_path(b"/home/builder/", &paths), Some("/home/builder/"));
    assert_eq!(
        find_path(b"my/home/builder/a and \0/home/builder/b", &paths),
        Some("/home/builder/")
    );
}

#[test]
fn the_cache_of_zig_is_a_folder_of_this_user() {
    let folder = Folder::new();
    let cache = folder.join("zig");
    own_folder(&cache).unwrap();
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    own_folder(&cache).unwrap();

    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    let error = own_folder(&cache).unwrap_err();
    assert!(error.contains("that only this user may write to"), "{error}");
    let link = folder.join("link");
    symlink(folder.path(), &link).unwrap();
    assert!(own_folder(&link).is_err());
}

#[test]
fn a_static_package_needs_no_libc() {
    let template = "version: @VERSION@\narch: @GOARCH@\ndepends:\n  - \"@DEB_LIBC@\"\n  - passwd\n";
    let glibc = settings(
        template,
        "0.1.0",
        Target::named("x86_64-unknown-linux-gnu").unwrap(),
    );
    assert_eq!(
        glibc,
        "version: 0.1.0\narch: amd64\ndepends:\n  - \"libc6 (>= 2.31)\"\n  - passwd\n"
    );
    let musl = settings(
        template,
        "0.1.0",
        Target::named("aarch64-unknown-linux-musl").unwrap(),
    );
    assert_eq!(musl, "version: 0.1.0\narch: arm64\ndepends:\n  - passwd\n");
}

#[test]
fn the_image_refers_to_blobs_by_their_digests() {
    let both: [(Arch, &[u8]); 2] = [(Arch::X86_64, b"one"), (Arch::Aarch64, b"two")];
    for programs in [&both[..1], &both[..]] {
        let layout = image::build(&release(), programs, b"authorities").unwrap();
        assert_eq!(
            layout,
            image::build(&release(), programs, b"authorities").unwrap()
        );
        let mut files = Files::new();
        for entry in tar::Archive::new(layout.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let (path, mut data) = (entry.path().unwrap().display().to_string(), Vec::new());
            entry.read_to_end(&mut data).unwrap();
            files.insert(path, data);
        }
        let mut open = vec![serde_json::from_slice(&files["index.json"]).unwrap()];
        let mut count = 0;
        while let Some(value) = open.pop() {
            match value {
                serde_json::Value::Object(map) => {
                    if let (Some(digest), Some(size)) = (map.get("digest"), map.get("size")) {
                        let digest = digest.as_str().unwrap().strip_prefix("sha256:").unwrap();
                        let data = &files[&format!("blobs/sha256/{digest}")];
                        assert_eq!(
                            (sha256(data).as_str(), data.len() as u64),
                            (digest, size.as_u64().unwrap())
                        );
                        open.extend(serde_json::from_slice::<serde_json::Value>(data).ok());
                        count += 1;
                    }
                    open.extend(map.into_iter().map(|(_, value)| value));
                }
                serde_json::Value::Array(list) => open.extend(list),
                _ => {}
            }
        }
        // A manifest, a configuration and a layer for each architecture; with two architectures an index.
        assert_eq!(count, programs.len() * 3 + usize::from(programs.len() > 1));
    }
}

#[test]
fn libraries_are_listed_once_with_their_users() {
    let tree = "0|ringmain-cli v0.1.0 (/src/crates/cli)|MIT OR Apache-2.0|https://example.com/ringmain\n\
        1|clap v4.6.7|MIT/Apache-2.0|https://example.com/clap\n\
        2|strsim v0.11.1|MIT|\n\
        1|clap_complete v4.6.11|MIT OR Apache-2.0|https://example.com/clap\n\
        2|clap v4.6.7|MIT/Apache-2.0|https://example.com/clap (*)\n";
    let packages = parse_tree(tree).unwrap();
    let names: Vec<&str> = packages.iter().map(|package| package.id.0.as_str()).collect();
    assert_eq!(names, ["ringmain-cli", "clap", "strsim", "clap_complete"]);
    assert_eq!(packages[1].license, "MIT OR Apache-2.0");
    assert_eq!(packages[0].uses.len(), 2);
    assert!(packages[3].uses.contains(&("clap".into(), "4.6.7".into())));
    assert!(parse_tree("ringmain-cli v0.1.0\n").is_err());

    let lock = "version = 4\n\n[[package]]\nname = \"clap\"\nversion = \"4.6.7\"\nsource = \"registry\"\nchecksum = \"abcd\"\n\n\
        [[package]]\nname = \"ringmain\"\nversion = \"0.1.0\"\n";
    let sums = checksums(lock);
    assert_eq!(
        sums.get(&("clap".into(), "4.6.7".into())).map(String::as_str),
        Some("abcd")
    );
    assert_eq!(sums.len(), 1);
}

#[test]
fn a_second_build_is_compared_byte_by_byte() {
    let files = |list: &[(&str, &[u8])]| -> Files {
        list.iter()
            .map(|(name, data)| ((*name).to_owned(), data.to_vec()))
            .collect()
    };
    let first = files(&[("a", b"same"), ("b", b"12345"), ("c", b"")]);
    let second = files(&[("a", b"same"), ("b", b"12x45"), ("d", b"")]);
    assert!(differences(&first, &first).is_empty());
    assert_eq!(
        differences(&first, &second),
        [
            "b: differs from byte 2 on (5 and 5 bytes)",
            "c: only in the first build",
            "d: only in the second build"
        ]
    );
    let expected = format!("{}  a\n", sha256(b"same"));
    assert_eq!(sums(&files(&[("a", b"same")])), expected);
    assert!(expected.starts_with("0967115f2813a3541eaef77de9d9d577"));
}

#[test]
fn the_command_line_names_targets_and_programs() {
    let parse = |words: &[&str]| {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Request::parse(&words)
    };
    let plain = parse(&[]).unwrap().unwrap();
    assert_eq!(plain.targets.len(), 3);
    assert_eq!(plain.profile, "dist");
    let given = parse(&["--binary", "x86_64-unknown-linux-gnu=/tmp/ringmain", "--check"])
        .unwrap()
        .unwrap();
    assert_eq!(
        given.targets,
        [Target::named("x86_64-unknown-linux-gnu").unwrap()]
    );
    assert!(given.check);
    assert_eq!(parse(&["--help"]), Ok(None));
    for (words, expected) in [
        (
            &["--target", "riscv64"][..],
            "expected a target among x86_64-unknown-linux-musl",
        ),
        (&["--target"], "`--target` needs a value"),
        (&["--binary", "x"], "expected TRIPLE=FILE"),
        (&["--by-profile", "--profile-data", "x"], "use one option"),
        (&["--fast"], "no such option: `--fast`"),
    ] {
        let error = parse(words).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_path_of_a_profile_does_not_depend_on_the_folder_of_a_crate() {
    let found = crate::package::absolute(Path::new("Cargo.toml")).expect("a file of this crate");
    assert!(
        found.is_absolute() && found.ends_with("xtask/dist/Cargo.toml"),
        "{}",
        found.display()
    );
    let error = crate::package::absolute(Path::new("no.profdata")).expect_err("no such file");
    assert!(
        error.starts_with("cannot read the profile no.profdata: "),
        "{error}"
    );
}
