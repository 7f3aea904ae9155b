//! A front to one endpoint, for measurements: `relay ENDPOINT WORKERS`.
#[allow(dead_code, unreachable_pub)]
#[path = "../tests/http1/kit.rs"]
mod kit;

fn main() {
    let mut args = std::env::args().skip(1);
    let endpoint = args.next().expect("endpoint").parse().expect("address");
    let workers: usize = args.next().map_or(1, |count| count.parse().expect("count"));
    let mut setup = kit::Setup::to(&[endpoint]);
    setup.workers = workers;
    let usher = setup.start();
    println!("{}", usher.address);
    std::thread::park();
}
