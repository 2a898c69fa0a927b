//! The one table of error codes: what a client is told, and whether to ask again.
//!
//! `docs/errors.md` is made from this table; a test fails when it is out of date
//! (`UPDATE_DOCS=1 cargo test -p dropgate-domain` writes it).

use std::fmt;

/// Whether the same request may be sent again, by the client, unchanged and with the same
/// `Idempotency-Key`. Sending a claim again never takes a second unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Retry {
    /// Yes, after the `Retry-After` of the answer.
    After(Wait),
    /// Only when something in it is changed.
    Changed,
    /// No: the answer is final.
    Never,
}

/// How long to wait, before jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// This many seconds.
    Seconds(u16),
    /// Until the sale opens.
    Opening,
}

impl Retry {
    /// Whether the same request may be sent again.
    #[must_use]
    pub fn may(self) -> bool {
        matches!(self, Self::After(_))
    }

    fn for_people(self) -> String {
        match self {
            Self::After(Wait::Seconds(s)) => format!("yes, same key, after about {s} s"),
            Self::After(Wait::Opening) => "yes, same key, when the sale opens".into(),
            Self::Changed => "only with a changed request".into(),
            Self::Never => "no: the answer is final".into(),
        }
    }
}

macro_rules! codes {
    ($($name:ident $text:literal $status:literal $retry:expr; $title:literal $meaning:literal)*) => {
        /// A stable error code.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $meaning] $name,)*
        }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// The code as clients read it.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $text,)* }
            }

            /// The HTTP status of the answer.
            #[must_use]
            pub fn status(self) -> u16 {
                match self { $(Code::$name => $status,)* }
            }

            /// A short text for people, the same each time.
            #[must_use]
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// Whether the same request may be sent again.
            #[must_use]
            pub fn retry(self) -> Retry {
                match self { $(Code::$name => $retry,)* }
            }

            /// What it means and what to do.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => $meaning,)* }
            }
        }
    };
}

use Retry::{After, Changed, Never};
use Wait::{Opening, Seconds};

codes! {
    // The sale's answers.
    SoldOut "sold_out" 409 Never;
        "Sold out"
        "Every unit has an owner. Told without a look at the token: it would change nothing."
    LimitReached "limit_reached" 409 Never;
        "Limit reached"
        "The user has as many units as one user may have; `claims` lists them."
    NotOpen "not_open" 403 After(Opening);
        "Not open yet"
        "The sale has not begun; `opens_at` says when it does, if that is known."
    Closed "closed" 403 Never;
        "Closed"
        "The sale takes no more claims."
    Halted "halted" 503 After(Seconds(2));
        "Halted"
        "The sale is being checked or rebuilt. Nothing that was told is lost; claims wait."
    Busy "busy" 503 After(Seconds(1));
        "Busy"
        "Too many claims are on their way to the log. Nothing was taken for this one."
    Void "void" 503 After(Seconds(1));
        "Try again"
        "The claim was lost on its way and took no unit. The same key claims anew."
    NotReady "not_ready" 503 After(Seconds(1));
        "Not ready"
        "This gateway does not know the sale's present state well enough to answer."
    Unavailable "unavailable" 503 After(Seconds(1));
        "Unavailable"
        "Something that claims need does not answer. The claim may have been taken: the same key finds it."
    Overloaded "overloaded" 503 After(Seconds(2));
        "Overloaded"
        "This gateway has as many connections as it may have."

    // Who asks.
    MissingToken "missing_token" 401 Changed;
        "Token missing"
        "The call needs `Authorization: Bearer` with a user token."
    InvalidToken "invalid_token" 401 Changed;
        "Token not valid"
        "The token is malformed, forged, or meant for another audience, purpose or sale."
    ExpiredToken "expired_token" 401 Changed;
        "Token expired"
        "The token was good and is too old. A new one of the same user claims with the same key."
    AdminKeyRequired "admin_key_required" 401 Changed;
        "Admin key required"
        "The call needs `Authorization: Bearer` with one of the configured admin keys."

    // What is asked.
    NotFound "not_found" 404 Changed;
        "Not found"
        "There is no such resource."
    UnknownSale "unknown_sale" 404 Changed;
        "Unknown sale"
        "There is no sale of that id."
    UnknownClaim "unknown_claim" 404 Changed;
        "Unknown claim"
        "There is no claim of that id, or it is another user's."
    MethodNotAllowed "method_not_allowed" 405 Changed;
        "Method not allowed"
        "The resource does not know the method; `Allow` lists those that it knows."
    MalformedBody "malformed_body" 400 Changed;
        "Body malformed"
        "The body is not a JSON object."
    MalformedRequest "malformed_request" 400 Changed;
        "Request malformed"
        "The request cannot be read."
    BodyTooLarge "body_too_large" 413 Changed;
        "Body too large"
        "The body is larger than the call allows."
    BodyTooSlow "body_too_slow" 408 After(Seconds(1));
        "Body too slow"
        "The body did not arrive in time."
    InvalidFields "invalid_fields" 422 Changed;
        "Fields not valid"
        "Fields, ids or headers are unknown or out of their bounds; `fields` lists each with its path and what was expected."

    // Operators' calls.
    SaleExists "sale_exists" 409 Changed;
        "Sale exists"
        "There is a sale of that id with another definition."
    SaleClosed "sale_closed" 409 Never;
        "Sale closed"
        "A closed sale cannot be opened or recovered."
    SaleNotOpen "sale_not_open" 409 Changed;
        "Sale not open"
        "The call needs a sale that has been opened."
    SaleUnreadable "sale_unreadable" 409 Never;
        "Sale not readable"
        "The sale's log cannot be followed any further: no recovery helps."
    OperatorCredentialsMissing "operator_credentials_missing" 503 Changed;
        "Operator credentials missing"
        "Opening and recovering need Redis credentials that this gateway was not given: ask one that has them."

    Internal "internal" 500 After(Seconds(2));
        "Internal error"
        "A fault of the service, logged under the answer's `request_id`."
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The table as Markdown, for the documentation.
#[must_use]
pub fn markdown() -> String {
    let mut text = String::from(
        "# Error codes\n\n\
         Made from `crates/domain/src/code.rs`; change it there.\n\n\
         Errors are `application/problem+json` (RFC 9457) with these members besides: `code` from\n\
         this table, `request_id` (also in the header `X-Request-Id`), and `retry`: `may` (whether\n\
         the same request may be sent again), `same_key` (whether with the same `Idempotency-Key`)\n\
         and `after_seconds` (as in `Retry-After`; null when it is not known).\n\n\
         A claim that got no answer at all (a time-out, a lost connection) may always be sent again\n\
         with the same key: it never takes a second unit.\n\n\
         | code | status | may I ask again? | what it means |\n\
         |---|---|---|---|\n",
    );
    for code in Code::ALL {
        text.push_str(&format!(
            "| <a id=\"{code}\"></a>`{code}` | {} | {} | {} |\n",
            code.status(),
            code.retry().for_people(),
            code.meaning(),
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_documentation_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs")).unwrap();
            std::fs::write(path, markdown()).unwrap();
        }
        let written = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            written == markdown(),
            "docs/errors.md is not what the table says: UPDATE_DOCS=1 cargo test -p dropgate-domain"
        );
    }

    #[test]
    fn codes_are_distinct_and_in_snake_case() {
        let texts: BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
        for text in texts {
            assert!(
                text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_told_to_ask_again_is_told_when() {
        for code in Code::ALL {
            match code.status() {
                // A server's fault is worth another try, unless only an operator can mend it.
                500.. if *code != Code::OperatorCredentialsMissing => {
                    assert!(code.retry().may(), "{code}");
                }
                400..500 => {}
                status => assert_eq!(status, 503, "{code}"),
            }
            if let Retry::After(Wait::Seconds(s)) = code.retry() {
                assert!((1..=60).contains(&s), "{code}");
            }
        }
    }
}
