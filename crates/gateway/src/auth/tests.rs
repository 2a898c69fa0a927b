use super::*;
use serde_json::{Value, json};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const AUDIENCE: &str = "drop-shop";

fn key(kid: &str, secret: &str) -> TokenKey {
    TokenKey {
        kid: kid.into(),
        secret: secret.to_owned().into(),
    }
}

fn verifier() -> TokenVerifier {
    let keys = [
        key("old", "another-secret-of-thirty-two-bytes"),
        key("new", SECRET),
    ];
    TokenVerifier::Hmac(HmacVerifier::new(&keys, AUDIENCE, Duration::from_secs(5)).unwrap())
}

fn sale() -> SaleId {
    SaleId::new("drop-1").unwrap()
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn good_header() -> Header {
    Header {
        typ: Some(USER_TOKEN_TYPE.into()),
        kid: Some("new".into()),
        ..Header::new(Algorithm::HS256)
    }
}

fn good_claims() -> Value {
    json!({"sub": "alice", "aud": AUDIENCE, "exp": now() + 60})
}

fn sign(header: &Header, claims: &Value, secret: &str) -> String {
    let key = EncodingKey::from_secret(secret.as_bytes()).unwrap();
    jsonwebtoken::encode(header, claims, &key).unwrap()
}

fn with(change: impl FnOnce(&mut Value)) -> String {
    let mut claims = good_claims();
    change(&mut claims);
    sign(&good_header(), &claims, SECRET)
}

/// A token of three parts as they are, so that a header can say anything.
fn raw(header: &Value, claims: &Value, signature: &str) -> String {
    fn base64url(bytes: &[u8]) -> String {
        const ALPHABET: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut out = String::new();
        for chunk in bytes.chunks(3) {
            let n =
                chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
            for i in 0..=chunk.len() {
                out.push(char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize]));
            }
        }
        out
    }
    let part = |v: &Value| base64url(v.to_string().as_bytes());
    format!("{}.{}.{signature}", part(header), part(claims))
}

fn refused(token: &str) -> TokenError {
    match verifier().verify(token, &sale()) {
        Err(error) => error,
        Ok(user) => panic!("accepted as {user:?}: {token}"),
    }
}

#[test]
fn a_good_token_names_its_user() {
    let token = sign(&good_header(), &good_claims(), SECRET);
    assert_eq!(
        verifier().verify(&token, &sale()).unwrap().as_str(),
        "alice"
    );
    let token = with(|c| c["sale"] = json!("drop-1"));
    assert!(verifier().verify(&token, &sale()).is_ok());
    let token = with(|c| c["aud"] = json!(["x", AUDIENCE]));
    assert!(verifier().verify(&token, &sale()).is_ok());
}

#[test]
fn keys_rotate_with_overlap() {
    let header = Header {
        kid: Some("old".into()),
        ..good_header()
    };
    let token = sign(
        &header,
        &good_claims(),
        "another-secret-of-thirty-two-bytes",
    );
    assert!(verifier().verify(&token, &sale()).is_ok());
    // The right secret under the wrong name is not tried.
    let token = sign(&header, &good_claims(), SECRET);
    assert_eq!(
        refused(&token),
        TokenError::Invalid("the signature is not that of the key")
    );
}

#[test]
fn what_issue_signs_verifies() {
    let user = UserId::new("bob").unwrap();
    let key = key("new", SECRET);
    let token = issue(&key, &user, AUDIENCE, Some(&sale()), Duration::from_secs(9)).unwrap();
    assert_eq!(verifier().verify(&token, &sale()).unwrap(), user);
    let other = SaleId::new("drop-2").unwrap();
    let error = verifier().verify(&token, &other).unwrap_err();
    assert_eq!(error, TokenError::Invalid("sale is another one"));
}

#[test]
fn algorithms_other_than_hs256_are_refused() {
    for alg in ["none", "None", "HS384", "RS256", "ES256", "EdDSA", ""] {
        let header = json!({"alg": alg, "typ": USER_TOKEN_TYPE, "kid": "new"});
        for signature in ["", "AAAA"] {
            let error = refused(&raw(&header, &good_claims(), signature));
            assert!(matches!(error, TokenError::Invalid(_)), "{alg}: {error:?}");
        }
    }
    let header = Header {
        alg: Algorithm::HS512,
        ..good_header()
    };
    let error = refused(&sign(&header, &good_claims(), SECRET));
    assert_eq!(error, TokenError::Invalid("alg is not HS256"));
}

#[test]
fn tokens_of_another_type_are_refused() {
    for typ in [None, Some("JWT"), Some("dropgate-ticket+jwt")] {
        let header = Header {
            typ: typ.map(str::to_owned),
            ..good_header()
        };
        let error = refused(&sign(&header, &good_claims(), SECRET));
        assert_eq!(error, TokenError::Invalid("typ is not dropgate-user+jwt"));
    }
}

#[test]
fn headers_that_must_be_understood_are_refused() {
    let header =
        json!({"alg": "HS256", "typ": USER_TOKEN_TYPE, "kid": "new", "crit": ["x"], "x": 1});
    assert!(matches!(
        refused(&raw(&header, &good_claims(), "AAAA")),
        TokenError::Invalid(_)
    ));
}

#[test]
fn an_unknown_or_missing_kid_is_refused() {
    for kid in [None, Some("else".to_owned())] {
        let header = Header {
            kid,
            ..good_header()
        };
        assert!(matches!(
            refused(&sign(&header, &good_claims(), SECRET)),
            TokenError::Invalid(text) if text.starts_with("kid")
        ));
    }
}

#[test]
fn a_forged_or_changed_token_is_refused() {
    let forged = sign(
        &good_header(),
        &good_claims(),
        "ffffffffffffffffffffffffffffffff",
    );
    assert_eq!(
        refused(&forged),
        TokenError::Invalid("the signature is not that of the key")
    );
    let good = sign(&good_header(), &good_claims(), SECRET);
    let other = with(|c| c["sub"] = json!("mallory"));
    let (head, rest) = good.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let payload = other.split('.').nth(1).unwrap();
    let mixed = format!("{head}.{payload}.{signature}");
    assert_eq!(
        refused(&mixed),
        TokenError::Invalid("the signature is not that of the key")
    );
}

#[test]
fn time_is_checked_with_the_leeway_that_was_configured() {
    assert_eq!(
        refused(&with(|c| c["exp"] = json!(now() - 30))),
        TokenError::Expired
    );
    assert!(
        verifier()
            .verify(&with(|c| c["exp"] = json!(now() - 2)), &sale())
            .is_ok()
    );
    let early = with(|c| c["nbf"] = json!(now() + 600));
    assert_eq!(refused(&early), TokenError::Invalid("nbf is still to come"));
    // An expired token with a wrong signature is forged before it is expired.
    let mut claims = good_claims();
    claims["exp"] = json!(now() - 30);
    let forged = sign(&good_header(), &claims, "ffffffffffffffffffffffffffffffff");
    assert_eq!(
        refused(&forged),
        TokenError::Invalid("the signature is not that of the key")
    );
}

#[test]
fn claims_are_required_and_typed() {
    for missing in ["exp", "aud", "sub"] {
        let token = with(|c| {
            c.as_object_mut().unwrap().remove(missing);
        });
        assert!(
            matches!(refused(&token), TokenError::Invalid(_)),
            "{missing}"
        );
    }
    let wrong = [
        ("exp", json!("tomorrow")),
        ("exp", json!(-1)),
        ("aud", json!("other-shop")),
        ("aud", json!([])),
        ("sub", json!(7)),
        ("sub", json!("")),
        ("sub", json!(" alice")),
        ("sub", json!("a\u{0}b")),
        ("sub", json!("x".repeat(256))),
        ("sale", json!("drop-2")),
        ("sale", json!(1)),
    ];
    for (name, value) in wrong {
        let token = with(|c| c[name] = value.clone());
        assert!(
            matches!(refused(&token), TokenError::Invalid(_)),
            "{name} = {value}"
        );
    }
}

#[test]
fn what_is_not_a_token_is_refused() {
    for text in ["", ".", "..", "a.b.c", "a.b", "ä.ö.ü", &"x".repeat(5000)] {
        assert!(matches!(refused(text), TokenError::Invalid(_)), "{text}");
        assert_eq!(unverified_subject(text), None);
    }
}

#[test]
fn the_unverified_subject_is_only_what_the_token_says() {
    let forged = sign(
        &good_header(),
        &good_claims(),
        "ffffffffffffffffffffffffffffffff",
    );
    assert_eq!(unverified_subject(&forged).unwrap().as_str(), "alice");
}

#[test]
fn bearer_is_read_as_rfc_6750_has_it() {
    assert_eq!(bearer(Some("Bearer abc")), Some("abc"));
    assert_eq!(bearer(Some("bearer abc")), Some("abc"));
    for bad in [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Basic abc"),
        Some("abc"),
    ] {
        assert_eq!(bearer(bad), None, "{bad:?}");
    }
}

#[test]
fn any_admin_key_is_good_and_nothing_else() {
    let keys = ["k-one".to_owned().into(), "k-two".to_owned().into()];
    assert!(is_admin_key("k-one", &keys) && is_admin_key("k-two", &keys));
    for bad in ["", "k-on", "k-one ", "K-ONE"] {
        assert!(!is_admin_key(bad, &keys), "{bad}");
    }
    assert!(!is_admin_key("", &[]));
}

#[test]
fn secrets_are_not_in_debug_output() {
    let text = format!("{:?} {:?}", verifier(), key("a", SECRET));
    assert!(!text.contains(SECRET), "{text}");
}
