//! The closed loop: each connection sends its pipeline and waits for all replies.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::report::Sample;
use crate::servers::{Connection, Running};
use crate::wire::{Exchange, MULTI_GET_KEYS};
use crate::{AnyResult, Args};

/// Requests of a connection that are made before the clock starts.
const PREPARED_PIPELINE_COUNT: usize = 64;

/// Maximum bytes of loaded values.
const LOADED_BYTES_MAX: usize = 256 << 20;

/// Number of requests per write while the keys are loaded.
const LOAD_BATCH_COUNT: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    Get,
    Set,
    MultiGet,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Unix,
    Tcp,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) operation: Operation,
    pub(crate) connections: usize,
    /// Requests that a connection sends before it waits.
    pub(crate) pipeline: usize,
    pub(crate) value_bytes: usize,
    pub(crate) transport: Transport,
}

impl Cell {
    pub(crate) fn name(&self) -> String {
        let operation = match self.operation {
            Operation::Get => "GET",
            Operation::Set => "SET",
            Operation::MultiGet => "MGET of 16",
        };
        let transport = if self.transport == Transport::Tcp { ", tcp" } else { "" };
        format!("{operation} {} B, {} x {}{transport}", self.value_bytes, self.connections, self.pipeline)
    }

    /// Returns the number of keys that each request reads or writes.
    pub(crate) fn keys_per_request(&self) -> usize {
        if self.operation == Operation::MultiGet { MULTI_GET_KEYS } else { 1 }
    }
}

/// Random numbers (splitmix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

/// Returns how many keys of a size are loaded.
pub(crate) fn key_count(args: &Args, value_bytes: usize) -> usize {
    args.keys.min(LOADED_BYTES_MAX / value_bytes).max(1)
}

/// Stores all keys.
pub(crate) fn fill(server: &Running, value_bytes: usize, args: &Args) -> AnyResult<()> {
    let mut connection = server.connect(Transport::Unix)?;
    let keys = key_count(args, value_bytes);
    let mut buffer = Vec::new();
    for first in (0..keys).step_by(LOAD_BATCH_COUNT) {
        let mut exchange = Exchange::default();
        for number in first..keys.min(first + LOAD_BATCH_COUNT) {
            exchange.push_set(server.kind.is_memcached(), number, value_bytes);
        }
        run_exchange(&mut connection, &exchange, &mut buffer)?;
    }
    Ok(())
}

fn run_exchange(connection: &mut Connection, exchange: &Exchange, buffer: &mut Vec<u8>) -> AnyResult<()> {
    connection.write_all(&exchange.request)?;
    receive(connection, exchange, buffer)
}

fn receive(connection: &mut Connection, exchange: &Exchange, buffer: &mut Vec<u8>) -> AnyResult<()> {
    buffer.resize(exchange.reply.len(), 0);
    connection.read_exact(buffer)?;
    if *buffer != exchange.reply {
        let shown = String::from_utf8_lossy(&buffer[..buffer.len().min(80)]).into_owned();
        return Err(format!("an unexpected reply: {shown:?}").into());
    }
    Ok(())
}

/// Measures a server in one cell.
pub(crate) fn run(server: &Running, cell: &Cell, args: &Args) -> AnyResult<Sample> {
    fill(server, cell.value_bytes, args)?;
    let keys = key_count(args, cell.value_bytes);
    let mut random = Random(args.seed);
    let large = cell.value_bytes * cell.pipeline > 1 << 20;
    let prepared = if large { 8 } else { PREPARED_PIPELINE_COUNT };
    let exchanges: Vec<Exchange> = (0..prepared)
        .map(|_| {
            let mut exchange = Exchange::default();
            for _ in 0..cell.pipeline {
                exchange.push(cell, server.kind.is_memcached(), random.below(keys), keys);
            }
            exchange
        })
        .collect();
    let mut connections = Vec::new();
    for _ in 0..cell.connections {
        connections.push(server.connect(cell.transport)?);
    }
    let mut buffer = Vec::new();
    let cpu_before = server.cpu_seconds()?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(args.seconds);
    let (mut requests, mut step) = (0, 0);
    while Instant::now() < end {
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.write_all(&exchanges[(step + index) % prepared].request)?;
        }
        for (index, connection) in connections.iter_mut().enumerate() {
            receive(connection, &exchanges[(step + index) % prepared], &mut buffer)?;
        }
        step += 1;
        requests += connections.len() * cell.pipeline;
    }
    let seconds = start.elapsed().as_secs_f64();
    let cpu = server.cpu_seconds()? - cpu_before;
    let keys = (requests * cell.keys_per_request()) as f64;
    Ok(Sample { requests_per_second: requests as f64 / seconds, cpu_us_per_key: cpu * 1e6 / keys })
}
