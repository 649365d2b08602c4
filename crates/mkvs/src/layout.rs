//! Encoding of a matrix's records: the description in the host's store, a device's record, and
//! entries of operation logs. All are little-endian. The stores' records have the checksums. Each
//! value begins with its version. The byte layouts are in `docs/format/mkvs.md`.

use std::path::PathBuf;

use lodestore_contract::{Durability, Result};

use crate::codec::{Reader, VERSION, format_error, put_text, put_words};
use crate::options::Acks;

/// Key of the matrix's description in the host's store.
pub(crate) const MATRIX_KEY: &[u8] = b"matrix";
/// Key of the record of a clean stop in the host's store.
pub(crate) const CLEAN_KEY: &[u8] = b"clean";
/// Key of a device's record in its log's store.
pub(crate) const DEVICE_KEY: &[u8] = b"device";
/// Maximum number of epochs that are kept with their first operations.
pub(crate) const EPOCHS_MAX: usize = 64;

/// The state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemberState {
    /// Has every acknowledged write, or will have after it executes its queue.
    Active,
    /// Lacks operations: answers nothing until it has caught up.
    Behind,
    /// Failed: unused until it is replaced, or the matrix is opened again.
    Failed,
}

impl MemberState {
    /// Returns the name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Behind => "behind",
            Self::Failed => "failed",
        }
    }
}

/// A device in the matrix's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its directory, as given, or relative to the host's.
    pub(crate) path: PathBuf,
    /// Distinguishes it from an earlier device at the same position.
    pub(crate) id: u64,
    /// [`Store::identity`](lodestore_contract::Store::identity) of the store of its pairs; 0 if
    /// the store has none.
    pub(crate) store: u64,
    /// [`Store::opening`](lodestore_contract::Store::opening) of the same store, at the last open
    /// or clean stop of the matrix.
    pub(crate) opening: u64,
    pub(crate) state: MemberState,
}

impl Member {
    /// The maximum `opening`, which no store reaches: a salvage used this store as an older copy.
    pub(crate) const OPENING_MAX: u64 = u64::MAX >> 1;
}

/// A group in the matrix's description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupRecord {
    /// Incremented when the active members change, and at each open.
    pub(crate) epoch: u64,
    /// The newest epochs with their first sequence numbers, ascending.
    pub(crate) epochs: Vec<(u64, u64)>,
    /// Acknowledged writes that a salvage may have given up; `None` if none did. A strict open is
    /// refused if it is set.
    pub(crate) given_up: Option<String>,
    pub(crate) members: Vec<Member>,
}

/// The matrix's description: the authority on its shape and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    /// Distinguishes this matrix from others.
    pub(crate) id: u64,
    /// Seed of the keys' hashes.
    pub(crate) seed: u64,
    /// Engines of the devices' stores (`engine`) and of their operation logs (`log_engine`).
    pub(crate) engine: String,
    pub(crate) log_engine: String,
    /// Capacity of a device's store, in bytes.
    pub(crate) device_bytes: u64,
    /// Maximum operations (`log_ops`) and bytes (`log_bytes`) of a device's log.
    pub(crate) log_ops: u64,
    pub(crate) log_bytes: u64,
    /// The losses that a write survives on each device.
    pub(crate) durability: Durability,
    pub(crate) acks: Acks,
    /// Number of groups that have all their keys: all groups, or all but the newest while keys move
    /// to it.
    pub(crate) settled_groups: u32,
    pub(crate) groups: Vec<GroupRecord>,
}

/// A device's record of its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceRecord {
    /// Ids of the matrix and of the device.
    pub(crate) matrix: u64,
    pub(crate) id: u64,
    /// The store has all operations of the log up to this one.
    pub(crate) applied: u64,
    /// The epoch of the device's last operation when its log was last empty.
    pub(crate) epoch: u64,
    /// Whether it lacks operations that no log contains: it needs a full copy.
    pub(crate) is_partial: bool,
    /// Whether its copy may lack pairs that no device could read.
    pub(crate) has_gaps: bool,
    /// Whether its store may have pairs that the group deleted: their damage hid their keys.
    pub(crate) has_surplus: bool,
}

/// Flags of a device's record: [`DeviceRecord::has_gaps`] and [`DeviceRecord::has_surplus`].
const GAPS_RECORD_FLAG: u8 = 1;
const SURPLUS_RECORD_FLAG: u8 = 2;

/// The record of a clean stop: the position of each group, and the size of its filter (0: none
/// stored).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CleanRecord {
    /// (epoch, last sequence number or stamp, keys of the filter, raised keys) of each group.
    pub(crate) groups: Vec<(u64, u64, u64, u64)>,
}

// The bounds of the options `groups` and `devices`, on which the code relies.
const _: () = assert!(Matrix::GROUPS_MAX == 16 && Matrix::MEMBERS_MAX == 5);

impl Matrix {
    /// Maximum number of groups, and of members of a group.
    pub(crate) const GROUPS_MAX: usize = 16;
    pub(crate) const MEMBERS_MAX: usize = 5;

    /// Returns all devices in the description.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.groups.iter().flat_map(|group| &group.members)
    }

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
            put_text(&mut bytes, group.given_up.as_deref().unwrap_or_default());
            bytes.extend((group.epochs.len() as u16).to_le_bytes());
            group.epochs.iter().for_each(|(epoch, first)| put_words(&mut bytes, &[*epoch, *first]));
            bytes.extend((group.members.len() as u16).to_le_bytes());
            for member in &group.members {
                put_words(&mut bytes, &[member.id, member.store, member.opening]);
                bytes.push(member.state as u8);
                put_text(&mut bytes, &member.path.to_string_lossy());
            }
        }
        bytes
    }

    /// # Errors
    /// [`Error::NewerFormat`], [`Error::OlderFormat`], [`Error::Corrupt`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "the matrix's description is invalid")?;
        let acks = Acks::of(reader.u8()?).ok_or_else(|| format_error(reader.what))?;
        let durability = match reader.u8()? {
            0 => Durability::Process,
            1 => Durability::Power,
            _ => return Err(format_error(reader.what)),
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
            return Err(format_error(what));
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
        let given_up = Some(reader.text()?).filter(|text| !text.is_empty());
        let epochs =
            (0..reader.count(EPOCHS_MAX)?).map(|_| Ok((reader.u64()?, reader.u64()?))).collect::<Result<_>>()?;
        let member = |reader: &mut Reader<'_>| {
            let (id, store, opening) = (reader.u64()?, reader.u64()?, reader.u64()?);
            let state = match reader.u8()? {
                0 => MemberState::Active,
                1 => MemberState::Behind,
                2 => MemberState::Failed,
                _ => return Err(format_error(reader.what)),
            };
            Ok(Member { id, store, opening, state, path: reader.text()?.into() })
        };
        let members = (0..reader.count(Self::MEMBERS_MAX)?).map(|_| member(reader)).collect::<Result<Vec<_>>>()?;
        if members.is_empty() {
            Err(format_error(reader.what))
        } else {
            Ok(GroupRecord { epoch, epochs, given_up, members })
        }
    }
}

impl DeviceRecord {
    /// Returns the record of a new device.
    pub(crate) fn of_new(matrix: u64, id: u64) -> Self {
        Self { matrix, id, applied: 0, epoch: 0, is_partial: false, has_gaps: false, has_surplus: false }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let flag = |flag: u8, is_set: bool| if is_set { flag } else { 0 };
        let flags = flag(GAPS_RECORD_FLAG, self.has_gaps) | flag(SURPLUS_RECORD_FLAG, self.has_surplus);
        bytes.extend([u8::from(self.is_partial), flags]);
        put_words(&mut bytes, &[self.matrix, self.id, self.applied, self.epoch]);
        bytes
    }

    /// # Errors
    /// As [`Matrix::decode`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "the record of the device is invalid")?;
        let (is_partial, flags) = (reader.u8()? != 0, reader.u8()?);
        let (has_gaps, has_surplus) = (flags & GAPS_RECORD_FLAG != 0, flags & SURPLUS_RECORD_FLAG != 0);
        let (matrix, id, applied, epoch) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let record = Self { matrix, id, applied, epoch, is_partial, has_gaps, has_surplus };
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
        let mut reader = Reader::new(bytes, "the record of the last clean stop is invalid")?;
        let count = reader.count(Matrix::GROUPS_MAX)?;
        let group = |reader: &mut Reader<'_>| Ok((reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?));
        let groups = (0..count).map(|_| group(&mut reader)).collect::<Result<_>>()?;
        reader.end()?;
        Ok(Self { groups })
    }
}

#[cfg(test)]
mod tests {
    use lodestore_contract::{Error, Expiry};

    use super::*;
    use crate::operation::{Mutation, Operation};

    fn matrix() -> Matrix {
        let member = |id, state| Member { path: format!("d{id}").into(), id, store: id * 3, opening: id * 5, state };
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
                    given_up: Some("device 2: its pairs".into()),
                    members: vec![
                        member(1, MemberState::Active),
                        member(2, MemberState::Behind),
                        member(3, MemberState::Failed),
                    ],
                },
                GroupRecord { epoch: 1, epochs: vec![], given_up: None, members: vec![member(4, MemberState::Active)] },
            ],
        }
    }

    #[test]
    fn encoded_records_are_decoded_equal() {
        assert_eq!(Matrix::decode(&matrix().encode()).expect("own bytes"), matrix());
        for set in 0..3 {
            let [is_partial, has_gaps, has_surplus] = [0, 1, 2].map(|at| at == set);
            let device = DeviceRecord { matrix: 1, id: 2, applied: 3, epoch: 4, is_partial, has_gaps, has_surplus };
            assert_eq!(DeviceRecord::decode(&device.encode()).expect("own bytes"), device);
        }
        let clean = CleanRecord { groups: vec![(1, 2, 3, 4), (5, 6, 7, 8)] };
        assert_eq!(CleanRecord::decode(&clean.encode()).expect("own bytes"), clean);
    }

    #[test]
    fn operations_of_each_kind_are_decoded_with_their_values() {
        let expiry = Some(Expiry::at_millis(77));
        let mutations = [
            Mutation::Put { value: b"value".to_vec(), expiry: None },
            Mutation::Put { value: Vec::new(), expiry },
            Mutation::Put { value: vec![7; Operation::SEPARATE_VALUE_BYTES_MIN], expiry },
            Mutation::Delete,
            Mutation::Restore { aborts: 5, value: None },
            Mutation::Lacking,
            Mutation::Restore { aborts: 5, value: Some((b"old".to_vec(), expiry)) },
        ];
        for mutation in mutations {
            let operation = Operation { epoch: 2, seq: 6, key: b"key".to_vec(), mutation };
            let (entry, separate) = operation.encode();
            assert_eq!(Operation::seq_of(&entry).expect("own bytes"), 6);
            assert_eq!(Operation::decode(&entry, || Ok(separate.map(<[u8]>::to_vec))).expect("own bytes"), operation);
            assert_eq!(Operation::decode(&entry, || Ok(None)).is_err(), separate.is_some());
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
