//! Ctrl-C: while something is being generated it asks for a clean end; a second one, or one at any other time, ends
//! the program, unless it came between two answers of a conversation.

use std::sync::atomic::{AtomicBool, Ordering};

static CANCEL: AtomicBool = AtomicBool::new(false);
static ARMED: AtomicBool = AtomicBool::new(false);
static IGNORED: AtomicBool = AtomicBool::new(false);

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
        install()?;
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

/// While this lives, a Ctrl-C outside an [`Interruptible`] stretch does nothing: one that was meant for an answer may come
/// as it ends, and must not end the conversation.
pub(crate) struct Ignored(());

impl Ignored {
    /// Begins to ignore them.
    ///
    /// # Errors
    /// When the operating system refuses a handler.
    pub(crate) fn begin() -> anyhow::Result<Self> {
        install()?;
        IGNORED.store(true, Ordering::SeqCst);
        Ok(Self(()))
    }
}

impl Drop for Ignored {
    fn drop(&mut self) {
        IGNORED.store(false, Ordering::SeqCst);
    }
}

/// Installs the handler, once.
fn install() -> anyhow::Result<()> {
    static INSTALL: std::sync::Once = std::sync::Once::new();
    let mut result = Ok(());
    INSTALL.call_once(|| {
        result = ctrlc::set_handler(|| {
            if ends_program() {
                std::process::exit(STATUS.into());
            }
        });
    });
    Ok(result?)
}

/// Notes a Ctrl-C, and says whether it ends the program.
fn ends_program() -> bool {
    if ARMED.load(Ordering::SeqCst) {
        return CANCEL.swap(true, Ordering::SeqCst);
    }
    !IGNORED.load(Ordering::SeqCst)
}

#[cfg(test)]
mod tests {
    use super::*;

    // One test: what it looks at belongs to the process.
    #[test]
    fn ctrl_c_ends_an_answer_then_the_program_but_no_conversation() {
        assert!(ends_program());
        let answer = Interruptible::begin().expect("a handler");
        assert!(!answer.is_cancelled());
        assert!(!ends_program() && answer.is_cancelled());
        assert!(ends_program());
        drop(answer);
        assert!(ends_program());

        let conversation = Ignored::begin().expect("a handler");
        assert!(!ends_program() && !ends_program());
        let answer = Interruptible::begin().expect("a handler");
        assert!(!answer.is_cancelled());
        assert!(!ends_program() && answer.is_cancelled());
        assert!(ends_program());
        drop(answer);
        assert!(!ends_program());
        drop(conversation);
        assert!(ends_program());
    }
}
