//! The group as a model to be checked: possible events, and properties that must always hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use stateright::{Model, Property};

use crate::protocol::device::{Command, Device, State};
use crate::protocol::group::{Client, Group, Phase, Wrong};
use crate::protocol::history::CLIENTS;
use crate::protocol::rules::{Bounds, Rules};

/// Events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    Put {
        client: usize,
        key: u8,
    },
    Delete {
        client: usize,
        key: u8,
    },
    /// A client's write is decided.
    Finish {
        client: usize,
    },
    /// A client's write is decided, and a member's failure cannot be recorded.
    Unnoted {
        client: usize,
    },
    /// A client begins to read: this member's store itself, or through its queue.
    Read {
        client: usize,
        key: u8,
        member: u8,
        is_direct: bool,
    },
    /// The client asks one more member.
    Ask {
        client: usize,
        member: u8,
        is_direct: bool,
    },
    /// The client reads the store that it chose.
    Look {
        client: usize,
    },
    /// No member can answer the client.
    GiveUp {
        client: usize,
    },
    /// A device's processor makes a step.
    Step {
        member: u8,
    },
    /// A lagging member is removed.
    Demote {
        member: u8,
    },
    Fail {
        member: u8,
    },
    Fill {
        member: u8,
    },
    Empty {
        member: u8,
    },
    CatchUp {
        member: u8,
    },
    GoOn,
    Crash,
    Open {
        lost: Option<u8>,
    },
    OpenOn,
}

/// The model.
#[derive(Clone)]
pub struct Matrix {
    pub devices: usize,
    pub keys: usize,
    pub rules: Rules,
    pub bounds: Bounds,
    /// How often each of [`SEEN`] happened.
    pub seen: Arc<[AtomicUsize; SEEN.len()]>,
}

/// Events that must have happened at least once: the model is then not empty.
pub const SEEN: [&str; 12] = [
    "acknowledged",
    "read",
    "refused",
    "not noted",
    "joined",
    "forgotten",
    "copied",
    "copied behind a write",
    "fell behind again",
    "left out before it is copied",
    "opened",
    "opened without one",
];

impl Matrix {
    pub fn new(devices: usize, keys: usize, rules: Rules, bounds: Bounds) -> Self {
        Self { devices, keys, rules, bounds, seen: Arc::default() }
    }

    pub fn count(&self, name: &str) -> usize {
        let at = SEEN.iter().position(|seen| *seen == name).expect("a name of the list");
        self.seen[at].load(Ordering::Relaxed)
    }

    fn see(&self, name: &str) {
        let at = SEEN.iter().position(|seen| *seen == name).expect("a name of the list");
        self.seen[at].fetch_add(1, Ordering::Relaxed);
    }

    fn is_free(group: &Group, key: u8, is_shared: bool) -> bool {
        !group.clients.iter().any(|client| match client {
            Client::Idle => false,
            Client::Writing { key: other, .. } => *other == key,
            Client::Reading { key: other, .. } => *other == key && !is_shared,
        })
    }

    fn is_readable(&self, device: &Device) -> bool {
        device.is_active() || (!self.rules.filling_unread && device.state == State::Filling)
    }

    fn is_able(&self, group: &Group, key: u8, member: u8) -> bool {
        let device = &group.devices[usize::from(member)];
        let is_whole = device.applied >= group.stripes[usize::from(key)];
        self.is_readable(device) && group.is_enough(&self.rules) && (is_whole || !self.rules.able_reads)
    }

    fn is_queued(group: &Group, client: usize) -> bool {
        group.devices.iter().any(|device| device.queue.contains(&Command::Read(client as u8)))
    }

    /// Gives a client's read to a member.
    fn ask(&self, group: &mut Group, client: usize, member: u8, is_direct: bool) -> Option<()> {
        let Client::Reading { key, direct: None } = group.clients[client] else { return None };
        let device = &group.devices[usize::from(member)];
        if is_direct {
            if Self::is_queued(group, client) || !self.is_able(group, key, member) {
                return None;
            }
            group.clients[client] = Client::Reading { key, direct: Some(member) };
            return Some(());
        }
        let read = Command::Read(client as u8);
        // An empty queue is bypassed: the client reads the store directly.
        if !group.is_enough(&self.rules)
            || !self.is_readable(device)
            || !(group.active.contains(&member) || device.state == State::Filling)
            || device.is_idle()
            || device.queue.contains(&read)
        {
            return None;
        }
        group.device(member).queue.push(read);
        Some(())
    }

    fn act(&self, group: &mut Group, event: Event) -> Option<()> {
        let rules = &self.rules;
        match event {
            Event::Put { client, key } => {
                group.left.writes -= 1;
                group.write(rules, client, key, false)
            }
            Event::Delete { client, key } => {
                group.left.deletes -= 1;
                group.write(rules, client, key, true)
            }
            Event::Finish { client } => group.finish(rules, client),
            Event::Unnoted { client } => {
                group.left.unnoted -= 1;
                group.fail_note(rules, client)
            }
            Event::Read { client, key, member, is_direct } => {
                group.left.reads -= 1;
                if !group.is_known(rules, key) {
                    return None;
                }
                group.clients[client] = Client::Reading { key, direct: None };
                group.histories[usize::from(key)].read(client);
                self.ask(group, client, member, is_direct)
            }
            Event::Ask { client, member, is_direct } => {
                if Self::is_queued(group, client) {
                    group.left.hedges = group.left.hedges.checked_sub(1)?;
                }
                self.ask(group, client, member, is_direct)
            }
            Event::Look { client } => {
                let Client::Reading { key, direct: Some(member) } = group.clients[client] else { return None };
                if rules.looks_again && !self.is_able(group, key, member) {
                    group.clients[client] = Client::Reading { key, direct: None };
                    return Some(());
                }
                group.answer(client, member);
                Some(())
            }
            Event::GiveUp { client } => {
                let Client::Reading { key, direct: None } = group.clients[client] else { return None };
                let is_open = Self::is_queued(group, client)
                    || (0..self.devices as u8).any(|member| self.is_able(group, key, member));
                if is_open {
                    return None;
                }
                group.histories[usize::from(key)].forget(client);
                group.clients[client] = Client::Idle;
                Some(())
            }
            Event::Step { member } => group.step(rules, member),
            Event::CatchUp { member } => group.catch_up(rules, member),
            Event::GoOn => group.continue_catch_up(rules),
            Event::Crash => {
                group.left.crashes -= 1;
                group.crash();
                Some(())
            }
            Event::Open { lost } => {
                if let Some(lost) = lost {
                    group.left.losses -= 1;
                    group.unlucky = Some(lost);
                }
                group.open(rules, lost)
            }
            Event::OpenOn => group.open_on(rules),
            Event::Demote { .. } | Event::Fail { .. } | Event::Fill { .. } | Event::Empty { .. } => {
                self.apply_fault(group, event)
            }
        }
    }

    /// Applies an event to a device.
    fn apply_fault(&self, group: &mut Group, event: Event) -> Option<()> {
        let rules = &self.rules;
        match event {
            Event::Demote { member } => {
                group.left.demotions -= 1;
                let needed = rules.acks.needed(self.devices, group.active.len());
                let device = group.index(member);
                let is_needed = device.is_active() && group.active.len() <= needed;
                if device.is_idle() || is_needed || group.is_held(rules) {
                    return None;
                }
                group.set_out(member, State::Behind);
                let _ = group.settle(rules);
                Some(())
            }
            Event::Fail { member } => {
                group.left.failures -= 1;
                group.set_out(member, State::Failed);
                if let Some(busy) = group.device(member).busy.take() {
                    group.vote(busy.seq, member, crate::protocol::group::Vote::Failed);
                }
                Some(())
            }
            Event::Fill { member } => {
                group.left.fills -= 1;
                group.device(member).is_full = true;
                Some(())
            }
            Event::Empty { member } => {
                group.left.empties -= 1;
                group.device(member).is_full = false;
                Some(())
            }
            _ => None,
        }
    }

    fn clients(&self, group: &Group, events: &mut Vec<Event>) {
        for client in 0..CLIENTS {
            match group.clients[client] {
                // Clients are equivalent: the first idle one acts next.
                Client::Idle if group.clients[..client].contains(&Client::Idle) => {}
                Client::Idle => {
                    for key in 0..self.keys as u8 {
                        if Self::is_free(group, key, false) {
                            if group.left.writes != 0 {
                                events.push(Event::Put { client, key });
                            }
                            if group.left.deletes != 0 {
                                events.push(Event::Delete { client, key });
                            }
                        }
                        if group.left.reads != 0 && Self::is_free(group, key, true) {
                            for member in 0..self.devices as u8 {
                                events.push(Event::Read { client, key, member, is_direct: true });
                                events.push(Event::Read { client, key, member, is_direct: false });
                            }
                        }
                    }
                }
                Client::Writing { .. } => {
                    events.push(Event::Finish { client });
                    if group.left.unnoted != 0 {
                        events.push(Event::Unnoted { client });
                    }
                }
                Client::Reading { direct: Some(_), .. } => events.push(Event::Look { client }),
                Client::Reading { direct: None, .. } => {
                    events.push(Event::GiveUp { client });
                    for member in 0..self.devices as u8 {
                        events.push(Event::Ask { client, member, is_direct: true });
                        events.push(Event::Ask { client, member, is_direct: false });
                    }
                }
            }
        }
    }

    fn surroundings(&self, group: &Group, events: &mut Vec<Event>) {
        for member in 0..self.devices as u8 {
            let device = &group.devices[usize::from(member)];
            if group.left.demotions != 0 && device.accepts_commands() {
                events.push(Event::Demote { member });
            }
            if group.left.failures != 0 && device.state != State::Failed {
                events.push(Event::Fail { member });
            }
            if group.left.fills != 0 && !device.is_full {
                events.push(Event::Fill { member });
            }
            if group.left.empties != 0 && device.is_full {
                events.push(Event::Empty { member });
            }
            if group.phase == Phase::Serving && group.catching.is_none() && device.state == State::Behind {
                events.push(Event::CatchUp { member });
            }
        }
    }

    /// Counts events, to check that the model is not empty.
    fn observe(&self, before: &Group, after: &Group, event: Event) {
        match event {
            Event::Finish { client } if after.clients[client] == Client::Idle => {
                let is_restore = matches!(before.clients[client], Client::Writing { restore: Some(_), .. });
                self.see(if is_restore { "refused" } else { "acknowledged" });
            }
            Event::Unnoted { .. } => self.see("not noted"),
            Event::Look { .. } => self.see("read"),
            Event::GoOn | Event::OpenOn if after.active.len() > before.active.len() => self.see("joined"),
            _ => {}
        }
        if after.phase == Phase::Serving && before.phase != Phase::Serving {
            self.see("opened");
            if after.devices.iter().any(|device| device.is_lost) {
                self.see("opened without one");
            }
        }
        if after.catching != before.catching {
            match after.catching {
                Some(catch) if catch.is_forgetting() => self.see("forgotten"),
                Some(catch) if catch.is_copying() => {
                    self.see("copied");
                    if before.catching.is_some_and(|catch| catch.is_counted()) {
                        self.see("left out before it is copied");
                    }
                }
                _ => {}
            }
        }
        for (before, after) in before.devices.iter().zip(&after.devices) {
            let is_copy = |command: &Command| matches!(command, Command::Copy { .. });
            if after.queue.windows(2).any(|pair| !is_copy(&pair[0]) && is_copy(&pair[1])) {
                self.see("copied behind a write");
            }
            if before.state == State::Filling && after.state == State::Behind {
                self.see("fell behind again");
            }
        }
    }
}

/// Returns whether active members without operations in progress that have applied the same
/// operations hold the same pairs.
fn agree(group: &Group) -> bool {
    let at_rest = |member: &&u8| {
        let device = &group.devices[usize::from(**member)];
        device.is_active() && device.busy.is_none() && device.holes == 0
    };
    let members: Vec<_> =
        group.active.iter().filter(at_rest).map(|member| &group.devices[usize::from(*member)]).collect();
    members.iter().all(|one| members.iter().all(|other| one.applied != other.applied || one.store == other.store))
}

impl Model for Matrix {
    type State = Group;
    type Action = Event;

    fn init_states(&self) -> Vec<Group> {
        vec![Group::new(self.devices, self.keys, self.bounds)]
    }

    fn actions(&self, group: &Group, events: &mut Vec<Event>) {
        if group.wrong.is_some() {
            return;
        }
        match &group.phase {
            Phase::Stopped => {
                events.push(Event::Open { lost: None });
                if group.left.losses != 0 {
                    let lost =
                        (0..self.devices as u8).filter(|lost| group.unlucky.is_none_or(|unlucky| unlucky == *lost));
                    events.extend(lost.map(|lost| Event::Open { lost: Some(lost) }));
                }
                return;
            }
            Phase::Serving => {
                self.clients(group, events);
                events.push(Event::GoOn);
            }
            Phase::Following { .. } | Phase::Voiding { .. } => events.push(Event::OpenOn),
        }
        self.surroundings(group, events);
        events.extend((0..self.devices as u8).map(|member| Event::Step { member }));
        if group.left.crashes != 0 {
            events.push(Event::Crash);
        }
    }

    fn next_state(&self, before: &Group, event: Event) -> Option<Group> {
        let mut group = before.clone();
        self.act(&mut group, event)?;
        group.tidy();
        self.observe(before, &group, event);
        Some(group)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        fn never(wrong: Wrong) -> impl Fn(&Group) -> bool {
            move |group| group.wrong != Some(wrong)
        }
        vec![
            Property::always("reads are linearizable", |_, group: &Group| never(Wrong::Stale)(group)),
            Property::always("what was deleted stays deleted", |_, group: &Group| never(Wrong::CameBack)(group)),
            Property::always("what was refused is never seen", |_, group: &Group| never(Wrong::RefusedSeen)(group)),
            Property::always("what was acknowledged is there after a crash", |_, group: &Group| {
                never(Wrong::Lost)(group)
            }),
            Property::always("logs are runs without holes", |_, group: &Group| never(Wrong::Gap)(group)),
            Property::always("with all devices there it can be opened", |_, group: &Group| {
                never(Wrong::NotOpened)(group)
            }),
            Property::always("members that have applied the same hold the same", |_, group: &Group| agree(group)),
        ]
    }
}
