//! Clients that want no key, and keep the broker busy.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::*;

/// Connects from an address of the loopback network.
async fn connect_from(from: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

#[tokio::test]
async fn one_address_that_floods_the_broker_keeps_no_node_waiting_also_none_at_the_same_address() {
    let cluster = Cluster::start().await;
    let replica = cluster.trusted_replica().await;
    let connector = crate::client::connector(&cluster.path("ca.crt")).await.unwrap();
    let server = rustls::pki_types::ServerName::try_from(NAME).unwrap();
    let head = "POST /v1/account-key HTTP/1.1\r\nhost: x\r\ncontent-length: 40\r\n";
    let parts = [String::new(), head.to_owned(), format!("{head}authorization: Bearer x\r\n\r\n{{\"volu")];
    let node = cluster.node("n1");
    let mut open: Vec<Box<dyn std::any::Any>> = Vec::new();
    for number in 0..120 {
        // The node asks from 127.0.0.1.
        let from = if number % 2 == 0 { [127, 0, 0, 1] } else { [127, 0, 0, 2] };
        let stream = connect_from(from, replica).await.unwrap();
        // A quarter does not even speak TLS. One that has given way already is of no use any more.
        match parts.get(number / 2 % 4) {
            None => open.push(Box::new(stream)),
            Some(part) => {
                if let Ok(mut stream) = connector.connect(server.clone(), stream).await {
                    let _ = stream.write_all(part.as_bytes()).await;
                    let _ = stream.flush().await;
                    open.push(Box::new(stream));
                }
            }
        }
        if number % 12 == 11 {
            let asked = timeout(Duration::from_secs(4), node.key(VOLUME, &BTreeMap::new(), None)).await;
            assert_eq!(asked.expect("before any connection is cut for its slowness"), expected("f1", KEY));
        }
    }
    // Whole requests, which no review allows.
    let flood = (0..64).map(|_| {
        let (connector, server) = (connector.clone(), server.clone());
        async move {
            let stream = connect_from([127, 0, 0, 2], replica).await?;
            let mut stream = connector.connect(server, stream).await?;
            let body = r#"{"volumeId":"a"}"#;
            let head = "POST /v1/account-key HTTP/1.1\r\nhost: x\r\nauthorization: Bearer x\r\n";
            let head = format!("{head}content-length: {}\r\ncontent-type: application/json\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await
        }
    });
    let asking = async {
        for _ in 0..8 {
            let asked = timeout(Duration::from_secs(8), node.key(VOLUME, &BTreeMap::new(), None)).await;
            assert_eq!(asked.expect("in time"), expected("f1", KEY));
        }
    };
    let _: (Vec<std::io::Result<usize>>, ()) = futures::future::join(futures::future::join_all(flood), asking).await;
    drop(open);
}
