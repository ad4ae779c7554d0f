//! `ringmain bench`.

mod live;
