//! Flags of `serve` and `config`, made from the server's table of options. The names of Redis are
//! hidden flags, which the help of an option names.

use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand, value_parser};
use lodestore_server::Config;
use lodestore_server::options::{FILE_VARIABLE, OPTIONS, OptionSpec, Resolved, constants, resolve};

use crate::failure::Outcome;

/// Name of the option that an argument gives instead of a flag.
const STORE: &str = "store";

/// `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub options: ServerOptions,
}

/// `config`.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

/// The commands on the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Write the options of `serve` with the same flags, as TOML, and where each comes from
    Show(ShowArgs),
    /// Check the options of `serve` with the same flags
    Check(ShowArgs),
}

/// `config show`, `config check`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    #[command(flatten)]
    pub options: ServerOptions,
    /// Write JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of a server that the command line sets.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    file: Option<PathBuf>,
    flags: Vec<(&'static str, Vec<String>)>,
}

impl ServerOptions {
    /// Combines the flags with the environment and the file. The result is not checked.
    ///
    /// # Errors
    ///
    /// A failure that names the source of the refused value.
    pub fn resolve(&self) -> Outcome<Resolved> {
        let file = self.file.clone().or_else(|| std::env::var_os(FILE_VARIABLE).map(PathBuf::from));
        Ok(resolve(file.as_deref(), std::env::vars_os(), &self.flags)?)
    }
}

impl Args for ServerOptions {
    fn augment_args(command: Command) -> Command {
        let store = Arg::new(STORE).value_name("STORE").help(
            "The store's directory. Default: $LODESTORE_STORE, or a directory that the server chooses and prints",
        );
        let file = Arg::new("config")
            .long("config")
            .value_name("FILE")
            .value_parser(value_parser!(PathBuf))
            .help("Read options from this TOML file [environment: LODESTORE_CONFIG]");
        let options = OPTIONS.iter().filter(|option| option.name != STORE);
        let flags = options.flat_map(|option| option.names().map(|name| flag(option, name)));
        let constants = constants().iter().map(|(name, _)| Arg::new(name).long(name).hide(true));
        command.arg(store).arg(file).args(flags).args(constants)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Returns the flag of an option with one of its names.
fn flag(option: &'static OptionSpec, name: &'static str) -> Arg {
    let default = option.value(&Config::default());
    let mut help = option.help.to_owned();
    if !option.bounds.is_empty() {
        help += &format!(" ({})", option.bounds);
    }
    if !default.is_empty() && option.part_of.is_none() && !option.is_switch {
        help += &format!(" [default: {default}]");
    }
    if let Some(alias) = option.names().nth(1) {
        help += &format!(" [Redis: --{alias}]");
    }
    let arg = Arg::new(name).long(name).value_name(option.takes).help(help).hide(name != option.name);
    match (option.is_switch, option.is_list) {
        (true, _) => arg.num_args(0..=1).require_equals(true).default_missing_value("yes"),
        (false, true) => arg.action(ArgAction::Append),
        (false, false) => arg.allow_hyphen_values(true),
    }
}

impl FromArgMatches for ServerOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut options = Self::default();
        options.update_from_arg_matches(matches)?;
        Ok(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one("config").cloned();
        let names = OPTIONS.iter().flat_map(OptionSpec::names).chain(constants().iter().map(|(name, _)| *name));
        let values = |name| Some((name, matches.get_many::<String>(name)?.cloned().collect()));
        self.flags = names.filter_map(values).collect();
        Ok(())
    }
}
