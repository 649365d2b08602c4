//! Skipped values.

use std::io::Read;

use super::{Halt, Source};

impl<R: Read> Source<R> {
    /// Skips a value. Returns the name of its type.
    pub(super) fn skip_value<E>(&mut self, kind: u8) -> Result<&'static str, Halt<E>> {
        Ok(match kind {
            1 | 14 => {
                self.skip_strings()?;
                "lists"
            }
            10 => {
                self.read_string()?;
                "lists"
            }
            18 => {
                for _ in 0..self.read_len()? {
                    self.read_len()?;
                    self.read_string()?;
                }
                "lists"
            }
            2 => {
                self.skip_strings()?;
                "sets"
            }
            11 | 20 => {
                self.read_string()?;
                "sets"
            }
            3 | 5 => {
                for _ in 0..self.read_len()? {
                    self.read_string()?;
                    self.skip_score(kind == 5)?;
                }
                "sorted sets"
            }
            12 | 17 => {
                self.read_string()?;
                "sorted sets"
            }
            7 => {
                self.read_len()?;
                self.skip_module()?;
                "values of modules"
            }
            15 | 19 | 21 => {
                self.skip_stream(kind)?;
                "streams"
            }
            _ => return self.fail(format!("a value has the unknown type {kind}")),
        })
    }

    fn skip_strings<E>(&mut self) -> Result<(), Halt<E>> {
        for _ in 0..self.read_len()? {
            self.read_string()?;
        }
        Ok(())
    }

    fn skip_lens<E>(&mut self, count: usize) -> Result<(), Halt<E>> {
        (0..count).try_for_each(|_| self.read_len().map(drop))
    }

    /// Skips the score of a member: 8 bytes, or decimal digits after their number. Numbers above
    /// 252 are values without digits.
    fn skip_score<E>(&mut self, is_binary: bool) -> Result<(), Halt<E>> {
        if is_binary {
            return self.read_array::<8, E>().map(drop);
        }
        match self.read_byte()? {
            253.. => Ok(()),
            len => self.read_bytes(u64::from(len)).map(drop),
        }
    }

    /// Skips the data that a module keeps outside of keys.
    pub(super) fn skip_module_aux<E>(&mut self) -> Result<(), Halt<E>> {
        // The module, the opcode of a number, and the time of loading.
        self.skip_lens(3)?;
        self.skip_module()
    }

    /// Skips data of a module, up to its end.
    fn skip_module<E>(&mut self) -> Result<(), Halt<E>> {
        loop {
            match self.read_len()? {
                0 => return Ok(()),
                1 | 2 => drop(self.read_len()?),
                3 => drop(self.read_array::<4, E>()?),
                4 => drop(self.read_array::<8, E>()?),
                5 => drop(self.read_string()?),
                opcode => return self.fail(format!("data of a module has the unknown opcode {opcode}")),
            }
        }
    }

    fn skip_stream<E>(&mut self, kind: u8) -> Result<(), Halt<E>> {
        for _ in 0..self.read_len()? {
            self.read_string()?;
            self.read_string()?;
        }
        // The number of entries and the last id; later the first id, the largest deleted one, and
        // the number of entries ever added.
        self.skip_lens(if kind == 15 { 3 } else { 8 })?;
        for _ in 0..self.read_len()? {
            self.read_string()?;
            self.skip_lens(if kind == 15 { 2 } else { 3 })?;
            for _ in 0..self.read_len()? {
                // The id, the time of delivery, and the number of deliveries.
                self.read_array::<24, E>()?;
                self.read_len()?;
            }
            for _ in 0..self.read_len()? {
                self.read_string()?;
                self.read_array::<8, E>()?;
                if kind == 21 {
                    self.read_array::<8, E>()?;
                }
                for _ in 0..self.read_len()? {
                    self.read_array::<16, E>()?;
                }
            }
        }
        Ok(())
    }
}
