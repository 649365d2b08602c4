//! The configuration of TLS.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Which clients of TLS are accepted. Redis' name: `tls-auth-clients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TlsClients {
    /// `yes`: only clients with a certificate of the authority.
    #[default]
    WithCertificate,
    /// `no`: no client needs a certificate.
    WithoutCertificate,
    /// `optional`: a client may have a certificate, which must be one of the authority.
    MayHaveCertificate,
}

/// TLS of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsConfig {
    /// Addresses of TLS. Port 0 lets the system choose. Redis' names: `bind` and `tls-port`.
    pub listen: Vec<SocketAddr>,
    /// File with the certificate of the server and its chain, in PEM form. Redis' name:
    /// `tls-cert-file`.
    pub cert_file: PathBuf,
    /// File with the private key, in PEM form. Redis' name: `tls-key-file`.
    pub key_file: PathBuf,
    /// File with the authorities that sign certificates of clients. Redis' name:
    /// `tls-ca-cert-file`.
    pub ca_cert_file: Option<PathBuf>,
    /// Which clients are accepted.
    pub clients: TlsClients,
    /// Time after which a client whose handshake has not ended is disconnected.
    pub handshake_timeout: Duration,
}

impl TlsConfig {
    /// Time for a handshake if the configuration does not say.
    pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
}

impl Default for TlsConfig {
    /// Listens nowhere.
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            cert_file: PathBuf::new(),
            key_file: PathBuf::new(),
            ca_cert_file: None,
            clients: TlsClients::default(),
            handshake_timeout: Self::HANDSHAKE_TIMEOUT,
        }
    }
}
