//! Chat templates: the Jinja program in a model's files that turns a conversation into one prompt, rendered as
//! Hugging Face transformers renders it, byte for byte.

mod charge;
mod environment;
#[cfg(test)]
mod golden;
mod guard;
mod json;
mod sources;

use std::path::{Path, PathBuf};

use minijinja::Environment;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{ModelError, Result};
pub(crate) use environment::Clock;

/// The name of the template that is used unless another is called for.
const DEFAULT: &str = "default";
/// The template for conversations with tools, where a model has one of its own.
const TOOL_USE: &str = "tool_use";

/// One turn of a conversation, in the simplest form that every template takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user` or `assistant`.
    pub role: String,
    /// What was said.
    pub content: String,
}

impl ChatMessage {
    /// A turn of that role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
}

/// What a template is given beside the messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatOptions {
    /// End with what begins an answer of the assistant.
    pub add_generation_prompt: bool,
    /// Tools the model may call, as JSON schemas.
    pub tools: Option<Value>,
    /// Further variables, as templates document them (`enable_thinking`).
    pub variables: Map<String, Value>,
}

/// A model's chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    /// The file it came from, for messages.
    path: PathBuf,
    /// Sources by name.
    templates: Vec<(String, String)>,
    /// Texts of the special tokens by name (`bos_token`), which templates may print.
    special_tokens: Map<String, Value>,
    environment: Environment<'static>,
}

impl ChatTemplate {
    fn new(path: &Path, templates: Vec<(String, String)>, special_tokens: Map<String, Value>, clock: Clock) -> Self {
        let environment = environment::environment(clock);
        Self { path: path.to_owned(), templates, special_tokens, environment }
    }

    /// The source of the template used for conversations without tools.
    ///
    /// # Errors
    /// When the model has several templates and none is called `default`.
    pub fn source(&self) -> Result<&str> {
        self.choose(false).map(|(_, source)| source)
    }

    /// Renders a conversation. Fields of a message that are null are left out, as transformers does.
    ///
    /// # Errors
    /// When the template refuses the conversation, is malformed, uses what is not supported, or runs for longer
    /// or produces more than any real conversation needs.
    pub fn render<M: Serialize>(&self, messages: &[M], options: &ChatOptions) -> Result<String> {
        let (name, source) = self.choose(options.tools.is_some())?;
        let failed = |problem: String| ModelError::invalid(&self.path, "chat_template", problem);
        let mut messages = serde_json::to_value(messages).map_err(|e| failed(e.to_string()))?;
        for message in messages.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            message.retain(|_, value| !value.is_null());
        }
        let mut variables = self.special_tokens.clone();
        variables.extend([
            ("messages".to_owned(), messages),
            ("tools".to_owned(), options.tools.clone().unwrap_or_default()),
            ("documents".to_owned(), Value::Null),
            ("add_generation_prompt".to_owned(), Value::Bool(options.add_generation_prompt)),
        ]);
        variables.extend(options.variables.clone());
        let source = environment::without_generation_tags(source);
        environment::render(&self.environment, name, &source, &Value::Object(variables))
            .map_err(|error| failed(environment::message(&error)))
    }

    fn choose(&self, tools: bool) -> Result<(&str, &str)> {
        let named = |wanted: &str| self.templates.iter().find(|(name, _)| name == wanted);
        let tool_use = if tools { named(TOOL_USE) } else { None };
        let only = if let [only] = self.templates.as_slice() { Some(only) } else { None };
        let chosen = tool_use.or_else(|| named(DEFAULT)).or(only);
        chosen.map(|(name, source)| (name.as_str(), source.as_str())).ok_or_else(|| {
            let names: Vec<&str> = self.templates.iter().map(|(name, _)| name.as_str()).collect();
            let problem = format!("none of the templates is named `default` (there are: {})", names.join(", "));
            ModelError::invalid(&self.path, "chat_template", problem)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(source: &str) -> ChatTemplate {
        ChatTemplate::from_gguf(Path::new("test.gguf"), source, Some("<s>"), None)
    }

    fn render(source: &str) -> String {
        let messages = [ChatMessage::new("user", "Hi")];
        let options = ChatOptions { add_generation_prompt: true, ..Default::default() };
        template(source).render(&messages, &options).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn templates_that_do_not_end_are_stopped() {
        for source in [
            "{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}",
            "{% set n = namespace(x='abcdefgh') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "{{ 'x' * 999999999 }}",
            "{% for i in range(90000) %}{{ 'x' * 90000 }}{% endfor %}",
            "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
            "{{ [0] * 99999999 }}",
            "{{ range(99999999999) | list }}",
            "{{ [0] * 99999999 | tojson }}",
        ] {
            let rendered = render(source);
            assert!(rendered.starts_with("`test.gguf`: `chat_template`: "), "{source}: {} bytes", rendered.len());
            assert!(rendered.len() < 300 && !rendered.contains('\n'), "{rendered}");
        }
    }

    #[test]
    fn errors_say_what_and_where() {
        insta::assert_snapshot!(render("{{ raise_exception('Roles must\nalternate') }}"), @"`test.gguf`: `chat_template`: Roles must alternate (line 1 of the template)");
        insta::assert_snapshot!(render("\n{% if %}"), @"`test.gguf`: `chat_template`: unexpected end of block (line 2 of the template)");
        insta::assert_snapshot!(render("{{ messages[0].content.frobnicate() }}"), @"`test.gguf`: `chat_template`: string has no method named frobnicate (line 1 of the template)");
        insta::assert_snapshot!(render("{% while true %}"), @"`test.gguf`: `chat_template`: unknown statement while (line 1 of the template)");
        insta::assert_snapshot!(render("{{ strftime_now('%') }}"), @"`test.gguf`: `chat_template`: strftime_now: `%` is not a time format (line 1 of the template)");
        insta::assert_snapshot!(render(&format!("{{{{ {}", "(".repeat(400))), @"`test.gguf`: `chat_template`: template exceeds maximum recursion limits (line 1 of the template)");
        insta::assert_snapshot!(render(&format!("\n{{{{ {}", "(".repeat(2000))), @"`test.gguf`: `chat_template`: an expression has more than 500 tokens (line 2 of the template)");
        insta::assert_snapshot!(render("\n{% if 1 in [0] * 99999999 %}"), @"`test.gguf`: `chat_template`: repeating a list with `*` is not supported (line 2 of the template)");
    }

    fn from_directory(files: &[(&str, &str)]) -> std::result::Result<Option<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(directory.path().join(name), content).unwrap();
        }
        let template = ChatTemplate::from_directory(directory.path());
        let source =
            template.and_then(|t| t.map(|t| t.render::<ChatMessage>(&[], &ChatOptions::default())).transpose());
        source.map_err(|error| error.to_string().replace(&directory.path().display().to_string(), "DIR"))
    }

    #[test]
    fn the_file_wins_over_the_config_and_lists_are_searched() {
        let string = r#"{"chat_template": "config {{ bos_token }}", "bos_token": {"content": "<b>"}}"#;
        assert_eq!(from_directory(&[]), Ok(None));
        assert_eq!(from_directory(&[("tokenizer_config.json", "{}")]), Ok(None));
        assert_eq!(from_directory(&[("tokenizer_config.json", string)]), Ok(Some("config <b>".into())));
        let both = [("tokenizer_config.json", string), ("chat_template.jinja", "file {{ bos_token }}")];
        assert_eq!(from_directory(&both), Ok(Some("file <b>".into())));
        let list =
            r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]}"#;
        assert_eq!(from_directory(&[("tokenizer_config.json", list)]), Ok(Some("d".into())));
        let wrong = |config| from_directory(&[("tokenizer_config.json", config)]).unwrap_err();
        insta::assert_snapshot!(wrong(r#"{"chat_template": 5}"#), @"`DIR/tokenizer_config.json`: `chat_template`: is neither a string nor a list");
        insta::assert_snapshot!(wrong(r#"{"chat_template": [{"name": "default"}]}"#), @r#"`DIR/tokenizer_config.json`: `chat_template`: is a list whose entries are not all `{"name": …, "template": …}`"#);
        insta::assert_snapshot!(wrong(r#"{"chat_template": [{"name": "a", "template": ""}, {"name": "b", "template": ""}]}"#), @"`DIR/tokenizer_config.json`: `chat_template`: none of the templates is named `default` (there are: a, b)");
    }
}
