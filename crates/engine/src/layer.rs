//! What may lie between a connection's bytes on the wire and those that its owner reads and writes: encryption.
//!
//! Owns the seam alone; [`crate::Conn::secure`] puts a layer in place, `worker/layered.rs` moves the bytes through it.
//! Knows no protocol: TLS is one implementor, the tests have another.

use std::any::Any;
use std::ops::Range;

/// Turns received bytes into the owner's and the owner's into those that are sent. Sans-IO: it reads no socket and no clock.
///
/// A panic of [`Layer::receive`] ends its connection, as [`LayerEvent::Failed`] does, and nothing else.
///
/// Bytes that it wants sent are appended to `wire`, also by calls that fail: an alert says why.
pub trait Layer: Any {
    /// Looks at received bytes from the front; what it decrypts, it decrypts in place.
    ///
    /// Called again with the rest as long as it consumes or reports something; with [`LayerEvent::NeedMore`] the rest is kept
    /// and shown again, with what comes behind it.
    fn receive(&mut self, bytes: &mut [u8], wire: &mut Vec<u8>) -> LayerStep;

    /// Encrypts what the owner has written. Called only once [`LayerEvent::Established`] was reported.
    ///
    /// # Errors
    /// [`LayerFault`]: nothing more can be sent.
    fn send(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), LayerFault>;

    /// Says what has to be said first, as a client does. Called once, when the layer is put in place.
    fn begin(&mut self, wire: &mut Vec<u8>);

    /// Announces that nothing more will be sent. Called at most once.
    fn end(&mut self, wire: &mut Vec<u8>);

    /// Whether the next [`Layer::receive`] may do work that costs as much as some hundred ordinary calls, as the public-key
    /// operations of a handshake: the engine does [`crate::limits::HANDSHAKE_STEPS_PER_TURN`] of these in a turn.
    fn is_costly(&self) -> bool;
}

/// What became of received bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerStep {
    /// So many from the front are done with.
    pub consumed: usize,
    /// What came of them.
    pub event: LayerEvent,
}

/// See [`Layer::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LayerEvent {
    /// Nothing for the owner; the call may be repeated while bytes are consumed.
    Nothing,
    /// What is left is a part of something: more has to come.
    NeedMore,
    /// What the owner is to read: these bytes of the input, which lie within those consumed.
    Plain(Range<usize>),
    /// The owner's bytes may be sent from now on. Reported once.
    Established,
    /// The peer has announced that it will send nothing more.
    End,
    /// The peer broke a rule, or cannot be trusted: the connection ends with [`crate::Reason::Layer`] when `wire` is sent.
    Failed,
    /// The peer does not speak the layer's protocol, and `wire` has a response in its own: the connection ends behind it, and bytes
    /// that still arrive are dropped until the peer has ended too or the flush timeout has passed, so that no reset costs the
    /// peer the response.
    Refused,
}

/// The layer can encrypt nothing more: its keys are used up, or it had failed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the layer can send nothing more")]
pub struct LayerFault;
