//! `config`: the configuration of `serve`.

use lodestore_server::options::{OPTIONS, OptionError, OptionSpec, Resolved};
use serde_json::{Map, Value, json};

use crate::args::{ConfigArgs, ConfigCommand, ShowArgs};
use crate::failure::Outcome;
use crate::out::Out;

/// Shown in place of a secret.
const HIDDEN: &str = "(hidden)";

/// Shows or checks the configuration.
pub fn run(args: &ConfigArgs) -> Outcome {
    match &args.command {
        ConfigCommand::Show(args) => show(args),
        ConfigCommand::Check(args) => check(args),
    }
}

fn check(args: &ShowArgs) -> Outcome {
    let resolved = args.options.resolve()?;
    resolved.config.check().map_err(OptionError::Config)?;
    let mut out = Out::new();
    if args.json {
        out.json(super::object([("valid", true.into())]))?;
    } else {
        out.line("the configuration is valid")?;
    }
    out.flush()
}

fn show(args: &ShowArgs) -> Outcome {
    let resolved = args.options.resolve()?;
    let mut out = Out::new();
    if args.json {
        out.json(as_json(&resolved))?;
    } else {
        for line in as_toml(&resolved) {
            out.line(line)?;
        }
    }
    out.flush()
}

/// Returns the options that are shown, with their origins.
fn shown_options(resolved: &Resolved) -> impl Iterator<Item = (&'static OptionSpec, String)> {
    OPTIONS.iter().filter(|option| option.part_of.is_none()).map(|option| (option, resolved.origin(option)))
}

fn values_of(option: &OptionSpec, resolved: &Resolved) -> Vec<String> {
    let values = option.values(&resolved.config);
    if option.is_secret { values.into_iter().map(|_| HIDDEN.to_owned()).collect() } else { values }
}

/// Returns a value as TOML and JSON literals. Numbers stay numbers.
fn literal(value: &str) -> Value {
    value.parse::<u64>().map_or_else(|_| value.into(), Value::from)
}

fn as_json(resolved: &Resolved) -> Map<String, Value> {
    shown_options(resolved)
        .map(|(option, origin)| {
            let mut values: Vec<Value> = values_of(option, resolved).iter().map(|value| literal(value)).collect();
            let value = match option.is_list {
                true => values.into(),
                false => values.pop().unwrap_or(Value::Null),
            };
            (option.name.to_owned(), json!({"value": value, "origin": origin}))
        })
        .collect()
}

/// Returns lines of TOML. An option without a value and a secret are comments.
fn as_toml(resolved: &Resolved) -> Vec<String> {
    let mut rows = Vec::new();
    for (option, origin) in shown_options(resolved) {
        let values: Vec<String> = values_of(option, resolved).iter().map(|value| literal(value).to_string()).collect();
        let is_comment = option.is_secret || (values.is_empty() && !option.is_list);
        let value = if option.is_list { format!("[{}]", values.join(", ")) } else { values.concat() };
        let mark = if is_comment { "# " } else { "" };
        rows.push((format!("{mark}{} = {value}", option.name), origin));
    }
    let width = rows.iter().map(|(row, _)| row.len()).max().unwrap_or(0);
    rows.iter().map(|(row, origin)| format!("{row:width$}  # {origin}")).collect()
}
