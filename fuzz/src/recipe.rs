//! Bytes of a fuzzer, read as decisions. All bytes are valid, so each mutation is another input.

/// The remaining bytes. After the end, each decision is 0.
pub struct Recipe<'a> {
    rest: &'a [u8],
}

impl<'a> Recipe<'a> {
    /// Returns a recipe that starts with the first byte.
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Whether no bytes are left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Consumes a byte.
    pub fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((first, rest)) => {
                self.rest = rest;
                *first
            }
            None => 0,
        }
    }

    /// Consumes two bytes, and returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        let number = usize::from(self.byte()) << 8 | usize::from(self.byte());
        number % bound.max(1)
    }

    /// Consumes at most `count` bytes.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Chooses an element.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

/// Returns the bytes of a command in the array form.
pub fn encode(arguments: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
    for argument in arguments {
        bytes.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        bytes.extend_from_slice(argument);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}
