//! A reader of LMDB data files (`data.mdb`) of 64-bit machines, least significant byte first.
//!
//! ```text
//! page    number (8)  pad (2)  flags (2)  lower (2)  upper (2)  offsets of nodes (2 each) .. nodes
//!         pages of a long value have their count (4) in place of lower and upper
//! meta    page 0 and 1: magic (4)  version (4)  address (8)  map size (8)
//!         free pages (48)  main database (48)  last page (8)  transaction (8)
//! database  pad (4)  flags (2)  depth (2)  branch, leaf and overflow pages (8 each)
//!         entries (8)  root (8)
//! node    size or page, low and high (2 + 2)  flags (2)  key length (2)  key  data
//! ```
//!
//! The reader trusts no number: each page is visited at most once, the depth is bounded, and memory
//! grows with the bytes that are there. The file has no checksums. The format is that of LMDB 0.9
//! (`mdb.c`).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use lodestore::store::limits;

use crate::format::Record;

const MAGIC: u32 = 0xBEEF_C0DE;
const VERSION: u32 = 1;
/// Bytes before the data of a page.
const HEAD_BYTES: usize = 16;
/// Bytes of a node before its key.
const NODE_BYTES: usize = 8;
/// Bytes of the description of a database.
const DATABASE_BYTES: usize = 48;
/// Bytes of a meta page that are used.
const META_BYTES: usize = 136;
const PAGE_BYTES_MIN: u32 = 256;
const PAGE_BYTES_MAX: u32 = 64 << 10;
/// Maximum levels of a tree, as in LMDB.
const DEPTH_MAX: u16 = 32;
/// The root of a database without pairs.
const NO_PAGE_ID: u64 = u64::MAX;

/// Flags of pages.
const BRANCH_FLAG: u16 = 0x01;
const LEAF_FLAG: u16 = 0x02;
const OVERFLOW_FLAG: u16 = 0x04;
/// Flags of nodes.
const BIG_VALUE_FLAG: u16 = 0x01;
const DATABASE_FLAG: u16 = 0x02;
const DUPLICATES_FLAG: u16 = 0x04;

/// Returns whether a file with these first bytes is a data file of LMDB.
pub fn is_magic(start: &[u8]) -> bool {
    start.get(HEAD_BYTES..HEAD_BYTES + 4).is_some_and(|magic| magic == MAGIC.to_le_bytes())
}

/// The reason why a reader stopped.
#[derive(Debug)]
pub enum Halt<E> {
    /// This page is damaged, or the file is of another format.
    Bad {
        /// The number of the page.
        page: u64,
        /// The fault.
        what: String,
    },
    /// There is no named database of this name.
    NoDatabase,
    /// The file could not be read.
    Io(io::Error),
    /// The caller stopped.
    Caller(E),
}

/// The contents of a whole database.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Delivered records.
    pub records: u64,
    /// Keys with several values (`MDB_DUPSORT`), which were left out.
    pub duplicates: u64,
    /// The named databases in the main database.
    pub databases: Vec<Vec<u8>>,
}

/// The bytes of a file.
pub trait Bytes {
    /// Returns the length in bytes.
    ///
    /// # Errors
    ///
    /// The error of the system.
    fn len(&self) -> io::Result<u64>;
    /// Fills `bytes` from `offset` on.
    ///
    /// # Errors
    ///
    /// `UnexpectedEof` after the end; the error of the system.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;
}

impl Bytes for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

/// Reads the main database, or the named one, in the order of its keys.
///
/// # Errors
/// [`Halt`].
pub fn read<E>(
    file: &dyn Bytes,
    database: Option<&[u8]>,
    each: &mut dyn FnMut(Record) -> Result<(), E>,
) -> Result<Summary, Halt<E>> {
    let Meta { page_bytes, main } = read_meta(file)?;
    let pages = file.len().map_err(Halt::Io)? / u64::from(page_bytes);
    let mut walk =
        Walk { file, page_bytes: page_bytes as usize, pages, visited: 0, keys: 0, summary: Summary::default() };
    let Some(name) = database else {
        walk.walk_database(&main, &mut Visit::Records(each))?;
        return Ok(walk.summary);
    };
    let mut found = None;
    walk.walk_database::<E>(&main, &mut Visit::Find { name, found: &mut found })?;
    let found = found.ok_or(Halt::NoDatabase)?;
    walk.visited = 0;
    walk.summary = Summary::default();
    walk.walk_database(&found, &mut Visit::Records(each))?;
    Ok(walk.summary)
}

/// The description of a database.
#[derive(Debug, Clone, Copy)]
struct Database {
    depth: u16,
    /// Keys; keys with several values count once for each value.
    entries: u64,
    root: u64,
}

impl Database {
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self { depth: u16_at(bytes, 6)?, entries: u64_at(bytes, 32)?, root: u64_at(bytes, 40)? })
    }
}

/// The newer one of both meta pages.
struct Meta {
    page_bytes: u32,
    main: Database,
}

fn read_meta<E>(file: &dyn Bytes) -> Result<Meta, Halt<E>> {
    let bad = |page, what: &str| Err(Halt::Bad { page, what: what.into() });
    let read = |offset: u64| -> Result<[u8; HEAD_BYTES + META_BYTES], Halt<E>> {
        let mut bytes = [0; HEAD_BYTES + META_BYTES];
        file.read_at(&mut bytes, offset).map_err(read_failure(offset))?;
        Ok(bytes)
    };
    let first = read(0)?;
    if !is_magic(&first) {
        return bad(0, "the file is not a data file of LMDB on a 64-bit machine");
    }
    let page_bytes = u32_at(&first, HEAD_BYTES + 24).unwrap_or(0);
    if !page_bytes.is_power_of_two() || !(PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&page_bytes) {
        return bad(0, "the page size is not a power of two from 256 to 65536");
    }
    let mut newest: Option<(u64, Database)> = None;
    for (page, bytes) in [(0, first), (1, read(u64::from(page_bytes))?)] {
        let meta = &bytes[HEAD_BYTES..];
        if u32_at(meta, 0) != Some(MAGIC) || u32_at(meta, 4) != Some(VERSION) {
            return bad(page, "the meta page has an unsupported format: only LMDB 0.9 is supported");
        }
        let (transaction, main) = (u64_at(meta, 128).unwrap_or(0), Database::decode(&meta[72..]));
        if let Some(main) = main.filter(|_| newest.is_none_or(|(other, _)| transaction > other)) {
            newest = Some((transaction, main));
        }
    }
    match newest {
        Some((_, main)) => Ok(Meta { page_bytes, main }),
        None => bad(0, "the file has no valid meta page"),
    }
}

/// Names the end of the file in the error of a read.
fn read_failure<E>(page: u64) -> impl Fn(io::Error) -> Halt<E> {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Halt::Bad { page, what: "the file ends within this page".into() },
        _ => Halt::Io(error),
    }
}

/// Receives the pairs of a database.
enum Visit<'a, E> {
    Records(&'a mut dyn FnMut(Record) -> Result<(), E>),
    Find { name: &'a [u8], found: &'a mut Option<Database> },
}

/// A walk over the pages of a database.
struct Walk<'a> {
    file: &'a dyn Bytes,
    page_bytes: usize,
    /// Pages of the file.
    pages: u64,
    /// Pages of trees and of long values that were read: a tree without loops has each page once.
    visited: u64,
    /// Keys that were found in leaves.
    keys: u64,
    summary: Summary,
}

/// A node of a page.
struct Node<'a> {
    /// The size of the data in a leaf, and the low bytes of a page's number in a branch.
    low: u32,
    flags: u16,
    key: &'a [u8],
    /// The bytes after the key.
    rest: &'a [u8],
}

impl Node<'_> {
    /// Returns the minimum bytes that the node needs in the page.
    fn bytes(&self, is_in_leaf: bool) -> usize {
        let data = match (is_in_leaf, self.flags & BIG_VALUE_FLAG != 0) {
            (false, _) => 0,
            (true, true) => size_of::<u64>(),
            (true, false) => self.low as usize,
        };
        NODE_BYTES + self.key.len() + data
    }
}

impl Walk<'_> {
    fn walk_database<E>(&mut self, database: &Database, visit: &mut Visit<'_, E>) -> Result<(), Halt<E>> {
        let (before, duplicates) = (self.keys, self.summary.duplicates);
        if database.root != NO_PAGE_ID {
            self.check_depth(database)?;
            self.walk_tree(database.root, database.depth, visit)?;
        }
        let key_count = self.keys - before;
        // A key with several values is one key, and several entries.
        if key_count != database.entries && self.summary.duplicates == duplicates {
            let entries = database.entries;
            let what = format!(
                "the tree has {key_count} keys, and its description says {entries}: the file is damaged or in use"
            );
            return Err(Halt::Bad { page: database.root, what });
        }
        Ok(())
    }

    fn check_depth<E>(&self, database: &Database) -> Result<(), Halt<E>> {
        if database.depth == 0 || database.depth > DEPTH_MAX {
            let what = format!("the tree has depth {}, and the maximum is {DEPTH_MAX}", database.depth);
            return Err(Halt::Bad { page: database.root, what });
        }
        Ok(())
    }

    /// Reads the pages below `page`, which is `levels` pages high.
    fn walk_tree<E>(&mut self, page: u64, levels: u16, visit: &mut Visit<'_, E>) -> Result<(), Halt<E>> {
        let bad = |what: &str| Halt::Bad { page, what: what.into() };
        self.visited += 1;
        if self.visited > self.pages {
            return Err(bad("the pages of the tree form a loop"));
        }
        let bytes = self.read_page(page)?;
        let wanted = if levels == 1 { LEAF_FLAG } else { BRANCH_FLAG };
        let lower = match (u64_at(&bytes, 0), u16_at(&bytes, 10), u16_at(&bytes, 12)) {
            (Some(number), ..) if number != page => return Err(bad("the page has a wrong number")),
            (_, Some(flags), Some(lower)) if flags & (BRANCH_FLAG | LEAF_FLAG | OVERFLOW_FLAG) == wanted => {
                usize::from(lower)
            }
            _ => return Err(bad("the page has a wrong kind for its place in the tree")),
        };
        if lower < HEAD_BYTES || lower > bytes.len() {
            return Err(bad("the number of nodes does not fit into the page"));
        }
        let mut nodes_bytes = 0;
        for at in (HEAD_BYTES..lower.saturating_sub(1)).step_by(2) {
            let offset = usize::from(u16_at(&bytes, at).unwrap_or(0));
            let node = decode_node(&bytes, offset).filter(|_| offset >= lower);
            let node = node.ok_or_else(|| bad("a node does not fit into the page"))?;
            nodes_bytes += node.bytes(levels == 1);
            if nodes_bytes > bytes.len() {
                return Err(bad("the data of its nodes does not fit into the page"));
            }
            if levels == 1 {
                self.visit_leaf_node(page, &node, visit)?;
            } else {
                let below = u64::from(node.low) | u64::from(node.flags) << 32;
                self.walk_tree(below, levels - 1, visit)?;
            }
        }
        Ok(())
    }

    fn read_page<E>(&self, page: u64) -> Result<Vec<u8>, Halt<E>> {
        if page < 2 || page >= self.pages {
            return Err(Halt::Bad { page, what: "the file does not have this page".into() });
        }
        let mut bytes = vec![0; self.page_bytes];
        self.file.read_at(&mut bytes, page * self.page_bytes as u64).map_err(read_failure(page))?;
        Ok(bytes)
    }

    fn visit_leaf_node<E>(&mut self, page: u64, node: &Node<'_>, visit: &mut Visit<'_, E>) -> Result<(), Halt<E>> {
        let bad = |what: String| Halt::Bad { page, what };
        let short = || bad("the data of a node does not fit into the page".into());
        self.keys += 1;
        if node.flags & DUPLICATES_FLAG != 0 {
            self.summary.duplicates += 1;
            return Ok(());
        }
        if node.flags & DATABASE_FLAG != 0 {
            let database = node.rest.get(..DATABASE_BYTES).and_then(Database::decode).ok_or_else(short)?;
            self.summary.databases.push(node.key.to_vec());
            if let Visit::Find { name, found } = visit
                && *name == node.key
            {
                **found = Some(database);
            }
            return Ok(());
        }
        let Visit::Records(each) = visit else { return Ok(()) };
        let size = node.low as usize;
        let value = if node.flags & BIG_VALUE_FLAG != 0 {
            self.read_long_value(u64_at(node.rest, 0).ok_or_else(short)?, size)?
        } else {
            node.rest.get(..size).ok_or_else(short)?.to_vec()
        };
        let record = Record { key: node.key.to_vec(), value, expiry: None, keyspace: None };
        record.check().map_err(bad)?;
        self.summary.records += 1;
        each(record).map_err(Halt::Caller)
    }

    /// Reads a value with pages of its own.
    fn read_long_value<E>(&mut self, page: u64, size: usize) -> Result<Vec<u8>, Halt<E>> {
        let bad = |what: &str| Err(Halt::Bad { page, what: what.into() });
        let head = self.read_page(page)?;
        let (flags, count) = (u16_at(&head, 10).unwrap_or(0), u64::from(u32_at(&head, 12).unwrap_or(0)));
        if u64_at(&head, 0) != Some(page) || flags & OVERFLOW_FLAG == 0 {
            return bad("the page has no long value");
        }
        let fits = count <= self.pages - page && (HEAD_BYTES + size) as u64 <= count * self.page_bytes as u64;
        if size > limits::VALUE_MAX || !fits {
            return bad("the length of a long value does not fit into its pages");
        }
        // Each page belongs to one value.
        self.visited += count;
        if self.visited > self.pages {
            return bad("several long values use the same pages");
        }
        let mut value = vec![0; size];
        let offset = page * self.page_bytes as u64 + HEAD_BYTES as u64;
        self.file.read_at(&mut value, offset).map_err(read_failure(page))?;
        Ok(value)
    }
}

/// Returns the node at this offset of a page; `None` if it does not fit.
fn decode_node(page: &[u8], at: usize) -> Option<Node<'_>> {
    let bytes = page.get(at..).filter(|_| at >= HEAD_BYTES)?;
    let (low, high) = (u16_at(bytes, 0)?, u16_at(bytes, 2)?);
    let (flags, key_len) = (u16_at(bytes, 4)?, usize::from(u16_at(bytes, 6)?));
    let (key, rest) = bytes.get(NODE_BYTES..)?.split_at_checked(key_len)?;
    Some(Node { low: u32::from(low) | u32::from(high) << 16, flags, key, rest })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}
