//! The open loop: requests are due at a fixed rate, even if earlier requests are unanswered.
//! Latency counts from the time at which a request is due.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::load::{self, Cell, Operation, Random, Transport};
use crate::report::{Sample, spread};
use crate::servers::{Connection, Kind, Running};
use crate::wire::Exchange;
use crate::{AnyResult, Args};

/// Connections of the loop.
const CONNECTION_COUNT: usize = 50;

/// Bytes of a value.
const VALUE_BYTES: usize = 64;

/// Requests that are prepared.
const PREPARED_COUNT: usize = 1024;

/// A connection and its unanswered requests, by the time at which each was due.
struct Lane {
    connection: Connection,
    due: VecDeque<(Instant, usize)>,
    received: usize,
}

/// Prints the latency of each server at half of the highest rate of Redis.
pub(crate) fn run(args: &Args, samples: &BTreeMap<(String, Kind), Vec<Sample>>) -> AnyResult<()> {
    let cell = Cell {
        operation: Operation::Get,
        connections: CONNECTION_COUNT,
        pipeline: 1,
        value_bytes: VALUE_BYTES,
        transport: Transport::Unix,
    };
    let measured = samples.get(&(format!("memory: {}", cell.name()), Kind::Redis));
    let Some(measured) = measured else { return Err("the open loop needs Redis' rate in the closed loop".into()) };
    let (rate, _, _) = spread(measured.iter().map(|sample| sample.requests_per_second).collect());
    let rate = rate / 2.0;
    println!("\nOpen loop at {rate:.0} requests/s, half GET and half SET, {CONNECTION_COUNT} connections, in us:\n");
    println!("| server | round | p50 | p99 | p99.9 | p99.99 | longest |\n|---|---:|---:|---:|---:|---:|---:|");
    for round in 0..args.rounds {
        for kind in [Kind::Redis, Kind::RedisEverySecond, Kind::Lodestore] {
            let server = Running::start(kind, args)?;
            load::fill(&server, VALUE_BYTES, args)?;
            let histogram = measure(&server, &cell, rate, args)?;
            let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
            let name = kind.name();
            let (median, late, later, latest) = (at(0.5), at(0.99), at(0.999), at(0.9999));
            let longest = histogram.max() as f64 / 1e3;
            println!("| {name} | {round} | {median:.0} | {late:.0} | {later:.0} | {latest:.0} | {longest:.0} |");
        }
    }
    Ok(())
}

fn measure(server: &Running, cell: &Cell, rate: f64, args: &Args) -> AnyResult<Histogram<u64>> {
    let keys = load::key_count(args, cell.value_bytes);
    let mut random = Random(args.seed);
    let exchanges: Vec<Exchange> = (0..PREPARED_COUNT)
        .map(|number| {
            let mut exchange = Exchange::default();
            let operation = if number % 2 == 0 { Operation::Get } else { Operation::Set };
            exchange.push(&Cell { operation, ..*cell }, false, random.below(keys), keys);
            exchange
        })
        .collect();
    let mut lanes = Vec::new();
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(CONNECTION_COUNT));
    for number in 0..CONNECTION_COUNT {
        let connection = server.connect(Transport::Unix)?;
        connection.set_nonblocking()?;
        let descriptor = connection.as_raw_fd();
        poll.registry().register(&mut SourceFd(&descriptor), Token(number), Interest::READABLE)?;
        lanes.push(Lane { connection, due: VecDeque::new(), received: 0 });
    }
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    let period = Duration::from_secs_f64(1.0 / rate);
    let start = Instant::now();
    let count = (rate * args.seconds * 2.0) as u32;
    let mut sent = 0;
    while sent < count || lanes.iter().any(|lane| !lane.due.is_empty()) {
        let now = Instant::now();
        while sent < count && start + period * sent <= now {
            let lane = &mut lanes[sent as usize % CONNECTION_COUNT];
            let prepared = sent as usize % PREPARED_COUNT;
            // The socket's buffer is far larger than the data that a lane can have sent.
            lane.connection.write_all(&exchanges[prepared].request)?;
            lane.due.push_back((start + period * sent, prepared));
            sent += 1;
        }
        let next = if sent < count { start + period * sent } else { now + Duration::from_millis(1) };
        match poll.poll(&mut events, Some(next.saturating_duration_since(Instant::now()))) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for lane in &mut lanes {
            receive(lane, &exchanges, &mut histogram)?;
        }
    }
    Ok(histogram)
}

fn receive(lane: &mut Lane, exchanges: &[Exchange], histogram: &mut Histogram<u64>) -> AnyResult<()> {
    let mut buffer = [0; 4096];
    while let Some((due, prepared)) = lane.due.front().copied() {
        let reply = &exchanges[prepared].reply;
        let room = (reply.len() - lane.received).min(buffer.len());
        match lane.connection.read(&mut buffer[..room]) {
            Ok(0) => return Err("the server closed a connection".into()),
            Ok(bytes) => {
                if buffer[..bytes] != reply[lane.received..lane.received + bytes] {
                    return Err("an unexpected reply".into());
                }
                lane.received += bytes;
                if lane.received == reply.len() {
                    lane.received = 0;
                    lane.due.pop_front();
                    histogram.record(u64::try_from(due.elapsed().as_nanos()).unwrap_or(u64::MAX))?;
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
