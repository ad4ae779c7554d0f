//! Files on workers of both real back-ends: caches, misses, the root that paths cannot leave.

use std::fs;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{PATIENCE, Rig, for_each_engine, pattern};
use ringmain_engine::file::{Kind, Root};
use ringmain_engine::{Cx, limits};
use ringmain_sys::file as sys;
use ringmain_testkit::wait::give_way;
use rustix::fs::{Advice, fadvise};

/// A directory of this test's own; removed at its end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("root/sub")).expect("a writable target directory");
        Place(path)
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        let mut file = fs::File::create(&path).expect("a new file");
        file.write_all(content).expect("room on the disk");
        file.sync_all().expect("a disk that syncs");
        path
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Drops the file from the page cache. One call may leave pages that another CPU has in hand.
fn make_cold(path: &Path) {
    let file = fs::File::open(path).expect("it was just written");
    for _ in 0..10_000 {
        fadvise(&file, 0, None, Advice::DontNeed).expect("a file takes advice");
        match cached_pages(&file) {
            Ok(0) => return,
            Ok(_) => give_way(),
            // Before Linux 6.5, or forbidden: the advice has to do.
            Err(_) => return,
        }
        file.sync_all().expect("a disk that syncs");
    }
    panic!("{} stays in the page cache", path.display());
}

/// So often a read that is to miss is tried again that the disk was quicker for.
const QUICKER: usize = 1000;

/// How much of a file is in the page cache, by cachestat(2), which reads nothing.
fn cached_pages(file: &fs::File) -> io::Result<u64> {
    /// Its number is the same on every architecture that we build for.
    const CACHESTAT: libc::c_long = 451;
    // From the first byte to the end; cached, dirty, under write-back, evicted, recently evicted.
    let (range, mut pages) = ([0_u64; 2], [0_u64; 5]);
    // SAFETY: both have the layout that the call wants, and outlive it.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), pages.as_mut_ptr(), 0) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(pages[0])
    }
}

fn kind_of<T>(outcome: io::Result<T>) -> io::ErrorKind {
    outcome.map(drop).expect_err("an error").kind()
}

#[test]
fn what_is_in_the_page_cache_is_read_on_the_worker() {
    let place = Place::new("hit");
    let content = pattern(10_000);
    let path = place.file("root/hit", &content);
    assert_eq!(fs::read(&path).expect("it can be read"), content);
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let root = place.root();
        let read = rig.run(|cx: Cx| async move {
            let root = cx.open_root(root).await?;
            let file = cx.open_beneath(&root, "hit").await?;
            let stat = file.stat()?;
            let (count, buffer) = file.read_at(vec![0; 16_384], 0).await;
            let (middle, part) = file.read_at(vec![0; 10], 5_000).await;
            let (end, _) = file.read_at(vec![0; 10], 10_000).await;
            io::Result::Ok((stat, count?, buffer, middle?, part, end?))
        });
        let (stat, count, buffer, middle, part, end) = read.expect("all of it works");
        assert_eq!((stat.len, stat.kind), (10_000, Kind::File));
        assert_eq!((count, middle, end), (10_000, 10, 0));
        assert_eq!(buffer[..count], content);
        assert_eq!(part, content[5_000..5_010]);
        let report = rig.report();
        assert_eq!((report.file_hits, report.file_misses), (3, 0));
    });
}

#[test]
fn a_miss_is_read_by_the_pool_and_the_next_one_hits() {
    let place = Place::new("miss");
    let content = pattern(50_000);
    let path = place.file("root/cold", &content);
    for_each_engine(|choice| {
        // The disk may be quicker than the worker, and nothing is missed.
        let missed = (0..50).any(|_| {
            make_cold(&path);
            let rig = Rig::new(choice);
            let root = Root::open(&place.root()).expect("it is there");
            let (first, again) = rig.run(|cx: Cx| async move {
                let file = cx.open_beneath(&root, "cold").await.expect("it is there");
                let first = file.read_at(vec![0; 50_000], 0).await;
                (first, file.read_at(vec![0; 50_000], 0).await)
            });
            if first.0.as_ref().is_ok_and(|count| *count < 50_000) {
                return false;
            }
            assert_eq!(first.0.expect("read by the pool"), 50_000);
            assert_eq!(first.1, content);
            assert_eq!(again.0.expect("read on the worker"), 50_000);
            assert_eq!(again.1, content);
            let report = rig.report();
            (report.file_hits, report.file_misses) == (1, 1)
        });
        assert!(missed, "one read in fifty");
    });
}

#[test]
fn a_partial_hit_is_returned_as_it_is() {
    let place = Place::new("partial");
    let content = pattern(1 << 20);
    let path = place.file("root/partial", &content);
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let root = Root::open(&place.root()).expect("it is there");
        // The disk may win the race once and have the rest ready.
        let partial = (0..50).find_map(|_| {
            make_cold(&path);
            let file = fs::File::open(&path).expect("it is there");
            // No read-ahead, so that only the front is in the cache.
            fadvise(&file, 0, None, Advice::Random).expect("a file takes advice");
            sys::read_at(&file, &mut [0; 4096], 0).expect("it can be read");
            let (misses, root) = (rig.report().file_misses, root.clone());
            let (count, buffer) = rig.run(|cx: Cx| async move {
                let file = cx.open_beneath(&root, "partial").await.expect("it is there");
                file.read_at(vec![0; 200_000], 0).await
            });
            let count = count.expect("a hit");
            assert_eq!(rig.report().file_misses, misses);
            (count < 200_000).then_some((count, buffer))
        });
        let (count, buffer) = partial.expect("one of them hits a part only");
        assert!(count >= 4096, "{count} is less than what is in the cache");
        assert_eq!(buffer.len(), 200_000);
        assert_eq!(buffer[..count], content[..count]);
    });
}

#[test]
fn one_read_is_bounded() {
    let place = Place::new("bounded");
    let content = pattern(limits::FILE_READ_BYTES + 1000);
    let path = place.file("root/large", &content);
    fs::read(&path).expect("it can be read");
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (root, len) = (Root::open(&place.root()).expect("it is there"), content.len());
        let (count, buffer) = rig.run(move |cx: Cx| async move {
            let file = cx.open_beneath(&root, "large").await.expect("it is there");
            file.read_at(vec![0; len], 0).await
        });
        assert_eq!(count.expect("a read"), limits::FILE_READ_BYTES);
        assert_eq!(
            buffer[..limits::FILE_READ_BYTES],
            content[..limits::FILE_READ_BYTES]
        );
    });
}

#[test]
fn no_path_leaves_the_root() {
    let place = Place::new("escape");
    place.file("secret", b"not for you");
    place.file("root/sub/inside", b"for you");
    symlink("../secret", place.0.join("root/link-out")).expect("a link");
    symlink(place.0.join("secret"), place.0.join("root/link-absolute")).expect("a link");
    symlink("sub/inside", place.0.join("root/link-in")).expect("a link");
    let absolute = place.0.join("secret");
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let root = Root::open(&place.root()).expect("it is there");
        let outside = [
            Path::new("../secret"),
            Path::new("sub/../../secret"),
            Path::new("link-out"),
            Path::new("link-absolute"),
            &absolute,
        ];
        for path in outside {
            let (root, name) = (root.clone(), path.to_path_buf());
            let outcome = rig.run(|cx: Cx| async move { cx.open_beneath(&root, name).await.map(drop) });
            assert_eq!(kind_of(outcome), io::ErrorKind::CrossesDevices, "{path:?}");
        }
        let read = rig.run(|cx: Cx| async move {
            let file = cx.open_beneath(&root, "sub/../link-in").await?;
            let (count, buffer) = file.read_at(vec![0; 100], 0).await;
            io::Result::Ok(buffer[..count?].to_vec())
        });
        assert_eq!(read.expect("it stays beneath"), b"for you");
    });
}

#[test]
fn what_is_no_file_says_so() {
    let place = Place::new("kinds");
    let plain = place.file("root/plain", b"x");
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let root = Root::open(&place.root()).expect("it is there");
        let (missing, kind, read, no_root, nowhere) = rig.run({
            let plain = plain.clone();
            |cx: Cx| async move {
                let missing = cx.open_beneath(&root, "no/such/file").await.map(drop);
                let directory = cx.open_beneath(&root, "sub").await.expect("it is there");
                let kind = directory.stat().expect("it is open").kind;
                let (read, _) = directory.read_at(vec![0; 10], 0).await;
                let no_root = cx.open_root(plain).await.map(drop);
                let nowhere = cx.open_root("/no/such/directory").await.map(drop);
                (missing, kind, read, no_root, nowhere)
            }
        });
        assert_eq!(kind_of(missing), io::ErrorKind::NotFound);
        assert_eq!(kind, Kind::Directory);
        assert_eq!(kind_of(read), io::ErrorKind::IsADirectory);
        assert_eq!(kind_of(no_root), io::ErrorKind::NotADirectory);
        assert_eq!(kind_of(nowhere), io::ErrorKind::NotFound);
    });
}

/// Holds the only thread of the pool until the sender is dropped.
async fn hold(cx: &Cx, release: mpsc::Receiver<()>) {
    let (started, begun) = mpsc::channel();
    let job = cx.clone();
    cx.spawn(async move {
        let held = job.blocking(move || {
            started.send(()).expect("the test waits");
            release.recv().expect_err("nobody sends, the sender is dropped");
        });
        held.await.expect("the job runs");
    })
    .expect("room for a task");
    while begun.try_recv().is_err() {
        cx.sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_full_pool_refuses_a_miss_and_the_buffer_comes_back() {
    let place = Place::new("full");
    let path = place.file("root/cold", &pattern(1000));
    for_each_engine(|choice| {
        make_cold(&path);
        let rig = Rig::with(choice, |config| config.blocking_threads = 1, |_| async {});
        let root = Root::open(&place.root()).expect("it is there");
        let cold = path.clone();
        let (refused, buffer, later) = rig.run(|cx: Cx| async move {
            let file = cx.open_beneath(&root, "cold").await.expect("it is there");
            let (let_go, release) = mpsc::channel();
            hold(&cx, release).await;
            for _ in 0..limits::BLOCKING_QUEUE {
                let waits = cx.clone();
                let job = async move { waits.blocking(|| ()).await.expect("it was queued") };
                cx.spawn(job).expect("room for a task");
            }
            // Every one of them has queued its job when a turn is over.
            cx.sleep(Duration::from_millis(1)).await;
            let (mut refused, mut buffer) = file.read_at(vec![7; 1000], 0).await;
            // A kernel reads ahead also for whoever does not wait, and its disk may be quicker than this thread: then it was no miss.
            for _ in 0..QUICKER {
                if refused.is_err() {
                    break;
                }
                make_cold(&cold);
                (refused, buffer) = file.read_at(vec![7; 1000], 0).await;
            }
            drop(let_go);
            let mut later = file.read_at(vec![0; 1000], 0).await;
            while later.0.is_err() {
                cx.sleep(Duration::from_millis(1)).await;
                later = file.read_at(vec![0; 1000], 0).await;
            }
            (refused, buffer, later)
        });
        let refused = refused.expect_err("the queue is full");
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("blocking_threads"), "{refused}");
        assert_eq!(buffer, [7; 1000]);
        assert_eq!(later.1, pattern(1000));
    });
}

#[test]
fn a_read_whose_future_is_dropped_harms_nobody() {
    let place = Place::new("dropped");
    let path = place.file("root/cold", &pattern(1000));
    for_each_engine(|choice| {
        make_cold(&path);
        let rig = Rig::with(choice, |config| config.blocking_threads = 1, |_| async {});
        let root = Root::open(&place.root()).expect("it is there");
        let (dropped, gone) = mpsc::channel::<()>();
        let again = rig.run(|cx: Cx| async move {
            let file = cx.open_beneath(&root, "cold").await.expect("it is there");
            let (let_go, release) = mpsc::channel();
            hold(&cx, release).await;
            let task = cx.spawn(async move {
                let _held_by_the_future = dropped;
                let (read, bytes) = file.read_at(vec![0; 1000], 0).await;
                // The pool is held. Only a kernel whose disk was quicker than this thread gets here: it reads ahead also for whoever
                // does not wait.
                assert_eq!((read.ok(), bytes), (Some(1000), pattern(1000)));
            });
            cx.sleep(Duration::from_millis(1)).await;
            cx.cancel(task.expect("room for a task"));
            // The pool reads now, into a buffer of a file that nobody else holds.
            drop(let_go);
            let file = cx.open_beneath(&root, "cold").await.expect("it is there");
            file.read_at(vec![0; 1000], 0).await.1
        });
        assert_eq!(
            gone.recv_timeout(PATIENCE),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
        assert_eq!(again, pattern(1000));
        assert_eq!(rig.report().panics, 0);
    });
}
