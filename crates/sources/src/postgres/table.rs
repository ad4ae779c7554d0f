//! The outbox table: its columns, and the statements for it.

use std::collections::BTreeMap;

use ringmain_gateway::model::RecordFormat;
use tokio_postgres::{Client, Statement};

use super::connect::within;
use crate::failure::Failure;

/// Rows that are counted for the lag at most: beyond that the count is a lower bound.
const LAG_ROWS: u32 = 10_000;

/// Names of columns, with the names of their types.
type Columns = BTreeMap<String, String>;

/// The table with the statements that read and delete its rows.
pub(super) struct Table {
    /// The object identifier: a table that is created again has another one.
    pub(super) oid: u32,
    /// Reads the first rows of partitions: `$1` partitions, `$2` rows of each, `$3` bytes of each.
    pub(super) read: Statement,
    /// Deletes rows that are published: `$1` ids, `$2` versions. Returns the ids of those that were deleted.
    pub(super) delete: Statement,
    /// Counts rows of the partitions `$1`, with the age of the oldest one in seconds.
    pub(super) lag: Statement,
    /// Returns whether rows have a partition below zero, or from `$1` on.
    pub(super) outside: Statement,
    /// Its quoted name with the schema, and its columns.
    table: String,
    columns: Columns,
}

impl Table {
    /// Looks the table up.
    pub(super) async fn find(client: &Client, name: &str, format: RecordFormat) -> Result<Table, Failure> {
        let (oid, table, columns) = columns(client, name).await?;
        let Selected { list, value, size } = select(name, &columns, format)?;
        let age = if columns.contains_key("created_at") {
            "extract(epoch FROM clock_timestamp() - min(created_at))::float8"
        } else {
            "NULL::float8"
        };
        let created = if columns.contains_key("created_at") {
            "created_at"
        } else {
            "1"
        };
        // Sizes are those that are stored: nothing is decompressed before it is known that it is read.
        let read = format!(
            "SELECT p.number, r.id, r.version, r.channel, r.key, r.tags, r.value, r.age \
             FROM unnest($1::int4[]) AS p(number) CROSS JOIN LATERAL ( \
                 SELECT {list}, coalesce({value}, '') AS value FROM ( \
                     SELECT c.*, sum({size}) OVER (ORDER BY c.id) - {size} AS before FROM ( \
                         SELECT t.*, t.xmin::text::int8 AS version FROM {table} t \
                         WHERE t.partition = p.number ORDER BY t.id LIMIT $2::int8) c) b \
                 WHERE b.before < $3::int8) r \
             ORDER BY p.number, r.id"
        );
        let delete = format!(
            "{} DELETE FROM {table} t USING picked WHERE t.id = picked.id RETURNING t.id::int8",
            picked(&table, "$1::int8[], $2::int8[]) AS done(id, version)", "")
        );
        let lag = format!(
            "SELECT count(*), {age} FROM (SELECT {created} FROM {table} WHERE partition = ANY($1::int4[]) LIMIT {LAG_ROWS}) r"
        );
        let outside = format!(
            "SELECT EXISTS (SELECT 1 FROM {table} WHERE partition < 0) \
             OR EXISTS (SELECT 1 FROM {table} WHERE partition >= $1::int4)"
        );
        Ok(Table {
            oid,
            read: within(client.prepare(&read)).await?,
            delete: within(client.prepare(&delete)).await?,
            lag: within(client.prepare(&lag)).await?,
            outside: within(client.prepare(&outside)).await?,
            table,
            columns,
        })
    }

    /// Prepares the statement that moves rows to a table of dead letters: as `delete`, `$3` reasons.
    pub(super) async fn prepare_bury(&self, client: &Client, dead: &str) -> Result<Statement, Failure> {
        let (dead_oid, dead_table, dead_columns) = columns(client, dead).await?;
        if dead_oid == self.oid {
            return Err(Failure::Settings(format!(
                "dead letters in {dead} would be read again: it is the table that the source reads; set `dead_letters` to another one"
            )));
        }
        if !dead_columns.contains_key("reason") {
            return Err(missing(dead, "reason"));
        }
        let statement = bury(&self.table, &self.columns, &dead_table, &dead_columns);
        within(client.prepare(&statement)).await
    }
}

/// Returns the start of a statement that picks rows by their ids and versions. Rows that are locked by others are left for later: waiting
/// for them would hold up all partitions.
fn picked(table: &str, parameters: &str, more: &str) -> String {
    format!(
        "WITH picked AS (SELECT t.id{more} FROM {table} t JOIN unnest({parameters} \
         ON t.id = done.id AND t.xmin::text::int8 = done.version FOR UPDATE OF t SKIP LOCKED)"
    )
}

/// Returns the statement that moves rows to a table of dead letters, with the columns that both tables have.
fn bury(table: &str, columns: &Columns, dead_table: &str, dead_columns: &Columns) -> String {
    let copied: Vec<String> = columns
        .keys()
        .filter(|column| *column != "reason" && dead_columns.contains_key(*column))
        .map(|column| quoted(column))
        .collect();
    let (list, returned) = (copied.join(", "), copied.join(", t."));
    let picked = picked(
        table,
        "$1::int8[], $2::int8[], $3::text[]) AS done(id, version, reason)",
        ", done.reason",
    );
    format!(
        "{picked}, moved AS (DELETE FROM {table} t USING picked WHERE t.id = picked.id \
         RETURNING t.{returned}, t.id::int8 AS moved_id, picked.reason AS dead_reason), \
         buried AS (INSERT INTO {dead_table} ({list}, reason) SELECT {list}, dead_reason FROM moved) \
         SELECT moved_id FROM moved"
    )
}

/// The expressions that read a row.
struct Selected {
    list: String,
    value: String,
    size: &'static str,
}

/// Returns the expressions for a table of ours, or for one with the columns of Centrifugo's outbox.
fn select(name: &str, columns: &Columns, format: RecordFormat) -> Result<Selected, Failure> {
    for column in ["id", "partition"] {
        if !columns.contains_key(column) {
            return Err(missing(name, column));
        }
    }
    let text = |column: &str| {
        if columns.contains_key(column) {
            format!("b.{column}::text AS {column}")
        } else {
            format!("NULL::text AS {column}")
        }
    };
    let age = if columns.contains_key("created_at") {
        "extract(epoch FROM clock_timestamp() - b.created_at)::float8 AS age"
    } else {
        "NULL::float8 AS age"
    };
    let list = format!(
        "b.id::int8 AS id, b.version, {}, {}, {}, {age}",
        text("channel"),
        text("key"),
        text("tags")
    );
    let is_bytes = |column: &str| columns.get(column).is_some_and(|kind| kind == "bytea");
    if columns.contains_key("data") {
        let value = if is_bytes("data") {
            "b.data"
        } else {
            "convert_to(b.data::text, 'UTF8')"
        };
        return Ok(Selected {
            list,
            value: value.to_owned(),
            size: "coalesce(pg_column_size(c.data), 0)",
        });
    }
    if !columns.contains_key("method") || !columns.contains_key("payload") {
        return Err(missing(name, "data"));
    }
    if format != RecordFormat::Commands {
        return Err(Failure::Settings(format!(
            "table {name} has the columns `method` and `payload`: set `format: commands`, or add a column `data`"
        )));
    }
    if is_bytes("payload") {
        return Err(Failure::Settings(format!(
            "column `payload` of table {name} has the type bytea: expected jsonb, json or text"
        )));
    }
    Ok(Selected {
        list,
        value: "convert_to('{\"method\":' || to_json(b.method::text)::text || ',\"payload\":' || b.payload::text || '}', 'UTF8')"
            .to_owned(),
        size: "coalesce(pg_column_size(c.payload), 0)",
    })
}

/// Returns the table's object identifier, its quoted name with the schema, and its columns.
async fn columns(client: &Client, name: &str) -> Result<(u32, String, Columns), Failure> {
    let query = "SELECT c.oid, format('%I.%I', n.nspname, c.relname), a.attname::text, t.typname::text \
                 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
                 JOIN pg_type t ON t.oid = a.atttypid WHERE c.oid = to_regclass($1::text)::oid";
    let rows = within(client.query(query, &[&name])).await?;
    let Some(first) = rows.first() else {
        return Err(Failure::Settings(format!(
            "there is no table {name} in the database, or in the search path of the user: create it with the statements of \
             docs/outbox.sql, or set `table` with its schema"
        )));
    };
    let (oid, table) = (first.try_get(0)?, first.try_get(1)?);
    let mut columns = Columns::new();
    for row in &rows {
        columns.insert(row.try_get(2)?, row.try_get(3)?);
    }
    Ok((oid, table, columns))
}

fn missing(table: &str, column: &str) -> Failure {
    Failure::Settings(format!(
        "table {table} has no column `{column}`: see docs/outbox.sql for the columns of an outbox"
    ))
}

/// Quotes an identifier.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use ringmain_gateway::model::RecordFormat;

    use super::{Columns, quoted, select};

    fn columns(names: &[(&str, &str)]) -> Columns {
        let names = names.iter();
        names
            .map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()))
            .collect()
    }

    #[test]
    fn identifiers_are_quoted() {
        assert_eq!(quoted("a\"b"), "\"a\"\"b\"");
    }

    #[test]
    fn tables_of_centrifugo_have_commands() {
        let table = [
            ("id", "int8"),
            ("method", "text"),
            ("payload", "jsonb"),
            ("partition", "int8"),
        ];
        let found = select("t", &columns(&table), RecordFormat::Commands).map_err(|error| error.to_string());
        assert!(found.expect("a layout").value.contains("b.payload"));
        let refused = select("t", &columns(&table), RecordFormat::Data).err();
        assert!(
            refused
                .expect("a failure")
                .to_string()
                .contains("format: commands")
        );
    }

    #[test]
    fn missing_columns_are_named() {
        let table = [("id", "int8"), ("partition", "int4")];
        let refused = select("t", &columns(&table), RecordFormat::Data).err();
        assert!(refused.expect("a failure").to_string().contains("`data`"));
        let refused = select("t", &columns(&[("data", "json")]), RecordFormat::Data).err();
        assert!(refused.expect("a failure").to_string().contains("`id`"));
    }
}
