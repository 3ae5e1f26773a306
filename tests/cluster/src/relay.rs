//! A port of this machine that leads to one in the cluster's network.

use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpStream};

/// Takes connections of `listener`, which belongs to the network where it was opened, and passes each on to `target` in the
/// network of this thread. Runs without end.
pub(crate) async fn relay(listener: TcpListener, target: SocketAddr) {
    loop {
        match listener.accept().await {
            Ok((outside, _)) => drop(tokio::spawn(connect(outside, target))),
            // Such as no file descriptor is free: the next one may be taken.
            Err(error) => {
                eprintln!("a connection for {target} was not taken: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// Passes bytes both ways until both sides have ended.
async fn connect(mut outside: TcpStream, target: SocketAddr) {
    // A client sees the end of its connection, as from a server that is gone.
    if let Ok(mut inside) = TcpStream::connect(target).await {
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn bytes_go_both_ways_and_the_end_of_one_way_is_passed_on() {
        let (outer, inner) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = outer.local_addr().unwrap();
        tokio::spawn(relay(outer, inner.local_addr().unwrap()));
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = inner.accept().await.unwrap();
        let mut heard = Vec::new();
        server.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        server.write_all(b"answer").await.unwrap();
        drop(server);
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"answer");
    }
}
