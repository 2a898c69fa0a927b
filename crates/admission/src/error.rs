//! What can go wrong with a call, by what the caller does next.

use fred::error::{Error, ErrorKind};

/// Why a call has no answer of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Another generation of the sale is current. Nothing was changed; read the log on.
    #[error("another generation is current in redis")]
    Stale,
    /// The sale's keys are not there, or not whole: Redis lost them. Nothing was changed.
    #[error("the sale's keys are missing in redis")]
    Missing,
    /// The caller has applied more than Redis knows of: Redis lost writes. Nothing was changed.
    #[error("redis is behind the log")]
    Behind,
    /// The call came after its deadline. Nothing was changed.
    #[error("the call reached redis after its deadline")]
    Late,
    /// Redis does not know the generation's scripts: it was restarted, promoted or flushed.
    /// Nothing was changed.
    #[error("redis does not hold the generation's scripts")]
    NoScript,
    /// Redis takes no writes now, with its reason. Nothing was changed.
    #[error("redis takes no writes: {0}")]
    NotWritable(String),
    /// No answer.
    #[error("no answer from redis: {0}")]
    Unavailable(Outage),
    /// Redis refuses the user or what the user asked for, with its reason: wrong credentials or
    /// too few rights. Somebody has to change the configuration.
    #[error("redis refuses the user: {0}")]
    Denied(String),
    /// An answer that this release does not understand.
    #[error("unexpected answer from redis: {0}")]
    Protocol(String),
}

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Outage {
    /// There is no connection; the call was not sent.
    #[error("not connected")]
    NotConnected,
    /// Too many calls wait for their reply; the call was not sent.
    #[error("too many calls in flight")]
    TooMany,
    /// No reply in time. The call may have run, and may still run until its deadline.
    #[error("no reply in time")]
    TimedOut,
    /// The connection broke before the reply came. The call may have run.
    #[error("the connection broke")]
    Broken,
}

impl CallError {
    /// Whether the call may have changed something, or may still do so until its deadline.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        match self {
            Self::Unavailable(outage) => matches!(outage, Outage::TimedOut | Outage::Broken),
            // An answer that cannot be read may be that of a call that ran.
            Self::Protocol(_) => true,
            Self::Stale
            | Self::Missing
            | Self::Behind
            | Self::Late
            | Self::NoScript
            | Self::NotWritable(_)
            | Self::Denied(_) => false,
        }
    }
}

/// Why there is no client. That Redis cannot be reached is not among them: a client connects in
/// the background, and its calls fail meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The configuration cannot be; the value is not repeated, it may hold a password.
    #[error("redis configuration: {0}")]
    Invalid(String),
    /// Redis answers and refuses the user, with its reason.
    #[error("redis refuses the user: {0}")]
    Denied(String),
    /// The certificate of Redis cannot be verified, or Redis does not accept ours.
    #[error("no TLS connection to redis: {0}")]
    Untrusted(String),
}

impl ConnectError {
    /// What somebody has to change the configuration for, if this is such an error.
    pub(crate) fn refusal(error: &Error) -> Option<Self> {
        let text: String = error.details().chars().take(TEXT_CHARS_MAX).collect();
        if let CallError::Denied(text) = classify(error) {
            return Some(Self::Denied(text));
        }
        // rustls' errors arrive as the inside of an I/O error, by their names.
        let of_tls = ["InvalidCertificate(", "AlertReceived("];
        let untrusted = *error.kind() == ErrorKind::Tls || of_tls.iter().any(|w| text.contains(w));
        untrusted.then_some(Self::Untrusted(text))
    }
}

/// Where a command would run that did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Redirect {
    /// `host:port`.
    pub(crate) address: String,
    text: String,
}

impl Redirect {
    /// The error of who does not go there.
    pub(crate) fn refused(self) -> CallError {
        CallError::NotWritable(self.text)
    }
}

/// Reads `MOVED slot host:port`; a host that is not named is the one that was asked.
pub(crate) fn redirect(error: &Error, asked: &str) -> Option<Redirect> {
    let text = error.details();
    let address = text.strip_prefix("MOVED ")?.split(' ').nth(1)?;
    let address = match address.strip_prefix(':') {
        Some(port) => format!("{asked}:{port}"),
        None => address.to_owned(),
    };
    let text = text.chars().take(TEXT_CHARS_MAX).collect();
    Some(Redirect { address, text })
}

/// The longest text of Redis that is kept.
const TEXT_CHARS_MAX: usize = 200;

/// Tells the errors apart. Those of Redis itself arrive from fred as various kinds (NOSCRIPT and
/// NOREPLICAS as `Unknown`), so the prefix decides.
pub(crate) fn classify(error: &Error) -> CallError {
    if *error.kind() == ErrorKind::Timeout {
        return CallError::Unavailable(Outage::TimedOut);
    }
    let text = || error.details().chars().take(TEXT_CHARS_MAX).collect();
    match prefix(error.details()) {
        "NOSCRIPT" => CallError::NoScript,
        "READONLY" | "NOREPLICAS" | "OOM" | "MISCONF" | "LOADING" | "MASTERDOWN" | "BUSY" => {
            CallError::NotWritable(text())
        }
        "NOAUTH" | "NOPERM" | "WRONGPASS" => CallError::Denied(text()),
        // A slot is on the move: what is asked here did not run.
        "MOVED" | "ASK" | "TRYAGAIN" => CallError::NotWritable(text()),
        // fred ends the connection on this and gives the text to every call in flight.
        "CLUSTERDOWN" => CallError::Unavailable(Outage::Broken),
        // No prefix: fred's own words, not those of Redis.
        "" if *error.kind() == ErrorKind::Backpressure => CallError::Unavailable(Outage::TooMany),
        "" if is_unreadable(error.kind()) => CallError::Protocol(text()),
        "" => CallError::Unavailable(Outage::Broken),
        // CROSSSLOT, WRONGTYPE, ERR, and what is not known yet.
        _ => CallError::Protocol(text()),
    }
}

fn is_unreadable(kind: &ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::Parse | ErrorKind::Protocol | ErrorKind::InvalidArgument
    )
}

/// The first word of an error of Redis, which is in capitals; empty for any other text.
fn prefix(text: &str) -> &str {
    let word = text.split(' ').next().unwrap_or("");
    let capitals = word.len() >= 2 && word.bytes().all(|b| b.is_ascii_uppercase());
    if capitals { word } else { "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ErrorKind, text: &'static str) -> CallError {
        classify(&Error::new(kind, text))
    }

    #[test]
    fn errors_of_redis_are_told_apart_by_their_prefix() {
        let unknown = |text| of(ErrorKind::Unknown, text);
        assert_eq!(
            unknown("NOSCRIPT No matching script. Please use EVAL."),
            CallError::NoScript
        );
        for text in [
            "NOREPLICAS Not enough good replicas to write.",
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "LOADING Redis is loading the dataset in memory",
            "ASK 3999 127.0.0.1:6381",
            "TRYAGAIN Multiple keys request during rehashing of slot",
        ] {
            let error = unknown(text);
            assert_eq!(error, CallError::NotWritable(text.to_owned()));
            assert!(!error.may_have_run());
        }
        for text in ["CROSSSLOT Keys in request don't hash", "ERR user_script:3"] {
            assert_eq!(unknown(text), CallError::Protocol(text.to_owned()));
        }
        let text = "WRONGPASS invalid username-password pair or user is disabled.";
        assert_eq!(
            of(ErrorKind::Auth, text),
            CallError::Denied(text.to_owned())
        );
    }

    #[test]
    fn a_redirection_names_where_to_go() {
        let of = |text: &'static str| redirect(&Error::new(ErrorKind::Cluster, text), "h");
        let to = |text| of(text).map(|to| to.address);
        assert_eq!(
            to("MOVED 3999 10.0.0.1:6381").as_deref(),
            Some("10.0.0.1:6381")
        );
        assert_eq!(to("MOVED 3999 :6381").as_deref(), Some("h:6381"));
        for other in [
            "MOVED 3999",
            "ASK 3999 10.0.0.1:6381",
            "ERR MOVED 1 a:1",
            "",
        ] {
            assert_eq!(to(other), None, "{other}");
        }
        let refused = of("MOVED 1 a:1").unwrap().refused();
        assert!(!refused.may_have_run(), "{refused:?}");
    }

    #[test]
    fn tls_and_users_are_refused_for_good_and_nothing_else_is() {
        let of = |kind, text: &'static str| ConnectError::refusal(&Error::new(kind, text));
        let text = "Custom { kind: InvalidData, error: InvalidCertificate(UnknownIssuer) }";
        let untrusted = Some(ConnectError::Untrusted(text.to_owned()));
        assert_eq!(of(ErrorKind::IO, text), untrusted);
        let text = "WRONGPASS invalid username-password pair";
        assert_eq!(
            of(ErrorKind::Auth, text),
            Some(ConnectError::Denied(text.to_owned()))
        );
        assert_eq!(of(ErrorKind::IO, "Connection refused (os error 111)"), None);
        assert_eq!(of(ErrorKind::Timeout, "Request timed out."), None);
    }

    #[test]
    fn what_the_client_itself_says_may_have_run() {
        for (kind, text) in [
            (ErrorKind::IO, "Connection closed."),
            (ErrorKind::Canceled, "Canceled."),
            (ErrorKind::Unknown, "Failed to route command."),
            (ErrorKind::Cluster, "CLUSTERDOWN Hash slot not served"),
        ] {
            let error = of(kind, text);
            assert_eq!(error, CallError::Unavailable(Outage::Broken), "{text}");
            assert!(error.may_have_run());
        }
        assert_eq!(
            of(ErrorKind::Timeout, "Request timed out."),
            CallError::Unavailable(Outage::TimedOut)
        );
    }
}
