//! The least that an HTTP handler on this script can cost: actix, fred, and one EVALSHA a
//! request. No token, no log, no ledger. `make bench` measures the gateway against it.
//!
//! `minimal-handler PORT CLAIM_UNIT_SHA1 TAG`, with the Redis URL in `REDIS_URL`.

use actix_web::{App, HttpResponse, HttpServer, web};
use anyhow::{Context, Result};
use fred::prelude::{Builder, ClientLike, Config};
use fred::types::{ClusterHash, CustomCommand, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

struct Minimal {
    redis: fred::clients::Client,
    sha1: String,
    tag: String,
    users: AtomicU64,
}

const SALE: &str = "minimal";

async fn claim(minimal: web::Data<Minimal>, body: web::Bytes) -> actix_web::Result<HttpResponse> {
    drop(body);
    let user = format!("user-{}", minimal.users.fetch_add(1, Ordering::Relaxed));
    let key = |name: &str| Value::from(format!("dropgate:{{{SALE}}}:{}:{name}", minimal.tag));
    let args: Vec<Value> = vec![
        minimal.sha1.as_str().into(),
        4.into(),
        format!("dropgate:{{{SALE}}}:current").into(),
        key("state"),
        key("claims"),
        key("outbox"),
        minimal.tag.as_str().into(),
        "0".into(),
        "9007199254740991".into(),
        user.as_str().into(),
        "".into(),
        Value::Bytes(vec![7u8; 16].into()),
        Value::Bytes(vec![0u8; 60].into()),
    ];
    let command = CustomCommand::new_static("EVALSHA", ClusterHash::Offset(2), false);
    let reply: Value = minimal
        .redis
        .custom(command, args)
        .await
        .map_err(actix_web::error::ErrorServiceUnavailable)?;
    match reply {
        Value::Array(reply) if reply.first().and_then(Value::as_str).as_deref() == Some("won") => {
            Ok(HttpResponse::Created().body("{\"status\":\"won\"}"))
        }
        _ => Ok(HttpResponse::ServiceUnavailable().finish()),
    }
}

#[actix_web::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let [_, port, sha1, tag] = args.as_slice() else {
        anyhow::bail!("minimal-handler PORT CLAIM_UNIT_SHA1 TAG");
    };
    let url = std::env::var("REDIS_URL").context("REDIS_URL")?;
    let redis = Builder::from_config(Config::from_url(&url)?).build()?;
    redis.init().await?;
    let minimal = web::Data::from(Arc::new(Minimal {
        redis,
        sha1: sha1.clone(),
        tag: tag.clone(),
        users: AtomicU64::new(0),
    }));
    HttpServer::new(move || {
        App::new()
            .app_data(minimal.clone())
            .route("/", web::post().to(claim))
            .route("/livez", web::get().to(HttpResponse::Ok))
    })
    .bind(("127.0.0.1", port.parse::<u16>()?))?
    .run()
    .await?;
    Ok(())
}
