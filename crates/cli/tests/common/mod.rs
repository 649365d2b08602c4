//! Shared helpers of the program's tests: a temporary directory, and the built program.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use lodestore_contract::testing::Scratch;

/// A directory removed with its owner, in memory if the machine has tmpfs.
pub struct Sandbox {
    dir: Scratch,
}

impl Sandbox {
    /// Returns a new empty sandbox.
    pub fn new() -> Self {
        Self { dir: Scratch::new() }
    }

    /// Returns a new empty sandbox on a disk.
    pub fn on_disk() -> Self {
        Self { dir: Scratch::on_disk() }
    }

    /// Returns a new sandbox with an empty store of 64 MiB named `store`.
    pub fn with_store() -> Self {
        let sandbox = Self::new();
        sandbox.ok(&["create", "store", "--engine", "hikv", "--size", "64M"]);
        sandbox
    }

    /// Returns a path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file in it.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).expect("a file is written");
    }

    /// Returns the program with these arguments, to be started in the directory.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lodestore"));
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    /// Runs the program, which must exit with 0 and write nothing to standard error. Returns its
    /// output.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""), "{}", shown(args));
        text(&output.stdout)
    }

    /// Runs the program, which must exit with this code and write exactly one line with `says` to
    /// standard error. Returns its output.
    pub fn fails(&self, args: &[&str], code: i32, says: &str) -> String {
        let output = self.run(args);
        failed(&output, code, says, args);
        text(&output.stdout)
    }

    /// Runs the program with this standard input.
    pub fn feed(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || {
            // A program that stops early closes the pipe; its exit code matters.
            let _ = stdin.write_all(&input);
        });
        let output = child.wait_with_output().expect("the program ends");
        writer.join().expect("the writer ends");
        output
    }

    /// Flips a bit in the first copy of `bytes` in a file of a store.
    pub fn damage(&self, file: &str, bytes: &[u8]) {
        let path = self.path(file);
        let mut found = std::fs::read(&path).expect("the file");
        let at = found.windows(bytes.len()).position(|window| window == bytes).expect("the bytes are in the file");
        found[at] ^= 1;
        std::fs::write(&path, found).expect("the file is written");
    }

    /// Starts an import of tsv lines into `store` that stays open.
    pub fn importer(&self) -> Importer {
        Self::start_importer(self.command(&IMPORT))
    }

    /// Starts such an import in a shell that ignores a signal.
    pub fn importer_ignoring(&self, signal: &str) -> Importer {
        let import = self.command(&IMPORT);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("trap '' {signal}; exec \"$0\" \"$@\"")]).arg(import.get_program());
        shell.args(import.get_args()).current_dir(self.path("."));
        Self::start_importer(shell)
    }

    fn start_importer(mut command: Command) -> Importer {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        Importer { child, input, output }
    }
}

/// The arguments of an import from standard input.
const IMPORT: [&str; 6] = ["import", "store", "-", "--format", "tsv", "--acks"];

/// An import that waits for more input.
pub struct Importer {
    pub child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Importer {
    /// Sends these lines.
    pub fn send(&mut self, lines: &str) {
        self.input.write_all(lines.as_bytes()).and_then(|()| self.input.flush()).expect("the import reads");
    }

    /// Waits until at least `count` records are acknowledged. Returns their number.
    pub fn acknowledged(&mut self, count: u64) -> u64 {
        loop {
            let mut line = String::new();
            self.output.read_line(&mut line).expect("the import writes");
            let said = line.trim().strip_prefix("acknowledged ").and_then(|number| number.parse().ok());
            let said: u64 = said.unwrap_or_else(|| panic!("{line:?} is no acknowledgement"));
            if said >= count {
                return said;
            }
        }
    }

    /// Stops reading its output, sends more lines, and waits for its end.
    pub fn leave(self, lines: &str) -> Output {
        let Self { child, mut input, output } = self;
        drop(output);
        input.write_all(lines.as_bytes()).expect("the import reads");
        let ended = child.wait_with_output().expect("the import ends");
        drop(input);
        ended
    }

    /// Kills it as `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().and_then(|()| self.child.wait()).expect("the import dies");
    }

    /// Sends it a signal by name.
    pub fn send_signal(&self, name: &str) {
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.child.id())).status();
        assert!(sent.expect("sh starts").success());
    }

    /// Sends it a signal by name, and waits for its end.
    pub fn signal(self, name: &str) -> Output {
        self.send_signal(name);
        // The input stays open: the signal ends the import.
        let Self { child, input, output } = self;
        let mut ended = child.wait_with_output().expect("the import ends");
        drop(input);
        let mut output = output;
        std::io::Read::read_to_end(&mut output, &mut ended.stdout).expect("what it wrote");
        ended
    }
}

/// Checks an exit with `code` and exactly one line with `says` on standard error.
pub fn failed(output: &Output, code: i32, says: &str, args: &[&str]) {
    let error = text(&output.stderr);
    let args = shown(args);
    assert_eq!(output.status.code(), Some(code), "{args}: {error}");
    let one_line = error.starts_with("lodestore: ") && error.ends_with('\n') && error.matches('\n').count() == 1;
    assert!(one_line, "{args}: {error:?}");
    assert!(error.contains(says), "{args}: {error:?} does not say {says:?}");
}

/// Returns arguments for a message, long ones truncated.
fn shown(args: &[&str]) -> String {
    args.iter().map(|arg| format!("{arg:.60}")).collect::<Vec<_>>().join(" ")
}

/// Whether this process, and so the programs that it starts, ignores a signal: a shell ignores INT
/// for background jobs, and `nohup` ignores HUP.
pub fn is_ignored(signal: &str) -> bool {
    let number = match signal {
        "HUP" => 1,
        "INT" => 2,
        "TERM" => 15,
        other => panic!("an unknown signal {other}"),
    };
    let status = std::fs::read_to_string("/proc/self/status").expect("the state of this process");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask");
    let is_ignored = u64::from_str_radix(mask.trim(), 16).expect("a number") >> (number - 1) & 1 == 1;
    if is_ignored {
        println!("not tried: {signal} is ignored here");
    }
    is_ignored
}

/// Returns bytes as text.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
