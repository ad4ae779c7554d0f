//! What is asked for: so much, and for so long.

use std::time::Duration;

use ringmain_web::App;
use ringmain_web::testing::TestClient;

use super::*;

#[test]
fn a_question_is_one_until_it_is_answered() {
    let mut asking = Asking::default();
    let gathering = Gathering::new(limits::QUESTIONS);
    for at in 0..limits::QUESTIONS {
        assert_eq!(asking.room(), limits::QUESTIONS - at);
        assert_eq!(asking.ask(&gathering, at), at as u64);
    }
    assert_eq!(asking.room(), 0);
    // Nobody waits any more: that makes no room.
    let (left, weak) = (Rc::clone(&gathering), Rc::downgrade(&gathering));
    drop(gathering);
    assert_eq!(asking.room(), 0);
    asking.answered(7, ProgramReply::Published(None));
    asking.answered(7, ProgramReply::Published(None));
    asking.answered(u64::MAX, ProgramReply::Published(None));
    assert_eq!((asking.room(), left.left.get()), (1, limits::QUESTIONS - 1));
    drop(left);
    let next = Gathering::new(1);
    assert_eq!(asking.ask(&next, 0), 7, "its number is another one's now");
    for number in 0..limits::QUESTIONS as u64 {
        asking.answered(number, ProgramReply::Published(None));
    }
    assert_eq!((asking.room(), next.left.get()), (limits::QUESTIONS, 0));
    assert!(weak.upgrade().is_none(), "nothing is left of it");
}

#[test]
fn answers_are_waited_for_until_then_and_no_longer() {
    let app = App::new().get_async("/{puts}", async |request, reply| {
        let puts: usize = request.param_as("puts")?;
        let cx = request.cx();
        let gathering = Gathering::new(2);
        let (tells, alarm) = (Rc::clone(&gathering), cx.clone());
        cx.spawn(async move {
            for at in (0..puts).rev() {
                alarm.sleep(Duration::from_secs(2)).await;
                tells.put(at, at);
            }
        })?;
        let since = cx.now();
        let until = since.since(Time(0)) + limits::ANSWERED_WITHIN;
        let all = gathering.all(cx, until).await;
        reply.text(format!("{all:?} after {} s", cx.now().since(since).as_secs()))
    });
    let mut client = TestClient::new(app).expect("an application");
    for (puts, expected) in [
        (0, "None after 5 s"),
        (1, "None after 5 s"),
        (2, "Some([0, 1]) after 4 s"),
    ] {
        assert_eq!(client.get(&format!("/{puts}")).send().text(), expected);
    }
    client.finish().expect("it ends");
}
