//! Clients that send long pipelines of rising numbers.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_wire::Reply;

use super::client::{Client, push_command};
use super::faults::Fault;

/// Keys of a stream, and fields of its hash. A hash with this many fields has an entry for each.
const KEYS: u64 = 200;

/// Numbers of a pipeline. Each needs two commands, and the last four commands are a `MULTI` of two
/// keys.
const PIPELINE_NUMBER_COUNT: u64 = 28;

/// Replies of a pipeline.
const REPLY_COUNT: u64 = 2 * PIPELINE_NUMBER_COUNT + 4;

/// One client's keys. Number `n` is written to key `n % KEYS`, to that field of the hash, and by
/// `MULTI` to both keys of the pair.
#[derive(Debug)]
pub(super) struct Stream {
    number: u64,
    /// The last sent number.
    sent: u64,
    /// The last number of an answered pipeline.
    acknowledged: u64,
    /// The last sent, and the last acknowledged number of the pair.
    pair_sent: u64,
    pair_acknowledged: u64,
}

impl Stream {
    pub(super) fn new(number: u64) -> Self {
        Self { number, sent: 0, acknowledged: 0, pair_sent: 0, pair_acknowledged: 0 }
    }

    /// Returns the acknowledged writes.
    pub(super) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    fn key(&self, index: u64) -> String {
        format!("stream:{}:{index}", self.number)
    }

    fn hash(&self) -> String {
        format!("stream:{}:hash", self.number)
    }

    fn pair(&self) -> [String; 2] {
        ["left", "right"].map(|side| format!("stream:{}:{side}", self.number))
    }

    /// Sends pipelines until the server ends.
    pub(super) fn work(&mut self, socket: &Path, ends: &AtomicBool) {
        let Ok(mut client) = Client::connect(socket) else { return };
        while !ends.load(Ordering::SeqCst) {
            let mut bytes = Vec::new();
            // Numbers without a reply because of a kill are sent again, so all numbers up to the
            // last acknowledged one are acknowledged.
            let first = self.acknowledged;
            for number in first + 1..=first + PIPELINE_NUMBER_COUNT {
                let (index, text) = (number % KEYS, number.to_string());
                push_command(&mut bytes, &["SET", &self.key(index), &text]);
                push_command(&mut bytes, &["HSET", &self.hash(), &index.to_string(), &text]);
            }
            self.sent = first + PIPELINE_NUMBER_COUNT;
            self.pair_sent = self.sent;
            let [left, right] = self.pair();
            push_command(&mut bytes, &["MULTI"]);
            push_command(&mut bytes, &["SET", &left, &self.pair_sent.to_string()]);
            push_command(&mut bytes, &["SET", &right, &self.pair_sent.to_string()]);
            push_command(&mut bytes, &["EXEC"]);
            if client.send(&bytes).is_err() {
                return;
            }
            for reply in 1..=REPLY_COUNT {
                match client.receive() {
                    Ok(Reply::Simple(_) | Reply::Integer(_) | Reply::Array(_)) => {}
                    Ok(other) => panic!("a write of a stream was answered by {other:?}"),
                    Err(_) => return,
                }
                self.acknowledged = first + (reply / 2).min(PIPELINE_NUMBER_COUNT);
            }
            self.pair_acknowledged = self.pair_sent;
        }
    }

    fn check_number(&self, place: &str, index: u64, found: u64) -> Result<(), String> {
        let least = last_number(self.acknowledged, index);
        let most = last_number(self.sent, index);
        if !(least..=most).contains(&found) || (found != 0 && found % KEYS != index) {
            return Err(format!("{place} has {found}: {least} is acknowledged, {most} was sent"));
        }
        Ok(())
    }

    /// Plants a fault of one key.
    pub(super) fn plant(&self, socket: &Path, fault: Fault) -> Result<(), String> {
        let field = (self.acknowledged % KEYS).to_string();
        let [left, _] = self.pair();
        let mut client = Client::connect(socket).map_err(|error| error.to_string())?;
        let reply = match fault {
            Fault::LostField => client.call(&["HDEL", &self.hash(), &field]),
            Fault::HalfTransaction => client.call(&["SET", &left, &(self.pair_sent + 1).to_string()]),
            Fault::OlderStore => return Ok(()),
        };
        reply.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Checks the contents after a kill.
    pub(super) fn check(&mut self, socket: &Path) -> Result<(), String> {
        let mut client = Client::connect(socket).map_err(|error| error.to_string())?;
        let fields = read_hash(&mut client, &self.hash())?;
        let mut read = |key: &str| -> Result<u64, String> {
            match client.call(&["GET", key]).map_err(|error| error.to_string())? {
                Reply::Null => Ok(0),
                reply => number_of(key, &reply),
            }
        };
        for index in 0..KEYS {
            let key = self.key(index);
            self.check_number(&key, index, read(&key)?)?;
            let field = fields.get(&index).copied().unwrap_or(0);
            self.check_number(&format!("{}, field {index},", self.hash()), index, field)?;
        }
        if let Some(index) = fields.keys().find(|index| **index >= KEYS) {
            return Err(format!("{} has a field {index} that was never written", self.hash()));
        }
        let [left, right] = self.pair().map(|key| read(&key));
        let (left, right) = (left?, right?);
        let range = self.pair_acknowledged..=self.pair_sent;
        if left != right || !range.contains(&left) {
            return Err(format!("a pair has {left} and {right}: from {range:?} are possible"));
        }
        Ok(())
    }
}

fn number_of(place: &str, reply: &Reply) -> Result<u64, String> {
    let text = if let Reply::Bulk(bytes) = reply { std::str::from_utf8(bytes).ok() } else { None };
    text.and_then(|text| text.parse().ok()).ok_or_else(|| format!("{place} was answered by {reply:?}"))
}

/// Reads a hash whose fields and values are numbers.
fn read_hash(client: &mut Client, key: &str) -> Result<HashMap<u64, u64>, String> {
    let reply = client.call(&["HGETALL", key]).map_err(|error| error.to_string())?;
    let Reply::Array(items) = &reply else { return Err(format!("HGETALL {key} was answered by {reply:?}")) };
    let numbers = items.iter().map(|item| number_of(key, item)).collect::<Result<Vec<_>, _>>()?;
    let (pairs, []) = numbers.as_chunks::<2>() else { return Err(format!("{key} has a field without a value")) };
    let fields: HashMap<u64, u64> = pairs.iter().map(|[field, value]| (*field, *value)).collect();
    if fields.len() < pairs.len() {
        return Err(format!("{key} shows a field twice"));
    }
    Ok(fields)
}

/// Returns the last number up to `end` that is written to key `index`, or 0.
fn last_number(end: u64, index: u64) -> u64 {
    let behind = (end % KEYS + KEYS - index) % KEYS;
    end.saturating_sub(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_key_is_the_greatest_with_its_remainder() {
        assert_eq!(last_number(0, 5), 0);
        assert_eq!(last_number(4, 5), 0);
        assert_eq!(last_number(5, 5), 5);
        assert_eq!(last_number(204, 5), 5);
        assert_eq!(last_number(205, 5), 205);
        assert_eq!(last_number(200, 0), 200);
        assert_eq!(last_number(399, 0), 200);
    }
}
