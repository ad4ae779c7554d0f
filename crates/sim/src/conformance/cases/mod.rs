//! The cases: one function for each rule of `docs/contract.md`, and the list that makes them tests.
//!
//! Owns the list. A case not in it is never run, so the functions are reachable by it alone.

pub mod connect;
pub mod datagram;
pub mod leave;
pub mod listen;
pub mod recv;
pub mod send;
pub mod submit;
pub mod worker;

use ringmain_engine::backend::{Op, RecvEnd, Slot, Socket};

use crate::conformance::{Driver, Harness};

/// One connection between worker 0 and the far side, and its listener.
struct Pair<H: Harness> {
    driver: Driver<H>,
    slot: Slot,
    socket: Socket,
    peer: H::Peer,
    listener: (Slot, Socket),
}

impl<H: Harness> Pair<H> {
    fn new(harness: H) -> Pair<H> {
        let mut driver = Driver::new(harness);
        let (listener, at) = driver.harness.listen(0);
        let listener_slot = driver.slot();
        driver.accept(0, listener_slot, listener);
        let peer = driver.harness.dial(&at);
        let socket = driver.accepted(0, listener_slot);
        let slot = driver.slot();
        Pair {
            driver,
            slot,
            socket,
            peer,
            listener: (listener_slot, listener),
        }
    }

    fn recv(&mut self) {
        self.driver.recv(0, self.slot, self.socket);
    }

    /// Closes everything and checks that nothing is left. The receive must not be in flight.
    fn finish(mut self) {
        self.driver.closed(0, self.slot, self.socket);
        let (slot, listener) = self.listener;
        close_listener(&mut self.driver, slot, listener);
        self.driver.finish();
    }

    /// As [`Pair::finish`], with a receive in flight and the far side still open.
    fn finish_receiving(mut self) {
        self.driver.cancel(0, Op::Recv, self.slot);
        let end = self.driver.recv_ended(0, self.slot);
        assert!(matches!(end, RecvEnd::Cancelled), "{end:?}");
        self.finish();
    }
}

/// Cancels the accept of worker 0 and closes the listener.
fn close_listener<H: Harness>(driver: &mut Driver<H>, slot: Slot, listener: Socket) {
    driver.cancel(0, Op::Accept, slot);
    let error = listen::accept_ended(driver, slot);
    assert!(error.is_none(), "{error:?}");
    driver.closed(0, slot, listener);
}

/// Bytes whose every position can be told from its neighbours.
fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32)
        .map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8)
        .collect()
}

/// See [`crate::conformance!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($module:ident, $make:expr) => {
        $crate::conformance_cases! { @each $module, $make,
            listen::{every_connection_is_accepted_once, accepting_ends_by_cancel_and_can_start_again,
                shutdown_of_a_listener_ends_accepting, a_cancelled_listener_can_be_emptied,
                accept_now_empties_the_queue, accept_now_after_a_cancelled_accept}
            recv::{bytes_come_whole_and_in_order, bytes_there_before_the_receive_are_found,
                poll_first_finds_bytes_that_are_already_there, end_of_file_follows_the_last_byte,
                end_of_file_without_bytes, bytes_and_fin_waiting_before_the_receive,
                reset_ends_receiving, cancel_ends_receiving_and_loses_no_byte,
                cancel_of_nothing_does_nothing, cancel_of_a_former_life_does_nothing,
                a_flood_on_one_socket_does_not_starve_another}
            send::{pieces_arrive_in_order, stalled_send_waits_and_goes_on,
                cancel_of_a_stalled_send_counts_every_byte, send_and_receive_at_once,
                send_to_a_reset_connection_fails, half_close_keeps_the_other_direction,
                shutdown_both_ends_receive_and_stalled_send, nothing_is_sent_after_half_close}
            leave::{close_shows_end_of_file, close_with_reset_option_resets, slots_live_many_lives,
                given_connection_moves_to_the_other_worker, give_to_a_missing_worker_fails,
                give_to_oneself}
            connect::{connects_and_carries_both_ways, refused_connection_fails,
                cancel_ends_connecting, shutdown_both_ends_connecting, failed_connect_leaves_a_socket_to_close}
            datagram::{datagrams_keep_bounds_and_sender, cancel_ends_receiving_datagrams,
                many_datagrams_in_flight, a_datagram_socket_with_a_peer_hears_nobody_else,
                an_icmp_error_ends_receiving, a_wildcard_socket_replies_from_the_address_of_its_client,
                segments_are_datagrams_of_their_own, joined_datagrams_keep_their_bounds}
            submit::{what_is_submitted_leaves_before_the_next_wait, submit_does_not_move_the_clocks,
                submit_between_completions_keeps_each_of_them,
                a_stalled_send_keeps_its_pieces_while_others_are_submitted}
            worker::{time_waits_at_least_as_long_as_asked, exact_timeouts_are_exact,
                zero_timeout_does_not_wait,
                clocks_and_randomness_move, waker_ends_a_wait, wake_before_the_wait_is_kept,
                many_wakes_are_one, peer_wakes_peer, blocking_job_runs_and_wakes,
                addresses_are_reported, options_are_taken}
        }
    };
    (@each $module:ident, $make:expr, $($group:ident::{$($case:ident),+ $(,)?})+) => {
        mod $module {
            $(mod $group {
                #[allow(unused_imports)]
                use super::super::*;
                $(#[test]
                fn $case() {
                    $crate::conformance::cases::$group::$case($make);
                })+
            })+
        }
    };
}
