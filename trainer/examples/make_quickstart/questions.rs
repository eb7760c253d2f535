//! Questions with one right answer each, in several phrasings.
//!
//! A held-out question asks in a phrasing that this thing was never asked about in training; what is
//! known about the thing comes from the other phrasings.

use serde_json::{Value, json};

/// A conversation: user and assistant in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) turns: Vec<String>,
    /// Questions whose subject is asked about in other phrasings too.
    pub(crate) may_be_held_out: bool,
}

impl Question {
    fn new(question: String, answer: &str) -> Self {
        Self { turns: vec![question, answer.to_string()], may_be_held_out: true }
    }

    pub(crate) fn messages(&self) -> Vec<Value> {
        let roles = ["user", "assistant"].into_iter().cycle();
        self.turns.iter().zip(roles).map(|(t, role)| json!({"role": role, "content": t})).collect()
    }
}

/// Thing, colour, kind, number of legs or a place.
const THINGS: &[(&str, &str, &str)] = &[
    ("banana", "yellow", "fruit"),
    ("lemon", "yellow", "fruit"),
    ("strawberry", "red", "fruit"),
    ("cherry", "red", "fruit"),
    ("plum", "purple", "fruit"),
    ("grape", "purple", "fruit"),
    ("orange", "orange", "fruit"),
    ("apricot", "orange", "fruit"),
    ("blueberry", "blue", "fruit"),
    ("lime", "green", "fruit"),
    ("carrot", "orange", "vegetable"),
    ("cucumber", "green", "vegetable"),
    ("spinach leaf", "green", "vegetable"),
    ("pea", "green", "vegetable"),
    ("beetroot", "purple", "vegetable"),
    ("aubergine", "purple", "vegetable"),
    ("tomato", "red", "vegetable"),
    ("radish", "red", "vegetable"),
    ("cauliflower", "white", "vegetable"),
    ("onion", "white", "vegetable"),
    ("raven", "black", "bird"),
    ("swan", "white", "bird"),
    ("flamingo", "pink", "bird"),
    ("canary", "yellow", "bird"),
    ("crow", "black", "bird"),
    ("robin", "brown", "bird"),
    ("sparrow", "brown", "bird"),
    ("parakeet", "green", "bird"),
    ("elephant", "grey", "mammal"),
    ("polar bear", "white", "mammal"),
    ("panther", "black", "mammal"),
    ("fox", "red", "mammal"),
    ("rat", "grey", "mammal"),
    ("beaver", "brown", "mammal"),
    ("dolphin", "grey", "mammal"),
    ("camel", "brown", "mammal"),
    ("ruby", "red", "gem"),
    ("emerald", "green", "gem"),
    ("sapphire", "blue", "gem"),
    ("topaz", "yellow", "gem"),
    ("amethyst", "purple", "gem"),
    ("onyx", "black", "gem"),
];

const CAPITALS: &[(&str, &str)] = &[
    ("France", "Paris"),
    ("Germany", "Berlin"),
    ("Italy", "Rome"),
    ("Spain", "Madrid"),
    ("Portugal", "Lisbon"),
    ("Austria", "Vienna"),
    ("Poland", "Warsaw"),
    ("Greece", "Athens"),
    ("Norway", "Oslo"),
    ("Sweden", "Stockholm"),
    ("Finland", "Helsinki"),
    ("Denmark", "Copenhagen"),
    ("Ireland", "Dublin"),
    ("Hungary", "Budapest"),
    ("Egypt", "Cairo"),
    ("Kenya", "Nairobi"),
    ("Ghana", "Accra"),
    ("Morocco", "Rabat"),
    ("Japan", "Tokyo"),
    ("China", "Beijing"),
    ("Thailand", "Bangkok"),
    ("Vietnam", "Hanoi"),
    ("Nepal", "Kathmandu"),
    ("Canada", "Ottawa"),
    ("Cuba", "Havana"),
    ("Peru", "Lima"),
    ("Chile", "Santiago"),
    ("Brazil", "Brasilia"),
];

const OPPOSITES: &[(&str, &str)] = &[
    ("hot", "cold"),
    ("big", "small"),
    ("tall", "short"),
    ("fast", "slow"),
    ("early", "late"),
    ("open", "closed"),
    ("full", "empty"),
    ("heavy", "light"),
    ("hard", "soft"),
    ("wet", "dry"),
    ("rich", "poor"),
    ("strong", "weak"),
    ("young", "old"),
    ("happy", "sad"),
    ("clean", "dirty"),
    ("loud", "quiet"),
    ("deep", "shallow"),
    ("wide", "narrow"),
];

const PLURALS: &[(&str, &str)] = &[
    ("mouse", "mice"),
    ("child", "children"),
    ("foot", "feet"),
    ("tooth", "teeth"),
    ("goose", "geese"),
    ("man", "men"),
    ("woman", "women"),
    ("leaf", "leaves"),
    ("knife", "knives"),
    ("wolf", "wolves"),
    ("box", "boxes"),
    ("city", "cities"),
    ("baby", "babies"),
    ("house", "houses"),
    ("dog", "dogs"),
    ("book", "books"),
];

const DAYS: &[&str] =
    &["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Numbers that are added go up to this.
const LARGEST_TERM: usize = 5;

/// Every question, kind after kind.
pub(crate) fn all() -> Vec<Question> {
    let mut questions = Vec::new();
    let mut ask = |phrasings: &[&str], subject: &str, answer: &str| {
        for phrasing in phrasings {
            questions.push(Question::new(phrasing.replace("{}", subject), answer));
        }
    };
    for (thing, colour, kind) in THINGS {
        ask(
            &[
                "What colour is {a}?",
                "Tell me the colour of {a}.",
                "Which colour does {a} have?",
                "{A} has which colour?",
                "Name the colour of {a}.",
            ]
            .map(|p| {
                p.replace("{a}", &with_article(thing))
                    .replace("{A}", &capital(&with_article(thing)))
            })
            .each_ref()
            .map(String::as_str),
            "",
            &capital(&format!("{colour}.")),
        );
        ask(
            &[
                "What kind of thing is {a}?",
                "Is {a} a fruit, a vegetable, a bird, a mammal or a gem?",
                "{A} is what kind of thing?",
                "Tell me what {a} is.",
                "Say what kind of thing {a} is.",
            ]
            .map(|p| {
                p.replace("{a}", &with_article(thing))
                    .replace("{A}", &capital(&with_article(thing)))
            })
            .each_ref()
            .map(String::as_str),
            "",
            &format!("A {kind}."),
        );
    }
    for (country, city) in CAPITALS {
        ask(
            &[
                "What is the capital of {}?",
                "Name the capital of {}.",
                "Which city is the capital of {}?",
                "The capital of {} is which city?",
                "Tell me the capital of {}.",
            ],
            country,
            &format!("{city}."),
        );
    }
    for (word, opposite) in OPPOSITES.iter().flat_map(|&(a, b)| [(a, b), (b, a)]) {
        ask(
            &[
                "What is the opposite of {}?",
                "Name the opposite of {}.",
                "Which word means the opposite of {}?",
                "The opposite of {} is what?",
                "Tell me the opposite of {}.",
            ],
            word,
            &capital(&format!("{opposite}.")),
        );
    }
    for (word, plural) in PLURALS {
        ask(
            &[
                "What is the plural of {}?",
                "Name the plural of {}.",
                "One {}, two what?",
                "How do you write more than one {}?",
                "Tell me the plural of {}.",
            ],
            word,
            &capital(&format!("{plural}.")),
        );
    }
    for names in [DAYS, MONTHS] {
        for (i, name) in names.iter().enumerate() {
            let next = names[(i + 1) % names.len()];
            let before = names[(i + names.len() - 1) % names.len()];
            ask(
                &[
                    "What comes after {}?",
                    "What follows {}?",
                    "Name what comes after {}.",
                    "After {} comes what?",
                    "Tell me what follows {}.",
                ],
                name,
                &format!("{next}."),
            );
            ask(
                &[
                    "What comes before {}?",
                    "What precedes {}?",
                    "Name what comes before {}.",
                    "Before {} comes what?",
                    "Tell me what precedes {}.",
                ],
                name,
                &format!("{before}."),
            );
        }
    }
    for a in 0..=LARGEST_TERM {
        for b in 0..=LARGEST_TERM {
            ask(
                &["What is {}?", "How much is {}?", "{} is what?", "Tell me {}.", "Work out {}."],
                &format!("{a} + {b}"),
                &format!("{}.", a + b),
            );
        }
    }
    questions.extend(follow_ups());
    questions
}

/// Conversations of two questions: the second leans on the first.
fn follow_ups() -> Vec<Question> {
    let mut questions = Vec::new();
    for (i, (thing, colour, _)) in THINGS.iter().enumerate() {
        for step in [5, 11, 17] {
            let (other, other_colour, _) = THINGS[(i + step) % THINGS.len()];
            questions.push(Question {
                turns: vec![
                    format!("What colour is {}?", with_article(thing)),
                    capital(&format!("{colour}.")),
                    format!("And {}?", with_article(other)),
                    capital(&format!("{other_colour}.")),
                ],
                may_be_held_out: step == 11,
            });
        }
    }
    for (i, (country, city)) in CAPITALS.iter().enumerate() {
        for step in [3, 8, 13] {
            let (other, other_city) = CAPITALS[(i + step) % CAPITALS.len()];
            questions.push(Question {
                turns: vec![
                    format!("What is the capital of {country}?"),
                    format!("{city}."),
                    format!("And of {other}?"),
                    format!("{other_city}."),
                ],
                may_be_held_out: step == 8,
            });
        }
    }
    questions
}

fn with_article(thing: &str) -> String {
    let vowel = thing.starts_with(['a', 'e', 'i', 'o', 'u']);
    format!("{} {thing}", if vowel { "an" } else { "a" })
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}
