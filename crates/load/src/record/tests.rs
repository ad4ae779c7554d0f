//! Files written and read back, by us and by hdrhistogram; files of others; damage.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use fastrand::Rng;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};

use super::{Head, Problem, Recorded, Writer, merge, read};
use crate::figures::{Figures, Latency};
use crate::limits;

const BEGAN: Duration = Duration::from_millis(1_700_000_000_250);

const HEAD: Head<'static> = Head {
    target: "127.0.0.1:8080",
    engine: "io_uring",
    rate: Some(5_000.0),
    began: BEGAN,
};

fn writer() -> Writer<Vec<u8>> {
    Writer::new(Vec::new(), &HEAD).unwrap()
}

/// One line for each of the histograms, all of the same tag.
fn file(tag: &str, histograms: &[&Histogram<u64>]) -> Vec<u8> {
    let mut writer = writer();
    for (second, histogram) in histograms.iter().enumerate() {
        let start = Duration::from_secs(second as u64);
        writer
            .line(tag, start, Duration::from_secs(1), histogram)
            .unwrap();
    }
    writer.finish().unwrap()
}

fn of(values: &[u64]) -> Latency {
    let mut latency = Latency::default();
    values.iter().for_each(|value| latency.record(*value));
    latency
}

/// Nanoseconds of all magnitudes up to the longest.
fn values(rng: &mut Rng, count: usize) -> Vec<u64> {
    let mut value = || {
        let bits = rng.u32(1..42);
        rng.u64(..1 << bits)
    };
    (0..count).map(|_| value()).collect()
}

/// The file but for its histograms: how they are deflated is another crate's matter.
fn outline(text: &str) -> String {
    text.lines()
        .map(|line| {
            line.split_once(",HISTF")
                .map_or(line, |(begin, _)| begin)
                .to_owned()
                + "\n"
        })
        .collect()
}

#[test]
fn a_file_looks_like_this() {
    let service = of(&[1_000_000, 2_000_000, 2_000_000]);
    let figures = Figures {
        service: service.clone(),
        connect: of(&[50_000]),
        ..Figures::default()
    };
    let mut writer = writer();
    writer
        .interval(Duration::from_millis(1_500), Duration::from_secs(1), &figures)
        .unwrap();
    writer
        .line(
            "",
            Duration::from_secs(2),
            Duration::from_secs(1),
            of(&[1]).histogram(),
        )
        .unwrap();
    let text = String::from_utf8(writer.finish().unwrap()).unwrap();
    let golden = include_str!("golden.hlog").replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert_eq!(outline(&text), outline(&golden));

    let recorded = read("golden.hlog", golden.as_bytes()).unwrap();
    assert_eq!(recorded, read("written", text.as_bytes()).unwrap());
    assert_eq!(&recorded.tags["service"].histogram, service.histogram());
    assert_eq!(&recorded.tags["connect"].histogram, of(&[50_000]).histogram());
    assert_eq!(&recorded.tags[""].histogram, of(&[1]).histogram());
}

#[test]
fn a_name_cannot_break_out_of_its_comment() {
    let head = Head {
        target: "x\n#[BaseTime: 9.0 (\r\n1.0,1.0,1.0,x",
        ..HEAD
    };
    let text = Writer::new(Vec::new(), &head).unwrap().finish().unwrap();
    assert_eq!(text.iter().filter(|byte| **byte == b'\n').count(), 6);
    assert!(!text.contains(&b'\r'));
}

#[test]
fn hdrhistograms_own_reader_reads_it() {
    let latency = of(&values(&mut Rng::with_seed(1), 1_000));
    let file = file("service", &[latency.histogram()]);
    let entries: Vec<LogEntry<'_>> = IntervalLogIterator::new(&file).map(Result::unwrap).collect();
    let [
        LogEntry::StartTime(start),
        LogEntry::BaseTime(base),
        LogEntry::Interval(interval),
    ] = entries.as_slice()
    else {
        panic!("{entries:?}");
    };
    assert_eq!((*start, *base), (BEGAN, BEGAN));
    assert_eq!(interval.tag().unwrap().as_str(), "service");
    assert_eq!(
        (interval.start_timestamp(), interval.duration()),
        (Duration::ZERO, Duration::from_secs(1))
    );
    let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
    let histogram: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
    assert_eq!(&histogram, latency.histogram());
}

#[test]
fn what_was_written_is_read_as_it_was() {
    let seed = 2;
    let mut rng = Rng::with_seed(seed);
    for count in [0, 1, 2, 100, 5_000] {
        let latency = of(&values(&mut rng, count));
        let recorded = read("x", &file("response", &[latency.histogram()])).unwrap();
        let tagged = &recorded.tags["response"];
        assert_eq!(
            &tagged.histogram,
            latency.histogram(),
            "seed {seed}, {count} values"
        );
        assert_eq!(
            Latency::of(&tagged.histogram),
            latency,
            "seed {seed}, {count} values"
        );
        assert_eq!(
            (tagged.lines, tagged.from, tagged.until),
            (1, BEGAN, BEGAN + Duration::from_secs(1))
        );
        assert_eq!(recorded.from(), BEGAN);
    }
}

#[test]
fn merged_files_equal_one_of_all_values() {
    let seed = 3;
    let mut rng = Rng::with_seed(seed);
    let mut all = Latency::default();
    let mut files = Vec::new();
    for _ in 0..4 {
        let parts: Vec<Latency> = (0..3).map(|_| of(&values(&mut rng, 300))).collect();
        parts.iter().for_each(|part| all.merge(part));
        let histograms: Vec<&Histogram<u64>> = parts.iter().map(Latency::histogram).collect();
        files.push(read("x", &file("service", &histograms)).unwrap());
    }
    let merged = merge(files.clone()).unwrap();
    let tagged = &merged.tags["service"];
    assert_eq!(&tagged.histogram, all.histogram(), "seed {seed}");
    assert_eq!(
        (tagged.lines, tagged.from, tagged.until),
        (12, BEGAN, BEGAN + Duration::from_secs(3))
    );

    files.reverse();
    assert_eq!(merge(files).unwrap(), merged, "order does not matter");

    // And written once more.
    assert_eq!(
        read("x", &file("service", &[&tagged.histogram])).unwrap().tags["service"].histogram,
        tagged.histogram
    );
}

#[test]
fn tags_stay_apart() {
    let (one, other) = (of(&[1, 2]), of(&[3]));
    let files = [
        ("service", &one),
        ("response", &other),
        ("", &other),
        ("service", &other),
    ];
    let files = files.map(|(tag, latency)| read("x", &file(tag, &[latency.histogram()])).unwrap());
    let merged = merge(files).unwrap();
    let counts: Vec<(&str, u64)> = merged
        .tags
        .iter()
        .map(|(tag, tagged)| (&**tag, tagged.histogram.len()))
        .collect();
    assert_eq!(counts, [("", 1), ("response", 1), ("service", 3)]);
    assert_eq!(merge([]).unwrap(), Recorded::default());
}

#[test]
fn of_unequal_resolution_the_finest_is_kept() {
    let mut coarse = Histogram::<u64>::new_with_bounds(1_000, 60_000_000, 1).unwrap();
    coarse.record_n(1_000_000, 5).unwrap();
    let fine = of(&[1_234_567, 3_000_000_000]);
    for histograms in [[&coarse, fine.histogram()], [fine.histogram(), &coarse]] {
        let recorded = read("x", &file("t", &histograms)).unwrap();
        let merged = &recorded.tags["t"].histogram;
        assert_eq!((merged.len(), merged.sigfig(), merged.low()), (7, 3, 1));
        assert_eq!(merged.count_at(1_234_567), 1);
        assert_eq!(merged.count_at(3_000_000_000), 1);
        // The coarse one says no more than this.
        assert_eq!(
            merged.count_between(
                coarse.lowest_equivalent(1_000_000),
                coarse.highest_equivalent(1_000_000)
            ),
            5
        );
    }
}

/// The beginning of a log by jHiccup, from HdrHistogram's own tests: a start and no base; each line without a tag and with
/// one, and the longest value in milliseconds.
const JAVA: &str = include_str!("java.hlog");

#[test]
fn files_of_others_are_read() {
    let recorded = read("java.hlog", JAVA.as_bytes()).unwrap();
    let tagged = &recorded.tags[""];
    assert_eq!(tagged.lines, 2);
    assert!(
        tagged.from >= Duration::from_secs(1_400_000_000),
        "{:?}: StartTime counts",
        tagged.from
    );
    let windows = JAVA.replace('\n', "\r\n");
    assert_eq!(read("java.hlog", windows.as_bytes()).unwrap(), recorded);
    assert_eq!(
        read("java.hlog", JAVA.trim_end().as_bytes()).unwrap(),
        recorded,
        "without the last line's end"
    );
}

#[test]
fn without_a_base_times_count_from_the_start_or_the_epoch() {
    let plain = encode(of(&[1]).histogram());
    for (head, time, from) in [
        ("", "5.000", 5),
        (
            "#[StartTime: 1700000000.000 (seconds since epoch)]\n",
            "5.000",
            1_700_000_005,
        ),
        (
            "#[StartTime: 1700000000.000 (seconds since epoch)]\n",
            "1700000005.000",
            1_700_000_005,
        ),
        (
            "#[BaseTime: 1600000000.000 (seconds since epoch)]\n",
            "5.000",
            1_600_000_005,
        ),
    ] {
        let text = format!("{head}{time},1.000,0.001,{plain}\n");
        let recorded = read("x", text.as_bytes()).unwrap();
        assert_eq!(recorded.from(), Duration::from_secs(from), "{head}{time}");
    }
}

/// Version 2 without deflating, in base64.
fn encode(histogram: &Histogram<u64>) -> String {
    STANDARD.encode(plain(histogram))
}

fn plain(histogram: &Histogram<u64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    V2Serializer::new().serialize(histogram, &mut bytes).unwrap();
    bytes
}

fn refused(text: &str) -> (Option<usize>, Problem) {
    let error = read("run.hlog", text.as_bytes()).unwrap_err();
    assert_eq!(error.name, "run.hlog");
    (error.line, error.problem)
}

#[test]
fn a_wrong_line_is_named() {
    let good = String::from_utf8(file("service", &[of(&[1]).histogram()])).unwrap();
    assert_eq!(good.lines().count(), 7);
    let line = |text: &str| refused(&format!("{good}{text}"));

    assert_eq!(line("hello\n"), (Some(8), Problem::Line("hello".to_owned())));
    assert_eq!(
        line("1.0,2.0,3.0\n"),
        (Some(8), Problem::Line("1.0,2.0,3.0".to_owned()))
    );
    let (_, Problem::Line(shown)) = line(&format!("{}\n", "ä".repeat(1_000))) else {
        panic!()
    };
    assert!(shown.len() < 100 && shown.ends_with('…'), "{shown}");
    assert_eq!(
        line("Tag=a b,1.0,2.0,3.0,x\n"),
        (Some(8), Problem::Tag("a b".to_owned()))
    );
    assert!(matches!(
        line("1.0,2.0,3.0,?\n"),
        (Some(8), Problem::Histogram(_))
    ));
    assert!(matches!(
        line("1.0,2.0,3.0,AAAAAAAA\n"),
        (Some(8), Problem::Histogram(_))
    ));
    assert_eq!(
        refused(
            good.trim_end()
                .strip_suffix('=')
                .unwrap_or(&good[..good.len() - 4])
        ),
        (Some(7), Problem::Cut)
    );
    assert_eq!(refused(""), (None, Problem::Empty));
    assert_eq!(refused("# nothing\n\n"), (None, Problem::Empty));

    let error = read("run.hlog", b"x\n").unwrap_err().to_string();
    assert!(
        error.starts_with("run.hlog:1: expected \"[Tag=name,]start,length,longest,histogram\""),
        "{error}"
    );
}

#[test]
fn a_length_that_lies_allocates_nothing() {
    let good = plain(of(&[1, 2, 3]).histogram());
    for length in [u32::MAX, 0, 1] {
        let mut bytes = good.clone();
        bytes[4..8].copy_from_slice(&length.to_be_bytes());
        let text = format!("1.0,1.0,1.0,{}\n", STANDARD.encode(&bytes));
        assert!(
            matches!(refused(&text), (Some(1), Problem::Histogram(_))),
            "{length}"
        );
    }
}

/// A histogram's bytes with these counters.
fn with_counters(counters: &[u8]) -> String {
    let mut bytes = plain(of(&[]).histogram());
    bytes.truncate(40);
    bytes[4..8].copy_from_slice(&u32::try_from(counters.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(counters);
    format!("1.0,1.0,1.0,{}\n", STANDARD.encode(&bytes))
}

#[test]
fn counts_beyond_all_bounds_are_refused() {
    // One count of five is fine, and so is the skipping of a zero.
    assert_eq!(
        read("x", with_counters(&[1, 10]).as_bytes()).unwrap().tags[""]
            .histogram
            .len(),
        5
    );
    // The most negative number: its negation does not exist.
    assert!(matches!(
        refused(&with_counters(&[0xff; 9])),
        (_, Problem::Histogram(_))
    ));
    // Three times the greatest count.
    let greatest = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff].repeat(3);
    assert_eq!(refused(&with_counters(&greatest)).1, Problem::Count);
    let twice = with_counters(&greatest[..9]).repeat(3);
    assert_eq!(refused(&twice), (Some(3), Problem::Count));
    // Half a counter.
    assert!(matches!(
        refused(&with_counters(&[0x80])),
        (_, Problem::Histogram(_))
    ));
}

#[test]
fn memory_and_tags_are_bounded() {
    let small = Histogram::<u64>::new_with_bounds(1, 2, 0).unwrap();
    let line = |tag: &str, histogram| format!("Tag={tag},1.0,1.0,1.0,{}\n", encode(histogram));
    let tags: String = (0..=limits::RECORD_TAGS)
        .map(|tag| line(&tag.to_string(), &small))
        .collect();
    assert_eq!(refused(&tags), (Some(limits::RECORD_TAGS + 1), Problem::Tags));

    let large = Histogram::<u64>::new_with_bounds(1, u64::MAX, 5).unwrap();
    let fits = limits::RECORD_MEMORY / (large.distinct_values() * 8);
    let files: String = (0..=fits).map(|tag| line(&tag.to_string(), &large)).collect();
    assert_eq!(refused(&files), (Some(fits + 1), Problem::Memory));
}

#[test]
fn a_tag_that_cannot_be_read_is_not_written() {
    for tag in ["a b", "a,b", "a\nb"] {
        let error = writer()
            .line(tag, Duration::ZERO, Duration::ZERO, of(&[1]).histogram())
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{tag:?}");
    }
}

#[test]
fn no_damage_is_more_than_an_error() {
    let seed = 4;
    let mut rng = Rng::with_seed(seed);
    let latency = of(&values(&mut rng, 50));
    let texts = [
        file("service", &[latency.histogram(); 2]),
        JAVA.as_bytes().to_vec(),
    ];
    let bytes = plain(latency.histogram());
    let mut read_all_the_same = 0;
    for round in 0..3_000 {
        let mut text = texts[round % 2].clone();
        if round % 3 == 0 {
            // Damage behind base64.
            let mut bytes = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                let place = rng.usize(..bytes.len());
                bytes[place] = rng.u8(..);
            }
            text = format!("1.0,1.0,1.0,{}\n", STANDARD.encode(&bytes)).into_bytes();
        } else {
            let place = rng.usize(..text.len());
            text[place] = rng.u8(..);
            text.truncate(rng.usize(..text.len() * 2));
        }
        read_all_the_same += usize::from(read("x", &text).is_ok());
    }
    assert!(
        (1..2_999).contains(&read_all_the_same),
        "seed {seed}: {read_all_the_same}"
    );
}
