//! What must hold for any text read as a chat template: shared by the fuzz target and the tests.

use std::path::Path;

use crate::{ChatMessage, ChatOptions, ChatTemplate};

/// Renders a conversation with `bytes` as the template: it returns, and an error is one line.
///
/// # Panics
/// When that is not so.
pub fn check_chat_template(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else { return };
    let template = ChatTemplate::from_gguf(Path::new("fuzz.gguf"), source, Some("<s>"), Some("</s>"));
    let messages = [("system", "Be brief."), ("user", "Hi 🦙"), ("assistant", "Hello."), ("user", "Again?")];
    let messages = messages.map(|(role, content)| ChatMessage::new(role, content));
    for count in [1, messages.len()] {
        let options = ChatOptions { add_generation_prompt: count == 1, ..ChatOptions::default() };
        if let Err(error) = template.render(&messages[..count], &options) {
            assert!(!error.to_string().contains('\n'), "{error}");
        }
    }
}
