//! The table of an outbox in PostgreSQL.

/// The statements that create an outbox table, its table of dead letters, and the trigger that notifies sources of new rows. Running
/// them again changes nothing.
pub const OUTBOX_SQL: &str = include_str!("../../../docs/outbox.sql");

/// Returns [`OUTBOX_SQL`], for a command line to print.
#[must_use]
pub fn outbox_sql() -> &'static str {
    OUTBOX_SQL
}
