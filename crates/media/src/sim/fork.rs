//! Forks for tests: a child that inherits open stores.

use std::io;

/// The side of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forked {
    /// The new process, with the calling thread only; it ends by [`exit_now`].
    Child,
    /// The old process, with the PID of the new one.
    Parent(i32),
}

/// Copies the process, with the calling thread only.
///
/// # Errors
/// Those of the kernel.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: Inv 11: the child accesses memory of the calling thread, and of stores that refuse
    // it; it ends by `_exit`.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Ends the process without running exit handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: Inv 11: `_exit` never returns and touches no memory.
    unsafe { libc::_exit(code) }
}

/// Waits until a child ends; returns its exit code, or `None` if a signal ended it.
///
/// # Errors
/// Those of the kernel.
pub fn wait_for(child: i32) -> io::Result<Option<i32>> {
    let mut status = 0;
    loop {
        // SAFETY: Inv 11: the status is this function's own.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended == child {
            return Ok(libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)));
        }
        let refused = io::Error::last_os_error();
        if refused.kind() != io::ErrorKind::Interrupted {
            return Err(refused);
        }
    }
}
