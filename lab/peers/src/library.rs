//! Shared libraries of the system, loaded at first use and kept until the process ends.

use std::ffi::{CString, c_char, c_int};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libloading::{AsFilename, Library};
use lodestore_contract::{Error, Result};

/// A library, and the package that contains it.
pub(crate) struct Source {
    /// The peer that needs it, as in `--peers`.
    pub(crate) peer: &'static str,
    /// Its file name, with the version of its interface.
    pub(crate) file: &'static str,
    /// The package of Debian and Ubuntu that contains it.
    pub(crate) package: &'static str,
}

impl Source {
    /// Returns the error for a library that is missing or unusable.
    pub(crate) fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::InvalidOption {
            name: "peers".into(),
            value: self.peer.into(),
            why: format!("{why}: install Debian's package {} (scripts/peers.sh does)", self.package),
        }
    }

    /// Loads the library.
    pub(crate) fn load(&self) -> Result<Library> {
        self.load_file(self.file)
    }

    fn load_file(&self, file: impl AsFilename) -> Result<Library> {
        // SAFETY: Inv 1: the file name is one of this crate's, and its initialization has no
        // requirements.
        let loaded = unsafe { Library::new(file) };
        loaded.map_err(|_| self.refuse(format!("{} is not here or cannot be loaded", self.file)))
    }
}

/// Returns a function of a library: a copy of its pointer, valid while the library is loaded, which
/// is until the process ends (Inv 1).
///
/// # Safety
/// `F` is the type of the function `name` (Inv 2).
pub(crate) unsafe fn function<F: Copy>(library: &Library, source: &Source, name: &str) -> Result<F> {
    // SAFETY: Inv 2, guaranteed by the caller.
    let found = unsafe { library.get::<F>(name) };
    found.map(|symbol| *symbol).map_err(|_| source.refuse(format!("{} has no function {name}", source.file)))
}

/// Returns the address ranges of the code of the library with this file name in this process.
pub(crate) fn code_of(file: &str) -> Vec<std::ops::Range<usize>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    code_in(&maps, file)
}

/// Returns the executable ranges of `file` in a text with the format of `/proc/self/maps`.
fn code_in(maps: &str, file: &str) -> Vec<std::ops::Range<usize>> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let executable = words.next()?.contains('x');
        let path = words.nth(3)?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        (executable && path.rsplit('/').next()? == file).then_some(number(from)?..number(to)?)
    };
    maps.lines().filter_map(range).collect()
}

/// Returns whether the files of this directory are in memory: on tmpfs, by `/proc/self/mounts`.
pub(crate) fn is_memory(dir: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    std::fs::canonicalize(dir).is_ok_and(|dir| is_memory_in(&mounts, &dir))
}

/// Returns the same for a text with the format of `/proc/self/mounts`. Of several file systems at
/// one mount point the last counts.
fn is_memory_in(mounts: &str, dir: &Path) -> bool {
    let place = |line: &str| {
        let mut words = line.split(' ').skip(1);
        let place = words.next()?.replace("\\040", " ");
        let depth = Path::new(&place).components().count();
        dir.starts_with(&place).then_some((depth, matches!(words.next()?, "tmpfs" | "ramfs")))
    };
    mounts.lines().filter_map(place).max_by_key(|(depth, _)| *depth).is_some_and(|(_, memory)| memory)
}

/// Returns the error of an operation that a store refused. If its text reports a full medium, the
/// error's kind does so too.
pub(crate) fn failed(doing: &'static str, text: String) -> Error {
    let full = [NO_ROOM, "os error 28", "StorageFull"].iter().any(|words| text.contains(words));
    let kind = if full { ErrorKind::StorageFull } else { ErrorKind::Other };
    Error::io(doing, "", std::io::Error::new(kind, text))
}

/// The text of ENOSPC, which the peers pass on.
const NO_ROOM: &str = "No space left on device";

/// Returns a length as 32 bits for C.
pub(crate) fn length(bytes: &[u8]) -> Result<u32> {
    u32::try_from(bytes.len()).map_err(|_| failed("giving bytes to a peer", format!("{} bytes", bytes.len())))
}

/// Returns a path as a C string.
pub(crate) fn c_path(doing: &'static str, path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| failed(doing, "a zero byte in the path".into()))
}

/// C's `false`, and its code for success.
pub(crate) const ZERO: c_int = 0;

/// Returns bytes as a C text of a given length.
#[inline]
pub(crate) fn chars(bytes: &[u8]) -> *const c_char {
    bytes.as_ptr().cast()
}

/// Declares types that are opaque to Rust.
macro_rules! opaque {
    ($($name:ident)*) => {$(
        /// A type that is opaque to Rust.
        #[repr(C)]
        pub(super) struct $name {
            inside: [u8; 0],
        }
    )*};
}

/// Declares `Api`, the functions of the library `$source`: for each function its field, its symbol
/// name, and its prototype. If a name prefix is given, `Api` also contains the functions common to
/// LevelDB and RocksDB.
macro_rules! c_api {
    ($source:expr, $header:literal, $prefix:literal; $($functions:tt)*) => {
        $crate::library::c_api! {
            $source, $header;
            [common: $crate::common::Common = |library| $crate::common::Common::load(library, &$source, $prefix)]
            $($functions)*
        }
    };
    ($source:expr, $header:literal; $([$more:ident: $of:ty = $load:expr])? $($field:ident = $symbol:literal: $type:ty;)*) => {
        #[doc = concat!("The functions, each a prototype of `", $header, "`.")]
        pub(super) struct Api {
            $(pub(super) $field: $type,)*
            $(pub(super) $more: $of,)?
            /// Keeps the functions loaded.
            #[expect(dead_code, reason = "held, so that the library stays loaded")]
            library: libloading::Library,
        }

        impl Api {
            fn load() -> lodestore_contract::Result<Self> {
                let library = $source.load()?;
                Ok(Self {
                    $($more: $load(&library)?,)?
                    // SAFETY: Inv 2: the list has the type next to the name, as in the library's
                    // header.
                    $($field: unsafe { $crate::library::function::<$type>(&library, &$source, $symbol) }?,)*
                    library,
                })
            }
        }
    };
}

pub(crate) use {c_api, opaque};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_refused_with_the_name_of_its_package() {
        let source = Source { peer: "some", file: "liblodestore-no-such.so.9", package: "libnosuch9" };
        let text = source.load().expect_err("there is no such library").to_string();
        assert!(text.contains("libnosuch9") && text.contains("liblodestore-no-such.so.9"), "{text}");
    }

    #[test]
    fn a_medium_that_is_full_by_a_stores_own_text_is_told_to_be() {
        let kind = |text: &str| match failed("putting", text.into()) {
            Error::Io { source, .. } => source.kind(),
            other => panic!("{other}"),
        };
        assert_eq!(kind("IO error: /x/1.log: No space left on device"), ErrorKind::StorageFull);
        assert_eq!(kind("I/O error: os error 28"), ErrorKind::StorageFull);
        assert_eq!(kind("Corruption: bad block"), ErrorKind::Other);
    }

    #[test]
    fn files_are_memory_where_the_deepest_mount_above_them_is() {
        let mounts = "/dev/sda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/sdb /dev/shm/disk ext4 rw 0 0\n\
                      /dev/sdc /a\\040b ext4 rw 0 0\ntmpfs /a\\040b tmpfs rw 0 0\nnonsense\n";
        let told = |dir: &str| is_memory_in(mounts, Path::new(dir));
        assert!(told("/dev/shm") && told("/dev/shm/x") && told("/a b/c"));
        assert!(!told("/") && !told("/dev") && !told("/dev/shm/disk/x") && !told("/dev/shmx"));
        assert!(!is_memory_in("", Path::new("/")));
    }

    #[test]
    fn code_is_what_is_executable_and_of_that_file() {
        let maps = "1000-2000 r--p 00000000 08:01 7 /lib/x/libdb-5.3.so\n\
                    2000-4000 r-xp 00001000 08:01 7 /lib/x/libdb-5.3.so\n\
                    4000-5000 r-xp 00000000 08:01 8 /lib/x/libother.so\n\
                    5000-6000 rw-p 00000000 00:00 0\nnonsense\n";
        assert_eq!(code_in(maps, "libdb-5.3.so"), vec![0x2000..0x4000]);
        assert!(code_in(maps, "libnone.so").is_empty());
    }
}
