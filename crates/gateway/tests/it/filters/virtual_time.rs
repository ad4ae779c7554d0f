//! In virtual time, without sockets: how long a filter may wait, and bodies that the network cuts as it likes.

use ringmain_gateway::filter::FilterResponse;
use ringmain_gateway::limits::FILTER_WAIT;
use ringmain_gateway::model::{Action, StaticBody};
use ringmain_web::testing::TestClient;

use super::*;
use crate::origin::rules;

/// A gateway that answers by itself, behind these filters.
fn answering(filters: Filters) -> Gateway {
    let answer = Action::Respond(model::DirectResponse {
        status: 200,
        content_type: None,
        body: StaticBody(b"own".as_slice().into()),
    });
    let mut config = rules(vec![Rule::new(answer)], Vec::new());
    name_all(&mut Arc::make_mut(&mut config.routes[0]).rules[0], &filters);
    Gateway::with_filters(Arc::new(config), filters, Duration::ZERO)
}

/// A filter that delays a response for this time.
struct Late(Duration);

impl Filter for Late {
    type Exchange = ();

    fn begin(&self, _: &RequestInfo<'_>) {}

    fn response_head<'a>(&'a self, (): &'a mut (), head: &'a mut ResponseHead<'_>) -> Outcome<'a> {
        let cx = head.about().cx().clone();
        Flow::wait(async move {
            cx.sleep(self.0).await;
            head.set("X-Late", "1")?;
            Ok(Flow::Continue)
        })
    }
}

#[test]
fn a_filter_is_not_waited_for_for_ever() {
    for (span, status, fault) in [
        (FILTER_WAIT - Duration::from_secs(1), 200, None),
        (FILTER_WAIT + Duration::from_secs(1), 504, Some("filter_timeout")),
    ] {
        let filters = Filters::new().add("late", move |_: &Options| Ok(move |_: &Cx| Late(span)));
        let gateway = answering(filters);
        let mut client = TestClient::new(gateway.app()).expect("an application");
        let reply = client.get("/").send();
        assert_eq!(reply.status(), status);
        assert_eq!(reply.header("x-late").is_some(), fault.is_none());
        let faults = gateway.fault_counts();
        let counted = faults.iter().find(|(_, count)| *count > 0);
        assert_eq!(counted.map(|(fault, _)| fault.label()), fault);
        client.finish().expect("an orderly end");
    }
}

#[test]
fn a_body_is_the_same_however_it_arrives() {
    let script = || Script {
        request_head: |head| {
            head.want_body(BodyAccess::Buffer);
            Ok(Flow::Continue)
        },
        request_body: |body| {
            assert!(body.is_end());
            let mut bytes = body.bytes().to_vec();
            bytes.reverse();
            Ok(Flow::Respond(FilterResponse::new(200).body(bytes)))
        },
        ..Script::default()
    };
    let sent = support::pattern(20_000);
    let expected: Vec<u8> = sent.iter().rev().copied().collect();
    for seed in 0..50 {
        let (filters, told) = scripted([("a", script())]);
        let gateway = answering(filters);
        let mut client = TestClient::with_seed(gateway.app(), seed).expect("an application");
        let reply = client.post("/").body(&sent[..]).send();
        assert!(reply.status() == 200 && reply.body() == expected, "seed {seed}");
        client.finish().expect("an orderly end");
        drop(gateway);
        let told = super::told(&told);
        assert_eq!(
            told[..3],
            ["a request head", "a request end", "a over Some(200) whole"],
            "seed {seed}"
        );
    }
}
