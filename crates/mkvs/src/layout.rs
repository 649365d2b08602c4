//! Bytes of a matrix: its description in the host's store, what a device says of itself, and entries of operation logs. All little-endian. Checksums are
//! those of the stores' records; each value begins with its version. `docs/format/mkvs.md` has the rulers.

use std::path::PathBuf;

use lodestore_contract::{Durability, Error, Expiry, Result};

use crate::options::Acks;

/// Version of all of these formats.
pub(crate) const VERSION: u16 = 1;
/// Key of the matrix's description in the host's store.
pub(crate) const MATRIX_KEY: &[u8] = b"matrix";
/// Key of what a clean stop leaves in the host's store.
pub(crate) const CLEAN_KEY: &[u8] = b"clean";
/// Key of what a device says of itself, in its log's store.
pub(crate) const DEVICE_KEY: &[u8] = b"device";
/// Most epochs that are remembered with their beginnings.
pub(crate) const EPOCHS_MAX: usize = 64;

/// Whether a member is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// It has everything that was acknowledged, or will have when what it was given is done.
    Active,
    /// It lacks something: it answers nobody until it has caught up.
    Behind,
    /// It failed: it is not used until it is replaced, or the matrix is opened again.
    Failed,
}

impl MemberState {
    /// The word of reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Behind => "behind",
            Self::Failed => "failed",
        }
    }
}

/// A device as the matrix knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its directory, as given, or relative to the host's.
    pub(crate) path: PathBuf,
    /// Distinguishes it from a device that stood in its place before.
    pub(crate) id: u64,
    pub(crate) state: MemberState,
}

/// A group as the matrix knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    /// Changes whenever who is active does, and at each open.
    pub(crate) epoch: u64,
    /// The newest epochs with their first sequences, ascending.
    pub(crate) epochs: Vec<(u64, u64)>,
    pub(crate) members: Vec<Member>,
}

/// The matrix's description: the truth about its shape and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// Distinguishes this matrix from others.
    pub(crate) id: u64,
    /// Seed of the keys' hashes.
    pub(crate) seed: u64,
    /// Engine of the devices' stores, and of their operation logs.
    pub(crate) engine: String,
    pub(crate) log_engine: String,
    /// Capacity of a device's store, in bytes.
    pub(crate) device_bytes: u64,
    /// Operations and bytes that a device's log keeps.
    pub(crate) log_ops: u64,
    pub(crate) log_bytes: u64,
    /// What a write survives on each device.
    pub(crate) durability: Durability,
    pub(crate) acks: Acks,
    /// Groups that keys were spread over before the newest was added, while its keys are on their way; else all of them.
    pub(crate) settled_groups: u32,
    pub(crate) groups: Vec<GroupRecord>,
}

/// What a device says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceRecord {
    /// Of the matrix, and its own.
    pub(crate) matrix: u64,
    pub(crate) id: u64,
    /// Up to here all operations of its log are in its store.
    pub(crate) applied: u64,
    /// The epoch of its last operation when its log was last empty.
    pub(crate) epoch: u64,
    /// Whether it lacks what no log tells: it is to be copied anew.
    pub(crate) is_partial: bool,
}

/// What a clean stop leaves: where each group stood, and how its filter was made (0: none is kept).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CleanRecord {
    /// (epoch, last sequence, keys of the filter, raised keys) of each group.
    pub(crate) groups: Vec<(u64, u64, u64, u64)>,
}

/// What an operation does to its key, as logs and queues have it: never conditional, so that all members come to the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// The key gets this value.
    Put { value: Vec<u8>, expiry: Option<Expiry> },
    /// The key is removed.
    Delete,
    /// Operation `aborts` found no room on too many members: the key is again what it was before.
    Restore { aborts: u64, value: Option<(Vec<u8>, Option<Expiry>)> },
    /// In a log alone: it had no room for this operation, and the device has not done it.
    Lacking,
}

/// An operation of a group's sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) epoch: u64,
    /// 1, 2, 3 and so on, over all epochs.
    pub(crate) seq: u64,
    pub(crate) key: Vec<u8>,
    pub(crate) mutation: Mutation,
}

fn wrong(what: &'static str) -> Error {
    Error::corrupt("mkvs", what)
}

/// Reads what was written field by field.
struct Reader<'a> {
    bytes: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Behind the version, which must be known.
    fn new(bytes: &'a [u8], what: &'static str) -> Result<Self> {
        let mut reader = Self { bytes, what };
        let found = u32::from(reader.u16()?);
        let known = u32::from(VERSION);
        match found {
            _ if found > known => Err(Error::NewerFormat { part: "mkvs".into(), found, known }),
            _ if found < known => Err(Error::OlderFormat { part: "mkvs".into(), found, oldest: known }),
            _ => Ok(reader),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len).ok_or_else(|| wrong(self.what))?;
        self.bytes = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let what = self.what;
        self.take(N)?.try_into().map_err(|_| wrong(what))
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn text(&mut self) -> Result<String> {
        let len = self.u16()?;
        let bytes = self.take(usize::from(len))?;
        String::from_utf8(bytes.to_vec()).map_err(|_| wrong(self.what))
    }

    fn count(&mut self, most: usize) -> Result<usize> {
        let count = usize::from(self.u16()?);
        if count > most { Err(wrong(self.what)) } else { Ok(count) }
    }

    fn end(self) -> Result<()> {
        if self.bytes.is_empty() { Ok(()) } else { Err(wrong(self.what)) }
    }
}

fn put_text(bytes: &mut Vec<u8>, text: &str) {
    // Names and paths: the kernel takes none of more than 4096 bytes.
    let len = u16::try_from(text.len()).unwrap_or(u16::MAX);
    bytes.extend(len.to_le_bytes());
    bytes.extend(&text.as_bytes()[..usize::from(len)]);
}

fn put_words(bytes: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
}

impl Matrix {
    /// Most groups, and most members of a group.
    pub(crate) const GROUPS_MAX: usize = 16;
    pub(crate) const MEMBERS_MAX: usize = 5;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend([self.acks as u8, u8::from(self.durability == Durability::Power)]);
        bytes.extend(self.settled_groups.to_le_bytes());
        put_words(&mut bytes, &[self.id, self.seed, self.device_bytes, self.log_ops, self.log_bytes]);
        put_text(&mut bytes, &self.engine);
        put_text(&mut bytes, &self.log_engine);
        bytes.extend((self.groups.len() as u16).to_le_bytes());
        for group in &self.groups {
            put_words(&mut bytes, &[group.epoch]);
            bytes.extend((group.epochs.len() as u16).to_le_bytes());
            group.epochs.iter().for_each(|(epoch, first)| put_words(&mut bytes, &[*epoch, *first]));
            bytes.extend((group.members.len() as u16).to_le_bytes());
            for member in &group.members {
                put_words(&mut bytes, &[member.id]);
                bytes.push(member.state as u8);
                put_text(&mut bytes, &member.path.to_string_lossy());
            }
        }
        bytes
    }

    /// # Errors
    /// [`Error::NewerFormat`], [`Error::OlderFormat`], [`Error::Corrupt`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "the matrix's description cannot be")?;
        let acks = Acks::of(reader.u8()?).ok_or_else(|| wrong(reader.what))?;
        let durability = match reader.u8()? {
            0 => Durability::Process,
            1 => Durability::Power,
            _ => return Err(wrong(reader.what)),
        };
        let settled_groups = reader.u32()?;
        let (id, seed, device_bytes) = (reader.u64()?, reader.u64()?, reader.u64()?);
        let (log_ops, log_bytes) = (reader.u64()?, reader.u64()?);
        let (engine, log_engine) = (reader.text()?, reader.text()?);
        let groups = (0..reader.count(Self::GROUPS_MAX)?)
            .map(|_| Self::decode_group(&mut reader))
            .collect::<Result<Vec<_>>>()?;
        let what = reader.what;
        reader.end()?;
        let fits = (settled_groups as usize).abs_diff(groups.len()) <= 1 && settled_groups as usize <= groups.len();
        if groups.is_empty() || settled_groups == 0 || !fits || !log_ops.is_power_of_two() {
            return Err(wrong(what));
        }
        Ok(Self {
            id,
            seed,
            engine,
            log_engine,
            device_bytes,
            log_ops,
            log_bytes,
            durability,
            acks,
            settled_groups,
            groups,
        })
    }

    fn decode_group(reader: &mut Reader<'_>) -> Result<GroupRecord> {
        let epoch = reader.u64()?;
        let epochs =
            (0..reader.count(EPOCHS_MAX)?).map(|_| Ok((reader.u64()?, reader.u64()?))).collect::<Result<_>>()?;
        let member = |reader: &mut Reader<'_>| {
            let id = reader.u64()?;
            let state = match reader.u8()? {
                0 => MemberState::Active,
                1 => MemberState::Behind,
                2 => MemberState::Failed,
                _ => return Err(wrong(reader.what)),
            };
            Ok(Member { id, state, path: reader.text()?.into() })
        };
        let members = (0..reader.count(Self::MEMBERS_MAX)?).map(|_| member(reader)).collect::<Result<Vec<_>>>()?;
        if members.is_empty() { Err(wrong(reader.what)) } else { Ok(GroupRecord { epoch, epochs, members }) }
    }
}

impl DeviceRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend([u8::from(self.is_partial), 0]);
        put_words(&mut bytes, &[self.matrix, self.id, self.applied, self.epoch]);
        bytes
    }

    /// # Errors
    /// As [`Matrix::decode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "what a device says of itself cannot be")?;
        let is_partial = reader.u8()? != 0;
        reader.u8()?;
        let (matrix, id, applied, epoch) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let record = Self { matrix, id, applied, epoch, is_partial };
        reader.end()?;
        Ok(record)
    }
}

impl CleanRecord {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend((self.groups.len() as u16).to_le_bytes());
        self.groups
            .iter()
            .for_each(|(epoch, seq, keys, raised)| put_words(&mut bytes, &[*epoch, *seq, *keys, *raised]));
        bytes
    }

    /// # Errors
    /// As [`Matrix::decode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "what a clean stop left cannot be")?;
        let count = reader.count(Matrix::GROUPS_MAX)?;
        let group = |reader: &mut Reader<'_>| Ok((reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?));
        let groups = (0..count).map(|_| group(&mut reader)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(Self { groups })
    }
}

/// There is a value; it has an expiry; it stands in a record of its own.
const HAS_VALUE: u8 = 1;
const HAS_EXPIRY: u8 = 2;
const IS_APART: u8 = 4;

impl Operation {
    /// Bytes from which a value stands in a record of its own: it is copied once less.
    pub(crate) const APART: usize = 1 << 20;
    const WHAT: &'static str = "an entry of an operation log cannot be";

    /// The entry, and the value where that stands in a record of its own.
    pub(crate) fn encode(&self) -> (Vec<u8>, Option<&[u8]>) {
        let (kind, aborts, value, expiry) = match &self.mutation {
            Mutation::Put { value, expiry } => (0, 0, Some(&value[..]), *expiry),
            Mutation::Delete => (1, 0, None, None),
            Mutation::Restore { aborts, value } => {
                let expiry = value.as_ref().and_then(|(_, expiry)| *expiry);
                (2, *aborts, value.as_ref().map(|(value, _)| &value[..]), expiry)
            }
            Mutation::Lacking => (3, 0, None, None),
        };
        let has = |some: bool, flag: u8| if some { flag } else { 0 };
        let mut bytes = Vec::with_capacity(40 + self.key.len());
        bytes.extend(VERSION.to_le_bytes());
        let apart = value.filter(|value| value.len() >= Self::APART);
        let flags = [(value.is_some(), HAS_VALUE), (expiry.is_some(), HAS_EXPIRY), (apart.is_some(), IS_APART)];
        bytes.extend([kind, flags.into_iter().map(|(some, flag)| has(some, flag)).sum()]);
        bytes.extend((self.key.len() as u32).to_le_bytes());
        put_words(&mut bytes, &[self.epoch, self.seq, aborts, expiry.map_or(0, Expiry::millis)]);
        bytes.extend(&self.key);
        if apart.is_none() {
            bytes.extend(value.unwrap_or_default());
        }
        (bytes, apart)
    }

    /// The operation that this one takes back.
    pub(crate) fn aborts(&self) -> Option<u64> {
        match self.mutation {
            Mutation::Restore { aborts, .. } => Some(aborts),
            Mutation::Put { .. } | Mutation::Delete | Mutation::Lacking => None,
        }
    }

    /// The sequence of an entry.
    ///
    /// # Errors
    /// As [`Matrix::decode`].
    pub(crate) fn seq_of(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        reader.take(14)?;
        reader.u64()
    }

    /// The epoch of an entry.
    ///
    /// # Errors
    /// As [`Matrix::decode`].
    pub(crate) fn epoch_of(bytes: &[u8]) -> Result<u64> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        reader.take(6)?;
        reader.u64()
    }

    /// The operation that an entry says. Its value is asked of `apart` where it stands in a record of its own.
    ///
    /// # Errors
    /// As [`Matrix::decode`]; those of `apart`.
    pub(crate) fn decode(bytes: &[u8], apart: impl FnOnce() -> Result<Option<Vec<u8>>>) -> Result<Self> {
        let mut reader = Reader::new(bytes, Self::WHAT)?;
        let (kind, flags, key_len) = (reader.u8()?, reader.u8()?, reader.u32()?);
        let (epoch, seq, aborts, millis) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let key = reader.take(key_len as usize)?.to_vec();
        let value =
            if flags & IS_APART == 0 { reader.bytes.to_vec() } else { apart()?.ok_or_else(|| wrong(Self::WHAT))? };
        let expiry = (flags & HAS_EXPIRY != 0).then(|| Expiry::at_millis(millis));
        let value = (flags & HAS_VALUE != 0).then_some((value, expiry));
        let mutation = match (kind, value) {
            (0, Some((value, expiry))) => Mutation::Put { value, expiry },
            (1, None) => Mutation::Delete,
            (2, value) => Mutation::Restore { aborts, value },
            (3, None) => Mutation::Lacking,
            _ => return Err(wrong(Self::WHAT)),
        };
        Ok(Self { epoch, seq, key, mutation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Matrix {
        let member = |id, state| Member { path: format!("d{id}").into(), id, state };
        Matrix {
            id: 7,
            seed: 9,
            engine: "hikv".into(),
            log_engine: "nvht".into(),
            device_bytes: 1 << 30,
            log_ops: 1024,
            log_bytes: 1 << 20,
            durability: Durability::Power,
            acks: Acks::Majority,
            settled_groups: 1,
            groups: vec![
                GroupRecord {
                    epoch: 3,
                    epochs: vec![(1, 1), (3, 40)],
                    members: vec![
                        member(1, MemberState::Active),
                        member(2, MemberState::Behind),
                        member(3, MemberState::Failed),
                    ],
                },
                GroupRecord { epoch: 1, epochs: vec![], members: vec![member(4, MemberState::Active)] },
            ],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(Matrix::decode(&matrix().encode()).expect("own bytes"), matrix());
        let device = DeviceRecord { matrix: 1, id: 2, applied: 3, epoch: 4, is_partial: true };
        assert_eq!(DeviceRecord::decode(&device.encode()).expect("own bytes"), device);
        let clean = CleanRecord { groups: vec![(1, 2, 3, 4), (5, 6, 7, 8)] };
        assert_eq!(CleanRecord::decode(&clean.encode()).expect("own bytes"), clean);
    }

    #[test]
    fn operations_of_each_kind_come_back_with_their_values() {
        let expiry = Some(Expiry::at_millis(77));
        let mutations = [
            Mutation::Put { value: b"value".to_vec(), expiry: None },
            Mutation::Put { value: Vec::new(), expiry },
            Mutation::Put { value: vec![7; Operation::APART], expiry },
            Mutation::Delete,
            Mutation::Restore { aborts: 5, value: None },
            Mutation::Lacking,
            Mutation::Restore { aborts: 5, value: Some((b"old".to_vec(), expiry)) },
        ];
        for mutation in mutations {
            let operation = Operation { epoch: 2, seq: 6, key: b"key".to_vec(), mutation };
            let (entry, apart) = operation.encode();
            assert_eq!(Operation::seq_of(&entry).expect("own bytes"), 6);
            assert_eq!(Operation::decode(&entry, || Ok(apart.map(<[u8]>::to_vec))).expect("own bytes"), operation);
            assert_eq!(Operation::decode(&entry, || Ok(None)).is_err(), apart.is_some());
        }
    }

    #[test]
    fn other_bytes_are_refused_and_nothing_panics() {
        let bytes = matrix().encode();
        for len in 0..bytes.len() {
            assert!(Matrix::decode(&bytes[..len]).is_err(), "{len} bytes of it");
        }
        let mut newer = bytes.clone();
        newer[0] += 1;
        assert!(matches!(Matrix::decode(&newer), Err(Error::NewerFormat { .. })));
        assert!(Matrix::decode(&[&bytes[..], &[0]].concat()).is_err(), "one byte too many");
        for at in 2..bytes.len() {
            let mut hurt = bytes.clone();
            hurt[at] ^= 0xff;
            let _ = Matrix::decode(&hurt);
            let _ = Operation::decode(&hurt, || Ok(None));
        }
    }
}
