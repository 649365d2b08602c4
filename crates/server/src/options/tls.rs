//! The options of TLS.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{ValueError, kinds};
use crate::config::Config;
use crate::tls_config::{TlsClients, TlsConfig};

/// Values of `tls-auth-clients`, in the order of [`CLIENTS`].
const CLIENT_WORDS: [&str; 3] = ["yes", "no", "optional"];

const CLIENTS: [TlsClients; 3] =
    [TlsClients::WithCertificate, TlsClients::WithoutCertificate, TlsClients::MayHaveCertificate];

/// Changes the configuration of TLS. There is none while all of its options have their defaults.
fn change(config: &mut Config, change: impl FnOnce(&mut TlsConfig)) {
    let mut tls = config.tls.take().unwrap_or_default();
    change(&mut tls);
    config.tls = Some(tls).filter(|tls| *tls != TlsConfig::default());
}

pub(super) fn port(config: &Config) -> Vec<String> {
    let address = config.tls.as_ref().and_then(|tls| tls.listen.first());
    kinds::shown(address.map_or(0, SocketAddr::port))
}

/// Sets the port, on the addresses of TCP or on the loopback address.
pub(super) fn set_port(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let port = u16::try_from(kinds::number(values, 0, u16::MAX.into())?).unwrap_or(0);
    let mut addresses: Vec<IpAddr> = config.listen.iter().map(SocketAddr::ip).collect();
    addresses.dedup();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    let listen = addresses.into_iter().map(|address| SocketAddr::from((address, port))).collect();
    change(config, |tls| tls.listen = if port == 0 { Vec::new() } else { listen });
    Ok(())
}

/// Returns the text of a path of the configuration of TLS.
pub(super) fn path(config: &Config, of: impl FnOnce(&TlsConfig) -> Option<&PathBuf>) -> Vec<String> {
    let path = config.tls.as_ref().and_then(of).filter(|path| !path.as_os_str().is_empty());
    kinds::shown_option(path, |path| path.display().to_string())
}

pub(super) fn set_cert_file(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let path = kinds::path(values)?.unwrap_or_default();
    change(config, |tls| tls.cert_file = path);
    Ok(())
}

pub(super) fn set_key_file(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let path = kinds::path(values)?.unwrap_or_default();
    change(config, |tls| tls.key_file = path);
    Ok(())
}

pub(super) fn set_ca_cert_file(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let path = kinds::path(values)?;
    change(config, |tls| tls.ca_cert_file = path);
    Ok(())
}

pub(super) fn clients(config: &Config) -> Vec<String> {
    let chosen = config.tls.as_ref().map_or(TlsClients::default(), |tls| tls.clients);
    let index = CLIENTS.iter().position(|clients| *clients == chosen).unwrap_or(0);
    kinds::shown(CLIENT_WORDS[index])
}

pub(super) fn set_clients(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let index = kinds::choice(values, &CLIENT_WORDS)?;
    change(config, |tls| tls.clients = CLIENTS[index]);
    Ok(())
}
