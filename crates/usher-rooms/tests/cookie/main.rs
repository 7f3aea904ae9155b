//! Cookies against lines that nobody wrote by hand, and against those that somebody did: the corpus
//! of the fuzz target, in a folder for each end.

mod laws;

use std::path::Path;

use proptest::prelude::*;
use usher_rooms::cookie;

#[test]
fn the_corpus_ends_as_its_folders_say() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/room_cookie");
    let mut seen = 0;
    for end in ["good", "bad"] {
        for file in std::fs::read_dir(corpus.join(end)).expect("a folder") {
            let path = file.expect("a file").path();
            let line = std::fs::read(&path).expect("bytes");
            assert_eq!(laws::of_cookies(&line), end == "good", "{}", path.display());
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen} files");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_of_any_kind_are_no_harm(line in prop::collection::vec(any::<u8>(), 0..300)) {
        laws::of_cookies(&line);
    }

    #[test]
    fn claims_of_any_kind_are_no_harm(
        standing in 0_u8..3,
        numbers in prop::collection::vec(any::<u8>(), cookie::claims::LEN - 3),
        doubted in 0_u8..2,
    ) {
        let bytes = [&[1, standing], &numbers[..], &[doubted]].concat();
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("a=b; __cfwaitingroom={text}");
        prop_assert!(laws::of_cookies(line.as_bytes()));
    }
}
