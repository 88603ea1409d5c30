//! Ctrl-C: while something is being generated it asks for a clean end; a second one, or one at any other time, ends
//! the program.

use std::sync::atomic::{AtomicBool, Ordering};

static CANCEL: AtomicBool = AtomicBool::new(false);
static ARMED: AtomicBool = AtomicBool::new(false);

/// Exit status of a program ended by Ctrl-C, as shells report it.
pub(crate) const STATUS: u8 = 130;

/// While this lives, the first Ctrl-C sets [`Interruptible::flag`] instead of ending the program.
pub(crate) struct Interruptible(());

impl Interruptible {
    /// Begins an interruptible stretch.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        static INSTALL: std::sync::Once = std::sync::Once::new();
        let mut result = Ok(());
        INSTALL.call_once(|| {
            result = ctrlc::set_handler(|| {
                if !ARMED.load(Ordering::SeqCst) || CANCEL.swap(true, Ordering::SeqCst) {
                    std::process::exit(STATUS.into());
                }
            });
        });
        result?;
        CANCEL.store(false, Ordering::SeqCst);
        ARMED.store(true, Ordering::SeqCst);
        Ok(Self(()))
    }

    /// Set once Ctrl-C was pressed.
    #[expect(clippy::unused_self, reason = "the flag means something only while the stretch lasts")]
    pub(crate) fn flag(&self) -> &'static AtomicBool {
        &CANCEL
    }

    /// Whether Ctrl-C was pressed.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flag().load(Ordering::SeqCst)
    }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        ARMED.store(false, Ordering::SeqCst);
    }
}
