//! Certificates, made when they are needed.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;

/// Who signs certificates. Every authority is another one: nobody trusts a stranger's.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Authority({})", self.folder.path().display())
    }
}

impl Authority {
    /// Makes an authority.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn new() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::default();
        let name = format!("test authority {count} of {}", std::process::id());
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let folder = tempfile::Builder::new().prefix("dropgate-ca-").tempdir()?;
        std::fs::write(folder.path().join("ca.pem"), issuer.pem())?;
        Ok(Self { issuer, folder })
    }

    /// The file with its own certificate (PEM), which who trusts it is given.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Makes a certificate for these names and addresses; gives the files with the certificate
    /// and with its key (PEM).
    ///
    /// # Errors
    /// When a name cannot be one, or the files cannot be written.
    pub fn issue(&self, folder: &Path, names: &[&str]) -> Result<(PathBuf, PathBuf)> {
        let all: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(all)?;
        // Not the default name: a certificate of its issuer's name is taken for self-signed.
        params
            .distinguished_name
            .push(DnType::CommonName, names.join(" "));
        let certificate = params.signed_by(&key, &self.issuer)?;
        let files = (folder.join("cert.pem"), folder.join("key.pem"));
        std::fs::write(&files.0, certificate.pem())?;
        std::fs::write(&files.1, key.serialize_pem())?;
        Ok(files)
    }

    /// The lines of `redis.conf` for a port with TLS. Clients may show a certificate and need not.
    pub(super) fn config(&self, port: u16, folder: &Path) -> Result<String> {
        let (cert, key) = self.issue(folder, &["localhost", "127.0.0.1"])?;
        Ok(format!(
            "tls-port {port}\ntls-cert-file {}\ntls-key-file {}\ntls-ca-cert-file {}\n\
             tls-auth-clients optional\n",
            cert.display(),
            key.display(),
            self.ca_file().display()
        ))
    }
}
