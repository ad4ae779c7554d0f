//! What a simulated world is like: its sizes, its delays and how often each fault strikes.
//!
//! Owns the list of faults. Knows nothing of how they are carried out.

use std::time::Duration;

use super::random::Random;

/// Something that the contract allows and that a worker must survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fault {
    /// A receipt holds fewer bytes than have arrived.
    CutRead,
    /// A multishot receive ends together with its bytes (`more` is false).
    ReceiveStops,
    /// `RecvEnd::NoBuffers`, by real shortage or by chance.
    NoBuffers,
    /// A send takes fewer bytes than there is room for.
    ShortSend,
    /// A send waits because the peer does not read. Never by chance: make the buffers small.
    PendingSend,
    /// A send's memory stays in use after its outcome (`held`, as with zero-copy).
    HeldSend,
    /// The network resets a connection.
    Reset,
    /// Bytes that had arrived, but were not yet received, are lost with a reset.
    ResetLosesBytes,
    /// A piece of the stream travels for 50 times the usual delay.
    SlowWire,
    /// Accepting ends with `EMFILE`, by a full table or by chance.
    AcceptProcessLimit,
    /// Accepting ends with `ENFILE`.
    AcceptSystemLimit,
    /// A connection is reset while it waits to be accepted, and never reported.
    AcceptAborted,
    /// A connection attempt ends with `ECONNREFUSED` although somebody listens.
    ConnectRefused,
    /// A connection attempt hangs, then ends with `ETIMEDOUT`.
    ConnectTimeout,
    /// Opening a socket fails with `EMFILE`.
    OpenFails,
    /// A given socket is refused, as by a full queue.
    GiveRefused,
    /// The blocking pool takes no more jobs, by a full queue or by chance.
    PoolFull,
    /// A wait ends with nothing to show.
    SpuriousWait,
    /// A completion becomes visible 50 times the usual delay after its effect.
    LateCompletion,
    /// An operation runs within the call that submits it, as with epoll.
    AtOnce,
    /// A wake takes 50 times the usual delay.
    LateWake,
    /// Several wakes end one wait. Never by chance.
    MergedWakes,
    /// A datagram is lost on its way.
    DatagramLost,
    /// A datagram arrives twice.
    DatagramTwice,
    /// Sending a datagram fails with `ENOBUFS`.
    DatagramRefused,
    /// A multishot receive does not report a reset that came right behind bytes, see `Backend::may_miss_resets`.
    MissedReset,
}

impl Fault {
    /// All of them.
    pub const ALL: [Fault; 26] = [
        Fault::CutRead,
        Fault::ReceiveStops,
        Fault::NoBuffers,
        Fault::ShortSend,
        Fault::PendingSend,
        Fault::HeldSend,
        Fault::Reset,
        Fault::ResetLosesBytes,
        Fault::SlowWire,
        Fault::AcceptProcessLimit,
        Fault::AcceptSystemLimit,
        Fault::AcceptAborted,
        Fault::ConnectRefused,
        Fault::ConnectTimeout,
        Fault::OpenFails,
        Fault::GiveRefused,
        Fault::PoolFull,
        Fault::SpuriousWait,
        Fault::LateCompletion,
        Fault::AtOnce,
        Fault::LateWake,
        Fault::MergedWakes,
        Fault::DatagramLost,
        Fault::DatagramTwice,
        Fault::DatagramRefused,
        Fault::MissedReset,
    ];

    /// How often it strikes in a [`Plan::storm`], of 1,000 occasions.
    fn usual(self) -> u16 {
        match self {
            Fault::CutRead | Fault::ShortSend | Fault::AtOnce => 250,
            Fault::HeldSend | Fault::ReceiveStops => 100,
            Fault::ResetLosesBytes | Fault::MissedReset => 300,
            Fault::ConnectRefused | Fault::ConnectTimeout | Fault::OpenFails => 100,
            Fault::GiveRefused | Fault::PoolFull => 150,
            Fault::LateCompletion | Fault::LateWake | Fault::SlowWire => 50,
            Fault::NoBuffers | Fault::SpuriousWait => 50,
            Fault::AcceptProcessLimit | Fault::AcceptSystemLimit | Fault::AcceptAborted => 30,
            Fault::DatagramLost | Fault::DatagramTwice | Fault::DatagramRefused => 50,
            Fault::Reset => 4,
            Fault::PendingSend | Fault::MergedWakes => 0,
        }
    }
}

/// The sizes of a simulated world and the chance of each fault.
#[derive(Clone, Debug)]
pub struct Plan {
    chance: [u16; Fault::ALL.len()],
    /// Lent buffers of each worker.
    pub buffers: usize,
    /// Size of one lent buffer in bytes. A longer datagram is cut to it.
    pub buffer_bytes: usize,
    /// Bytes that a stream's sending side holds.
    pub send_bytes: usize,
    /// Bytes that a stream's receiving side holds.
    pub receive_bytes: usize,
    /// Sockets that one worker may have open.
    pub sockets: usize,
    /// Connections that wait on one listener; further ones are told to try again.
    pub backlog: usize,
    /// Datagrams that wait on one socket; further ones are lost.
    pub datagrams: usize,
    /// Jobs that wait for the blocking pool.
    pub jobs: usize,
    /// The longest usual delay of anything.
    pub delay: Duration,
    /// Entries of the trace that are kept for printing.
    pub trace: usize,
    /// The network carries all that there is room for at once, instead of pieces as the seed has it: for counts that are to be
    /// the same each time.
    pub whole: bool,
    /// `wait` itself moves the world until it has something to show or its timeout has passed.
    ///
    /// For tests of one worker at a time; without it [`super::World::step`] is the scheduler.
    pub self_driving: bool,
}

impl Plan {
    /// No faults, roomy buffers. Delays and orders still vary with the seed.
    #[must_use]
    pub fn calm() -> Plan {
        Plan {
            chance: [0; Fault::ALL.len()],
            buffers: 64,
            buffer_bytes: 4096,
            send_bytes: 64 * 1024,
            receive_bytes: 64 * 1024,
            sockets: 1 << 16,
            backlog: 1024,
            datagrams: 64,
            jobs: 64,
            delay: Duration::from_micros(100),
            trace: 256,
            whole: false,
            self_driving: false,
        }
    }

    /// Every fault at its usual rate, small buffers.
    #[must_use]
    pub fn storm() -> Plan {
        let mut plan = Plan {
            buffers: 4,
            buffer_bytes: 512,
            send_bytes: 1024,
            receive_bytes: 1024,
            sockets: 64,
            backlog: 8,
            datagrams: 4,
            jobs: 4,
            ..Plan::calm()
        };
        for fault in Fault::ALL {
            plan.chance[fault as usize] = fault.usual();
        }
        plan
    }

    /// A storm in which the seed leaves out about half of the faults and draws the sizes.
    ///
    /// Faults hide each other: a run with all of them rarely gets far into any one.
    #[must_use]
    pub fn mixed(seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x706c_616e);
        let mut plan = Plan::storm();
        for chance in &mut plan.chance {
            if random.coin() {
                *chance = 0;
            }
        }
        plan.buffers = 1 + random.index(16);
        plan.buffer_bytes = 1 << (5 + random.below(8));
        plan.send_bytes = 1 << (6 + random.below(11));
        plan.receive_bytes = 1 << (6 + random.below(11));
        plan
    }

    /// The same plan with one fault's chance set, of 1,000 occasions.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u16) -> Plan {
        self.chance[fault as usize] = per_mille;
        self
    }

    pub(super) fn chance(&self, fault: Fault) -> u16 {
        self.chance[fault as usize]
    }

    pub(super) fn delay_ns(&self) -> u64 {
        u64::try_from(self.delay.as_nanos()).unwrap_or(u64::MAX / 1024)
    }
}
