//! Requests and replies of Redis and of memcached.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::AnyResult;

/// Maximum wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);

/// Number of requests per write.
const BATCH_COUNT: usize = 256;

/// The protocol of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    Redis,
    Memcached,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Client {
    protocol: Protocol,
    stream: BufReader<UnixStream>,
}

fn key(number: usize) -> String {
    format!("key:{number:012}")
}

fn value(number: usize, bytes: usize) -> Vec<u8> {
    let seed = format!("{number:x}.");
    seed.bytes().cycle().take(bytes).collect()
}

impl Client {
    pub(crate) fn connect(protocol: Protocol, socket: &Path) -> AnyResult<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { protocol, stream: BufReader::new(stream) })
    }

    fn send(&mut self, bytes: &[u8]) -> AnyResult<()> {
        Ok(self.stream.get_mut().write_all(bytes)?)
    }

    fn line(&mut self) -> AnyResult<String> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the connection ended".into());
        }
        Ok(line.trim_end().to_string())
    }

    /// Stores the keys with these numbers. Returns how many were acknowledged before the
    /// connection ended.
    pub(crate) fn set_all(
        &mut self,
        numbers: impl Iterator<Item = usize>,
        value_bytes: usize,
    ) -> (usize, AnyResult<()>) {
        let mut numbers = numbers.peekable();
        let mut acknowledged = 0;
        while numbers.peek().is_some() {
            let batch: Vec<usize> = numbers.by_ref().take(BATCH_COUNT).collect();
            if let Err(error) = self.set_batch(&batch, value_bytes, &mut acknowledged) {
                return (acknowledged, Err(error));
            }
        }
        (acknowledged, Ok(()))
    }

    fn set_batch(&mut self, numbers: &[usize], value_bytes: usize, acknowledged: &mut usize) -> AnyResult<()> {
        let mut bytes = Vec::new();
        for number in numbers {
            let head = match self.protocol {
                Protocol::Redis => format!("*3\r\n$3\r\nSET\r\n$16\r\n{}\r\n${value_bytes}\r\n", key(*number)),
                Protocol::Memcached => format!("set {} 0 0 {value_bytes}\r\n", key(*number)),
            };
            bytes.extend_from_slice(head.as_bytes());
            bytes.extend_from_slice(&value(*number, value_bytes));
            bytes.extend_from_slice(b"\r\n");
        }
        self.send(&bytes)?;
        for _ in numbers {
            match self.line()?.as_str() {
                "+OK" | "STORED" => *acknowledged += 1,
                other => return Err(format!("a SET was answered by {other:?}").into()),
            }
        }
        Ok(())
    }

    /// Reads a key. Returns whether the key is present with its value.
    ///
    /// # Errors
    ///
    /// Also if the server reports that it is loading.
    pub(crate) fn get(&mut self, number: usize, value_bytes: usize) -> AnyResult<bool> {
        let (request, absent) = match self.protocol {
            Protocol::Redis => (format!("*2\r\n$3\r\nGET\r\n$16\r\n{}\r\n", key(number)), "$-1"),
            Protocol::Memcached => (format!("get {}\r\n", key(number)), "END"),
        };
        self.send(request.as_bytes())?;
        let head = self.line()?;
        if head == absent {
            return Ok(false);
        }
        if !head.starts_with('$') && !head.starts_with("VALUE") {
            return Err(format!("a GET was answered by {head:?}").into());
        }
        let mut found = vec![0; value_bytes + 2];
        self.stream.read_exact(&mut found)?;
        if self.protocol == Protocol::Memcached {
            self.line()?;
        }
        if found[..value_bytes] != value(number, value_bytes) {
            return Err(format!("key {number} has another value").into());
        }
        Ok(true)
    }

    /// Returns the number of keys.
    pub(crate) fn count(&mut self) -> AnyResult<usize> {
        if self.protocol == Protocol::Redis {
            self.send(b"*1\r\n$6\r\nDBSIZE\r\n")?;
            return Ok(self.line()?.trim_start_matches(':').parse()?);
        }
        self.send(b"stats\r\n")?;
        let mut count = 0;
        loop {
            let line = self.line()?;
            if line == "END" {
                return Ok(count);
            }
            if let Some(text) = line.strip_prefix("STAT curr_items ") {
                count = text.parse()?;
            }
        }
    }

    /// Makes Redis write a snapshot.
    pub(crate) fn save(&mut self) -> AnyResult<()> {
        self.send(b"*1\r\n$4\r\nSAVE\r\n")?;
        match self.line()?.as_str() {
            "+OK" => Ok(()),
            other => Err(format!("SAVE was answered by {other:?}").into()),
        }
    }
}
