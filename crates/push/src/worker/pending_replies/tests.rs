//! The limit of queries, and the time that replies are waited for.

use std::time::Duration;

use ringmain_web::App;
use ringmain_web::testing::TestClient;

use super::*;

#[test]
fn a_query_counts_until_its_reply_has_arrived() {
    let mut pending = PendingReplies::default();
    let group = ReplyGroup::new(limits::QUERIES);
    for at in 0..limits::QUERIES {
        assert_eq!(pending.capacity_left(), limits::QUERIES - at);
        assert_eq!(pending.add_query(&group, at), at as u64);
    }
    assert_eq!(pending.capacity_left(), 0);
    // A request that has timed out frees no number.
    let (left, weak) = (Rc::clone(&group), Rc::downgrade(&group));
    drop(group);
    assert_eq!(pending.capacity_left(), 0);
    pending.complete(7, ProgramReply::Published(None));
    pending.complete(7, ProgramReply::Published(None));
    pending.complete(u64::MAX, ProgramReply::Published(None));
    assert_eq!(
        (pending.capacity_left(), left.missing.get()),
        (1, limits::QUERIES - 1)
    );
    drop(left);
    let next = ReplyGroup::new(1);
    assert_eq!(pending.add_query(&next, 0), 7, "the number is reused");
    for number in 0..limits::QUERIES as u64 {
        pending.complete(number, ProgramReply::Published(None));
    }
    assert_eq!(
        (pending.capacity_left(), next.missing.get()),
        (limits::QUERIES, 0)
    );
    assert!(weak.upgrade().is_none(), "the group was dropped");
}

#[test]
fn replies_are_waited_for_until_the_deadline() {
    let app = App::new().get_async("/{replies}", async |request, reply| {
        let count: usize = request.param_as("replies")?;
        let cx = request.cx();
        let group = ReplyGroup::new(2);
        let (replies, timer) = (Rc::clone(&group), cx.clone());
        cx.spawn(async move {
            for at in (0..count).rev() {
                timer.sleep(Duration::from_secs(2)).await;
                replies.set_reply(at, at);
            }
        })?;
        let since = cx.now();
        let until = since.since(Time(0)) + limits::REPLY_TIMEOUT;
        let all = group.all(cx, until).await;
        reply.text(format!("{all:?} after {} s", cx.now().since(since).as_secs()))
    });
    let mut client = TestClient::new(app).expect("an application");
    for (count, expected) in [
        (0, "None after 5 s"),
        (1, "None after 5 s"),
        (2, "Some([0, 1]) after 4 s"),
    ] {
        assert_eq!(client.get(&format!("/{count}")).send().text(), expected);
    }
    client.finish().expect("it ends");
}
