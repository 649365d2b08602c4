//! Identifies the boot of the machine.

use std::sync::OnceLock;

use rustix::io::Errno;

/// The boot that simulated pools are open in.
pub(crate) const SIMULATED: [u8; 16] = *b"simulated boot 0";

/// Returns the kernel's random ID of this boot (`/proc/sys/kernel/random/boot_id`), or zeros if it
/// cannot be read. In that case every boot looks the same, and a restart of the machine is not
/// detected.
pub(crate) fn boot_id() -> [u8; 16] {
    static READ: OnceLock<[u8; 16]> = OnceLock::new();
    *READ.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        text.ok().and_then(|text| parse(&text)).unwrap_or_default()
    })
}

/// Returns 16 random bytes for a pool's ID.
///
/// # Errors
/// Those of the kernel, if it has no random numbers.
pub(crate) fn random_id() -> std::io::Result<[u8; 16]> {
    let mut id = [0; 16];
    let mut filled = 0;
    while filled < id.len() {
        match rustix::rand::getrandom(&mut id[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(refused) => return Err(refused.into()),
        }
    }
    Ok(id)
}

fn parse(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.trim().bytes().filter(|byte| *byte != b'-').collect();
    let mut id = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_form_is_parsed_and_other_forms_are_refused() {
        let id = parse("0123abcd-4567-89ef-0123-456789abcdef\n").expect("well formed");
        assert_eq!((id[0], id[1], id[15]), (0x01, 0x23, 0xef));
        assert_eq!(parse("0123"), None);
        assert_eq!(parse("0123abcd-4567-89ef-0123-456789abcdeg"), None);
        assert_eq!(boot_id(), boot_id());
    }

    #[test]
    fn random_ids_differ() {
        assert_ne!(random_id().expect("random bytes"), random_id().expect("random bytes"));
    }
}
