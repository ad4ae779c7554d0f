//! Blocking work of workers of both real back-ends: results, panics, a full queue, cancelled tasks.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{PATIENCE, Rig, for_each_engine};
use ringmain_engine::{Cx, limits};

#[test]
fn results_come_back_in_whatever_order() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let sum = rig.run(|cx: Cx| async move {
            let (results, collected) = mpsc::channel();
            for number in 0..100_u64 {
                let (results, worker) = (results.clone(), cx.clone());
                let job = async move {
                    let square = worker.blocking(move || number * number).await;
                    results
                        .send(square.expect("room in the pool"))
                        .expect("collected below");
                };
                cx.spawn(job).expect("room for a task");
            }
            drop(results);
            let mut all = Vec::new();
            while all.len() < 100 {
                all.extend(collected.try_iter());
                cx.sleep(Duration::from_millis(1)).await;
            }
            all.iter().sum::<u64>()
        });
        assert_eq!(sum, (0..100).map(|n| n * n).sum::<u64>());
    });
}

#[test]
fn a_panic_is_an_error_and_the_pool_goes_on() {
    for_each_engine(|choice| {
        let rig = Rig::with(choice, |config| config.blocking_threads = 1, |_| async {});
        let (panicked, after) = rig.run(|cx: Cx| async move {
            let panicked = cx.blocking(|| -> u32 { panic!("as the test wants") }).await;
            (panicked, cx.blocking(|| 7).await)
        });
        let error = panicked.expect_err("it panicked");
        assert_eq!(error.kind(), io::ErrorKind::Other);
        assert!(error.to_string().contains("panicked"), "{error}");
        assert_eq!(after.expect("the thread goes on"), 7);
        assert_eq!(rig.report().panics, 0);
    });
}

#[test]
fn a_full_queue_refuses_and_says_what_to_do() {
    for_each_engine(|choice| {
        let rig = Rig::with(choice, |config| config.blocking_threads = 1, |_| async {});
        let (let_go, release) = mpsc::channel::<()>();
        let refused = rig.run(|cx: Cx| async move {
            let (refusals, refused) = mpsc::channel();
            let asked = Rc::new(Cell::new(0));
            let mut release = Some(release);
            // One runs, a queue's worth waits; the thread may take its first job late, so one more may be refused.
            for _ in 0..limits::BLOCKING_QUEUE + 2 {
                let (worker, refusals, release) = (cx.clone(), refusals.clone(), release.take());
                let asked = Rc::clone(&asked);
                let job = async move {
                    let work = move || release.map(|held| held.recv());
                    // It is refused within this step, if it is.
                    asked.set(asked.get() + 1);
                    if let Err(error) = worker.blocking(work).await {
                        refusals.send(error).expect("collected below");
                    }
                };
                cx.spawn(job).expect("room for a task");
            }
            while asked.get() < limits::BLOCKING_QUEUE + 2 {
                cx.sleep(Duration::from_millis(1)).await;
            }
            refused.try_iter().collect::<Vec<_>>()
        });
        drop(let_go);
        assert!(matches!(refused.len(), 1 | 2), "{refused:?}");
        assert_eq!(refused[0].kind(), io::ErrorKind::WouldBlock);
        assert!(
            refused[0].to_string().contains("try again later"),
            "{}",
            refused[0]
        );
    });
}

/// Says when and that it was dropped.
struct Dropped(mpsc::Sender<&'static str>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

#[test]
fn the_result_for_a_cancelled_task_is_dropped() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let (sender, events) = mpsc::channel();
        let (let_go, release) = mpsc::channel::<()>();
        rig.run(|cx: Cx| async move {
            let worker = cx.clone();
            let (started, begun) = mpsc::channel();
            let task = cx.spawn(async move {
                let work = move || {
                    started.send(()).expect("the test waits");
                    release.recv().expect_err("nobody sends, the sender is dropped");
                    Dropped(sender)
                };
                let result = worker.blocking(work).await;
                unreachable!("cancelled before: {}", result.is_ok());
            });
            while begun.try_recv().is_err() {
                cx.sleep(Duration::from_millis(1)).await;
            }
            cx.cancel(task.expect("room for a task"));
        });
        assert_eq!(events.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(let_go);
        assert_eq!(events.recv_timeout(PATIENCE), Ok("dropped"));
        assert_eq!(rig.report().panics, 0);
    });
}

#[test]
fn a_task_that_panics_is_counted_and_the_worker_goes_on() {
    for_each_engine(|choice| {
        let rig = Rig::new(choice);
        let nothing = rig.begin(|_| async { panic!("as the test wants") });
        let nothing: Result<(), _> = nothing.recv_timeout(PATIENCE);
        assert_eq!(nothing, Err(mpsc::RecvTimeoutError::Disconnected));
        // The count is there when the next turn is.
        rig.run(|_| async {});
        rig.run(|_| async {});
        assert_eq!(rig.report().panics, 1);
    });
}
