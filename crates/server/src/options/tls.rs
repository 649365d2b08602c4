//! The options of TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::kinds;
use crate::config::{Config, TlsClients, TlsConfig};

/// Values of `tls-auth-clients`, in the order of [`CLIENTS`].
const CLIENT_WORDS: [&str; 3] = ["yes", "no", "optional"];

const CLIENTS: [TlsClients; 3] =
    [TlsClients::WithCertificate, TlsClients::WithoutCertificate, TlsClients::MayHaveCertificate];

/// Returns the configuration of TLS for a change. It listens nowhere at first.
fn tls_mut(config: &mut Config) -> &mut TlsConfig {
    config.tls.get_or_insert_with(TlsConfig::default)
}

pub(super) fn port(config: &Config) -> Vec<String> {
    let address = config.tls.as_ref().and_then(|tls| tls.listen.first());
    kinds::shown(address.map_or(0, SocketAddr::port))
}

/// Sets the port, on the addresses of TCP or on the loopback address.
pub(super) fn set_port(config: &mut Config, values: &[String]) -> Result<(), String> {
    let port = u16::try_from(kinds::number(values, 0, u16::MAX.into())?).unwrap_or(0);
    let mut addresses: Vec<IpAddr> = config.listen.iter().map(SocketAddr::ip).collect();
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    let listen = addresses.into_iter().map(|address| SocketAddr::from((address, port))).collect();
    tls_mut(config).listen = if port == 0 { Vec::new() } else { listen };
    Ok(())
}

/// Returns the text of a path of the configuration of TLS.
pub(super) fn path(config: &Config, of: impl FnOnce(&TlsConfig) -> Option<&PathBuf>) -> Vec<String> {
    let path = config.tls.as_ref().and_then(of).filter(|path| !path.as_os_str().is_empty());
    kinds::shown_option(path, |path| path.display().to_string())
}

pub(super) fn set_cert_file(config: &mut Config, values: &[String]) -> Result<(), String> {
    kinds::path(values).map(|path| tls_mut(config).cert_file = path.unwrap_or_default())
}

pub(super) fn set_key_file(config: &mut Config, values: &[String]) -> Result<(), String> {
    kinds::path(values).map(|path| tls_mut(config).key_file = path.unwrap_or_default())
}

pub(super) fn set_ca_cert_file(config: &mut Config, values: &[String]) -> Result<(), String> {
    kinds::path(values).map(|path| tls_mut(config).ca_cert_file = path)
}

pub(super) fn clients(config: &Config) -> Vec<String> {
    let chosen = config.tls.as_ref().map_or(TlsClients::default(), |tls| tls.clients);
    let index = CLIENTS.iter().position(|clients| *clients == chosen).unwrap_or(0);
    kinds::shown(CLIENT_WORDS[index])
}

pub(super) fn set_clients(config: &mut Config, values: &[String]) -> Result<(), String> {
    kinds::choice(values, &CLIENT_WORDS).map(|index| tls_mut(config).clients = CLIENTS[index])
}
