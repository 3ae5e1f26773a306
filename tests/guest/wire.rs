//! What a test and the agent in its guest say to each other: requests and answers of a kind and parts.
//!
//! The agent connects. A connection carries one request and its answer, and after [`UNIX`] the bytes of a unix socket. It
//! begins with the token of the guest, so that no other guest's agent is taken for it.

/// Runs a program: its arguments, the program first. Answered with the exit code as a decimal number, the standard output
/// and the standard error. A program that a signal has ended has the code 128 and the signal's number.
pub(crate) const EXEC: u8 = b'x';
/// Writes a file: path, mode as an octal number, content.
pub(crate) const PUT: u8 = b'p';
/// Reads a file: path. Answered with its content.
pub(crate) const GET: u8 = b'g';
/// Connects to a unix socket: path.
pub(crate) const UNIX: u8 = b'u';
/// An answer: it was done.
pub(crate) const DONE: u8 = b'd';
/// An answer: it failed, and why.
pub(crate) const FAILED: u8 = b'f';

/// A request or answer as it is sent: the kind, the number of parts, and each part after its length.
pub(crate) fn encode(kind: u8, parts: &[&[u8]]) -> Vec<u8> {
    let length = |bytes: usize| u32::try_from(bytes).expect("a test sends no 4 GiB").to_be_bytes();
    let mut frame = vec![kind];
    frame.extend(length(parts.len()));
    for part in parts {
        frame.extend(length(part.len()));
        frame.extend_from_slice(part);
    }
    frame
}
