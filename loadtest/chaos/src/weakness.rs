//! The mechanisms that a build with the engine's feature `weakened` can switch off. The suite must
//! find what goes wrong without each of them, or it finds nothing.

use clap::ValueEnum;

/// A mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Weakness {
    /// A user is told "won" at the reply of Redis.
    ToldAtReply,
    /// A user is told "won" when the log has acknowledged the event.
    ToldAtAck,
    /// A second record with a number takes the place of the first.
    SecondRecord,
    /// An event need not hang on the one before it.
    NoChain,
    /// A gateway loads the scripts again that Redis forgot.
    ReloadOnNoscript,
}

impl Weakness {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::ToldAtReply,
        Self::ToldAtAck,
        Self::SecondRecord,
        Self::NoChain,
        Self::ReloadOnNoscript,
    ];

    /// Its name in the environment of the services.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ToldAtReply => "told_at_reply",
            Self::ToldAtAck => "told_at_ack",
            Self::SecondRecord => "second_record",
            Self::NoChain => "no_chain",
            Self::ReloadOnNoscript => "reload_on_noscript",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_and_the_environment_call_them_the_same() {
        for weakness in Weakness::ALL {
            assert_eq!(Weakness::from_str(weakness.name(), false), Ok(weakness));
        }
    }
}
