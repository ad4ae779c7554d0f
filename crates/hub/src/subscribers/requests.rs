//! What connections and the owner's programs want of channels, and whose each answer is.

use std::sync::Arc;

use super::{Answer, ConnId, Event, Local};
use crate::history::Place;
use crate::mail::{Ask, Manner, Origin, Question, Rules, ToHome, Told};
use crate::protocol::{Fault, Published, Variant};

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Asked {
    Subscribe {
        conn: ConnId,
        topic: u32,
        variant: Variant,
        /// Who it is, if the channel was told.
        client: Option<Arc<str>>,
    },
    /// What is published, or a question.
    Command { conn: ConnId, number: u32 },
    /// The same, of a program.
    Program { number: u64 },
}

impl Local {
    /// Publishes. With a connection and its number for it [`Event::Published`] follows, or [`Event::Told`] with [`Told::Full`].
    pub fn publish(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: Published,
        asks: Option<(ConnId, u32)>,
    ) {
        let ask = asks.map(|(conn, number)| self.ask(Asked::Command { conn, number }));
        let message = ToHome::Publish {
            channel: Arc::clone(channel),
            rules,
            published: Arc::new(published),
            manner: None,
            origin: Origin::PROGRAM,
            ask,
        };
        self.send(channel, message);
    }

    /// Publishes for a source, in the order of its other publications.
    pub fn publish_from(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: Arc<Published>,
        origin: Origin,
    ) {
        let message = ToHome::Publish {
            channel: Arc::clone(channel),
            rules,
            published,
            manner: None,
            origin,
            ask: None,
        };
        self.send(channel, message);
    }

    /// Publishes for a program. With a number [`Local::poll_answer`] brings that and the answer: how many are asked for is the
    /// caller's to bound.
    pub fn publish_for(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        published: &Arc<Published>,
        manner: Option<Box<Manner>>,
        number: Option<u64>,
    ) {
        let ask = number.map(|number| self.ask(Asked::Program { number }));
        let message = ToHome::Publish {
            channel: Arc::clone(channel),
            rules,
            published: Arc::clone(published),
            manner,
            origin: Origin::PROGRAM,
            ask,
        };
        self.send(channel, message);
    }

    /// Asks something about a channel. [`Event::Told`] follows.
    pub fn question(
        &mut self,
        channel: &Arc<str>,
        rules: Rules,
        question: Question,
        (conn, number): (ConnId, u32),
    ) {
        let ask = self.ask(Asked::Command { conn, number });
        self.send_question(channel, rules, question, ask);
    }

    /// The same for a program: [`Local::poll_answer`] brings its number and the answer.
    pub fn question_for(&mut self, channel: &Arc<str>, rules: Rules, question: Question, number: u64) {
        let ask = self.ask(Asked::Program { number });
        self.send_question(channel, rules, question, ask);
    }

    /// What a program is to be told next, with the number that it gave its question.
    pub fn poll_answer(&mut self) -> Option<(u64, Answer)> {
        self.answers.pop_front()
    }

    fn send_question(&mut self, channel: &Arc<str>, rules: Rules, question: Question, ask: Ask) {
        let message = ToHome::Question {
            channel: Arc::clone(channel),
            rules,
            question,
            ask,
        };
        self.send(channel, message);
    }

    pub(super) fn ask(&mut self, asked: Asked) -> Ask {
        let index = self.free_asked.pop().unwrap_or_else(|| {
            self.asked.push(None);
            (self.asked.len() - 1) as u32
        });
        self.asked[index as usize] = Some(asked);
        Ask(u64::from(index))
    }

    pub(super) fn answered(&mut self, ask: Ask) -> Option<Asked> {
        let index = usize::try_from(ask.0).ok()?;
        let asked = self.asked.get_mut(index)?.take()?;
        self.free_asked.push(index as u32);
        Some(asked)
    }

    pub(super) fn published(&mut self, ask: Ask, place: Option<Place>) {
        match self.answered(ask) {
            Some(Asked::Command { conn, number }) if self.conn(conn).is_some() => {
                self.events.push_back(Event::Published { conn, number, place });
            }
            Some(Asked::Program { number }) => self.answers.push_back((number, Answer::Published(place))),
            _ => {}
        }
    }

    pub(super) fn told(&mut self, ask: Ask, told: Box<Told>) {
        match self.answered(ask) {
            Some(Asked::Command { conn, number }) if self.conn(conn).is_some() => {
                self.events.push_back(Event::Told { conn, number, told });
            }
            Some(Asked::Program { number }) => self.answers.push_back((number, Answer::Told(told))),
            _ => {}
        }
    }

    pub(super) fn refused(&mut self, ask: Ask, fault: Fault) {
        match self.answered(ask) {
            Some(Asked::Subscribe { conn: id, topic, .. }) => {
                let channel = Arc::clone(&self.topics[topic as usize].name);
                self.topics[topic as usize].waiting -= 1;
                if self.conn(id).is_some() {
                    self.take_out(id, topic);
                    self.events.push_back(Event::Refused {
                        conn: id,
                        channel,
                        fault,
                    });
                }
                self.free_topic(topic);
            }
            Some(Asked::Command { conn, number }) if self.conn(conn).is_some() => {
                let told = Box::new(Told::Full);
                self.events.push_back(Event::Told { conn, number, told });
            }
            Some(Asked::Program { number }) => {
                let told = Box::new(Told::Full);
                self.answers.push_back((number, Answer::Told(told)));
            }
            _ => {}
        }
    }
}
