//! Writes of several clients as one commit.
//!
//! At the durability `power` each commit waits for a device. Therefore the writes of all
//! connections in a round of a tick are one batch of the store, and their replies leave after its
//! commit.
//!
//! Invariants:
//!
//! 1. The group holds the stripe of each key that it changes from the key's first read until the
//!    commit. Therefore no other command sees or changes these keys in between, except single
//!    reads, which see the state before the group.
//! 2. A group waits for the stripes of its first command only. The group acquires them in
//!    ascending order, as each other command does. A group never waits for a stripe of a further
//!    command: if another command holds that stripe, the group ends before the command that needs
//!    the stripe. Therefore no cycle of waiting threads exists.
//! 3. While the group holds a stripe, no flush and no exchange of databases can end. Therefore the
//!    view that is taken after the first stripe stays the current one.
//! 4. The group begins only if no client listens to changes after its first stripe is acquired. A
//!    client that begins to listen later waits for the group (`messaging`, invariant 3).
//! 5. A reply is sent only if its group is committed. If the store refuses the commit, all replies
//!    of the group are removed, and the connections go back to their first command of the group.
//!    The next group has half as many commands. A command that is refused as the only one of its
//!    group runs alone, and gets its own reply.
//! 6. A group has fewer writes than a batch of the store may have, unless its first command has
//!    more by itself.

use std::cell::OnceCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::tick::{ActiveConnection, INLINE_ARGUMENTS_MAX, Tick};
use crate::command::grouped::{self, GroupedCall};
use crate::data::access::Access;
use crate::data::databases::View;
use crate::shared::Shared;

/// Most writes of a group: records of keys, and elements of large collections. A hash that becomes
/// large exceeds the bound by at most `BATCH_ELEMENTS_MAX` elements.
const GROUP_WRITES_MAX: usize = 4096;

/// Bytes of keys and values after which a group ends.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Most commands of a group. Some commands write nothing.
const GROUP_COMMANDS_MAX: usize = 4096;

/// The maximum commands of the next group of an event loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupSize {
    commands_max: usize,
}

impl Default for GroupSize {
    fn default() -> Self {
        Self { commands_max: GROUP_COMMANDS_MAX }
    }
}

impl GroupSize {
    /// Allows more commands after a commit.
    fn grow(&mut self) {
        self.commands_max = (self.commands_max * 2).min(GROUP_COMMANDS_MAX);
    }

    /// Allows fewer commands after a refused commit of `commands` commands.
    fn shrink(&mut self, commands: usize) {
        self.commands_max = (commands / 2).max(1);
    }
}

/// The position of a connection before its first command of a group.
#[derive(Debug, Clone, Copy)]
struct Checkpoint {
    /// Index among the active connections.
    active: usize,
    /// Offset of the command in the input.
    position: usize,
    /// Bytes of the output before the command's reply.
    output_bytes: usize,
    /// Commands that the connection had run.
    count: usize,
}

/// Why a connection adds no further command to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Another connection may add its commands.
    Connection,
    /// The group is full, or another command holds a stripe that it needs.
    Group,
    /// The store failed within a command.
    Failed,
}

/// A group of writes, before its commit.
struct Group<'a> {
    view: &'a OnceCell<Arc<View>>,
    access: Option<Access<'a>>,
    /// Commands that were added. The last one may have failed.
    commands: usize,
    /// The commands that did not fail, to be counted after the commit.
    calls: Vec<GroupedCall>,
    commands_max: usize,
}

impl Group<'_> {
    /// Whether a further command could make the group too large.
    fn lacks_space(&self, arguments: &[&[u8]]) -> bool {
        let writes = self.access.as_ref().map_or(0, Access::pending_writes);
        self.commands > 0 && writes + grouped::writes_max(arguments) > GROUP_WRITES_MAX
    }

    fn is_full(&self) -> bool {
        let is_large = |access: &Access<'_>| {
            access.pending_writes() >= GROUP_WRITES_MAX || access.pending_bytes() >= GROUP_BYTES_MAX
        };
        self.commands >= self.commands_max || self.access.as_ref().is_some_and(is_large)
    }
}

impl<'s> Tick<'s> {
    /// Runs the writes at the begin of each input as one group. If not all connections could add
    /// theirs, those that did come last afterwards.
    pub(super) fn run_group(&mut self, active: &mut [ActiveConnection]) {
        let view = OnceCell::new();
        let commands_max = self.group_size.commands_max;
        let mut group = Group { view: &view, access: None, commands: 0, calls: Vec::new(), commands_max };
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let mut stop = Stop::Connection;
        active.iter_mut().for_each(|connection| connection.is_served = false);
        for (number, connection) in active.iter_mut().enumerate() {
            let index = connection.index;
            let (position, output_bytes) = (self.inputs[index].position(), self.outputs[index].bytes.len());
            let (count, commands) = (connection.count, group.commands);
            stop = self.add_writes(&mut group, connection);
            if group.commands > commands {
                connection.is_served = true;
                checkpoints.push(Checkpoint { active: number, position, output_bytes, count });
            }
            if stop != Stop::Connection {
                break;
            }
        }
        let Some(mut access) = group.access else { return };
        let is_committed = stop != Stop::Failed && access.commit(self.shared.db()).is_ok();
        drop(access);
        if is_committed {
            self.count_calls(active, &checkpoints, &group.calls);
            self.group_size.grow();
        } else {
            checkpoints.iter().for_each(|checkpoint| self.undo(active, *checkpoint));
            self.group_size.shrink(group.commands);
            if let ([checkpoint], 1) = (&*checkpoints, group.commands) {
                self.run_next(&mut active[checkpoint.active]);
            }
        }
        if stop != Stop::Connection {
            active.sort_by_key(|connection| connection.is_served);
        }
    }

    /// Adds the writes at the begin of a connection's input to a group.
    fn add_writes<'g>(&mut self, group: &mut Group<'g>, active: &mut ActiveConnection) -> Stop
    where
        's: 'g,
    {
        let shared: &'g Shared = self.shared;
        let index = active.index;
        let Some(connection) = self.connections[index].as_mut() else { return Stop::Connection };
        let session = &mut connection.session;
        let (input, output) = (&mut self.inputs[index], &mut self.outputs[index]);
        let limits = Self::limits(shared, session);
        // An error of the protocol is found again when the connection runs alone.
        while output.pending_bytes() <= shared.runtime.output_bytes_pause() && input.parse(&limits) == Ok(true) {
            let (arguments, bytes) = input.command();
            let arguments: SmallVec<[&[u8]; INLINE_ARGUMENTS_MAX]> = arguments.iter(bytes).collect();
            if !grouped::is_groupable(shared, session, &arguments) {
                break;
            }
            if group.lacks_space(&arguments) {
                return Stop::Group;
            }
            let access = match &mut group.access {
                Some(access) => {
                    if !access.try_extend(grouped::stripes_of(shared, &arguments)) {
                        return Stop::Group;
                    }
                    access
                }
                None => {
                    let Some(held) = grouped::lock_first(shared, session, &arguments) else { break };
                    let view = group.view.get_or_init(|| shared.databases.view());
                    group.access.insert(Access::buffered(view, held))
                }
            };
            // The stripes are held: a kill from here on waits for the commit.
            if session.public.is_killed() {
                break;
            }
            group.commands += 1;
            let call = grouped::run_grouped(shared, session, access, &arguments, &mut output.bytes);
            let Some(call) = call else { return Stop::Failed };
            group.calls.push(call);
            drop(arguments);
            input.consume();
            active.count += 1;
            if group.is_full() {
                return Stop::Group;
            }
        }
        Stop::Connection
    }

    /// Counts the commands of a group after its commit.
    fn count_calls(&self, active: &[ActiveConnection], checkpoints: &[Checkpoint], calls: &[GroupedCall]) {
        let first = checkpoints.first().and_then(|first| self.connections[active[first.active].index].as_ref());
        // All connections of an event loop share its counters.
        if let Some(connection) = first {
            grouped::count_calls(self.shared, &connection.session.counters, calls);
        }
    }

    /// Takes a connection back to its state before a group that was not committed.
    fn undo(&mut self, active: &mut [ActiveConnection], checkpoint: Checkpoint) {
        let connection = &mut active[checkpoint.active];
        self.inputs[connection.index].rewind(checkpoint.position);
        self.outputs[connection.index].bytes.truncate(checkpoint.output_bytes);
        connection.count = checkpoint.count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::databases::Databases;
    use crate::data::stripes::Stripes;

    #[test]
    fn a_group_ends_before_its_fields_exceed_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let builder = lodestore::Db::builder(dir.path().join("store")).engine(lodestore::db::Engine::fluidkv());
        let databases = Databases::open(builder.capacity(64 << 20).open().unwrap(), 1).unwrap();
        let (stripes, cell, view) = (Stripes::new(), OnceCell::new(), databases.view());
        let mut access = Access::buffered(&view, stripes.lock_one(b"h"));
        let id = access.new_collection().unwrap();
        for number in 0..GROUP_WRITES_MAX - 4 {
            access.put_element(0, id, &number.to_le_bytes(), Vec::new());
        }
        let commands_max = GroupSize::default().commands_max;
        let mut group = Group { view: &cell, access: Some(access), commands: 1, calls: Vec::new(), commands_max };
        assert!(!group.is_full() && !group.lacks_space(&[b"HSET", b"h", b"f", b"v"]));
        assert!(group.lacks_space(&[b"HSET", b"h", b"f", b"v", b"g", b"v"]));
        group.access.as_mut().unwrap().put_element(0, id, b"long", vec![0; GROUP_BYTES_MAX]);
        assert!(group.is_full());
    }

    #[test]
    fn a_refused_commit_halves_the_next_group() {
        let mut size = GroupSize::default();
        size.shrink(9);
        assert_eq!(size.commands_max, 4);
        size.grow();
        assert_eq!(size.commands_max, 8);
        size.shrink(1);
        assert_eq!(size.commands_max, 1);
        (0..64).for_each(|_| size.grow());
        assert_eq!(size, GroupSize::default());
    }
}
