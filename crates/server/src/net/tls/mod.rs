//! TLS on the thread of the event loop.
//!
//! * `acceptor`: reads certificates and keys. `connection`: one connection.
//! * `absent`: replaces both in a build without TLS.
//!
//! The cryptography is that of graviola, which is Rust alone and runs on x86-64 and AArch64.

#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod acceptor;
#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod connection;

#[cfg(not(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod absent;

#[cfg(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(crate) use self::{acceptor::TlsAcceptor, connection::TlsStream};

#[cfg(not(all(feature = "tls", any(target_arch = "x86_64", target_arch = "aarch64"))))]
pub(crate) use self::absent::{TlsAcceptor, TlsStream};
