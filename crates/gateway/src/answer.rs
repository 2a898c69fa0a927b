//! From what the engine answers to what HTTP says: pure functions.

use crate::error::{Extra, Problem, jittered};
use crate::time::Rfc3339;
use actix_web::HttpResponse;
use actix_web::http::header;
use dropgate_domain::code::Code;
use dropgate_domain::{ClaimId, SaleId, Win};
use dropgate_engine::{Answer, LookUp, Unavailable};
use serde::Serialize;
use utoipa::ToSchema;

/// When to ask for a pending claim again, before jitter: the tip is read once a second.
const PENDING_SECONDS: u64 = 1;

/// A claim that got a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct WonBody {
    /// The claim's id.
    pub claim: String,
    /// The sale.
    pub sale: String,
    /// The unit's number, from 1.
    pub unit: u64,
    /// The unit's label; null when it has none.
    pub label: Option<String>,
    /// `won`.
    pub status: &'static str,
    /// When it was won.
    #[schema(value_type = String, format = "date-time")]
    pub won_at: Rfc3339,
    /// Whether the database has it; null when that is not known.
    pub persisted: Option<bool>,
}

impl WonBody {
    /// The body of a win.
    #[must_use]
    pub fn of(sale: &SaleId, win: &Win, persisted: Option<bool>) -> Self {
        Self {
            claim: win.claim().to_string(),
            sale: sale.to_string(),
            unit: win.unit.0,
            label: None,
            status: "won",
            won_at: Rfc3339(win.won_at),
            persisted,
        }
    }
}

/// A claim that has no unit: not yet, or never.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct StatusBody {
    /// The claim's id.
    pub claim: String,
    /// `pending` (ask again), `void` (it took no unit: claim again with the same key) or
    /// `sold_out`.
    pub status: &'static str,
}

/// What a claim is answered. `persisted` tells of a win whether the database has it.
///
/// # Errors
/// The problem that the claim met.
pub fn claimed(
    sale: &SaleId,
    answer: Answer,
    persisted: impl Fn(&Win) -> Option<bool>,
) -> Result<HttpResponse, Problem> {
    let body = |win: &Win| WonBody::of(sale, win, persisted(win));
    match answer {
        Answer::Won(win) => Ok(HttpResponse::Created()
            .insert_header((header::LOCATION, location(sale, &win.claim())))
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .json(body(&win))),
        Answer::Again(win) => Ok(won(&body(&win))),
        Answer::Pending(claim) => Ok(pending(sale, &claim)),
        Answer::SoldOut => Err(Problem::new(Code::SoldOut)),
        Answer::LimitReached(wins) => {
            let claims = wins.iter().map(body).collect();
            Err(Problem::new(Code::LimitReached).extra(Extra::Claims(claims)))
        }
        Answer::Early { opens_at } => {
            Err(Problem::new(Code::NotOpen).extra(Extra::OpensAt(Some(opens_at))))
        }
        Answer::Closed => Err(Problem::new(Code::Closed)),
        Answer::Unavailable(why) => Err(unavailable(why)),
    }
}

/// What a question about a claim is answered.
///
/// # Errors
/// The problem that it met; one and the same for a claim that is not there and for another
/// user's.
pub fn looked_up(
    sale: &SaleId,
    claim: &ClaimId,
    found: LookUp,
    persisted: impl Fn(&Win) -> Option<bool>,
) -> Result<HttpResponse, Problem> {
    let status = |status| {
        HttpResponse::Ok()
            .insert_header((header::CACHE_CONTROL, "no-store"))
            .json(StatusBody {
                claim: claim.to_string(),
                status,
            })
    };
    match found {
        LookUp::Won(win) => Ok(won(&WonBody::of(sale, &win, persisted(&win)))),
        LookUp::Pending => Ok(pending(sale, claim)),
        LookUp::Void => Ok(status("void")),
        LookUp::SoldOut => Ok(status("sold_out")),
        LookUp::NotFound => Err(Problem::new(Code::UnknownClaim)),
        LookUp::Unavailable(why) => Err(unavailable(why)),
    }
}

/// The problem of a sale that cannot answer now.
#[must_use]
pub fn unavailable(why: Unavailable) -> Problem {
    let code = match why {
        Unavailable::Halted => Code::Halted,
        Unavailable::Starting => Code::NotReady,
        Unavailable::Busy => Code::Busy,
        Unavailable::Void => Code::Void,
        Unavailable::Admission | Unavailable::Log => Code::Unavailable,
    };
    Problem::new(code).cause(why)
}

fn won(body: &WonBody) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(body)
}

fn pending(sale: &SaleId, claim: &ClaimId) -> HttpResponse {
    HttpResponse::Accepted()
        .insert_header((header::LOCATION, location(sale, claim)))
        .insert_header((header::RETRY_AFTER, jittered(PENDING_SECONDS)))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(StatusBody {
            claim: claim.to_string(),
            status: "pending",
        })
}

fn location(sale: &SaleId, claim: &ClaimId) -> String {
    format!("/v1/sales/{sale}/claims/{claim}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::body::to_bytes;
    use dropgate_domain::code::{Retry, Wait};
    use dropgate_domain::{AttemptId, Generation, IdempotencyKey, Seq, TimeMs, Unit, UserId};
    use serde_json::{Value, json};

    fn sale() -> SaleId {
        SaleId::new("drop-1").unwrap()
    }

    fn win() -> Win {
        Win {
            generation: Generation(1),
            seq: Seq(7),
            unit: Unit(3),
            user: UserId::new("alice").unwrap(),
            attempt: AttemptId([0xab; 16]),
            key: IdempotencyKey::none(),
            won_at: TimeMs(1_767_225_600_007),
        }
    }

    async fn seen(result: Result<HttpResponse, Problem>) -> (u16, Vec<(String, String)>, Value) {
        let response = result.unwrap_or_else(|problem| problem.respond("r"));
        let headers = response
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
            .collect();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body()).await.unwrap();
        (status, headers, serde_json::from_slice(&body).unwrap())
    }

    fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    #[actix_web::test]
    async fn a_win_is_created_once_and_the_same_afterwards() {
        let claim = win().claim().to_string();
        let body = json!({
            "claim": claim, "sale": "drop-1", "unit": 3, "label": null, "status": "won",
            "won_at": "2026-01-01T00:00:00.007Z", "persisted": null,
        });
        let first = seen(claimed(&sale(), Answer::Won(win()), |_| None)).await;
        assert_eq!((first.0, &first.2), (201, &body));
        let path = format!("/v1/sales/drop-1/claims/{claim}");
        assert_eq!(header(&first.1, "location"), Some(path.as_str()));
        let again = seen(claimed(&sale(), Answer::Again(win()), |_| None)).await;
        assert_eq!((again.0, &again.2), (200, &body));
        let found = LookUp::Won(win());
        let asked = seen(looked_up(&sale(), &win().claim(), found, |_| Some(true))).await;
        assert_eq!(asked.0, 200);
        assert_eq!(asked.2["persisted"], true);
    }

    #[actix_web::test]
    async fn a_pending_claim_says_where_and_when_to_ask() {
        let id = win().claim();
        let path = format!("/v1/sales/drop-1/claims/{id}");
        for result in [
            claimed(&sale(), Answer::Pending(id), |_| None),
            looked_up(&sale(), &id, LookUp::Pending, |_| None),
        ] {
            let (status, headers, body) = seen(result).await;
            assert_eq!(status, 202);
            assert_eq!(body, json!({"claim": id.to_string(), "status": "pending"}));
            assert_eq!(header(&headers, "location"), Some(path.as_str()));
            assert!(
                header(&headers, "retry-after")
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
                    >= 1
            );
        }
    }

    #[actix_web::test]
    async fn every_refusal_has_its_code() {
        let opens_at = TimeMs(crate::time::now_ms().0 + 60_000);
        let cases = [
            (Answer::SoldOut, 409, "sold_out"),
            (
                Answer::LimitReached(vec![win(), win()]),
                409,
                "limit_reached",
            ),
            (Answer::Early { opens_at }, 403, "not_open"),
            (Answer::Closed, 403, "closed"),
            (Answer::Unavailable(Unavailable::Halted), 503, "halted"),
            (Answer::Unavailable(Unavailable::Starting), 503, "not_ready"),
            (Answer::Unavailable(Unavailable::Busy), 503, "busy"),
            (Answer::Unavailable(Unavailable::Void), 503, "void"),
            (
                Answer::Unavailable(Unavailable::Admission),
                503,
                "unavailable",
            ),
            (Answer::Unavailable(Unavailable::Log), 503, "unavailable"),
        ];
        for (answer, status, code) in cases {
            let (got, headers, body) = seen(claimed(&sale(), answer, |_| None)).await;
            assert_eq!((got, body["code"].as_str().unwrap()), (status, code));
            assert_eq!(header(&headers, "cache-control"), Some("no-store"));
            assert_eq!(
                status == 503 || code == "not_open",
                header(&headers, "retry-after").is_some()
            );
            if code == "limit_reached" {
                assert_eq!(body["claims"].as_array().unwrap().len(), 2);
            }
        }
    }

    #[actix_web::test]
    async fn a_claim_that_is_decided_without_a_unit_says_so() {
        let id = win().claim();
        for (found, status) in [(LookUp::Void, "void"), (LookUp::SoldOut, "sold_out")] {
            let (code, _, body) = seen(looked_up(&sale(), &id, found, |_| None)).await;
            assert_eq!(code, 200);
            assert_eq!(body, json!({"claim": id.to_string(), "status": status}));
        }
        let (code, _, body) = seen(looked_up(&sale(), &id, LookUp::NotFound, |_| None)).await;
        assert_eq!(
            (code, body["code"].as_str().unwrap()),
            (404, "unknown_claim")
        );
    }

    #[test]
    fn the_engine_and_the_table_agree_on_the_waits() {
        for why in [
            Unavailable::Halted,
            Unavailable::Starting,
            Unavailable::Busy,
            Unavailable::Void,
            Unavailable::Admission,
            Unavailable::Log,
        ] {
            let Retry::After(Wait::Seconds(seconds)) = unavailable(why).code.retry() else {
                panic!("{why:?} has no wait");
            };
            assert_eq!(why.retry_after().as_secs(), u64::from(seconds), "{why:?}");
        }
    }
}
