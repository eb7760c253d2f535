//! Conversations to tokens and the exact spans that are trained.

mod disguise;
mod render;
mod template;

pub use render::{
    MaskPolicy, ReasoningPolicy, RenderPolicy, Rendered, Renderer, SampleIssue, SpecialTokensInText,
};
pub use template::{ChatTemplate, RenderInput};
