//! CRC-64 with the polynomial of Jones, as Redis writes it at the end of a snapshot.

/// The polynomial, reflected.
const POLYNOMIAL: u64 = 0x95AC_9329_AC4B_C9B5;
/// Bytes that one step reads.
const STEP_BYTES: usize = 8;

/// For each byte, its sum after 0 to 7 further bytes.
static SUMS: [[u64; 256]; STEP_BYTES] = sums();

const fn sums() -> [[u64; 256]; STEP_BYTES] {
    let mut sums = [[0; 256]; STEP_BYTES];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            sum = (sum >> 1) ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL };
            bit += 1;
        }
        sums[0][byte] = sum;
        byte += 1;
    }
    let mut after = 1;
    while after < STEP_BYTES {
        let mut byte = 0;
        while byte < 256 {
            let sum = sums[after - 1][byte];
            sums[after][byte] = (sum >> 8) ^ sums[0][(sum & 0xFF) as usize];
            byte += 1;
        }
        after += 1;
    }
    sums
}

/// The sum of the bytes so far.
#[derive(Debug, Default)]
pub struct Crc64(u64);

impl Crc64 {
    /// Continues the sum over `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
        for step in steps {
            let mixed = (self.0 ^ u64::from_le_bytes(*step)).to_le_bytes();
            self.0 = mixed.iter().zip(SUMS.iter().rev()).fold(0, |sum, (byte, sums)| sum ^ sums[usize::from(*byte)]);
        }
        for byte in rest {
            self.0 = SUMS[0][usize::from(self.0 as u8 ^ byte)] ^ (self.0 >> 8);
        }
    }

    /// Returns the sum.
    pub fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum bit by bit, from the definition.
    fn slow(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |sum, byte| {
            (0..8).fold(sum ^ u64::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL })
        })
    }

    #[test]
    fn the_sum_agrees_with_the_definition_at_every_length_and_cut() {
        let bytes: Vec<u8> = (0..100u32).map(|at| (at * at * 31 + 7) as u8).collect();
        for len in 0..=bytes.len() {
            let mut sum = Crc64::default();
            sum.update(&bytes[..len / 3]);
            sum.update(&bytes[len / 3..len]);
            assert_eq!(sum.value(), slow(&bytes[..len]), "{len} bytes");
        }
        let mut check = Crc64::default();
        check.update(b"123456789");
        // The check value of Redis' own test.
        assert_eq!(check.value(), 0xE9C6_D914_C4B8_D9CA);
    }
}
