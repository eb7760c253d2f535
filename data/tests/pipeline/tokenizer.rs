//! Which tokens a folder's files name.

use burn_qwen_data::Tokenizer;
use serde_json::json;

use crate::kit::model_folder;

#[test]
fn padding_is_never_a_token_of_images() {
    let folder = tempfile::tempdir().unwrap();
    let json = std::fs::read_to_string(model_folder().join("tokenizer.json")).unwrap();
    for pad in ["<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"] {
        // A tokenizer that has the token.
        let json = json.replace("<|im_start|>", pad);
        std::fs::write(folder.path().join("tokenizer.json"), json).unwrap();
        let config = json!({ "pad_token": pad }).to_string();
        std::fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let read = Tokenizer::from_folder(folder.path()).unwrap();
        assert!(read.token_id(pad).is_some());
        assert_eq!(read.pad_token_id(), read.token_id("<|endoftext|>"), "{pad}");
    }
}
