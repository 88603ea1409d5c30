//! Compiles a template and adds to its instructions what charges for their work (see [`charge`](super::charge)),
//! and refuses sources that would take the compiler too long.

use std::collections::BTreeMap;

use minijinja::machinery::{CompiledTemplate, Instruction, Instructions, TemplateConfig, Token, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Error};

use super::charge::refused;

/// The longest template, in bytes; real ones stay below 40 KiB.
pub(super) const MAX_SOURCE: usize = 1 << 18;
/// Tokens of one tag: the compiler's nesting is as deep as an expression is long.
const MAX_TOKENS: usize = 500;
/// `{% elif %}`s of a template, for they are nested too.
const MAX_ELIFS: usize = 200;
/// No local slot: the filter or test is looked up by name.
const NO_SLOT: u8 = u8::MAX;

/// A template's instructions and those of its blocks.
pub(super) struct Program<'source> {
    pub instructions: Instructions<'source>,
    pub blocks: BTreeMap<&'source str, Instructions<'source>>,
}

/// Compiles a template into a program that pays for what it does.
pub(super) fn compile<'source>(
    name: &'source str,
    source: &'source str,
    syntax: &SyntaxConfig,
) -> Result<Program<'source>, Error> {
    check_source(source, syntax)?;
    let config = TemplateConfig {
        syntax_config: syntax.clone(),
        default_auto_escape: std::sync::Arc::new(|_| AutoEscape::None),
    };
    let compiled = CompiledTemplate::new(name, source, &config)?;
    let blocks = compiled.blocks.iter().map(|(name, block)| Ok((*name, guarded(block)?)));
    Ok(Program { instructions: guarded(&compiled.instructions)?, blocks: blocks.collect::<Result<_, Error>>()? })
}

fn check_source(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    if source.len() > MAX_SOURCE {
        return Err(refused(format!("is {} bytes long; {MAX_SOURCE} are supported", source.len())));
    }
    let (mut tag, mut elifs) = (Vec::new(), 0);
    // What is no token is the compiler's to complain about.
    for (token, span) in tokenize(source, false, syntax.clone()).map_while(Result::ok) {
        let at = |problem: &str| refused(format!("{problem} (line {} of the template)", span.start_line));
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tag.clear(),
            _ => tag.push(token),
        }
        if tag.len() > MAX_TOKENS {
            return Err(at(&format!("an expression has more than {MAX_TOKENS} tokens")));
        }
        if matches!(tag[..], [Token::Ident("elif")]) {
            elifs += 1;
            if elifs > MAX_ELIFS {
                return Err(at(&format!("there are more than {MAX_ELIFS} `elif`s")));
            }
        }
        // The compiler computes with constants, and nothing bounds what it does with a repeated list.
        let repeats = match tag[..] {
            [ref before @ .., Token::Mul] => ends_in_literal(before),
            [.., Token::Mul, Token::BracketOpen] => true,
            [ref before @ .., Token::ParenClose] => repeated_group(before),
            _ => false,
        };
        if repeats {
            return Err(at("repeating a list with `*` is not supported"));
        }
    }
    Ok(())
}

/// The tokens inside of a bracket that ends behind `tokens`, and those before it.
fn group<'t, 's>(tokens: &'t [Token<'s>]) -> Option<(&'t [Token<'s>], &'t [Token<'s>])> {
    let mut depth = 0_usize;
    for (position, token) in tokens.iter().enumerate().rev() {
        match token {
            Token::BracketClose | Token::ParenClose | Token::BraceClose => depth += 1,
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen if depth == 0 => {
                return Some((&tokens[position + 1..], &tokens[..position]));
            }
            Token::BracketOpen | Token::ParenOpen | Token::BraceOpen => depth -= 1,
            _ => {}
        }
    }
    None
}

fn holds_list(tokens: &[Token<'_>]) -> bool {
    tokens.iter().any(|token| matches!(token, Token::BracketOpen | Token::Comma))
}

/// Whether the last operand in `tokens` is a list, or a group with one in it, rather than an index or a call.
fn ends_in_literal(tokens: &[Token<'_>]) -> bool {
    let Some((last, before)) = tokens.split_last() else { return false };
    let is_list = matches!(last, Token::BracketClose);
    if !is_list && !matches!(last, Token::ParenClose) {
        return false;
    }
    let Some((inside, before_group)) = group(before) else { return false };
    let keywords = ["in", "and", "or", "not", "if", "elif", "else", "is", "do"];
    let is_postfix = match before_group.last() {
        Some(Token::Ident(name)) => !keywords.contains(name),
        Some(Token::BracketClose | Token::ParenClose | Token::BraceClose | Token::Str(_) | Token::String(_)) => true,
        _ => false,
    };
    !is_postfix && (is_list || holds_list(inside))
}

/// Whether the group that ends behind `tokens` is multiplied with what is before it, and has a list in it.
fn repeated_group(tokens: &[Token<'_>]) -> bool {
    group(tokens).is_some_and(|(inside, before)| {
        let operand = before.iter().rev().find(|token| !matches!(token, Token::ParenOpen | Token::Minus));
        matches!(operand, Some(Token::Mul)) && holds_list(inside)
    })
}

/// The same instructions with charges around those that walk values.
fn guarded<'source>(original: &Instructions<'source>) -> Result<Instructions<'source>, Error> {
    let mut result = Vec::new();
    let mut starts = Vec::new();
    for (position, instruction) in (0..).map_while(|position| Some((position, original.get(position)?))) {
        starts.push(result.len() as u32);
        let line = original.get_line(position).unwrap_or_default();
        add(instruction, &mut |instruction| result.push((instruction, line)))?;
    }
    starts.push(result.len() as u32);
    let mut guarded = Instructions::new(original.name(), original.source());
    for (mut instruction, line) in result {
        if let Instruction::Iterate(target)
        | Instruction::Jump(target)
        | Instruction::JumpIfFalse(target)
        | Instruction::JumpIfFalseOrPop(target)
        | Instruction::JumpIfTrueOrPop(target)
        | Instruction::BuildMacro(_, target, _) = &mut instruction
        {
            *target = starts.get(*target as usize).copied().unwrap_or(*target);
        }
        guarded.add_with_line(instruction, u16::try_from(line).unwrap_or(u16::MAX));
    }
    Ok(guarded)
}

/// Emits one instruction with what it needs before and behind it.
fn add<'source>(instruction: &Instruction<'source>, emit: &mut impl FnMut(Instruction<'source>)) -> Result<(), Error> {
    use Instruction as I;
    let filter = |name, count| I::ApplyFilter(name, Some(count), NO_SLOT);
    match instruction {
        I::Add
        | I::Mul
        | I::Eq
        | I::Ne
        | I::Gt
        | I::Gte
        | I::Lt
        | I::Lte
        | I::StringConcat
        | I::In
        | I::CompareAndPreserve(_) => {
            for _ in 0..2 {
                check("charged!", emit);
                emit(I::Swap);
            }
            emit(instruction.clone());
            if matches!(instruction, I::Add | I::Mul) {
                emit(filter("made!", 1));
            }
        }
        I::GetItem => {
            check("charged!", emit);
            emit(I::GetItem);
        }
        I::SetAttr(_) => {
            emit(I::Swap);
            check("plain!", emit);
            emit(I::Swap);
            emit(instruction.clone());
        }
        I::Slice => emit(filter("slice!", 4)),
        I::BuildMap(pairs) if *pairs > 0 => {
            let count = u16::try_from(pairs * 2).map_err(|_| refused("a mapping has too many entries"))?;
            emit(filter("map!", count));
        }
        I::CallMethod("changed", _) => return Err(refused("`loop.changed` is not supported")),
        I::BuildList(_) | I::BuildTuple(_) | I::CallFunction(..) | I::CallObject(_) | I::CallMethod(..) => {
            emit(instruction.clone());
            emit(filter("made!", 1));
        }
        I::ApplyFilter(name, ..) if makes_lists(name) => {
            emit(instruction.clone());
            emit(filter("made!", 1));
        }
        _ => emit(instruction.clone()),
    }
    Ok(())
}

/// Emits a test of the value on top of the stack, for the errors it can end in. Unlike filters, tests are not
/// charged for copies of strings.
fn check<'source>(name: &'source str, emit: &mut impl FnMut(Instruction<'source>)) {
    emit(Instruction::DupTop);
    emit(Instruction::PerformTest(name, Some(1), NO_SLOT));
    emit(Instruction::DiscardTop);
}

/// Filters whose result can be a new list.
fn makes_lists(name: &str) -> bool {
    let strings = ["default", "d", "join", "length", "lower", "replace", "string", "tojson", "trim", "upper"];
    !strings.contains(&name)
}
