//! Setters of options with more than one field or with a special text.

use std::net::SocketAddr;

use super::ValueError;
use super::kinds::{self, one};
use crate::config::{Config, PORT_DEFAULT};

pub(super) fn set_durability(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    config.store.durability = match kinds::text(values)? {
        None => None,
        Some(text) => {
            Some(text.parse().map_err(|_| "use process, power or interval:MS with MS of at least 1".to_owned())?)
        }
    };
    Ok(())
}

pub(super) fn set_bind(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let port = config.listen.first().map_or(PORT_DEFAULT, SocketAddr::port);
    // One text may have several addresses, as in `CONFIG SET bind`.
    let addresses = values.iter().flat_map(|value| value.split_whitespace()).map(|text| Ok((kinds::ip(text)?, port)));
    config.listen = addresses.map(|pair| pair.map(SocketAddr::from)).collect::<Result<_, ValueError>>()?;
    Ok(())
}

pub(super) fn set_port(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let port = kinds::number(values, 0, u16::MAX.into())?;
    // The bound is that of the type.
    let port = u16::try_from(port).unwrap_or(0);
    match (port, config.listen.is_empty()) {
        (0, _) => config.listen.clear(),
        (_, true) => config.listen.push(SocketAddr::from(([127, 0, 0, 1], port))),
        (_, false) => {}
    }
    config.listen.iter_mut().for_each(|address| address.set_port(port));
    config.listen.dedup();
    Ok(())
}

pub(super) fn set_keepalive(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    // The greatest value that Linux accepts.
    let seconds = kinds::number(values, 0, 32_767)?;
    config.keepalive = std::time::Duration::from_secs(seconds as u64);
    Ok(())
}

pub(super) fn set_metrics(config: &mut Config, values: &[String]) -> Result<(), ValueError> {
    let text = one(values)?;
    config.metrics.address = match text {
        "" | "none" => None,
        text => Some(text.parse().map_err(|_| format!("{text:?} is not an address: use an IP address and a port"))?),
    };
    Ok(())
}
