//! A user of the run, made from their number when they click: a million users
//! cost no memory before they come and none after they are done.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use jsonwebtoken::{EncodingKey, Header};
use serde::Serialize;

use crate::schedule::Click;

/// The `typ` of a user token (one purpose, one type).
const TOKEN_TYPE: &str = "dropgate-user+jwt";

/// What a repeat click sends as its idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RepeatKey {
    /// The first click's key: a retry, a double click.
    Same,
    /// A key of its own: another tab, another device.
    Fresh,
    /// No click sends a key at all.
    None,
}

/// Makes names, keys and tokens of users.
pub struct Users {
    prefix: String,
    audience: String,
    sale: Option<String>,
    expires: u64,
    repeat_key: RepeatKey,
    header: Header,
    secret: EncodingKey,
}

/// How user tokens are signed.
pub struct Signing<'a> {
    /// The shared secret of HS256.
    pub secret: &'a [u8],
    /// The key's id (`kid`).
    pub kid: &'a str,
    /// The audience (`aud`).
    pub audience: &'a str,
    /// The sale that the token is good for; `None` leaves the claim out.
    pub sale: Option<&'a str>,
    /// How long a token is good for, in seconds from now.
    pub valid_s: u64,
}

#[derive(Serialize)]
struct Claims<'a> {
    sub: &'a str,
    exp: u64,
    aud: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sale: Option<&'a str>,
}

impl Users {
    /// Users named `<prefix><number>` whose tokens are signed as told.
    ///
    /// # Errors
    /// When the secret is empty or the clock stands before 1970.
    pub fn new(prefix: &str, repeat_key: RepeatKey, signing: &Signing<'_>) -> anyhow::Result<Self> {
        let mut header = Header::new(jsonwebtoken::Algorithm::HS256);
        header.typ = Some(TOKEN_TYPE.to_owned());
        header.kid = Some(signing.kid.to_owned());
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Self {
            prefix: prefix.to_owned(),
            audience: signing.audience.to_owned(),
            sale: signing.sale.map(str::to_owned),
            expires: now + signing.valid_s,
            repeat_key,
            header,
            secret: EncodingKey::from_secret(signing.secret)
                .context("the token secret cannot be used")?,
        })
    }

    /// The subject of a user.
    #[must_use]
    pub fn name(&self, user: u64) -> String {
        format!("{}{user}", self.prefix)
    }

    /// The idempotency key of a click.
    #[must_use]
    pub fn key(&self, click: &Click) -> Option<String> {
        match (self.repeat_key, click.nth) {
            (RepeatKey::None, _) => None,
            (RepeatKey::Fresh, nth @ 1..) => Some(format!("k{}-{nth}", click.user)),
            (RepeatKey::Same | RepeatKey::Fresh, _) => Some(format!("k{}", click.user)),
        }
    }

    /// A signed token of a user: always the same bytes for the same user, so
    /// that a poll carries the bearer of its claim.
    ///
    /// # Errors
    /// When the signer fails.
    pub fn token(&self, user: u64) -> Result<String, jsonwebtoken::errors::Error> {
        let claims = Claims {
            sub: &self.name(user),
            exp: self.expires,
            aud: &self.audience,
            sale: self.sale.as_deref(),
        };
        jsonwebtoken::encode(&self.header, &claims, &self.secret)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jsonwebtoken::{DecodingKey, Validation};

    use super::*;

    fn users(repeat_key: RepeatKey, sale: Option<&str>) -> Users {
        let signing = Signing {
            secret: b"a secret of at least thirty-two bytes",
            kid: "k1",
            audience: "dropgate",
            sale,
            valid_s: 600,
        };
        Users::new("u-", repeat_key, &signing).unwrap()
    }

    fn click(user: u64, nth: u8) -> Click {
        Click {
            user,
            nth,
            at: Duration::ZERO,
        }
    }

    #[test]
    fn a_token_verifies_and_names_its_user_type_and_key() {
        let token = users(RepeatKey::Same, Some("s1")).token(7).unwrap();
        let mut validation = Validation::new(jsonwebtoken::Algorithm::HS256);
        validation.set_audience(&["dropgate"]);
        let key = DecodingKey::from_secret(b"a secret of at least thirty-two bytes").unwrap();
        let decoded = jsonwebtoken::decode::<serde_json::Value>(&token, &key, &validation).unwrap();
        assert_eq!(decoded.header.typ.as_deref(), Some(TOKEN_TYPE));
        assert_eq!(decoded.header.kid.as_deref(), Some("k1"));
        assert_eq!(decoded.claims["sub"], "u-7");
        assert_eq!(decoded.claims["sale"], "s1");
    }

    #[test]
    fn a_users_token_is_the_same_each_time() {
        let users = users(RepeatKey::Same, None);
        assert_eq!(users.token(3).unwrap(), users.token(3).unwrap());
        assert_ne!(users.token(3).unwrap(), users.token(4).unwrap());
    }

    #[test]
    fn a_repeat_sends_the_key_that_was_asked_for() {
        let same = users(RepeatKey::Same, None);
        assert_eq!(same.key(&click(1, 0)), same.key(&click(1, 1)));
        assert_ne!(same.key(&click(1, 0)), same.key(&click(2, 0)));
        let fresh = users(RepeatKey::Fresh, None);
        assert_ne!(fresh.key(&click(1, 0)), fresh.key(&click(1, 1)));
        assert_eq!(users(RepeatKey::None, None).key(&click(1, 0)), None);
    }

    #[test]
    fn an_empty_secret_is_refused() {
        let signing = Signing {
            secret: b"",
            kid: "k1",
            audience: "dropgate",
            sale: None,
            valid_s: 600,
        };
        assert!(Users::new("u", RepeatKey::Same, &signing).is_err());
    }
}
