//! A panic inside an engine is a finding, not the end of the exploration.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

fn install_hook() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if CATCHING.get() {
                LAST.with(|last| *last.borrow_mut() = info.to_string().replace('\n', " "));
            } else {
                before(info);
            }
        }));
    });
}

/// Runs `work`. A panic of it on this thread becomes an error.
///
/// # Errors
///
/// The panic's text with its location.
pub fn caught<R>(work: impl FnOnce() -> R) -> Result<R, String> {
    install_hook();
    let outer = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    CATCHING.set(outer);
    result.map_err(|_| LAST.with(|last| last.borrow().clone()))
}
