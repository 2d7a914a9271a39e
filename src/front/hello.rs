//! Reads one thing from a TLS ClientHello in passing: whether its ALPN offers h2. Fed by the record counter; any split
//! across reads and records will do.

/// What the client said about application protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alpn {
    /// Not read yet, or not readable.
    Unknown,
    /// No ALPN at all, or one without h2.
    WithoutH2,
    OffersH2,
}

/// Longest ClientHello that is kept for reading; key shares of post-quantum exchanges make 2 KiB common.
const LONGEST: usize = 16 << 10;
const CLIENT_HELLO: u8 = 1;
const ALPN_EXTENSION: u16 = 16;

/// The first handshake message of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    Reading(Vec<u8>),
    Read(Alpn),
}

impl Default for Hello {
    fn default() -> Self {
        Self::Reading(Vec::new())
    }
}

impl Hello {
    pub(super) fn alpn(&self) -> Alpn {
        match self {
            Self::Reading(_) => Alpn::Unknown,
            Self::Read(alpn) => *alpn,
        }
    }

    /// The next bytes of the handshake stream.
    pub(super) fn pass(&mut self, bytes: &[u8]) {
        let Self::Reading(kept) = self else { return };
        kept.extend_from_slice(bytes);
        let Some((header, body)) = kept.split_first_chunk::<4>() else { return };
        let [kind, length @ ..] = *header;
        let length = length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        if kind != CLIENT_HELLO || length > LONGEST {
            *self = Self::Read(Alpn::Unknown);
        } else if let Some(message) = body.get(..length) {
            *self = Self::Read(alpn_of(message).unwrap_or(Alpn::Unknown));
        }
    }
}

/// RFC 8446, 4.1.2. `None` when the message contradicts its own lengths.
fn alpn_of(message: &[u8]) -> Option<Alpn> {
    let mut rest = message.get(2 + 32..)?;
    take_counted::<1>(&mut rest)?; // session id
    take_counted::<2>(&mut rest)?; // cipher suites
    take_counted::<1>(&mut rest)?; // compression methods
    if rest.is_empty() {
        return Some(Alpn::WithoutH2);
    }
    let mut extensions = take_counted::<2>(&mut rest)?;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(*take::<2>(&mut extensions)?);
        let mut extension = take_counted::<2>(&mut extensions)?;
        if kind == ALPN_EXTENSION {
            let mut names = take_counted::<2>(&mut extension)?;
            while !names.is_empty() {
                if take_counted::<1>(&mut names)? == b"h2" {
                    return Some(Alpn::OffersH2);
                }
            }
        }
    }
    Some(Alpn::WithoutH2)
}

fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(taken)
}

/// A vector preceded by its length in `N` bytes.
fn take_counted<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = take::<N>(bytes)?.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn counted<const N: usize>(bytes: &[u8]) -> Vec<u8> {
        let length = bytes.len().to_be_bytes();
        [&length[length.len() - N..], bytes].concat()
    }

    fn message(protocols: &[&str]) -> Vec<u8> {
        let names: Vec<u8> = protocols.iter().flat_map(|name| counted::<1>(name.as_bytes())).collect();
        let mut extensions = [&[0, 0][..], &counted::<2>(b"some server name")].concat();
        if !protocols.is_empty() {
            extensions.extend([0, 16]);
            extensions.extend(counted::<2>(&counted::<2>(&names)));
        }
        [
            &[3, 3][..],
            &[7; 32],
            &counted::<1>(&[9; 32]),
            &counted::<2>(&[0x13, 1, 0x13, 2]),
            &counted::<1>(&[0]),
            &counted::<2>(&extensions),
        ]
        .concat()
    }

    /// A ClientHello in one record.
    pub(in crate::front) fn client_hello(protocols: &[&str]) -> Vec<u8> {
        let handshake = [&[CLIENT_HELLO][..], &counted::<3>(&message(protocols))].concat();
        [&[22, 3, 1][..], &counted::<2>(&handshake)].concat()
    }

    fn read(protocols: &[&str]) -> Alpn {
        let mut hello = Hello::default();
        hello.pass(&client_hello(protocols)[5..]);
        hello.alpn()
    }

    #[test]
    fn the_offer_of_h2_is_found_wherever_it_stands() {
        assert_eq!(read(&["h2"]), Alpn::OffersH2);
        assert_eq!(read(&["http/1.1", "h2"]), Alpn::OffersH2);
        assert_eq!(read(&["http/1.1"]), Alpn::WithoutH2);
        assert_eq!(read(&["h2c", "xh2"]), Alpn::WithoutH2);
        assert_eq!(read(&[]), Alpn::WithoutH2);
    }

    #[test]
    fn a_truncated_or_foreign_message_is_unknown() {
        let whole = message(&["h2"]);
        for length in 0..whole.len() {
            assert_ne!(alpn_of(&whole[..length]), Some(Alpn::OffersH2), "{length}");
        }
        let mut server_hello = Hello::default();
        server_hello.pass(&[2, 0, 0, 1, 0]);
        assert_eq!(server_hello, Hello::Read(Alpn::Unknown));
        let mut endless = Hello::default();
        endless.pass(&[CLIENT_HELLO, 0xff, 0, 0]);
        assert_eq!(endless, Hello::Read(Alpn::Unknown));
    }
}
