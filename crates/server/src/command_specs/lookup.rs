//! Finds commands by name, and numbers commands and subcommands for permissions.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::categories;
use super::spec::CommandSpec;
use super::subcommands::{SubcommandSpec, subcommands_of};
use super::table::COMMANDS;

/// Longest name of a command in bytes.
const NAME_BYTES_MAX: usize = 32;

/// Number of a command or subcommand.
pub(crate) type PermissionId = usize;

/// A command, its subcommands, and their numbers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    /// Index of the command in the table.
    pub(crate) index: usize,
    pub(crate) spec: &'static CommandSpec,
    pub(crate) id: PermissionId,
    pub(crate) subcommands: &'static [SubcommandSpec],
    /// The subcommands have the numbers from this one on.
    pub(crate) first_subcommand: PermissionId,
}

/// A permission: a command or a subcommand.
#[derive(Debug, Clone, Copy)]
struct Permission {
    name: &'static str,
    categories: u32,
}

/// All commands by name, and all permissions by number.
struct Registry {
    entries: HashMap<&'static [u8], Entry, foldhash::fast::RandomState>,
    permissions: Vec<Permission>,
}

static REGISTRY: LazyLock<Registry> = LazyLock::new(|| {
    let mut entries = HashMap::default();
    let mut permissions: Vec<Permission> = Vec::new();
    for (index, spec) in COMMANDS.iter().copied().enumerate() {
        let subcommands = subcommands_of(spec.name);
        let id = permissions.len();
        permissions.push(Permission { name: spec.name, categories: categories::of_command(spec) });
        permissions
            .extend(subcommands.iter().map(|sub| Permission { name: sub.full_name, categories: sub.categories }));
        entries.insert(spec.name.as_bytes(), Entry { index, spec, id, subcommands, first_subcommand: id + 1 });
    }
    Registry { entries, permissions }
});

/// Returns the entry of a command. Names are case-insensitive.
pub(crate) fn find_entry(name: &[u8]) -> Option<Entry> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    REGISTRY.entries.get(&*lower).copied()
}

/// Returns the description of a command. Names have no case.
pub(crate) fn find(name: &[u8]) -> Option<&'static CommandSpec> {
    find_entry(name).map(|entry| entry.spec)
}

/// Returns the subcommand with a full name, as in `config|get`. Names have no case.
pub(crate) fn find_subcommand(full_name: &[u8]) -> Option<&'static SubcommandSpec> {
    let bar = full_name.iter().position(|byte| *byte == b'|')?;
    let (command, name) = (&full_name[..bar], &full_name[bar + 1..]);
    find_entry(command)?.subcommands.iter().find(|known| known.name().as_bytes().eq_ignore_ascii_case(name))
}

/// Returns the number of permissions.
pub(crate) fn permission_count() -> usize {
    REGISTRY.permissions.len()
}

/// Returns the name of a permission as the table has it: `get`, or `config|get`.
pub(crate) fn permission_name(name: &str) -> Option<&'static str> {
    if name.contains('|') {
        return find_subcommand(name.as_bytes()).map(|subcommand| subcommand.full_name);
    }
    find(name.as_bytes()).map(|spec| spec.name)
}

/// Iterates over the numbers of a permission's name: a command includes all of its subcommands. The
/// name is one of the table.
pub(crate) fn ids_of(name: &str) -> impl Iterator<Item = PermissionId> {
    let command = name.split_once('|').map_or(name, |(command, _)| command);
    let entry = find_entry(command.as_bytes());
    let range = entry.map_or(0..0, |entry| entry.id..entry.first_subcommand + entry.subcommands.len());
    let is_whole = command.len() == name.len();
    range.filter(move |id| is_whole || REGISTRY.permissions[*id].name == name)
}

/// Iterates over the numbers of all commands and subcommands in one of the categories.
pub(crate) fn ids_in_category(categories: u32) -> impl Iterator<Item = PermissionId> {
    (0..permission_count()).filter(move |id| REGISTRY.permissions[*id].categories & categories != 0)
}

/// Returns the name of the command or subcommand with a number.
pub(crate) fn name_of(id: PermissionId) -> &'static str {
    REGISTRY.permissions[id].name
}
