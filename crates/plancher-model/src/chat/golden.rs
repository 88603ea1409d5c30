//! Rendered prompts against those of Hugging Face transformers (`tests/make_chat_goldens.py` made them). Most
//! of the templates are not part of the project: `tests/fetch` brings them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::{ChatOptions, ChatTemplate, DEFAULT};

#[derive(Deserialize)]
struct Golden {
    special_tokens: Map<String, Value>,
    conversations: BTreeMap<String, Map<String, Value>>,
    rendered: BTreeMap<String, Rendered>,
}

#[derive(Deserialize)]
struct Rendered {
    sha256: String,
    cases: BTreeMap<String, Value>,
}

/// The time at which the goldens were rendered.
fn clock() -> chrono::NaiveDateTime {
    "2025-01-02T03:04:05".parse().unwrap()
}

fn render(golden: &Golden, source: &str, conversation: &str) -> Result<String, String> {
    let mut conversation = golden.conversations[conversation].clone();
    let messages = conversation.remove("messages").unwrap();
    let options = ChatOptions {
        add_generation_prompt: conversation.remove("add_generation_prompt").unwrap().as_bool().unwrap(),
        tools: conversation.remove("tools"),
        variables: conversation,
    };
    let templates = vec![(DEFAULT.to_owned(), source.to_owned())];
    let template = ChatTemplate::new("test.jinja".as_ref(), templates, golden.special_tokens.clone(), clock);
    template.render(messages.as_array().unwrap(), &options).map_err(|error| error.to_string())
}

#[test]
fn prompts_equal_those_of_transformers() {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let golden = std::fs::read(manifest.join("tests/data/chat/golden.json")).unwrap();
    let golden: Golden = serde_json::from_slice(&golden).unwrap();
    let data =
        std::env::var_os("PLANCHER_TEST_DATA").map_or_else(|| manifest.join("../../target/test-data"), Into::into);
    let directories = [manifest.join("tests/data/chat"), data.join("templates")];
    let (mut compared, mut wrong) = (0, Vec::new());
    for (name, rendered) in &golden.rendered {
        let Some(source) = directories.iter().find_map(|path| std::fs::read_to_string(path.join(name)).ok()) else {
            println!("skipped: template `{name}` is not there (tests/fetch brings it)");
            continue;
        };
        let sha256 = crate::source::hex(&Sha256::digest(&source));
        assert_eq!(sha256, rendered.sha256, "`{name}` is not the template the goldens were made from");
        for (conversation, expected) in &rendered.cases {
            let actual = render(&golden, &source, conversation);
            let same = match (expected, &actual) {
                (Value::String(expected), Ok(actual)) => expected == actual,
                (Value::Object(refused), Err(message)) => {
                    // Messages are printed in one line.
                    let expected: Vec<&str> = refused["refused"].as_str().unwrap().split_whitespace().collect();
                    message.contains(&expected.join(" "))
                }
                _ => false,
            };
            compared += 1;
            if !same {
                wrong.push(format!("{name}, {conversation}:\n  expected {expected}\n  rendered {actual:?}"));
            }
        }
    }
    println!("{compared} prompts compared");
    assert!(wrong.is_empty(), "{} of {compared} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared >= 30, "only {compared} prompts were compared");
}

#[test]
fn long_conversations_are_rendered() {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let data =
        std::env::var_os("PLANCHER_TEST_DATA").map_or_else(|| manifest.join("../../target/test-data"), Into::into);
    let turns = |count: usize, bytes: usize| -> Vec<Value> {
        let role = |turn| if turn % 2 == 0 { "user" } else { "assistant" };
        (0..count).map(|turn| serde_json::json!({"role": role(turn), "content": "word ".repeat(bytes / 5)})).collect()
    };
    let tool = serde_json::json!({"type": "function", "function": {"name": "find", "description": "Finds things.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string", "description": "a word"}}}}});
    let mut rendered = 0;
    for directory in [manifest.join("tests/data/chat"), data.join("templates")] {
        for path in std::fs::read_dir(directory).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.extension().is_none_or(|extension| extension != "jinja") {
                continue;
            }
            let templates = vec![(DEFAULT.to_owned(), std::fs::read_to_string(&path).unwrap())];
            let template = ChatTemplate::new(&path, templates, Map::new(), clock);
            for (messages, tools) in [(turns(1001, 100), 0), (turns(201, 20), 50), (turns(1, 4_000_000), 0)] {
                let tools = (tools > 0).then(|| vec![tool.clone(); tools].into());
                let options = ChatOptions { add_generation_prompt: true, tools, ..Default::default() };
                match template.render(&messages, &options) {
                    Ok(_) => rendered += 1,
                    // Some take no tools, or want fields of their own; none may run out of steps.
                    Err(error) => assert!(!error.to_string().contains("steps"), "{error}"),
                }
            }
        }
    }
    assert!(rendered >= 6, "only {rendered} conversations were rendered");
}
