//! The browsers of this machine, as the process that serves them starts them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::timeout;
use usher_browsers::host::Caller;
use usher_browsers::host::wire::{Ask, Hello, VERSION};

use crate::support::process::Folder;

/// For a browser to be drawn with on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn it_starts_browsers_and_takes_them_along() {
    let folder = Folder::new();
    let mut host = folder
        .command(&["browser-host", "--folder", "host", "--max", "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(host.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut said = String::new();
        host.stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert!(said.contains("the sandbox cannot be made"), "{said}");
        assert_eq!(host.wait().unwrap().code(), Some(3));
        println!("SKIPPED: {said}");
        return;
    }
    assert_eq!(line, "ready\n");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let socket = folder.path().join("host/socket");
        let mut caller = Caller::connect(&socket).await.unwrap();
        let hello: Hello = caller.ask(&Ask::Hello).await.unwrap();
        assert_eq!((hello.version, hello.slots, hello.boot), (VERSION, 1, None));
        let watching = Caller::connect(&socket).await.unwrap();
        let mut watching = watching.watch().await.unwrap();
        let () = caller.ask(&Ask::Register { boot: 1 }).await.unwrap();
        let () = caller
            .ask(&Ask::Want {
                ready: 1,
                most: None,
            })
            .await
            .unwrap();
        let ready = async {
            loop {
                let told = watching.next().await.unwrap();
                if told.beats.iter().any(|beat| beat.phase == "ready") {
                    return;
                }
            }
        };
        timeout(PATIENCE, ready)
            .await
            .expect("a browser that draws");
    });
    let pid = Pid::from_raw(i32::try_from(host.id()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(host.wait().unwrap().code(), Some(0));
    let left = folder.path().join("host/browsers");
    let left = std::fs::read_dir(left).map_or(0, Iterator::count);
    assert_eq!(left, 0, "files of browsers are left");
}

#[test]
fn bare_browsers_are_asked_for_by_name() {
    let ended = Folder::new().run(&["browser-host", "--folder", "host", "--backend", "process"]);
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("insecure_single_tenant"), "{ended:?}");
}
