//! A datagram on a lane's socket, from either end.

use lane::message;

/// Decodes `data` as a request and as a reply.
pub fn run(data: &[u8]) {
    message::decode_any(data);
}
