//! Column types whose meaning must be the same in every database.

use sea_orm_migration::sea_orm::DbBackend;
use sea_orm_migration::sea_query::{ColumnDef, IntoIden};

/// A text that compares byte for byte: "alice", "Alice" and "alice " are three.
///
/// SQLite compares so by default. Postgres compares by the collation of the database, which
/// decides the order and, if nondeterministic, equality too. (MariaDB would take the three for
/// one: its ids would be `VARBINARY`.)
pub fn bytewise(backend: DbBackend, name: impl IntoIden) -> ColumnDef {
    let mut column = ColumnDef::new(name);
    column.text().not_null();
    if backend == DbBackend::Postgres {
        column.extra(r#"COLLATE "C""#);
    }
    column
}
