//! The keys of a `serve` that was not given any: drawn at the first start, kept in the data
//! folder, and found there by the other commands.

use crate::config::Config;
use anyhow::{Context, bail};
use dropgate_gateway::auth::TokenKey;
use secrecy::SecretString;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the token key that was drawn is called, in a token's header.
pub const DRAWN_KID: &str = "local";

/// The variable that the admin key is taken from.
const KEY_VARIABLE: &str = "DROPGATE_ADMIN_KEY";

/// The admin key of the environment, else of the file that is given.
pub fn given(file: Option<&Path>) -> anyhow::Result<Option<SecretString>> {
    match (std::env::var(KEY_VARIABLE), file) {
        (Ok(key), _) if !key.is_empty() => Ok(Some(SecretString::from(key))),
        (_, Some(path)) => {
            let key = read(path)?
                .with_context(|| format!("--admin-key-file: {} is not there", path.display()))?;
            Ok(Some(key))
        }
        (_, None) => Ok(None),
    }
}

/// The file of the secret that signs user tokens.
fn token_file(config: &Config) -> PathBuf {
    config.data.dir.join("user-token.key")
}

/// The file of the admin key.
fn admin_file(config: &Config) -> PathBuf {
    config.data.dir.join("admin.key")
}

/// Makes the data folder, and gives the configuration the keys that it lacks: those of the
/// folder, drawn now if they are not there.
pub fn complete(config: &mut Config) -> anyhow::Result<()> {
    let dir = &config.data.dir;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot make the data folder {}", dir.display()))?;
    if config.auth.keys.is_empty() {
        let secret = read_or_draw(&token_file(config))?;
        config.auth.keys.push(drawn(secret));
    }
    if config.admin.keys.is_empty() {
        let key = read_or_draw(&admin_file(config))?;
        config.admin.keys.push(key);
    }
    Ok(())
}

fn drawn(secret: SecretString) -> TokenKey {
    TokenKey {
        kid: DRAWN_KID.to_owned(),
        secret,
    }
}

/// The key that signs tokens: the configuration's first, else the one that was drawn.
pub fn token_key(config: &Config) -> anyhow::Result<TokenKey> {
    if let Some(key) = config.auth.keys.first() {
        return Ok(key.clone());
    }
    let path = token_file(config);
    match read(&path)? {
        Some(secret) => Ok(drawn(secret)),
        None => bail!(
            "there is no key to sign with: [auth] has none, and {} is not there (`dropgate serve` \
             makes it)",
            path.display()
        ),
    }
}

/// The admin key: the configuration's first, else the one that was drawn.
pub fn admin_key(config: &Config) -> anyhow::Result<SecretString> {
    if let Some(key) = config.admin.keys.first() {
        return Ok(key.clone());
    }
    let path = admin_file(config);
    match read(&path)? {
        Some(key) => Ok(key),
        None => bail!(
            "there is no admin key: give DROPGATE_ADMIN_KEY or --admin-key-file ([admin] has none, \
             and {} is not there)",
            path.display()
        ),
    }
}

/// A key of a file; `None` when the file is not there. A newline at its end is not part of it.
pub fn read(path: &Path) -> anyhow::Result<Option<SecretString>> {
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let key = text.trim_end_matches(['\n', '\r']);
            if key.is_empty() {
                bail!("{} is empty", path.display());
            }
            Ok(Some(SecretString::from(key)))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn read_or_draw(path: &Path) -> anyhow::Result<SecretString> {
    if let Some(key) = read(path)? {
        return Ok(key);
    }
    let mut random = [0; 32];
    getrandom::fill(&mut random).context("no randomness")?;
    let key = hex::encode(random);
    let write = || {
        // Under another name first: half a key must not be taken for one.
        let draft = path.with_extension("draft");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(key.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&draft, path)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    tracing::info!(path = %path.display(), "key drawn");
    Ok(SecretString::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret;
    use std::os::unix::fs::PermissionsExt;

    fn config(dir: &Path) -> Config {
        let mut config = Config::default();
        config.data.dir = dir.join("data");
        config
    }

    #[test]
    fn keys_are_drawn_once_and_are_their_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = config(folder.path());
        assert!(token_key(&first).is_err());
        complete(&mut first).unwrap();
        let mut second = config(folder.path());
        complete(&mut second).unwrap();
        let secret = |config: &Config| config.auth.keys[0].secret.expose_secret().to_owned();
        assert_eq!(secret(&first), secret(&second));
        assert_eq!(secret(&first).len(), 64);
        let fresh = config(folder.path());
        assert_eq!(
            token_key(&fresh).unwrap().secret.expose_secret(),
            secret(&first)
        );
        assert_ne!(admin_key(&fresh).unwrap().expose_secret(), secret(&first));
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path().join("data")), 0o700);
        assert_eq!(mode(token_file(&fresh)), 0o600);
        assert_eq!(mode(admin_file(&fresh)), 0o600);
    }

    #[test]
    fn keys_that_are_given_are_used_and_none_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = config(folder.path());
        config.admin.keys.push("x".repeat(32).into());
        config.auth.keys.push(TokenKey {
            kid: "a".into(),
            secret: "y".repeat(32).into(),
        });
        complete(&mut config).unwrap();
        assert_eq!(token_key(&config).unwrap().kid, "a");
        assert_eq!(std::fs::read_dir(&config.data.dir).unwrap().count(), 0);
    }

    #[test]
    fn an_empty_key_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k");
        std::fs::write(&path, "\n").unwrap();
        assert!(read(&path).is_err());
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(read(&path).unwrap().unwrap().expose_secret(), "abc");
    }
}
