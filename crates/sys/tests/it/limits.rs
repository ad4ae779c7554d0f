//! The limit of open files, in a process of its own because it holds for the whole of it.

use crate::common;
use ringmain_sys::limits::{open_files, raise_open_files};
use rustix::process::{Resource, Rlimit, setrlimit};

#[test]
fn the_soft_limit_is_raised_to_the_hard_one() {
    if !common::is_child() {
        return common::run_in_child("limits::the_soft_limit_is_raised_to_the_hard_one");
    }
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: Some(100),
            maximum: Some(200),
        },
    )
    .unwrap();
    assert_eq!(open_files(), (100, 200));
    assert_eq!(raise_open_files().unwrap(), 200);
    assert_eq!(open_files(), (200, 200));
    assert_eq!(raise_open_files().unwrap(), 200);
}
