//! The sockets that a server listens on.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, UnixListener, UnixStream};

use super::stream::Listener;
use super::tls::TlsAcceptor;
use crate::config::{Config, ConfigError};

/// Why a socket cannot be listened on.
#[derive(Debug)]
pub(crate) enum ListenError {
    /// The configuration of TLS is refused.
    Config(ConfigError),
    /// The system refuses the address or the path.
    System { at: String, source: io::Error },
}

/// The sockets that a server listens on.
#[derive(Debug)]
pub(crate) struct BoundSockets {
    pub(crate) listeners: Vec<Listener>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) tls_addresses: Vec<SocketAddr>,
    /// The listener of HTTP, and its address.
    pub(crate) http: Option<(TcpListener, SocketAddr)>,
    pub(crate) unix: Option<Box<UnixSocketFile>>,
}

impl BoundSockets {
    /// Listens on all addresses and paths of a configuration.
    ///
    /// # Errors
    ///
    /// [`ListenError`] for the first one that the system refuses. No socket is left.
    pub(crate) fn new(config: &Config) -> Result<Self, ListenError> {
        let (listeners, addresses, tls_addresses) = (Vec::new(), Vec::new(), Vec::new());
        let mut sockets = Self { listeners, addresses, tls_addresses, http: None, unix: None };
        for address in &config.listen {
            let (listener, local) = bind(*address)?;
            sockets.addresses.push(local);
            sockets.listeners.push(Listener::Tcp(listener));
        }
        if let Some(tls) = config.tls.as_ref().filter(|tls| !tls.listen.is_empty()) {
            let acceptor = TlsAcceptor::new(tls).map_err(|text| ListenError::Config(ConfigError::Tls(text)))?;
            for address in &tls.listen {
                let (listener, local) = bind(*address)?;
                sockets.tls_addresses.push(local);
                sockets.listeners.push(Listener::Tls(listener, acceptor.clone()));
            }
        }
        sockets.http = config.metrics.address.map(bind).transpose()?;
        if let Some(path) = &config.unix {
            let bound = UnixSocketFile::bind(path, config.unix_permissions);
            let (listener, file) = bound.map_err(|source| refused(path.display().to_string(), source))?;
            sockets.unix = Some(Box::new(file));
            sockets.listeners.push(Listener::Unix(listener));
        }
        Ok(sockets)
    }
}

fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr), ListenError> {
    let bound = TcpListener::bind(address).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (local, listener) = bound.map_err(|source| refused(address.to_string(), source))?;
    Ok((listener, local))
}

fn refused(at: String, source: io::Error) -> ListenError {
    ListenError::System { at, source }
}

/// The file of a unix socket. A drop removes the file, unless another process has replaced it.
#[derive(Debug)]
pub(crate) struct UnixSocketFile {
    path: PathBuf,
    identity: Option<Identity>,
}

/// Device and inode of a file.
type Identity = (u64, u64);

impl UnixSocketFile {
    /// Listens on a path, and replaces a stale socket.
    fn bind(path: &Path, permissions: Option<u32>) -> io::Result<(UnixListener, Self)> {
        remove_stale_socket(path);
        let listener = UnixListener::bind(path)?;
        let file = Self { path: path.into(), identity: socket_at(path) };
        if let Some(bits) = permissions {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(bits))?;
        }
        Ok((listener, file))
    }
}

impl Drop for UnixSocketFile {
    fn drop(&mut self) {
        if self.identity.is_some() && socket_at(&self.path) == self.identity {
            // Another process may have removed the socket.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// Returns the identity of the socket at a path, if there is one.
fn socket_at(path: &Path) -> Option<Identity> {
    let metadata = std::fs::symlink_metadata(path).ok()?;
    metadata.file_type().is_socket().then(|| (metadata.dev(), metadata.ino()))
}

/// Removes a socket that no process listens on. Only a refused connection proves that: a process
/// that this user may not reach, or whose queue is full, causes other errors.
fn remove_stale_socket(path: &Path) {
    let Some(found) = socket_at(path) else { return };
    let is_refused = UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    // Another server may have replaced the socket since the connection.
    if is_refused && socket_at(path) == Some(found) {
        // The bind that follows reports a failure.
        drop(std::fs::remove_file(path));
    }
}
