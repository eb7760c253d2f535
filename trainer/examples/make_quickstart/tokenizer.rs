//! A small byte-level BPE tokenizer with the control tokens of ChatML.

use serde_json::{Value, json};
use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper,
    TokenizerBuilder,
    models::bpe::{BPE, BpeTrainerBuilder},
    normalizers::unicode::NFC,
    pre_tokenizers::{
        byte_level::ByteLevel,
        sequence::Sequence,
        split::{Split, SplitPattern},
    },
    tokenizer::normalizer::SplitDelimiterBehavior,
};

/// Tokens, control tokens included.
pub(crate) const VOCAB_SIZE: usize = 1024;
/// `<|endoftext|>`
pub(crate) const ENDOFTEXT_ID: usize = 0;
/// `<|im_end|>`
pub(crate) const IM_END_ID: usize = 2;

const CONTROL: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

/// Where words end, as in Qwen's tokenizers.
const PATTERN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

const TEMPLATE: &str = "{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
";

/// `tokenizer.json`, trained on texts.
pub(crate) fn train(texts: impl Iterator<Item = String> + Send) -> String {
    let split = Split::new(
        SplitPattern::Regex(PATTERN.to_string()),
        SplitDelimiterBehavior::Isolated,
        false,
    )
    .expect("the pattern is valid");
    let byte_level = ByteLevel::new(false, false, false);
    let pre_tokenizer = Sequence::new(vec![split.into(), byte_level.into()]);
    let mut tokenizer = TokenizerBuilder::<
        BPE,
        NormalizerWrapper,
        PreTokenizerWrapper,
        PostProcessorWrapper,
        DecoderWrapper,
    >::new()
    .with_model(BPE::default())
    .with_normalizer(Some(NFC.into()))
    .with_pre_tokenizer(Some(pre_tokenizer.into()))
    .with_post_processor(Some(byte_level.into()))
    .with_decoder(Some(byte_level.into()))
    .build()
    .expect("every part is given");
    let control = CONTROL.map(|token| AddedToken::from(token, true)).to_vec();
    let mut trainer = BpeTrainerBuilder::new()
        .show_progress(false)
        .vocab_size(VOCAB_SIZE)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(control)
        .build();
    // The words of a turn's header are no part of the texts.
    let texts = texts.chain(["user\n", "assistant\n", "system\n"].map(str::to_string));
    tokenizer.train(&mut trainer, texts).expect("texts are plain strings");
    tokenizer.to_string(true).expect("a tokenizer can be written") + "\n"
}

/// `tokenizer_config.json`.
pub(crate) fn config() -> Value {
    json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": false,
        "bos_token": null,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": null,
        "model_max_length": 4096,
        "clean_up_tokenization_spaces": false,
        "chat_template": TEMPLATE
    })
}
