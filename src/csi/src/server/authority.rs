//! What gRPC clients call a unix socket.
//!
//! A client that is given a path sends it as `:authority`: kubelet (Go) for every plugin, and everything on gRPC's C core
//! (Python, C++, Ruby, PHP). It is percent-encoded, or by older clients not encoded at all. The HTTP implementation below
//! takes a percent sign and a slash there for malformed and resets the stream (hyperium/h2#487). No service looks at the
//! authority, so each percent sign in one becomes a dot and each slash a three on its way in. The length of the text
//! stays, so the header tables of both ends stay alike, and nothing else is touched: neither the other headers, nor what
//! is no HTTP/2.
//!
//! Go sends the text in Huffman's code. There, too, one bit makes a dot of a percent sign and a three of a slash, and it is
//! the first one by which they are told from everything else that may stand in an authority, so what has arrived can be
//! passed on at once.
//!
//! Sources: RFC 9113 sections 4.1, 6.2, 6.10 (frames) and RFC 7541 sections 5 and 6 (header fields), appendix B (the code).

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
};
use tonic::transport::server::Connected;

/// What a client sends first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// How many bytes a frame's header has, and how many the priority of a HEADERS frame.
const FRAME_HEADER: usize = 9;
const PRIORITY_LENGTH: usize = 5;
const NAME: &[u8] = b":authority";
/// The place of [`NAME`] in the static table.
const NAME_INDEX: usize = 1;

/// The lengths of the code's words up to 15 bits, with the first and the last word of each. What is longer stands for no
/// character of an authority.
const WORDS: [(u8, u16, u16); 10] = [
    (5, 0b0_0000, 0b0_1001),
    (6, 0b01_0100, 0b10_1101),
    (7, 0b101_1100, 0b111_1011),
    (8, 0b1111_1000, 0b1111_1101),
    (10, 0b11_1111_1000, 0b11_1111_1100),
    (11, 0b111_1111_1010, 0b111_1111_1100),
    (12, 0b1111_1111_1010, 0b1111_1111_1011),
    (13, 0b1_1111_1111_1000, 0b1_1111_1111_1101),
    (14, 0b11_1111_1111_1100, 0b11_1111_1111_1101),
    (15, 0b111_1111_1111_1100, 0b111_1111_1111_1110),
];

/// A connection whose authorities have neither percent signs nor slashes any more when they are read.
#[derive(Debug)]
pub(super) struct AnyAuthority {
    stream: UnixStream,
    frames: Frames,
}

impl AnyAuthority {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, frames: Frames::default() }
    }
}

impl Connected for AnyAuthority {
    type ConnectInfo = <UnixStream as Connected>::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for AnyAuthority {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.frames.mend(&mut buf.filled_mut()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for AnyAuthority {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Where in the frames of a connection the next byte stands.
#[derive(Debug, Default)]
struct Frames {
    at: Place,
    fields: Fields,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the preface, so many bytes after its beginning.
    Preface(usize),
    /// In a frame's header, of which so many bytes are known.
    Header([u8; FRAME_HEADER], usize),
    /// At the length of the padding: what is before the fields, and what is left of the frame.
    Padding { before: usize, left: usize, ends: bool },
    /// Before, in and behind the header fields of a frame; whether they end with it.
    Fields { before: usize, fields: usize, after: usize, ends: bool },
    /// In a frame without header fields.
    Other(usize),
    /// This is no HTTP/2.
    Lost,
}

impl Default for Place {
    fn default() -> Self {
        Self::Preface(0)
    }
}

impl Frames {
    /// Mends what has arrived; it may end anywhere.
    fn mend(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let taken = match &mut self.at {
                Place::Lost => return,
                Place::Preface(known) => {
                    if bytes[0] != PREFACE[*known] {
                        self.at = Place::Lost;
                        return;
                    }
                    *known += 1;
                    if *known == PREFACE.len() {
                        self.at = Place::Header([0; FRAME_HEADER], 0);
                    }
                    1
                }
                Place::Header(header, known) => {
                    header[*known] = bytes[0];
                    *known += 1;
                    if *known == FRAME_HEADER {
                        self.at = payload(*header);
                    }
                    1
                }
                Place::Padding { before, left, ends } => {
                    let after = usize::from(bytes[0]);
                    let fields = left.saturating_sub(*before + after);
                    self.at = Place::Fields { before: *before, fields, after, ends: *ends };
                    1
                }
                Place::Fields { before, fields, after, .. } => {
                    if let Some(taken) = take(before, bytes.len()) {
                        taken
                    } else if let Some(taken) = take(fields, bytes.len()) {
                        bytes[..taken].iter_mut().for_each(|byte| self.fields.mend(byte));
                        taken
                    } else {
                        take(after, bytes.len()).unwrap_or(0)
                    }
                }
                Place::Other(left) => take(left, bytes.len()).unwrap_or(0),
            };
            bytes = &mut bytes[taken..];
            match self.at {
                Place::Fields { before: 0, fields: 0, after: 0, ends } => {
                    if ends {
                        self.fields = Fields::default();
                    }
                    self.at = Place::Header([0; FRAME_HEADER], 0);
                }
                Place::Other(0) => self.at = Place::Header([0; FRAME_HEADER], 0),
                _ => {}
            }
        }
    }
}

/// Takes as much as there is, `None` if there is nothing.
fn take(left: &mut usize, there: usize) -> Option<usize> {
    let taken = (*left).min(there);
    *left -= taken;
    (taken > 0).then_some(taken)
}

/// What follows a frame's header.
fn payload(header: [u8; FRAME_HEADER]) -> Place {
    let [high, middle, low, kind, flags, ..] = header;
    let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
    let ends = flags & END_HEADERS != 0;
    match kind {
        HEADERS => {
            let before = if flags & PRIORITY == 0 { 0 } else { PRIORITY_LENGTH };
            match length {
                0 => Place::Other(0),
                _ if flags & PADDED != 0 => Place::Padding { before, left: length - 1, ends },
                _ => {
                    let before = before.min(length);
                    Place::Fields { before, fields: length - before, after: 0, ends }
                }
            }
        }
        CONTINUATION => Place::Fields { before: 0, fields: length, after: 0, ends },
        _ => Place::Other(length),
    }
}

/// Where in a block of header fields the next byte stands.
#[derive(Debug, Default, Clone, Copy)]
enum Fields {
    /// At the first byte of a field.
    #[default]
    Start,
    /// In a number of several bytes: what is known of it, and how far the next bits are to be shifted.
    Number(usize, u32, Then),
    /// At the length of a text.
    Length(Text),
    /// In a text, so many bytes before its end.
    In(Text, usize),
}

/// What a number is followed by.
#[derive(Debug, Clone, Copy)]
enum Then {
    /// The next field.
    Start,
    /// A text: the name's, or if the number is the place of a name, the value's.
    Literal,
    /// The text whose length it is.
    Text(Text),
}

#[derive(Debug, Clone, Copy)]
enum Text {
    /// A name, as far as it has agreed with [`NAME`].
    Name(Option<usize>),
    /// The value that is looked for.
    Authority,
    /// The same in Huffman's code.
    CodedAuthority(Word),
    /// Any other value.
    Value,
}

/// The beginning of a word of Huffman's code: its bits and how many they are.
#[derive(Debug, Default, Clone, Copy)]
struct Word(u16, u8);

impl Word {
    /// Reads and mends a byte. `None` when it cannot be of an authority.
    fn mend(mut self, byte: &mut u8) -> Option<Self> {
        for bit in (0..8u8).rev().map(|shift| 1 << shift) {
            let Self(bits, length) = &mut self;
            *bits = *bits << 1 | u16::from(*byte & bit != 0);
            *length += 1;
            // A space, which no authority has, or a percent sign: a hyphen or a dot. A slash: a three.
            if matches!((*bits, *length), (0b0_1010, 5) | (0b01_1000, 6)) {
                *byte ^= bit;
                *bits ^= 1;
            }
            let whole = |(of, first, last): &(u8, u16, u16)| of == length && (first..=last).contains(&&*bits);
            if WORDS.iter().any(whole) {
                self = Self::default();
            } else if *length >= 15 {
                return None;
            }
        }
        Some(self)
    }
}

impl Fields {
    fn mend(&mut self, byte: &mut u8) {
        *self = match *self {
            Self::Start => match *byte {
                b if b & 0x80 != 0 => Self::number(b, 7, Then::Start),
                b if b & 0x40 != 0 => Self::number(b, 6, Then::Literal),
                b if b & 0x20 != 0 => Self::number(b, 5, Then::Start),
                b => Self::number(b, 4, Then::Literal),
            },
            Self::Number(known, shift, then) => {
                let bits = usize::from(*byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
                let value = known.saturating_add(bits);
                if *byte & 0x80 == 0 { Self::after(value, then) } else { Self::Number(value, shift + 7, then) }
            }
            Self::Length(text) => {
                let coded = *byte & 0x80 != 0;
                let text = match text {
                    Text::Name(_) if coded => Text::Name(None),
                    Text::Authority if coded => Text::CodedAuthority(Word::default()),
                    text => text,
                };
                Self::number(*byte, 7, Then::Text(text))
            }
            Self::In(text, left) => {
                let text = match text {
                    Text::Name(Some(known)) => Text::Name((NAME.get(known) == Some(byte)).then_some(known + 1)),
                    Text::Authority => {
                        *byte = match *byte {
                            b'%' => b'.',
                            b'/' => b'3',
                            other => other,
                        };
                        text
                    }
                    Text::CodedAuthority(word) => word.mend(byte).map_or(Text::Value, Text::CodedAuthority),
                    text => text,
                };
                Self::after(left - 1, Then::Text(text))
            }
        };
    }

    /// A number whose first bits are the last of a byte.
    fn number(byte: u8, bits: u32, then: Then) -> Self {
        let mask = (1u8 << bits) - 1;
        let value = usize::from(byte & mask);
        if byte & mask == mask { Self::Number(value, 0, then) } else { Self::after(value, then) }
    }

    fn after(value: usize, then: Then) -> Self {
        match (then, value) {
            (Then::Start, _) => Self::Start,
            (Then::Literal, 0) => Self::Length(Text::Name(Some(0))),
            (Then::Literal, NAME_INDEX) => Self::Length(Text::Authority),
            (Then::Literal, _) => Self::Length(Text::Value),
            (Then::Text(Text::Name(Some(known))), 0) if known == NAME.len() => Self::Length(Text::Authority),
            (Then::Text(Text::Name(_)), 0) => Self::Length(Text::Value),
            (Then::Text(_), 0) => Self::Start,
            (Then::Text(text), left) => Self::In(text, left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = length[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    fn text(text: &str) -> Vec<u8> {
        let mut bytes = number(0, 7, text.len());
        bytes.extend(text.bytes());
        bytes
    }

    fn number(first: u8, bits: u32, value: usize) -> Vec<u8> {
        let most = (1usize << bits) - 1;
        if value < most {
            return vec![first | u8::try_from(value).unwrap()];
        }
        let (mut bytes, mut rest) = (vec![first | u8::try_from(most).unwrap()], value - most);
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128).unwrap() | 0x80);
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap());
        bytes
    }

    fn literal(first: u8, name: &str, value: &str) -> Vec<u8> {
        [vec![first], text(name), text(value)].concat()
    }

    fn mended(bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
        let (mut bytes, mut frames) = (bytes.to_vec(), Frames::default());
        let mut rest = &mut bytes[..];
        for piece in pieces {
            let (now, later) = rest.split_at_mut((*piece).min(rest.len()));
            frames.mend(now);
            rest = later;
        }
        frames.mend(rest);
        bytes
    }

    fn connection(frames: &[Vec<u8>]) -> Vec<u8> {
        [PREFACE.to_vec(), frame(4, 0, &[0; 6]), frames.concat()].concat()
    }

    /// As grpcio 1.85 writes it (recorded).
    fn of_the_c_core(authority: &str) -> Vec<u8> {
        let first = [
            literal(0x40, ":path", "/csi.v1.Identity/GetPluginInfo%"),
            literal(0x40, ":authority", authority),
            vec![0x83, 0x86],
            literal(0x40, "user-agent", "grpc-python/1.85.1 %"),
        ]
        .concat();
        connection(&[
            frame(HEADERS, END_HEADERS, &first),
            frame(0, 1, b"\0\0\0\0\x02%%"),
            frame(HEADERS, END_HEADERS, &[0xc4, 0xc3, 0x83, 0x86, 0xbf]),
        ])
    }

    #[test]
    fn the_authority_of_the_c_core_loses_its_percent_signs_and_nothing_else_does() {
        let (sent, wanted) = (of_the_c_core("tmp%2Flazuli%2Fcsi.sock"), of_the_c_core("tmp.2Flazuli.2Fcsi.sock"));
        assert_eq!(mended(&sent, &[]), wanted);
    }

    #[test]
    fn an_authority_by_its_place_in_the_table_with_padding_and_priority_and_in_two_frames_is_found() {
        let long = "%2F".repeat(100);
        let field = [vec![0x41], text(&long)].concat();
        let wanted = [vec![0x41], text(&long.replace('%', "."))].concat();
        let framed = |field: &[u8]| {
            let (one, two) = field.split_at(70);
            let padded = [vec![7], vec![b'%'; PRIORITY_LENGTH], one.to_vec(), vec![b'%'; 7]].concat();
            connection(&[frame(HEADERS, PADDED | PRIORITY, &padded), frame(CONTINUATION, END_HEADERS, two)])
        };
        assert_eq!(mended(&framed(&field), &[]), framed(&wanted));
    }

    /// As Go's own encoder gives them (recorded): what is sent, and the same with other characters.
    const CODED: [(&str, &str); 3] = [
        ("5458534d6a8b0d03f76d06545848832e8393af", "5c58534d6b8b0d03f76d065c5848832e8393af"),
        ("6134d6c503f76d06608832e8393aff", "6534d6cd03f76d06648832e8393aff"),
        // Every character that an authority may have.
        (
            "54405978bffbfc7fe7e3fd7f5fdfcffbfafb82e7febff7ffc561bb7bf39feaa0089969b71d79f54719242cb34e6e9d68a6a3d7dac426defe3cfaf6aabf",
            "5c405978bffbfc7fe7e3fd7f5fdfcffbfafb82e7febff7ffc5e1bb7bf39feae0089969b71d79f5c719242cb34e6e9d68a6a3d7dac426defe3cfaf6baff",
        ),
    ];

    fn of_kubelet(coded: &str) -> Vec<u8> {
        let bytes = (0..coded.len()).step_by(2).map(|at| u8::from_str_radix(&coded[at..at + 2], 16).unwrap());
        let bytes: Vec<u8> = bytes.collect();
        let authority = [vec![0x41], number(0x80, 7, bytes.len()), bytes].concat();
        let first = [vec![0x83, 0x86], literal(0x40, ":path", "/a%/b"), authority, literal(0x40, "te", "%/")].concat();
        connection(&[frame(HEADERS, END_HEADERS, &first), frame(0, 1, b"\0\0\0\0\x02%/")])
    }

    #[test]
    fn an_authority_in_huffmans_code_loses_its_percent_signs_and_slashes() {
        for (sent, wanted) in CODED {
            assert_eq!(mended(&of_kubelet(sent), &[]), of_kubelet(wanted));
        }
    }

    #[test]
    fn a_path_that_is_not_encoded_loses_its_slashes() {
        assert_eq!(mended(&of_the_c_core("/tmp/csi.sock"), &[]), of_the_c_core("3tmp3csi.sock"));
    }

    #[test]
    fn what_is_no_http_2_stays_as_it_is() {
        let sent = b"GET /%2F HTTP/1.1\r\nHost: tmp%2Fcsi.sock\r\n\r\n";
        assert_eq!(mended(sent, &[]), sent);
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_the_bytes_arrive(pieces in proptest::collection::vec(0usize..40, 0..80)) {
            let sent = of_the_c_core("tmp%2Flazuli%2Fcsi.sock");
            prop_assert_eq!(mended(&sent, &pieces), of_the_c_core("tmp.2Flazuli.2Fcsi.sock"));
            for (sent, wanted) in CODED {
                prop_assert_eq!(mended(&of_kubelet(sent), &pieces), of_kubelet(wanted));
            }
        }

        #[test]
        fn whatever_arrives_is_passed_on_in_full(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let sent = [PREFACE, &bytes].concat();
            prop_assert_eq!(mended(&sent, &[]).len(), sent.len());
        }

        #[test]
        fn fields_of_every_kind_are_passed_over(
            fields in proptest::collection::vec((0u8..6, "[a-z%]{0,300}", 0usize..3000), 0..8),
            value in "[a-z%]{0,200}",
        ) {
            let before: Vec<u8> = fields.iter().flat_map(|(kind, value, n)| match kind {
                0 => number(0x80, 7, n + 1),
                1 => number(0x20, 5, *n),
                2 => [number(0x40, 6, n + 2), text(value)].concat(),
                3 => [number(0x00, 4, n + 2), text(value)].concat(),
                4 => [number(0x10, 4, n + 2), text(value)].concat(),
                _ => literal(0x40, &format!("{value}:authority"), value),
            }).collect();
            // A name that only ends like it is another name, unless nothing stands before.
            let other = fields.iter().all(|(kind, value, _)| *kind != 5 || !value.is_empty());
            prop_assume!(other);
            let block = |value: &str| [before.clone(), literal(0x10, ":authority", value)].concat();
            let sent = connection(&[frame(HEADERS, END_HEADERS, &block(&value))]);
            prop_assert_eq!(mended(&sent, &[]), connection(&[frame(HEADERS, END_HEADERS, &block(&value.replace('%', ".")))]));
        }
    }
}
