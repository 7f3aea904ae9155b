//! Many orders at a time.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

use super::*;

#[tokio::test]
async fn orders_are_carried_out_side_by_side_up_to_the_bound() {
    const ORDERS: usize = PROBES_MAX + 6;
    let (open, mut seen) = watch::channel(0_usize);
    let most = Arc::new(AtomicUsize::new(0));
    let now = Arc::new(AtomicUsize::new(0));
    let server = {
        let (open, most, now) = (open.clone(), Arc::clone(&most), Arc::clone(&now));
        Server::start(move |mut stream| {
            let (open, most, now) = (open.clone(), Arc::clone(&most), Arc::clone(&now));
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                open.send_modify(|count| *count += 1);
                // Nobody is answered before as many as may be are waiting.
                let enough = open
                    .subscribe()
                    .wait_for(|&count| count >= PROBES_MAX)
                    .await
                    .is_ok();
                assert!(enough);
                read_head(&mut stream).await;
                now.fetch_sub(1, Ordering::SeqCst);
                send(&mut stream, OK).await;
                until_closed(&mut stream).await;
            }
        })
        .await
    };
    let (orders, taken) = mpsc::channel(ORDERS);
    let (results, mut done) = mpsc::channel(1);
    let running = tokio::spawn(run(Arc::new(prober()), taken, results));
    let probe = Arc::new(http(server.port, |_| {}));
    for id in 0..ORDERS as u64 {
        orders
            .send(ProbeOrder {
                id: ProbeId(id),
                probe: Arc::clone(&probe),
            })
            .await
            .expect("running");
    }
    drop(orders);
    let mut ids = Vec::new();
    while let Some((id, result)) = done.recv().await {
        assert_eq!(outcome(&result), PASS);
        ids.push(id.0);
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..ORDERS as u64).collect::<Vec<_>>());
    running.await.expect("ends with its orders");
    assert!(seen.borrow_and_update().eq(&ORDERS));
    assert_eq!(most.load(Ordering::SeqCst), PROBES_MAX);
}
