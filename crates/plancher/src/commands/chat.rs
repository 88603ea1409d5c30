//! `chat`: a conversation in the terminal that keeps what it computed.

use std::io::{BufRead, IsTerminal};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use plancher_engine::{FinishReason, Request, Sequence};
use plancher_model::{ChatMessage, Model};
use rustyline::error::ReadlineError;

use crate::arguments::{ModelOption, RunOptions, SamplingOptions};
use crate::interrupt::Ignored;
use crate::session::{self, Session};
use crate::{answer, output, prompt};

/// Talk with a model in the terminal
///
/// The conversation's keys and values stay in memory between turns, so that only what is new is computed. Ctrl-C ends
/// an answer, not the program. Lines can be edited and recalled; standard input may also be a pipe, one message a
/// line.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Arguments {
    #[command(flatten)]
    model: ModelOption,
    /// System message before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// End an answer after N tokens [default: at an end token or the end of the context]
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    max_tokens: Option<usize>,
    /// End an answer before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    #[command(flatten)]
    run: RunOptions,
    #[command(flatten)]
    sampling: SamplingOptions,
}

const HELP: &str = "\
In the conversation:
  /reset  Forget everything said so far
  /help   Show these commands
  /exit   Leave (also Ctrl-D)
  Ctrl-C  End the answer that is being produced";

const PROMPT: &str = "> ";

/// Where lines come from.
enum Input {
    /// The editor reads Ctrl-C as a key; between its prompts the signal is ignored.
    Terminal(Box<rustyline::DefaultEditor>, Ignored),
    Pipe(std::io::Lines<std::io::StdinLock<'static>>),
}

impl Input {
    fn open() -> anyhow::Result<Self> {
        if !std::io::stdin().is_terminal() {
            return Ok(Self::Pipe(std::io::stdin().lock().lines()));
        }
        let mut editor = rustyline::DefaultEditor::new().context("the terminal")?;
        if let Some(path) = history_path() {
            // The first conversation has no history yet.
            let _ = editor.load_history(&path);
        }
        Ok(Self::Terminal(Box::new(editor), Ignored::begin()?))
    }

    /// The next line; `None` at the end.
    fn line(&mut self) -> anyhow::Result<Option<String>> {
        match self {
            Self::Pipe(lines) => Ok(lines.next().transpose().context("standard input")?),
            Self::Terminal(editor, _) => loop {
                match editor.readline(PROMPT) {
                    Ok(line) => {
                        let _ = editor.add_history_entry(&line);
                        return Ok(Some(line));
                    }
                    Err(ReadlineError::Interrupted) => output::note("/exit or Ctrl-D to leave"),
                    Err(ReadlineError::Eof) => return Ok(None),
                    Err(error) => return Err(error).context("the terminal"),
                }
            },
        }
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let (Self::Terminal(editor, _), Some(path)) = (self, history_path()) {
            let saved = path.parent().map_or(Ok(()), std::fs::create_dir_all).map(|()| editor.save_history(&path));
            if !matches!(saved, Ok(Ok(()))) {
                tracing::warn!("the history could not be kept in `{}`", path.display());
            }
        }
    }
}

/// Where the history of lines is kept.
fn history_path() -> Option<std::path::PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(std::path::PathBuf::from);
    let state = state.or_else(|| std::env::home_dir().map(|home| home.join(".local/state")))?;
    Some(state.join("plancher/history"))
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let run = &arguments.run;
    let mut session = Session::open(&arguments.model.model, &run.placement, run.restrictions())?;
    // Say at once, not after the first message, that this model cannot chat.
    prompt::chat_tokens(&session.model, &[ChatMessage::new("user", "")])?;
    let sequence = session.sequence(run, session::context(&session.model, run.context)?)?;
    let mut conversation = Conversation { model: &session.model, arguments, sequence, messages: Vec::new() };
    conversation.reset();
    let mut input = Input::open()?;
    while let Some(line) = input.line()? {
        match line.trim() {
            "" => {}
            "/exit" | "/quit" => break,
            "/reset" => {
                conversation.reset();
                output::note("the conversation begins anew");
            }
            "/help" => output::note(HELP),
            command if command.starts_with('/') && !command.contains(char::is_whitespace) => {
                output::note(&format!("`{command}` is not a command; /help lists them"));
            }
            message => conversation.turn(message)?,
        }
    }
    Ok(())
}

struct Conversation<'a> {
    model: &'a Model,
    arguments: &'a Arguments,
    sequence: Sequence,
    messages: Vec<ChatMessage>,
}

impl Conversation<'_> {
    fn reset(&mut self) {
        self.sequence.reset();
        self.messages.clear();
        self.messages.extend(self.arguments.system.iter().map(|text| ChatMessage::new("system", text)));
    }

    /// Sends a message and shows the answer.
    fn turn(&mut self, message: &str) -> anyhow::Result<()> {
        let started = Instant::now();
        self.messages.push(ChatMessage::new("user", message));
        let tokens = prompt::chat_tokens(self.model, &self.messages)?;
        let capacity = self.sequence.backend().capacity();
        if tokens.len() >= capacity {
            self.messages.pop();
            output::note(&format!(
                "the conversation has {} tokens with this message but the context holds {capacity}: /reset to begin anew",
                tokens.len()
            ));
            return Ok(());
        }
        let request = Request {
            prompt: tokens,
            max_tokens: self.arguments.max_tokens,
            sampling: self.arguments.sampling.resolve(&self.model.generation),
            stop: self.arguments.stop.clone(),
            end_tokens: prompt::end_tokens(self.model),
            logprobs: None,
        };
        let answer = answer::produce(self.model, &mut self.sequence, &request, started, true)?;
        output::text("\n")?;
        if answer.generation.finish_reason == FinishReason::Length && self.arguments.max_tokens.is_none() {
            output::note("the context is full: /reset to begin anew");
        }
        output::note(&answer.summary());
        self.messages.push(ChatMessage::new("assistant", answer.generation.text));
        Ok(())
    }
}
