//! Errors, by what the caller does next.

use dropgate_domain::SaleId;
use sea_orm::{ConnAcquireErr, DbErr, RuntimeErr, SqlxError, SqlxPostgresError};
use std::fmt;

/// Why a database cannot be used as configured.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting cannot be. Trying again will not help.
    #[error("store.{name} {expected}")]
    Config {
        /// The setting's name.
        name: &'static str,
        /// What it must be.
        expected: String,
    },
    /// The database could not be reached.
    #[error(transparent)]
    Transient(#[from] Transient),
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database could not be asked: the same call may succeed later.
    #[error(transparent)]
    Transient(#[from] Transient),
    /// A row holds what no release wrote: somebody changed it by hand.
    #[error("the database holds a value that cannot be: {0}")]
    Corrupt(String),
    /// The schema could not be brought up to date.
    #[error(transparent)]
    Migrate(#[from] dropgate_migrations::MigrateError),
}

/// Why a transaction was not written. In every case nothing of it was written, except that the
/// commit of a `Transient` one may have been: see there.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The database could not be reached, or did not end in time: try the same again. When only
    /// the commit's answer was lost, the repeat is a [`WriteError::Conflict`], and the stored
    /// position tells that it had been written.
    #[error(transparent)]
    Transient(#[from] Transient),
    /// The stored position is not the one that the write goes out from: another writer was
    /// here, or this one's earlier commit. Read the position and think again.
    #[error("the stored position of sale {sale} has moved")]
    Conflict {
        /// The sale.
        sale: SaleId,
    },
    /// The database will never take these rows as they are.
    #[error("the database refuses a row of sale {sale}: {reason}")]
    Refused {
        /// The sale.
        sale: SaleId,
        /// In the database's words; names no user and no password.
        reason: String,
    },
}

/// What failed, when it may succeed later.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the database did not answer ({kind}): {detail}")]
pub struct Transient {
    /// For metrics and decisions.
    pub kind: TransientKind,
    /// For people; names no password.
    pub detail: String,
}

/// The kinds of transient failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TransientKind {
    /// The connection could not be made, or broke.
    Connection,
    /// No connection of the pool came free in time.
    Pool,
    /// The statement or the call ran out of time.
    Timeout,
    /// A lock was not given in time, or the transaction was the victim of a deadlock or of a
    /// serialization failure.
    Lock,
    /// The server is stopping, starting, or takes no writes.
    Server,
    /// Anything else that is not the rows' fault: a missing table, a missing permission, a full
    /// disk. It needs an operator, and goes on by itself when it is mended.
    Other,
}

impl fmt::Display for TransientKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Pool => "pool",
            Self::Timeout => "timeout",
            Self::Lock => "lock",
            Self::Server => "server",
            Self::Other => "other",
        })
    }
}

impl Transient {
    pub(crate) fn timeout(detail: &'static str) -> Self {
        Self {
            kind: TransientKind::Timeout,
            detail: detail.to_owned(),
        }
    }
}

/// What the driver's error means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Transient(Transient),
    /// A unique or primary key is taken.
    Taken(String),
    /// The rows break another rule of the database.
    Refused(String),
}

impl Class {
    /// For calls that write no rows.
    pub fn into_store_error(self) -> StoreError {
        match self {
            Self::Transient(transient) => StoreError::Transient(transient),
            Self::Taken(reason) | Self::Refused(reason) => StoreError::Corrupt(reason),
        }
    }
}

/// Reads the driver's error by its code, never by its text.
pub(crate) fn classify(error: &DbErr) -> Class {
    let transient = |kind, detail: String| Class::Transient(Transient { kind, detail });
    match error {
        DbErr::ConnectionAcquire(ConnAcquireErr::Timeout) => {
            transient(TransientKind::Pool, "no connection came free".to_owned())
        }
        DbErr::ConnectionAcquire(ConnAcquireErr::ConnectionClosed) => {
            transient(TransientKind::Pool, "the pool is closed".to_owned())
        }
        DbErr::Conn(RuntimeErr::SqlxError(cause))
        | DbErr::Exec(RuntimeErr::SqlxError(cause))
        | DbErr::Query(RuntimeErr::SqlxError(cause)) => classify_driver(cause),
        DbErr::TryIntoErr { .. } | DbErr::Type(_) | DbErr::Json(_) => {
            Class::Refused(error.to_string())
        }
        other => transient(TransientKind::Other, other.to_string()),
    }
}

/// Like [`classify`], for what the driver says itself.
pub(crate) fn classify_driver(error: &SqlxError) -> Class {
    let transient = |kind| {
        Class::Transient(Transient {
            kind,
            detail: error.to_string(),
        })
    };
    match error {
        SqlxError::Database(refusal) => {
            let code = refusal.code().unwrap_or_default();
            let text = format!("{code}: {}", refusal.message());
            if refusal.try_downcast_ref::<SqlxPostgresError>().is_some() {
                postgres(&code, text)
            } else {
                sqlite(code.parse().unwrap_or_default(), text)
            }
        }
        SqlxError::PoolTimedOut | SqlxError::PoolClosed => transient(TransientKind::Pool),
        SqlxError::Io(_)
        | SqlxError::Tls(_)
        | SqlxError::Protocol(_)
        | SqlxError::WorkerCrashed => transient(TransientKind::Connection),
        SqlxError::Encode(_) | SqlxError::Decode(_) | SqlxError::ColumnDecode { .. } => {
            Class::Refused(error.to_string())
        }
        _ => transient(TransientKind::Other),
    }
}

/// By SQLSTATE; see "PostgreSQL Error Codes" in its manual, appendix A.
fn postgres(code: &str, detail: String) -> Class {
    let kind = match code {
        "23505" => return Class::Taken(detail),
        "57014" | "25P03" | "57P05" => TransientKind::Timeout,
        "55P03" | "40001" | "40P01" => TransientKind::Lock,
        "57P01" | "57P02" | "57P03" | "25006" => TransientKind::Server,
        _ => match code.get(..2).unwrap_or_default() {
            // Data exceptions, integrity violations, a value too long for its index.
            "22" | "23" | "54" => return Class::Refused(detail),
            "08" => TransientKind::Connection,
            _ => TransientKind::Other,
        },
    };
    Class::Transient(Transient { kind, detail })
}

/// By extended result code; see <https://www.sqlite.org/rescode.html>.
fn sqlite(code: u32, detail: String) -> Class {
    let kind = match (code, code & 0xff) {
        (1555 | 2067 | 2579, _) => return Class::Taken(detail),
        // Constraint, too big, mismatch.
        (_, 18..=20) => return Class::Refused(detail),
        // Busy, locked.
        (_, 5 | 6) => TransientKind::Lock,
        (_, 9) => TransientKind::Timeout,
        // Read-only, I/O error.
        (_, 8 | 10) => TransientKind::Server,
        // Cannot open.
        (_, 14) => TransientKind::Connection,
        _ => TransientKind::Other,
    };
    Class::Transient(Transient { kind, detail })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(class: Class) -> Option<TransientKind> {
        match class {
            Class::Transient(transient) => Some(transient.kind),
            Class::Taken(_) | Class::Refused(_) => None,
        }
    }

    #[test]
    fn only_what_the_rows_are_to_blame_for_is_refused() {
        for (code, expected) in [
            ("08006", Some(TransientKind::Connection)),
            ("22001", None),
            ("22021", None),
            ("23502", None),
            ("23505", None),
            ("23514", None),
            ("25006", Some(TransientKind::Server)),
            ("28P01", Some(TransientKind::Other)),
            ("40001", Some(TransientKind::Lock)),
            ("40P01", Some(TransientKind::Lock)),
            ("42P01", Some(TransientKind::Other)),
            ("42501", Some(TransientKind::Other)),
            ("53100", Some(TransientKind::Other)),
            ("54000", None),
            ("55P03", Some(TransientKind::Lock)),
            ("57014", Some(TransientKind::Timeout)),
            ("57P01", Some(TransientKind::Server)),
            ("", Some(TransientKind::Other)),
        ] {
            assert_eq!(kind(postgres(code, String::new())), expected, "{code}");
        }
        for (code, expected) in [
            (5, Some(TransientKind::Lock)),
            (517, Some(TransientKind::Lock)),
            (6, Some(TransientKind::Lock)),
            (8, Some(TransientKind::Server)),
            (10, Some(TransientKind::Server)),
            (13, Some(TransientKind::Other)),
            (275, None),
            (1299, None),
            (1555, None),
            (2067, None),
            (1, Some(TransientKind::Other)),
            (0, Some(TransientKind::Other)),
        ] {
            assert_eq!(kind(sqlite(code, String::new())), expected, "{code}");
        }
    }

    #[test]
    fn a_taken_key_is_told_from_other_refusals() {
        assert!(matches!(postgres("23505", String::new()), Class::Taken(_)));
        assert!(matches!(
            postgres("23514", String::new()),
            Class::Refused(_)
        ));
        assert!(matches!(sqlite(1555, String::new()), Class::Taken(_)));
        assert!(matches!(sqlite(275, String::new()), Class::Refused(_)));
    }
}
