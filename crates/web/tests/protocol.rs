//! What a connection owes its client, byte by byte: order, framing, endings. Found by the simulation, each by a name.

use ringmain_web::App;
use ringmain_web::testing::TestClient;

#[test]
fn no_interim_answer_follows_the_head_of_the_final_one() {
    let app = App::new().post_streamed("/", async |req, reply| {
        reply.write("begun, ").await?;
        let mut bytes = 0;
        while let Some(chunk) = req.chunk().await? {
            bytes += chunk.len();
        }
        reply.write(format!("{bytes} read")).await
    });
    let mut client = TestClient::new(app).unwrap();
    let mut raw = client.raw();
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    raw.advance(std::time::Duration::from_secs(1));
    raw.send("body");
    let reply = raw.try_reply("POST").unwrap();
    assert_eq!((reply.text(), reply.interim()), ("begun, 4 read", &[][..]));
}
