//! Reads the syntax of a command, for the field `arguments` of `COMMAND DOCS`.
//!
//! A syntax has these parts:
//!
//! * A word in lower case is an argument. A word in upper case is a token, and the arguments that
//!   follow belong to the token.
//! * `[a]` is optional. `a | b` is a choice.
//! * `a [a ...]` is one argument or several, and `[a ...]` is any number of arguments.

use std::iter::Peekable;
use std::vec::IntoIter;

/// The form of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Form {
    Value,
    /// The token alone.
    Token,
    OneOf(Vec<Argument>),
    Block(Vec<Argument>),
}

/// An argument of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) form: Form,
    /// The word in upper case before the argument.
    pub(crate) token: Option<String>,
    pub(crate) is_optional: bool,
    pub(crate) is_multiple: bool,
}

impl Argument {
    fn new(name: &str, form: Form) -> Self {
        Self { name: name.to_ascii_lowercase(), form, token: None, is_optional: false, is_multiple: false }
    }

    fn with_token(mut self, token: String) -> Self {
        self.token = Some(token);
        self
    }
}

/// Arguments that follow each other.
#[derive(Debug)]
struct Sequence {
    arguments: Vec<Argument>,
    /// Whether `...` ends the sequence.
    is_repeated: bool,
}

impl Sequence {
    /// Returns the sequence as one argument.
    fn into_argument(mut self) -> Argument {
        let mut argument = if self.arguments.len() == 1 {
            self.arguments.remove(0)
        } else {
            let name = self.arguments.first().map_or("arguments", |first| first.name.as_str()).to_string();
            Argument::new(&name, Form::Block(self.arguments))
        };
        argument.is_multiple |= self.is_repeated;
        argument
    }
}

type Words = Peekable<IntoIter<String>>;

/// Returns the arguments of a syntax.
pub(crate) fn parse(syntax: &str) -> Vec<Argument> {
    let spaced = syntax.replace('[', " [ ").replace(']', " ] ");
    let words: Vec<String> = spaced.split_whitespace().map(str::to_string).collect();
    parse_choice(&mut words.into_iter().peekable()).arguments
}

/// Reads sequences with `|` between them.
fn parse_choice(words: &mut Words) -> Sequence {
    let mut choices = vec![parse_sequence(words)];
    while words.next_if(|word| word == "|").is_some() {
        choices.push(parse_sequence(words));
    }
    if choices.len() == 1 {
        return choices.remove(0);
    }
    let choices = choices.into_iter().map(Sequence::into_argument).collect();
    Sequence { arguments: vec![Argument::new("option", Form::OneOf(choices))], is_repeated: false }
}

fn parse_sequence(words: &mut Words) -> Sequence {
    let mut sequence = Sequence { arguments: Vec::new(), is_repeated: false };
    while let Some(word) = words.next_if(|word| word != "|" && word != "]") {
        match word.as_str() {
            "[" => {
                let inner = parse_choice(words);
                words.next();
                add_optional(&mut sequence.arguments, inner);
            }
            "..." => sequence.is_repeated = true,
            _ if is_token(&word) => sequence.arguments.push(parse_token(word, words)),
            _ => sequence.arguments.push(Argument::new(&word, Form::Value)),
        }
    }
    sequence
}

fn is_token(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
}

/// Reads the arguments that belong to a token.
fn parse_token(token: String, words: &mut Words) -> Argument {
    let is_value = |word: &String| word.starts_with(|first: char| first.is_ascii_lowercase());
    let mut values = Vec::new();
    while let Some(value) = words.next_if(is_value) {
        values.push(Argument::new(&value, Form::Value));
    }
    match values.len() {
        0 => Argument::new(&token, Form::Token).with_token(token),
        1 => values.remove(0).with_token(token),
        _ => Argument::new(&token, Form::Block(values)).with_token(token),
    }
}

/// Adds the content of brackets. `a [a ...]` is one argument that may be repeated.
fn add_optional(arguments: &mut Vec<Argument>, inner: Sequence) {
    let before = arguments.len().saturating_sub(inner.arguments.len());
    if inner.is_repeated && arguments[before..] == inner.arguments[..] {
        arguments.truncate(before);
        arguments.push(inner.into_argument());
        return;
    }
    let mut argument = inner.into_argument();
    argument.is_optional = true;
    arguments.push(argument);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_specs::table::COMMANDS;

    fn join(arguments: &[Argument], separator: &str) -> String {
        arguments.iter().map(show).collect::<Vec<_>>().join(separator)
    }

    /// Returns the syntax of an argument.
    fn show(argument: &Argument) -> String {
        let body = match &argument.form {
            Form::Value => argument.name.clone(),
            Form::Token => String::new(),
            Form::OneOf(choices) => join(choices, " | "),
            Form::Block(arguments) => join(arguments, " "),
        };
        let token = argument.token.clone().unwrap_or_default();
        let body = format!("{token} {body}").trim().to_string();
        match (argument.is_optional, argument.is_multiple) {
            (false, false) => body,
            (true, false) => format!("[{body}]"),
            (false, true) => format!("{body} [{body} ...]"),
            (true, true) => format!("[{body} ...]"),
        }
    }

    #[test]
    fn the_arguments_of_each_command_have_its_syntax() {
        for spec in COMMANDS.iter() {
            assert_eq!(join(&parse(spec.syntax), " "), spec.syntax, "{}", spec.name);
        }
    }

    #[test]
    fn repeated_arguments_and_tokens_are_one_argument() {
        let arguments = parse("key field value [field value ...] [EX seconds | KEEPTTL] [AUTH user password]");
        assert_eq!(arguments.len(), 4);
        assert!(matches!(&arguments[1].form, Form::Block(pair) if pair.len() == 2));
        assert!(arguments[1].is_multiple && !arguments[1].is_optional);
        assert!(matches!(&arguments[2].form, Form::OneOf(choices) if choices[0].token.as_deref() == Some("EX")));
        assert_eq!(arguments[3].token.as_deref(), Some("AUTH"));
    }
}
