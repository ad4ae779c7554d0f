//! One io_uring instance: filling the submission queue, entering the kernel, taking completions.
//!
//! Owns the ring and the rules of entering it (DEFER_TASKRUN, SQPOLL, short submits, overflow).
//! Knows nothing of what the operations mean.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use io_uring::{IoUring, cqueue, opcode, squeue};

use super::user_data::{self, Kind};

const ENTER_GETEVENTS: u32 = 1;
const ENTER_SQ_WAKEUP: u32 = 1 << 1;
const ENTER_SQ_WAIT: u32 = 1 << 2;
const ENTER_EXT_ARG: u32 = 1 << 3;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// `struct io_uring_getevents_arg`
#[repr(C)]
struct WaitArgument {
    sigmask: u64,
    sigmask_size: u32,
    pad: u32,
    timeout: u64,
}

/// `struct io_uring_rsrc_update`
#[repr(C)]
struct ResourceUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}

pub(super) struct Ring {
    ring: IoUring,
    /// Completions taken early by [`Ring::call`].
    stash: VecDeque<cqueue::Entry>,
    registered: Option<u32>,
    sqpoll: bool,
    calls: u32,
    entered: u64,
    /// For tests: every n-th entry submits one operation less than queued; zero is never.
    short_submit_every: u32,
}

impl Ring {
    pub(super) fn new(ring: IoUring, register: bool, short_submit_every: u32) -> Ring {
        let sqpoll = ring.params().is_setup_sqpoll();
        let registered = if register {
            register_ring(ring.as_raw_fd())
        } else {
            None
        };
        Ring {
            ring,
            stash: VecDeque::new(),
            registered,
            sqpoll,
            calls: 0,
            entered: 0,
            short_submit_every,
        }
    }

    pub(super) fn io_uring(&self) -> &IoUring {
        &self.ring
    }

    pub(super) fn is_registered(&self) -> bool {
        self.registered.is_some()
    }

    /// Whether the kernel has taken over all that was queued.
    pub(super) fn submission_is_empty(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// Completions that the kernel could not keep at all (no memory); never seen in health.
    pub(super) fn lost(&mut self) -> u32 {
        self.ring.completion().overflow()
    }

    /// Queues one operation; submits what is there when the queue is full.
    ///
    /// # Safety
    /// What the entry points to must stay valid as the operation demands.
    pub(super) unsafe fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                return;
            }
            let flags = if self.sqpoll { ENTER_SQ_WAIT } else { 0 };
            if let Err(error) = self.enter(0, flags, None) {
                // EBUSY and EAGAIN: the kernel wants completions reaped or memory back first.
                if !matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) {
                    panic!("io_uring_enter failed for good: {error}");
                }
                self.reap();
            }
        }
    }

    /// Submits everything and waits for one completion or the timeout (`None`: for ever).
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let want = u32::from(self.stash.is_empty() && self.ring.completion().is_empty());
        let want = if timeout == Some(Duration::ZERO) { 0 } else { want };
        if self.sqpoll && want == 0 && !self.needs_entry() {
            return Ok(());
        }
        match self.enter(want, ENTER_GETEVENTS, timeout.filter(|_| want > 0)) {
            // A short submit returns at once: what is left goes now, so that it is not late by a turn.
            Ok(()) if !self.sqpoll && !self.ring.submission().is_empty() => self.submit_rest(),
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // EBUSY: completions overflowed and must be taken first. EAGAIN: no memory for a request;
                // what was not submitted stays queued for the next turn.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Submits everything and does not wait. What the kernel cannot take now goes with the next wait.
    pub(super) fn submit(&mut self) {
        if self.ring.submission().is_empty() || (self.sqpoll && !self.needs_entry()) {
            return;
        }
        // EBUSY, EAGAIN and EINTR leave the queue as it is; anything else the next wait reports.
        if self.enter(0, 0, None).is_ok() && !self.sqpoll && !self.ring.submission().is_empty() {
            // A short submit: once more, so that the rest is not late by a turn.
            let _ = self.enter(0, 0, None);
        }
    }

    /// A second try; the third is the next wait.
    fn submit_rest(&mut self) -> io::Result<()> {
        match self.enter(0, ENTER_GETEVENTS, None) {
            Err(error)
                if !matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// The next completion.
    pub(super) fn next(&mut self) -> Option<cqueue::Entry> {
        if !self.stash.is_empty() {
            return self.stash.pop_front();
        }
        self.ring.completion().next()
    }

    /// Submits `entry` and waits for its result, keeping other completions for later.
    ///
    /// Only for operations that the kernel finishes without waiting (socket commands, table updates).
    ///
    /// # Safety
    /// What the entry points to must stay valid during this call.
    pub(super) unsafe fn call(&mut self, entry: squeue::Entry) -> io::Result<i32> {
        let name = self.call_name();
        // SAFETY: the caller's promise; `result_of` returns only when the result is there.
        unsafe { self.push(entry.user_data(name)) };
        self.result_of(name)
    }

    /// As [`Ring::call`] for an operation that might wait: it gets one try, then `ECANCELED`.
    ///
    /// # Safety
    /// What the entry points to must stay valid during this call.
    pub(super) unsafe fn call_once(&mut self, entry: squeue::Entry) -> io::Result<i32> {
        let name = self.call_name();
        let cancel = opcode::AsyncCancel::new(name).build();
        // SAFETY: the caller's promise for the first, the second points to no memory.
        unsafe {
            self.push(entry.user_data(name));
            self.push(cancel.user_data(user_data::plain(Kind::Ignored, 0)));
        }
        self.result_of(name)
    }

    fn call_name(&mut self) -> u64 {
        self.calls = self.calls.wrapping_add(1);
        user_data::plain(Kind::Call, self.calls)
    }

    fn result_of(&mut self, name: u64) -> io::Result<i32> {
        loop {
            match self.enter(1, ENTER_GETEVENTS, None) {
                Ok(()) => {}
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)
                    ) => {}
                Err(error) => panic!("io_uring_enter failed for good: {error}"),
            }
            if let Some(result) = self.reap_for(name) {
                return if result < 0 {
                    Err(io::Error::from_raw_os_error(-result))
                } else {
                    Ok(result)
                };
            }
        }
    }

    fn reap_for(&mut self, name: u64) -> Option<i32> {
        let mut found = None;
        for entry in self.ring.completion() {
            if entry.user_data() == name {
                found = Some(entry.result());
            } else {
                self.stash.push_back(entry);
            }
        }
        found
    }

    fn reap(&mut self) {
        self.stash.extend(self.ring.completion());
    }

    /// With SQPOLL: whether the kernel thread sleeps or completions wait outside the queue.
    fn needs_entry(&mut self) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        let queue = self.ring.submission();
        queue.need_wakeup() || queue.cq_overflow() || queue.taskrun()
    }

    fn enter(&mut self, mut want: u32, mut flags: u32, timeout: Option<Duration>) -> io::Result<()> {
        let mut submit = self.ring.submission().len() as u32;
        self.entered += 1;
        if submit > 0
            && self.short_submit_every > 0
            && self.entered.is_multiple_of(u64::from(self.short_submit_every))
        {
            // As the kernel does when it cannot take all: it returns at once.
            submit -= 1;
            want = 0;
        }
        if self.sqpoll {
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            if self.ring.submission().need_wakeup() {
                flags |= ENTER_SQ_WAKEUP;
            }
        }
        let fd = match self.registered {
            Some(index) => {
                flags |= ENTER_REGISTERED_RING;
                index as RawFd
            }
            None => self.ring.as_raw_fd(),
        };
        let span = timeout.map(|t| libc::timespec {
            tv_sec: t.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: t.subsec_nanos().into(),
        });
        let argument = WaitArgument {
            sigmask: 0,
            sigmask_size: 0,
            pad: 0,
            timeout: span.as_ref().map_or(0, |s| std::ptr::from_ref(s) as u64),
        };
        let (pointer, size) = if span.is_some() {
            flags |= ENTER_EXT_ARG;
            (std::ptr::from_ref(&argument), size_of::<WaitArgument>())
        } else {
            (std::ptr::null(), 0)
        };
        // SAFETY: `fd` is this ring's own (raw or registered); the argument, if any, outlives the call.
        let done = unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, want, flags, pointer, size) };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}

impl AsRawFd for Ring {
    fn as_raw_fd(&self) -> RawFd {
        self.ring.as_raw_fd()
    }
}

impl Drop for Ring {
    /// A registration holds the ring open, and one of the thread's 16 places, until the thread ends.
    fn drop(&mut self) {
        let Some(offset) = self.registered else { return };
        let mut update = ResourceUpdate {
            offset,
            reserved: 0,
            data: 0,
        };
        // SAFETY: one update record that outlives the call. From another thread it fails and changes nothing.
        unsafe {
            libc::syscall(
                libc::SYS_io_uring_register,
                self.ring.as_raw_fd(),
                UNREGISTER_RING_FDS,
                std::ptr::from_mut(&mut update),
                1,
            )
        };
    }
}

/// Registers the ring's descriptor with this thread (at most 16 a thread), so that entering skips a look-up.
fn register_ring(fd: RawFd) -> Option<u32> {
    let mut update = ResourceUpdate {
        offset: u32::MAX,
        reserved: 0,
        data: fd as u64,
    };
    // SAFETY: one update record that outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            fd,
            REGISTER_RING_FDS,
            std::ptr::from_mut(&mut update),
            1,
        )
    };
    (done == 1).then_some(update.offset)
}
