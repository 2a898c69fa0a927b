//! Who asks: user tokens, and the keys of operators.
//!
//! A user token is a JWT signed with HS256 by the shop, `typ: dropgate-user+jwt`, with `kid` in
//! its header and `sub`, `exp`, `aud` (and optionally `sale`, `nbf`) in its claims. The `typ`
//! keeps a token of another purpose from being taken for one; the algorithm is fixed by us and
//! never taken from the token.

use dropgate_domain::{SaleId, UserId};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use subtle::{Choice, ConstantTimeEq};

/// The `typ` of a user token.
pub const USER_TOKEN_TYPE: &str = "dropgate-user+jwt";

/// The longest token that is looked at, in bytes.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// Why a token was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// There is none.
    #[error("no bearer token")]
    Missing,
    /// It is not one of ours; the text says what is wrong with it, for the log and the client.
    #[error("{0}")]
    Invalid(&'static str),
    /// It was ours, and its time is over.
    #[error("exp is past")]
    Expired,
}

/// Verifies user tokens. The one place where the kind of identity provider matters: keys from a
/// JWKS become a second variant.
#[derive(Debug)]
pub enum TokenVerifier {
    /// Tokens that the shop signs with a secret shared with us.
    Hmac(HmacVerifier),
}

impl TokenVerifier {
    /// The user that the token speaks for, at the sale.
    ///
    /// # Errors
    /// A token that is not good for that.
    pub fn verify(&self, token: &str, sale: &SaleId) -> Result<UserId, TokenError> {
        match self {
            Self::Hmac(verifier) => verifier.verify(token, sale),
        }
    }
}

/// A secret by its name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenKey {
    /// The name, as in the token's header.
    pub kid: String,
    /// The secret: its text is the key, at least 32 bytes.
    pub secret: SecretString,
}

/// Verifies tokens signed with HS256.
pub struct HmacVerifier {
    keys: HashMap<String, DecodingKey>,
    validation: Validation,
}

impl std::fmt::Debug for HmacVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HmacVerifier")
            .field("kids", &self.keys.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    sale: Option<String>,
}

impl HmacVerifier {
    /// A verifier of tokens for `audience`, by any of `keys`. `leeway` is the difference of
    /// clocks that is forgiven.
    ///
    /// # Errors
    /// The name of a key that cannot be used.
    pub fn new(keys: &[TokenKey], audience: &str, leeway: Duration) -> Result<Self, String> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.leeway = leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_audience(&[audience]);
        validation.set_required_spec_claims(&["exp", "aud", "sub"]);
        let key = |key: &TokenKey| {
            let secret = key.secret.expose_secret().as_bytes();
            let decoding = DecodingKey::from_secret(secret).map_err(|_| key.kid.clone())?;
            Ok((key.kid.clone(), decoding))
        };
        Ok(Self {
            keys: keys.iter().map(key).collect::<Result<_, String>>()?,
            validation,
        })
    }

    fn verify(&self, token: &str, sale: &SaleId) -> Result<UserId, TokenError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(TokenError::Invalid("longer than a token may be"));
        }
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| TokenError::Invalid("not a JWT with an algorithm that is known here"))?;
        // RFC 9068 style: "application/" may be left out, and case does not matter.
        let typ = header.typ.as_deref().unwrap_or("");
        let typ = typ.strip_prefix("application/").unwrap_or(typ);
        if !typ.eq_ignore_ascii_case(USER_TOKEN_TYPE) {
            return Err(TokenError::Invalid("typ is not dropgate-user+jwt"));
        }
        let kid = header
            .kid
            .as_deref()
            .ok_or(TokenError::Invalid("kid is missing"))?;
        let key = self
            .keys
            .get(kid)
            .ok_or(TokenError::Invalid("kid is not known"))?;
        let claims: Claims = jsonwebtoken::decode(token, key, &self.validation)
            .map_err(|error| token_error(error.kind()))?
            .claims;
        if claims.sale.is_some_and(|named| named != sale.as_str()) {
            return Err(TokenError::Invalid("sale is another one"));
        }
        UserId::new(&claims.sub).map_err(|_| {
            TokenError::Invalid(
                "sub is not 1 to 255 bytes without control characters or outer white space",
            )
        })
    }
}

fn token_error(kind: &ErrorKind) -> TokenError {
    TokenError::Invalid(match kind {
        ErrorKind::ExpiredSignature => return TokenError::Expired,
        ErrorKind::InvalidSignature => "the signature is not that of the key",
        ErrorKind::InvalidAlgorithm => "alg is not HS256",
        ErrorKind::InvalidAudience => "aud is another one",
        ErrorKind::ImmatureSignature => "nbf is still to come",
        ErrorKind::MissingRequiredClaim(_) => "exp, aud or sub is missing",
        ErrorKind::InvalidClaimFormat(_) | ErrorKind::Json(_) => "a claim has the wrong type",
        _ => "not a JWT",
    })
}

/// The user that a token names, whether or not it speaks for them. Only to find out whether it
/// is worth verifying.
#[must_use]
pub fn unverified_subject(token: &str) -> Option<UserId> {
    if token.len() > TOKEN_BYTES_MAX {
        return None;
    }
    let claims: Claims = jsonwebtoken::dangerous::insecure_decode_claims(token).ok()?;
    UserId::new(&claims.sub).ok()
}

/// Signs a user token, for trying things out and for tests. Shops have a signer of their own.
///
/// # Errors
/// A key that cannot sign.
pub fn issue(
    key: &TokenKey,
    user: &UserId,
    audience: &str,
    sale: Option<&SaleId>,
    lifetime: Duration,
) -> Result<String, jsonwebtoken::errors::Error> {
    #[derive(Serialize)]
    struct Issued<'a> {
        sub: &'a str,
        aud: &'a str,
        exp: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        sale: Option<&'a str>,
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let header = Header {
        typ: Some(USER_TOKEN_TYPE.into()),
        kid: Some(key.kid.clone()),
        ..Header::new(Algorithm::HS256)
    };
    let claims = Issued {
        sub: user.as_str(),
        aud: audience,
        exp: (now + lifetime).as_secs(),
        sale: sale.map(SaleId::as_str),
    };
    let secret = EncodingKey::from_secret(key.secret.expose_secret().as_bytes())?;
    jsonwebtoken::encode(&header, &claims, &secret)
}

/// The token of an `Authorization: Bearer` header.
#[must_use]
pub fn bearer(authorization: Option<&str>) -> Option<&str> {
    let (scheme, token) = authorization?.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Whether `given` is one of `keys`. All are compared, in a time that does not tell how much
/// of one was right.
#[must_use]
pub fn is_admin_key(given: &str, keys: &[SecretString]) -> bool {
    let found = keys.iter().fold(Choice::from(0), |found, key| {
        found | key.expose_secret().as_bytes().ct_eq(given.as_bytes())
    });
    found.into()
}

#[cfg(test)]
mod tests;
