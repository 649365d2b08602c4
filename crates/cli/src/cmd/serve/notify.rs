//! Messages to the service manager (`sd_notify`): datagrams to the socket in `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state, such as `READY=1`, if a service manager waits for it.
pub fn send(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send_to(&socket, state) {
        tracing::warn!(%error, "the service manager is not reachable");
    }
}

/// Sends a state to a socket. A name that begins with `@` is in the abstract namespace.
fn send_to(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 64];
        let length = socket.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_state_reaches_sockets_with_a_path_and_abstract_sockets() {
        let scratch = lodestore_contract::testing::Scratch::new();
        let path = scratch.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        send_to(path.as_os_str(), "READY=1").expect("a message");
        assert_eq!(received(&socket), "READY=1");
        let name = format!("@lodestore-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("a socket");
        send_to(OsStr::new(&name), "STOPPING=1").expect("a message");
        assert_eq!(received(&socket), "STOPPING=1");
    }
}
