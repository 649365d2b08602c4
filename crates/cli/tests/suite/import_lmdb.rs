//! `import` of LMDB data files. The files are written here, from the description of the format.

use crate::common::{Sandbox, text};

const PAGE: usize = 4096;
const NO_PAGE: u64 = u64::MAX;

/// A data file under construction.
struct Lmdb {
    pages: Vec<[u8; PAGE]>,
}

/// A node of a page.
#[derive(Clone)]
struct Node {
    low: u32,
    flags: u16,
    key: Vec<u8>,
    data: Vec<u8>,
}

fn pair(key: &[u8], value: &[u8]) -> Node {
    Node { low: value.len() as u32, flags: 0, key: key.to_vec(), data: value.to_vec() }
}

fn branch(key: &[u8], page: u64) -> Node {
    Node { low: page as u32, flags: (page >> 32) as u16, key: key.to_vec(), data: Vec::new() }
}

fn database(depth: u16, entries: u64, root: u64) -> Vec<u8> {
    let mut bytes = vec![0; 48];
    bytes[6..8].copy_from_slice(&depth.to_le_bytes());
    bytes[32..40].copy_from_slice(&entries.to_le_bytes());
    bytes[40..48].copy_from_slice(&root.to_le_bytes());
    bytes
}

impl Lmdb {
    fn new() -> Self {
        Self { pages: vec![[0; PAGE]; 2] }
    }

    /// Adds a page of a tree. Returns its number.
    fn page(&mut self, flags: u16, nodes: &[Node]) -> u64 {
        let (number, mut page, mut upper) = (self.pages.len() as u64, [0; PAGE], PAGE);
        page[..8].copy_from_slice(&number.to_le_bytes());
        page[10..12].copy_from_slice(&flags.to_le_bytes());
        for (at, node) in nodes.iter().enumerate() {
            let head = [node.low.to_le_bytes().to_vec(), node.flags.to_le_bytes().to_vec()].concat();
            let bytes = [head, (node.key.len() as u16).to_le_bytes().to_vec(), node.key.clone(), node.data.clone()];
            let bytes = bytes.concat();
            upper -= bytes.len().next_multiple_of(2);
            page[upper..upper + bytes.len()].copy_from_slice(&bytes);
            page[16 + 2 * at..18 + 2 * at].copy_from_slice(&(upper as u16).to_le_bytes());
        }
        page[12..14].copy_from_slice(&(16 + 2 * nodes.len() as u16).to_le_bytes());
        page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
        self.pages.push(page);
        number
    }

    /// Adds the pages of a long value. Returns its node.
    fn long(&mut self, key: &[u8], value: &[u8]) -> Node {
        let number = self.pages.len() as u64;
        let count = (16 + value.len()).div_ceil(PAGE);
        let mut bytes = vec![0; count * PAGE];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[10..12].copy_from_slice(&4u16.to_le_bytes());
        bytes[12..16].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[16..16 + value.len()].copy_from_slice(value);
        self.pages.extend(bytes.chunks_exact(PAGE).map(|page| <[u8; PAGE]>::try_from(page).expect("a page")));
        Node { low: value.len() as u32, flags: 1, key: key.to_vec(), data: number.to_le_bytes().to_vec() }
    }

    /// Writes a meta page.
    fn meta(&mut self, page: usize, transaction: u64, main: &[u8]) {
        let (last, bytes) = (self.pages.len() as u64 - 1, &mut self.pages[page]);
        bytes[..8].copy_from_slice(&(page as u64).to_le_bytes());
        bytes[10..12].copy_from_slice(&8u16.to_le_bytes());
        bytes[16..20].copy_from_slice(&0xbeef_c0deu32.to_le_bytes());
        bytes[20..24].copy_from_slice(&1u32.to_le_bytes());
        bytes[40..88].copy_from_slice(&database(0, 0, NO_PAGE));
        bytes[40..44].copy_from_slice(&(PAGE as u32).to_le_bytes());
        bytes[88..136].copy_from_slice(main);
        bytes[136..144].copy_from_slice(&last.to_le_bytes());
        bytes[144..152].copy_from_slice(&transaction.to_le_bytes());
    }

    /// Ends the file. The main database has this root, and one entry.
    fn end(self, depth: u16, root: u64) -> Vec<u8> {
        self.end_with(&database(depth, 1, root))
    }

    /// Ends the file with this description of the main database.
    fn end_with(mut self, main: &[u8]) -> Vec<u8> {
        self.meta(0, 7, main);
        self.meta(1, 6, &database(0, 0, NO_PAGE));
        self.pages.concat()
    }
}

/// A main database of three levels with 300 short values and a long one, and two named ones.
fn file() -> (Vec<u8>, String) {
    let mut lmdb = Lmdb::new();
    let long: Vec<u8> = (0..10_000u32).map(|at| b'a' + (at % 26) as u8).collect();
    let users = lmdb.page(2, &[pair(b"ada", b"1"), pair(b"bob", b"2")]);
    let named =
        |root, depth, entries| Node { low: 48, flags: 2, key: Vec::new(), data: database(depth, entries, root) };
    let mut nodes: Vec<Node> =
        (0..300).map(|n| pair(format!("k{n:04}").as_bytes(), format!("v{n}").as_bytes())).collect();
    nodes.push(lmdb.long(b"long", &long));
    nodes.push(Node { key: b"users".to_vec(), ..named(users, 1, 2) });
    nodes.push(Node { key: b"void".to_vec(), ..named(NO_PAGE, 0, 0) });
    let mut level: Vec<Node> = nodes
        .chunks(60)
        .map(|nodes| (nodes[0].key.clone(), lmdb.page(2, nodes)))
        .map(|(key, page)| branch(&key, page))
        .collect();
    let right = level.split_off(3);
    let (left, right) = (lmdb.page(1, &level), lmdb.page(1, &right));
    let root = lmdb.page(1, &[branch(b"", left), branch(&right_key(300), right)]);
    let lines: String = (0..300).map(|n| format!("k{n:04}\tv{n}\n")).collect();
    (lmdb.end_with(&database(3, 303, root)), format!("{lines}long\t{}\n", text(&long)))
}

fn right_key(count: usize) -> Vec<u8> {
    format!("k{:04}", count * 3 / 5).into_bytes()
}

#[test]
fn a_tree_with_long_values_is_imported() {
    let sandbox = Sandbox::with_store();
    let (bytes, lines) = file();
    sandbox.write("data", &bytes);
    let output = sandbox.run(&["import", "store", "data"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(
        text(&output.stderr),
        "lodestore: not imported: the named databases users, void (--database imports one)\n"
    );
    assert_eq!(sandbox.ok(&["scan", "store"]), lines);
    sandbox.fails(&["import", "store", "data", "--strict"], 10, "users, void");
    sandbox.ok(&["import", "store", "data", "--database", "users", "--keyspace", "users"]);
    assert_eq!(sandbox.ok(&["scan", "store", "--keyspace", "users"]), "ada\t1\nbob\t2\n");
    sandbox.ok(&["import", "store", "data", "--database", "void", "--strict"]);
    sandbox.fails(&["import", "store", "data", "--database", "frob"], 2, "no database frob");
    std::fs::create_dir(sandbox.path("env")).expect("a directory");
    sandbox.write("env/data.mdb", &bytes);
    sandbox.ok(&["create", "other", "--size", "64M"]);
    let output = sandbox.run(&["import", "other", "env", "--json"]);
    assert!(text(&output.stdout).contains("\"imported\":301,"), "{}", text(&output.stdout));
}

#[test]
fn the_newer_meta_page_is_used() {
    let sandbox = Sandbox::with_store();
    let mut lmdb = Lmdb::new();
    let (old, new) = (lmdb.page(2, &[pair(b"k", b"old")]), lmdb.page(2, &[pair(b"k", b"new")]));
    lmdb.meta(0, 8, &database(1, 1, old));
    lmdb.meta(1, 9, &database(1, 1, new));
    sandbox.write("data", lmdb.pages.concat());
    sandbox.ok(&["import", "store", "data"]);
    assert_eq!(sandbox.ok(&["get", "store", "k"]), "new");
}

#[test]
fn keys_with_several_values_are_left_out_or_refused() {
    let sandbox = Sandbox::with_store();
    let mut lmdb = Lmdb::new();
    let double = Node { flags: 4, ..pair(b"b", &[0; 32]) };
    let root = lmdb.page(2, &[pair(b"a", b"1"), double, pair(b"c", b"3")]);
    sandbox.write("data", lmdb.end(1, root));
    sandbox.fails(&["import", "store", "data", "--strict"], 10, "1 keys with several values");
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
    let output = sandbox.run(&["import", "store", "data"]);
    assert!(text(&output.stderr).contains("1 keys with several values"), "{}", text(&output.stderr));
    assert_eq!(sandbox.ok(&["scan", "store"]), "a\t1\nc\t3\n");
}

#[test]
fn hostile_files_are_refused_and_nothing_of_them_is_imported() {
    let sandbox = Sandbox::with_store();
    let refused = |bytes: Vec<u8>, says: &str| {
        sandbox.write("data", bytes);
        sandbox.fails(&["import", "store", "data", "--format", "lmdb"], 10, says);
    };
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(1, &[branch(b"", 2), branch(b"b", 2)]);
    refused(lmdb.end(32, root), "form a loop");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(1, &[branch(b"", 2)]);
    refused(lmdb.end(33, root), "depth 33");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(2, &[pair(b"a", b"1"), Node { low: u32::MAX, ..pair(b"b", b"2") }]);
    refused(lmdb.end(1, root), "does not fit into the page");
    let mut lmdb = Lmdb::new();
    let long = lmdb.long(b"a", &[7; 5000]);
    let root = lmdb.page(2, &[Node { low: 9000, ..long.clone() }]);
    refused(lmdb.end(1, root), "does not fit into its pages");
    let mut lmdb = Lmdb::new();
    let long = lmdb.long(b"a", &[7; 5000]);
    let copies: Vec<Node> = (0..9).map(|n| Node { key: vec![b'a' + n], ..long.clone() }).collect();
    let root = lmdb.page(2, &copies);
    refused(lmdb.end(1, root), "use the same pages");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(1, &[branch(b"", 1 << 40)]);
    refused(lmdb.end(2, root), "does not have this page");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(2, &[pair(b"", b"1")]);
    refused(lmdb.end(1, root), "key has 0 bytes");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(2, &[pair(b"a", b"1"), pair(b"b", b"2")]);
    refused(lmdb.end_with(&database(1, 3, root)), "2 keys, and its description says 3");
    let mut lmdb = Lmdb::new();
    let root = lmdb.page(2, &[pair(b"a", &[7; 1500]), pair(b"b", b"2")]);
    let mut bytes = lmdb.end_with(&database(1, 3, root));
    let offsets = root as usize * PAGE + 16;
    // The three slots of the page name the same long node.
    let first = [bytes[offsets], bytes[offsets + 1]];
    (0..3).for_each(|slot| bytes[offsets + 2 * slot..][..2].copy_from_slice(&first));
    bytes[root as usize * PAGE + 12] += 2;
    refused(bytes, "does not fit into the page");
    let (bytes, _) = file();
    refused(bytes[..bytes.len() - PAGE].to_vec(), "does not have this page");
    refused(bytes[..200].to_vec(), "ends within");
    refused(b"no store".repeat(100), "not a data file of LMDB");
    assert_eq!(sandbox.ok(&["count", "store"]), "0\n");
}
