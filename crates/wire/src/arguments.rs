//! The arguments of one command.

/// A range of bytes of the read buffer, relative to the first byte of the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte.
    pub end: usize,
}

impl Span {
    /// Returns the bytes of the span in `buffer`.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than the command that the span comes from.
    pub fn of(self, buffer: &[u8]) -> &[u8] {
        &buffer[self.start..self.end]
    }
}

/// The arguments of one command: its name first.
///
/// An argument of the array form is a range of the read buffer. An inline command may have
/// escapes, so its arguments are decoded into a buffer of their own.
#[derive(Debug, Default)]
pub struct Arguments {
    pub(crate) spans: Vec<Span>,
    pub(crate) decoded: Option<Vec<u8>>,
}

impl Arguments {
    /// Returns the number of arguments, the command's name included.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns argument `index`, if there are so many. `command` begins with the first byte of the
    /// command.
    pub fn get<'a>(&'a self, index: usize, command: &'a [u8]) -> Option<&'a [u8]> {
        self.spans.get(index).map(|span| span.of(self.source(command)))
    }

    /// Iterates over the arguments. `command` begins with the first byte of the command.
    pub fn iter<'a>(&'a self, command: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        let source = self.source(command);
        self.spans.iter().map(|span| span.of(source))
    }

    /// Returns the ranges of the arguments, and the buffer of their own that they refer to, if the
    /// command was an inline one.
    pub fn spans(&self) -> (&[Span], Option<&[u8]>) {
        (&self.spans, self.decoded.as_deref())
    }

    fn source<'a>(&'a self, command: &'a [u8]) -> &'a [u8] {
        self.decoded.as_deref().unwrap_or(command)
    }

    /// Forgets all arguments, and keeps at most a small buffer.
    pub(crate) fn clear(&mut self) {
        /// Most spans whose memory a connection keeps between commands: 4 KiB.
        const KEPT_SPANS_MAX: usize = 256;
        if self.spans.capacity() > KEPT_SPANS_MAX {
            self.spans = Vec::new();
        }
        self.spans.clear();
        self.decoded = None;
    }
}
