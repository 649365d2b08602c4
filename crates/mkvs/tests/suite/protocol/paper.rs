//! The rules as published. Every device receives a write, and the first to apply it acknowledges
//! it. The first device that finds the key answers a get; if all report it absent, the get returns
//! nothing. Operations have no numbers, devices execute them in any order, and nothing catches up
//! after a restart.

use stateright::{Model, Property};

use crate::protocol::history::{ABSENT, Fault, History};

/// A write in progress: its number and the devices that have not applied it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Write {
    write: u8,
    is_delete: bool,
    pending: u8,
    is_acknowledged: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Each device's value of the only key.
    stores: Vec<u8>,
    writes: Vec<Write>,
    history: History,
    is_stale: bool,
    came_back: bool,
    crashes: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Event {
    Put,
    Delete,
    /// A device applies one of its writes.
    Do {
        device: usize,
        write: u8,
    },
    /// This device answers a get, or none if no device finds the key.
    Get {
        device: Option<usize>,
    },
    Crash,
}

/// Two devices, with `writes` writes and deletes, and `crashes` crashes.
#[derive(Clone)]
pub struct Paper {
    pub writes: u8,
    pub crashes: u8,
}

impl Paper {
    fn get(state: &mut State, device: Option<usize>) {
        let value = device.map_or(ABSENT, |device| state.stores[device]);
        state.history.read(0);
        match state.history.answer(0, value) {
            Ok(()) => {}
            Err(Fault::CameBack) => state.came_back = true,
            Err(Fault::Stale) => state.is_stale = true,
        }
    }
}

impl Model for Paper {
    type State = State;
    type Action = Event;

    fn init_states(&self) -> Vec<State> {
        let (stores, crashes) = (vec![ABSENT; 2], self.crashes);
        vec![State { stores, writes: Vec::new(), history: History::new(), is_stale: false, came_back: false, crashes }]
    }

    fn actions(&self, state: &State, events: &mut Vec<Event>) {
        if state.is_stale || state.came_back {
            return;
        }
        if state.writes.len() < usize::from(self.writes) {
            events.extend([Event::Put, Event::Delete]);
        }
        for write in &state.writes {
            let devices = (0..state.stores.len()).filter(|device| write.pending & (1 << device) != 0);
            events.extend(devices.map(|device| Event::Do { device, write: write.write }));
        }
        let found: Vec<_> = (0..state.stores.len()).filter(|device| state.stores[*device] != ABSENT).collect();
        if found.is_empty() {
            events.push(Event::Get { device: None });
        }
        events.extend(found.into_iter().map(|device| Event::Get { device: Some(device) }));
        if state.crashes != 0 {
            events.push(Event::Crash);
        }
    }

    fn next_state(&self, before: &State, event: Event) -> Option<State> {
        let mut state = before.clone();
        match event {
            Event::Put | Event::Delete => {
                let (write, is_delete) = (state.writes.len() as u8 + 1, event == Event::Delete);
                state.history.write(write, is_delete);
                state.writes.push(Write { write, is_delete, pending: 0b11, is_acknowledged: false });
            }
            Event::Do { device, write } => {
                let done = &mut state.writes[usize::from(write) - 1];
                done.pending &= !(1 << device);
                state.stores[device] = if done.is_delete { ABSENT } else { write };
                if !std::mem::replace(&mut done.is_acknowledged, true) {
                    state.history.acknowledge(write);
                }
            }
            Event::Get { device } => Self::get(&mut state, device),
            Event::Crash => {
                state.crashes -= 1;
                state.history.crash();
                state.writes.iter_mut().for_each(|write| write.pending = 0);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("reads are linearizable", |_, state: &State| !state.is_stale),
            Property::always("what was deleted stays deleted", |_, state: &State| !state.came_back),
            Property::always("devices at rest agree", |_, state: &State| {
                state.writes.iter().any(|write| write.pending != 0) || state.stores[0] == state.stores[1]
            }),
        ]
    }
}
