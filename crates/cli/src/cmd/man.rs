//! `man`.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::args::Cli;
use crate::failure::{Failure, Outcome, file_failure};
use crate::out::Out;

/// Writes the manual: all pages to `dir`, or the main page to standard output.
pub fn run(dir: Option<&Path>) -> Outcome {
    let mut out = Out::new();
    let Some(dir) = dir else {
        let page = render(Cli::command())?;
        out.bytes(&page)?;
        return out.flush();
    };
    fs::create_dir_all(dir).map_err(file_failure("making", dir))?;
    let mut main = Cli::command();
    clap_mangen::generate_to(main.clone(), dir).map_err(file_failure("writing to", dir))?;
    main = main.disable_help_subcommand(true);
    main.build();
    out.line(format!("wrote {} pages to {}", pages(&main), dir.display()))?;
    out.flush()
}

/// Returns the number of pages of a command and of each command below it.
fn pages(command: &clap::Command) -> usize {
    1 + command.get_subcommands().filter(|below| !below.is_hide_set()).map(pages).sum::<usize>()
}

fn render(command: clap::Command) -> Outcome<Vec<u8>> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page).map_err(Failure::Output)?;
    Ok(page)
}
