//! The examples of RFC 7541, another's coder, and a naive twin of the table.

mod go;

use super::*;
use crate::h2::fault::FaultKind;
use crate::h2::limits::TABLE_BYTES;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, FaultKind> {
    let mut arena = Vec::new();
    let mut fields = Fields::new();
    decoder.decode(block, &mut arena, &mut |arena, field| {
        let (name, value) = arena[field.at..].split_at(field.name);
        assert_eq!(value.len(), field.value);
        fields.push((name.to_vec(), value.to_vec()));
        arena.truncate(field.at);
    })?;
    assert!(arena.is_empty());
    Ok(fields)
}

fn text(fields: &[(&str, &str)]) -> Fields {
    let pairs = fields.iter();
    pairs
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(str::from_utf8(pair).expect("ascii"), 16).expect("hex"))
        .collect()
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn field(&mut self) -> (Vec<u8>, Vec<u8>) {
        const NAMES: &[&str] = &[
            "content-type",
            "date",
            "x-a",
            "cookie",
            ":path",
            "server",
            "x-long-name-of-ours",
        ];
        let name = NAMES[self.below(NAMES.len())].as_bytes().to_vec();
        let length = [0, 3, 3, 12, 40, 700][self.below(6)];
        let kinds = 1 + self.below(3);
        let value = (0..length).map(|_| b'a' + self.below(kinds) as u8).collect();
        (name, value)
    }

    fn list(&mut self) -> Fields {
        (0..self.below(8)).map(|_| self.field()).collect()
    }
}

#[test]
fn requests_of_the_rfc_are_read() {
    // RFC 7541 Appendix C.3 (plain) and C.4 (Huffman): three requests on one connection.
    let rows: [[&str; 2]; 3] = [
        [
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
        ],
        [
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8286 84be 5886 a8eb 1064 9cbf",
        ],
        [
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ],
    ];
    let expected: [&[(&str, &str)]; 3] = [
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ],
        &[
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ],
    ];
    for form in 0..2 {
        let mut decoder = Decoder::new();
        for (row, fields) in rows.iter().zip(expected) {
            assert_eq!(decoded(&mut decoder, &bytes(row[form])), Ok(text(fields)));
        }
    }
}

#[test]
fn what_we_write_we_read_whatever_came_before() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        for _ in 0..40 {
            if rng.below(10) == 0 {
                encoder.set_most([0, 64, 300, 4096, 100_000][rng.below(5)]);
            }
            let fields = rng.list();
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value) in &fields {
                encoder.field(name, value, &mut out);
            }
            assert_eq!(decoded(&mut decoder, &out), Ok(fields), "seed {seed}");
        }
        assert!(
            encoder.memory() < 4 * TABLE_BYTES,
            "seed {seed}: {}",
            encoder.memory()
        );
        assert!(
            decoder.memory() < 4 * TABLE_BYTES,
            "seed {seed}: {}",
            decoder.memory()
        );
    }
}

#[test]
fn a_table_that_changes_is_told_once_or_twice() {
    // RFC 7541 §4.2: the smallest size since the last block and the last one, if they differ.
    let rows: [(&[u32], &str); 4] = [
        (&[300], "3f8d02"),
        (&[4096], "3fe11f"),
        (&[64, 300], "3f21 3f8d02"),
        (&[], ""),
    ];
    let mut encoder = Encoder::new();
    for (sizes, told) in rows {
        for &size in sizes {
            encoder.set_most(size);
        }
        let mut out = Vec::new();
        encoder.begin(&mut out);
        assert_eq!(out, bytes(told), "{sizes:?}");
    }
}

#[test]
fn another_reads_what_we_write() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let mut encoder = Encoder::new();
        let mut theirs = fluke_hpack::Decoder::new();
        for _ in 0..40 {
            let fields = rng.list();
            let mut out = Vec::new();
            encoder.begin(&mut out);
            for (name, value) in &fields {
                encoder.field(name, value, &mut out);
            }
            assert_eq!(theirs.decode(&out).expect("a block"), fields, "seed {seed}");
        }
    }
}

#[test]
fn we_read_what_another_writes() {
    for seed in 0..200 {
        let mut rng = Rng(seed);
        let mut theirs = fluke_hpack::Encoder::new();
        let mut decoder = Decoder::new();
        for _ in 0..40 {
            let fields = rng.list();
            let block = theirs.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            assert_eq!(decoded(&mut decoder, &block), Ok(fields), "seed {seed}");
        }
    }
}

/// The table as the RFC tells it, without any care for cost.
#[derive(Default)]
struct Twin {
    /// The newest first.
    entries: Fields,
    most: usize,
}

impl Twin {
    fn insert(&mut self, field: (Vec<u8>, Vec<u8>)) {
        self.entries.insert(0, field);
        self.trim();
    }

    fn trim(&mut self) {
        let size = |entries: &Fields| -> usize {
            entries
                .iter()
                .map(|(name, value)| name.len() + value.len() + 32)
                .sum()
        };
        while size(&self.entries) > self.most {
            self.entries.pop();
        }
    }
}

#[test]
fn the_table_is_as_its_naive_twin() {
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let mut decoder = Decoder::new();
        let mut twin = Twin {
            most: TABLE_BYTES,
            ..Twin::default()
        };
        for _ in 0..60 {
            let mut block = Vec::new();
            if rng.below(8) == 0 {
                twin.most = [0, 100, 1000, TABLE_BYTES][rng.below(4)];
                integer::encode(twin.most, 5, 0x20, &mut block);
                twin.trim();
            }
            let (name, value) = rng.field();
            block.extend_from_slice(&[0x40]);
            for text in [&name, &value] {
                integer::encode(text.len(), 7, 0, &mut block);
                block.extend_from_slice(text);
            }
            twin.insert((name.clone(), value.clone()));
            let mut expected = vec![(name, value)];
            for (place, entry) in twin.entries.iter().enumerate() {
                integer::encode(62 + place, 7, 0x80, &mut block);
                expected.push(entry.clone());
            }
            assert_eq!(decoded(&mut decoder, &block), Ok(expected), "seed {seed}");
            let mut beyond = Vec::new();
            integer::encode(62 + twin.entries.len(), 7, 0x80, &mut beyond);
            assert_eq!(
                decoded(&mut decoder, &beyond),
                Err(FaultKind::TableIndex),
                "seed {seed}"
            );
        }
    }
}

#[test]
fn what_is_no_block_is_refused() {
    let rows: &[(&str, FaultKind)] = &[
        ("80", FaultKind::TableIndex),
        ("be", FaultKind::TableIndex),
        ("7f ff ff ff ff ff 7f", FaultKind::HeaderBlock),
        ("ff", FaultKind::HeaderBlock),
        ("00", FaultKind::HeaderBlock),
        ("00 05 61", FaultKind::HeaderBlock),
        ("00 01 61", FaultKind::HeaderBlock),
        // EOS in a value.
        ("00 01 61 84 ff ff ff ff", FaultKind::HeaderBlock),
        // The table's size: beyond SETTINGS, behind a field, three times.
        ("3f e2 1f", FaultKind::TableSizeUpdate),
        ("82 20", FaultKind::TableSizeUpdate),
        ("20 20 20 82", FaultKind::TableSizeUpdate),
    ];
    for (hex, fault) in rows {
        assert_eq!(decoded(&mut Decoder::new(), &bytes(hex)), Err(*fault), "{hex}");
    }
    assert_eq!(
        decoded(&mut Decoder::new(), &bytes("20 3f e1 1f 82")),
        Ok(text(&[(":method", "GET")]))
    );
}

#[test]
fn what_is_said_again_is_one_byte_and_what_is_new_each_time_stays_outside() {
    let mut encoder = Encoder::new();
    let mut lengths = Vec::new();
    for count in 0..5_u32 {
        let mut out = Vec::new();
        encoder.begin(&mut out);
        encoder.status(200, &mut out);
        encoder.field(b"Server", b"ringmain", &mut out);
        encoder.field(b"Content-Type", b"application/json", &mut out);
        encoder.field(b"X-Id", count.to_string().as_bytes(), &mut out);
        lengths.push(out.len());
    }
    // A status, two indices, and a name with its value each time.
    assert_eq!(lengths[2..], [1 + 1 + 1 + 7; 3], "{lengths:?}");
}

#[test]
fn secrets_are_never_indexed() {
    for (name, value) in [
        ("authorization", "Bearer abc"),
        ("Set-Cookie", "id=1; HttpOnly"),
        ("cookie", "id=1"),
        ("proxy-authorization", "Basic abc"),
    ] {
        let mut encoder = Encoder::new();
        for _ in 0..3 {
            let mut out = Vec::new();
            encoder.begin(&mut out);
            encoder.field(name.as_bytes(), value.as_bytes(), &mut out);
            assert_eq!(out[0] & 0xF0, 0x10, "{name}");
        }
        assert_eq!(encoder.memory(), 0, "{name}");
    }
}

#[test]
fn an_unused_connection_holds_no_memory() {
    assert_eq!(Encoder::new().memory() + Decoder::new().memory(), 0);
}
