//! The outbox of PostgreSQL, with real servers.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use ringmain_gateway::model::{BrokerTls, ChannelTemplate, RecordFormat, Secret};
use ringmain_push::SubmitError;
use ringmain_sources::DeadReason;
use ringmain_testkit::{servers, wait};

use self::harness::{
    Process, assert_once_in_order, channels, insert, report, rows, run, server, settings, source,
};

#[test]
fn rows_arrive_in_order_and_are_deleted() {
    let Some(server) = server() else { return };
    let mut process = Process::new(2, &channels(50));
    // Some exist before the source does.
    server.run(&insert(0..1500, 50, 4));
    let sources = run(&process, &source(&server, 4));
    process.until("delivery", |_| report(&sources).published == 1500);
    let mut session = server.connect();
    for start in (1500..3000).step_by(100) {
        session.run(&insert(start..start + 100, 50, 4));
    }
    process.until("all rows", |process| process.count() >= 3000);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..3000, 50);
    let report = report(&sources);
    assert_eq!(
        (report.records, report.published, report.repeated),
        (3000, 3000, 0)
    );
    assert!(report.connected && report.delivers && report.commits > 0);
    assert_eq!((report.partitions, report.failures), (4, 0));
}

#[test]
fn a_plain_insert_is_all_that_an_application_does() {
    let Some(server) = server() else { return };
    let mut process = Process::new(1, &["news".to_owned()]);
    let sources = run(&process, &source(&server, 1));
    process.until("a reader", |_| report(&sources).delivers);
    server.run(
        r#"INSERT INTO ringmain_outbox (channel, data, tags) VALUES ('news', '{"a":1}', '{"t":"u","n":1}')"#,
    );
    process.until("the row", |process| process.count() == 1);
    let (data, tags) = &process.received["news"][0];
    assert_eq!(data, &serde_json::json!({"a": 1}));
    assert_eq!(tags, &serde_json::json!({"t": "u", "n": "1"}));
    // Statements that insert the table change nothing when they run again.
    server.run(ringmain_sources::outbox_sql());
}

#[test]
fn a_server_that_is_killed_loses_and_repeats_nothing() {
    let Some(mut server) = server() else { return };
    let mut process = Process::new(2, &channels(10));
    let sources = run(&process, &source(&server, 4));
    process.until("a reader", |_| report(&sources).delivers);
    let mut next = 0;
    for round in 1..=3 {
        server.run(&insert(next..next + 3000, 10, 4));
        next += 3000;
        // In the middle: some are delivered, some in flight, some not read.
        process.until("some rows", |process| process.count() as u64 > next - 2500);
        server.kill();
        process.until("the failure", |_| !report(&sources).delivers);
        server.restart();
        process.until("a reader again", |_| report(&sources).connects > round);
    }
    process.until("all rows", |process| process.count() as u64 >= next);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..next, 10);
    assert!(report(&sources).failures >= 3);
}

#[test]
fn what_a_process_leaves_the_next_one_delivers() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 4);
    source.mapping.in_flight = 100;
    let mut first = Process::new(2, &channels(10));
    let sources = run(&first, &source);
    server.run(&insert(0..3000, 10, 4));
    first.until("some rows", |process| process.count() > 1000);
    // Its workers have stopped: no row in flight is completed.
    wait::until("rows in flight", || {
        report(&sources).records > report(&sources).published
    });
    drop(sources);
    let left = rows(&server);
    assert!(left > 0);
    let mut second = Process::new(2, &channels(10));
    let sources = run(&second, &source);
    second.until("the other rows", |process| process.count() >= left);
    second.until("an empty table", |_| rows(&server) == 0);
    let mut repeats = 0;
    for channel in channels(10) {
        let (before, after) = (first.numbers(&channel), second.numbers(&channel));
        assert!(after.is_sorted_by(|one, next| one < next), "{channel}: {after:?}");
        let seen: BTreeSet<u64> = before.iter().chain(&after).copied().collect();
        assert_eq!(seen.len(), 300, "{channel}");
        repeats += before.len() + after.len() - seen.len();
    }
    assert!(repeats <= 4 * 100, "{repeats}");
    drop(sources);
}

#[test]
fn sources_share_partitions_and_take_over() {
    let Some(server) = server() else { return };
    let source = source(&server, 4);
    let mut process = Process::new(2, &channels(20));
    let first = run(&process, &source);
    process.until("a reader of all", |_| report(&first).partitions == 4);
    let second = run(&process, &source);
    let shares = |sources: [&ringmain_sources::Sources; 2]| sources.map(|sources| report(sources).partitions);
    process.until("an even division", |_| shares([&first, &second]) == [2, 2]);
    let mut session = server.connect();
    for start in (0..2000).step_by(100) {
        session.run(&insert(start..start + 100, 20, 4));
    }
    let counts = |sources: [&ringmain_sources::Sources; 2]| sources.map(|sources| report(sources).published);
    process.until("all rows", |_| counts([&first, &second]) == [1000, 1000]);
    // While rows arrive, one of them ends.
    session.run(&insert(2000..3000, 20, 4));
    // Without waiting for it: it waits for the workers, which run here.
    second.follow(&BTreeMap::new());
    session.run(&insert(3000..4000, 20, 4));
    process.until("the takeover", |_| report(&first).partitions == 4);
    process.until("all rows", |process| process.count() >= 4000);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..4000, 20);
    assert_eq!(report(&first).repeated, 0);
}

#[test]
fn rows_that_cannot_be_published_are_dead_letters() {
    let Some(server) = server() else { return };
    server.run("ALTER TABLE ringmain_outbox ALTER data TYPE text; ALTER TABLE ringmain_outbox_dead ALTER data TYPE text");
    let mut source = source(&server, 1);
    source.mapping.dead_letters = Some("ringmain_outbox_dead".into());
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    server.run(
        "INSERT INTO ringmain_outbox (channel, data, key) VALUES ('c0', '{\"n\":0}', NULL), ('nowhere:a', '1', 'k'), \
         ('c0', '{', NULL), ('c0', '{\"n\":1}', NULL), (NULL, '2', NULL), ('c0', repeat('1', 2000000), NULL), ('c0', '{\"n\":2}', NULL)",
    );
    process.until("the others", |process| process.count() >= 3);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_eq!(process.numbers("c0"), [0, 1, 2]);
    let dead =
        server.run("SELECT id, channel, key, left(data, 3), reason FROM ringmain_outbox_dead ORDER BY id");
    assert_eq!(
        dead,
        [
            "2|nowhere:a|k|1|no_channel",
            "3|c0||{|bad_format",
            "5|||2|no_channel",
            "6|c0||111|too_large"
        ]
    );
    let dead = report(&sources).dead;
    assert_eq!(dead[DeadReason::NoChannel as usize], 2);
    assert_eq!(dead.iter().sum::<u64>(), 4);
    drop(sources);
    // Without a table for them they are counted and deleted.
    source.mapping.dead_letters = None;
    let sources = run(&process, &source);
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1'), ('c0', '{\"n\":3}')");
    process.until("the other", |process| process.count() >= 4);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_eq!(report(&sources).dead[DeadReason::NoChannel as usize], 1);
}

#[test]
fn dead_letters_wait_for_their_table_and_hold_up_nothing() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 2);
    source.mapping.dead_letters = Some("ringmain_outbox_dead".into());
    source.mapping.in_flight = 4;
    server.run("ALTER TABLE ringmain_outbox_dead RENAME TO another");
    let mut process = Process::new(1, &channels(2));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    process.until("a failure", |_| report(&sources).letters_fail);
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1')");
    server.run(&insert(0..20, 2, 2));
    process.until("the others", |process| process.count() == 20);
    process.until("the dead letter alone", |_| rows(&server) == 1);
    process.until("the report", |_| report(&sources).letters_waiting == 1);
    assert_eq!((report(&sources).failures, report(&sources).paused), (0, 0));
    // At the limit the partition is not read, the other one is.
    server.run(
        "INSERT INTO ringmain_outbox (channel, data) SELECT 'nowhere:a', '1' FROM generate_series(1, 3)",
    );
    process.until("the limit", |_| report(&sources).paused == 1);
    server.run(&insert(20..40, 2, 2));
    process.until("the other partition", |process| process.numbers("c1").len() == 20);
    assert_eq!(process.numbers("c0").len(), 10);
    server.run("ALTER TABLE another RENAME TO ringmain_outbox_dead");
    process.until("all rows", |process| process.count() == 40);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..40, 2);
    process.until("the end", |_| !report(&sources).letters_fail);
    let found = report(&sources);
    assert_eq!(
        (found.letters_waiting, found.dead.iter().sum::<u64>()),
        (0, 4),
        "{found:?}"
    );
    assert_eq!(server.run("SELECT count(*) FROM ringmain_outbox_dead"), ["4"]);
}

#[test]
fn a_table_of_dead_letters_that_refuses_rows_is_retried_less_and_less() {
    let Some(server) = server() else { return };
    server.run("ALTER TABLE ringmain_outbox_dead ADD CHECK (false)");
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1')");
    let mut source = source(&server, 1);
    source.mapping.dead_letters = Some("ringmain_outbox_dead".into());
    settings(&mut source).poll_interval = Duration::from_millis(20);
    let mut process = Process::new(1, &[]);
    let sources = run(&process, &source);
    process.until("the first failure", |_| report(&sources).letter_failures > 0);
    let first = report(&sources).letter_failures;
    // The first wait is 100 ms, and each is twice the one before.
    wait::at_least(Duration::from_millis(1000), || {
        process.until("four more", |_| report(&sources).letter_failures >= first + 4);
    });
    assert!(report(&sources).letters_fail);
}

#[test]
fn the_table_that_is_read_is_no_table_of_dead_letters() {
    let Some(server) = server() else { return };
    server.run("ALTER TABLE ringmain_outbox ADD reason text");
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1')");
    let mut source = source(&server, 1);
    source.mapping.dead_letters = Some("public.ringmain_outbox".into());
    let mut process = Process::new(1, &[]);
    let sources = run(&process, &source);
    process.until("a failure", |_| report(&sources).letter_failures > 1);
    assert_eq!(report(&sources).dead.iter().sum::<u64>(), 1, "it was read once");
}

#[test]
fn transactions_count_when_they_are_committed() {
    let Some(server) = server() else { return };
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source(&server, 1));
    process.until("a reader", |_| report(&sources).delivers);
    let (mut late, mut lost) = (server.connect(), server.connect());
    let row = |number: u64| insert(number..number + 1, 1, 1);
    late.run(&format!("BEGIN; {}", row(0)));
    lost.run(&format!("BEGIN; {}", row(1)));
    server.run(&row(2));
    process.until("the one that is committed", |process| process.count() == 1);
    process.until("its end", |_| rows(&server) == 0);
    lost.run("ROLLBACK");
    late.run("COMMIT");
    process.until("the late one", |process| process.count() == 2);
    server.run(&row(3));
    process.until("the last one", |process| process.count() == 3);
    assert_eq!(process.numbers("c0"), [2, 0, 3]);
}

#[test]
fn full_workers_stop_their_partition_alone() {
    let Some(server) = server() else { return };
    let mut process = Process::new(2, &channels(8));
    let sources = run(&process, &source(&server, 8));
    process.until("a reader", |_| report(&sources).partitions == 8);
    // The workers stand still from here on.
    let (c0, mut fillers) = (Arc::<str>::from("c0"), 0_u64);
    let mut inlet = process.inlet.clone();
    while inlet.publish(&c0, br#"{"n":0}"#) != Err(SubmitError::Full) {
        fillers += 1;
    }
    server.run(&insert(0..4000, 8, 8));
    wait::until("full and open partitions", || {
        let report = report(&sources);
        report.records == 4000 && (1..8).contains(&report.paused) && report.in_flight == 4000
    });
    process.until("all rows", |process| process.count() as u64 >= 4000 + fillers);
    process.until("an empty table", |_| rows(&server) == 0);
    process
        .received
        .get_mut("c0")
        .expect("rows")
        .drain(..fillers as usize);
    assert_once_in_order(&process, 0..4000, 8);
    process.until("no partition full", |_| report(&sources).paused == 0);
}

#[test]
fn rows_that_others_lock_are_delivered_once_and_hold_up_nothing() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 1);
    source.mapping.dead_letters = Some("ringmain_outbox_dead".into());
    let mut process = Process::new(1, &channels(1));
    server.run(&insert(0..3, 1, 1));
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1')");
    let mut session = server.connect();
    let locked = session.run("BEGIN; SELECT id FROM ringmain_outbox WHERE id IN (2, 4) FOR UPDATE");
    assert_eq!(locked, ["2", "4"]);
    let sources = run(&process, &source);
    process.until("the rows", |process| process.count() == 3);
    process.until("the rows that are locked", |_| rows(&server) == 2);
    server.run(&insert(3..6, 1, 1));
    process.until("the rows behind them", |process| process.count() == 6);
    process.until("the rows that are locked", |_| rows(&server) == 2);
    session.run("COMMIT");
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..6, 1);
    assert_eq!(report(&sources).repeated, 0);
    assert_eq!(server.run("SELECT id FROM ringmain_outbox_dead"), ["4"]);
    // A row that is updated after it was published is another one.
    let mut session = server.connect();
    drop(sources);
    server.run(&insert(6..7, 1, 1));
    session.run("BEGIN; UPDATE ringmain_outbox SET data = '{\"n\":7}'");
    let _sources = run(&process, &source);
    process.until("the first version", |process| process.count() == 7);
    session.run("COMMIT");
    process.until("the second version", |process| process.count() == 8);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_once_in_order(&process, 0..8, 1);
}

#[test]
fn a_server_that_hangs_is_a_failure() {
    let Some(server) = server() else { return };
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source(&server, 1));
    process.until("a reader", |_| report(&sources).delivers);
    server.suspend();
    process.until("the failure", |_| !report(&sources).delivers);
    server.resume();
    process.until("a reader again", |_| report(&sources).delivers);
    server.run(&insert(0..1, 1, 1));
    process.until("the row", |process| process.count() == 1);
}

#[test]
fn rows_are_polled_without_notifications() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 1);
    settings(&mut source).notify = None;
    settings(&mut source).poll_interval = std::time::Duration::from_millis(20);
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    server.run(&insert(0..5, 1, 1));
    process.until("the rows", |process| process.count() == 5);
}

#[test]
fn tables_of_centrifugo_are_read() {
    let Some(server) = server() else { return };
    server.run(
        "CREATE TABLE centrifugo_outbox (id BIGSERIAL PRIMARY KEY, method text NOT NULL, payload JSONB NOT NULL, \
         partition INTEGER NOT NULL DEFAULT 0, created_at TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL)",
    );
    let mut source = source(&server, 2);
    settings(&mut source).table = "public.centrifugo_outbox".into();
    settings(&mut source).poll_interval = std::time::Duration::from_millis(20);
    source.mapping.format = RecordFormat::Commands;
    let mut process = Process::new(1, &channels(2));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    server.run(
        r#"INSERT INTO centrifugo_outbox (method, payload, partition) VALUES
           ('publish', '{"channel":"c0","data":{"n":1},"tags":{"a":"b"}}', 0),
           ('broadcast', '{"channels":["c0","c1"],"data":{"n":2}}', 0),
           ('disconnect', '{"user":"a"}', 0), ('explode', '{"user":"a"}', 0)"#,
    );
    process.until("the rows", |process| process.count() == 3);
    assert_eq!(process.numbers("c0"), [1, 2]);
    assert_eq!(process.numbers("c1"), [2]);
    assert_eq!(process.received["c0"][0].1, serde_json::json!({"a": "b"}));
    process.until("an empty table", |_| {
        server.run("SELECT count(*) FROM centrifugo_outbox") == ["0"]
    });
    let found = report(&sources);
    let dead = found.dead[DeadReason::BadFormat as usize];
    assert_eq!((found.published, dead), (4, 1), "{found:?}");
}

#[test]
fn bytes_are_published_in_namespaces_that_take_them() {
    let Some(server) = server() else { return };
    server.run("ALTER TABLE ringmain_outbox ALTER data TYPE bytea USING convert_to(data::text, 'UTF8')");
    let mut process = Process::new(1, &["binary:a".to_owned()]);
    let sources = run(&process, &source(&server, 1));
    process.until("a reader", |_| report(&sources).delivers);
    server.run(r"INSERT INTO ringmain_outbox (channel, data) VALUES ('binary:a', '\x7b226e223a317d'), ('c0', '\xff')");
    process.until("the row", |process| process.count() == 1);
    assert_eq!(process.numbers("binary:a"), [1]);
    process.until("an empty table", |_| rows(&server) == 0);
    assert_eq!(report(&sources).dead[DeadReason::BadFormat as usize], 1);
}

#[test]
fn channels_are_made_of_keys_and_tags() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 1);
    source.mapping.channel = ChannelTemplate::parse("{key}{header:room}").expect("a template");
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    server.run(r#"INSERT INTO ringmain_outbox (key, data, tags) VALUES ('c', '{"n":7}', '{"room":"0"}')"#);
    process.until("the row", |process| process.count() == 1);
    assert_eq!(process.numbers("c0"), [7]);
}

#[test]
fn failures_are_reported_and_retried() {
    let Some(mut server) = servers::Postgres::start(&[], &[]) else {
        return;
    };
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source(&server, 1));
    process.until("a missing table", |_| report(&sources).failures >= 1);
    assert_eq!(sources.undelivered(), [Arc::from("outbox")]);
    server.run(ringmain_sources::outbox_sql());
    process.until("a reader", |_| report(&sources).delivers);
    assert!(sources.undelivered().is_empty());
    server.kill();
    process.until("the failure", |_| !report(&sources).connected);
    assert_eq!(report(&sources).lag, None);
    server.restart();
    server.run(&insert(0..1, 1, 1));
    process.until("the row", |process| process.count() == 1);
    // Sources that are not configured any more end.
    sources.follow(&BTreeMap::new());
    assert!(sources.reports().is_empty());
    wait::until("the end of the session", || {
        server.run("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'ringmain'") == ["0"]
    });
}

#[test]
fn the_lag_is_what_was_not_read() {
    let Some(server) = server() else { return };
    let mut source = source(&server, 1);
    source.mapping.in_flight = 10;
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).lag == Some(0));
    server.run(&insert(0..100, 1, 1));
    wait::until("rows that wait", || report(&sources).lag == Some(90));
    assert_eq!(report(&sources).in_flight, 10);
    process.until("no lag", |_| report(&sources).lag == Some(0));
    assert_once_in_order(&process, 0..100, 1);
    assert!(report(&sources).lag_time.is_some());
}

#[test]
fn passwords_and_tls_are_used() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["db.test".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let access = "host all postgres 127.0.0.1/32 trust\nhostssl all reader 127.0.0.1/32 scram-sha-256\n";
    let files = [
        ("pg_hba.conf", access.as_bytes()),
        ("server.crt", certificate.pem().as_bytes()),
        ("server.key", key.serialize_pem().as_bytes()),
    ]
    .map(|(name, content)| (name, content.to_vec()));
    let files = files.each_ref().map(|(name, content)| (*name, &**content));
    let Some(server) = servers::Postgres::start(&files, &["ssl=on"]) else {
        return;
    };
    server.run(ringmain_sources::outbox_sql());
    // No more than the documentation says.
    server.run(
        "CREATE ROLE reader LOGIN PASSWORD 'secret'; GRANT SELECT, UPDATE, DELETE ON ringmain_outbox TO reader; \
         GRANT INSERT ON ringmain_outbox_dead TO reader",
    );
    let mut source = source(&server, 1);
    source.mapping.dead_letters = Some("ringmain_outbox_dead".into());
    let postgres = settings(&mut source);
    postgres.login.user = "reader".into();
    postgres.login.password = Secret::new(&b"secret"[..]);
    let tls = BrokerTls {
        server_name: Some("db.test".into()),
        authorities: Some(authority.pem().as_bytes().into()),
        certificate: None,
    };
    postgres.tls = Some(tls.clone());
    let mut process = Process::new(1, &channels(1));
    let sources = run(&process, &source);
    process.until("a reader", |_| report(&sources).delivers);
    server.run(&insert(0..1, 1, 1));
    server.run("INSERT INTO ringmain_outbox (channel, data) VALUES ('nowhere:a', '1')");
    process.until("the row", |process| process.count() == 1);
    process.until("the dead letter", |_| {
        server.run("SELECT reason FROM ringmain_outbox_dead") == ["no_channel"]
    });
    assert_eq!(report(&sources).failures, 0);
    // Neither without TLS, nor with another name, nor with another password.
    let mut plain = source.clone();
    settings(&mut plain).tls = None;
    let mut other = source.clone();
    let other_name = BrokerTls {
        server_name: None,
        ..tls
    };
    settings(&mut other).tls = Some(other_name);
    let mut wrong = source;
    settings(&mut wrong).login.password = Secret::new(&b"other"[..]);
    for refused in [plain, other, wrong] {
        let sources = run(&process, &refused);
        process.until("a failure", |_| report(&sources).failures >= 1);
        assert_eq!(report(&sources).connects, 0);
    }
}
