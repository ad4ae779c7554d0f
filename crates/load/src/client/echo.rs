//! Echoed messages: what is sent, and whether it comes back as it was.
//!
//! A message begins with its number and its connection's, so that one that was lost, doubled or sent to another
//! connection shows. Knows neither time nor connections.

use super::{Answer, Told};

/// Bytes of a message that tell it from others; shorter messages are alike.
const MARK: usize = 16;

/// What all connections of a worker share.
#[derive(Debug)]
pub(crate) struct Echo {
    message: Vec<u8>,
}

impl Echo {
    pub(crate) fn new(bytes: u32) -> Echo {
        Echo {
            message: (0..bytes).map(|at| b'a' + (at % 26) as u8).collect(),
        }
    }

    /// Message `number` of `connection`.
    pub(crate) fn message(&mut self, connection: u64, number: u64) -> &[u8] {
        if let Some(mark) = self.message.get_mut(..MARK) {
            mark[..8].copy_from_slice(&connection.to_be_bytes());
            mark[8..].copy_from_slice(&number.to_be_bytes());
        }
        &self.message
    }

    /// Takes bytes of message `number`, of which `received` have come already; returns how many were taken, and what
    /// came of it.
    pub(crate) fn read(
        &mut self,
        connection: u64,
        number: u64,
        received: &mut u32,
        input: &[u8],
    ) -> (usize, Told) {
        let from = *received as usize;
        let message = self.message(connection, number);
        let taken = input.len().min(message.len() - from);
        if message[from..from + taken] != input[..taken] {
            return (0, Told::Broken("echoed other bytes"));
        }
        if from + taken < message.len() {
            *received += taken as u32;
            return (taken, Told::More);
        }
        *received = 0;
        let answer = Answer {
            status: 0,
            right: true,
            last: false,
            code: None,
        };
        (taken, Told::Answer(answer))
    }
}
