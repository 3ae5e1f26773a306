//! The agent of a test in its guest: runs programs, writes and reads files and connects to unix sockets there.
//!
//! It calls the test, on the loopback interface of the machine that the guest runs on: so no port has to be chosen before
//! anybody listens on it, and the first connection says that the guest is ready. One connection is always waiting; when a
//! request comes over it, the next one is made. When the test has gone, the agent ends and with it the guest.

#![expect(clippy::unwrap_used, reason = "an agent that cannot go on ends the guest, and the console shows why")]

use std::{
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream, process::ExitStatusExt},
    process::{Command, Stdio},
    thread,
};

mod wire;

/// The loopback interface of the machine that the guest runs on (source: QEMU's user network).
const HOST: &str = "10.0.2.2";

fn main() {
    let argument = std::env::args().nth(1).expect("agent PORT:TOKEN");
    let (port, token) = argument.split_once(':').expect("agent PORT:TOKEN");
    let port: u16 = port.parse().expect("a port");
    loop {
        let mut connection = match TcpStream::connect((HOST, port)) {
            Ok(connection) => connection,
            Err(error) => {
                println!("agent: the test has gone: {error}");
                return;
            }
        };
        connection.set_nodelay(true).unwrap();
        connection.write_all(token.as_bytes()).unwrap();
        match read(&mut connection) {
            Ok((kind, parts)) => {
                thread::spawn(move || serve(connection, kind, &parts));
            }
            Err(error) => {
                println!("agent: the test has gone: {error}");
                return;
            }
        }
    }
}

fn read(connection: &mut TcpStream) -> io::Result<(u8, Vec<Vec<u8>>)> {
    let mut number = |length: usize| -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        connection.read_exact(&mut bytes)?;
        Ok(bytes)
    };
    let size = |bytes: Vec<u8>| u32::from_be_bytes(bytes.try_into().unwrap()) as usize;
    let kind = number(1)?[0];
    let mut parts = Vec::new();
    for _ in 0..size(number(4)?) {
        let length = size(number(4)?);
        parts.push(number(length)?);
    }
    Ok((kind, parts))
}

fn serve(mut connection: TcpStream, kind: u8, parts: &[Vec<u8>]) {
    let text: Vec<String> = parts.iter().map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let answer = match kind {
        wire::EXEC => exec(&text),
        wire::PUT => put(&text[0], &text[1], &parts[2]).map(|()| Vec::new()),
        wire::GET => fs::read(&text[0]).map(|content| vec![content]),
        wire::UNIX => match UnixStream::connect(&text[0]) {
            Ok(socket) => {
                let _ = connection.write_all(&wire::encode(wire::DONE, &[]));
                return join(connection, socket);
            }
            Err(error) => Err(error),
        },
        _ => Err(io::Error::other(format!("there is no request of the kind {kind}"))),
    };
    let frame = match answer {
        Ok(parts) => wire::encode(wire::DONE, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>()),
        Err(error) => wire::encode(wire::FAILED, &[error.to_string().as_bytes()]),
    };
    // A test that waits no longer for the answer has gone.
    let _ = connection.write_all(&frame);
}

fn exec(words: &[String]) -> io::Result<Vec<Vec<u8>>> {
    let output = Command::new(&words[0]).args(&words[1..]).stdin(Stdio::null()).output()?;
    let code = output.status.code().unwrap_or_else(|| 128 + output.status.signal().unwrap_or(0));
    Ok(vec![code.to_string().into_bytes(), output.stdout, output.stderr])
}

fn put(path: &str, mode: &str, content: &[u8]) -> io::Result<()> {
    fs::write(path, content)?;
    let mode = u32::from_str_radix(mode, 8).map_err(io::Error::other)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Carries bytes both ways until both sides have ended theirs.
fn join(connection: TcpStream, socket: UnixStream) {
    let (mut from_test, mut to_socket) = (connection.try_clone().unwrap(), socket.try_clone().unwrap());
    let forth = thread::spawn(move || {
        let _ = io::copy(&mut from_test, &mut to_socket);
        let _ = to_socket.shutdown(Shutdown::Write);
    });
    let (mut from_socket, mut to_test) = (socket, connection);
    let _ = io::copy(&mut from_socket, &mut to_test);
    let _ = to_test.shutdown(Shutdown::Write);
    let _ = forth.join();
}
