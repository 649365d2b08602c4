//! Certificates and keys, and new connections.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mio::net::TcpStream;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::connection::TlsStream;
use crate::tls_config::{TlsClients, TlsConfig};

/// Accepts connections of TLS.
#[derive(Debug, Clone)]
pub(crate) struct TlsAcceptor {
    config: Arc<ServerConfig>,
    handshake_timeout: Duration,
}

impl TlsAcceptor {
    /// Reads certificates and keys.
    ///
    /// # Errors
    ///
    /// The text says which option or file to change.
    pub(crate) fn new(tls: &TlsConfig) -> Result<Self, String> {
        let config = build(tls)?;
        Ok(Self { config: Arc::new(config), handshake_timeout: tls.handshake_timeout })
    }

    /// Begins the handshake of a new connection.
    ///
    /// # Errors
    ///
    /// If the library refuses the connection.
    pub(crate) fn accept(&self, tcp: TcpStream) -> io::Result<TlsStream> {
        TlsStream::new(tcp, Arc::clone(&self.config), self.handshake_timeout)
    }
}

fn build(tls: &TlsConfig) -> Result<ServerConfig, String> {
    if !is_processor_supported() {
        return Err("the processor lacks instructions that TLS needs (AES, and AVX2 or NEON)".into());
    }
    if tls.cert_file.as_os_str().is_empty() {
        return Err("set tls-cert-file to the file with the certificate of the server, in PEM form".into());
    }
    if tls.key_file.as_os_str().is_empty() {
        return Err("set tls-key-file to the file with the key of the certificate, in PEM form".into());
    }
    let provider = Arc::new(rustls_graviola::default_provider());
    let chain = read_certificates(&tls.cert_file, "tls-cert-file")?;
    let key = PrivateKeyDer::from_pem_file(&tls.key_file)
        .map_err(|error| format!("cannot read the key in {} (tls-key-file): {error}", tls.key_file.display()))?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match tls.clients {
        TlsClients::WithoutCertificate => builder.with_no_client_auth(),
        clients => {
            let file = tls.ca_cert_file.as_ref().ok_or(
                "client certificates need the authority that signs them: set tls-ca-cert-file, or set \
                 tls-auth-clients to no",
            )?;
            let mut roots = RootCertStore::empty();
            for certificate in read_certificates(file, "tls-ca-cert-file")? {
                roots.add(certificate).map_err(|error| format!("{} (tls-ca-cert-file): {error}", file.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                TlsClients::MayHaveCertificate => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier =
                verifier.build().map_err(|error| format!("{} (tls-ca-cert-file): {error}", file.display()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    builder.with_single_cert(chain, key).map_err(|error| {
        format!("the certificate in {} and the key in {}: {error}", tls.cert_file.display(), tls.key_file.display())
    })
}

fn read_certificates(path: &Path, option: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: String| format!("cannot read the certificates in {} ({option}): {error}", path.display());
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(|error| failed(error.to_string()))?;
    if certificates.is_empty() {
        return Err(failed("the file has no certificate in PEM form".into()));
    }
    Ok(certificates)
}

/// Whether the processor has the instructions that graviola requires. The library would panic.
#[cfg(target_arch = "x86_64")]
fn is_processor_supported() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("aes") && has!("pclmulqdq") && has!("bmi1") && has!("bmi2") && has!("adx") && has!("avx") && has!("avx2")
}

#[cfg(target_arch = "aarch64")]
fn is_processor_supported() -> bool {
    use std::arch::is_aarch64_feature_detected as has;
    has!("neon") && has!("aes") && has!("pmull") && has!("sha2")
}
