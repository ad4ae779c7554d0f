//! Behaviour of full queues.

use bytes::Bytes;
use ringmain_hub::protocol::Format;

use super::*;
use crate::worker::user_commands::UserAction;

fn parts(workers: usize) -> Vec<Mesh> {
    let queues: Arc<[InboundQueue]> = (0..workers).map(|_| InboundQueue::new()).collect();
    let process = Process {
        node: Arc::from("node"),
        started: Time(0),
        clients: Arc::default(),
        user_connections: Arc::default(),
    };
    let parts = connect_workers(&queues, &process).into_inner();
    let parts = parts.unwrap_or_else(PoisonError::into_inner);
    parts.into_iter().flatten().collect()
}

#[test]
fn a_full_queue_of_emulated_messages_rejects_more_until_there_is_room() {
    let mut parts = parts(2);
    let emulated = |secret| EmulatedMessage {
        secret,
        format: Format::Json,
        data: Bytes::new(),
    };
    for number in 0..limits::EMULATED_MESSAGES {
        assert!(parts[0].send_emulated(1, emulated(number as u128)), "{number}");
    }
    assert!(!parts[0].send_emulated(1, emulated(7)), "the queue is full");
    assert!(
        parts[1].send_emulated(0, emulated(7)),
        "the other direction is another queue"
    );
    assert_eq!(parts[1].pop_emulated(0).map(|first| first.secret), Some(0));
    assert!(parts[0].send_emulated(1, emulated(7)), "there is room again");
    assert!(
        parts[0].send_emulated(2, emulated(7)),
        "a worker that does not exist has no sessions"
    );
}

#[test]
fn a_command_is_sent_to_all_other_workers_or_to_none() {
    let mut parts = parts(3);
    let command = |user: &str| ConnectionCommand {
        user: user.into(),
        client: None,
        action: UserAction::Disconnect(Arc::default()),
        progress: None,
    };
    for number in 0..limits::USER_COMMANDS {
        assert!(parts[0].broadcast_command(0, &command("7")), "{number}");
    }
    let mut pop = |worker: usize, from: usize| parts[worker].pop_command(from).map(|command| command.user);
    assert_eq!((pop(1, 0).as_deref(), pop(0, 0)), (Some("7"), None));
    // One has room again, the other has none.
    assert!(!parts[0].broadcast_command(0, &command("8")), "the queue is full");
    assert!(
        parts[1].broadcast_command(1, &command("9")),
        "other workers have queues of their own"
    );
    let left: Vec<_> = std::iter::from_fn(|| parts[1].pop_command(0)).collect();
    assert_eq!(left.len(), limits::USER_COMMANDS - 1);
    assert!(
        left.iter().all(|command| &*command.user == "7"),
        "no worker received 8"
    );
    let next = parts[2].pop_command(1).map(|command| command.user);
    assert_eq!(next.as_deref(), Some("9"));
    assert!(parts[2].pop_command(0).is_some());
    assert!(
        parts[0].broadcast_command(0, &command("8")),
        "there is room again"
    );
}
