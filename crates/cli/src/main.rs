//! The one binary `ringmain`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let addr = args.next().unwrap_or("127.0.0.1:7000".into());
    let engine = args.next();
    let mut config = ringmain_engine::Config {
        workers: Some(1),
        ..Default::default()
    };
    if engine.as_deref() == Some("epoll") {
        config.engine = ringmain_engine::Choice::Epoll;
    }
    let mut engine = ringmain_engine::Engine::new(config).unwrap();
    eprintln!("{}", engine.selection());
    engine
        .listen(&addr.parse().unwrap(), &Default::default())
        .unwrap();
    engine
        .run(|_| {
            ringmain_engine::on_data(|conn, bytes: &mut [u8]| match conn.write(bytes) {
                Ok(()) => bytes.len(),
                Err(_) => 0,
            })
        })
        .unwrap();
    std::process::ExitCode::SUCCESS
}
