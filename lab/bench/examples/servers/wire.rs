//! Requests and their replies as bytes. The load knows each reply, so it compares bytes and parses
//! nothing.

use crate::load::{Cell, Operation};

/// Keys of an `MGET`.
pub(crate) const MULTI_GET_KEYS: usize = 16;

/// Returns key `number`, of 16 bytes.
pub(crate) fn key(number: usize) -> String {
    format!("key:{number:012}")
}

/// Returns the value of key `number`. Each byte belongs to the key.
fn value(number: usize, bytes: usize) -> Vec<u8> {
    let seed = format!("{number:x}.");
    seed.bytes().cycle().take(bytes).collect()
}

/// A request and its expected reply.
#[derive(Debug, Default, Clone)]
pub(crate) struct Exchange {
    pub(crate) request: Vec<u8>,
    pub(crate) reply: Vec<u8>,
}

impl Exchange {
    /// Appends the request of a cell for key `number`.
    pub(crate) fn push(&mut self, cell: &Cell, is_memcached: bool, number: usize, keys: usize) {
        match (cell.operation, is_memcached) {
            (Operation::Get, false) => self.push_get(number, cell.value_bytes),
            (Operation::Get, true) => {
                let (key, value) = (key(number), value(number, cell.value_bytes));
                self.request.extend_from_slice(format!("get {key}\r\n").as_bytes());
                self.reply.extend_from_slice(format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes());
                self.reply.extend_from_slice(&value);
                self.reply.extend_from_slice(b"\r\nEND\r\n");
            }
            (Operation::Set, _) => self.push_set(is_memcached, number, cell.value_bytes),
            (Operation::MultiGet, _) => self.push_multi_get(number, keys, cell.value_bytes),
        }
    }

    /// Appends a `SET`.
    pub(crate) fn push_set(&mut self, is_memcached: bool, number: usize, value_bytes: usize) {
        let (key, value) = (key(number), value(number, value_bytes));
        if is_memcached {
            self.request.extend_from_slice(format!("set {key} 0 0 {}\r\n", value.len()).as_bytes());
            self.reply.extend_from_slice(b"STORED\r\n");
        } else {
            let head = format!("*3\r\n$3\r\nSET\r\n$16\r\n{key}\r\n${}\r\n", value.len());
            self.request.extend_from_slice(head.as_bytes());
            self.reply.extend_from_slice(b"+OK\r\n");
        }
        self.request.extend_from_slice(&value);
        self.request.extend_from_slice(b"\r\n");
    }

    fn push_get(&mut self, number: usize, value_bytes: usize) {
        self.request.extend_from_slice(format!("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", key(number)).as_bytes());
        self.push_bulk(number, value_bytes);
    }

    fn push_multi_get(&mut self, first: usize, keys: usize, value_bytes: usize) {
        let head = format!("*{}\r\n$4\r\nMGET\r\n", MULTI_GET_KEYS + 1);
        self.request.extend_from_slice(head.as_bytes());
        self.reply.extend_from_slice(format!("*{MULTI_GET_KEYS}\r\n").as_bytes());
        for step in 0..MULTI_GET_KEYS {
            // Far apart, so that no two keys are neighbours.
            let number = (first + step * 7919) % keys;
            self.request.extend_from_slice(format!("$16\r\n{}\r\n", key(number)).as_bytes());
            self.push_bulk(number, value_bytes);
        }
    }

    fn push_bulk(&mut self, number: usize, value_bytes: usize) {
        let value = value(number, value_bytes);
        self.reply.extend_from_slice(format!("${}\r\n", value.len()).as_bytes());
        self.reply.extend_from_slice(&value);
        self.reply.extend_from_slice(b"\r\n");
    }
}
