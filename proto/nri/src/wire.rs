//! Frames of the connection, and the ttrpc messages in them.
//!
//! A frame is the number of a stream and a length, both of four bytes in network order, and that many bytes of the
//! stream. A message in a stream is its length, the number of its call, its type and flags, and a protobuf message.

use std::io;

use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::ttrpc::{Request, Response, Status};

/// Longest protobuf message in bytes, as in the runtime.
pub const LONGEST: usize = 4 << 20;
const FRAME_HEADER: usize = 8;
const MESSAGE_HEADER: usize = 10;
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
/// Flag of requests after which the caller sends nothing more for the call.
const NOTHING_FOLLOWS: u8 = 1;

/// Code of a response to a method that the service does not have.
pub const UNIMPLEMENTED: i32 = 12;
/// Code of a response to a request that failed for a reason of its own.
pub const UNKNOWN: i32 = 2;

/// Stream of the connection, by the side that is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CalledSide {
    /// The plugin, by the runtime.
    Plugin,
    /// The runtime, by the plugin.
    Runtime,
}

impl CalledSide {
    const BOTH: [Self; 2] = [Self::Plugin, Self::Runtime];

    const fn number(self) -> u32 {
        match self {
            Self::Plugin => 1,
            Self::Runtime => 2,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Plugin => 0,
            Self::Runtime => 1,
        }
    }
}

/// Request or response of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Stream of the call.
    pub called: CalledSide,
    /// Number of the call, odd; the response has the request's.
    pub call: u32,
    /// The call's beginning or its end.
    pub content: MessageContent,
}

/// MessageContent of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum MessageContent {
    /// Method with its encoded argument.
    Request(Request),
    /// The response to a request.
    Response(Response),
}

impl Message {
    /// Request for a method of the called side's service.
    pub fn request(called: CalledSide, call: u32, method: &str, argument: &impl prost::Message) -> Self {
        let service = match called {
            CalledSide::Plugin => crate::api::PLUGIN,
            CalledSide::Runtime => crate::api::RUNTIME,
        };
        let (service, method, payload) = (service.to_owned(), method.to_owned(), argument.encode_to_vec());
        let content = MessageContent::Request(Request { service, method, payload, timeout_nano: 0 });
        Self { called, call, content }
    }

    /// Response to a request: the encoded result, or a code with the reason of the failure.
    pub fn response(called: CalledSide, call: u32, result: Result<Vec<u8>, (i32, String)>) -> Self {
        let response = match result {
            Ok(payload) => Response { status: None, payload },
            Err((code, message)) => Response { status: Some(Status { code, message }), payload: Vec::new() },
        };
        Self { called, call, content: MessageContent::Response(response) }
    }
}

impl Response {
    /// The decoded result, or the reason of the failure.
    ///
    /// # Errors
    /// If the response is a failure or no such message.
    pub fn result<T: prost::Message + Default>(&self) -> Result<T, String> {
        match &self.status {
            Some(status) if status.code != 0 => Err(status.message.clone()),
            _ => T::decode(&self.payload[..]).map_err(|error| error.to_string()),
        }
    }
}

/// Reason for which the connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// Failure of the socket.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A frame or message is longer than any may be.
    #[error("a message of {0} bytes, more than {LONGEST}")]
    TooLong(usize),
    /// A message has a type that no call of this interface has.
    #[error("a message of the unknown type {0}")]
    Type(u8),
    /// A message is no protobuf message.
    #[error("a message that cannot be read: {0}")]
    Undecodable(#[from] prost::DecodeError),
}

/// Reading half of a connection.
#[derive(Debug)]
pub struct MessageReader<R> {
    source: R,
    /// Bytes of each stream that are no whole message yet.
    pending: [Vec<u8>; 2],
}

impl<R: AsyncRead + Unpin> MessageReader<R> {
    /// Reader of this half.
    pub const fn new(source: R) -> Self {
        Self { source, pending: [Vec::new(), Vec::new()] }
    }

    /// Next message of either stream; `None` at the end of the connection. Not cancellation safe.
    ///
    /// # Errors
    /// If the connection cannot be used any more.
    pub async fn next(&mut self) -> Result<Option<Message>, WireError> {
        loop {
            for called in CalledSide::BOTH {
                if let Some(message) = take(called, &mut self.pending[called.index()])? {
                    return Ok(Some(message));
                }
            }
            if !self.read_frame().await? {
                return Ok(None);
            }
        }
    }

    /// Reads a frame into its stream. Frames of other streams are skipped, as the runtime skips them.
    async fn read_frame(&mut self) -> Result<bool, WireError> {
        let mut header = [0; FRAME_HEADER];
        match self.source.read_exact(&mut header).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let (stream, length) = (number(&header[..4]), size(&header[4..]));
        if length > MESSAGE_HEADER + LONGEST {
            return Err(WireError::TooLong(length));
        }
        let mut bytes = vec![0; length];
        self.source.read_exact(&mut bytes).await?;
        if let Some(called) = CalledSide::BOTH.into_iter().find(|called| called.number() == stream) {
            self.pending[called.index()].append(&mut bytes);
        }
        Ok(true)
    }
}

/// The first message of a stream, if all of it is there.
fn take(called: CalledSide, bytes: &mut Vec<u8>) -> Result<Option<Message>, WireError> {
    let Some(header) = bytes.get(..MESSAGE_HEADER) else { return Ok(None) };
    let (length, call, kind) = (size(&header[..4]), number(&header[4..8]), header[8]);
    if length > LONGEST {
        return Err(WireError::TooLong(length));
    }
    let end = MESSAGE_HEADER + length;
    let Some(body) = bytes.get(MESSAGE_HEADER..end) else { return Ok(None) };
    let content = match kind {
        REQUEST => MessageContent::Request(Request::decode(body)?),
        RESPONSE => MessageContent::Response(Response::decode(body)?),
        other => return Err(WireError::Type(other)),
    };
    bytes.drain(..end);
    Ok(Some(Message { called, call, content }))
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn size(bytes: &[u8]) -> usize {
    number(bytes) as usize
}

/// Writes a message as one frame.
///
/// # Errors
/// If it is too long, or the socket fails.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), message: &Message) -> Result<(), WireError> {
    let (kind, flags, body) = match &message.content {
        MessageContent::Request(request) => (REQUEST, NOTHING_FOLLOWS, request.encode_to_vec()),
        MessageContent::Response(response) => (RESPONSE, 0, response.encode_to_vec()),
    };
    let too_long = |_| WireError::TooLong(body.len());
    if body.len() > LONGEST {
        return Err(WireError::TooLong(body.len()));
    }
    let length = u32::try_from(body.len()).map_err(too_long)?;
    let whole = u32::try_from(MESSAGE_HEADER + body.len()).map_err(too_long)?;
    let mut frame = Vec::with_capacity(FRAME_HEADER + MESSAGE_HEADER + body.len());
    for number in [message.called.number(), whole, length, message.call] {
        frame.extend(number.to_be_bytes());
    }
    frame.extend([kind, flags]);
    frame.extend(body);
    to.write_all(&frame).await?;
    Ok(to.flush().await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Empty, RegisterPluginRequest};
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Result<Vec<Message>, WireError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        runtime.block_on(async {
            let (mut reader, mut all) = (MessageReader::new(bytes), Vec::new());
            while let Some(message) = reader.next().await? {
                all.push(message);
            }
            Ok(all)
        })
    }

    fn written(messages: &[Message]) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let mut bytes = Vec::new();
            for message in messages {
                send(&mut bytes, message).await.expect("room");
            }
            bytes
        })
    }

    /// The bytes that containerd's Go code sends for the same call, written by hand from its sources.
    #[test]
    fn registration_has_the_bytes_of_the_go_code() {
        let argument = RegisterPluginRequest {
            plugin_name: "t".into(),
            plugin_idx: "10".into(),
            nri_version: String::new(),
        };
        let message = Message::request(CalledSide::Runtime, 1, "RegisterPlugin", &argument);
        let mut expected = vec![0, 0, 0, 2, 0, 0, 0, 65, 0, 0, 0, 55, 0, 0, 0, 1, 1, 1, 0x0a, 28];
        expected.extend(b"nri.pkg.api.v1alpha1.Runtime\x12\x0eRegisterPlugin\x1a\x07\x0a\x01t\x12\x0210");
        assert_eq!(written(&[message]), expected);
    }

    #[test]
    fn failure_has_its_reason() {
        let failure = Message::response(CalledSide::Plugin, 3, Err((UNKNOWN, "no room".into())));
        let MessageContent::Response(response) = &read(&written(&[failure])).unwrap()[0].content.clone()
        else {
            panic!("no response")
        };
        assert_eq!(response.result::<Empty>(), Err("no room".into()));
        assert_eq!(Response::default().result::<Empty>(), Ok(Empty {}));
    }

    #[test]
    fn what_is_too_long_or_of_another_type_is_an_error() {
        assert!(matches!(read(&[0, 0, 0, 1, 255, 0, 0, 0]), Err(WireError::TooLong(_))));
        let long = [0, 0, 0, 1, 0, 0, 0, 10, 255, 0, 0, 0, 0, 0, 0, 1, 1, 0];
        assert!(matches!(read(&long), Err(WireError::TooLong(_))));
        let data = [0, 0, 0, 1, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0];
        assert!(matches!(read(&data), Err(WireError::Type(3))));
        assert!(read(&[0, 0, 0, 9, 0, 0, 0, 1, 7]).unwrap().is_empty());
        assert!(read(&[0, 0]).unwrap().is_empty());
    }

    proptest! {
        /// A sender may cut its streams anywhere.
        #[test]
        fn messages_do_not_depend_on_frames(names in proptest::collection::vec(("[a-z]{0,20}", any::<bool>()), 1..6), cut in 1..40usize) {
            let message = |(call, (name, plugin)): (usize, &(String, bool))| {
                let called = if *plugin { CalledSide::Plugin } else { CalledSide::Runtime };
                Message::request(called, u32::try_from(call).unwrap_or_default(), name, &Empty {})
            };
            let mut messages: Vec<_> = names.iter().enumerate().map(message).collect();
            let mut bytes = Vec::new();
            for message in &messages {
                let whole = written(std::slice::from_ref(message));
                for piece in whole[FRAME_HEADER..].chunks(cut) {
                    bytes.extend(&whole[..4]);
                    bytes.extend(u32::try_from(piece.len()).unwrap_or_default().to_be_bytes());
                    bytes.extend(piece);
                }
            }
            let mut read = read(&bytes).unwrap();
            let key = |message: &Message| message.call;
            read.sort_by_key(key);
            messages.sort_by_key(key);
            prop_assert_eq!(read, messages);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
