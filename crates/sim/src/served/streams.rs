//! Clients that send long pipelines of rising numbers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use lodestore_wire::Reply;

use super::client::{Client, push_command};

/// Keys of a stream.
const KEYS: u64 = 200;

/// Commands of a pipeline. Its last four are a `MULTI` of two keys.
const PIPELINE_KEYS: u64 = 28;

/// Replies of a pipeline.
const REPLIES: u64 = PIPELINE_KEYS + 4;

/// One client's keys. Number `n` is written to key `n % KEYS`, and by `MULTI` to both keys of the
/// pair.
#[derive(Debug)]
pub(super) struct Stream {
    number: u64,
    /// The last number that was sent.
    sent: u64,
    /// The last number of a pipeline that was answered.
    acknowledged: u64,
    /// The number that the pair was last sent, and was last acknowledged with.
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

    fn pair(&self) -> [String; 2] {
        ["left", "right"].map(|side| format!("stream:{}:{side}", self.number))
    }

    /// Sends pipelines until the server ends.
    pub(super) fn work(&mut self, socket: &Path, ends: &AtomicBool) {
        let Ok(mut client) = Client::connect(socket) else { return };
        while !ends.load(Ordering::SeqCst) {
            let mut bytes = Vec::new();
            // Numbers that a kill left without a reply are sent again. So all numbers up to the
            // last acknowledged one are acknowledged.
            let first = self.acknowledged;
            for number in first + 1..=first + PIPELINE_KEYS {
                push_command(&mut bytes, &["SET", &self.key(number % KEYS), &number.to_string()]);
            }
            self.sent = first + PIPELINE_KEYS;
            self.pair_sent = self.sent;
            let [left, right] = self.pair();
            push_command(&mut bytes, &["MULTI"]);
            push_command(&mut bytes, &["SET", &left, &self.pair_sent.to_string()]);
            push_command(&mut bytes, &["SET", &right, &self.pair_sent.to_string()]);
            push_command(&mut bytes, &["EXEC"]);
            if client.send(&bytes).is_err() {
                return;
            }
            for reply in 1..=REPLIES {
                match client.receive() {
                    Ok(Reply::Simple(_) | Reply::Array(_)) => {}
                    Ok(other) => panic!("a write of a stream was answered by {other:?}"),
                    Err(_) => return,
                }
                self.acknowledged = first + reply.min(PIPELINE_KEYS);
            }
            self.pair_acknowledged = self.pair_sent;
        }
    }

    /// Checks what is there after a kill.
    pub(super) fn check(&mut self, socket: &Path) -> Result<(), String> {
        let mut client = Client::connect(socket).map_err(|error| error.to_string())?;
        let mut read = |key: &str| -> Result<u64, String> {
            match client.call(&["GET", key]).map_err(|error| error.to_string())? {
                Reply::Null => Ok(0),
                Reply::Bulk(bytes) => String::from_utf8_lossy(&bytes).parse().map_err(|_| format!("{key}: no number")),
                other => Err(format!("GET {key} was answered by {other:?}")),
            }
        };
        for index in 0..KEYS {
            let key = self.key(index);
            let found = read(&key)?;
            let least = last_number(self.acknowledged, index);
            let most = last_number(self.sent, index);
            if !(least..=most).contains(&found) || (found != 0 && found % KEYS != index) {
                return Err(format!("{key} has {found}: {least} is acknowledged, {most} was sent"));
            }
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
