//! Writes of several clients as one commit.
//!
//! At the durability `power` each commit waits for a device. So the writes of all connections in a
//! round of a tick are one batch of the store, and their replies leave after its commit.
//!
//! Invariants:
//!
//! 1. The group holds the stripe of each key that it changes from the key's first read until the
//!    commit. So no other command sees or changes these keys in between, except single reads,
//!    which see the state before the group.
//! 2. A group waits for its first stripe only. It never waits for a stripe while it holds one, so
//!    two groups never wait for each other. If another command holds a further stripe, the group
//!    ends before the command that needs it.
//! 3. While the group holds a stripe, no flush and no exchange of databases can end. So the view
//!    that is taken after the first stripe stays the current one.
//! 4. A reply is sent only if its group is committed. If the store refuses the commit, all replies
//!    of the group are removed, and the connections go back to their first command of the group.
//!    The commands then run one by one, and each gets its own reply.

use std::cell::OnceCell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::tick::{ActiveConnection, INLINE_ARGUMENTS, Tick};
use crate::command::grouped;
use crate::data::access::Access;
use crate::data::databases::View;
use crate::shared::Shared;

/// Most writes of a group.
const GROUP_WRITES_MAX: usize = 4096;

/// Bytes of arguments after which a group ends.
const GROUP_BYTES_MAX: usize = 8 << 20;

/// Where a connection was before its first command of a group.
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
    argument_bytes: usize,
}

impl<'s> Tick<'s> {
    /// Runs the writes at the begin of each input as one group.
    pub(super) fn run_group(&mut self, active: &mut [ActiveConnection]) {
        let view = OnceCell::new();
        let mut group = Group { view: &view, access: None, argument_bytes: 0 };
        let mut checkpoints: Vec<Checkpoint> = Vec::new();
        let mut stop = Stop::Connection;
        for (number, connection) in active.iter_mut().enumerate().filter(|(_, connection)| !connection.runs_alone) {
            let index = connection.index;
            let (position, output_bytes) = (self.inputs[index].position(), self.outputs[index].bytes.len());
            let count = connection.count;
            stop = self.add_writes(&mut group, connection);
            if connection.count > count || stop == Stop::Failed {
                checkpoints.push(Checkpoint { active: number, position, output_bytes, count });
            }
            if stop != Stop::Connection {
                break;
            }
        }
        let Some(mut access) = group.access else { return };
        let is_committed = stop != Stop::Failed && access.commit(self.shared.db()).is_ok();
        drop(access);
        if !is_committed {
            checkpoints.into_iter().for_each(|checkpoint| self.undo(active, checkpoint));
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
            let arguments: SmallVec<[&[u8]; INLINE_ARGUMENTS]> = arguments.iter(bytes).collect();
            if !grouped::is_groupable(shared, session, &arguments) {
                break;
            }
            let access = match &mut group.access {
                Some(access) => {
                    if !access.try_extend(grouped::stripes_of(shared, &arguments)) {
                        return Stop::Group;
                    }
                    access
                }
                None => {
                    let held = shared.stripes.lock_several(grouped::stripes_of(shared, &arguments).collect());
                    let view = group.view.get_or_init(|| shared.databases.view());
                    group.access.insert(Access::buffered(view, held))
                }
            };
            // The stripes are held: a kill from here on waits for the commit.
            if session.public.is_killed() {
                break;
            }
            if !grouped::run_grouped(shared, session, access, &arguments, &mut output.bytes) {
                return Stop::Failed;
            }
            group.argument_bytes += arguments.iter().map(|argument| argument.len()).sum::<usize>();
            let is_full = access.pending_count() >= GROUP_WRITES_MAX || group.argument_bytes >= GROUP_BYTES_MAX;
            drop(arguments);
            input.consume();
            active.count += 1;
            if is_full {
                return Stop::Group;
            }
        }
        Stop::Connection
    }

    /// Takes a connection back to its state before a group that was not committed.
    fn undo(&mut self, active: &mut [ActiveConnection], checkpoint: Checkpoint) {
        let connection = &mut active[checkpoint.active];
        self.inputs[connection.index].rewind(checkpoint.position);
        self.outputs[connection.index].bytes.truncate(checkpoint.output_bytes);
        connection.count = checkpoint.count;
        connection.runs_alone = true;
    }
}
