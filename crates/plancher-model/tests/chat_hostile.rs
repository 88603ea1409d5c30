//! Damaged chat templates: rendering one returns a prompt or a one-line error.

use plancher_model::testing::{Random, check_chat_template};

#[test]
fn damaged_templates_are_survived() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/chat");
    let mut random = Random::new(7);
    let mut checked = 0;
    for entry in std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_none_or(|extension| extension != "jinja") {
            continue;
        }
        let source: Vec<char> = std::fs::read_to_string(&entry).unwrap().chars().collect();
        for _ in 0..200 {
            let mut damaged = source.clone();
            for _ in 0..=random.below(4) {
                let (from, to) = (random.below(damaged.len()), random.below(damaged.len()));
                let piece: Vec<char> = damaged[from..].iter().take(random.below(40)).copied().collect();
                damaged.splice(to..(to + random.below(3)).min(damaged.len()), piece);
            }
            check_chat_template(damaged.into_iter().collect::<String>().as_bytes());
            checked += 1;
        }
    }
    assert!(checked >= 600, "only {checked} templates were found");
}
