//! The limits of competition with devices that stall: the setup of the example `tails` in virtual
//! time, without a machine's noise.
//!
//! `cargo run --release -p lodestore-mkvs --example tails_bound [REQUESTS]`: a read occupies a
//! device for one unit of time, 1 in 100 reads for 20 units, and each for 75 us of lateness. Each
//! device pauses for 2 ms every 200 ms. There are four ways to choose a device:
//! * `single` asks the device with the shortest queue.
//! * `hedged` asks another device whenever the p95 of latencies has passed without an answer, for
//!   at most a twentieth of the requests: the rule of `group_read.rs`.
//! * `pulled` has one queue for all devices. A free device pulls the next request. A request that
//!   has lasted one and a half units also goes to the next free device. This is close to the best
//!   without knowledge of the future.
//! * `clairvoyant` knows beforehand when each device would answer, including slow reads and pauses
//!   to come.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

use lodestore_contract::conformance::Rng;

const SLOW_READ_FACTOR: u64 = 20;
/// Lateness of a sleep on the machine of the published figures, in nanoseconds.
const LATENESS_NANOS: u64 = 75_000;
const PAUSE_NANOS: u64 = 2_000_000;
const PERIOD_NANOS: u64 = 200_000_000;
/// The allowance of hedges: gained per request (`HEDGE_SHARE_RATIO`), and the maximum saved
/// (`SAVED_HEDGES_MAX`).
const HEDGE_SHARE_RATIO: f64 = 0.05;
const SAVED_HEDGES_MAX: f64 = 100.0;

/// Times are in nanoseconds.
#[derive(Clone, Copy)]
struct Setup {
    devices: usize,
    unit: u64,
    load: f64,
    requests: usize,
}

impl Setup {
    /// Returns the arrival times of requests: a Poisson process.
    fn arrivals(self) -> Vec<u64> {
        let mut rng = Rng::new(7);
        // The mean duration of a read: 1 in 100 has 19 more units, and 1 in 100 half a pause.
        let service = self.unit as f64 * 1.19 + (LATENESS_NANOS + PAUSE_NANOS / 200) as f64;
        let mean = service / (self.load * self.devices as f64);
        let mut at = 0.0;
        let mut next = || {
            at -= (1.0 - rng.below(1 << 30) as f64 / (1_u64 << 30) as f64).ln() * mean;
            at as u64
        };
        (0..self.requests).map(|_| next()).collect()
    }

    /// Returns the duration of `request` on `device` if it starts at `now`.
    fn takes(self, device: usize, request: usize, now: u64) -> u64 {
        let phase = (now + PERIOD_NANOS * device as u64 / self.devices as u64) % PERIOD_NANOS;
        let slow = Rng::new((request * self.devices + device) as u64 + 1).below(100) == 0;
        PAUSE_NANOS.saturating_sub(phase) + LATENESS_NANOS + if slow { self.unit * SLOW_READ_FACTOR } else { self.unit }
    }
}

/// Latencies, and the number of device reads per request.
type Outcome = (Vec<u64>, f64);

/// The best choice: it is known when each device would answer.
fn clairvoyant(setup: Setup) -> Outcome {
    let mut free = vec![0; setup.devices];
    let ask = |(request, at): (usize, u64)| {
        let done = |device: usize| {
            let begin = at.max(free[device]);
            begin + setup.takes(device, request, begin)
        };
        let best = (0..setup.devices).min_by_key(|&device| done(device)).unwrap_or(0);
        free[best] = done(best);
        free[best] - at
    };
    (setup.arrivals().into_iter().enumerate().map(ask).collect(), 1.0)
}

/// A single queue for all devices: a free device pulls the next request. A request that lasts
/// longer than one and a half units is put at the head of the queue once more.
fn pulled(setup: Setup) -> Outcome {
    let arrivals = setup.arrivals();
    let mut events: BinaryHeap<_> =
        arrivals.iter().enumerate().map(|(request, &at)| Reverse((at, Event::Comes { request }))).collect();
    let (mut queue, mut idle) = (VecDeque::new(), (0..setup.devices).collect::<VecDeque<_>>());
    let (mut answered, mut latencies, mut work) = (HashSet::new(), Vec::new(), 0);
    while let Some(Reverse((now, event))) = events.pop() {
        match event {
            Event::Comes { request } => queue.push_back(request),
            Event::Late { request } if !answered.contains(&request) => queue.push_front(request),
            Event::Late { .. } => {}
            Event::Done { device, request } => {
                idle.push_back(device);
                if answered.insert(request) {
                    latencies.push(now - arrivals[request]);
                }
            }
        }
        while let Some(device) = idle.pop_front() {
            let Some(request) = queue.pop_front() else {
                idle.push_front(device);
                break;
            };
            if answered.contains(&request) {
                idle.push_front(device);
                continue;
            }
            work += 1;
            events.push(Reverse((now + setup.takes(device, request, now), Event::Done { device, request })));
            events.push(Reverse((now + (setup.unit + LATENESS_NANOS) * 3 / 2, Event::Late { request })));
        }
    }
    (latencies, f64::from(work) / setup.requests as f64)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Done { device: usize, request: usize },
    Late { request: usize },
    Comes { request: usize },
}

/// A device: its queue, its present request, and when that started.
#[derive(Default)]
struct Device {
    queue: VecDeque<usize>,
    doing: Option<(usize, u64)>,
}

struct Group {
    setup: Setup,
    hedges: bool,
    devices: Vec<Device>,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    asked: Vec<Vec<usize>>,
    answered: HashSet<usize>,
    p95: f64,
    allowance: f64,
    work: usize,
}

impl Group {
    /// Returns the next device to ask: first devices that do not seem to pause, then the shortest
    /// queue.
    fn choose(&self, request: usize, now: u64) -> Option<usize> {
        let stuck = |device: &Device| device.doing.is_some_and(|(_, since)| (now - since) as f64 > self.p95);
        let place = |&device: &usize| {
            let own = &self.devices[device];
            let depth = own.queue.len() + usize::from(own.doing.is_some());
            // Equal devices alternate.
            (self.hedges && stuck(own), depth, (device + request) % self.setup.devices)
        };
        (0..self.setup.devices).filter(|device| !self.asked[request].contains(device)).min_by_key(place)
    }

    fn ask(&mut self, request: usize, device: usize, now: u64) {
        self.asked[request].push(device);
        self.devices[device].queue.push_back(request);
        if self.devices[device].doing.is_none() {
            self.start(device, now);
        }
        if self.hedges {
            self.events.push(Reverse((now + self.p95 as u64, Event::Late { request })));
        }
    }

    /// Starts the next unanswered request.
    fn start(&mut self, device: usize, now: u64) {
        self.devices[device].doing = None;
        while let Some(request) = self.devices[device].queue.pop_front() {
            if self.answered.contains(&request) {
                // A request that was cancelled before a device started it costs nothing.
                self.allowance += f64::from(u8::from(self.asked[request][0] != device));
                continue;
            }
            self.work += 1;
            self.devices[device].doing = Some((request, now));
            let done = now + self.setup.takes(device, request, now);
            self.events.push(Reverse((done, Event::Done { device, request })));
            return;
        }
    }

    fn hedge(&mut self, request: usize, now: u64) {
        if self.answered.contains(&request) {
            return;
        }
        let Some(next) = self.choose(request, now) else { return };
        if self.allowance < 1.0 {
            self.events.push(Reverse((now + self.p95 as u64, Event::Late { request })));
            return;
        }
        self.allowance -= 1.0;
        self.ask(request, next, now);
    }

    fn run(mut self) -> Outcome {
        let arrivals = self.setup.arrivals();
        self.events.extend(arrivals.iter().enumerate().map(|(request, &at)| Reverse((at, Event::Comes { request }))));
        let mut latencies = Vec::new();
        while let Some(Reverse((now, event))) = self.events.pop() {
            match event {
                Event::Comes { request } => {
                    self.allowance = (self.allowance + HEDGE_SHARE_RATIO).min(SAVED_HEDGES_MAX);
                    if let Some(first) = self.choose(request, now) {
                        self.ask(request, first, now);
                    }
                }
                Event::Late { request } => self.hedge(request, now),
                Event::Done { device, request } => {
                    if self.answered.insert(request) {
                        let latency = now - arrivals[request];
                        latencies.push(latency);
                        // The estimate of the quantile, adjusted by each latency.
                        let step = self.p95 / 32.0;
                        self.p95 += if latency as f64 > self.p95 { step } else { -step / 19.0 };
                    }
                    self.start(device, now);
                }
            }
        }
        (latencies, self.work as f64 / self.setup.requests as f64)
    }
}

fn queued(setup: Setup, hedges: bool) -> Outcome {
    let group = Group {
        setup,
        hedges,
        devices: (0..setup.devices).map(|_| Device::default()).collect(),
        events: BinaryHeap::new(),
        asked: vec![Vec::new(); setup.requests],
        answered: HashSet::new(),
        p95: setup.unit as f64 * 2.0,
        allowance: 0.0,
        work: 0,
    };
    group.run()
}

fn main() {
    let requests = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    println!(
        "| devices | a read, us | load | reads | p50 us | p99 | p99.9 | single's p99.9 over it | device work a request |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for (devices, unit) in [(3, 100_000), (3, 500_000), (5, 500_000)] {
        for load in [0.2, 0.4, 0.6] {
            let setup = Setup { devices, unit, load, requests };
            let mut single = None;
            for (name, (mut taken, work)) in [
                ("single", queued(setup, false)),
                ("hedged", queued(setup, true)),
                ("pulled", pulled(setup)),
                ("clairvoyant", clairvoyant(setup)),
            ] {
                taken.sort_unstable();
                let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize] / 1000;
                let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
                let times = *single.get_or_insert(p999) as f64 / p999 as f64;
                println!(
                    "| {devices} | {} | {load} | {name} | {p50} | {p99} | {p999} | {times:.1} | {work:.3} |",
                    unit / 1000
                );
            }
        }
    }
}
